"""How fast your machine runs the pieces that a fit consists of.

Each piece is code that a fit runs, on rows of as many features, timed on all cores at once as in a
fit: two threads of one processor core are not two cores, and only a measurement shows it.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch

from parkrr.data import ArraySource, Block
from parkrr.kernels import FeatureMap, Matern
from parkrr.partition import assign, rows_around
from parkrr.runtime import LocalEngine, map_on_threads, release_memory
from parkrr.solvers import Shard, kernel_of_rows
from parkrr.tuning import LocalBatch, SampleSearch, metric_descent, metric_search, sample_search
from parkrr.tuning.metric_descent import combine_batches, compute_slopes
from parkrr.uncertainty import schur_complement

REPEATS = 3  # of each piece, after a first one
CELL = 2000  # rows of the cell that is timed: at 1,200 a product takes twice as long as at 4,000
LARGER, FEWEST_ROWS = 0.4, 500  # a product at 8,000 rows takes 0.55 of one at 2,000
ROWS = 2**13  # against as many centres as a cell has rows
QUICK_REPEATS, QUICK_CELL, QUICK_ROWS = 1, 800, 2**11  # for a fit with a time budget
SCHUR_ROWS = 64  # of 8,192 they took most of the time: 36 of 44 s at 300 features
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
    fitting = measure_fitting(d, t, cores, ROWS, CELL, REPEATS)
    generator = torch.Generator().manual_seed(0)
    n, cut = sample_search.SAMPLE_ROWS, sample_search.SAMPLE_ROWS // 4
    X = torch.randn(2 * ROWS, 2 * d, generator=generator, dtype=torch.float64)
    Y = torch.randn(2 * ROWS, t, generator=generator, dtype=torch.float64)
    kernel, wide_kernel = Matern(2.0 * d**0.5), Matern(2.0 * (2 * d) ** 0.5)
    train, validation = ArraySource(X[cut:n, :d], Y[cut:n]), ArraySource(X[:cut, :d], Y[:cut])
    search = SampleSearch(train, validation, sample_search.SAMPLE_CENTERS, torch.float64)

    n = metric_search.FIRST_ROWS
    batch = LocalBatch(Block(X[:n], Y[:n], None))
    weights = torch.ones(2 * d, dtype=torch.float64)
    slopes = partial(compute_slopes, kernel=wide_kernel, matrix=weights, ridge=0.1)
    batches = combine_batches([batch] * metric_descent.SMALL_BATCHES)
    many = ArraySource(X, Y)
    try:
        return replace(
            fitting,
            comparison=on_each_core(
                lambda: search.evaluate(kernel, FeatureMap(), "", False), cores, REPEATS
            ),
            descent_step=time_work(lambda: LocalEngine(cores).map(slopes, batches), REPEATS),
            near=time_work(lambda: rows_around(many, X[:NEAR_CENTERS], n, cores), REPEATS)
            / (many.n_rows * NEAR_CENTERS),
        )
    finally:
        release_memory()


@cache
def measure_quickly(d: int, t: int, cores: int) -> MachineSpeed:
    """The speed of all steps but those that choose, in a tenth of the time."""
    return measure_fitting(d, t, cores, QUICK_ROWS, QUICK_CELL, QUICK_REPEATS)


def measure_fitting(
    d: int, t: int, cores: int, n_rows: int, n_centers: int, repeats: int
) -> MachineSpeed:
    """The speed of steps behind the choices, from so many rows and centres; zero for the others."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n_rows, d, generator=generator, dtype=torch.float64)
    Y = torch.randn(n_rows, t, generator=generator)
    kernel, cell, short = Matern(2.0 * d**0.5), X[:n_centers], X.float()
    routed = short.repeat(4, 1)
    section = kernel.against(short[:n_centers])
    shard = Shard(section, ArraySource(section.augment(short), Y))
    K = kernel_of_rows(kernel, cell)
    K.diagonal().add_(1)
    rows = short[:SCHUR_ROWS]

    def seconds(work: Callable[[], object]) -> float:
        return on_each_core(work, cores, repeats)

    # A product of a smaller factor takes longer; see MachineSpeed.factor.
    larger = math.pow(n_centers / CELL, LARGER)
    try:
        return MachineSpeed(
            comparison=0.0,
            descent_step=0.0,
            near=0.0,
            distance=seconds(lambda: assign(kernel, routed, short[:CENTROIDS]))
            / (len(routed) * CENTROIDS),
            value=seconds(lambda: kernel_of_rows(kernel, cell)) / n_centers**2,
            short_value=seconds(shard.right_side) / (n_rows * n_centers),
            product=larger * seconds(lambda: torch.linalg.cholesky(K)) / (n_centers**3 / 3),
            schur=seconds(lambda: schur_complement(kernel, rows, short[:n_centers], 1.0, False))
            / SCHUR_ROWS,
        )
    finally:
        release_memory()


def on_each_core(work: Callable[[], object], cores: int, repeats: int) -> float:
    """Seconds of the same work on every core at once."""
    return time_work(lambda: map_on_threads(lambda _: work(), range(cores), cores), repeats)


def time_work(work: Callable[[], object], repeats: int) -> float:
    """Median seconds of a few runs, once libraries are loaded: others may use the machine too."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])
