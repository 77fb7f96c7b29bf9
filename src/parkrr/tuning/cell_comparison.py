"""Comparison on cells: kernels, maps and penalties compared at the size and density of a cell.

Small cells are fitted to their training rows and compared on their validation rows, so what is
chosen suits cells and not one model of all rows. The cells are those of a partition, not the rows
around random points: a row is in one cell whatever the map, whereas the rows around a point depend
on the map, and flights chose the worse of two maps by 0.75 to 0.87. Errors are divided by those of
a baseline, one model of a sample, on the same rows: that matters where only some cells are used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, draw_indices
from parkrr.kernels import Kernel
from parkrr.runtime import Engine
from parkrr.solvers import (
    LocalProblem,
    add_to_diagonal,
    cholesky_or_nan,
    kernel_of_rows,
    penalty_path,
    solve_factor,
)

MOST_CELLS = 32
CELL_ROWS = 800  # on average; the final cells may be larger, but are as dense
# Of a larger cell, those nearest to its median: they are as dense as all of them. Cells of random
# centroids differ in size, and those beyond took 0.6 of the time of all 32 on protein.
MOST_ROWS = 3 * CELL_ROWS // 2
MOST_SEEN = 16 * CELL_ROWS  # of a cell that cannot be split, such as copies of one row
RIDGES = (1e-7, 1e7)  # beyond which nothing changes: K(x, x) is 1
# Another ridge must lower the squared error by more. On protein, whose error is the same to four
# digits from 1e-3 down to 1e-8, the search walked all the way: 44 comparisons, and 10 now.
GAIN = 0.9995
WINDOW = (10**-0.5, 1.0, 10**0.5)  # ridges that are compared, over the best of the last kernel


@dataclass(frozen=True)
class ComparisonCell:
    """A small cell with its mapped rows divided into training and validation rows."""

    train: ArraySource
    validation: ArraySource
    centers: Tensor  # (m, e), all rows of `train` or some of them
    baseline: float  # sum of squared errors of the baseline on the validation rows

    def errors(self, kernel: Kernel, ridges: list[float]) -> Tensor:
        """Sum of squared validation errors under each ridge lambda n, shape (p,)."""
        if len(self.centers) < self.train.n_rows:
            path = penalty_path(LocalProblem(kernel, self.train, self.centers, None, min(ridges)))
            lambdas = torch.tensor(ridges, dtype=torch.float64) / self.train.total_weight
            return path.errors(self.validation, lambdas)
        # eq. (10): a Cholesky factor takes a tenth of the time of all eigenvectors.
        K_n = kernel_of_rows(kernel, self.train.X)
        K_v = kernel(self.validation.X, self.train.X).double()
        w = 1.0 if self.train.w is None else self.train.w.double()
        errors = []
        for ridge in ridges:
            L = cholesky_or_nan(add_to_diagonal(K_n, ridge / w))
            alpha = solve_factor(L, self.train.Y.double())
            errors.append(self.validation.squared_error(K_v @ alpha).nan_to_num(math.inf))
        return torch.stack(errors)


def draw_comparison_cells(
    cells: list[ArraySource],
    is_validation: Tensor,
    baseline: Callable[[Tensor], Tensor],
    center_share: float,
    seed: int,
    most: int = MOST_CELLS,
) -> list[ComparisonCell]:
    """Some of these cells or all, those that have both training and validation rows.

    Parameters
    ----------
    cells
        Mapped rows of each cell, each an index into the same rows.
    is_validation
        Whether each of these rows is a validation row, shape (n,).
    baseline
        From raw rows (n, d) to predictions (n, t).
    center_share
        Share of the training rows that are centres.
    seed
        Of the cells, and of the rows of a cell that is far too large.
    most
        So many cells at most.
    """
    chosen = []
    for q in sorted(np.random.default_rng(seed).permutation(len(cells))[:most]):
        index = cells[q].index
        assert index is not None
        index = index[draw_indices(cells[q].n_rows, MOST_SEEN, seed).to(index.device)]
        cell = keep_nearest(replace(cells[q], index=index), MOST_ROWS)
        assert cell.index is not None
        validates = is_validation[cell.index]
        if bool(validates.all()) or not bool(validates.any()):
            continue
        validation = ArraySource(*cell.block(validates))
        train = ArraySource(*cell.block(~validates))
        m = max(1, math.ceil(center_share * train.n_rows))
        centers = train.X if m >= train.n_rows else train.X[draw_indices(train.n_rows, m, m)]
        error = float(validation.squared_error(baseline(cell.X[cell.index[validates]])))
        chosen.append(ComparisonCell(train, validation, centers, error))
    return chosen


def keep_nearest(cell: ArraySource, most: int) -> ArraySource:
    """So many rows of a cell at most, those nearest to its median in the order of the cell."""
    if cell.n_rows <= most:
        return cell
    assert cell.index is not None
    X = cell.load().X  # (n, e)
    squares = (X - X.median(0).values).square().sum(1)
    nearest = squares.argsort(stable=True)[:most]
    return replace(cell, index=cell.index[nearest.sort().values])


class RidgeError(NamedTuple):
    """An error relative to the baseline, and its ridge lambda n."""

    error: float
    ridge: float


@dataclass
class CellComparison:
    """Comparison cells behind one feature map, and the best ridge so far."""

    cells: list[ComparisonCell]
    engine: Engine
    ridge: float  # lambda n to start from, then the best
    fixed: bool  # whether that is the only one allowed
    best: dict[Kernel, RidgeError] = field(default_factory=dict)  # of kernels compared before

    def __post_init__(self) -> None:
        if not self.fixed:
            self.ridge = min(max(self.ridge, RIDGES[0]), RIDGES[1])
        self.baseline = max(sum(cell.baseline for cell in self.cells), 1e-300)

    def find_ridge(self, kernel: Kernel) -> RidgeError:
        """The least error over ridges around the last best one, where the next search starts."""
        if kernel not in self.best:
            self.best[kernel] = self.search_ridge(kernel)
        return self.best[kernel]

    def search_ridge(self, kernel: Kernel) -> RidgeError:
        """The same, of a kernel that was not compared before."""
        if self.fixed:
            return self.compare_ridges(kernel, [self.ridge])[0]
        window = self.compare_ridges(kernel, [self.ridge * factor for factor in WINDOW])
        middle, best = window[WINDOW.index(1.0)], min(window)
        best = best if best.error < GAIN * middle.error else middle
        step = best.ridge / self.ridge
        while not 0.5 < step < 2 and RIDGES[0] < best.ridge < RIDGES[1]:  # at an end of the window
            [further] = self.compare_ridges(kernel, [best.ridge * step])
            if further.error >= GAIN * best.error:
                break
            best = further
        self.ridge = best.ridge
        return best

    def compare_ridges(self, kernel: Kernel, ridges: list[float]) -> list[RidgeError]:
        """The errors of all cells together under each of these ridges."""
        task = partial(ComparisonCell.errors, kernel=kernel, ridges=ridges)
        errors = reduce(torch.add, self.engine.map(task, self.cells)) / self.baseline  # (p,)
        return [RidgeError(*pair) for pair in zip(errors.tolist(), ridges, strict=True)]
