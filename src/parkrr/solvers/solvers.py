"""FALKON and direct Nystrom for the local problem, eq. (8).

A solver is an immutable value with its own settings. It sees a kernel, the rows of one
cell and their centres.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from torch import Tensor

from parkrr.data import FEW_ROWS
from parkrr.data import joined as joined_rows
from parkrr.kernels import Kernel
from parkrr.solvers.conjugate_gradient import conjugate_gradient
from parkrr.solvers.factors import (
    EPS,
    Factor,
    Preconditioner,
    cholesky,
    joined,
    plus,
    regular_cholesky,
    solve_triangular,
)
from parkrr.solvers.leave_one_out import LeaveOneOutBlock, exact_change
from parkrr.solvers.problem import LocalProblem, Shard, kernel_of_rows, left_out_rows, summed

# Predictions in float32 that are off by more than this, of targets in [-1, 1], are made in
# float64; measured on so many rows.
LARGEST_NOISE, NOISE_ROWS = 1e-3, 256
# Share of the rows that FALKON leaves out together, and how exactly it knows what changes.
TOGETHER, CHANGE_TOL = 0.2, 1e-2


class LocalFit(NamedTuple):
    """What a solver returns: the answer, and how it was reached."""

    weights: Tensor  # (m, t)  alpha = B beta, the coefficients of eq. (13)
    n_iter: int  # 0 for a direct solve
    residual: float  # relative, worst output; 0.0 for a direct solve
    converged: bool
    rescue: str  # what it needed: "", "jitter ...", "cut-off ...", "float64 products", ...
    dtype: torch.dtype  # in which predictions need their kernel values
    change: Tensor | None = None  # (h, t)  of predictions of the rows at the end, left out


class Solver(Protocol):
    """Solves local problems."""

    def solve(self, problem: LocalProblem) -> LocalFit: ...

    def most_left_out(self, n: int) -> int: ...


@final
@dataclass(frozen=True)
class Direct:
    """The exact Nystrom estimator from the statistics K'WK and K'WY (appendix, after (13)).

    One pass over the rows, additive over blocks. With K_mm = U U' the system is
    (U^-1 K'WK U^-T + lambda n I) gamma = U^-1 K'WY, alpha = U^-T gamma. Where every row is
    a centre it is eq. (10), which needs no statistics.
    """

    def solve(self, problem: LocalProblem) -> LocalFit:
        fit = factored(problem)
        if fit is not None and not noisy(problem, fit):
            return fit
        # Statistics square the condition number. Where that leaves no digit, iterate.
        fit = Falkon(max_iter=300, tol=1e-6).solve(problem.to(torch.float64))
        return fit._replace(rescue=joined(fit.rescue, "falkon in float64"))

    def most_left_out(self, n: int) -> int:
        """Rows that can be left out in turn at little cost."""
        return n


def factored(problem: LocalProblem) -> LocalFit | None:
    """The exact estimator; None if statistics leave no digit of it."""
    if torch.equal(problem.centers, problem.cell.X):
        return exact_ridge_regression(problem)
    stats = summed(problem.shards(), Shard.gram)  # (m, m + t)
    jitter = statistics_jitter(len(stats), problem.penalty)
    how = (problem.ridge, jitter, problem.centers.dtype, problem.left_out())
    return solve_statistics(problem.K_mm(), stats, *how)


def solve_statistics(
    K_mm: Tensor,
    stats: Tensor,
    ridge: float,
    jitter: float,
    dtype: torch.dtype,
    left_out: LeaveOneOutBlock | None,
) -> LocalFit | None:
    """The estimator from statistics (m, m + t); None if rounding left no positive system."""
    factor = Factor(K_mm, jitter)
    H, b = whitened(factor, stats)
    L = cholesky(plus(H, ridge), smallest_pivot=ridge / 2)
    if L is None:
        return None
    weights = factor.solve_t(torch.cholesky_solve(b, L))  # (m, t)
    change = None
    if left_out is not None:
        half = solve_triangular(L, factor.solve(left_out.K.T), upper=False)  # (r, h)
        change = left_out.change(weights, half)
    return LocalFit(weights, 0, 0.0, True, factor.rescue, dtype, change)


def nothing_to_fit(Z: Tensor, t: int, n_left_out: int) -> LocalFit:
    """The estimator of t targets where K is zero on all centres Z (m, d): zero, whoever is out."""
    zero = torch.zeros(len(Z), t, dtype=torch.float64, device=Z.device)
    change = zero.new_zeros(n_left_out, t)
    return LocalFit(zero, 0, 0.0, True, "K is zero on all centres", Z.dtype, change)


def noisy(problem: LocalProblem, fit: LocalFit) -> bool:
    """Whether its predictions, in the dtype it says, are too noisy."""
    if fit.dtype == torch.float64:
        return False
    return lost_in_float32(problem.kernel, problem.cell.X, problem.centers, fit.weights)


def lost_in_float32(kernel: Kernel, X: Tensor, Z: Tensor, weights: Tensor) -> bool:
    """Whether float32 is too short to predict with centres Z (m, d) and these weights (m, t).

    Measured on some of the rows X (n, d), for two things make noise: large weights, and rows
    whose distances are small beside their norms. KEGG had weights of 2e5, which eps alone makes
    0.006 of, and predictions that were off by 0.5.
    """
    X = X[:: max(1, len(X) // NOISE_ROWS)]
    K, short = kernel(X.double(), Z.double()), kernel(X.float(), Z.float())
    noise = (short @ weights.float()).double() - K @ weights
    return not float(noise.square().mean(0).max()) <= LARGEST_NOISE**2


def statistics_jitter(m: int, penalty: float) -> float:
    """What counts as zero in K_mm when it whitens statistics.

    Whitening multiplies the rounding of K'WK, at most eps n m, by 1 / jitter: it stays below
    lambda n if jitter > eps m / lambda. Up to lambda m / 100 the jitter touches only what
    the penalty has already shrunk away.
    """
    return m * max(10 * EPS, min(EPS / penalty, penalty / 100))


def whitened(factor: Factor, stats: Tensor) -> tuple[Tensor, Tensor]:
    """U^-1 K'WK U^-T (r, r) and U^-1 K'WY (r, t) from the statistics (m, m + t)."""
    m = len(stats)
    half = factor.solve(stats)  # (r, m + t)
    H = factor.solve(half[:, :m].T)
    return (H + H.T) / 2, half[:, m:]


def exact_ridge_regression(problem: LocalProblem) -> LocalFit:
    """eq. (10): (K_n + lambda n W^-1) alpha = Y, in the order of the cell's rows."""
    cell, ridge, Y = problem.cell, problem.ridge, problem.cell.Y.double()
    noise = Y.new_full((cell.n_rows,), ridge) if cell.w is None else ridge / cell.w.double()
    L, rescue = regular_cholesky(partial(kernel_of_rows, problem.kernel, cell.X), noise)
    half = solve_triangular(L, Y, upper=False)  # not cholesky_solve, which copies L
    weights = solve_triangular(L.mT, half, upper=True)
    h = problem.n_left_out
    change = exact_change(L, weights, noise, h) if h else None
    fit = LocalFit(weights, 0, 0.0, True, rescue, cell.X.dtype, change)
    return fit._replace(dtype=torch.float64) if noisy(problem, fit) else fit


@final
@dataclass(frozen=True)
class Falkon:
    """Conjugate gradient on the preconditioned problem, eqs. (12) and (13).

    Parameters
    ----------
    max_iter
        Most iterations.
    tol
        Stop when the residual has fallen to this part of the right-hand side.
    """

    max_iter: int = 100
    tol: float = 1e-4

    def solve(self, problem: LocalProblem) -> LocalFit:
        n = problem.cell.total_weight
        B = Preconditioner(problem.K_mm(), problem.center_weights, problem.ridge, n)
        fit, lost = self.iterate(problem, B)
        if fit.dtype == torch.float64 or not (lost or noisy(problem, fit)):
            return self.with_change(problem, B, fit)
        # Duplicates make B large, and products in float32 become noise: so nine of ten
        # cells of KEGG at penalty 1e-6, where float64 takes 13 to 38 iterations.
        problem = problem.to(torch.float64)
        fit, _ = self.iterate(problem, B)
        fit = self.with_change(problem, B, fit)
        return fit._replace(rescue=joined(fit.rescue, "float64 products"))

    def system(self, shards: list[Shard], B: Preconditioner) -> Callable[[Tensor], Tensor]:
        """The gradient of eq. (12), up to n."""

        def gradient(beta: Tensor) -> Tensor:
            v = B.apply(beta)
            return B.apply_t(summed(shards, lambda shard: shard.normal(v))) + B.ridge(beta)

        return gradient

    def iterate(self, problem: LocalProblem, B: Preconditioner) -> tuple[LocalFit, bool]:
        """Minimise eq. (12); the fit, and whether rounding got in the way."""
        shards, dtype = problem.shards(), problem.centers.dtype

        b = B.apply_t(summed(shards, Shard.right_side))  # (r, t)
        solution = conjugate_gradient(self.system(shards, B), b, self.max_iter, self.tol)
        # The residual is measured, not that of the recurrence, which may go on falling when
        # products cannot. What rounding leaves of it is not held against the solution.
        least = max(10 * self.tol, float(torch.finfo(dtype).eps) ** 0.5)
        converged = solution.finished and solution.residual <= least
        lost = solution.lost and not converged
        how = (solution.n_iter, solution.residual, converged, B.rescue, dtype)
        return LocalFit(B.apply(solution.x), *how), lost

    def most_left_out(self, n: int) -> int:
        """Rows that can be left out together in one more solve, or of few each in turn."""
        return n if n < FEW_ROWS else int(n * TOGETHER)

    def with_change(self, problem: LocalProblem, B: Preconditioner, fit: LocalFit) -> LocalFit:
        """The fit with what it would say of the rows at the end, had it not seen them.

        All at once, or some at a time: without them alpha changes by d, where
        (A - K_H'WK_H) d = K_H'W(Y_H - K_H alpha). The preconditioner is good enough for this.
        """
        h, n = problem.n_left_out, problem.cell.n_rows
        if not h:
            return fit
        exact = factored(problem) if n < FEW_ROWS else None
        if exact is not None:
            return fit._replace(change=exact.change)
        ends = np.linspace(n - h, n, math.ceil(h / n / TOGETHER) + 1).round().astype(int)
        parts = [self.change(problem, B, fit, a, b) for a, b in pairwise(ends.tolist())]
        return fit._replace(change=torch.cat(parts))

    def change(
        self, problem: LocalProblem, B: Preconditioner, fit: LocalFit, a: int, b: int
    ) -> Tensor:
        """How much less the fit without rows a to b says of them, shape (b - a, t)."""
        cell = problem.cell
        gone = left_out_rows(problem.kernel, cell.block(slice(a, b)), problem.centers)
        if a == 0 and b == cell.n_rows:
            return gone.K @ fit.weights  # a fit without rows says nothing
        kept = joined_rows([cell.block(slice(0, a)), cell.block(slice(b, None))])
        shards = replace(problem, cell=kept).shards()
        R = gone.Y - gone.K @ fit.weights
        right = B.apply_t(gone.K.T @ (R if gone.w is None else R * gone.w[:, None]))
        found = conjugate_gradient(self.system(shards, B), right, self.max_iter, CHANGE_TOL)
        return gone.K @ B.apply(found.x)


def cheaper(n: float, m: int, t: int, falkon: Falkon) -> tuple[Solver, str]:
    """The solver that should take less time on n rows and m centres, and why.

    Seconds on one core, from 1.1e9 kernel entries/s, 65e9 float64 operations/s, and 25
    iterations: cells of taxi1m needed 19 to 36 to reach 1e-4. The cubic terms of both are
    alike (2.7 m^3), so they do not count.
    """
    direct = n * m * (1 / 1.1e9 + 1.3 * m / 65e9)
    if m >= n:  # eq. (10): no statistics, half of a cubic term, kernel values in float64
        direct = n * m * (1 / 2e8 + m / 3 / 50e9)
    iterative = n * m * (min(25, falkon.max_iter) + 1) / 1.1e9 * (1 + (t - 1) / 4)
    if m >= n:  # the cubic terms of eq. (10) and of the preconditioner are not alike
        iterative += 2.7 * m**3 / 65e9
    why = f"estimated {direct:.2g} s direct, {iterative:.2g} s falkon"
    return (Direct(), why) if direct <= iterative else (falkon, why)
