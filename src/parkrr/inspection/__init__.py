"""Facts about a fitted estimator: cells, errors, borders, theory."""

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
from parkrr.inspection.projection import leading_plane
