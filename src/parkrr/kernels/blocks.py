"""Kernel values of many blocks against fixed rows: one GEMM and one in-place map each.

Rows are *lifted* once, to (x, |x|^2, 1) or the like, so that a product of lifted rows is
already the squared distance. A :class:`KernelBlock` knows how, and what to make of it. It knows
no memory budget and no solver.
"""

import math
from abc import ABC, abstractmethod
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

# A block of kernel values stays in a core's L2 cache between the GEMM, the exponential and
# the products: 1 MiB of 2 MiB ran at 2.2e9 entries/s on two cores, 4 MiB at 0.5.
BLOCK_BYTES = 2**20
SHORTEST_BLOCK = 64  # rows; at m = 10,000 and d = 90, 52 rows ran 1.4 times as fast as 26


class Profile(Protocol):
    """What a section must know of a radial kernel."""

    n_buffers: int

    @property
    def coefficient(self) -> float: ...

    def profile(self, buffers: list[Tensor], near: bool) -> Tensor: ...


class Power(Protocol):
    """What a section must know of a polynomial kernel."""

    @property
    def degree(self) -> int: ...

    @property
    def gamma(self) -> float: ...

    @property
    def coef0(self) -> float: ...

    def diag(self, X: Tensor) -> Tensor: ...


class KernelBlock(ABC):
    """A function of lifted rows: a GEMM against `right`, then `shape` in place."""

    # (d', m), row after row: a GEMM against columns took 1.2 times as long, for one row 6 times.
    right: Tensor
    origin: Tensor | float = 0.0  # (d,)  from which rows are measured
    n_buffers = 1

    @abstractmethod
    def lift(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        """The rows as the GEMM wants them, shape (n, d'), in the dtype of Z.

        Sections of one kernel differ in their origin alone, so one call can lift rows for
        several of them, given the origin of each row (n, d).
        """

    @abstractmethod
    def shape(self, buffers: list[Tensor], near: bool) -> Tensor:
        """Turn the GEMM in buffers[0] into values, in place there."""

    def near(self, radius: float) -> bool:
        """Whether no value can underflow at rows up to that radius."""
        return True

    def radii(self, A: Tensor, starts: list[int]) -> list[float]:
        """Radius of each run of lifted rows A (n, d') that begins at one of `starts`."""
        return [0.0] * len(starts)

    def block_rows(self, n_rows: int) -> int:
        """How many of n_rows rows to take at a time."""
        return block_rows(self.right.shape[1], self.right.element_size(), n_rows)

    def workspace(self, n_rows: int) -> list[Tensor]:
        """Room for blocks of n_rows lifted rows, to be reused from block to block."""
        m = self.right.shape[1]
        return [self.right.new_empty(n_rows, m) for _ in range(self.n_buffers)]

    def values(self, A: Tensor, buffers: list[Tensor], near: bool) -> Tensor:
        """Values at lifted rows A (n, d'), shape (n, m): they are buffers[0]."""
        torch.mm(A, self.right, out=buffers[0])
        return self.shape(buffers, near)

    def __call__(self, A: Tensor) -> Tensor:
        """Values at lifted rows A (n, d'), shape (n, m), in memory of their own."""
        if not len(A):
            return self.right.new_empty(0, self.right.shape[1])
        near = len(A) > 1 and self.near(self.radii(A, [0])[0])  # of one row longer than a clamp
        return self.values(A, self.workspace(len(A)), near)


@final
class RadialBlock(KernelBlock):
    """A radial kernel against Z, from squared distances with the norms folded in the GEMM."""

    def __init__(self, kernel: Profile, Z: Tensor) -> None:
        c = kernel.coefficient
        self.kernel = kernel
        self.n_buffers = kernel.n_buffers
        # |x|^2 + |z|^2 - 2xz cancels far from the origin: at |x| ~ 100 a float32 kernel was
        # off by 4e-3. Distances do not change under a shift, so shift first.
        self.origin: Tensor = Z.mean(dim=0)  # (d,)
        self.scale = math.sqrt(abs(c))
        Z = self.scaled(Z, self.origin)  # (m, d)
        sq_norms = Z.square().sum(1, keepdim=True)  # (m, 1)
        self.farthest = math.sqrt(float(sq_norms.max()))
        if c > 0:
            # Distances that rounding cannot tell from zero become zero: the root would turn
            # 1e-7 into 3e-4, and a row would not have kernel 1 with its own copy.
            sq_norms -= 8 * torch.finfo(Z.dtype).eps * self.farthest**2
        right = torch.cat([-2 * Z.T, torch.ones_like(sq_norms).T, sq_norms.T])
        self.right = right.mul_(math.copysign(1.0, c))

    def scaled(self, X: Tensor, origin: Tensor, out: Tensor | None = None) -> Tensor:
        limit = coordinate_limit(X.shape[1], X.dtype)
        return torch.sub(X, origin, out=out).mul_(self.scale).clamp_(-limit, limit)

    def lift(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        X = X.to(self.right.dtype)
        A = X.new_ones(len(X), X.shape[1] + 2)  # (n, d + 2)
        x = self.scaled(X, self.origin if origin is None else origin, out=A[:, :-2])
        torch.sum(x.square(), 1, out=A[:, -2])
        return A

    def near(self, radius: float) -> bool:
        return (radius + self.farthest) ** 2 < -smallest_exponent(self.right.dtype)

    def radii(self, A: Tensor, starts: list[int]) -> list[float]:
        sq_norms = np.maximum.reduceat(A[:, -2].cpu().numpy(), starts)
        radii: list[float] = np.sqrt(sq_norms).tolist()
        return radii

    def shape(self, buffers: list[Tensor], near: bool) -> Tensor:
        return self.kernel.profile(buffers, near)


@final
class InnerProductBlock(KernelBlock):
    """<x, z>; or with `norms` |z|^2 - 2 <x, z>, which sorts Z by Euclidean distance to x."""

    def __init__(self, Z: Tensor, norms: bool = False) -> None:
        self.norms = norms
        sq_norms = Z.square().sum(1, keepdim=True)  # (m, 1)
        self.right = torch.cat([-2 * Z.T, sq_norms.T]) if norms else Z.T

    def lift(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        if not self.norms:
            return X.to(self.right.dtype)
        A = self.right.new_ones(len(X), X.shape[1] + 1)  # (n, d + 1)
        A[:, :-1] = X
        return A

    def shape(self, buffers: list[Tensor], near: bool) -> Tensor:
        return buffers[0]


@final
class PolynomialBlock(KernelBlock):
    """A polynomial kernel against Z; or with `distance` K(z, z) - 2 K(x, z)."""

    def __init__(self, kernel: Power, Z: Tensor, distance: bool = False) -> None:
        self.kernel = kernel
        constant = torch.full_like(Z[:, :1], kernel.coef0)
        self.right = torch.cat([Z.T * kernel.gamma, constant.T])
        self.diag = kernel.diag(Z) if distance else None

    def lift(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        A = X.to(self.right.dtype)
        return torch.cat([A, torch.ones_like(A[:, :1])], 1)

    def shape(self, buffers: list[Tensor], near: bool) -> Tensor:
        K = buffers[0].pow_(self.kernel.degree)
        return K if self.diag is None else K.mul_(-2).add_(self.diag)


def block_rows(m: int, itemsize: int, n_rows: int) -> int:
    """How many of n_rows rows to take at a time against m rows of numbers of so many bytes."""
    fits = BLOCK_BYTES // (itemsize * m)
    return min(max(SHORTEST_BLOCK, fits), max(1, n_rows))


def coordinate_limit(d: int, dtype: torch.dtype) -> float:
    """A coordinate of d this large still has a finite |x|^2; every kernel is 0 long before."""
    return float(torch.finfo(dtype).max ** 0.5) / (8 * d)


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
