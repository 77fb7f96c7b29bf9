"""Prediction intervals, class probabilities and novelty."""

from parkrr.uncertainty.calibration import (
    Affine,
    Calibration,
    Isotonic,
    calibration_from_dict,
    learn_calibration,
)
from parkrr.uncertainty.diagnostic_rows import (
    COVERAGE,
    DiagnosticRows,
    add_cell_errors,
    classification_rows,
    diagnostic_positions,
    drop_forgotten,
    mark_rows,
    regression_rows,
    rows_from_tensors,
    rows_to_tensors,
)
from parkrr.uncertainty.intervals import (
    FOLDS,
    LEVELS,
    SCALE_CENTERS,
    Intervals,
    Posterior,
    learn_intervals,
    schur_complement,
)
from parkrr.uncertainty.predictor import Predictor
