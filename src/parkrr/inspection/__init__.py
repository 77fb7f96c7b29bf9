"""Facts about a fitted estimator: cells, errors, borders, drift, theory, explanations."""

from parkrr.inspection.column_values import Value, feature_values
from parkrr.inspection.diagnostics import (
    FittedEstimator,
    balance,
    border_jumps,
    cell_table,
    check_fitted,
    errors_by_cell,
    evaluate_rows,
    feature_names,
    theory_of,
    tuning_errors,
    worst_rows,
)
from parkrr.inspection.drift import Drift, drift
from parkrr.inspection.explanation import explain
from parkrr.inspection.gaussian_process import (
    GaussianProcess,
    effective_dimension,
    posterior,
)
from parkrr.inspection.neighbors import neighbors
from parkrr.inspection.partial_dependence import Grid, PartialDependence, partial_dependence
from parkrr.inspection.penalty_path import (
    IterationCurve,
    PenaltyPath,
    iteration_curve,
    penalty_path,
)
from parkrr.inspection.projection import leading_plane
from parkrr.inspection.shapley import shapley_values
