"""Intervals, probabilities, novelty."""

from parkrr.uncertainty.calibration import (
    Affine,
    Calibration,
    Isotonic,
    calibration_from,
    learn_calibration,
)
from parkrr.uncertainty.diagnostic_rows import (
    COVERAGE,
    DiagnosticRows,
    as_tensors,
    from_tensors,
    of_classification,
    of_regression,
    with_errors,
)
from parkrr.uncertainty.intervals import (
    FOLDS,
    LEVELS,
    SCALE_CENTERS,
    Intervals,
    Posterior,
    learn_intervals,
)
from parkrr.uncertainty.novelty import schur_complement
from parkrr.uncertainty.predictor import Predictor, checked_coverage, checked_levels
