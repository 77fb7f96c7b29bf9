"""The local problem, eq. (8), the products of its rows with its centres, and what a solver returns.

Loops over rows are loops over blocks of a source.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from parkrr.data import ArraySource, Block, Source
from parkrr.kernels import Kernel, KernelBlock
from parkrr.runtime import map_on_threads, sum_on_threads

KERNEL_VALUES = 2**21  # of the kernel matrix of all rows, computed at a time
# Rows of a shard, and most shards of a cell. Sums over shards depend on these and not on threads.
SHARD_ROWS, MOST_SHARDS = 2**12, 8
PANEL = 64  # columns of K'K at a time: symmetry then saves 40 % of the work at m = 200
# Predictions in float32 that are off by more than this, of targets in [-1, 1], are made in
# float64; measured on so many rows.
LARGEST_NOISE, NOISE_ROWS = 1e-3, 256
SMALLEST_FREE = 1e-6  # of 1 - l_i, l_i the leverage of a row, which rounding could make zero


class LeaveOneOutBlock(NamedTuple):
    """Rows of a cell whose predictions without themselves are computed by a formula.

    A linear fit passes the share l_i of a row's own target on to its prediction: its leverage.
    With r_i the residual of the row, the fit without it has the residual r_i / (1 - l_i), so its
    prediction of the row changes by r_i l_i / (1 - l_i).
    """

    K: Tensor  # (h, m)
    Y: Tensor  # (h, t)
    w: Tensor | None  # (h,)
    groups: Tensor | None = None  # (h,)  rows of a group stand together and are left out together

    def change(self, weights: Tensor, half: Tensor) -> Tensor:
        """The change of the prediction of each row when it is left out, shape (h, t).

        With A = K'WK + lambda n K_mm of all rows, l_i = w_i k_i' A^-1 k_i; `half` (r, h) holds
        columns whose squares add up to k_i' A^-1 k_i. Without the rows B of a group, their
        residuals are (I - H_BB)^-1 r_B with H_BB = K_B A^-1 K_B' W_B.
        """
        if self.groups is not None:
            R, changes = self.Y - self.K @ weights, []
            for B in group_runs(self.groups):
                H = half[:, B].T @ half[:, B] * (1.0 if self.w is None else self.w[B])
                free = torch.eye(len(H), dtype=H.dtype, device=H.device) - H
                free.diagonal().add_(1e-12)  # rounding could make it singular
                changes.append(torch.linalg.solve(free, R[B]) - R[B])
            return torch.cat(changes)
        leverage = half.square().sum(0)  # (h,)
        if self.w is not None:
            leverage = leverage * self.w
        free = (1 - leverage).clamp_min(SMALLEST_FREE)
        return (self.Y - self.K @ weights) * ((1 - free) / free)[:, None]


class Influence(NamedTuple):
    """How a fit changes at any row x when one of some rows is left out.

    Its prediction falls by h_i(x) r_i / (1 - l_i), with h_i(x) = K(x, centres) B.
    """

    columns: Tensor  # (m, h)  B, the share of each row's target in the coefficients
    changes: Tensor  # (h, t)  r_i / (1 - l_i), the residual of the fit without the row


def group_runs(groups: Tensor) -> list[slice]:
    """The positions of each run of equal numbers in groups (h,)."""
    edges = [0, *((groups[1:] != groups[:-1]).nonzero()[:, 0] + 1).tolist(), len(groups)]
    return [slice(a, b) for a, b in pairwise(edges)]


def leave_one_out_block(kernel: Kernel, rows: Block, Z: Tensor) -> LeaveOneOutBlock:
    """Rows to leave out in turn, against centres Z (m, d), in float64."""
    K = kernel(rows.X.double(), Z.double())
    return LeaveOneOutBlock(K, rows.Y.double(), None if rows.w is None else rows.w.double())


class LocalFit(NamedTuple):
    """What a solver returns: the coefficients, and how they were computed."""

    weights: Tensor  # (m, t)  alpha = B beta, the coefficients of eq. (13)
    n_iter: int  # 0 for a direct solve
    residual: float  # relative, worst output; 0.0 for a direct solve
    converged: bool
    fallback: str  # what it needed: "", "jitter ...", "cut-off ...", "float64 products", ...
    dtype: torch.dtype  # in which predictions need their kernel values
    change: Tensor | None = None  # (h, t)  of predictions of the last rows, when left out
    influence: Influence | None = None  # of the last rows, if asked for


def zero_fit(Z: Tensor, t: int, n_left_out: int) -> LocalFit:
    """The estimator of t targets where K is zero on all centres Z (m, d): zero."""
    zero = torch.zeros(len(Z), t, dtype=torch.float64, device=Z.device)
    change = zero.new_zeros(n_left_out, t)
    return LocalFit(zero, 0, 0.0, True, "K is zero on all centres", Z.dtype, change)


class Solver(Protocol):
    """Solves local problems."""

    def solve(self, problem: "LocalProblem") -> LocalFit: ...

    def most_left_out(self, n: int) -> int:
        """How many of n rows it can leave out at little cost."""


@dataclass(frozen=True)
class LocalProblem:
    """Eq. (8) restricted to the span of some centres, eq. (11)."""

    kernel: Kernel
    cell: ArraySource  # its rows, in memory
    centers: Tensor  # (m, d)
    center_weights: Tensor | None  # (m,)  of mean one, or None when rows have no weights
    ridge: float  # lambda_q n_q = lambda n
    n_threads: int = 1
    n_left_out: int = 0  # rows at the end of the cell, to be predicted without themselves
    keep_influence: bool = False  # whether to return their influence on all predictions
    left_out_groups: Tensor | None = None  # (n_left_out,)  which of them are left out together

    def to(self, dtype: torch.dtype) -> "LocalProblem":
        """The same problem with products in that dtype."""
        return replace(self, cell=self.cell.to(dtype), centers=self.centers.to(dtype))

    def K_mm(self) -> Tensor:
        """The kernel of the centres in float64, from float64 distances, shape (m, m).

        In float32 its Cholesky fails at jitter 1e-6.
        """
        return kernel_of_rows(self.kernel, self.centers, self.n_threads)

    def left_out(self) -> LeaveOneOutBlock | None:
        """The rows at the end, against the centres."""
        if not self.n_left_out:
            return None
        last = self.cell.block(slice(-self.n_left_out, None))
        block = leave_one_out_block(self.kernel, last, self.centers)
        return block._replace(groups=self.left_out_groups)

    def shards(self) -> "list[Shard]":
        """The rows, prepared once for the kernel and cut into pieces for threads."""
        kernel_block = self.kernel.against(self.centers)
        rows = self.cell.map(kernel_block.augment).load()
        count = min(MOST_SHARDS, math.ceil(rows.n_rows / SHARD_ROWS))
        return [Shard(kernel_block, part) for part in rows.shards(count)]

    def sum_shards(self, shards: "list[Shard]", part: "Callable[[Shard], Tensor]") -> Tensor:
        """The sum of part(shard), one thread a shard.

        Shards on single-threaded torch ran at 2.2e9 entries/s, one loop whose operations use both
        cores at 1.1: blocks in cache are too short to share.
        """
        return sum_on_threads(part, shards, self.n_threads)

    def evaluate(self, weights: Tensor, X: Tensor | None = None) -> Tensor:
        """The estimator with these weights (m, t) in float64, shape (n, t).

        At the rows of the cell, or at other rows X (n, d).
        """
        X = self.cell.X if X is None else X
        kernel_block = self.kernel.against(self.centers.double())
        blocks = torch.split(X, kernel_block.block_rows(len(X)))
        values = map_on_threads(
            lambda X: kernel_block(X.double()) @ weights, blocks, self.n_threads
        )
        return torch.cat(values)

    def is_noisy(self, fit: LocalFit) -> bool:
        """Whether predictions in the dtype of a fit are too noisy."""
        if fit.dtype == torch.float64:
            return False
        return needs_float64(self.kernel, self.cell.X, self.centers, fit.weights)


def needs_float64(kernel: Kernel, X: Tensor, Z: Tensor, weights: Tensor) -> bool:
    """Whether float32 is too short to predict with centres Z (m, d) and these weights (m, t).

    Measured on some of the rows X (n, d), because two things make noise: large weights, and rows
    whose distances are small beside their norms. KEGG had weights of 2e5, which eps alone makes
    0.006 of, and predictions that were off by 0.5.
    """
    X = X[:: max(1, len(X) // NOISE_ROWS)]
    K, K_float32 = kernel(X.double(), Z.double()), kernel(X.float(), Z.float())
    noise = (K_float32 @ weights.float()).double() - K @ weights
    return not float(noise.square().mean(0).max()) <= LARGEST_NOISE**2


class Piece(NamedTuple):
    """A block of prepared rows and the memory for its products, as views made once."""

    A: Tensor  # (b, d')
    Y: Tensor  # (b, t)
    w: Tensor | None  # (b, 1)
    no_underflow: bool
    buffers: list[Tensor]  # (b, m) each; the first holds K
    K_t: Tensor  # (m, b)
    u: Tensor  # (b, t)


class Shard:
    """Some prepared rows of a cell against its centres, with buffers for one thread.

    Pieces are cut once: a view costs a few microseconds at each pass, and holds up the other
    threads while it is made, which had cost a third of the speed on two cores.
    """

    def __init__(self, kernel_block: KernelBlock, rows: Source) -> None:
        self.kernel_block, self.rows = kernel_block, rows
        self.m, self.t = kernel_block.fixed.shape[1], rows.n_outputs
        self.block_rows = kernel_block.block_rows(rows.n_rows)
        self.pieces: list[Piece] = []
        workspace = kernel_block.workspace(self.block_rows)  # all pieces use it
        u = kernel_block.fixed.new_empty(self.block_rows, self.t)
        for A, Y, w in rows.blocks(self.block_rows):
            buffers = [buffer[: len(A)] for buffer in workspace]
            [radius] = kernel_block.radii(A, [0])
            weight = None if w is None else w[:, None]
            no_underflow = kernel_block.no_underflow(radius)
            self.pieces.append(
                Piece(A, Y, weight, no_underflow, buffers, buffers[0].T, u[: len(A)])
            )

    def normal(self, v: Tensor) -> Tensor:
        """K' W K v summed in float64, shape (m, t): one kernel evaluation for both products."""
        v = v.to(self.kernel_block.fixed.dtype)
        part = v.new_empty(self.m, self.t)
        total = torch.zeros_like(part, dtype=torch.float64)
        for piece in self.pieces:
            K = self.kernel_block.values(piece.A, piece.buffers, piece.no_underflow)  # (b, m)
            torch.mm(K, v, out=piece.u)
            if piece.w is not None:
                piece.u.mul_(piece.w)
            total.add_(torch.mm(piece.K_t, piece.u, out=part))
        return total

    def right_side(self) -> Tensor:
        """K' W Y summed in float64, shape (m, t)."""
        part = self.kernel_block.fixed.new_empty(self.m, self.t)
        total = torch.zeros_like(part, dtype=torch.float64)
        for piece in self.pieces:
            self.kernel_block.values(piece.A, piece.buffers, piece.no_underflow)
            Y = piece.Y if piece.w is None else piece.Y * piece.w
            total.add_(torch.mm(piece.K_t, Y, out=part))
        return total

    def gram(self) -> Tensor:
        """K' W [K, Y], shape (m, m + t), the statistics of the cell.

        Values may be float32, their products and sums are float64: K'K summed in float32
        stops being positive definite at lambda = 2e-7, n = 9 x 10^5, m = 1000.
        """
        m = self.m
        total = torch.zeros(
            m, m + self.t, dtype=torch.float64, device=self.kernel_block.fixed.device
        )
        wide = total.new_empty(self.block_rows, m + self.t)
        for piece in self.pieces:
            KY = wide[: len(piece.A)]
            KY[:, :m] = self.kernel_block.values(piece.A, piece.buffers, piece.no_underflow)
            KY[:, m:] = piece.Y
            add_gram(total, KY, piece.w)
        return fill_lower(total)


