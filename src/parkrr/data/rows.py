"""Rows in blocks. A cell of a source is a source.

A source hides where rows live; whoever reads it sees blocks of rows and nothing else, so
that a solver's only loop is over blocks. It knows no kernel.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HASH_STEP = np.uint64(0x9E3779B97F4A7C15)
HASH_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # of splitmix64

FEW_ROWS = 300  # below, each is left out in turn; no metric is learned unless asked for
JUDGES = 0.2  # share of the rows that choices are judged by

RowMap = Callable[[Tensor], Tensor]


class Block(NamedTuple):
    """Some rows: features, targets, weights."""

    X: Tensor  # (b, d)
    Y: Tensor  # (b, t)
    w: Tensor | None  # (b,)


class Source(Protocol):
    """What a solver's loop asks of rows, wherever they live."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_outputs(self) -> int: ...

    def blocks(self, rows: int) -> Iterator[Block]: ...


class CellRows(Protocol):
    """The rows of one cell, wherever they live, to be loaded when they are fitted."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_outputs(self) -> int: ...

    @property
    def total_weight(self) -> float: ...

    def load(self) -> "ArraySource": ...


@dataclass(frozen=True)
class ArraySource:
    """Rows of tensors in memory: all of them, or those at `index`, seen through `view`.

    Parameters
    ----------
    X
        Features, shape (n, d).
    Y
        Targets, shape (n, t).
    w
        Row weights, shape (n,), or None when all are 1.
    index
        The rows that belong to this source, shape (n_rows,); None means all.
    view
        A row-wise function through which the features are read, block by block.

    Examples
    --------
    >>> import torch
    >>> from parkrr.data.rows import ArraySource
    >>> rows = ArraySource(torch.arange(6.0).reshape(3, 2), torch.ones(3, 1))
    >>> [len(block.X) for block in rows.blocks(2)]
    [2, 1]
    """

    X: Tensor
    Y: Tensor
    w: Tensor | None = None
    index: Tensor | None = None
    view: RowMap | None = None

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """A cell travels as its own rows, not as all of them and an index."""
        return ArraySource, tuple(self.block(slice(None)))

    @property
    def n_rows(self) -> int:
        return len(self.X) if self.index is None else len(self.index)

    @property
    def n_outputs(self) -> int:
        return self.Y.shape[1]

    @property
    def total_weight(self) -> float:
        """Sum of the weights: what the paper calls n, if a weight counts copies of a row."""
        if self.w is None:
            return float(self.n_rows)
        w = self.w if self.index is None else self.w[self.index]
        return float(w.sum(dtype=torch.float64))

    def squares(self, predicted: Tensor | float = 0.0) -> Tensor:
        """Weighted sum of squared errors of predictions (n_rows, t) of these rows, loaded."""
        each = (self.Y.double() - predicted).square().sum(1)
        return each.sum() if self.w is None else self.w.double() @ each

    def map(self, view: RowMap) -> "ArraySource":
        """The same rows read through one more row-wise function."""
        inner = self.view
        return replace(self, view=view if inner is None else lambda X: view(inner(X)))

    def blocks(self, rows: int) -> Iterator[Block]:
        """All rows in order, at most `rows` at a time."""
        for start in range(0, self.n_rows, rows):
            yield self.block(slice(start, start + rows))

    def block(self, part: slice | Tensor) -> Block:
        """The rows at these positions."""
        at = part if self.index is None else self.index[part]
        X = self.X[at]
        return Block(
            X if self.view is None else self.view(X),
            self.Y[at],
            None if self.w is None else self.w[at],
        )

    def load(self) -> "ArraySource":
        """The rows of this source alone, gathered and seen through its view once."""
        return ArraySource(*self.block(slice(None)))

    def to(self, dtype: torch.dtype) -> "ArraySource":
        """The rows of this source alone, in that dtype."""
        X, Y, w = self.block(slice(None))
        return ArraySource(X.to(dtype), Y.to(dtype), None if w is None else w.to(dtype))

    def sample(self, size: int, seed: int) -> "ArraySource":
        """`size` rows drawn without replacement, or all of them in order."""
        if size >= self.n_rows:
            return self.load()
        return ArraySource(*self.block(draw(self.n_rows, size, seed)))

    def with_last(self, judges: Tensor) -> "ArraySource":
        """The same rows, those for which judges (n_rows,) holds after all others, by chance.

        So any number of rows at the end stands for all that judge.
        """
        last = judges.nonzero()[:, 0]
        chance = np.random.default_rng(self.n_rows).permutation(len(last))
        last = last[torch.from_numpy(chance).to(last.device)]
        order = torch.cat([(~judges).nonzero()[:, 0], last])
        return replace(self, index=order if self.index is None else self.index[order])

    def shards(self, count: int) -> "list[ArraySource]":
        """The rows cut into `count` runs of nearly equal length."""
        cuts = [round(k * self.n_rows / count) for k in range(count + 1)]
        return [self.rows(slice(a, b)) for a, b in pairwise(cuts)]

    def rows(self, part: slice) -> "ArraySource":
        """A run of rows, without a copy."""
        if self.index is not None:
            return replace(self, index=self.index[part])
        w = None if self.w is None else self.w[part]
        return replace(self, X=self.X[part], Y=self.Y[part], w=w)

    def split(self, cell_of: Tensor, n_cells: int) -> "list[ArraySource]":
        """One source per cell, given the cell of every row (n_rows,)."""
        order, counts = grouped(cell_of, n_cells)
        index = order if self.index is None else self.index[order]
        return [replace(self, index=part) for part in torch.split(index, counts)]


def cuts(lengths: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Runs (first, last) of about the same total length, at most `count` of them."""
    ends = np.cumsum(lengths)
    number = np.minimum(count - 1, (ends - 1) * count // ends[-1])
    firsts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    return list(zip(firsts, [*firsts[1:], len(lengths)], strict=True))


def joined(blocks: Sequence[Block]) -> ArraySource:
    """The rows of several blocks as one source; a block without weights has weights of one."""
    X, Y = torch.cat([block.X for block in blocks]), torch.cat([block.Y for block in blocks])
    if all(block.w is None for block in blocks):
        return ArraySource(X, Y)
    weights = [torch.ones_like(b.Y[:, 0]) if b.w is None else b.w.to(b.Y) for b in blocks]
    return ArraySource(X, Y, torch.cat(weights))


def grouped(cell_of: Tensor, n_cells: int) -> tuple[Tensor, list[int]]:
    """The order (n,) that puts rows of one cell together, and the rows in each cell."""
    cells = cell_of.cpu().numpy()
    counts = np.bincount(cells, minlength=n_cells).tolist()
    narrow = np.uint16 if n_cells <= 2**16 else np.int64
    order = np.argsort(cells.astype(narrow), kind="stable")  # radix sort on 16 bits
    return torch.from_numpy(order).to(cell_of.device), counts


def draw(n: int, size: int, seed: int) -> Tensor:
    """`size` of the numbers 0..n-1 without replacement, all of them in order, (size,)."""
    if size >= n:
        return torch.arange(n)
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.choice(n, size, replace=False))


