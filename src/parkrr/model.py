"""The fitted model: tensors, and Algorithm 2.

Knows no training data: centroids, and the centres and weights of every cell.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from parkrr.engine import torch_threads
from parkrr.errors import NotFiniteError
from parkrr.kernels import Kernel
from parkrr.lifting import Section
from parkrr.partition import assign
from parkrr.sources import grouped

# Rows routed together: long enough that a cell finds many of its rows in one run (at
# Q = 512, 128 of them), short enough that predicting needs tens of MB.
RUN_ROWS = 2**16
BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Model:
    """ParK's estimator, eq. (14).

    Parameters
    ----------
    kernel
        The kernel.
    origin
        Subtracted from every row before it is narrowed to the dtype of the centres, (d,).
    centroids
        Shape (Q, d).
    centers, weights
        Nystrom centres and coefficients of every cell, Q tensors (m_q, d) and (m_q, t).
    intercept
        Added to every prediction, shape (t,).
    """

    kernel: Kernel
    origin: Tensor
    centroids: Tensor
    centers: list[Tensor]
    weights: list[Tensor]
    intercept: Tensor

    @cached_property
    def sections(self) -> list[Section]:
        """K(., centres) of every cell, prepared once."""
        return [self.kernel.against(Z) for Z in self.centers]

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        state.pop("sections", None)  # derived; twice the size of the model
        return state

    def narrowed(self, X: Tensor) -> Tensor:
        """Rows as the cells see them."""
        X = X.to(self.centroids.device)
        return self.kernel.narrow(X, self.origin, self.centroids.dtype)

    def route(self, X: Tensor) -> Tensor:
        """The cell of each row of X (n, d), shape (n,): line 1 of Algorithm 2."""
        return assign(self.kernel, self.narrowed(X), self.centroids)

    def predict(self, X: Tensor, n_threads: int = 1) -> Tensor:
        """Line 2 of Algorithm 2 for each row of X (n, d): one local model each, (n, t)."""
        out = torch.empty(len(X), len(self.intercept), dtype=torch.float64)
        runs = [slice(a, a + RUN_ROWS) for a in range(0, len(X), RUN_ROWS)]
        with torch_threads(1), ThreadPoolExecutor(min(n_threads, len(runs))) as pool:
            values = pool.map(lambda run: self.predict_run(X[run]), runs)
            for run, part in zip(runs, values, strict=True):
                out[run] = part
        if not bool(torch.isfinite(out).all()):
            raise NotFiniteError("predictions overflowed; scale the features of X")
        return out

    def predict_run(self, X: Tensor) -> Tensor:
        X = self.narrowed(X)
        out = X.new_empty(len(X), len(self.intercept), dtype=torch.float64)
        order, counts = grouped(assign(self.kernel, X, self.centroids), len(self.centroids))
        rows = X[order]
        for q, part in cell_runs(counts):
            out[order[part]] = self.local(q, rows[part])
        return out + self.intercept

    def local(self, q: int, X: Tensor) -> Tensor:
        """The local model of cell q at rows X (n, d), eq. (13), shape (n, t)."""
        section = self.sections[q]
        A = section.lift(X)
        w = self.weights[q].to(A.dtype)
        b = max(1, BLOCK_BYTES // (A.element_size() * len(w)))
        return torch.cat([(section(part) @ w).double() for part in torch.split(A, b)])


def cell_runs(counts: list[int]) -> Iterator[tuple[int, slice]]:
    """(q, rows of q) for every cell that has rows, when rows are sorted by cell."""
    start = 0
    for q, count in enumerate(counts):
        if count:
            yield q, slice(start, start + count)
        start += count
