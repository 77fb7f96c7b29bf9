"""Kernels of the distance alone, and the gradients of models made of them.

For f = sum_j alpha_j K(., z_j) with a radial kernel the gradient at x is
sum_j alpha_j S(x, z_j) (x - z_j), two products with the slopes S.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from parkrr.errors import ParameterError
from parkrr.kernels.base import Kernel
from parkrr.kernels.blocks import InnerProductBlock, KernelBlock, RadialBlock, exp_, root_


class Radial(Kernel):
    """A kernel of the distance alone. K(x, x) = 1, so its cells are Euclidean Voronoi cells."""

    lengthscale: float
    n_buffers = 1

    @property
    @abstractmethod
    def coefficient(self) -> float:
        """c such that the kernel is a plain function of c |x - z|^2."""

    @abstractmethod
    def profile(self, buffers: list[Tensor], near: bool) -> Tensor:
        """K from c |x - z|^2 in buffers[0], in place; `near` promises no underflow."""

    @abstractmethod
    def derivative(self, buffers: list[Tensor]) -> Tensor:
        """The derivative of the profile by |c| |x - z|^2, in place as there; 0 where x = z."""

    def diag(self, X: Tensor) -> Tensor:
        return X.new_ones(len(X))

    def slope(self, Z: Tensor) -> KernelBlock:
        """S such that the gradient of K(., z) at x is S(x, z) (x - z), for rows Z (m, d)."""
        return RadialBlock(Slope(self), Z)

    def against(self, Z: Tensor) -> KernelBlock:
        return RadialBlock(self, Z)

    def distance(self, C: Tensor) -> KernelBlock:
        return InnerProductBlock(C, norms=True)

    def among(self, Z: Tensor) -> Tensor:
        D = torch.cdist(Z, Z, compute_mode="donot_use_mm_for_euclid_dist")
        squares = D.square_().mul_(self.coefficient)
        return self.profile([squares, *[torch.empty_like(D)] * (self.n_buffers - 1)], near=False)

    def at(self, lengthscale: float) -> "Radial":
        """The same kernel with another lengthscale."""
        return replace(self, lengthscale=lengthscale)  # type: ignore[type-var]

    def check_lengthscale(self) -> None:
        if not 1e-100 <= self.lengthscale <= 1e100:  # also rejects NaN; its square is used
            raise ParameterError(
                f"lengthscale must be between 1e-100 and 1e100, got {self.lengthscale!r}; "
                f"scale the features instead"
            )


@final
@dataclass(frozen=True)
class Slope:
    """The slope of a radial kernel, in the form of a kernel's profile."""

    kernel: Radial
    n_buffers = 2

    @property
    def coefficient(self) -> float:
        return self.kernel.coefficient

    def profile(self, buffers: list[Tensor], near: bool) -> Tensor:
        return self.kernel.derivative(buffers).mul_(2 * abs(self.coefficient))


@final
@dataclass(frozen=True)
class Gaussian(Radial):
    r"""Gaussian kernel, :math:`K(x, z) = \exp(-\|x - z\|^2 / 2\ell^2)`.

    Parameters
    ----------
    lengthscale
        The width :math:`\ell > 0`, in the units of the features.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Gaussian
    >>> Gaussian(2.0)(torch.zeros(1, 3), torch.ones(1, 3))
    tensor([[0.6873]])
    """

    lengthscale: float = 1.0

    def __post_init__(self) -> None:
        self.check_lengthscale()

    @property
    def coefficient(self) -> float:
        return -0.5 / self.lengthscale**2

    def profile(self, buffers: list[Tensor], near: bool) -> Tensor:
        return exp_(buffers[0], near)

    def derivative(self, buffers: list[Tensor]) -> Tensor:
        return exp_(buffers[0], near=False).neg_()