def add_gram(total: Tensor, KY: Tensor, w: Tensor | None) -> None:
    """Add K' W [K, Y] of some rows KY (b, m + t), w (b, 1), on and right of the diagonal."""
    m = len(total)
    K = KY[:, :m] if w is None else KY[:, :m] * w
    for a in range(0, m, PANEL):
        total[a : a + PANEL, a:].addmm_(K[:, a : a + PANEL].T, KY[:, a:])


def fill_lower(total: Tensor) -> Tensor:
    """Fill statistics (m, m + t) left of the diagonal from what is right of it, in place."""
    m = len(total)
    upper = total[:, :m].triu()
    total[:, :m] = upper + upper.triu(1).T
    return total


def kernel_of_rows(kernel: Kernel, X: Tensor, n_threads: int = 1) -> Tensor:
    """K(X, X) in float64, exact on the diagonal, shape (n, n).

    Some rows at a time, because Matern kernels need memory for a second matrix.
    """
    X = X.double()
    kernel_block = kernel.against(X)
    A = kernel_block.augment(X)  # (n, d')
    [radius] = kernel_block.radii(A, [0])
    no_underflow = kernel_block.no_underflow(radius)
    K = X.new_empty(len(X), len(X))
    rows = min(len(X), max(1, KERNEL_VALUES // len(X)))
    starts = range(0, len(X), rows)

    def fill(own_starts: range) -> None:
        _, *others = kernel_block.workspace(rows)
        for start in own_starts:
            own = K[start : start + rows]
            kernel_block.values(
                A[start : start + rows], [own, *(b[: len(own)] for b in others)], no_underflow
            )

    n_threads = min(n_threads, len(starts))
    map_on_threads(fill, [starts[k::n_threads] for k in range(n_threads)], n_threads)
    K.diagonal().copy_(kernel.diag(X))
    return K
