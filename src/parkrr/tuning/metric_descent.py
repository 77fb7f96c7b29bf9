"""Metric descent: a feature map learned by steps along the slope of leave-one-out error.

The rows nearest to a random row are a local batch. With C = (K + r)^-1 of all its rows and
alpha = C Y, the residual of a row that is left out is R_i = alpha_i / C_ii, and with
S_i = 2 w_i R_i / (C_ii sum w) the slopes of the mean squared residual are
C diag(<S_i, R_i>) C - C S alpha' by K, and the trace of that by the ridge r: one Cholesky factor.
The chain rule through the kernel to the matrix of the map takes one more product. Where groups or
parts of a batch are left out together, C_ii becomes a block of C.

Every row has a residual. Descents that fitted three quarters of 400 rows and had residuals of the
others took twice the time: with 8,000 rows of diamonds 18 s for the same error, and 8.5 now.

The average gradient outer product of such batches is where the descent starts: from there 200
steps took the validation error of flights from 0.733 to 0.613 and of pol from 0.097 to 0.064; from
equal weights flights only came to 0.75.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, Block
from parkrr.kernels import Kernel, Radial, apply_matrix, gradient_products, matrix_root, pull_back
from parkrr.partition import rows_around
from parkrr.runtime import Engine
from parkrr.solvers import add_to_diagonal, cholesky_or_nan, kernel_of_rows, solve_factor

BATCH_ROWS = 600
STACKED_ROWS = 300  # up to which two batches of a step are computed together
FEWEST_ROWS = 100  # of a batch, or all there are
# To a step, of fewer than BATCH_ROWS rows and of these. Of small ones two were too few: with 6,000
# rows of diamonds the error was 0.149, and is 0.146 with four. Four large ones changed nothing.
SMALL_BATCHES, LARGE_BATCHES = 4, 2
# Training rows below which two small ones are enough, for they are most of the rows: over seven
# data sets with 1,000 rows the error is 0.992 of that with four.
MANY_ROWS = 2000
GRADIENT_BATCHES = 8  # to an average gradient outer product
# Of a weight, that the average gradient outer product leaves. A category that divides rows into
# local batches has no slope in any of them, and steps do not bring back a weight of zero: insurance
# lost whether one smokes, and then had an error of 0.420 instead of 0.369.
LEAST_KEPT = 0.3
PARTS = 4  # of a batch, that are left out in turn where single rows tell too much
REFRESH = 8  # steps between two searches for the rows of batches
RATE = 0.1  # of the logarithm of a weight
MATRIX_RATE = 0.3  # of RATE, for the entries of a matrix over their typical size
RIDGE_RATE = 2.0  # of RATE, for the logarithm of the ridge
DAMPING = 1e-3  # of the largest slope: weights that do not matter stay where they are
RIDGES = (1e-6, 1e4)
ERROR_STEPS = 16  # last steps whose residuals count
DECAY = (0.9, 0.98)  # of averages of slopes and of their squares


class Slopes(NamedTuple):
    """Squared residuals of b batches with their weight, and the slopes of their means."""

    squares: Tensor  # (b,)
    weight: Tensor  # (b,)
    by_matrix: Tensor  # (b, e, e), or (b, e) of a diagonal
    by_ridge: Tensor  # (b,)  by its logarithm

    @property
    def is_finite(self) -> Tensor:
        """Whether the system of each batch could be solved, (b,)."""
        return torch.isfinite(self.by_ridge) & torch.isfinite(self.by_matrix.flatten(1)).all(1)


@dataclass(frozen=True)
class LocalBatch:
    """Rows near a batch centre before the matrix, in float64.

    In float32 a step takes half the time, but another order of columns or another unit, which
    change the last bits, then led to errors that differed by a tenth.
    """

    rows: Block  # columns (n, e), targets and weights, the nearest row first
    groups: Tensor | None = None  # (n,)  that are left out together; None for row by row, or parts
    n_parts: int | None = None  # that are left out in turn, if n is a multiple and without groups

    @property
    def block_rows(self) -> int:
        """Rows of a part, or one."""
        return 1 if self.n_parts is None else len(self.rows.X) // self.n_parts

    def gradient_products(self, kernel: Radial, matrix: Tensor, ridge: float) -> Tensor:
        """Gradient outer products (e, e) of a fit to all rows, over the nearest half of them."""
        F, Y, w = self.rows
        X = apply_matrix(F, matrix)
        K = add_to_diagonal(kernel_of_rows(kernel, X), ridge if w is None else ridge / w)
        alpha = solve_factor(cholesky_or_nan(K), Y)
        return gradient_products(kernel, alpha, X, X[: max(1, len(X) // 2)])

    def squared_error(self, kernel: Radial, matrix: Tensor, ridge: float) -> Tensor:
        """Sum of squared residuals of rows that are left out, and of their weights, (2,)."""
        F, Y, w = stack_rows([self])
        K = kernel_of_rows(kernel, apply_matrix(F[0], matrix))[None]
        left = LeaveOut.from_system(K, ridge / w, stack_groups([self]), self.block_rows)
        R = left.divide_by_blocks(left.C @ Y)
        return torch.stack([(w[:, :, None] * R.square()).sum(), w.sum()])


@dataclass(frozen=True)
class LeaveOut:
    """C = (K + r)^-1 of b batches, whose blocks tell of rows that are left out.

    A block is the diagonal entry of a row, or the rows and columns of a group or a part.
    """

    C: Tensor  # (b, n, n), NaN where the system cannot be solved
    same: Tensor | None  # (b, n, n)  whether two rows are in one group; None without groups
    block_rows: int = 1  # without groups: g successive rows are a block

    @classmethod
    def from_system(
        cls, K: Tensor, ridges: Tensor, same: Tensor | None, block_rows: int
    ) -> "LeaveOut":
        """Of K (b, n, n), which is overwritten, and the ridges (b, n) of its rows."""
        K.diagonal(dim1=1, dim2=2).add_(ridges)
        L, info = torch.linalg.cholesky_ex(K)
        if bool(info.any()):
            L[info != 0] = math.nan
        return cls(torch.cholesky_inverse(L), same, block_rows)

    @cached_property
    def block_factors(self) -> Tensor:
        """Cholesky factors of the matrix of all groups, (b, n, n), or of p parts, (b, p, g, g)."""
        if self.same is not None:
            blocks = self.C * self.same
        else:
            b, n, g = len(self.C), self.C.shape[1], self.block_rows
            parts = self.C.reshape(b, n // g, g, n // g, g)
            blocks = parts.diagonal(dim1=1, dim2=3).movedim(3, 1)
        L: Tensor = torch.linalg.cholesky_ex(blocks)[0]
        return L

    def split(self, v: Tensor) -> Tensor:
        """The parts of v (b, n, k), as (b, p, g, k)."""
        return v.reshape(len(v), -1, self.block_rows, v.shape[2])

    def divide_by_blocks(self, v: Tensor) -> Tensor:
        """The inverses of the blocks times v (b, n, k)."""
        if self.same is not None:
            return solve_factor(self.block_factors, v)
        if self.block_rows > 1:
            return solve_factor(self.block_factors, self.split(v)).flatten(1, 2)
        return v / self.C.diagonal(dim1=1, dim2=2)[:, :, None]

    def multiply_blocks(self, U: Tensor, V: Tensor) -> Tensor:
        """C (blocks of U V') C, (b, n, n), of U and V (b, n, k)."""
        if self.same is not None:
            return self.C @ (self.same * (U @ V.mT)) @ self.C
        if self.block_rows > 1:
            blocks = self.split(U) @ self.split(V).mT  # (b, p, g, g)
            return self.C @ (blocks @ self.split(self.C)).flatten(1, 2)
        return self.C @ ((U * V).sum(2, keepdim=True) * self.C)


def compute_slopes(
    batches: Sequence[LocalBatch], kernel: Radial, matrix: Tensor, ridge: float
) -> Slopes:
    """Slopes of the leave-one-out errors of b batches of n rows each, computed together."""
    F, Y, w = stack_rows(batches)
    X = F * matrix if matrix.ndim == 1 else F @ matrix  # (b, n, e)
    K, S = kernel.with_slope(X, X)  # (b, n, n) each
    left = LeaveOut.from_system(K, ridge / w, stack_groups(batches), batches[0].block_rows)
    alpha = left.C @ Y  # (b, n, outputs)
    R = left.divide_by_blocks(alpha)
    total = w.sum(1)  # (b,)
    T = left.divide_by_blocks(2 / total[:, None, None] * w[:, :, None] * R)
    G = left.multiply_blocks(T, R).sub_((left.C @ T) @ alpha.mT)  # by K, (b, n, n)
    by_ridge = ridge * (G.diagonal(dim1=1, dim2=2) / w).sum(1)
    W = S.mul_(G)
    W = W + W.mT
    dX = X * W.sum(2, keepdim=True) - W @ X
    by_matrix = (F * dX).sum(1) if matrix.ndim == 1 else F.mT @ dX
    return Slopes((w[:, :, None] * R.square()).sum((1, 2)), total, by_matrix, by_ridge)


def stack_rows(batches: Sequence[LocalBatch]) -> tuple[Tensor, Tensor, Tensor]:
    """Columns (b, n, e), targets (b, n, outputs) and weights (b, n) of b batches of n rows.

    Parts come one after the other, each with rows at all distances from the batch centre.
    """
    blocks = [batch.rows for batch in batches]
    weighted = [(X, Y, X.new_ones(len(X)) if w is None else w) for X, Y, w in blocks]
    X, Y, w = (torch.stack(parts) for parts in zip(*weighted, strict=True))
    p = batches[0].n_parts
    if p is not None:
        order = torch.arange(X.shape[1], device=X.device).reshape(-1, p).T.flatten()
        X, Y, w = X[:, order], Y[:, order], w[:, order]
    return X, Y, w


def stack_groups(batches: Sequence[LocalBatch]) -> Tensor | None:
    """Whether two rows of a batch are in one group, (b, n, n); None without groups."""
    groups = [batch.groups for batch in batches if batch.groups is not None]
    if not groups:
        return None
    numbers = torch.stack(groups)
    return numbers[:, :, None] == numbers[:, None, :]


def count_batches(n_rows: int, n: int) -> int:
    """Batches to a step, of `n_rows` of the n training rows each."""
    return SMALL_BATCHES if n_rows < BATCH_ROWS and n >= MANY_ROWS else LARGE_BATCHES


def combine_batches(batches: Sequence[LocalBatch]) -> list[Sequence[LocalBatch]]:
    """Batches that are computed together: two of them if they are small.

    Python between short operations takes as long for two as for one, and other pairs keep other
    cores busy: a step of four batches of 300 rows and 40 columns took 23 ms on two cores as one,
    23 one by one, and 12 in pairs.
    """
    together = 2 if len(batches[0].rows.X) <= STACKED_ROWS else 1
    return [batches[k : k + together] for k in range(0, len(batches), together)]


class Adam:
    """Adam's direction: averaged slopes over the root of averaged squares.

    Squares are averaged over all entries of a matrix, so that no basis is preferred, and entry by
    entry for weights.
    """

    def __init__(self) -> None:
        self.count = 0
        self.slope: Tensor | float = 0.0
        self.square: Tensor | float = 0.0

    def __call__(self, slope: Tensor) -> Tensor:
        fast, slow = DECAY
        self.count += 1
        square = slope.square() if slope.ndim < 2 else slope.square().mean()
        self.slope = fast * self.slope + (1 - fast) * slope
        self.square = slow * self.square + (1 - slow) * square
        size = (self.square / (1 - slow**self.count)).sqrt()
        return self.slope / (1 - fast**self.count) / (size + DAMPING * size.max() + 1e-150)


@dataclass
class MetricDescent:
    """A matrix and a ridge that follow the slope of the validation error."""

    rows: ArraySource  # columns to learn from, (n, e), targets scaled
    kernel: Radial  # its lengthscale stays: the matrix grows or shrinks instead
    matrix: Tensor  # weights (e,) or a matrix (e, e)
    ridge: float  # lambda n
    fixed: bool  # whether the ridge stays
    engine: Engine
    seed: int  # of batch centres
    groups: Tensor | None = None  # (n,)  that are left out together where a batch has several
    in_parts: bool = False  # whether parts of a batch are left out and not single rows

    def __post_init__(self) -> None:
        if not self.fixed:
            self.ridge = min(max(self.ridge, RIDGES[0]), RIDGES[1])
        self.rng = np.random.default_rng(self.seed)
        self.steps: list[tuple[float, float]] = []  # squared residuals and their weight
        self.shape, self.size, self.log_ridge = Adam(), Adam(), Adam()

    @property
    def error(self) -> float:
        """Mean squared residual over the last steps, infinite before the first."""
        last = self.steps[-ERROR_STEPS:]
        return sum(squares for squares, _ in last) / sum(w for _, w in last) if last else math.inf

    def restart(self, kernel: Kernel) -> "MetricDescent":
        """A descent of another kernel from this matrix: each has a lengthscale that suits it."""
        assert isinstance(kernel, Radial)
        return replace(self, kernel=kernel)

    def advance(self, rates: Sequence[float], n_rows: int = BATCH_ROWS) -> None:
        """Take a step of each of these lengths on batches of so many rows, drawn at once."""
        b = count_batches(n_rows, self.rows.n_rows)
        batches = self.draw_batches(len(rates) * b, n_rows)
        for k, rate in enumerate(rates):
            self.step(batches[k * b : (k + 1) * b], rate)

    def measure_error(self, batches: list[LocalBatch]) -> float:
        """Mean squared residual of these batches, infinite where a system has no solution."""
        task = partial(
            LocalBatch.squared_error, kernel=self.kernel, matrix=self.matrix, ridge=self.ridge
        )
        squares, weight = torch.stack(self.engine.map(task, batches)).sum(0).tolist()
        return squares / weight if math.isfinite(squares) else math.inf

    def step(self, batches: list[LocalBatch], rate: float) -> None:
        """One step along the mean slope of some batches: in shape, in size and of the ridge."""
        task = partial(compute_slopes, kernel=self.kernel, matrix=self.matrix, ridge=self.ridge)
        parts = self.engine.map(task, combine_batches(batches))
        slopes = Slopes(*(torch.cat(part) for part in zip(*parts, strict=True)))
        solved = slopes.is_finite
        if not bool(solved.any()):
            return
        squares, weight, by_matrix, by_ridge = (part[solved] for part in slopes)
        self.steps.append((float(squares.sum()), float(weight.sum())))
        share = weight / weight.sum()  # (b,)
        A, dA = self.matrix, torch.tensordot(share, by_matrix, 1)
        size = (-rate * self.size((dA * A).sum()[None])).exp()
        if A.ndim == 1:
            self.matrix = size * A * (-rate * self.shape(dA * A)).exp()
        else:
            typical = float(A.norm()) / math.sqrt(len(A))
            self.matrix = size * (A - MATRIX_RATE * rate * typical * self.shape(dA))
        if not self.fixed:
            slope = (share @ by_ridge)[None]
            change = math.exp(-RIDGE_RATE * rate * float(self.log_ridge(slope)))
            self.ridge = min(max(self.ridge * change, RIDGES[0]), RIDGES[1])

    def jump_to_gradient_products(self) -> None:
        """Replace the matrix by the root of the average gradient outer product, scaled alike."""
        task = partial(
            LocalBatch.gradient_products, kernel=self.kernel, matrix=self.matrix, ridge=self.ridge
        )
        products = self.engine.map(task, self.draw_batches(GRADIENT_BATCHES, BATCH_ROWS))
        products = [M for M in products if bool(torch.isfinite(M).all())]
        M = pull_back(torch.stack(products).sum(0), self.matrix) if products else None
        if M is not None and bool(M.any()):
            A = matrix_root(M.diagonal() if self.matrix.ndim == 1 else M)
            A = A * (self.matrix.norm() / A.norm())
            if A.ndim == 1:
                A = torch.maximum(A, LEAST_KEPT * self.matrix)
            self.matrix = A * (self.matrix.norm() / A.norm())
            self.shape, self.size, self.log_ridge = Adam(), Adam(), Adam()  # old slopes mislead

    def draw_batches(self, count: int, n_rows: int) -> list[LocalBatch]:
        """The n_rows rows nearest to each random batch centre."""
        rows = self.rows.map(partial(apply_matrix, matrix=self.matrix))
        centers = torch.from_numpy(self.rng.integers(rows.n_rows, size=count)).to(rows.X.device)
        n = min(n_rows, max(FEWEST_ROWS, rows.n_rows // 2))
        near = rows_around(rows, rows.block(centers).X, n, self.engine.cores)  # (count, n)
        return [self.make_batch(index) for index in near]

    def make_batch(self, index: Tensor) -> LocalBatch:
        """These rows; where all are of one group, each is left out by itself."""
        parts = self.in_parts and len(index) >= PARTS
        index = index[: len(index) // PARTS * PARTS] if parts else index
        F, Y, w = self.rows.block(index)
        block = Block(F, Y.double(), None if w is None else w.double())
        if self.groups is None:
            return LocalBatch(block, n_parts=PARTS if parts else None)
        groups = self.groups[index]
        if bool((groups == groups[0]).all()):
            groups = torch.arange(len(index), device=groups.device)
        return LocalBatch(block, groups)
