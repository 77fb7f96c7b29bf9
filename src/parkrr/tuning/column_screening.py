"""Column screening: of many columns, those that matter, with a weight for each.

A kernel model of a sample has slopes along every column, and those along columns that matter are
larger. Columns are weighed by the fourth root of their mean squared slope, the model is fitted
again, and half of the columns, those of least weight, are left out as long as the error of
validation rows does not rise: recursive feature elimination. The square root, which is the metric
of the average gradient outer product, is too greedy: of five columns in 200 it kept three.

Descents on local batches cannot do this, for 400 rows tell little of 500 columns. With six of 500
columns in pairs they found two of them, and the error was 0.88 of the standard deviation. Of five
samples of 3,000 rows one shows all six, and a model of these rows alone has an error of 0.25.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import Block
from parkrr.kernels import Radial, gradients
from parkrr.runtime import Engine
from parkrr.solvers import add_to_diagonal, cholesky_or_nan, kernel_of_rows, solve_factor
from parkrr.tuning.sample_search import median_distance

SCREENED_ROWS = 3000
VALIDATION_SHARE = 0.25
LENGTHSCALES = (2.0, 8.0)  # over the median distance
RIDGES = (1e-4, 1e-2, 0.1, 1.0, 10.0)
MOST_ROUNDS = 16
# Of the columns that may be enough, the fewest first. Where a quarter could be left at once, two of
# the five columns in 200 were left out too early.
SHARES = (0.5, 0.75)
GAIN = 0.99  # a round that leaves no column out must lower the error by more, or it is the last
# Where a sample shows two of six columns in 500 that only matter in pairs, the error was 0.85 with
# these and 0.61 with all columns, from which descents find others in 16,000 rows.
HALVED = 0.5  # of the squared error with all columns is left, or all columns stay
PATIENCE, PROMISING = 3, 0.9  # rounds after which less than so much of it is left, or it ends
SLOPE_ROWS = 500  # of a task


class SampleFit(NamedTuple):
    """A kernel model of the training rows of a sample, and its error on the others."""

    error: float  # mean squared
    kernel: Radial
    ridge: float
    alpha: Tensor  # (t, outputs)


class ScreenedColumns(NamedTuple):
    """Numbers of the columns that are left, their weights before a kernel, and a ridge."""

    columns: Tensor  # (k,)
    weights: Tensor  # (k,)
    ridge: float


def divide_sample(rows: Block, groups: Tensor | None, seed: int) -> tuple[Block, int]:
    """Rows (n, e) with training rows first, and how many these are.

    A quarter validates, as whole groups if there are several.
    """
    n = len(rows.X)
    number = np.zeros(n, dtype=np.int64)
    if groups is not None:
        _, number = np.unique(groups.cpu().numpy(), return_inverse=True)
    counts, rng = np.bincount(number), np.random.default_rng(seed)
    n_validation = max(1, round(VALIDATION_SHARE * n))
    if len(counts) == 1:
        validates = rng.permutation(n) < n_validation
    else:
        order = rng.permutation(len(counts))
        rows_before = np.cumsum(counts[order]) - counts[order]
        validating = order[rows_before < n_validation][: len(order) - 1]  # one is left to fit
        validates = np.isin(number, validating)
    index = torch.from_numpy(np.argsort(validates, kind="stable")).to(rows.X.device)
    X, Y, w = rows
    block = Block(X[index], Y[index], X.new_ones(n) if w is None else w[index])
    return block, n - int(validates.sum())


@dataclass(frozen=True)
class ColumnScreening:
    """A sample of rows, training rows first, from which columns are screened."""

    rows: Block  # columns (n, e) of unit spread, targets (n, outputs) and weights (n,)
    n_training: int
    kernel: Radial  # its lengthscale stays: weights grow or shrink instead
    engine: Engine

    def run(self, is_over: Callable[[], bool]) -> ScreenedColumns | None:
        """The columns that matter, or None where leaving out the others does not halve the error.

        A sample then tells too little of them, and what it does tell would mislead.
        """
        columns = torch.arange(self.rows.X.shape[1], device=self.rows.X.device)
        weights = self.rows.X.new_ones(len(columns))
        best, first, least = None, math.inf, math.inf
        for number in range(MOST_ROUNDS):
            fitted = self.fit(columns, weights)
            if fitted is None or is_over():
                break
            first = fitted.error if number == 0 else first
            if number == PATIENCE and fitted.error > PROMISING * first:
                break
            if fitted.error <= least:
                scale = self.kernel.one_lengthscale / fitted.kernel.one_lengthscale
                best = ScreenedColumns(columns, weights * scale, fitted.ridge)
            weights = self.weigh(columns, weights, fitted)
            enough = self.leave_out(columns, weights, fitted)
            if enough is None and fitted.error > GAIN * least:
                break
            least = min(least, fitted.error)
            if enough is not None:
                columns, weights = columns[enough], weights[enough]
        return best if least <= HALVED * first else None

    def fit(self, columns: Tensor, weights: Tensor) -> SampleFit | None:
        """The model of these columns (k,) with the least validation error.

        None where no system can be solved.
        """
        Z = self.rows.X[:, columns] * weights
        median = median_distance(Z[: self.n_training])
        lengthscales = [factor * median for factor in LENGTHSCALES]
        fits = self.engine.map(partial(self.fit_ridges, Z, RIDGES), lengthscales)
        return min((fit for fit in fits if fit is not None), key=attrgetter("error"), default=None)

    def fit_ridges(
        self, Z: Tensor, ridges: tuple[float, ...], lengthscale: float
    ) -> SampleFit | None:
        """The model of weighed columns Z (n, k) with the best of these ridges, if there is one."""
        t, kernel, best = self.n_training, self.kernel.with_lengthscale(lengthscale), None
        _, Y, w = self.rows
        assert w is not None
        K_tt, K_vt = kernel_of_rows(kernel, Z[:t]), kernel(Z[t:], Z[:t])
        for ridge in ridges:
            L = cholesky_or_nan(add_to_diagonal(K_tt, ridge / w[:t]))
            alpha = solve_factor(L, Y[:t])
            squares = (K_vt @ alpha - Y[t:]).square().sum(1)
            error = float((w[t:] * squares).sum() / w[t:].sum())
            if math.isfinite(error) and (best is None or error < best.error):
                best = SampleFit(error, kernel, ridge, alpha)
        return best

    def weigh(self, columns: Tensor, weights: Tensor, fitted: SampleFit) -> Tensor:
        """The fourth root of the mean squared slope along each of these columns, (k,)."""
        Z = self.rows.X[:, columns] * weights

        def sum_squares(rows: Tensor) -> Tensor:
            slopes = gradients(fitted.kernel, fitted.alpha, Z[: self.n_training], rows)
            return slopes.square().sum((0, 1))  # (k,)

        squares = torch.stack(self.engine.map(sum_squares, torch.split(Z, SLOPE_ROWS))).sum(0)
        root = (squares * weights.square()).pow(0.25)
        scale = math.sqrt(len(root)) / float(root.norm().clamp_min(1e-300))
        return scale * root

    def leave_out(self, columns: Tensor, weights: Tensor, fitted: SampleFit) -> Tensor | None:
        """Which of these columns are enough for the error of this fit, or None if all are needed.

        The ridge stays, and the lengthscale falls with the median distance of what is left.
        """
        order = weights.argsort(descending=True, stable=True)
        counts = sorted({max(1, round(share * len(order))) for share in SHARES} - {len(order)})
        Z = self.rows.X[:, columns] * weights
        factor = fitted.kernel.one_lengthscale / median_distance(Z[: self.n_training])

        def fit_few(count: int) -> SampleFit | None:
            few = Z[:, order[:count]]
            lengthscale = factor * median_distance(few[: self.n_training])
            return self.fit_ridges(few, (fitted.ridge,), lengthscale)

        for count, few in zip(counts, self.engine.map(fit_few, counts), strict=True):
            if few is not None and few.error <= fitted.error:
                return order[:count].sort().values
        return None