def canonical(rows: ArraySource) -> Tensor:
    """An order (n,) of the rows by content, whatever order rows and columns came in.

    Nor does it depend on the units of columns: values count in thousandths of their spread.
    """
    X, Y, _ = rows.block(slice(None))
    numbers = np.zeros(len(X), dtype=np.uint64)
    for column in (*X.T, *Y.T):
        numbers += mixed(levels(column.double().cpu().numpy()))
    return torch.from_numpy(np.argsort(numbers, kind="stable")).to(X.device)


def judges(rows: ArraySource, seed: int) -> Tensor:
    """Whether each row judges, (n,): the same rows in whatever order they come.

    No metric is learned from them, so that they can say what a fit is worth.
    """
    order = canonical(rows)
    found = torch.empty(rows.n_rows, dtype=torch.bool, device=order.device)
    found[order] = judging_places(rows.n_rows, seed).to(order.device)
    return found


def judging_places(n: int, seed: int) -> Tensor:
    """Whether the row at each place of the canonical order judges, shape (n,)."""
    return torch.from_numpy(np.random.default_rng([seed, 2]).random(n) < JUDGES)


def levels(column: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Whole numbers in thousandths of the spread, shape (n,); the offset keeps off ties."""
    column = column / max(np.abs(column).max(), 1e-300)
    scaled = (column - column.mean()) / max(column.std(), 1e-300)
    whole: NDArray[np.uint64] = np.floor(scaled * 1000.123 + 0.377).astype(np.int64).view(np.uint64)
    return whole


def merged(rows: ArraySource) -> ArraySource:
    """Copies as one row of more weight, where the first of them was."""
    X, Y, w = rows.block(slice(None))
    _, first, kind = np.unique(content(X, Y), return_index=True, return_inverse=True)
    each = np.ones(len(X)) if w is None else w.double().cpu().numpy()
    total, order = np.bincount(kind, weights=each), np.argsort(first)
    at = torch.from_numpy(first[order]).to(X.device)
    return ArraySource(X[at], Y[at], torch.from_numpy(total[order]).to(X.device))


def content(X: Tensor, Y: Tensor) -> NDArray[np.uint64]:
    """A 64-bit number of what is in each row, shape (n,)."""
    numbers = np.zeros(len(X), dtype=np.uint64)
    for column in (*X.T, *Y.T):  # adding zero turns -0.0 into 0.0
        bits = (column.double().cpu().numpy() + 0.0).view(np.uint64)
        numbers = mixed(numbers * HASH_STEP + mixed(bits))
    return numbers


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64-bit numbers with their bits spread over all places."""
    for shift, factor in HASH_MIX:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
