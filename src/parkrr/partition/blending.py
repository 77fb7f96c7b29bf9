"""Blending: predictions that mix the nearest cells, so that they are continuous across borders."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.kernels import Kernel, KernelBlock

SMALLEST_REACH = 1.2e-38  # normal in float32: copies of a centroid have no gap to divide by


class CellShares(NamedTuple):
    """Which cells predict which rows, and with what share."""

    row: Tensor  # (p,)
    cell: Tensor  # (p,)
    share: Tensor  # (p,)  of each row they add up to one


@dataclass(frozen=True)
class Blend:
    """How many cells predict a row, and how their predictions are weighted.

    With g_j the gap between the squared distances to the j-th nearest centroid and to the
    nearest, cell j has the weight (1 - g_j / min(width, g_{k+1}))_+^2, divided by their sum.
    A cell's weight has fallen to zero when it stops being among the k nearest, so that
    predictions are continuous. One nearest cell is the paper's rule, eq. (14).

    Parameters
    ----------
    n_nearest : int, default 1
        k >= 1, the most cells that predict a row.
    width : float, default 0.0
        The gap from which on a cell has no weight, in the units of mapped rows, squared.

    Examples
    --------
    >>> import torch
    >>> from parkrr import Blend, Gaussian
    >>> halfway, cells = torch.tensor([[0.5]]), torch.tensor([[0.0], [1.0], [3.0]])
    >>> Blend(n_nearest=2, width=1.0).cell_shares(Gaussian().distance(cells), halfway).share
    tensor([0.5000, 0.5000])
    """

    n_nearest: int = 1
    width: float = 0.0

    def n_blended(self, n_cells: int) -> int:
        """The most of so many cells that predict a row: k, or the nearest alone."""
        k = min(self.n_nearest, n_cells - 1)
        return k if k > 1 and self.width > 0 else 1

    def cell_shares(self, centroid_distances: KernelBlock, X: Tensor) -> CellShares:
        """The cells of each row of X (n, e), by distances to the centroids."""
        k = self.n_blended(centroid_distances.fixed.shape[1])
        if k == 1:
            row = torch.arange(len(X), device=X.device)
            whole = torch.ones_like(row, dtype=X.dtype)
            return CellShares(row, centroid_distances.argmin(X), whole)
        cells, farther = centroid_distances.nearest(X, k + 1)  # (n, k + 1) each
        shares = self.weigh(farther)  # (n, k)
        row, rank = shares.nonzero(as_tuple=True)
        return CellShares(row, cells[row, rank], shares[row, rank])

    def shares_of_one(
        self, centroid_distances: KernelBlock, group: Tensor
    ) -> list[tuple[int, np.floating]]:
        """As `cell_shares`, of one row that is given as a group (g, e) of its copies.

        In numpy, whose calls take a fraction of the time of torch's.
        """
        D = centroid_distances(group)[0].cpu().numpy()  # (Q,)
        k = self.n_blended(len(D))
        if k == 1:
            return [(int(D.argmin()), D.dtype.type(1))]
        nearest = D.argpartition(k)[: k + 1]
        nearest = nearest[D[nearest].argsort()]
        shares = self.weigh(D[nearest] - D[nearest[0]])  # (k,)
        return [(q, share) for q, share in zip(nearest[:k].tolist(), shares, strict=True) if share]

    def weigh(self, farther: Any) -> Any:
        """Shares (..., k) of the nearest cells, from how much farther k + 1 are, (..., k + 1).

        Of tensors or arrays. Nothing is changed in place, so that autograd can follow.
        """
        reach = farther[..., -1:].clip(SMALLEST_REACH, self.width)
        weights = (1 - farther[..., :-1] / reach).clip(0) ** 2
        return weights / weights.sum(axis=-1, keepdims=True)


HARD = Blend()  # the nearest cell alone


@dataclass(frozen=True)
class Regions:
    """The upper level of a partition: consecutive cells belong to one region.

    Predictions are continuous across borders of regions, too: regions are blended as cells are,
    and in each region its own cells are. `Blend.width` of the model is that between regions then.
    """

    centroids: Tensor  # (R, e)
    sizes: Tensor  # (R,)  cells of each region
    widths: Tensor  # (R,)  of the blend between the cells of each region


def median_margin(kernel: Kernel, centroids: Tensor, X: Tensor) -> float:
    """How much farther from rows X (n, e) the second nearest centroid is than the nearest.

    The median, in the units of a blend's width; zero for a single centroid.
    """
    if len(centroids) < 2:
        return 0.0
    return float(kernel.distance(centroids).nearest(X, 2)[1][:, 1].median())
