"""The fitted model, and Algorithm 2: find the cell of a row, evaluate the estimator of that cell.

A model holds centroids, the centres and weights of every cell, and those of the coarse level if
there is one. Of the training rows it holds only the centres.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import Block, group_by_cell, sort_by_cell
from parkrr.errors import NotFiniteError
from parkrr.kernels import (
    GROUP_OF_ROWS,
    FeatureMap,
    Kernel,
    KernelBlock,
    Radial,
    apply_matrix,
    block_rows,
    depends_on_batch,
    gradients,
    measure_features,
    multiply,
)
from parkrr.partition import HARD, Blend, CellShares, Regions
from parkrr.runtime import map_on_threads, torch_threads

# Bytes of features that are evaluated together: enough that a cell gets hundreds of its rows in one
# chunk (466,000 rows of 9 features). A thread takes some five times this memory.
CHUNK_BYTES = 2**24
PREPARED_BYTES = 2**28  # of prepared cells: a million centres of 9 features take 53 MB
FEW_ROWS = 200  # that one thread predicts at once
PIECE_ROWS = 2**14  # of leave-one-out and validation rows
# Rounding of predictions in float32, of the spread of predictions in a cell, on so many rows. Where
# rows depend on their batch, the worst of many rows changes by up to five times this.
LARGEST_ROUNDING, COMPARED_ROWS = 2e-6, 16
IMPORTANCE_ROWS = 2000  # at which gradients are taken
FAR = 1e3  # spreads of a feature, beyond which rows do not count


@dataclass(frozen=True)
class Model:
    """ParK's estimator, eq. (14)."""

    kernel: Kernel
    metric: FeatureMap  # from rows (n, d) to what the kernel takes, (n, e)
    centroids: Tensor  # (Q, e)
    centers: Sequence[Tensor]  # Nystrom centres of every cell, Q times (m_q, e)
    weights: Sequence[Tensor]  # their coefficients, Q times (m_q, t)
    intercept: Tensor  # (t,)  added to every prediction
    blend: Blend = HARD  # how many of the nearest cells predict a row, and with what shares
    coarse: "NystromModel | None" = None  # of all rows; cells were fitted to its residual
    limits: Tensor | None = None  # (2, Q, t)  of predictions in each cell; None for none
    regions: Regions | None = None  # to which consecutive cells belong; None for one level
    link: str = "identity"  # or "log": a prediction is the exponential of the sum, within limits

    # Prepared when first needed: together more than twice the size of the model.

    @cached_property
    def cells(self) -> "PreparedCells":
        """K(., centres) and coefficients of every cell."""
        origins = torch.zeros_like(self.centroids)
        return PreparedCells(self.kernel, self.centers, self.weights, origins)

    @cached_property
    def partition(self) -> "VoronoiPartition":
        """The cell of any row."""
        C = self.centroids
        # A row near a border must not be in one cell by itself and in another among others.
        C = C.double() if changes_with_batch(C) else C
        return VoronoiPartition(self.kernel, C, self.regions)

    @cached_property
    def augmenter(self) -> KernelBlock:
        """Augments rows of all cells at once."""
        return self.kernel.against(self.centroids)

    def __getstate__(self) -> dict[str, object]:
        """Fields alone, nothing prepared."""
        state: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("centers", "weights"):  # of a loaded model: views of a file, pickled whole
            state[name] = [
                tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor
                for tensor in getattr(self, name)
            ]
        return state

    def replace_weights(self, weights: Sequence[Tensor], changed: list[int]) -> "Model":
        """The model with other coefficients in the changed cells; what is prepared stays so."""
        model = replace(self, weights=weights)
        prepared = self.list_prepared()
        if "cells" in prepared:
            prepared["cells"] = self.cells.replace_weights(weights, changed)
        model.__dict__.update(prepared)
        return model

    def replace_limits(self, limits: Tensor | None, link: str | None = None) -> "Model":
        """The model with other limits, and another link if given; what is prepared stays so."""
        model = replace(self, limits=limits, link=link or self.link)
        model.__dict__.update(self.list_prepared())
        return model

    def narrow_blend(self, share: float) -> "Model":
        """The model with that share of the widths of its blend; what is prepared of cells stays."""
        blend = Blend(self.blend.n_nearest, share * self.blend.width) if share else HARD
        regions = self.regions
        if regions is not None:
            regions = replace(regions, widths=share * regions.widths)
        model = replace(self, blend=blend, regions=regions)
        prepared = self.list_prepared()
        if regions is not None:
            prepared.pop("partition", None)  # which has the widths between cells
        model.__dict__.update(prepared)
        return model

    def list_prepared(self) -> dict[str, Any]:
        """What has been prepared, by name."""
        names = {field.name for field in fields(self)}
        return {name: value for name, value in self.__dict__.items() if name not in names}

    def map_rows(self, X: Tensor, bounded: bool = True) -> Tensor:
        """Rows X (n, d) as the kernel takes them, (n, e), inside of the bounds of features."""
        metric = self.metric if bounded else replace(self.metric, bounds=None)
        return metric(X.to(self.centroids.device), self.centroids.dtype)

    def residual(self, rows: Block, scale: float = 1.0) -> Block:
        """Rows as the cells are fitted to them.

        Features are mapped, and targets are what intercept and coarse level leave, over `scale`.
        """
        X = self.map_rows(rows.X)
        Y = (rows.Y.to(X.device).double() - self.intercept) / scale
        if self.coarse is not None:
            Y = Y - self.coarse(X) / scale
        return Block(X, Y, None if rows.w is None else rows.w.to(X.device).double())

    def route(self, X: Tensor) -> Tensor:
        """The cell of each row of X (n, d), shape (n,): line 1 of Algorithm 2."""
        return self.assign(self.map_rows(X))

    def assign(self, X: Tensor) -> Tensor:
        """The cell of each mapped row of X (n, e), shape (n,)."""
        return self.partition.assign(X)

    def predict(self, X: Tensor, n_threads: int = 1) -> Tensor:
        """Algorithm 2 for each row of X (n, d), shape (n, t)."""
        out = self.apply_in_chunks(lambda rows: self.evaluate(self.map_rows(rows)), X, n_threads)
        if not np.isfinite(out.cpu().numpy()).all():  # a sixth of the time of torch for one row
            raise NotFiniteError(
                f"predictions must be finite, but {self.kernel!r} overflowed on rows with values "
                f"up to {float(X.abs().max()):.1e}; scale the features of X as in fit"
            )
        return out

    def apply_in_chunks(
        self,
        work: Callable[[Tensor], Tensor],
        X: Tensor,
        n_threads: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Tensor:
        """work(rows) of chunks of the rows X (n, d) on some threads, joined in order, (n, ...)."""
        if len(X) <= FEW_ROWS:  # threads take longer to wake than all of them: 20 us for an exp
            with torch_threads(1):
                return work(X)
        longest = max(1, chunk_bytes // (self.centroids.element_size() * X.shape[1]))
        rows = min(longest, max(1, -(-len(X) // n_threads)))
        return torch.cat(map_on_threads(work, torch.split(X, rows), n_threads))

    def evaluate_pieces(self, X: Tensor, n_threads: int) -> Tensor:
        """As `evaluate`, of pieces whose length does not depend on the number of threads.

        A product has other last bits with other numbers of rows, and a fit must not.
        """
        longest = max(1, CHUNK_BYTES // (self.centroids.element_size() * X.shape[1]))
        pieces = torch.split(X, min(longest, PIECE_ROWS))
        return torch.cat(map_on_threads(self.evaluate, pieces, n_threads))

    def evaluate(self, X: Tensor) -> Tensor:
        """Line 2 of Algorithm 2: the model at mapped rows X (n, e), shape (n, t).

        Rows are sorted by cell on the way, so that each cell is used once.
        """
        if len(X) == 1:
            return self.evaluate_one(X)
        row, cell_of, share = self.cell_shares(X)  # (p,) each
        order = sort_by_cell(cell_of, len(self.centroids))
        row, cell_of, share = row[order], cell_of[order], share[order]
        # Only cells that have rows: a list of all 10^5 would take longer than 100 rows.
        cells, group_of, counts = torch.unique_consecutive(
            cell_of, return_inverse=True, return_counts=True
        )
        source, place, filled = fill_groups(group_of, counts)
        values = X.new_empty(len(source), len(self.intercept))
        members = X.index_select(0, row[source])
        for q, part, K in self.kernel_values(members, cell_of[source], cells.tolist(), filled):
            w = self.cells[q].weights
            if w.dtype == X.dtype:
                torch.mm(K, w, out=values[part])
            else:
                values[part] = (K @ w).to(X.dtype)
        out = torch.zeros(len(X), len(self.intercept), dtype=torch.float64, device=X.device)
        out.index_add_(0, row, values[place].double() * share.double()[:, None])
        out.add_(self.intercept)
        if self.coarse is not None:
            out.add_(self.coarse(X))
        return self.bound(self.apply_link(out), CellShares(row, cell_of, share))

    def apply_link(self, values: Tensor) -> Tensor:
        """Sums of intercept, cells and coarse level (n, t) as predictions."""
        return values if self.link == "identity" else values.exp()

    def bound(self, values: Tensor, shares: CellShares) -> Tensor:
        """Values (n, t) of rows with shares of cells, inside of the limits of these cells."""
        if self.limits is None:
            return values
        low, high = join_shares(self.limits, shares, len(values))
        return values.clamp(low, high)

    def cell_shares(self, X: Tensor) -> CellShares:
        """The cells that predict mapped rows X (n, e), and their shares."""
        if self.blend.n_nearest > 1:
            return self.partition.cell_shares(self.blend, X)
        row = torch.arange(len(X), device=X.device)
        return CellShares(row, self.assign(X), torch.ones_like(row, dtype=X.dtype))

    def evaluate_one(self, X: Tensor) -> Tensor:
        """As `evaluate`, of one row X (1, e): there is nothing to sort, which halves the time."""
        group = X.expand(GROUP_OF_ROWS, -1).contiguous()
        shares = sorted(self.partition.shares_of_one(self.blend, group))  # added as in `evaluate`
        total: Tensor | float = 0.0
        for q, share in shares:
            value = self.cells[q].predict_one(group)  # (1, t)
            total = total + value.to(X.dtype).double() * float(share)
        out = self.intercept + total
        if self.coarse is not None:
            out.add_(self.coarse.cell.predict_one(group))
        out = self.apply_link(out)
        if self.limits is None:
            return out
        ends = [self.limits[:, q] * float(share) for q, share in shares]
        low, high = sum(ends[1:], ends[0])  # (t,) each
        return out.clamp(low, high)

    def kernel_values(
        self, X: Tensor, cell_of: Tensor, members: Sequence[int], counts: list[int]
    ) -> Iterator[tuple[int, slice, Tensor]]:
        """K of rows X (n, e), sorted by cell, against the centres of their own cell.

        Of cells `members`, in order, with so many rows each. In blocks that fit the cache: the
        cell, the positions of the rows, and values (b, m_q) in memory that the next block uses
        again.
        """
        occupied = [(q, count) for q, count in zip(members, counts, strict=True) if count]
        origins = self.cells.origins_of(q for q, _ in occupied)
        A = self.augmenter.augment(X, origins.index_select(0, cell_of))  # (n, d')
        cells, starts, lengths, start = list[int](), list[int](), list[int](), 0
        for q, count in occupied:
            Z = self.centers[q]
            rows = block_rows(len(Z), Z.element_size(), count)
            rows -= rows % GROUP_OF_ROWS if GROUP_OF_ROWS <= rows < count else 0
            for done in range(0, count, rows):
                cells.append(q)
                starts.append(start + done)
                lengths.append(min(rows, count - done))
            start += count
        radii, workspace = self.augmenter.radii(A, starts), Workspace()
        blocks = zip(cells, starts, radii, torch.split(A, lengths), strict=True)
        for q, start, radius, rows_A in blocks:
            kernel_block, w = self.cells[q]
            part = slice(start, start + len(rows_A))
            if w.dtype == A.dtype:
                buffers = workspace.buffers(kernel_block, len(rows_A))
                safe = kernel_block.no_underflow(radius)
                yield (
                    q,
                    part,
                    kernel_block.values(rows_A, buffers, safe),
                )
            else:  # a cell whose products had to be float64
                yield q, part, kernel_block(X[part])


class VoronoiPartition:
    """The cell of any row: line 1 of Algorithm 2, on one level or on two.

    With two levels a row belongs to the nearest region, and there to the nearest cell of that
    region: R regions of Q / R cells take R + Q / R distances instead of Q.
    """

    def __init__(self, kernel: Kernel, centroids: Tensor, regions: Regions | None = None) -> None:
        self.kernel, self.regions = kernel, regions
        sizes = [len(centroids)] if regions is None else regions.sizes.tolist()
        self.centroids = torch.split(centroids, sizes)
        self.starts: list[int] = [0, *accumulate(sizes)]
        self.prepared: list[KernelBlock | None] = [None] * len(sizes)
        self.upper = None
        if regions is not None:
            self.upper = kernel.distance(regions.centroids.to(centroids.dtype))
            self.widths: list[float] = regions.widths.tolist()

    def distances(self, r: int) -> KernelBlock:
        """Distances to the centroids of one region."""
        block = self.prepared[r]
        if block is None:
            block = self.prepared[r] = self.kernel.distance(self.centroids[r])
        return block

    def assign(self, X: Tensor) -> Tensor:
        """The cell of each row of X (n, e), shape (n,); ties go to the smaller number."""
        if self.upper is None:
            return self.distances(0).argmin(X)
        region_of = self.upper.argmin(X)
        cell_of = torch.empty_like(region_of)
        for r, own in self.rows_by_region(region_of):
            cell_of[own] = self.distances(r).argmin(X.index_select(0, own)) + self.starts[r]
        return cell_of

    def rows_by_region(self, region_of: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Regions that have rows, and the rows of each.

        To split rows by all 316 regions took 2 ms, more than a row takes in all.
        """
        order, counts = group_by_cell(region_of, len(self.prepared))
        for r, (end, count) in enumerate(zip(accumulate(counts), counts, strict=True)):
            if count:
                yield r, order[end - count : end]

    def shares_of_one(self, blend: Blend, group: Tensor) -> list[tuple[int, np.floating]]:
        """The cells that predict one row, given as a group (g, e) of its copies, and their shares.

        Without what several rows need, which takes longer than the distances.
        """
        if self.upper is None:
            return blend.shares_of_one(self.distances(0), group)
        shares = []
        for r, share in blend.shares_of_one(self.upper, group):
            within = Blend(blend.n_nearest, self.widths[r]).shares_of_one(self.distances(r), group)
            shares += [(self.starts[r] + q, share * share_q) for q, share_q in within]
        return shares

    def cell_shares(self, blend: Blend, X: Tensor) -> CellShares:
        """The cells that predict rows X (n, e), and their shares."""
        if self.upper is None or not len(X):
            return blend.cell_shares(self.distances(0), X)
        row, region, share = blend.cell_shares(self.upper, X)  # (p,) each
        parts = []
        for r, own in self.rows_by_region(region):
            rows, shares = row[own], share[own]
            inner = Blend(blend.n_nearest, self.widths[r])
            within = inner.cell_shares(self.distances(r), X.index_select(0, rows))
            parts.append(
                CellShares(
                    rows[within.row],
                    within.cell + self.starts[r],
                    shares[within.row] * within.share,
                )
            )
        return CellShares(*(torch.cat(each) for each in zip(*parts, strict=True)))


def join_shares(values: Tensor, shares: CellShares, n: int) -> Tensor:
    """Values of cells (2, Q, t) at n rows with shares of these cells, shape (2, n, t)."""
    row, cell, share = shares
    out = values.new_zeros(2, n, values.shape[2])
    return out.index_add_(1, row, values[:, cell] * share.double()[:, None])


def fill_groups(cell_of: Tensor, n: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """Repeat rows until every cell has full groups of rows, whose products do not depend on others.

    Of rows sorted by cell (p,), n (Q,) of each: which of them stands at each place, the place of
    each of them, and how many places each cell has. To fill the block of each cell by itself took
    twice the time for 100 rows in 70 cells.
    """
    n_filled = (n + GROUP_OF_ROWS - 1) // GROUP_OF_ROWS * GROUP_OF_ROWS
    last = n.cumsum(0) - 1
    shift = n_filled.cumsum(0) - n_filled - (last + 1 - n)
    place = torch.arange(len(cell_of), device=cell_of.device) + shift[cell_of]  # (p,)
    total = int(n_filled.sum())
    cells = torch.repeat_interleave(n_filled, output_size=total)
    source = torch.arange(total, device=cell_of.device) - shift[cells]
    return torch.minimum(source, last[cells]), place, n_filled.tolist()


@dataclass(frozen=True)
class NystromModel:
    """One Nystrom estimator, eq. (8), of mapped rows."""

    kernel: Kernel
    centers: Tensor  # (m, e)
    weights: Tensor  # (m, t)

    @cached_property
    def cell(self) -> "Cell":
        """K(., centres) and coefficients."""
        return prepare_cell(self.kernel, self.centers, self.weights)

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __call__(self, X: Tensor) -> Tensor:
        """Its values at mapped rows X (n, e), shape (n, t)."""
        K, w = self.cell
        return K.multiply(X, w).double()


class Cell(NamedTuple):
    """A local estimator, eq. (13), prepared for lifted rows."""

    kernel_block: KernelBlock
    weights: Tensor  # (m_q, t)

    def predict(self, X: Tensor) -> Tensor:
        """Its values at mapped rows X (n, e), shape (n, t)."""
        return multiply(self.kernel_block(X), self.weights)

    def predict_one(self, group: Tensor) -> Tensor:
        """Its values (1, t) at one mapped row, given as a group (g, e) of its copies."""
        return torch.mm(self.kernel_block.values_of_one(group), self.weights)[:1]


def prepare_cell(
    kernel: Kernel, Z: Tensor, weights: Tensor, kernel_block: KernelBlock | None = None
) -> Cell:
    """The estimator with centres Z (m, e) and weights (m, t), given K(., Z) if it is known.

    In the dtype of the centres; or in float64 where predictions in float32 would change with the
    rows beside them.
    """
    if kernel_block is None or kernel_block.fixed.dtype != Z.dtype:
        kernel_block = kernel.against(Z)
    # Contiguous, as in a file: BLAS may add up columns in another order.
    cell = Cell(kernel_block, weights.to(Z.dtype).contiguous())
    if not changes_with_batch(Z):
        return cell
    wide = Cell(kernel.against(Z.double()), weights.double().contiguous())
    some = Z[:: max(1, len(Z) // COMPARED_ROWS)]
    exact = wide.predict(some)  # (h, t)
    rounding = (cell.predict(some) - exact).abs().amax(0)  # (t,)
    enough = rounding <= LARGEST_ROUNDING * exact.std(0, correction=0)
    return cell if bool(enough.all()) else wide


def changes_with_batch(Z: Tensor) -> bool:
    """Whether products with Z may depend on how many rows are multiplied at a time.

    Those in float64 change in the 13th digit, which is let pass. So is a GPU, which takes 30 to 60
    times as long in float64.
    """
    return Z.dtype == torch.float32 and Z.device.type == "cpu" and depends_on_batch()


class PreparedCells(Sequence[Cell]):
    """Cells that are prepared when they are first used, and kept up to a number of bytes.

    All of them take more memory than the model, and processes that load one file share the model
    but not these. Beyond `max_bytes` a thread keeps only the last one, and preparing a cell again
    takes as long as predicting 80 rows of it (2,000 centres of 9 features: 0.13 ms).
    """

    def __init__(
        self,
        kernel: Kernel,
        centers: Sequence[Tensor],
        weights: Sequence[Tensor],
        origins: Tensor,
        max_bytes: int = PREPARED_BYTES,
    ) -> None:
        self.kernel, self.centers, self.weights = kernel, centers, weights
        self.origins = origins  # (Q, e)  from which each cell measures rows, once it is known
        self.has_origin = bytearray(len(centers))
        self.prepared: list[Cell | None] = [None] * len(centers)
        self.bytes_left = max_bytes
        self.last = threading.local()

    def __len__(self) -> int:
        return len(self.prepared)

    def __getitem__(self, q: int) -> Cell:  # type: ignore[override]
        cell = self.prepared[q]
        if cell is not None:
            return cell
        last, cell = getattr(self.last, "cell", (-1, None))
        if cell is None or last != q:
            cell = self.prepare(q)
        return cell

    def prepare(self, q: int) -> Cell:
        """Cell q, prepared now and kept if there is room."""
        if not self.has_origin[q]:  # for the first time: large files are not checked when opened
            self.check_finite(q)
        cell = prepare_cell(self.kernel, self.centers[q], self.weights[q])
        self.last.cell = (q, cell)
        self.origins[q] = torch.as_tensor(cell.kernel_block.origin).to(self.origins)
        self.has_origin[q] = True
        n_bytes = cell.kernel_block.fixed.nbytes + cell.weights.nbytes
        if n_bytes <= self.bytes_left:
            self.bytes_left -= n_bytes
            self.prepared[q] = cell
        return cell

    def check_finite(self, q: int) -> None:
        """Refuse a cell with numbers that no fit leaves."""
        for name, numbers in (("centres", self.centers[q]), ("weights", self.weights[q])):
            if not all(math.isfinite(end) for end in torch.aminmax(numbers)):
                raise NotFiniteError(
                    f"the {name} of cell {q} must be finite, but are not, so the model or its file "
                    f"is damaged; load the file again, or fit again"
                )

    def origins_of(self, cells: Iterable[int]) -> Tensor:
        """The points from which cells measure rows, (Q, e), of which those of `cells` are known.

        Not of all cells at once: a model of 10^7 centres would be read from its file for one row.
        """
        for q in cells:
            if not self.has_origin[q]:
                self.prepare(q)
        return self.origins

    def replace_weights(self, weights: Sequence[Tensor], changed: list[int]) -> "PreparedCells":
        """The same with other coefficients in the changed cells."""
        cells = PreparedCells(self.kernel, self.centers, weights, self.origins, self.bytes_left)
        cells.has_origin = self.has_origin
        cells.prepared = list(self.prepared)
        for q in changed:
            cell = cells.prepared[q]
            if cell is not None:  # its kernel block depends on centres alone
                cells.prepared[q] = prepare_cell(
                    self.kernel, self.centers[q], weights[q], cell.kernel_block
                )
        return cells


class Workspace:
    """Memory for kernel blocks of any shape, allocated once and used through views."""

    def __init__(self) -> None:
        self.flat: list[Tensor] = []

    def buffers(self, kernel_block: KernelBlock, rows: int) -> list[Tensor]:
        """Buffers (rows, m) for values of that kernel block."""
        m = kernel_block.fixed.shape[1]
        if not self.flat or self.flat[0].numel() < rows * m:
            size = max(rows, kernel_block.block_rows(2**30)) * m
            self.flat = [kernel_block.fixed.new_empty(size) for _ in range(kernel_block.n_buffers)]
        return [buffer.as_strided((rows, m), (m, 1)) for buffer in self.flat]


def feature_importances(model: Model, X: Tensor) -> Tensor:
    """The mean squared slope along each feature times its variance, (d,), with sum one.

    Slopes are those of the nearest cell and the coarse level at raw rows X (n, d), of a model
    with a radial kernel. A feature and its normal scores count together. Rows far from all others,
    where a slope is zero up to the rounding of their coordinates, do not count.
    """
    assert isinstance(model.kernel, Radial)
    Z, coarse = model.map_rows(X), model.coarse
    G = Z.new_zeros(len(model.intercept), *Z.shape)  # (t, n, e)
    if coarse is not None and isinstance(coarse.kernel, Radial):
        G += gradients(coarse.kernel, coarse.weights, coarse.centers, Z)
    cell_of = model.assign(Z)
    for q in sorted(set(cell_of.tolist())):
        rows = cell_of == q
        G[:, rows] += gradients(model.kernel, model.weights[q], model.centers[q], Z[rows]).to(G)
    G = G.double()
    if model.metric.matrix is not None:
        matrix = model.metric.matrix.to(G).t()  # to columns, before the matrix
        G = apply_matrix(G.flatten(0, 1), matrix).view(*G.shape[:2], -1)
    columns = model.metric.columns(X, torch.float64) if model.metric.origin is not None else X
    columns = columns.double()
    origin, scale = measure_features(columns)  # (e,) each
    near = ((columns - origin).abs() * scale <= FAR).all(1)
    changes = G[:, near].square().sum((0, 1)) * columns[near].var(0, correction=0)  # (e,)
    scores = changes.reshape(-1, X.shape[1]).sum(0)
    return scores / scores.sum().clamp_min(1e-300)
