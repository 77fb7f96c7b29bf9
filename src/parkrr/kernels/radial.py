"""Kernels of the distance alone, and the gradients of models made of them.

For f = sum_j alpha_j K(., z_j) with a radial kernel the gradient at x is
sum_j alpha_j S(x, z_j) (x - z_j), two products with the slopes S.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from parkrr.errors import ParameterError
from parkrr.kernels.base import InnerProductBlock, Kernel, KernelBlock, coordinate_limit

ORIGIN_ROWS = 64  # among which the usual distance is looked for
# Times the usual distance from the median: a mean further away than OFF is that of a few centres,
# and those further than FAR do not decide what is zero for others.
OFF, FAR = 10.0, 4.0


class Radial(Kernel):
    """A kernel of the distance alone. K(x, x) = 1, so its cells are Euclidean Voronoi cells.

    With a lengthscale for each feature, distances are those of features over their lengthscales.
    """

    lengthscale: float | Sequence[float]
    n_buffers = 1  # that its profile needs

    def __post_init__(self) -> None:
        lengthscale: Any = getattr(self, "lengthscale", 1.0)  # which a kernel of yours may not have
        several = isinstance(lengthscale, list | tuple | np.ndarray)
        values = list(lengthscale) if several and len(lengthscale) else [lengthscale]
        if not all(isinstance(value, Real) for value in values):
            raise ParameterError(
                f"lengthscale must be one number, or one for each feature, got {lengthscale!r}; "
                f"kernel='gaussian' has it chosen, with a weight for each feature"
            )
        if not all(1e-100 <= float(value) <= 1e100 for value in values):
            # Also rejects NaN; its square is used.
            raise ParameterError(
                f"lengthscale must be between 1e-100 and 1e100, got {lengthscale!r}; "
                f"scale the features instead"
            )
        if several:  # a tuple can be hashed, as kernels are
            object.__setattr__(self, "lengthscale", tuple(map(float, values)))

    @property
    def one_lengthscale(self) -> float:
        """The lengthscale, of a kernel that has the same for all features."""
        assert not isinstance(self.lengthscale, Sequence)
        return self.lengthscale

    def split_lengthscales(self, d: int) -> "tuple[Radial, Tensor | None]":
        """A kernel with one lengthscale, and the weights of d features before it.

        None if they need no weights.
        """
        lengthscales = getattr(self, "lengthscale", 1.0)
        if not isinstance(lengthscales, Sequence):
            return self, None
        if len(lengthscales) != d:
            raise ParameterError(
                f"lengthscale must be one number, or one for each of the {d} columns that the "
                f"kernel gets, got {len(lengthscales)} of them in {self!r}; columns of categories, "
                f"dates and text become several"
            )
        return self.with_lengthscale(1.0), 1 / torch.tensor(lengthscales, dtype=torch.float64)

    @property
    @abstractmethod
    def coefficient(self) -> float:
        """c such that the kernel is a plain function of c |x - z|^2.

        Let it be positive if the function takes the root of it: then distances that rounding cannot
        distinguish from zero are set to zero.
        """

    @abstractmethod
    def profile(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        """K from c |x - z|^2 in buffers[0], in place."""

    @abstractmethod
    def derivative(self, buffers: list[Tensor]) -> Tensor:
        """The derivative of the profile by |c| |x - z|^2, in place as there.

        Where it is infinite at x = z, as for the Laplacian kernel, it must be 0 there.
        """

    def diag(self, X: Tensor) -> Tensor:
        return X.new_ones(len(X))

    def against(self, Z: Tensor) -> KernelBlock:
        return RadialBlock(self, Z)

    def slope(self, Z: Tensor) -> KernelBlock:
        """S such that the gradient of K(., z) at x is S(x, z) (x - z), for rows Z (m, d).

        With a lengthscale for each feature, the gradient is that over their squares.
        """
        return RadialBlock(self, Z, slope=True)

    def with_slope(self, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """K and slopes S (b, n, m) of sets of rows X (b, n, d) and Z (b, m, d), from one product.

        For sets without outliers: each is shifted by its mean.
        """
        c = self.coefficient
        origin = Z.mean(1, keepdim=True)
        x, z = ((A - origin) * math.sqrt(abs(c)) for A in (X, Z))
        x_norms, z_norms = (A.square().sum(2, keepdim=True) for A in (x, z))
        if c > 0:  # what rounding cannot tell from zero becomes zero; see RadialBlock
            z_norms -= 8 * torch.finfo(z.dtype).eps * z_norms.amax(1, keepdim=True)
        left = torch.cat([x, x_norms, torch.ones_like(x_norms)], 2)
        right = torch.cat([-2 * z, torch.ones_like(z_norms), z_norms], 2).mul_(math.copysign(1, c))
        K, S = self.profile_and_derivative(left @ right.mT)
        return K, S.mul_(2 * abs(c))

    def profile_and_derivative(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """The profile and its derivative by |c| |x - z|^2, from c |x - z|^2, which is lost."""
        buffers = [squares.clone(), torch.empty_like(squares)]
        K = self.profile(buffers[: self.n_buffers], no_underflow=False)
        return K, self.derivative([squares, torch.empty_like(squares)])

    def distance(self, C: Tensor) -> KernelBlock:
        _, weights = self.split_lengthscales(C.shape[1])
        return InnerProductBlock(C, norms=True, weights=weights)

    def among(self, Z: Tensor) -> Tensor:
        kernel, weights = self.split_lengthscales(Z.shape[-1])
        Z = Z if weights is None else Z * weights.to(Z)
        D = torch.cdist(Z, Z, compute_mode="donot_use_mm_for_euclid_dist")
        squares = D.square_().mul_(kernel.coefficient)
        buffers = [squares, *[torch.empty_like(D)] * (self.n_buffers - 1)]
        return kernel.profile(buffers, no_underflow=False)

    def with_lengthscale(self, lengthscale: float) -> "Radial":
        """The same kernel with another lengthscale."""
        return replace(self, lengthscale=lengthscale)  # type: ignore[type-var]


@final
class RadialBlock(KernelBlock):
    """A radial kernel against Z, or its slope; the product gives squared distances."""

    def __init__(self, kernel: Radial, Z: Tensor, slope: bool = False) -> None:
        kernel, weights = kernel.split_lengthscales(Z.shape[1])
        c = kernel.coefficient
        self.kernel, self.slope = kernel, slope
        self.n_buffers = 2 if slope else kernel.n_buffers
        # |x|^2 + |z|^2 - 2xz cancels far from the origin: at |x| ~ 100 a float32 kernel was
        # off by 4e-3. Distances do not change under a shift, so shift first.
        self.origin: Tensor
        self.origin, radius = find_origin(Z)
        unit = math.sqrt(abs(c))
        self.scale: float | Tensor = unit
        if weights is not None:
            self.scale = weights.to(Z) * unit
            _, radius = find_origin(Z * weights.to(Z))
        Z = self.rescale(Z, self.origin)  # (m, d)
        sq_norms = Z.square().sum(1, keepdim=True)  # (m, 1)
        self.farthest = math.sqrt(float(sq_norms.max()))
        if c > 0:
            # Distances that rounding cannot tell from zero become zero: the root would turn
            # 1e-7 into 3e-4, and a row would not have kernel 1 with its own copy. A centre far from
            # all others is less exact, but does not make them so.
            usual = min(self.farthest, FAR * radius * unit) ** 2
            sq_norms -= 8 * torch.finfo(Z.dtype).eps * sq_norms.clamp(usual, self.farthest**2)
        fixed = torch.cat([-2 * Z.T, torch.ones_like(sq_norms).T, sq_norms.T])
        self.fixed = fixed.mul_(math.copysign(1.0, c))

    def rescale(self, X: Tensor, origin: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows from their origin, in units in which the kernel is a function of +-|x - z|^2."""
        limit = coordinate_limit(X.shape[1], X.dtype)
        return torch.sub(X, origin, out=out).mul_(self.scale).clamp_(-limit, limit)

    def augment(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        X = X.to(self.fixed.dtype)
        A = X.new_ones(len(X), X.shape[1] + 2)  # (n, d + 2)
        x = self.rescale(X, self.origin if origin is None else origin, out=A[:, :-2])
        torch.sum(x.square(), 1, out=A[:, -2])
        return A

    def no_underflow(self, radius: float) -> bool:
        return (radius + self.farthest) ** 2 < -smallest_exponent(self.fixed.dtype)

    def radii(self, A: Tensor, starts: list[int]) -> list[float]:
        sq_norms = np.maximum.reduceat(A[:, -2].cpu().numpy(), starts)
        radii: list[float] = np.sqrt(sq_norms).tolist()
        return radii

    def from_products(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        if self.slope:
            return self.kernel.derivative(buffers).mul_(2 * abs(self.kernel.coefficient))
        return self.kernel.profile(buffers, no_underflow)


def find_origin(Z: Tensor) -> tuple[Tensor, float]:
    """A point (d,) amid the rows Z (m, d), and a distance from it within which most of them are.

    It is their mean, unless a few rows are so far away that the mean is nowhere near the others:
    one value of 1e12 among 1,000 takes all digits of float32 from distances to a mean of 1e9.
    """
    mean = Z.mean(dim=0)
    some = Z[:: max(1, len(Z) // ORIGIN_ROWS)]
    median = some.median(dim=0).values  # (d,)
    distances = torch.linalg.vector_norm((some - median).double(), dim=1)
    radius = float(distances.kthvalue(max(1, 3 * len(some) // 4)).values)
    if radius == 0:  # copies of one row: nothing shows what is far
        return mean, math.inf
    off = float(torch.linalg.vector_norm((mean - median).double()))
    return (mean, radius) if off <= OFF * radius else (median, radius)


@final
@dataclass(frozen=True)
class Gaussian(Radial):
    r"""Gaussian kernel, :math:`K(x, z) = \exp(-\|x - z\|^2 / 2\ell^2)`.

    Parameters
    ----------
    lengthscale : float or sequence of float, default 1.0
        The width :math:`\ell > 0`, in the units of the features, or one for each feature.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Gaussian
    >>> Gaussian(2.0)(torch.zeros(1, 3), torch.ones(1, 3))
    tensor([[0.6873]])
    >>> Gaussian([2.0, 1e6, 1e6])(torch.zeros(1, 3), torch.ones(1, 3))
    tensor([[0.8825]])
    """

    lengthscale: float | Sequence[float] = 1.0

    @property
    def coefficient(self) -> float:
        return -0.5 / self.one_lengthscale**2

    def profile(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        return exp_(buffers[0], no_underflow)

    def derivative(self, buffers: list[Tensor]) -> Tensor:
        return exp_(buffers[0], no_underflow=False).neg_()


@final
@dataclass(frozen=True)
class Laplacian(Radial):
    r"""Laplacian kernel on the L2 distance, :math:`K(x, z) = \exp(-\|x - z\|_2 / \ell)`.

    scikit-learn's kernel of the same name uses the L1 distance; this one is a GEMM.

    Parameters
    ----------
    lengthscale : float or sequence of float, default 1.0
        The width :math:`\ell > 0`, in the units of the features, or one for each feature.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Laplacian
    >>> Laplacian(2.0)(torch.zeros(1, 4), torch.ones(1, 4))
    tensor([[0.3679]])
    """

    lengthscale: float | Sequence[float] = 1.0

    @property
    def coefficient(self) -> float:
        return 1 / self.one_lengthscale**2

    def profile(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        return exp_(root_(buffers[0]).neg_(), no_underflow=True)

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
    lengthscale : float or sequence of float, default 1.0
        The width :math:`\ell > 0`, in the units of the features, or one for each feature.
    nu : {0.5, 1.5, 2.5}, default 1.5
        Smoothness.

    Examples
    --------
    >>> import torch
    >>> from parkrr.kernels import Matern
    >>> Matern(2.0, nu=1.5)(torch.zeros(1, 3), torch.ones(1, 3))
    tensor([[0.5578]])
    """

    lengthscale: float | Sequence[float] = 1.0
    nu: float = 1.5
    n_buffers = 2  # the distance and its exponential at once

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ParameterError(f"nu must be one of 0.5, 1.5, 2.5, got {self.nu!r}")

    @property
    def coefficient(self) -> float:
        return 2 * self.nu / self.one_lengthscale**2

    def profile(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        a = root_(buffers[0])
        if self.nu == 0.5:
            return exp_(a.neg_(), no_underflow=True)
        decay = exp_(torch.neg(a, out=buffers[1]), no_underflow=True)
        if self.nu == 2.5:
            a.addcmul_(a, a, value=1 / 3)  # a + a^2 / 3
        return a.add_(1).mul_(decay)

    def derivative(self, buffers: list[Tensor]) -> Tensor:
        if self.nu == 0.5:
            return half_decay_(*buffers)
        a = root_(buffers[0])
        decay = exp_(torch.neg(a, out=buffers[1]), no_underflow=True)
        if self.nu == 1.5:
            return a.copy_(decay).mul_(-1 / 2)
        return a.add_(1).mul_(decay).mul_(-1 / 6)

    def profile_and_derivative(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        if self.nu != 1.5:
            return super().profile_and_derivative(squares)
        # One root and one exponential for both: half the time of metric descents is here.
        a = root_(squares)
        decay = exp_(a.neg(), no_underflow=True)
        return a.add_(1).mul_(decay), decay.mul_(-1 / 2)


def half_decay_(squares: Tensor, buffer: Tensor) -> Tensor:
    """The derivative -exp(-a) / 2a of exp(-a) by a^2, in place of a^2; 0 where a = 0."""
    a = root_(squares)
    decay = exp_(torch.neg(a, out=buffer), no_underflow=True)
    apart = a > 0
    return a.reciprocal_().mul_(decay).mul_(-1 / 2).where(apart, 0.0)


def smallest_exponent(dtype: torch.dtype) -> float:
    """Below this exp(x) is subnormal, give or take one: -86.3 in float32, -707 in float64."""
    return math.log(torch.finfo(dtype).tiny) + 1


def exp_(G: Tensor, no_underflow: bool) -> Tensor:
    """exp(G) in place for G <= 0."""
    # Below this exponent torch's exp on Intel falls from 2.7e9 to 0.03e9 entries/s, and
    # rounding can leave G slightly above 0 far from the origin. A clamp runs at 10e9.
    return G.exp_() if no_underflow else G.clamp_(smallest_exponent(G.dtype), 0).exp_()


def root_(G: Tensor) -> Tensor:
    """sqrt(G) in place, for squared distances G that rounding may leave below 0."""
    return G.clamp_(0, smallest_exponent(G.dtype) ** 2).sqrt_()


def gradients(kernel: Radial, weights: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    """Gradients of all outputs at rows X (n, e), from weights (m, t) of centres Z (m, e).

    Shape (t, n, e).
    """
    slope = kernel.slope(Z)
    alpha = weights.to(Z.dtype)
    _, scale = kernel.split_lengthscales(Z.shape[1])
    parts = []
    for x in torch.split(X.to(Z.dtype), slope.block_rows(len(X))):
        S = slope(x)  # (b, m)
        parts.append(torch.stack([x * (S @ a) - S @ (a * Z) for a in alpha.T[:, :, None]]))
    G = torch.cat(parts, 1)
    return G if scale is None else G * scale.square().to(G)


def gradient_products(kernel: Radial, weights: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    """Sum over rows X (n, e) and outputs of grad f grad f', shape (e, e)."""
    G = gradients(kernel, weights, Z, X).flatten(0, 1).double()  # (t n, e)
    return G.T @ G
