"""Kernels of the inner product."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import final

import torch
from torch import Tensor

from parkrr.errors import ParameterError
from parkrr.kernels.base import InnerProductBlock, Kernel, KernelBlock


@final
@dataclass(frozen=True)
class Polynomial(Kernel):
    r"""Polynomial kernel, :math:`K(x, z) = (\gamma \langle x, z\rangle + c)^p`.

    K(x, x) varies from row to row, so its cells are not Euclidean ones.

    Parameters
    ----------
    degree : int, default 3
        The power :math:`p`, at least 1.
    gamma : float, default 1.0
        The factor :math:`\gamma > 0`.
    coef0 : float, default 1.0
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
        if not isinstance(self.gamma, Real) or not 0 < self.gamma < math.inf:
            raise ParameterError(
                f"gamma must be one number, positive and finite, got {self.gamma!r}; scale the "
                f"features for one of each"
            )
        if not isinstance(self.coef0, Real) or not 0 <= self.coef0 < math.inf:
            raise ParameterError(
                f"coef0 must be one number, >= 0 and finite, got {self.coef0!r}; 1.0 is usual"
            )

    def diag(self, X: Tensor) -> Tensor:
        return X.square().sum(1).mul_(self.gamma).add_(self.coef0).pow_(self.degree)

    def against(self, Z: Tensor) -> KernelBlock:
        return PolynomialBlock(self, Z)

    def distance(self, C: Tensor) -> KernelBlock:
        return PolynomialBlock(self, C, distance=True)

    def among(self, Z: Tensor) -> Tensor:
        return (Z @ Z.mT).mul_(self.gamma).add_(self.coef0).pow_(self.degree)


@final
class PolynomialBlock(KernelBlock):
    """A polynomial kernel against Z; or with `distance` K(z, z) - 2 K(x, z)."""

    def __init__(self, kernel: Polynomial, Z: Tensor, distance: bool = False) -> None:
        self.kernel = kernel
        constant = torch.full_like(Z[:, :1], kernel.coef0)
        self.fixed = torch.cat([Z.T * kernel.gamma, constant.T])
        self.diag = kernel.diag(Z) if distance else None

    def augment(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        A = X.to(self.fixed.dtype)
        return torch.cat([A, torch.ones_like(A[:, :1])], 1)

    def from_products(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        K = buffers[0].pow_(self.kernel.degree)
        return K if self.diag is None else K.mul_(-2).add_(self.diag)


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
