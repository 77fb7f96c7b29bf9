"""The local problem, eq. (8): FALKON and direct Nystrom.

A solver is an immutable value with its own settings. It sees a kernel, the rows of one
cell and their centres; the only loop over rows is over blocks of a source.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor

from parkrr.engine import torch_threads
from parkrr.factors import EPS, Factor, Preconditioner, cholesky, joined, plus, regular_cholesky
from parkrr.kernels import Kernel
from parkrr.lifting import Section
from parkrr.sources import ArraySource, Source

PANEL = 64  # columns of K'K at a time: symmetry then saves 40 % of the work at m = 200
# Predictions in float32 that are off by more than this, of targets in [-1, 1], are made in
# float64; measured on so many rows.
LARGEST_NOISE, NOISE_ROWS = 1e-3, 256


class LocalFit(NamedTuple):
    """What a solver returns: the answer, and how it was reached."""

    weights: Tensor  # (m, t)  alpha = B beta, the coefficients of eq. (13)
    n_iter: int  # 0 for a direct solve
    residual: float  # relative, worst output; 0.0 for a direct solve
    converged: bool
    rescue: str  # what it needed: "", "jitter ...", "cut-off ...", "float64 products", ...
    dtype: torch.dtype  # in which predictions need their kernel values


@dataclass(frozen=True)
class LocalProblem:
    """Eq. (8) restricted to the span of some centres, eq. (11).

    Parameters
    ----------
    kernel
        The kernel.
    cell
        The rows of the cell, in memory.
    centers
        Shape (m, d).
    center_weights
        Weights of the centres, of mean one, shape (m,), or None when rows have none.
    ridge
        lambda_q n_q.
    n_threads
        Cores to use.
    """

    kernel: Kernel
    cell: ArraySource
    centers: Tensor
    center_weights: Tensor | None
    ridge: float
    n_threads: int = 1

    @property
    def penalty(self) -> float:
        """lambda_q."""
        return self.ridge / self.cell.total_weight

    def to(self, dtype: torch.dtype) -> "LocalProblem":
        """The same problem with products in that dtype."""
        return replace(self, cell=self.cell.to(dtype), centers=self.centers.to(dtype))

    def K_mm(self) -> Tensor:
        """The kernel of the centres in float64, from float64 distances, shape (m, m).

        In float32 its Cholesky fails at jitter 1e-6.
        """
        return kernel_of_rows(self.kernel, self.centers)

    def shards(self) -> "list[Shard]":
        """The rows lifted once and cut into a shard a thread."""
        section = self.kernel.against(self.centers)
        rows = self.cell.map(section.lift).load()
        return [Shard(section, part) for part in rows.shards(min(self.n_threads, rows.n_rows))]


class Solver(Protocol):
    """Solves local problems."""

    def solve(self, problem: LocalProblem) -> LocalFit: ...


class Piece(NamedTuple):
    """A block of lifted rows and the room for its products, as views made once."""

    A: Tensor  # (b, d')
    Y: Tensor  # (b, t)
    w: Tensor | None  # (b, 1)
    near: bool
    buffers: list[Tensor]  # (b, m) each; the first holds K
    K_t: Tensor  # (m, b)
    u: Tensor  # (b, t)


class Shard:
    """Some lifted rows of a cell against its centres, with buffers for one thread.

    Pieces are cut once: a view costs a few microseconds at each pass, and holds up the other
    threads while it is made, which had cost a third of the speed on two cores.
    """

    def __init__(self, section: Section, rows: Source) -> None:
        self.section, self.rows = section, rows
        self.m, self.t = section.right.shape[1], rows.n_outputs
        self.block_rows = section.block_rows(rows.n_rows)
        self.pieces = self.cut(section.workspace(self.block_rows))

    def cut(self, workspace: list[Tensor]) -> list[Piece]:
        """The blocks of all rows; each uses the same room."""
        pieces = []
        u = self.section.right.new_empty(self.block_rows, self.t)
        for A, Y, w in self.rows.blocks(self.block_rows):
            buffers = [buffer[: len(A)] for buffer in workspace]
            [radius] = self.section.radii(A, [0])
            near = self.section.near(radius)
            weight = None if w is None else w[:, None]
            pieces.append(Piece(A, Y, weight, near, buffers, buffers[0].T, u[: len(A)]))
        return pieces

    def normal(self, v: Tensor) -> Tensor:
        """K' W K v summed in float64, shape (m, t): one kernel evaluation for both products."""
        v = v.to(self.section.right.dtype)
        total, part = self.sums()
        for piece in self.pieces:
            K = self.section.values(piece.A, piece.buffers, piece.near)  # (b, m)
            torch.mm(K, v, out=piece.u)
            if piece.w is not None:
                piece.u.mul_(piece.w)
            torch.mm(piece.K_t, piece.u, out=part)
            total.add_(part)
        return total

    def right_side(self) -> Tensor:
        """K' W Y summed in float64, shape (m, t)."""
        total, part = self.sums()
        for piece in self.pieces:
            self.section.values(piece.A, piece.buffers, piece.near)
            Y = piece.Y if piece.w is None else piece.Y * piece.w
            total.add_(torch.mm(piece.K_t, Y, out=part))
        return total

    def sums(self) -> tuple[Tensor, Tensor]:
        """A float64 total at zero and room for one block's share of it, shape (m, t)."""
        part = self.section.right.new_empty(self.m, self.t)
        return torch.zeros_like(part, dtype=torch.float64), part

    def gram(self) -> Tensor:
        """K' W [K, Y], shape (m, m + t), the statistics of the cell.

        Values may be float32, their products and sums are float64: K'K summed in float32
        stops being positive definite at lambda = 2e-7, n = 9 x 10^5, m = 1000.
        """
        m = self.m
        total = torch.zeros(m, m + self.t, dtype=torch.float64, device=self.section.right.device)
        wide = total.new_empty(self.block_rows, m + self.t)
        for piece in self.pieces:
            KY = wide[: len(piece.A)]
            KY[:, :m] = self.section.values(piece.A, piece.buffers, piece.near)
            KY[:, m:] = piece.Y
            add_gram(total, KY, piece.w)
        return mirrored(total)


