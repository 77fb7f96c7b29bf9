"""How many cells and centres: as large and as many as time and memory allow.

A cell whose every row is a centre costs n_q^3 / 3 products for its Cholesky factor and three
matrices of n_q^2 doubles. Larger cells are better by a per cent or two each time they double.
"""

from dataclasses import dataclass, replace

from parkrr.errors import BudgetError
from parkrr.planning.costs import FitSize, bytes_of, seconds_of
from parkrr.planning.machine_speed import measured_pace
from parkrr.runtime import told_bytes

# Rows of a cell and the share of them that are centres, from the best to the fastest.
LADDER = (
    *((rows, 1.0) for rows in (14_000, 10_000, 7000, 4000, 2800, 2000, 1400, 1000)),
    *((1000, share) for share in (0.5, 0.25, 0.1, 0.05)),
)
ONE_CELL = 14_000  # rows of which one cell is made unless there is a budget: some 20 s
FEW_ROWS = 100_000  # up to here cells of 4,000 rows are fitted in some 10 s
MOST_CENTERS = 3_000_000  # of an automatic model: some 100 MB
LARGE_CELL_CENTERS = 3000  # where not every row can be one: K_mm of 3,000 takes 72 MB
KEPT_CENTERS = 500  # of a cell whose statistics are kept: 2 MB
CHOOSING = ("sample search", "metric search")  # steps that have the other half of a time budget


@dataclass(frozen=True)
class Sizes:
    """Cells, and centres of all cells together."""

    n_cells: int
    n_centers: int


def choose_sizes(
    shape: FitSize,
    n_cells: int | None,
    n_centers: int | None,
    time_budget: float | None,
    max_memory: float | None,
) -> Sizes:
    """What is not given, within the budgets; half of the seconds are for choosing the rest.

    The sizes of `shape` do not count.
    """
    ladder = [rung for rung in LADDER if rung[0] <= largest(shape.n, time_budget)]
    for rows, share in ladder:
        cells = n_cells or max(1, round(shape.n / rows))
        centers = n_centers or automatic_centers(shape.n, cells, share)
        if shape.keeps and n_centers is None:
            centers = min(centers, KEPT_CENTERS * cells)
        there = replace(shape, n_cells=cells, n_centers=centers)
        fast = time_budget is None or fitting_seconds(there) <= time_budget / 2
        need = bytes_of(there)
        if fast and (max_memory is None or need <= max_memory):
            return Sizes(cells, centers)
    if max_memory is not None and need > max_memory:
        raise BudgetError(
            f"max_memory must be at least {told_bytes(need)} for {shape.n:,} rows of {shape.d} "
            f"numbers with n_cells={cells} and n_centers={centers}, got {told_bytes(max_memory)}; "
            f"raise it, {way_out(there, n_cells, n_centers)}"
        )
    return Sizes(cells, centers)


def fitting_seconds(shape: FitSize) -> float:
    """Of all steps but those that choose kernel, penalty and metric."""
    found = seconds_of(shape, measured_pace(shape.d, shape.t, shape.cores))
    return sum(seconds for step, seconds in found.items() if step not in CHOOSING)


def way_out(shape: FitSize, n_cells: int | None, n_centers: int | None) -> str:
    """What else would make the fit smaller."""
    if n_cells is not None or n_centers is not None:
        return "or leave n_cells and n_centers to be chosen, or lower n_centers"
    if shape.chooses or shape.tries:
        return "or set kernel, penalty, metric, blend and coarse, whose choice takes memory"
    return "or fit files (scan_parquet), whose rows stay on disk"


def automatic_centers(n: int, n_cells: int, share: float) -> int:
    """That share of the rows, unless cells are too large for it."""
    if n / n_cells > ONE_CELL:
        return LARGE_CELL_CENTERS * n_cells
    return round(share * min(n, MOST_CENTERS))


def largest(n: int, time_budget: float | None) -> int:
    """Most rows of a cell: with a budget that alone decides."""
    if time_budget is not None or n <= ONE_CELL:
        return LADDER[0][0]
    return 4000 if n <= FEW_ROWS else 2000
