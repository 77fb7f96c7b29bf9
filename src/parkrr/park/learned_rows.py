"""Which rows a model has learned, and what weight is left of each: proof of what can be forgotten.

The statistics of a cell cannot tell its rows from others: with 600 rows and 120 centres any single
row near them can be subtracted and leaves K'WK positive. So a model that keeps statistics also
keeps 64 bits of every row. Two of a million rows share them with a probability of 3e-8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.errors import ParameterError

ROUNDING = 1e-9  # of a weight; a row with less left is forgotten
NAMED_ROWS = 3  # in an error message


@dataclass(frozen=True)
class LearnedRows:
    """Learned rows by their hash: 24 bytes each."""

    hashes: Tensor  # (r,)  increasing, int64
    cells: Tensor  # (r,)  in whose statistics they are
    weights: Tensor  # (r,)  what is left of them, in units of the user

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashes: Tensor) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Whether rows with these hashes (n,) are known, and where, shape (n,) each."""
        if not len(self):
            return np.zeros(len(hashes), bool), np.zeros(len(hashes), np.int64)
        own, asked = self.hashes.numpy(), hashes.numpy()
        place = np.searchsorted(own, asked).clip(max=len(own) - 1)
        return own[place] == asked, place

    def route(self, hashes: Tensor, cell_of: Tensor) -> Tensor:
        """The cells (n,) of rows, given those that the model assigns them to.

        A row that is known stays in its cell, even if rounding moves it across a border: half way
        between two centroids the same row in another batch may go to the other cell.
        """
        known, place = self.find(hashes)
        cells = np.where(known, self.cells.numpy()[place] if len(self) else 0, cell_of.cpu())
        return torch.from_numpy(cells).to(cell_of)

    def decay(self, changed: Sequence[int], factor: float) -> "LearnedRows":
        """Weights in the changed cells times a factor; rows of which next to nothing is left go."""
        faded = np.isin(self.cells.numpy(), changed)
        weights = np.where(faded, factor * self.weights.numpy(), self.weights.numpy())
        return self.keep(weights, ~faded | (weights > ROUNDING * weights.max(initial=0.0)))

    def add(self, hashes: Tensor, cells: Tensor, weights: Tensor) -> "LearnedRows":
        """With more rows."""
        return merge_rows(
            torch.cat([self.hashes, hashes]),
            torch.cat([self.cells, cells.cpu()]),
            torch.cat([self.weights, weights.cpu().double()]),
        )

    def remove(self, hashes: Tensor, weights: Tensor) -> "LearnedRows":
        """Without these weights (n,) of rows, or an error that names rows that have less left."""
        known, place = self.find(hashes)
        asked = weights.cpu().double().numpy()
        before = self.weights.numpy()
        removed = np.bincount(place[known], asked[known], minlength=len(self)).astype(np.float64)
        left = before - removed
        refused = ~known
        refused[known] = (left < -ROUNDING * before)[place[known]]
        if not refused.any():
            return self.keep(left, left > ROUNDING * before)
        named = []
        for i in np.flatnonzero(refused)[:NAMED_ROWS].tolist():
            reason = "was never learned, or is forgotten already"
            if known[i]:
                there, asked_for = before[place[i]], removed[place[i]]
                reason = f"has weight {there:.6g} left, less than {asked_for:.6g}"
            named.append(f"row {i} {reason}")
        raise ParameterError(
            f"X, y and sample_weight must be rows that were learned before, with at most the "
            f"weight that decay and forget have left of them, but {refused.sum()} of "
            f"{len(hashes)} are not: {'; '.join(named)}. Pass the numbers that fit and "
            f"partial_fit were given"
        )

    def keep(self, weights: NDArray[np.float64], kept: NDArray[np.bool_]) -> "LearnedRows":
        """The rows for which `kept` (r,) holds, with other weights (r,)."""
        mask = torch.from_numpy(kept)
        return LearnedRows(self.hashes[mask], self.cells[mask], torch.from_numpy(weights[kept]))

    def count(self, n_cells: int) -> list[int]:
        """Rows in each cell, copies of a row as one."""
        return np.bincount(self.cells.numpy(), minlength=n_cells).tolist()  # type: ignore[no-any-return]


def merge_rows(hashes: Tensor, cells: Tensor, weights: Tensor) -> LearnedRows:
    """Rows (n,) by hash, copies of one with their total weight, in the cell of the first."""
    unique, first, kind = np.unique(hashes.numpy(), return_index=True, return_inverse=True)
    total = np.bincount(kind, weights.numpy(), minlength=len(unique))
    return LearnedRows(
        torch.from_numpy(unique), cells[torch.from_numpy(first)], torch.from_numpy(total)
    )
