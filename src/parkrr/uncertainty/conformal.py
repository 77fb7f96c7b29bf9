"""Split conformal prediction: quantiles of the scores of rows that nothing has seen.

The model, its scale and the shape of the intervals come from other rows. If the rows set aside and
a new one are exchangeable, the rank of the new row's score among theirs is uniform, so that an
interval up to the ceil((1 - alpha)(h + 1))-th smallest score holds it with probability 1 - alpha
or more (Vovk, Gammerman and Shafer 2005; Lei et al. 2018). With one such quantile for each group
of cells the same holds for the new rows of each group (Mondrian). With weights, read as density
ratios, the new row counts as the heaviest of the rows set aside (Tibshirani et al. 2019).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.errors import ParameterError

GROUP_ROWS = 100  # set aside in a group of cells, on average at least: 0.98 can then be promised
SMALLEST_SIDE = 1e-6  # of the width of an interval, on either side of its median
ROUNDING = 1e-9  # relative: 0.9 (h + 1) is not to become the next whole number


@dataclass(frozen=True)
class ConformalScores:
    """Scaled residuals of rows set aside, from which exact quantiles are taken.

    Parameters
    ----------
    name
        "split" for one group, "cell" for groups of cells.
    values
        Residual over scale of each row, shape (h, t), rows of one group together.
    w
        Weights of the rows, shape (h,).
    counts
        Rows of each group, shape (S,).
    group_of_cell
        The group of each cell, shape (Q,).
    """

    name: str
    values: Tensor
    w: Tensor
    counts: Tensor
    group_of_cell: Tensor

    @property
    def groups(self) -> list[tuple[Tensor, Tensor]]:
        """Values (h_s, t) and weights (h_s,) of each group."""
        sizes = self.counts.tolist()
        parts = torch.split(self.values, sizes), torch.split(self.w, sizes)
        return list(zip(*parts, strict=True))

    @property
    def smallest_tail(self) -> float:
        """The smallest probability outside that all groups can promise."""
        return max(own_share(w) for _, w in self.groups)

    @property
    def largest_coverage(self) -> float:
        """The largest coverage that all groups can promise."""
        return 1 - self.smallest_tail

    @property
    def source(self) -> str:
        """The rows that decide the largest coverage, as text."""
        fewest = int(self.counts.min())
        return f"{fewest:,} rows set aside" + (" in a cell" if len(self.counts) > 1 else "")

    def ends(self, coverage: float, shape: Tensor) -> Tensor:
        """The ends of intervals of each group over the scale, shape (S, t, 2).

        `shape` (t, 3) are a lower end, a middle and an upper end; the score of a row is the factor
        by which an interval of this shape must grow to hold it.
        """
        low, middle, high = shape.T  # (t,) each
        least = SMALLEST_SIDE * (high - low) + 1e-300
        down, up = (middle - low).maximum(least), (high - middle).maximum(least)
        ends = []
        for z, w in self.groups:
            scores = ((z - middle) / up).maximum((middle - z) / down)  # (h_s, t)
            factor = weighted_rank(scores, w, coverage)  # (t,)
            ends.append(torch.stack([middle - factor * down, middle + factor * up], 1))
        return torch.stack(ends)

    def quantiles(self, levels: tuple[float, ...]) -> Tensor:
        """Quantiles of each group over the scale, shape (S, t, l).

        A new target is below one of a level above 1/2 with that probability or more, and above one
        of another level with the rest or more.
        """
        tail = self.smallest_tail
        if not all(tail - ROUNDING <= level <= 1 - tail + ROUNDING for level in levels):
            raise ParameterError(
                f"levels must be between {tail:.3g} and {1 - tail:.3g} after a fit with "
                f"{self.source}, got {levels!r}; fit more rows for others"
            )
        return torch.stack([self.quantile(level) for level in levels], 2)

    def quantile(self, level: float) -> Tensor:
        """The quantile of each group at one level, shape (S, t)."""
        if level > 0.5:
            return torch.stack([weighted_rank(z, w, level) for z, w in self.groups])
        return -torch.stack([weighted_rank(-z, w, 1 - level) for z, w in self.groups])


def own_share(w: Tensor) -> float:
    """The share of a new row, as heavy as the heaviest, among rows of weights (h,) and itself."""
    return float(w.max() / (w.sum() + w.max())) if len(w) else 1.0


def weighted_rank(values: Tensor, w: Tensor, level: float) -> Tensor:
    """The least value with the share `level` of all weight at or below it, shape (t,).

    The new row, as heavy as the heaviest, counts as above all values (h, t) of weights (h,); with
    equal weights it is the ceil(level (h + 1))-th smallest.
    """
    ordered, order = values.sort(0)
    total = w[order].cumsum(0)  # (h, t)
    needed = level * (1 - ROUNDING) * (w.sum() + w.max())
    rank = (total < needed).sum(0).clamp_max(len(values) - 1)  # (t,)
    return ordered.gather(0, rank[None])[0]


def calibrate(
    name: str,
    values: Tensor,
    w: Tensor,
    cell: Tensor,
    group_of_cell: Tensor,
) -> ConformalScores:
    """Scores of rows set aside: scaled residuals (h, t), weights (h,), cells (h,)."""
    group = group_of_cell[cell]
    order = group.argsort(stable=True)
    counts = torch.bincount(group, minlength=int(group_of_cell.max()) + 1)
    return ConformalScores(name, values[order], w[order], counts, group_of_cell)


def group_cells(centroids: Tensor, rows: NDArray[np.float64], least: float) -> Tensor:
    """The group of each cell, shape (Q,): cells with few rows are joined with others nearby.

    Groups must not depend on the rows set aside, so `rows` (Q,) counts those of the fit. All cells
    are halved along their widest direction, and the halves again, while both keep `least` rows.
    """
    C = centroids.double().cpu().numpy()
    group, n_groups = np.zeros(len(C), dtype=np.int64), 0
    waiting = [np.arange(len(C))]
    while waiting:
        cells = waiting.pop()
        widest = int(np.ptp(C[cells], axis=0).argmax())
        cells = cells[np.argsort(C[cells, widest], kind="stable")]
        below = np.cumsum(rows[cells])
        enough = np.flatnonzero((below >= least) & (below[-1] - below >= least))
        if len(enough):
            cut = enough[np.abs(below[enough] - below[-1] / 2).argmin()] + 1
            waiting += [cells[cut:], cells[:cut]]
        else:
            group[cells], n_groups = n_groups, n_groups + 1
    return torch.from_numpy(group).to(centroids.device)
