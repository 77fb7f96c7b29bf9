"""Looking at a fitted model."""

from parkrr.inspection.diagnostics import (
    Fitted,
    balance,
    border_jumps,
    cell_table,
    compared,
    errors_by_cell,
    fitted,
    seen_rows,
    theory_of,
    worst_rows,
)
from parkrr.inspection.projection import feature_names, leading_plane, limits, typical