def add_gram(total: Tensor, KY: Tensor, w: Tensor | None) -> None:
    """Add K' W [K, Y] of some rows KY (b, m + t), w (b, 1), on and right of the diagonal."""
    m = len(total)
    K = KY[:, :m] if w is None else KY[:, :m] * w
    for a in range(0, m, PANEL):
        total[a : a + PANEL, a:].addmm_(K[:, a : a + PANEL].T, KY[:, a:])


def mirrored(total: Tensor) -> Tensor:
    """Statistics (m, m + t) with the part left of the diagonal filled in, in place."""
    m = len(total)
    upper = total[:, :m].triu()
    total[:, :m] = upper + upper.triu(1).T
    return total


def summed(shards: list[Shard], part: Callable[[Shard], Tensor]) -> Tensor:
    """The sum of part(shard), a thread for each shard."""
    if len(shards) == 1:
        return part(shards[0])
    # Row shards on single-threaded torch ran at 2.2e9 entries/s, one loop whose operations
    # use both cores at 1.1: blocks in cache are too short to share.
    with torch_threads(1), ThreadPoolExecutor(len(shards)) as pool:
        return reduce(Tensor.add_, pool.map(part, shards))


def kernel_of_rows(kernel: Kernel, X: Tensor) -> Tensor:
    """K(X, X) in float64, exact on the diagonal, shape (n, n)."""
    X = X.double()
    K = kernel(X, X)
    K.diagonal().copy_(kernel.diag(X))
    return K


@final
@dataclass(frozen=True)
class Direct:
    """The exact Nystrom estimator from the statistics K'WK and K'WY (appendix, after (13)).

    One pass over the rows, additive over blocks. With K_mm = U U' the system is
    (U^-1 K'WK U^-T + lambda n I) gamma = U^-1 K'WY, alpha = U^-T gamma. Where every row is
    a centre it is eq. (10), which needs no statistics.
    """

    def solve(self, problem: LocalProblem) -> LocalFit:
        if torch.equal(problem.centers, problem.cell.X):
            return exact_ridge_regression(problem)
        stats = summed(problem.shards(), Shard.gram)  # (m, m + t)
        jitter = statistics_jitter(len(stats), problem.penalty)
        fit = solve_statistics(problem.K_mm(), stats, problem.ridge, jitter, problem.centers.dtype)
        if fit is not None and not noisy(problem, fit):
            return fit
        # Statistics square the condition number. Where that leaves no digit, iterate.
        fit = Falkon(max_iter=300, tol=1e-6).solve(problem.to(torch.float64))
        return fit._replace(rescue=joined(fit.rescue, "falkon in float64"))


