"""Algorithms 1 and 2."""

from parkrr.park.algorithm import (
    COARSE_ROWS,
    LEFT_OUT_VALUES,
    METRIC_ROWS,
    Coarse,
    FitResult,
    FitSettings,
    as_map,
    check_kernel_range,
    coarse_model,
    with_target_scaled,
)
from parkrr.park.cells import CellReport, CellResult, CellTask, fit_cell
from parkrr.park.holdout import LeaveOneOutRows, join_left_out
from parkrr.park.incremental import (
    CellStatistics,
    added,
    check_weights_left,
    plain_sums,
    sums_from,
    sums_of,
    told,
    updated,
)
from parkrr.park.model import Cell, CoarseModel, Model
