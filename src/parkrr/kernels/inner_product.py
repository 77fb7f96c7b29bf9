"""Kernels of the inner product."""

import math
from dataclasses import dataclass
from numbers import Integral
from typing import final

from torch import Tensor

from parkrr.errors import ParameterError
from parkrr.kernels.base import Kernel
from parkrr.kernels.blocks import InnerProductBlock, KernelBlock, PolynomialBlock


@final
@dataclass(frozen=True)
class Polynomial(Kernel):
    r"""Polynomial kernel, :math:`K(x, z) = (\gamma \langle x, z\rangle + c)^p`.

    K(x, x) varies from row to row, so its cells are not Euclidean ones.

    Parameters
    ----------
    degree
        The power :math:`p`, a whole number of at least 1.
    gamma
        The factor :math:`\gamma > 0`.
    coef0
        The constant :math:`c \ge 0`.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Polynomial
    >>> Polynomial(degree=2)(torch.ones(1, 3), torch.ones(1, 3))
    tensor([[16.]])
    """

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.degree, Integral) or self.degree < 1:
            raise ParameterError(f"degree must be a whole number >= 1, got {self.degree!r}")
        if not 0 < self.gamma < math.inf:
            raise ParameterError(f"gamma must be positive and finite, got {self.gamma!r}")
        if not 0 <= self.coef0 < math.inf:
            raise ParameterError(f"coef0 must be >= 0 and finite, got {self.coef0!r}")

    def diag(self, X: Tensor) -> Tensor:
        return X.square().sum(1).mul_(self.gamma).add_(self.coef0).pow_(self.degree)

    def against(self, Z: Tensor) -> KernelBlock:
        return PolynomialBlock(self, Z)

    def distance(self, C: Tensor) -> KernelBlock:
        return PolynomialBlock(self, C, distance=True)

    def among(self, Z: Tensor) -> Tensor:
        return (Z @ Z.mT).mul_(self.gamma).add_(self.coef0).pow_(self.degree)


@final
@dataclass(frozen=True)
class Linear(Kernel):
    r"""Linear kernel, :math:`K(x, z) = \langle x, z\rangle`.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Linear
    >>> Linear()(torch.ones(1, 3), torch.ones(1, 3))
    tensor([[3.]])
    """

    def diag(self, X: Tensor) -> Tensor:
        return X.square().sum(1)

    def against(self, Z: Tensor) -> KernelBlock:
        return InnerProductBlock(Z)

    def distance(self, C: Tensor) -> KernelBlock:
        return InnerProductBlock(C, norms=True)

    def among(self, Z: Tensor) -> Tensor:
        return Z @ Z.mT