@final
@dataclass(frozen=True)
class Laplacian(Radial):
    r"""Laplacian kernel on the L2 distance, :math:`K(x, z) = \exp(-\|x - z\|_2 / \ell)`.

    scikit-learn's kernel of the same name uses the L1 distance; this one is a GEMM.

    Parameters
    ----------
    lengthscale
        The width :math:`\ell > 0`, in the units of the features.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Laplacian
    >>> Laplacian(2.0)(torch.zeros(1, 4), torch.ones(1, 4))
    tensor([[0.3679]])
    """

    lengthscale: float = 1.0

    def __post_init__(self) -> None:
        self.check_lengthscale()

    @property
    def coefficient(self) -> float:
        return 1 / self.lengthscale**2

    def profile(self, buffers: list[Tensor], near: bool) -> Tensor:
        return exp_(root_(buffers[0]).neg_(), near=True)

    def derivative(self, buffers: list[Tensor]) -> Tensor:
        return half_decay_(*buffers)


@final
@dataclass(frozen=True)
class Matern(Radial):
    r"""Matern kernel; with :math:`a = \sqrt{2\nu}\,\|x - z\| / \ell`,

    :math:`e^{-a}` for :math:`\nu = 1/2`, :math:`(1 + a) e^{-a}` for 3/2 and
    :math:`(1 + a + a^2/3) e^{-a}` for 5/2.

    Parameters
    ----------
    lengthscale
        The width :math:`\ell > 0`, in the units of the features.
    nu
        Smoothness: 0.5, 1.5 or 2.5.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Matern
    >>> Matern(2.0, nu=1.5)(torch.zeros(1, 3), torch.ones(1, 3))
    tensor([[0.5578]])
    """

    lengthscale: float = 1.0
    nu: float = 1.5
    n_buffers = 2  # the distance and its exponential at once

    def __post_init__(self) -> None:
        self.check_lengthscale()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ParameterError(f"nu must be one of 0.5, 1.5, 2.5, got {self.nu!r}")

    @property
    def coefficient(self) -> float:
        return 2 * self.nu / self.lengthscale**2

    def profile(self, buffers: list[Tensor], near: bool) -> Tensor:
        a = root_(buffers[0])
        if self.nu == 0.5:
            return exp_(a.neg_(), near=True)
        decay = exp_(torch.neg(a, out=buffers[1]), near=True)
        if self.nu == 2.5:
            a.addcmul_(a, a, value=1 / 3)  # a + a^2 / 3
        return a.add_(1).mul_(decay)

    def derivative(self, buffers: list[Tensor]) -> Tensor:
        if self.nu == 0.5:
            return half_decay_(*buffers)
        a = root_(buffers[0])
        decay = exp_(torch.neg(a, out=buffers[1]), near=True)
        if self.nu == 1.5:
            return a.copy_(decay).mul_(-1 / 2)
        return a.add_(1).mul_(decay).mul_(-1 / 6)


def half_decay_(squares: Tensor, room: Tensor) -> Tensor:
    """The derivative -exp(-a) / 2a of exp(-a) by a^2, in place of a^2; 0 where a = 0."""
    a = root_(squares)
    decay = exp_(torch.neg(a, out=room), near=True)
    apart = a > 0
    return a.reciprocal_().mul_(decay).mul_(-1 / 2).where(apart, 0.0)


def gradients(kernel: Radial, weights: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    """Of all outputs at rows X (n, e), shape (t, n, e).

    Parameters
    ----------
    weights, Z
        Coefficients (m, t) of the centres Z (m, e).
    """
    section = kernel.slope(Z)
    alpha = weights.to(Z.dtype)
    parts = []
    for x in torch.split(X.to(Z.dtype), section.block_rows(len(X))):
        S = section(section.lift(x))  # (b, m)
        parts.append(torch.stack([x * (S @ a) - S @ (a * Z) for a in alpha.T[:, :, None]]))
    return torch.cat(parts, 1)


def gradient_products(kernel: Radial, weights: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    """Sum over rows X (n, e) and outputs of grad f grad f', shape (e, e)."""
    G = gradients(kernel, weights, Z, X).flatten(0, 1).double()  # (t n, e)
    return G.T @ G
