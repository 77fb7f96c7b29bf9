"""What the steps of a fit in memory take: so many pieces of work at the pace of this machine.

Counts follow the code they stand for; where that depends on the data (how far a walk goes, how
many rounds balance takes) they are what fits of benchmarks/plan.py needed.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from parkrr.data import FEW_ROWS, VALIDATION_SHARE
from parkrr.park import COARSE_ROWS, LEFT_OUT_VALUES
from parkrr.partition import PARTITION_ROWS_PER_CELL
from parkrr.planning.machine_speed import MachineSpeed
from parkrr.solvers import Falkon, choose_solver
from parkrr.tuning import (
    ALL_CELLS,
    ANCHORS,
    AROUND,
    BALLS,
    COARSE_CENTERS,
    FRESH,
    FULL_COLUMNS,
    HEAT,
    HELD_OUT,
    LAST_RUN,
    MOST_VALUES,
    NEAREST,
    ROWS_A_STEP,
    SCORED_FEATURES,
    SCOUT_ROWS,
    SHARPENED,
    SHARPENING_BALLS,
    VOTER_ROWS,
    VOTERS,
    WARM_STEPS,
    WIDTHS,
    WINDOW,
)
from parkrr.tuning.blend_trial import JUDGED as JUDGED_CELLS
from parkrr.uncertainty import FOLDS, SCALE_CENTERS

JUDGEMENTS = 9  # of one search of the scout
LAST_WALK = 3  # lengthscales that the last vote looks at
ROUNDS = 6  # of balance
# Bytes: what libraries and threads keep for themselves; of a row its order, cell, target and
# whether it judges.
LIBRARIES_BYTES, INDEX_BYTES = 1e8, 40
VOTER_COPIES, LARGEST_VOTER = 5, 2.2  # matrices of a voter; rows of the largest over the mean
NYSTROM_COPIES, FALKON_COPIES = 9, 5  # matrices of a cell with centres, by its solver
ITERATIONS = 40  # of conjugate gradient, those that leave rows out included
KEPT = 0.4  # of what choosing took, which the heap does not give back
WIDE = 2.5  # a distance in float64 behind a map, over one in float32


class CellSpread(NamedTuple):
    """How uneven cells are, all over the mean number of rows of a cell."""

    largest: float  # rows of the largest
    at_once: float  # sum of squares of as many of the largest as are fitted at once
    squares: float  # mean square
    cubes: float  # mean cube


EVEN = CellSpread(1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class FitSize:
    """A fit in numbers.

    Parameters
    ----------
    n, d, t
        Rows, features, targets.
    n_cells, n_centers
        Cells, and centres of all of them.
    spread
        How uneven cells are.
    wide
        Whether products are float64.
    cores
        That work at once.
    families
        Kernels whose lengthscale is looked for.
    learns, chooses, tries, keeps
        Whether a metric is learned, a lengthscale or penalty chosen, levels tried, sums kept.
    patience
        Seconds after which descents stop.
    solver
        "direct", "falkon" or "auto".
    """

    n: int
    d: int
    t: int
    n_cells: int
    n_centers: int
    spread: CellSpread
    wide: bool
    cores: int
    families: int
    learns: bool
    chooses: bool
    tries: bool
    keeps: bool
    patience: float
    solver: str = "auto"

    @property
    def rows(self) -> float:
        """Of a cell."""
        return self.n / self.n_cells

    @property
    def share(self) -> float:
        """Of the rows that are centres."""
        return min(1.0, self.n_centers / self.n)

    @property
    def iterates(self) -> bool:
        """Whether cells are solved by conjugate gradient."""
        if self.solver == "auto":
            n_q = math.ceil(self.rows)
            m_q = max(1, math.ceil(self.share * n_q))
            return isinstance(choose_solver(n_q, m_q, self.t, Falkon())[0], Falkon)
        return self.solver == "falkon"

    @property
    def scores(self) -> bool:
        """Whether normal scores stand beside the features."""
        return self.learns and self.d <= SCORED_FEATURES

    @property
    def width(self) -> int:
        """Numbers of a row behind the map, at most."""
        return self.d * (2 if self.scores else 1)

    @property
    def shapes(self) -> int:
        """Of matrices that are learned."""
        return (1 + (self.d <= FULL_COLUMNS)) if self.learns else 0

    @property
    def left_out(self) -> float:
        """Rows that are each left out."""
        m_q = self.share * self.rows
        each = (
            min(VALIDATION_SHARE * self.rows, LEFT_OUT_VALUES / m_q)
            if self.n >= FEW_ROWS
            else self.rows
        )
        return each * self.n_cells


def seconds_of(shape: FitSize, pace: MachineSpeed) -> dict[str, float]:
    """Of every step."""
    found = {}
    if shape.chooses or shape.tries:
        found["sample search"] = scout_seconds(shape, pace)
        found["metric search"] = vote_seconds(shape, pace, found["sample search"])
        found["blend trial"] = trial_seconds(shape, pace)
    found["partition"] = routing(shape, pace, shape.n_cells)
    found["cells"] = cells_seconds(shape, pace, shape.n_cells, shape.rows)
    found["uncertainty"] = uncertainty_seconds(shape, pace)
    return found


def scout_seconds(shape: FitSize, pace: MachineSpeed) -> float:
    """Searches of lengthscales on a sample."""
    searches = max(1, shape.families) * (2 if shape.scores else 1)
    walk = JUDGEMENTS if shape.families else 1
    return searches * walk * pace.judgement * min(1.0, shape.n / SCOUT_ROWS)


def vote_seconds(shape: FitSize, pace: MachineSpeed, before: float) -> float:
    """Descents, which end when patience does, and votes."""
    if shape.n < FEW_ROWS and not shape.learns:
        return 0.0
    rows = min(VOTER_ROWS, shape.n) * (1 - VALIDATION_SHARE)
    voters = min(VOTERS, max(1.0, shape.n / VOTER_ROWS))
    solve = 1.25 * rows**2 * pace.value + pace.factor(rows)
    looks = (1 + shape.shapes) * len(WINDOW) + LAST_WALK * len(WINDOW) + (not shape.wide)
    votes = 2 + shape.shapes + (not shape.wide)
    route = WIDE * routing(shape, pace, max(shape.n_cells, shape.n / VOTER_ROWS))
    polls = looks * voters * solve / min(shape.cores, voters) + votes * route
    return polls + min(descent_seconds(shape, pace), max(0.0, shape.patience - before - route))


def descent_seconds(shape: FitSize, pace: MachineSpeed) -> float:
    """Of races and last runs, if nothing stops them."""
    if not shape.learns:
        return 0.0
    warm = SHARPENED * WARM_STEPS + HEAT
    sharpening = SHARPENED * SHARPENING_BALLS / BALLS  # as many steps' worth
    last = min(max(shape.n // ROWS_A_STEP, LAST_RUN[0]), LAST_RUN[1])
    steps = max(1, shape.families) * (warm + sharpening) + last
    anchors = BALLS * steps
    seen = min(shape.n, MOST_VALUES / shape.width)
    near = anchors * seen * pace.near
    each = pace.weights_step + (pace.matrix_step if shape.shapes == 2 else 0.0)
    looks = (1 + (shape.shapes == 2) / 2) * (near + steps / FRESH * seen * shape.d * 1e-9)
    return steps * each + looks


def routing(shape: FitSize, pace: MachineSpeed, n_cells: float) -> float:
    """Of placing so many cells on a sample and sending all rows to them."""
    if n_cells <= 1:
        return 0.0
    sample = min(shape.n, PARTITION_ROWS_PER_CELL * n_cells)
    return n_cells * pace.distance * (shape.n / shape.cores + ROUNDS * sample)


def trial_seconds(shape: FitSize, pace: MachineSpeed) -> float:
    """Cells around anchors, fitted with and without a coarse level, and judged with blends."""
    if shape.n_cells < 3 or not shape.tries:
        return 0.0
    taken = shape.n_cells if shape.n_cells <= ALL_CELLS else ANCHORS * AROUND
    judged = shape.n_cells if shape.n_cells <= ALL_CELLS else ANCHORS * JUDGED_CELLS
    rows = (1 - HELD_OUT) * shape.rows
    fits = 2 * cells_seconds(shape, pace, taken, rows)
    answers = 1 + sum(1 + 0.5 * (k - 1) for k in NEAREST) * len(WIDTHS)  # cells asked, a row
    value = pace.value / 3 if shape.wide else pace.short_value
    asked = 2 * HELD_OUT * judged * shape.rows * answers * rows * shape.share * value / shape.cores
    coarse = coarse_seconds(shape, pace, COARSE_CENTERS, shape.n)
    return fits + asked + coarse + routing(shape, pace, shape.n_cells)


def cells_seconds(shape: FitSize, pace: MachineSpeed, count: float, rows: float) -> float:
    """Of so many cells of so many rows."""
    m, spread = shape.share * rows, shape.spread
    if shape.iterates:
        each = spread.squares * rows * m * ITERATIONS * pace.short_value
        each += spread.cubes * 2.7 * m**3 * pace.product
    elif shape.share == 1:
        each = spread.squares * rows**2 * pace.value + spread.cubes * pace.factor(rows)
    else:
        each = spread.squares * rows * m * pace.short_value
        each += spread.cubes * (0.6 * rows * m**2 + 2.7 * m**3) * pace.product
    return count * each / shape.cores


def coarse_seconds(shape: FitSize, pace: MachineSpeed, m: int, n: float) -> float:
    """Of one model of a sample with m centres, all penalties at once."""
    rows = min(n, COARSE_ROWS * m)
    m = min(m, int(rows))
    statistics = rows * m * (pace.short_value + 0.6 * m * pace.product) / shape.cores
    return statistics + 10 * m**3 * pace.product


def uncertainty_seconds(shape: FitSize, pace: MachineSpeed) -> float:
    """Rows left out are predicted, and teach how wide errors are."""
    h = shape.left_out
    value = pace.value / 3 if shape.wide else pace.short_value
    predicted = h * shape.share * shape.rows * value * 3 / shape.cores
    scales = (FOLDS + 1) * coarse_seconds(shape, pace, SCALE_CENTERS, h)
    return predicted + scales + h * pace.schur / shape.cores


def bytes_of(shape: FitSize) -> float:
    """Most that a fit takes beyond what the process holds when it begins."""
    chosen = choosing_bytes(shape) if shape.chooses else 0.0
    return LIBRARIES_BYTES + max(chosen, KEPT * chosen + cells_bytes(shape))


def choosing_bytes(shape: FitSize) -> float:
    """Rows in the order of choices, columns to find neighbours among, balls and voters."""
    voters = shape.n / VOTER_ROWS
    voter = VOTER_ROWS * min(LARGEST_VOTER, 1 + voters / 20)
    found = 8.0 * shape.n * (shape.d + shape.t + 3)
    found += VOTER_COPIES * 8.0 * min(shape.n, voter) ** 2 * min(shape.cores, max(1.0, voters))
    if shape.learns:
        found += 8.0 * min(shape.n, MOST_VALUES / shape.width) * (shape.width + shape.d)
    return found


def cells_bytes(shape: FitSize) -> float:
    """The model, and the matrices of the largest cells that are fitted at once."""
    value = 8 if shape.wide else 4
    model = 2.0 * shape.share * shape.n * (value * shape.width + 8 * shape.t)
    m = max(1.0, shape.share * shape.rows)
    copies = FALKON_COPIES if shape.iterates else 1 if shape.share == 1 else NYSTROM_COPIES
    matrices = copies * 8.0 * shape.spread.at_once * m * (m + shape.t)
    kept = 8.0 * shape.n_cells * shape.spread.squares * m * (m + shape.t) if shape.keeps else 0.0
    return model + matrices + kept + INDEX_BYTES * shape.n
