"""How many cells and centres a fit in memory has, and the bytes and seconds it takes.

A cell whose every row is a centre costs n_q^3 / 3 products for its Cholesky factor and three
matrices of n_q^2 doubles. Larger cells are better by a per cent or two each time they double, so
cells are as large, and centres as many, as time and memory allow.

Counts of work follow the code they stand for. Where that depends on the data (how long a search
goes on, how many rounds balance takes) they are what the fits of benchmarks/plan.py needed.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from parkrr.data import FEW_ROWS, VALIDATION_SHARE
from parkrr.errors import BudgetError
from parkrr.park import COARSE_ROWS, LEFT_OUT_VALUES
from parkrr.partition import PARTITION_ROWS_PER_CELL
from parkrr.planning.machine_speed import MachineSpeed, measure_quickly
from parkrr.runtime import describe_bytes
from parkrr.solvers import Falkon, choose_solver
from parkrr.tuning import (
    EFFORTS,
    SCORED_FEATURES,
    Effort,
    cell_comparison,
    coarse_comparison,
    metric_descent,
    metric_search,
    sample_search,
)
from parkrr.uncertainty import SCALE_CENTERS

# Rows of a cell and the share of them that are centres, from the best to the fastest.
LADDER = (
    *((rows, 1.0) for rows in (14_000, 10_000, 7000, 4000, 2800, 2000, 1400, 1000)),
    *((1000, share) for share in (0.5, 0.25, 0.1, 0.05)),
)
# Times the seconds that are expected: what is chosen may need float64, and cells are not even.
MARGIN = 2.0
TUNING_STEPS = ("sample search", "metric search")  # have the other half of a time budget

EVALUATIONS = 9  # of one lengthscale search on the sample
CROSS_FIT = 4  # fits of the width of intervals take as long as one with the values of all folds
LAST_EVALUATIONS = 3  # lengthscales of the last comparison on cells
SCREENING_SOLVES = 80  # eight rounds of two lengthscales and five ridges
LARGE_BATCH = 2.0  # seconds of a step on large batches over one on small batches
ROUNDS = 6  # of balance
ITERATIONS = 40  # of conjugate gradient, those for leave-one-out included
FLOAT64_DISTANCE = 2.5  # a distance in float64 behind a map, over one in float32

MEMINFO = Path("/proc/meminfo")
LIBRARIES_BYTES = 1e8  # that libraries and threads keep for themselves
INDEX_BYTES = 40  # of a row: its order, cell, target and whether it is a validation row
COMPARISON_COPIES = 5  # matrices of a comparison cell
NYSTROM_COPIES, FALKON_COPIES = 9, 5  # matrices of a cell with centres, by its solver
KEPT = 0.4  # of what tuning took, which the heap does not give back


@dataclass(frozen=True)
class SizeLimits:
    """Sizes of cells where no budget decides."""

    one_cell: int = 14_000  # rows of which one cell is made: some 20 s
    few_rows: int = 100_000  # up to here cells of 4,000 rows are fitted in some 10 s
    most_centers: int = 3_000_000  # of a model: some 100 MB
    large_cell_centers: int = 3000  # where not every row can be one: K_mm of 3,000 takes 72 MB
    kept_centers: int = 500  # of a cell whose statistics are kept: 2 MB


LIMITS = SizeLimits()


class CellSpread(NamedTuple):
    """How uneven cells are, all over the mean number of rows of a cell."""

    largest: float  # rows of the largest
    at_once: float  # sum of squares of as many of the largest as are fitted at once
    squares: float  # mean square
    cubes: float  # mean cube


EVEN = CellSpread(1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class FitSize:
    """A fit in memory in numbers."""

    n: int  # rows
    d: int  # features
    t: int  # targets
    n_cells: int
    n_centers: int  # of all cells together
    spread: CellSpread
    float64: bool  # whether products are
    cores: int  # that work at once
    families: int  # kernels whose lengthscale is searched for
    learns: bool  # a feature map
    chooses: bool  # a lengthscale or a penalty
    tries: bool  # a coarse level
    keeps: bool  # statistics
    tuning_seconds: float  # of metric descents, on the reference machine
    effort: Effort = EFFORTS["balanced"]
    fitting_seconds: float = math.inf  # of all steps but the search, within a time budget
    solver: str = "auto"  # "direct", "falkon" or "auto"

    @property
    def rows(self) -> float:
        """Rows of a mean cell."""
        return self.n / self.n_cells

    @property
    def share(self) -> float:
        """Share of the rows that are centres."""
        return min(1.0, self.n_centers / self.n)

    @property
    def iterates(self) -> bool:
        """Whether cells are solved by conjugate gradient."""
        if self.solver != "auto":
            return self.solver == "falkon"
        n_q = math.ceil(self.rows)
        m_q = max(1, math.ceil(self.share * n_q))
        return isinstance(choose_solver(n_q, m_q, self.t, Falkon())[0], Falkon)

    @property
    def scores(self) -> bool:
        """Whether normal scores stand beside the features."""
        return self.learns and self.d <= SCORED_FEATURES

    @property
    def width(self) -> int:
        """Most numbers of a row behind the feature map."""
        return self.d * (2 if self.scores else 1)

    @property
    def matrices(self) -> int:
        """Shapes of matrices that are learned."""
        if not self.learns:
            return 0
        n = min((1 - VALIDATION_SHARE) * self.n, metric_search.MOST_VALUES / self.width)
        return 1 + metric_search.can_learn_matrix(int(n), self.d)


def choose_sizes(
    size: FitSize,
    n_cells: int | None,
    n_centers: int | None,
    time_budget: float | None,
    max_memory: float | None,
    max_model_size: float | None = None,
    limits: SizeLimits = LIMITS,
    speed: MachineSpeed | None = None,
) -> FitSize:
    """The fit with the cells and centres that are not given, within the budgets.

    Half of the time budget is for tuning. With a time budget that alone bounds a cell, and where
    nothing fits it, no coarse level is tried. `speed` is measured if it is None and there is a time
    budget.
    """
    largest = size.effort.largest_cell
    if time_budget is None:
        largest = largest_cell_rows(size.n, size.effort, limits)
    without_comparison: FitSize | None = None
    for rows, share in LADDER:
        if rows > largest:
            continue
        cells = n_cells or max(1, round(size.n / rows))
        centers = n_centers or round(share * min(size.n, limits.most_centers))
        if n_centers is None and size.n / cells > limits.one_cell:
            centers = limits.large_cell_centers * cells
        if n_centers is None and size.keeps:
            centers = min(centers, limits.kept_centers * cells)
        if n_centers is None and max_model_size is not None:
            # The centres of each cell are rounded up, so each but the last may have one more.
            most = int(max_model_size / center_bytes(size)) - (cells - 1)
            centers = max(1, min(centers, most))
        size = replace(size, n_cells=cells, n_centers=centers)
        need = estimate_bytes(size)
        if max_memory is not None and need > max_memory:
            continue
        if time_budget is None:
            return size
        speed = speed or measure_quickly(size.d, size.t, size.cores)
        seconds = estimate_seconds(size, speed)
        fitting = sum(each for step, each in seconds.items() if step not in TUNING_STEPS)
        compared = seconds.get("coarse comparison", 0.0)
        size = replace(size, fitting_seconds=MARGIN * fitting)
        if size.fitting_seconds <= time_budget / 2:
            return size
        plain = replace(size, tries=False, fitting_seconds=MARGIN * (fitting - compared))
        if without_comparison is None and plain.fitting_seconds <= time_budget / 2:
            without_comparison = plain
    if time_budget is not None and (max_memory is None or need <= max_memory):
        return without_comparison or plain
    if max_memory is not None and need > max_memory:
        if n_cells is not None or n_centers is not None:
            way_out = "or leave n_cells and n_centers to be chosen, or lower n_centers"
        elif size.chooses or size.tries:
            way_out = "or set kernel, penalty, metric, blend and coarse, whose choice takes memory"
        else:
            way_out = "or fit files (scan_parquet), whose rows stay on disk"
        raise BudgetError(
            f"max_memory must be at least {describe_bytes(need)} for {size.n:,} rows of {size.d} "
            f"numbers with n_cells={cells} and n_centers={centers}, got "
            f"{describe_bytes(max_memory)}; "
            f"raise it, {way_out}"
        )
    return size


def largest_cell_rows(n: int, effort: Effort, limits: SizeLimits = LIMITS) -> int:
    """Rows of a cell whose every row is a centre, of n rows, where no budget decides."""
    if n <= limits.one_cell:
        return effort.largest_cell
    return min(effort.largest_cell, 4000 if n <= limits.few_rows else 2000)


def free_bytes() -> float | None:
    """Bytes that the machine could still give; None where the system does not tell."""
    if not MEMINFO.exists():
        return None
    [line] = [s for s in MEMINFO.read_text().splitlines() if s.startswith("MemAvailable")]
    return float(line.split()[1]) * 1024


def estimate_bytes(size: FitSize) -> float:
    """Most that a fit takes beyond what the process holds when it begins.

    The cells take the model and the matrices of the largest cells that are fitted at once.
    """
    tuning = estimate_tuning_bytes(size) if size.chooses else 0.0
    m = max(1.0, size.share * size.rows)
    copies = FALKON_COPIES if size.iterates else 1 if size.share == 1 else NYSTROM_COPIES
    matrices = copies * 8.0 * size.spread.at_once * m * (m + size.t)
    kept = 8.0 * size.n_cells * size.spread.squares * m * (m + size.t) if size.keeps else 0.0
    cells = 2 * usual_model_bytes(size) + matrices + kept + INDEX_BYTES * size.n
    return LIBRARIES_BYTES + max(tuning, KEPT * tuning + cells)


def model_bytes(size: FitSize) -> float:
    """Most bytes of centres and their coefficients."""
    return size.share * size.n * center_bytes(size)


def center_bytes(size: FitSize) -> float:
    """Most bytes of a centre and its coefficients.

    Any cell may need float64, whatever the precision: all of 15,000 rows of make_friedman1 did, and
    a model that was to have 1.3 MB had 2.7.
    """
    return 8.0 * (size.width + size.t)


def usual_model_bytes(size: FitSize) -> float:
    """Bytes of centres and their coefficients where no cell needs float64 instead of float32."""
    return size.share * size.n * ((8 if size.float64 else 4) * size.width + 8 * size.t)


def estimate_tuning_bytes(size: FitSize) -> float:
    """Rows in canonical order, columns to find neighbours among, and comparison cells."""
    cells = size.n / cell_comparison.CELL_ROWS
    largest = min(cell_comparison.MOST_ROWS, cell_comparison.CELL_ROWS * (1 + cells / 20))
    total = 8.0 * size.n * (size.d + size.t + 3)
    at_once = min(size.cores, max(1.0, cells))
    total += COMPARISON_COPIES * 8.0 * min(size.n, largest) ** 2 * at_once
    if size.learns:
        total += 8.0 * min(size.n, metric_search.MOST_VALUES / size.width) * (size.width + size.d)
    return total


def estimate_seconds(size: FitSize, speed: MachineSpeed) -> dict[str, float]:
    """Seconds of every step."""
    seconds = {}
    if size.chooses or size.tries:
        searches = max(1, size.families) * (2 if size.scores else 1)
        evaluations = searches * (EVALUATIONS if size.families else 1)
        share = min(1.0, size.n / sample_search.SAMPLE_ROWS)
        seconds["sample search"] = (
            evaluations * speed.comparison * share / min(size.cores, searches)
        )
        seconds["metric search"] = metric_search_seconds(size, speed)
        seconds["coarse comparison"] = coarse_comparison_seconds(size, speed)
    seconds["partition"] = partition_seconds(size, speed, size.n_cells)
    seconds["cells"] = cells_seconds(size, speed, size.n_cells, size.rows)
    left_out = size.rows
    if size.n >= FEW_ROWS:
        left_out = min(VALIDATION_SHARE * size.rows, LEFT_OUT_VALUES / (size.share * size.rows))
    seconds["uncertainty"] = uncertainty_seconds(size, speed, left_out * size.n_cells)
    return seconds


def uncertainty_seconds(size: FitSize, speed: MachineSpeed, h: float) -> float:
    """Predicting h leave-one-out rows, and learning the width of intervals from them."""
    value = speed.value / 3 if size.float64 else speed.short_value
    predictions = h * size.share * size.rows * value * 3 / size.cores
    widths = CROSS_FIT * coarse_seconds(size, speed, SCALE_CENTERS, h)
    return predictions + widths + h * speed.schur / size.cores


def metric_search_seconds(size: FitSize, speed: MachineSpeed) -> float:
    """Comparisons on cells, and descents."""
    if size.n < FEW_ROWS and not size.learns:
        return 0.0
    window, float32 = len(cell_comparison.WINDOW), not size.float64
    rows = min(cell_comparison.CELL_ROWS, size.n) * (1 - VALIDATION_SHARE)
    all_cells = size.n / cell_comparison.CELL_ROWS
    cells = min(cell_comparison.MOST_CELLS, max(1.0, all_cells))
    solve = 1.25 * rows**2 * speed.value + speed.factor(rows)
    solves = (1 + size.matrices) * window + LAST_EVALUATIONS * window + float32
    partition = FLOAT64_DISTANCE * partition_seconds(size, speed, max(size.n_cells, all_cells))
    comparisons = solves * cells * solve / min(size.cores, cells)
    comparisons += (2 + size.matrices + float32) * partition
    return comparisons + screening_seconds(size, speed) + descent_seconds(size, speed)


def descent_seconds(size: FitSize, speed: MachineSpeed) -> float:
    """Metric descents, whose steps are counted."""
    if not size.learns:
        return 0.0
    jumps, gradient_batches = metric_search.JUMPS, metric_descent.GRADIENT_BATCHES
    columns, others = [size.width, size.d][: size.matrices], max(1, size.families) - 1
    counted = metric_search.count_descent_steps(
        size.n, columns, others, size.tuning_seconds, size.effort
    )
    share = size.effort.first_share  # of steps on small batches
    first_rows = metric_search.count_first_rows(max(columns))
    batches = metric_descent.count_batches(first_rows, size.n)
    small = large = LARGE_BATCH * speed.descent_step
    if first_rows < metric_descent.BATCH_ROWS:
        small = (first_rows / metric_search.FIRST_ROWS) ** 2 * speed.descent_step
        small *= batches / metric_descent.SMALL_BATCHES
    usual = share * small + (1 - share) * large
    one = counted.last * usual  # a descent of one shape, on a core of its own
    if counted.first:
        one += (jumps * counted.jump + counted.first) * small
        one += jumps * gradient_batches / metric_descent.LARGE_BATCHES * large
    rounds = math.ceil(size.matrices / size.cores), math.ceil(others / size.cores)
    steps = counted.total(size.matrices, others)
    rows = min(size.n, metric_search.MOST_VALUES / size.width)
    near = batches * steps * rows * speed.near
    mapping = steps / metric_descent.REFRESH * rows * size.d * 1e-9
    return rounds[0] * one + rounds[1] * counted.other * usual + near + mapping


def screening_seconds(size: FitSize, speed: MachineSpeed) -> float:
    """Column screening, where there are many columns."""
    if not size.learns or size.d <= metric_search.MATRIX_COLUMNS:
        return 0.0
    sample = metric_search.count_screened_rows(size.n, size.d, size.tuning_seconds)
    training = (1 - VALIDATION_SHARE) * sample
    solve = training**2 * speed.value + speed.factor(training)
    return SCREENING_SOLVES * solve / min(size.cores, 2)


def coarse_comparison_seconds(size: FitSize, speed: MachineSpeed) -> float:
    """Some cells, fitted once; each predicts its validation rows. The level may be fitted again."""
    if size.n_cells < coarse_comparison.FEWEST_CELLS or not size.tries:
        return 0.0
    fitted = min(coarse_comparison.MOST_CELLS, size.n_cells // 2)
    rows = (1 - VALIDATION_SHARE) * size.rows
    fits = cells_seconds(size, speed, fitted, rows)
    value = speed.value / 3 if size.float64 else speed.short_value
    predictions = VALIDATION_SHARE * fitted * size.rows
    predicting = predictions * rows * size.share * value / size.cores
    coarse = coarse_seconds(size, speed, coarse_comparison.COARSE_CENTERS, size.n)
    return fits + predicting + 2 * coarse + partition_seconds(size, speed, size.n_cells)


def partition_seconds(size: FitSize, speed: MachineSpeed, n_cells: float) -> float:
    """Choosing so many centroids on a sample, and assigning all rows to them."""
    if n_cells <= 1:
        return 0.0
    sample = min(size.n, PARTITION_ROWS_PER_CELL * n_cells)
    return n_cells * speed.distance * (size.n / size.cores + ROUNDS * sample)


def cells_seconds(size: FitSize, speed: MachineSpeed, count: float, rows: float) -> float:
    """So many cells of so many rows."""
    m, spread = size.share * rows, size.spread
    if size.iterates:
        each = spread.squares * rows * m * ITERATIONS * speed.short_value
        each += spread.cubes * 2.7 * m**3 * speed.product
    elif size.share == 1:
        each = spread.squares * rows**2 * speed.value + spread.cubes * speed.factor(rows)
    else:
        each = spread.squares * rows * m * speed.short_value
        each += spread.cubes * (0.6 * rows * m**2 + 2.7 * m**3) * speed.product
    return count * each / size.cores


def coarse_seconds(size: FitSize, speed: MachineSpeed, m: int, n: float) -> float:
    """One model of a sample of n rows with m centres, all penalties at once."""
    rows = min(n, COARSE_ROWS * m)
    m = min(m, int(rows))
    statistics = rows * m * (speed.short_value + 0.6 * m * speed.product) / size.cores
    return statistics + 10 * m**3 * speed.product
