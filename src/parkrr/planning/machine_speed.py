"""How fast your machine runs the pieces that a fit consists of.

Each piece is code that a fit runs, on rows of as many features, timed on all cores at once as in a
fit: two threads of one processor core are not two cores, and only a measurement shows it.
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
from parkrr.runtime import LocalEngine, map_on_threads, release_memory
from parkrr.solvers import Shard, kernel_of_rows
from parkrr.tuning import LocalBatch, SampleSearch, metric_descent, sample_search
from parkrr.uncertainty import schur_complement

REPEATS = 3  # of each piece, after a first one
CELL = 2000  # rows of the cell that is timed: at 1,200 a product takes twice as long as at 4,000
LARGER, FEWEST_ROWS = 0.4, 500  # a product at 8,000 rows takes 0.55 of one at 2,000
ROWS = 2**13  # against as many centres as a cell has rows
NEAR_CENTERS, CENTROIDS = 16, 256


@dataclass(frozen=True)
class MachineSpeed:
    """Seconds of one of each piece, on one of all busy cores."""

    comparison: float  # of one lengthscale of one kernel on a sample
    descent_step: float  # of one shape of the matrix; on all cores
    near: float  # distance between a batch centre and a row
    distance: float  # of a row from a centroid, in float32
    value: float  # of the kernel, in float64
    short_value: float  # of the kernel, in float32 for predictions
    product: float  # a multiplication and addition of a Cholesky factor in float64
    schur: float  # Schur complement of one row

    def factor(self, n: float) -> float:
        """Seconds of a Cholesky factor of n rows; the larger, the less a product takes."""
        return self.product * n**3 / 3 * math.pow(CELL / max(n, FEWEST_ROWS), LARGER)


@cache
def measure_speed(d: int, t: int, cores: int) -> MachineSpeed:
    """The speed of this machine for rows of d features and t targets; takes some two seconds."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, 2 * d, generator=generator, dtype=torch.float64)
    Y = torch.randn(ROWS, t, generator=generator, dtype=torch.float64)
    kernel, wide_kernel = Matern(2.0 * d**0.5), Matern(2.0 * (2 * d) ** 0.5)
    cell, short = X[:CELL, :d], X[:, :d].float()

    n, cut = sample_search.SAMPLE_ROWS, sample_search.SAMPLE_ROWS // 4
    train, validation = ArraySource(X[cut:n, :d], Y[cut:n]), ArraySource(X[:cut, :d], Y[:cut])
    centers = sample_search.SAMPLE_CENTERS
    search = SampleSearch(train, validation, centers, torch.float64)

    n = metric_descent.BATCH_ROWS
    is_validation = torch.arange(n) < metric_descent.VALIDATION_SHARE * n
    batch = LocalBatch(Block(X[:n], Y[:n], None), is_validation)
    weights = torch.ones(2 * d, dtype=torch.float64)
    slopes = partial(LocalBatch.slopes, kernel=wide_kernel, matrix=weights, ridge=0.1)
    batches = [batch] * metric_descent.BATCHES

    many = ArraySource(X.repeat(2, 1), Y.repeat(2, 1))
    routed = short.repeat(2, 1)
    section = kernel.against(short[:CELL])
    shard = Shard(section, ArraySource(section.augment(short), Y.float()))
    K = kernel_of_rows(kernel, cell)
    K.diagonal().add_(1)

    def on_each_core(work: Callable[[], object]) -> float:
        """Seconds of the same work on every core at once."""
        return time_work(lambda: map_on_threads(lambda _: work(), range(cores), cores))

    try:
        return MachineSpeed(
            comparison=on_each_core(lambda: search.evaluate(kernel, FeatureMap(), "", False)),
            descent_step=time_work(lambda: LocalEngine(cores).map(slopes, batches)),
            near=time_work(lambda: rows_around(many, X[:NEAR_CENTERS], n, cores))
            / (many.n_rows * NEAR_CENTERS),
            distance=on_each_core(lambda: assign(kernel, routed, short[:CENTROIDS]))
            / (len(routed) * CENTROIDS),
            value=on_each_core(lambda: kernel_of_rows(kernel, cell)) / CELL**2,
            short_value=on_each_core(shard.right_side) / (ROWS * CELL),
            product=on_each_core(lambda: torch.linalg.cholesky(K)) / (CELL**3 / 3),
            schur=on_each_core(lambda: schur_complement(kernel, short, short[:CELL], 1.0, False))
            / ROWS,
        )
    finally:
        release_memory()


def time_work(work: Callable[[], object]) -> float:
    """Median seconds of a few runs, once libraries are loaded: others may use the machine too."""
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])
