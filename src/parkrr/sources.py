"""Rows in blocks. A cell of a source is a source.

A source hides where rows live; whoever reads it sees blocks of rows and nothing else, so
that a solver's only loop is over blocks. It knows no kernel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

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
    >>> from parkrr.sources import ArraySource
    >>> rows = ArraySource(torch.arange(6.0).reshape(3, 2), torch.ones(3, 1))
    >>> [len(block.X) for block in rows.blocks(2)]
    [2, 1]
    """

    X: Tensor
    Y: Tensor
    w: Tensor | None = None
    index: Tensor | None = None
    view: RowMap | None = None

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
