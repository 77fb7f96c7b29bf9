"""The fitted model: tensors, and Algorithm 2.

Knows no training data: centroids, the centres and weights of every cell, and of the coarse
level if there is one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import group_by_cell
from parkrr.errors import NotFiniteError
from parkrr.kernels import FeatureMap, Kernel, KernelBlock, block_rows
from parkrr.partition import HARD, Blend
from parkrr.runtime import map_on_threads, torch_threads

# Features routed together: enough that a cell finds hundreds of its rows in one run (466,000
# rows of 9 features), and some five times this memory a thread.
RUN_BYTES = 2**24
PREPARED_BYTES = 2**28  # of cells: a million centres of 9 features take 53 MB
DERIVED = ("cells", "compass", "origins", "lifter")  # more than twice the size of the model
FEW_ROWS = 200  # which one thread answers at once


@dataclass(frozen=True)
class Model:
    """ParK's estimator, eq. (14).

    Parameters
    ----------
    kernel
        The kernel.
    metric
        The map from rows (n, d) to what the kernel sees, (n, e).
    centroids
        Shape (Q, e).
    centers, weights
        Nystrom centres and coefficients of every cell, Q tensors (m_q, e) and (m_q, t).
    intercept
        Added to every prediction, shape (t,).
    blend
        How many of the nearest cells answer, and how their answers are weighed.
    coarse
        A model of all rows, whose residual the cells were fitted to.
    """

    kernel: Kernel
    metric: FeatureMap
    centroids: Tensor
    centers: list[Tensor]
    weights: list[Tensor]
    intercept: Tensor
    blend: Blend = HARD
    coarse: "CoarseModel | None" = None

    @cached_property
    def cells(self) -> "Cells":
        """K(., centres) and coefficients of every cell, prepared when it is first asked for."""
        return Cells(self.kernel, self.centers, self.weights)

    @cached_property
    def origins(self) -> Tensor:
        """The point from which each cell measures rows, shape (Q, d)."""
        zero = torch.zeros_like(self.centroids[0])
        return torch.stack([(zero + cell.section.origin).to(zero.dtype) for cell in self.cells])

    @cached_property
    def centroid_distances(self) -> KernelBlock:
        """Distances to all centroids."""
        return self.kernel.distance(self.centroids)

    @cached_property
    def lifter(self) -> KernelBlock:
        """Lifts rows of all cells at once."""
        return self.kernel.against(self.centroids)

    def __getstate__(self) -> dict[str, object]:
        state = {key: value for key, value in self.__dict__.items() if key not in DERIVED}
        # Those of a loaded model are views of a file, and would travel with all of it each.
        for name in ("centers", "weights"):
            state[name] = in_own_memory(getattr(self, name))
        return state

    def with_weights(self, weights: list[Tensor], touched: list[int]) -> "Model":
        """The model with other coefficients in the touched cells; what is prepared stays so."""
        found = replace(self, weights=weights)
        prepared = {name: self.__dict__[name] for name in DERIVED if name in self.__dict__}
        if "cells" in prepared:
            prepared["cells"] = self.cells.with_weights(weights, touched)
        found.__dict__.update(prepared)
        return found

    def narrowed(self, X: Tensor) -> Tensor:
        """Rows as the cells see them."""
        return self.metric(X.to(self.centroids.device), self.centroids.dtype)

    def route(self, X: Tensor) -> Tensor:
        """The cell of each row of X (n, d), shape (n,): line 1 of Algorithm 2."""
        return self.cell_of(self.narrowed(X))

    def cell_of(self, X: Tensor) -> Tensor:
        """The cell of each mapped row of X (n, e), shape (n,)."""
        return self.centroid_distances.argmin(X)

    def predict(self, X: Tensor, n_threads: int = 1) -> Tensor:
        """Line 2 of Algorithm 2 for each row of X (n, d): its cell or several, blended, (n, t)."""
        out = self.in_runs(lambda run: self.at(self.narrowed(run)), X, n_threads)
        if not np.isfinite(out.cpu().numpy()).all():  # a sixth of the time of torch for one row
            raise NotFiniteError(
                f"predictions must be finite, but {self.kernel!r} overflowed on rows with values "
                f"up to {float(X.abs().max()):.1e}; scale the features of X as in fit"
            )
        return out

    def in_runs(self, work: Callable[[Tensor], Tensor], X: Tensor, n_threads: int) -> Tensor:
        """work(rows) of runs of rows X (n, d) on some threads, one after the other, (n, ...)."""
        if len(X) <= FEW_ROWS:  # threads take longer to wake than all of them: 20 us for an exp
            with torch_threads(1):
                return work(X)
        longest = max(1, RUN_BYTES // (self.centroids.element_size() * X.shape[1]))
        rows = min(longest, max(1, -(-len(X) // n_threads)))
        return torch.cat(map_on_threads(work, torch.split(X, rows), n_threads))

    def at(self, X: Tensor) -> Tensor:
        """Values at mapped rows X (n, e), sorted on the way so that each cell is met once."""
        if len(X) == 1:
            return self.at_one(X)
        answers = self.blend.cell_shares(self.centroid_distances, X)
        order, counts = group_by_cell(answers.cell, len(self.centroids))
        row, cell_of = answers.row[order], answers.cell[order]
        values = X.new_empty(len(row), len(self.intercept))
        for q, at, K in self.kernel_values(X.index_select(0, row), cell_of, counts):
            w = self.cells[q].weights
            if w.dtype == X.dtype:
                torch.mm(K, w, out=values[at])
            else:
                values[at] = (K @ w).to(X.dtype)
        shares = answers.share[order].double()
        out = torch.zeros(len(X), len(self.intercept), dtype=torch.float64, device=X.device)
        out.index_add_(0, row, values.double() * shares[:, None]).add_(self.intercept)
        return out if self.coarse is None else out.add_(self.coarse(X))

    def at_one(self, X: Tensor) -> Tensor:
        """The value at one mapped row X (1, e), (1, t): nothing to sort, so half the time."""
        if self.blend.n_blended(len(self.centroids)) == 1:
            D = self.centroid_distances(X)  # (1, Q)
            cells, shares = [int(D.cpu().numpy().argmin())], [1.0]
        else:
            _, *answers = self.blend.cell_shares(self.centroid_distances, X)
            cells, shares = [of_cells.tolist() for of_cells in answers]
        out = self.intercept
        for (section, w), share in zip([self.cells[q] for q in cells], shares, strict=True):
            out = torch.add(out, section(X) @ w, alpha=share)
        return out if self.coarse is None else out.add_(self.coarse(X))

    def kernel_values(
        self, X: Tensor, cell_of: Tensor, counts: list[int]
    ) -> Iterator[tuple[int, slice, Tensor]]:
        """K of rows X (n, e), sorted by cell, against the centres of their own cell.

        A block at a time: the cell, which rows, and values (b, m_q) in room that is used again.
        """
        A = self.lifter.augment(X, self.origins.index_select(0, cell_of))  # (n, d')
        pieces = self.pieces(counts)
        lengths = [piece.rows for piece in pieces]
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        radii, room = self.lifter.radii(A, starts), Workspace()
        blocks = zip(pieces, starts, radii, torch.split(A, lengths), strict=True)
        for piece, start, radius, part in blocks:
            section, w = self.cells[piece.cell]
            at = slice(start, start + piece.rows)
            if w.dtype == A.dtype:
                buffers = room.buffers(section, piece.rows)
                yield piece.cell, at, section.values(part, buffers, section.no_underflow(radius))
            else:  # a cell whose products had to be float64
                yield piece.cell, at, section(X[at])

    def pieces(self, counts: list[int]) -> "list[Piece]":
        """Blocks that fit the cache, when rows are sorted by cell."""
        pieces = []
        for q, count in ((q, count) for q, count in enumerate(counts) if count):
            rows = block_rows(len(self.centers[q]), self.centers[q].element_size(), count)
            pieces += [Piece(q, min(rows, count - done)) for done in range(0, count, rows)]
        return pieces


@dataclass(frozen=True)
class CoarseModel:
    """One Nystrom estimator of all rows.

    Parameters
    ----------
    kernel, centers, weights
        The kernel, centres (m, e) and coefficients (m, t).
    """

    kernel: Kernel
    centers: Tensor
    weights: Tensor

    @cached_property
    def section(self) -> KernelBlock:
        """K(., centres)."""
        return self.kernel.against(self.centers)

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __call__(self, X: Tensor) -> Tensor:
        """Its values at mapped rows X (n, e), shape (n, t)."""
        section = self.section
        w = self.weights.to(self.centers.dtype)
        rows = section.block_rows(len(X))
        parts = [section(part) @ w for part in torch.split(X, rows)]
        return torch.cat(parts).double()


class Piece(NamedTuple):
    """Some rows of one cell."""

    cell: int
    rows: int


class Cell(NamedTuple):
    """A local estimator, eq. (13), ready for lifted rows."""

    section: KernelBlock
    weights: Tensor  # (m_q, t)


def in_own_memory(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, each in memory that holds nothing else."""
    return [t.clone() if t.untyped_storage().nbytes() > t.nbytes else t for t in tensors]


