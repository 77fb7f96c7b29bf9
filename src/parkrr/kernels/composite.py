"""Kernels made of others: sums, products, and functions of yours.

A sum or a product of positive-definite functions is one, and so is one times a positive number.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import torch
from torch import Tensor

from parkrr.errors import ParameterError
from parkrr.kernels.base import Kernel, KernelBlock

DIAGONAL_ROWS = 32  # of a function at a time, to compute K(x, x): all pairs of them are computed


@final
class ComputedBlock(KernelBlock):
    """Values that a function computes of rows as they are; with `diag` (m,) K(z, z) - 2 K(x, z)."""

    def __init__(
        self, compute: Callable[[Tensor], Tensor], Z: Tensor, diag: Tensor | None = None
    ) -> None:
        self.compute, self.diag = compute, diag
        self.fixed = Z.T

    def augment(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        return X.to(self.fixed.dtype)

    def multiply_rows(self, A: Tensor, out: Tensor) -> None:
        out.copy_(self.compute(A))

    def from_products(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        return buffers[0] if self.diag is None else buffers[0].mul_(-2).add_(self.diag)


class ComputedKernel(Kernel):
    """A kernel whose values are computed by a function of rows."""

    @abstractmethod
    def compute_against(self, Z: Tensor) -> Callable[[Tensor], Tensor]:
        """From rows X (n, d) to K(X, Z), shape (n, m)."""

    def against(self, Z: Tensor) -> KernelBlock:
        return ComputedBlock(self.compute_against(Z), Z)

    def distance(self, C: Tensor) -> KernelBlock:
        return ComputedBlock(self.compute_against(C), C, self.diag(C))


@final
@dataclass(frozen=True)
class KernelSum(ComputedKernel):
    r"""Weighted sum of kernels, :math:`\sum_j a_j K_j(x, z)`.

    Write ``Gaussian() + 0.5 * Linear()``.

    Parameters
    ----------
    kernels : tuple of Kernel
        The kernels :math:`K_j`.
    factors : tuple of float
        Their factors :math:`a_j > 0`.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Gaussian, Linear
    >>> kernel = Gaussian() + 0.5 * Linear()
    >>> kernel(torch.ones(1, 2), torch.ones(1, 2))
    tensor([[2.]])
    """

    kernels: tuple[Kernel, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", check_kernels(self.kernels))
        object.__setattr__(self, "factors", tuple(map(check_factor, self.factors)))
        if len(self.factors) != len(self.kernels):
            raise ParameterError(
                f"factors must be one for each of {len(self.kernels)} kernels, got {self.factors!r}"
            )

    def diag(self, X: Tensor) -> Tensor:
        parts = [a * kernel.diag(X) for kernel, a in zip(self.kernels, self.factors, strict=True)]
        return torch.stack(parts).sum(0)

    def compute_against(self, Z: Tensor) -> Callable[[Tensor], Tensor]:
        blocks = [kernel.against(Z) for kernel in self.kernels]

        def compute(X: Tensor) -> Tensor:
            total = blocks[0](X).mul_(self.factors[0])
            for block, a in zip(blocks[1:], self.factors[1:], strict=True):
                total.add_(block(X), alpha=a)
            return total

        return compute


@final
@dataclass(frozen=True)
class KernelProduct(ComputedKernel):
    r"""Product of kernels, :math:`\prod_j K_j(x, z)`. Write ``Gaussian() * Matern()``.

    Parameters
    ----------
    kernels : tuple of Kernel
        The kernels :math:`K_j`.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Linear, Polynomial
    >>> (Linear() * Polynomial(2))(torch.ones(1, 2), torch.ones(1, 2))
    tensor([[18.]])
    """

    kernels: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", check_kernels(self.kernels))

    def diag(self, X: Tensor) -> Tensor:
        return torch.stack([kernel.diag(X) for kernel in self.kernels]).prod(0)

    def compute_against(self, Z: Tensor) -> Callable[[Tensor], Tensor]:
        blocks = [kernel.against(Z) for kernel in self.kernels]

        def compute(X: Tensor) -> Tensor:
            total = blocks[0](X)
            for block in blocks[1:]:
                total.mul_(block(X))
            return total

        return compute


@final
@dataclass(frozen=True)
class FunctionKernel(ComputedKernel):
    """A function of two blocks of rows. Write ``kernel=function``.

    It must be symmetric and positive definite, which is not checked, and the value of two rows must
    not depend on the rows beside them.

    Parameters
    ----------
    function : callable
        From tensors (n, d) and (m, d) of float32 or float64 to a matrix (n, m), a tensor or an
        array.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import FunctionKernel
    >>> kernel = FunctionKernel(lambda A, B: torch.exp(-torch.cdist(A, B, p=1)))
    >>> kernel(torch.zeros(1, 2), torch.ones(1, 2))
    tensor([[0.1353]])
    """

    function: Callable[[Tensor, Tensor], Any]

    def diag(self, X: Tensor) -> Tensor:
        blocks = torch.split(X, DIAGONAL_ROWS)
        return torch.cat([self.compute_against(rows)(rows).diagonal() for rows in blocks])

    def compute_against(self, Z: Tensor) -> Callable[[Tensor], Tensor]:
        def compute(X: Tensor) -> Tensor:
            K = torch.as_tensor(self.function(X, Z)).to(X)
            if K.shape != (len(X), len(Z)):
                raise ParameterError(
                    f"kernel must return a matrix with a row for each row of its first argument "
                    f"and a column for each of its second, {(len(X), len(Z))}, got shape "
                    f"{tuple(K.shape)} of {self.function!r}"
                )
            return K

        return compute


def add_kernels(one: Kernel, other: Kernel) -> KernelSum:
    """The sum of two kernels; sums stay flat."""
    terms = [
        each if isinstance(each, KernelSum) else KernelSum((each,), (1.0,)) for each in (one, other)
    ]
    return KernelSum(terms[0].kernels + terms[1].kernels, terms[0].factors + terms[1].factors)


def multiply_kernels(one: Kernel, other: Kernel) -> KernelProduct:
    """The product of two kernels; products stay flat."""
    factors = [
        each.kernels if isinstance(each, KernelProduct) else (each,) for each in (one, other)
    ]
    return KernelProduct(factors[0] + factors[1])


def scale_kernel(kernel: Kernel, factor: float) -> KernelSum:
    """A kernel times a positive number."""
    factor = check_factor(factor)
    if isinstance(kernel, KernelSum):
        return KernelSum(kernel.kernels, tuple(factor * a for a in kernel.factors))
    return KernelSum((kernel,), (factor,))


def check_kernels(kernels: Any) -> tuple[Kernel, ...]:
    """Kernels as a tuple, at least one."""
    checked = tuple(kernels)
    if not checked or not all(isinstance(kernel, Kernel) for kernel in checked):
        raise ParameterError(
            f"kernels must be at least one Kernel such as Gaussian(2.0), got {kernels!r}; write "
            f"FunctionKernel(function) for a function"
        )
    return checked


def check_factor(factor: Any) -> float:
    """A number that a kernel can be multiplied by."""
    if not isinstance(factor, Real) or not 0 < float(factor) < math.inf:
        raise ParameterError(
            f"the factor of a kernel must be a positive finite number, got {factor!r}; a kernel "
            f"times zero or less is no kernel"
        )
    return float(factor)
