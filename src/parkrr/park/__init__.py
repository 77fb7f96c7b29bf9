"""Algorithms 1 and 2."""

from parkrr.park.algorithm import (
    COARSE_ROWS,
    LEFT_OUT_VALUES,
    LIGHTEST_CELL,
    METRIC_ROWS,
    Coarse,
    FitResult,
    FitSettings,
    check_target,
    collect,
    count_centers,
    divide_rows,
    fit_cells,
    fit_leaving_out,
    fit_nystrom_model,
    fit_park,
    make_feature_map,
    make_tasks,
    place_centroids,
    prepare_rows,
    scale_target,
    select_centroids,
    with_left_out,
)
from parkrr.park.cells import (
    CellReport,
    CellResult,
    CellTask,
    LeaveOneOutRows,
    add_cell_errors,
    choose_limits,
    fit_cell,
    include_targets,
    local_penalty,
)
from parkrr.park.incremental import (
    CellStatistics,
    compute_statistics,
    forget_rows,
    learn_rows,
    solve_changed,
    update_model,
    update_report,
)
from parkrr.park.model import (
    IMPORTANCE_ROWS,
    Cell,
    Model,
    NystromModel,
    feature_importances,
    prepare_cell,
)
