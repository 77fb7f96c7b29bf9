"""Prediction intervals, class probabilities and novelty."""

from parkrr.uncertainty.calibration import (
    Affine,
    Calibration,
    Isotonic,
    calibration_from_dict,
    learn_calibration,
)
from parkrr.uncertainty.conformal import ConformalScores
from parkrr.uncertainty.diagnostic_rows import (
    DiagnosticRows,
    classification_rows,
    drop_forgotten,
    mark_rows,
    rows_from_tensors,
    rows_to_tensors,
)
from parkrr.uncertainty.intervals import (
    COVERAGE,
    DIAGNOSTIC_ROWS,
    LEVELS,
    SCALE_CENTERS,
    Intervals,
    Posterior,
    calibrate_intervals,
    learn_intervals,
    novelty_of_centers,
    regression_rows,
    schur_complement,
)
from parkrr.uncertainty.jackknife import JackknifePlus, keep_leave_one_out_fits
from parkrr.uncertainty.predictor import Predictor
