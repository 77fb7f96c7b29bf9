"""How many cells and centres: as large and as many as time and memory allow.

A cell whose every row is a centre costs n_q^3 / 3 products for its Cholesky factor and three
matrices of n_q^2 doubles. Larger cells are better by a per cent or two each time they double.
"""

import time
from dataclasses import dataclass
from functools import cache

import torch

from parkrr.engine import Engine
from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian
from parkrr.problem import kernel_of_rows

# Rows of a cell and the share of them that are centres, from the best to the fastest.
LADDER = (
    *((rows, 1.0) for rows in (14_000, 10_000, 7000, 4000, 2800, 2000, 1400, 1000)),
    *((1000, share) for share in (0.5, 0.25, 0.1, 0.05)),
)
ONE_CELL = 14_000  # rows of which one cell is made unless there is a budget: some 20 s
FEW_ROWS = 100_000  # up to here cells of 4,000 rows are fitted in some 10 s
MOST_CENTERS = 3_000_000  # of an automatic model: some 100 MB
LARGE_CELL_CENTERS = 3000  # where not every row can be one: K_mm of 3,000 takes 72 MB
PROBE = 1500  # rows of the cell that is timed


@dataclass(frozen=True)
class Speed:
    """What one core does in a second: kernel values and products, both in float64."""

    values: float = 2e8
    products: float = 4e10

    def seconds(self, n: float, rows: float, share: float, cores: int) -> float:
        """To fit cells of so many rows, n rows in all."""
        m = share * rows
        solve = m**3 / 3 if share == 1 else 1.3 * rows * m**2 + 2.7 * m**3
        cells = max(1.0, n / rows)
        busy = min(cores, cells) if cells > 1 else cores
        return cells * (rows * m / self.values + solve / self.products) / busy


@dataclass(frozen=True)
class Sizes:
    """Cells, and centres of all cells together."""

    n_cells: int
    n_centers: int


@cache
def measured_speed() -> Speed:
    """The speed of this machine, by building and factoring one small cell on one thread."""
    X = torch.rand(PROBE, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel_of_rows(Gaussian(), X)  # warm
    start = time.perf_counter()
    K = kernel_of_rows(Gaussian(), X)
    K.diagonal().add_(1)
    built = time.perf_counter()
    torch.linalg.cholesky(K)
    done = time.perf_counter()
    return Speed(PROBE**2 / (built - start), PROBE**3 / 3 / (done - built))


def memory(n: int, rows: float, share: float, d: int, cores: int) -> float:
    """Bytes a fit needs beyond its rows: the model twice, and the matrices of a cell a core."""
    model = 2 * 4 * min(n, share * n) * (2 * d + 4)
    return model + min(cores, n / rows) * 3 * 8 * (share * rows) * min(rows, n) + 2**28


def choose_sizes(
    n: int,
    d: int,
    n_cells: int | None,
    n_centers: int | None,
    engine: Engine,
    time_budget: float | None,
    max_memory: float | None,
) -> Sizes:
    """What is not given, within the budgets; half of the seconds are for choosing the rest."""
    cores = engine.cores
    speed = Speed() if time_budget is None else measured_speed()
    ladder = [(rows, share) for rows, share in LADDER if rows <= largest(n, time_budget)]
    for rows, share in ladder:
        cells = n_cells or max(1, round(n / rows))
        centers = n_centers or automatic_centers(n, cells, share)
        part = min(1.0, centers / n)
        seconds = speed.seconds(n, n / cells, part, cores)
        fast = time_budget is None or seconds <= time_budget / 2
        small = max_memory is None or memory(n, n / cells, part, d, cores) <= max_memory
        if fast and small:
            return Sizes(cells, centers)
    if max_memory is not None and not small:
        need = memory(n, n / cells, part, d, cores)
        raise ParameterError(
            f"max_memory must be at least {need:.0f} bytes for {n} rows of {d} features with "
            f"n_cells={cells} and n_centers={centers}, got {max_memory:.0f}; raise it, or lower "
            f"n_centers"
        )
    return Sizes(cells, centers)


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
