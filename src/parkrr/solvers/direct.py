"""The exact Nystrom estimator, from K'WK and K'WY: for one penalty, or for all of them.

With K_mm = U U' the system is (U^-1 K'WK U^-T + lambda n I) gamma = U^-1 K'WY, alpha = U^-T gamma
(appendix, after eq. (13)). A Cholesky factor solves it for one penalty. The eigendecomposition
V diag(h) V' of U^-1 K'WK U^-T solves it for all: alpha = U^-T V (b / (h + lambda n)) with
b = V' U^-1 K'WY. Training error, effective dimension and generalised cross-validation score of a
penalty then cost O(m), and errors on other rows under all penalties are one product.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from parkrr.data import ArraySource, Source
from parkrr.errors import NotFiniteError
from parkrr.kernels import Kernel
from parkrr.solvers.factors import (
    EPS,
    Factor,
    add_to_diagonal,
    cholesky,
    join_fallbacks,
    regular_cholesky,
    solve_triangular,
)
from parkrr.solvers.problem import (
    Influence,
    LeaveOneOutBlock,
    LocalFit,
    LocalProblem,
    Shard,
    Solver,
    group_runs,
    kernel_of_rows,
)

if TYPE_CHECKING:
    from parkrr.solvers.falkon import Falkon  # which imports this module

LARGEST_USEFUL_JITTER = 1e-3
PENALTIES = torch.logspace(-11, 0, 34, dtype=torch.float64)  # three a decade


@final
@dataclass(frozen=True)
class Direct:
    """The exact Nystrom estimator from one pass over the rows of a cell.

    Where every row is a centre it is eq. (10), which needs no statistics. Statistics square the
    condition number. Where float32 leaves no digit, float64 may: 10^7 rows of rides took 20
    core-microseconds a row in cells that way, and 29 by conjugate gradient. Where float64 leaves
    none either, conjugate gradient goes on in float64, which can take 20 times as long, or with
    `iterate=False` a NotFiniteError is raised.
    """

    iterate: bool = True

    def solve(self, problem: LocalProblem) -> LocalFit:
        fit = solve_exactly(problem)
        if fit is not None and not problem.is_noisy(fit):
            return fit
        if not self.iterate:
            raise NotFiniteError("statistics leave no digit of the solution")
        if problem.centers.dtype != torch.float64:
            fit = solve_exactly(problem.to(torch.float64))
            if fit is not None and not fit.fallback:  # jitter takes what conjugate gradient finds
                return fit._replace(fallback="float64 statistics")
        from parkrr.solvers.falkon import Falkon  # noqa: PLC0415 - which imports this module

        fit = Falkon(max_iter=300, tol=1e-6).solve(problem.to(torch.float64))
        return fit._replace(fallback=join_fallbacks(fit.fallback, "falkon in float64"))

    def most_left_out(self, n: int) -> int:
        return n


def choose_solver(n: float, m: int, t: int, falkon: "Falkon") -> tuple[Solver, str]:
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


def solve_exactly(problem: LocalProblem) -> LocalFit | None:
    """The exact estimator; None if rounding of the statistics leaves no digit of it."""
    if torch.equal(problem.centers, problem.cell.X):
        return exact_ridge_regression(problem)
    gram = problem.sum_shards(problem.shards(), Shard.gram)  # (m, m + t)
    jitter = statistics_jitter(len(gram), problem.ridge / problem.cell.total_weight)
    fit = solve_gram(
        problem.K_mm(),
        gram,
        problem.ridge,
        jitter,
        problem.left_out(),
        problem.n_threads,
        problem.keep_influence,
    )
    return fit and fit._replace(dtype=problem.centers.dtype)


def solve_gram(
    K_mm: Tensor,
    gram: Tensor,
    ridge: float,
    jitter: float,
    left_out: LeaveOneOutBlock | None,
    n_threads: int = 1,
    keep_influence: bool = False,
) -> LocalFit | None:
    """The estimator from K'W[K, Y] (m, m + t); None if rounding left no positive system."""
    factor = Factor(K_mm, jitter, n_threads)
    H, b = whiten(factor, gram)
    L = cholesky(add_to_diagonal(H, ridge), ridge / 2, n_threads)
    if L is None:
        return None
    weights = factor.solve_t(torch.cholesky_solve(b, L))  # (m, t)
    change = influence = None
    if left_out is not None:
        half = factor.solve(left_out.K.T)
        half = solve_triangular(L, half, upper=False, n_threads=n_threads)  # (r, h)
        change = left_out.change(weights, half)
        if keep_influence:
            half = solve_triangular(L.T, half, upper=True, n_threads=n_threads)
            B = factor.solve_t(half)  # (m, h)
            B = B if left_out.w is None else B * left_out.w
            influence = Influence(B, left_out.Y - left_out.K @ weights + change)
    return LocalFit(weights, 0, 0.0, True, factor.fallback, torch.float64, change, influence)


