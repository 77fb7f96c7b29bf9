"""How fast this machine runs the pieces that a fit consists of.

Each piece is code that a fit runs, on rows of as many features, timed on all cores at once as in
a fit: two threads of one processor core are not two cores, and only a measurement knows.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch

from parkrr.data import ArraySource, Block
from parkrr.kernels import FeatureMap, Matern
from parkrr.partition import assign, rows_around
from parkrr.runtime import LocalEngine, give_back, mapped_on_threads
from parkrr.solvers import Shard, kernel_of_rows
from parkrr.tuning import BALL_ROWS, BALLS, SCOUT_CENTERS, SCOUT_ROWS, LocalBatch, SampleSearch
from parkrr.tuning.metric_descent import JUDGED
from parkrr.uncertainty import schur_complement

REPEATS = 3  # of each piece, after a first one
CELL = 2000  # rows of the cell that is timed: at 1,200 a product takes twice as long as at 4,000
LARGER, FEWEST_ROWS = 0.4, 500  # a product at 8,000 rows takes 0.55 of one at 2,000
NEAR_ROWS, ANCHORS = 2**14, 8
ROUTED, CENTROIDS = 2**14, 256
VALUED = 2**13  # rows against as many centres as a cell has rows


@dataclass(frozen=True)
class MachineSpeed:
    """Seconds of one of each piece, on one of `cores` busy cores.

    Parameters
    ----------
    judgement
        One lengthscale of one kernel, by the scout; on all cores.
    weights_step, matrix_step
        A step of the descent of weights and scores, and of a matrix; on all cores.
    near
        A distance between an anchor and a row.
    distance
        Of a row from a centroid, in float32.
    value
        A kernel value in float64.
    short_value
        A kernel value in float32 for predictions.
    product
        A multiplication and addition of a Cholesky factor in float64.
    schur
        The Schur complement of one row.
    """

    judgement: float
    weights_step: float
    matrix_step: float
    near: float
    distance: float
    value: float
    short_value: float
    product: float
    schur: float

    def factor(self, n: float) -> float:
        """Seconds of a Cholesky factor of n rows; the larger, the less a product takes."""
        return self.product * n**3 / 3 * math.pow(CELL / max(n, FEWEST_ROWS), LARGER)


@cache
def measured_pace(d: int, t: int, cores: int) -> MachineSpeed:
    """The pace of this machine for rows of d features and t targets; takes some two seconds."""
    try:
        return timed(d, t, cores)
    finally:
        give_back()


def timed(d: int, t: int, cores: int) -> MachineSpeed:
    """Every piece, timed."""
    engine = LocalEngine(cores)
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(VALUED, 2 * d, generator=draw, dtype=torch.float64)
    Y = torch.randn(VALUED, t, generator=draw, dtype=torch.float64)
    kernel = Matern(2.0 * d**0.5)
    cell, short = X[:CELL, :d], X[:, :d].float()
    K = kernel_of_rows(kernel, cell)
    K.diagonal().add_(1)
    section = kernel.against(short[:CELL])
    lifted = ArraySource(section.augment(short), Y.float())

    def each(work: Callable[[int], object]) -> float:
        """Seconds of one on each core at once."""
        return usual(lambda: mapped_on_threads(work, range(cores), cores))

    many = X[:NEAR_ROWS, :].repeat(NEAR_ROWS // VALUED, 1)
    anchors = X[:ANCHORS]
    routed = short.repeat(ROUTED // VALUED, 1)
    return MachineSpeed(
        judgement=judgement_seconds(X[:, :d], Y, cores),
        weights_step=step_seconds(X, Y, torch.ones(2 * d, dtype=torch.float64), engine),
        matrix_step=step_seconds(X[:, :d], Y, torch.eye(d, dtype=torch.float64), engine),
        near=usual(lambda: rows_around(ArraySource(many, many[:, :1]), anchors, BALL_ROWS))
        / (len(many) * ANCHORS),
        distance=each(lambda _: assign(kernel, routed, short[:CENTROIDS]))
        / (len(routed) * CENTROIDS),
        value=each(lambda _: kernel_of_rows(kernel, cell)) / CELL**2,
        short_value=each(lambda _: Shard(section, lifted).right_side()) / (VALUED * CELL),
        product=each(lambda _: torch.linalg.cholesky(K)) / (CELL**3 / 3),
        schur=each(lambda _: schur_complement(kernel, short, short[:CELL], 1.0, False)) / VALUED,
    )


def usual(work: Callable[[], object]) -> float:
    """Median seconds of a few runs, once libraries are loaded: others may use the machine too."""
    work()
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def judgement_seconds(X: torch.Tensor, Y: torch.Tensor, cores: int) -> float:
    """Of one lengthscale, by the scout."""
    cut = SCOUT_ROWS // 4
    train, held_out = (ArraySource(X[a:b], Y[a:b]) for a, b in ((cut, SCOUT_ROWS), (0, cut)))
    scout = SampleSearch(train, held_out, SCOUT_CENTERS, torch.float64, cores)
    kernel = Matern(2.0 * X.shape[1] ** 0.5)
    return usual(lambda: scout.weigh(kernel, FeatureMap(), ""))


def step_seconds(
    X: torch.Tensor, Y: torch.Tensor, matrix: torch.Tensor, engine: LocalEngine
) -> float:
    """Of one step of a descent."""
    judged = torch.arange(BALL_ROWS) < JUDGED * BALL_ROWS
    ball = LocalBatch(Block(X[:BALL_ROWS], Y[:BALL_ROWS], None), judged)
    kernel = Matern(2.0 * X.shape[1] ** 0.5)
    task = partial(LocalBatch.slopes, kernel=kernel, matrix=matrix, ridge=0.1)
    return usual(lambda: engine.map(task, [ball] * BALLS))
