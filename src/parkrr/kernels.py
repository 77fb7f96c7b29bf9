"""Positive-definite kernels: functions of two row blocks, and nothing else.

A kernel knows no memory budget, no cell and no solver. It turns X (n, d) and Z (m, d)
into K (n, m), on whatever device and dtype the inputs already have.

To add your own, derive from :class:`Radial` (a formula of the distance) or :class:`Kernel`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from numbers import Integral
from typing import final

import torch
from torch import Tensor

from parkrr.errors import ParameterError
from parkrr.lifting import (
    InnerSection,
    PolynomialSection,
    RadialSection,
    Section,
    exp_,
    root_,
)


class Kernel(ABC):
    """A positive-definite function K(x, z)."""

    @abstractmethod
    def diag(self, X: Tensor) -> Tensor:
        """K(x, x) of each row of X (n, d), shape (n,)."""

    @abstractmethod
    def against(self, Z: Tensor) -> Section:
        """K(., Z) for fixed rows Z (m, d), prepared for many blocks."""

    @abstractmethod
    def distance(self, C: Tensor) -> Section:
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

    def slope(self, Z: Tensor) -> Section:
        """S such that the gradient of K(., z) at x is S(x, z) (x - z), for rows Z (m, d)."""
        return RadialSection(Slope(self), Z)

    def against(self, Z: Tensor) -> Section:
        return RadialSection(self, Z)

    def distance(self, C: Tensor) -> Section:
        return InnerSection(C, norms=True)

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

    def against(self, Z: Tensor) -> Section:
        return PolynomialSection(self, Z)

    def distance(self, C: Tensor) -> Section:
        return PolynomialSection(self, C, distance=True)

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

    def against(self, Z: Tensor) -> Section:
        return InnerSection(Z)

    def distance(self, C: Tensor) -> Section:
        return InnerSection(C, norms=True)

    def among(self, Z: Tensor) -> Tensor:
        return Z @ Z.mT


KERNELS: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "matern": Matern,
    "polynomial": Polynomial,
    "linear": Linear,
}


def as_kernel(kernel: Kernel | str) -> Kernel:
    """The kernel itself, or the one of that name with its defaults.

    Examples
    --------
    >>> from parkrr.kernels import as_kernel
    >>> as_kernel("matern")
    Matern(lengthscale=1.0, nu=1.5)
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    raise ParameterError(f"kernel must be a Kernel or one of {sorted(KERNELS)}, got {kernel!r}")
