"""Positive-definite kernels: functions of two row blocks, and nothing else.

A kernel knows no memory budget, no cell and no solver. It turns X (n, d) and Z (m, d)
into K (n, m), on whatever device and dtype the inputs already have.

To add your own, derive from :class:`Radial` (a formula of the distance) or :class:`Kernel`.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from parkrr.kernels.blocks import KernelBlock


class Kernel(ABC):
    """A positive-definite function K(x, z)."""

    @abstractmethod
    def diag(self, X: Tensor) -> Tensor:
        """K(x, x) of each row of X (n, d), shape (n,)."""

    @abstractmethod
    def against(self, Z: Tensor) -> KernelBlock:
        """K(., Z) for fixed rows Z (m, d), prepared for many blocks."""

    @abstractmethod
    def distance(self, C: Tensor) -> KernelBlock:
        """What sorts centroids C (Q, d) by their RKHS distance to a row, eq. (5).

        K(x, x) is the same for every centroid, so K(c, c) - 2 K(x, c) is enough; and any
        increasing function of the distance is as good.
        """

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """The kernel matrix K(X, Z), shape (n, m)."""
        section = self.against(Z)
        return section(section.lift(X))

    def among(self, Z: Tensor) -> Tensor:
        """The kernel matrices of many small sets of rows Z (b, k, d), shape (b, k, k)."""
        return torch.stack([self(rows, rows) for rows in Z])