def solve_statistics(
    K_mm: Tensor, stats: Tensor, ridge: float, jitter: float, dtype: torch.dtype
) -> LocalFit | None:
    """The estimator from statistics (m, m + t); None if rounding left no positive system."""
    factor = Factor(K_mm, jitter)
    H, b = whitened(factor, stats)
    L = cholesky(plus(H, ridge), smallest_pivot=ridge / 2)
    if L is None:
        return None
    weights = factor.solve_t(torch.cholesky_solve(b, L))  # (m, t)
    return LocalFit(weights, 0, 0.0, True, factor.rescue, dtype)


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
    cell, ridge = problem.cell, problem.ridge
    K_n = kernel_of_rows(problem.kernel, cell.X)
    L, rescue = regular_cholesky(K_n, ridge if cell.w is None else ridge / cell.w.double())
    weights = torch.cholesky_solve(cell.Y.double(), L)
    fit = LocalFit(weights, 0, 0.0, True, rescue, cell.X.dtype)
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
            return fit
        # Duplicates make B large, and products in float32 become noise: so nine of ten
        # cells of KEGG at penalty 1e-6, where float64 takes 13 to 38 iterations.
        fit, _ = self.iterate(problem.to(torch.float64), B)
        return fit._replace(rescue=joined(fit.rescue, "float64 products"))

    def iterate(self, problem: LocalProblem, B: Preconditioner) -> tuple[LocalFit, bool]:
        """Minimise eq. (12); the fit, and whether rounding got in the way."""
        shards, dtype = problem.shards(), problem.centers.dtype

        def system(beta: Tensor) -> Tensor:  # its gradient, up to n
            v = B.apply(beta)
            return B.apply_t(summed(shards, lambda shard: shard.normal(v))) + B.ridge(beta)

        b = B.apply_t(summed(shards, Shard.right_side))  # (r, t)
        solution = conjugate_gradient(system, b, self.max_iter, self.tol)
        # The residual is measured, not that of the recurrence, which may go on falling when
        # products cannot. What rounding leaves of it is not held against the solution.
        least = max(10 * self.tol, float(torch.finfo(dtype).eps) ** 0.5)
        converged = solution.finished and solution.residual <= least
        lost = solution.lost and not converged
        fit = LocalFit(
            B.apply(solution.x), solution.n_iter, solution.residual, converged, B.rescue, dtype
        )
        return fit, lost


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


class Solution(NamedTuple):
    """What conjugate gradient found."""

    x: Tensor  # (r, t)
    n_iter: int
    residual: float  # measured, relative, worst column
    finished: bool  # the recurrence reached the tolerance
    lost: bool  # rounding took over: no way down, or steps on noise


def conjugate_gradient(
    system: Callable[[Tensor], Tensor], b: Tensor, max_iter: int, tol: float
) -> Solution:
    """Solve system(x) = b for each column of b (r, t).

    Columns share the products and stop counting once they have converged: their step
    becomes zero, so that rounding cannot undo them.
    """
    x = torch.zeros_like(b)
    residual, direction = b.clone(), b.clone()
    norm2 = b.square().sum(0)  # (t,)
    size, goal = norm2.clamp_min(torch.finfo(b.dtype).tiny), tol**2 * norm2
    n_iter, lost = 0, not bool(torch.isfinite(b).all())
    while n_iter < max_iter and bool((active := norm2 > goal).any()):
        image = system(direction)
        n_iter += 1
        curvature = (direction * image).sum(0)  # (t,)
        lost = lost or bool((active & ~(curvature > 0)).any())
        active &= curvature > 0
        if not bool(active.any()):
            break
        step = torch.where(active, norm2 / curvature, 0.0)
        x += step * direction
        residual -= step * image
        before, norm2 = norm2, residual.square().sum(0)
        direction = residual + torch.where(active, norm2 / before, 0.0) * direction
    expected = float((norm2 / size).max().sqrt())
    measured = float(((b - system(x)).square().sum(0) / size).max().sqrt())
    # Twenty steps that end above the start, or far above what the recurrence promises, were
    # steps on noise. Merely not having arrived is not.
    adrift = not measured <= 10 * max(expected, tol) or (n_iter >= 20 and measured > 1)
    return Solution(x, n_iter, measured, expected <= tol, lost or adrift)