def statistics_jitter(m: int, penalty: float) -> float:
    """What counts as zero in K_mm when it whitens statistics.

    Whitening multiplies the rounding of K'WK, at most eps n m, by 1 / jitter: it stays below
    lambda n if jitter > eps m / lambda. Up to lambda m / 100 the jitter touches only what
    the penalty has already shrunk away.
    """
    return m * max(10 * EPS, min(EPS / penalty, penalty / 100))


def smallest_penalty(m: int) -> float:
    """The smallest lambda_q that statistics of m centres can carry; what is below changes nothing.

    It is the one whose rounding needs a jitter of 0.001. In a cell of 4,000 rows of houseelectric
    with 400 centres errors under wide kernels fall until 1e-10: 0.0318 at 1e-6, 0.0303 at 1e-9 and
    from there to 1e-13, where the ridge has to be raised, and under others not below 1e-7.
    """
    return m * EPS / LARGEST_USEFUL_JITTER


def whiten(factor: Factor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """U^-1 K'WK U^-T (r, r) and U^-1 K'WY (r, t) from the statistics (m, m + t)."""
    m = len(gram)
    half = factor.solve(gram)  # (r, m + t)
    H = factor.solve(half[:, :m].T)
    return (H + H.T) / 2, half[:, m:]


def exact_ridge_regression(problem: LocalProblem) -> LocalFit:
    """eq. (10): (K_n + lambda n W^-1) alpha = Y, in the order of the cell's rows."""
    cell, ridge, Y = problem.cell, problem.ridge, problem.cell.Y.double()
    noise = Y.new_full((cell.n_rows,), ridge) if cell.w is None else ridge / cell.w.double()
    build = partial(kernel_of_rows, problem.kernel, cell.X, problem.n_threads)
    L, fallback = regular_cholesky(build, noise, problem.n_threads)
    half = solve_triangular(L, Y, upper=False)  # not cholesky_solve, which copies L
    weights = solve_triangular(L.mT, half, upper=True)
    change = influence = None
    if (h := problem.n_left_out) and problem.keep_influence:
        # h_i(x) = k(x)' C e_i, and r_i / (1 - l_i) = alpha_i / c_ii.
        last = torch.eye(cell.n_rows, dtype=L.dtype, device=L.device)[:, -h:]  # (n, h)
        B = solve_triangular(L.mT, solve_triangular(L, last, upper=False), upper=True)
        c = B[-h:].diagonal()[:, None]
        influence = Influence(B, weights[-h:] / c)
        change = weights[-h:] * (1 / c - noise[-h:, None])  # (h, t)
    elif h:
        # With C = (K + D)^-1 = (L L')^-1 a residual is d_i alpha_i and 1 - l_i = d_i c_ii. The
        # last block of C is the inverse of that of L L', so a few rows at the end cost little.
        C = torch.cholesky_inverse(L[-h:, -h:])  # (h, h)
        change = weights[-h:] * (1 / C.diagonal() - noise[-h:])[:, None]  # (h, t)
        if problem.left_out_groups is not None:  # residuals of a group B are C_BB^-1 alpha_B
            for run in group_runs(problem.left_out_groups):
                alpha, own = weights[-h:][run], noise[-h:][run, None]
                change[run] = torch.linalg.solve(C[run, run], alpha) - own * alpha
    fit = LocalFit(weights, 0, 0.0, True, fallback, cell.X.dtype, change, influence)
    return fit._replace(dtype=torch.float64) if problem.is_noisy(fit) else fit


@dataclass(frozen=True)
class PenaltyPath:
    """The exact Nystrom estimators of a cell for all penalties."""

    problem: LocalProblem
    basis: Tensor  # (m, r)  U^-T V: coefficients of the centres for each direction
    h: Tensor  # (r,)  weight of the rows along each direction
    b: Tensor  # (r, t)  the target along it
    yy: float  # Y'WY summed over outputs
    n: float  # total weight of the rows

    def weights(self, penalty: float) -> Tensor:
        """alpha, shape (m, t)."""
        return self.basis @ (self.b / (self.h + penalty * self.n)[:, None])

    def training_error(self, penalties: Tensor) -> Tensor:
        """Weighted mean squared error on the rows of the cell, of all outputs, shape (p,)."""
        h, ridge = self.h[:, None], penalties.to(self.h) * self.n
        share = (h + 2 * ridge) / (h + ridge).square()  # (r, p)
        return (self.yy - self.b.square().sum(1) @ share).clamp_min(0) / self.n

    def effective_dimension(self, penalties: Tensor) -> Tensor:
        """N_q(lambda) of the sketched problem, shape (p,)."""
        return (self.h[:, None] / (self.h[:, None] + penalties.to(self.h) * self.n)).sum(0)

    def gcv(self, penalties: Tensor) -> Tensor:
        """Generalised cross-validation: training error over (1 - N_q / n)^2, shape (p,)."""
        free = (1 - self.effective_dimension(penalties) / self.n).clamp_min(1e-12)
        return self.training_error(penalties) / free.square()

    def errors(self, rows: Source, penalties: Tensor) -> Tensor:
        """Weighted sum of squared errors on other rows under each penalty, shape (p,)."""
        penalties = penalties.to(self.h)
        shrunk = self.b[:, None] / (self.h[:, None] + penalties * self.n)[:, :, None]  # (r, p, t)
        kernel_block = self.problem.kernel.against(self.problem.centers)
        total = torch.zeros_like(penalties)
        for X, Y, w in rows.blocks(kernel_block.block_rows(rows.n_rows)):
            directions = kernel_block(X).double() @ self.basis  # (b, r)
            predicted = torch.einsum("br,rpt->bpt", directions, shrunk)
            squares = (predicted - Y.double()[:, None]).square().sum(2)  # (b, p)
            total += squares.sum(0) if w is None else w.double() @ squares
        return total


def penalty_path(problem: LocalProblem) -> PenaltyPath:
    """The path of a problem, for penalties of at least its own."""
    cell = problem.cell
    gram = problem.sum_shards(problem.shards(), Shard.gram)  # (m, m + t)
    jitter = statistics_jitter(len(gram), problem.ridge / cell.total_weight)
    factor = Factor(problem.K_mm(), jitter, problem.n_threads)
    H, right = whiten(factor, gram)
    h, V = torch.linalg.eigh(H)
    basis, yy = factor.solve_t(V), float(cell.squared_error())
    return PenaltyPath(problem, basis, h.clamp_min(0), V.T @ right, yy, cell.total_weight)


def leave_one_out_errors(kernel: Kernel, rows: ArraySource, penalties: Tensor) -> Tensor:
    """Weighted sum of squared leave-one-out errors of all rows under each penalty, shape (p,).

    With C = (W^1/2 K W^1/2 + lambda n)^-1 of all rows, the row's error is (C W^1/2 y) / diag C
    over the root of its weight. One eigendecomposition serves all penalties; for few rows.
    """
    w = torch.ones_like(rows.Y[:, 0]) if rows.w is None else rows.w
    root = w.double().sqrt()[:, None]  # (n, 1)
    h, V = torch.linalg.eigh(root * kernel_of_rows(kernel, rows.X) * root.T)
    shrunk = 1 / (h.clamp_min(0)[:, None] + penalties.to(h) * rows.total_weight)  # (n, p)
    diagonal = V.square() @ shrunk  # (n, p)
    b = V.T @ (root * rows.Y.double())  # (n, t)
    residuals = torch.einsum("nr,rp,rt->npt", V, shrunk, b) / diagonal[:, :, None]
    errors: Tensor = residuals.square().sum((0, 2))
    return errors
