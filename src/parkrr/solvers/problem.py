"""The local problem, eq. (8): rows of a cell against its centres, and their products.

The only loops over rows are over blocks of a source.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from parkrr.data import ArraySource, Block, Source
from parkrr.kernels import Kernel, KernelBlock
from parkrr.runtime import mapped_on_threads
from parkrr.solvers.leave_one_out import LeaveOneOutBlock

OWN_VALUES = 2**21  # of a kernel matrix at a time
PANEL = 64  # columns of K'K at a time: symmetry then saves 40 % of the work at m = 200


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
    n_left_out
        How many rows at the end of the cell are asked what the fit without each would say.
    """

    kernel: Kernel
    cell: ArraySource
    centers: Tensor
    center_weights: Tensor | None
    ridge: float
    n_threads: int = 1
    n_left_out: int = 0

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

    def left_out(self) -> LeaveOneOutBlock | None:
        """The rows at the end, against the centres."""
        if not self.n_left_out:
            return None
        return left_out_rows(
            self.kernel, self.cell.block(slice(-self.n_left_out, None)), self.centers
        )

    def shards(self) -> "list[Shard]":
        """The rows lifted once and cut into a shard a thread."""
        section = self.kernel.against(self.centers)
        rows = self.cell.map(section.lift).load()
        return [Shard(section, part) for part in rows.shards(min(self.n_threads, rows.n_rows))]


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

    def __init__(self, section: KernelBlock, rows: Source) -> None:
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
    return reduce(Tensor.add_, mapped_on_threads(part, shards, len(shards)))


def left_out_rows(kernel: Kernel, rows: Block, Z: Tensor) -> LeaveOneOutBlock:
    """Rows to be left out against centres Z (m, d), in float64."""
    K = kernel(rows.X.double(), Z.double())
    return LeaveOneOutBlock(K, rows.Y.double(), None if rows.w is None else rows.w.double())


def kernel_of_rows(kernel: Kernel, X: Tensor) -> Tensor:
    """K(X, X) in float64, exact on the diagonal, shape (n, n).

    By runs of rows, for Matern kernels need room for a second matrix.
    """
    X = X.double()
    section = kernel.against(X)
    A = section.lift(X)  # (n, d')
    [radius] = section.radii(A, [0])
    near = section.near(radius)
    K = X.new_empty(len(X), len(X))
    rows = min(len(X), max(1, OWN_VALUES // len(X)))
    _, *others = section.workspace(rows)
    for start in range(0, len(X), rows):
        own = K[start : start + rows]
        section.values(A[start : start + rows], [own, *(b[: len(own)] for b in others)], near)
    K.diagonal().copy_(kernel.diag(X))
    return K
