"""Kernel values of many blocks against fixed rows: one GEMM and one in-place map each.

Rows are *lifted* once, to (x, |x|^2, 1) or the like, so that a product of lifted rows is
already the squared distance. A :class:`Section` knows how, and what to make of it. It knows
no memory budget and no solver.
"""

import math
from abc import ABC, abstractmethod
from typing import Protocol, final

import torch
from torch import Tensor


class Profile(Protocol):
    """What a section must know of a radial kernel."""

    n_buffers: int

    @property
    def coefficient(self) -> float: ...

    def profile(self, buffers: Tensor, near: bool) -> Tensor: ...


class Power(Protocol):
    """What a section must know of a polynomial kernel."""

    @property
    def degree(self) -> int: ...

    @property
    def gamma(self) -> float: ...

    @property
    def coef0(self) -> float: ...

    def diag(self, X: Tensor) -> Tensor: ...


class Section(ABC):
    """A function of lifted rows: a GEMM against `right`, then `shape` in place."""

    right: Tensor  # (d', m)
    n_buffers = 1

    @abstractmethod
    def lift(self, X: Tensor) -> Tensor:
        """The rows as the GEMM wants them, shape (n, d'), in the dtype of Z."""

    @abstractmethod
    def shape(self, A: Tensor, buffers: Tensor) -> Tensor:
        """Turn the GEMM in buffers[0] into values, in place."""

    def workspace(self, n_rows: int) -> Tensor:
        """Room for blocks of up to n_rows lifted rows, to be reused from block to block."""
        return self.right.new_empty(self.n_buffers, n_rows, self.right.shape[1])

    def __call__(self, A: Tensor, workspace: Tensor | None = None) -> Tensor:
        """Values at lifted rows A (n, d'), shape (n, m): a view of the workspace."""
        buffers = (self.workspace(len(A)) if workspace is None else workspace)[:, : len(A)]
        torch.mm(A, self.right, out=buffers[0])
        return self.shape(A, buffers)


@final
class RadialSection(Section):
    """A radial kernel against Z, from squared distances with the norms folded in the GEMM."""

    def __init__(self, kernel: Profile, Z: Tensor) -> None:
        c = kernel.coefficient
        self.kernel = kernel
        self.n_buffers = kernel.n_buffers
        # |x|^2 + |z|^2 - 2xz cancels far from the origin: at |x| ~ 100 a float32 kernel was
        # off by 4e-3. Distances do not change under a shift, so shift first.
        self.origin = Z.mean(dim=0)  # (d,)
        self.scale = math.sqrt(abs(c))
        Z = self.scaled(Z)  # (m, d)
        sq_norms = Z.square().sum(1, keepdim=True)  # (m, 1)
        self.farthest = float(sq_norms.max()) ** 0.5
        if c > 0:
            # Distances that rounding cannot tell from zero become zero: the root would turn
            # 1e-7 into 3e-4, and a row would not have kernel 1 with its own copy.
            sq_norms -= 8 * torch.finfo(Z.dtype).eps * self.farthest**2
        sign = math.copysign(1.0, c)
        self.right = torch.cat([-2 * Z, torch.ones_like(sq_norms), sq_norms], 1).mul_(sign).T

    def scaled(self, X: Tensor) -> Tensor:
        return ((X - self.origin) * self.scale).clamp_(-farthest(X), farthest(X))

    def lift(self, X: Tensor) -> Tensor:
        A = X.new_empty(len(X), X.shape[1] + 2, dtype=self.right.dtype)  # (n, d + 2)
        X = self.scaled(X.to(A.dtype))
        A[:, :-2] = X
        A[:, -2] = X.square().sum(1)
        A[:, -1] = 1
        return A

    def shape(self, A: Tensor, buffers: Tensor) -> Tensor:
        reach = float(A[:, -2].max()) ** 0.5 + self.farthest
        return self.kernel.profile(buffers, near=reach**2 < -smallest_exponent(A.dtype))


@final
class InnerSection(Section):
    """<x, z>; or with `norms` |z|^2 - 2 <x, z>, which sorts Z by Euclidean distance to x."""

    def __init__(self, Z: Tensor, norms: bool = False) -> None:
        self.norms = norms
        sq_norms = Z.square().sum(1, keepdim=True)  # (m, 1)
        self.right = (torch.cat([-2 * Z, sq_norms], 1) if norms else Z).T

    def lift(self, X: Tensor) -> Tensor:
        A = X.to(self.right.dtype)
        return torch.cat([A, torch.ones_like(A[:, :1])], 1) if self.norms else A

    def shape(self, A: Tensor, buffers: Tensor) -> Tensor:
        return buffers[0]


@final
class PolynomialSection(Section):
    """A polynomial kernel against Z; or with `distance` K(z, z) - 2 K(x, z)."""

    def __init__(self, kernel: Power, Z: Tensor, distance: bool = False) -> None:
        self.kernel = kernel
        constant = torch.full_like(Z[:, :1], kernel.coef0)
        self.right = torch.cat([Z * kernel.gamma, constant], 1).T
        self.diag = kernel.diag(Z) if distance else None

    def lift(self, X: Tensor) -> Tensor:
        A = X.to(self.right.dtype)
        return torch.cat([A, torch.ones_like(A[:, :1])], 1)

    def shape(self, A: Tensor, buffers: Tensor) -> Tensor:
        K = buffers[0].pow_(self.kernel.degree)
        return K if self.diag is None else K.mul_(-2).add_(self.diag)


def farthest(X: Tensor) -> float:
    """A coordinate this large still has a finite |x|^2; every kernel is 0 long before."""
    return float(torch.finfo(X.dtype).max ** 0.5) / (8 * X.shape[1])


def smallest_exponent(dtype: torch.dtype) -> float:
    """Below this exp(x) is subnormal, give or take one: -86.3 in float32, -707 in float64."""
    return math.log(torch.finfo(dtype).tiny) + 1


def exp_(G: Tensor, near: bool) -> Tensor:
    """exp(G) in place for G <= 0; `near` promises that no entry underflows."""
    # Below this exponent torch's exp on Intel falls from 2.7e9 to 0.03e9 entries/s, and
    # rounding can leave G slightly above 0 far from the origin. A clamp runs at 10e9.
    return G.exp_() if near else G.clamp_(smallest_exponent(G.dtype), 0).exp_()


def root_(G: Tensor) -> Tensor:
    """sqrt(G) in place, for squared distances G that rounding may leave below 0."""
    return G.clamp_(0, smallest_exponent(G.dtype) ** 2).sqrt_()