class Cells(Sequence[Cell]):
    """Cells that are prepared when they are first asked for, and kept while there is room.

    All of them take more room than the model, and of a model file no two processes can share
    them. Beyond `PREPARED_BYTES` a thread keeps only the last, and preparing one again takes
    as long as predicting 80 rows of it (2,000 centres of 9 features: 0.13 ms).
    """

    def __init__(self, kernel: Kernel, centers: list[Tensor], weights: list[Tensor]) -> None:
        self.kernel, self.centers, self.weights = kernel, centers, weights
        self.kept: list[Cell | None] = [None] * len(centers)
        self.room = PREPARED_BYTES
        self.last = threading.local()

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, q: int) -> Cell:  # type: ignore[override]
        cell = self.kept[q]
        if cell is not None:
            return cell
        number, cell = getattr(self.last, "cell", (-1, None))
        if cell is None or number != q:
            cell = self.prepared(q)
        return cell

    def with_weights(self, weights: list[Tensor], touched: list[int]) -> "Cells":
        """The same with other coefficients in the touched cells."""
        found = Cells(self.kernel, self.centers, weights)
        found.kept, found.room = list(self.kept), self.room
        for q in touched:
            cell = found.kept[q]
            if cell is not None:  # its section depends on centres alone
                found.kept[q] = Cell(cell.section, weights[q].to(cell.weights.dtype))
        return found

    def prepared(self, q: int) -> Cell:
        """Cell q, made ready now."""
        Z, w = self.centers[q], self.weights[q]
        cell = Cell(self.kernel.against(Z), w.to(Z.dtype))
        self.last.cell = (q, cell)
        taken = cell.section.fixed.nbytes + cell.weights.nbytes
        if taken <= self.room:
            self.room -= taken
            self.kept[q] = cell
        return cell


class Workspace:
    """Memory for kernel blocks of any shape, taken once and handed out as views."""

    def __init__(self) -> None:
        self.flat: list[Tensor] = []

    def buffers(self, section: KernelBlock, rows: int) -> list[Tensor]:
        """Room for `rows` rows of that section."""
        m = section.fixed.shape[1]
        if not self.flat or self.flat[0].numel() < rows * m:
            size = max(rows, section.block_rows(2**30)) * m
            self.flat = [section.fixed.new_empty(size) for _ in range(section.n_buffers)]
        return [buffer.as_strided((rows, m), (m, 1)) for buffer in self.flat]
