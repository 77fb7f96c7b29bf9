"""What a kernel is, and its values at many blocks of rows against fixed rows.

A kernel turns X (n, d) and Z (m, d) into K (n, m), on whatever device and dtype they have. To add
your own, derive from :class:`Radial` (a formula of the distance) or :class:`Kernel`.

A :class:`KernelBlock` prepares the fixed rows Z once; each block of rows X then costs one matrix
product and one map in place. Rows are *augmented* before the product, to (x, |x|^2, 1) or the like,
so that the product already is the squared distance.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Real
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from parkrr.errors import ParameterError, suggest
from parkrr.runtime import torch_threads

# A block of kernel values stays in a core's L2 cache between the GEMM, the exponential and
# the products: 1 MiB of 2 MiB ran at 2.2e9 entries/s on two cores, 4 MiB at 0.5.
BLOCK_BYTES = 2**20
SHORTEST_BLOCK = 64  # rows; at m = 10,000 and d = 90, 52 rows ran 1.4 times as fast as 26
GROUP_OF_ROWS = (
    4  # a product with one column sums so many rows in one order, what is left in others
)
TRIED_PRODUCTS = ((5, 97), (11, 300), (92, 300), (300, 1), (300, 3), (1000, 10))  # k and m
TRIED_ROWS = (1, 2, 3, 7, 8, 31, 77, 300)


class Kernel(ABC):
    """A positive-definite function K(x, z).

    Kernels can be added, multiplied, and multiplied by positive numbers.
    """

    __array_ufunc__ = None  # numpy leaves 0.5 * kernel to the kernel

    @abstractmethod
    def diag(self, X: Tensor) -> Tensor:
        """K(x, x) of each row of X (n, d), shape (n,)."""

    @abstractmethod
    def against(self, Z: Tensor) -> "KernelBlock":
        """K(., Z) for fixed rows Z (m, d), prepared for many blocks."""

    @abstractmethod
    def distance(self, C: Tensor) -> "KernelBlock":
        """What sorts centroids C (Q, d) by their RKHS distance to a row, eq. (5).

        K(x, x) is the same for every centroid, so K(c, c) - 2 K(x, c) is enough; and any
        increasing function of the distance is as good.
        """

    def __call__(self, X: Tensor, Z: Tensor) -> Tensor:
        """The kernel matrix K(X, Z), shape (n, m)."""
        return self.against(Z)(X)

    def among(self, Z: Tensor) -> Tensor:
        """The kernel matrices of many small sets of rows Z (b, k, d), shape (b, k, k)."""
        return torch.stack([self(rows, rows) for rows in Z])

    def __add__(self, other: "Kernel") -> "Kernel":
        from parkrr.kernels.composite import add_kernels  # noqa: PLC0415 - imports this module

        if not isinstance(other, Kernel):
            return NotImplemented
        return add_kernels(self, other)

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        from parkrr.kernels.composite import (  # noqa: PLC0415 - imports this module
            multiply_kernels,
            scale_kernel,
        )

        if isinstance(other, Kernel):
            return multiply_kernels(self, other)
        if not isinstance(other, Real):
            return NotImplemented
        return scale_kernel(self, other)

    __rmul__ = __mul__

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as in scikit-learn; none of a kernel that is not a dataclass.

        Several estimators may share a kernel, so it does not change and has no `set_params`:
        ``estimator.set_params(kernel__lengthscale=2.0)`` gives that estimator another kernel.

        Parameters
        ----------
        deep : bool, default=True
            Without effect: no parameter of a kernel has parameters.

        Returns
        -------
        dict
            From names to values.

        Examples
        --------
        >>> from parkrr import Matern
        >>> Matern(2.0).get_params()
        {'lengthscale': 2.0, 'nu': 1.5}
        """
        if not is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def __sklearn_clone__(self) -> "Kernel":
        """A copy, for `clone`, which would otherwise build a kernel of yours from `get_params`."""
        return copy.deepcopy(self)


def as_kernel(kernel: "Kernel | str | Callable[[Tensor, Tensor], Any]") -> Kernel:
    """The kernel itself, the one of that name with its defaults, or the one of a function.

    Examples
    --------
    >>> from parkrr.kernels import as_kernel
    >>> as_kernel("matern")
    Matern(lengthscale=1.0, nu=1.5)
    """
    from parkrr.kernels import KERNELS, FunctionKernel  # noqa: PLC0415 - which imports this module

    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    if callable(kernel) and not isinstance(kernel, type):
        return FunctionKernel(kernel)
    if kernel == "precomputed":
        raise ParameterError(
            "kernel cannot be 'precomputed', since rows find their cells by features; pass row "
            "numbers as X and kernel=lambda a, b: K[a[:, 0].long()][:, b[:, 0].long()] with the "
            "matrix K of all rows, a tensor"
        )
    raise ParameterError(
        f"kernel must be 'auto', a Kernel such as Gaussian(2.0), a function of two blocks of rows, "
        f"or one of {sorted(KERNELS)}, got {kernel!r}{suggest(kernel, KERNELS)}"
    )


class KernelBlock(ABC):
    """A function of rows and fixed rows Z (m, d): a product of both, then a map in place."""

    # The augmented rows Z (d', m), row after row: a GEMM against columns took 1.2 times as long,
    # for one row 6 times.
    fixed: Tensor
    origin: Tensor | float = 0.0  # (d,)  from which rows are measured
    n_buffers = 1

    @abstractmethod
    def augment(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        """The rows as the product needs them, shape (n, d'), in the dtype of Z.

        Blocks of one kernel differ in their origin alone, so one call can augment rows for
        several of them, given the origin of each row (n, d).
        """

    @abstractmethod
    def from_products(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        """Turn the products in buffers[0] into values, in place there."""

    def no_underflow(self, radius: float) -> bool:
        """Whether no value can underflow at rows up to that radius."""
        return True

    def radii(self, A: Tensor, starts: list[int]) -> list[float]:
        """Radius of each run of augmented rows A (n, d') that begins at one of `starts`."""
        return [0.0] * len(starts)

    def block_rows(self, n_rows: int) -> int:
        """How many of n_rows rows to take at a time."""
        return block_rows(self.fixed.shape[1], self.fixed.element_size(), n_rows)

    def workspace(self, n_rows: int) -> list[Tensor]:
        """Memory for blocks of n_rows augmented rows, to be reused from block to block."""
        m = self.fixed.shape[1]
        return [self.fixed.new_empty(n_rows, m) for _ in range(self.n_buffers)]

    def multiply_rows(self, A: Tensor, out: Tensor) -> None:
        """Products of augmented rows A (n, d'), shape (n, m)."""
        if min(out.shape) > 1:
            torch.mm(A, self.fixed, out=out)
        else:
            out.copy_(multiply(A, self.fixed))

    def values(self, A: Tensor, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        """Values at augmented rows A (n, d'), shape (n, m): they are buffers[0]."""
        self.multiply_rows(A, buffers[0])
        return self.from_products(buffers, no_underflow)

    def values_of(self, A: Tensor) -> Tensor:
        """Values at augmented rows A (n, d'), shape (n, m), in memory of their own."""
        if not len(A):
            return self.fixed.new_empty(0, self.fixed.shape[1])
        # Of a few rows this check takes longer than the clamp that it would save.
        no_underflow = len(A) > GROUP_OF_ROWS and self.no_underflow(self.radii(A, [0])[0])
        return self.values(A, self.workspace(len(A)), no_underflow)

    def values_of_one(self, group: Tensor) -> Tensor:
        """Values at one row, given as a group (g, d) of its copies: the first row of (g, m).

        Products, here and with these values, need the other rows to add up as among many. The map
        does not, which takes longer than the product from some 1,000 fixed rows on.
        """
        A = self.augment(group)  # (g, d')
        values, *others = self.workspace(len(A))
        self.multiply_rows(A, values)
        self.from_products([values[:1], *(other[:1] for other in others)], no_underflow=False)
        return values

    def __call__(self, X: Tensor) -> Tensor:
        """Values at rows X (n, d), shape (n, m)."""
        return self.values_of(self.augment(X))

    def multiply(self, X: Tensor, weights: Tensor) -> Tensor:
        """Values at rows X (n, d) times weights (m, t), shape (n, t).

        All blocks share their memory. Where each had its own, with a part of the result in between,
        a slice of 2 million rows against 1,000 centres took 2 GB more.
        """
        rows = self.block_rows(len(X))
        workspace, out = self.workspace(rows), weights.new_empty(len(X), weights.shape[1])
        for start in range(0, len(X), rows):
            A = self.augment(X[start : start + rows])
            buffers = [buffer[: len(A)] for buffer in workspace]
            K = self.values(A, buffers, self.no_underflow(self.radii(A, [0])[0]))
            out[start : start + rows] = multiply(K, weights)
        return out

    def argmin(self, X: Tensor) -> Tensor:
        """For distances: the number of the nearest fixed row of each row of X (n, d), shape (n,).

        Ties go to the smaller number.
        """
        A = self.augment(X)  # (n, d')
        rows = self.block_rows(len(A))
        workspace = self.workspace(rows)
        nearest = np.empty(len(A), dtype=np.int64)
        for start in range(0, len(A), rows):
            part, out = A[start : start + rows], nearest[start : start + rows]
            D = self.values(part, [buffer[: len(part)] for buffer in workspace], no_underflow=True)
            if D.device.type == "cpu":  # torch's argmin reads 0.5e9 entries/s there, numpy's 6e9
                np.argmin(D.numpy(), axis=1, out=out)
            else:
                out[:] = D.argmin(1).cpu().numpy()
        return torch.from_numpy(nearest).to(X.device)

    def nearest(self, X: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """For distances: the `count` nearest fixed rows of each row of X (n, d).

        Their numbers, and how much farther than the nearest each of them is, (n, count) both.
        """
        A = self.augment(X)
        blocks = torch.split(A, self.block_rows(len(A)))
        parts = [self.values_of(block).topk(count, dim=1, largest=False) for block in blocks]
        distances = torch.cat([part.values for part in parts])
        return torch.cat([part.indices for part in parts]), distances - distances[:, :1]


@final
class InnerProductBlock(KernelBlock):
    """<x, z>; or with `norms` |z|^2 - 2 <x, z>, which sorts Z by Euclidean distance to x.

    Weights (d,) of the features are for both, x and z.
    """

    def __init__(self, Z: Tensor, norms: bool = False, weights: Tensor | None = None) -> None:
        self.norms = norms
        if weights is not None:
            weights = weights.to(Z)
            Z = Z * weights
        sq_norms = Z.square().sum(1, keepdim=True)  # (m, 1)
        if weights is not None:
            Z = Z * weights  # <w x, w z> = <x, w^2 z>
        self.fixed = torch.cat([-2 * Z.T, sq_norms.T]) if norms else Z.T

    def augment(self, X: Tensor, origin: Tensor | None = None) -> Tensor:
        if not self.norms:
            return X.to(self.fixed.dtype)
        A = self.fixed.new_ones(len(X), X.shape[1] + 1)  # (n, d + 1)
        A[:, :-1] = X
        return A

    def from_products(self, buffers: list[Tensor], no_underflow: bool) -> Tensor:
        return buffers[0]


def multiply(A: Tensor, B: Tensor) -> Tensor:
    """A @ B of A (n, k) and B (k, m), where a row of the result does not depend on the others.

    BLAS adds up a single row, or a single column, in another order than several. With weights of
    5,000 times the spread of the target, that changed predictions in float32 by 1e-3 of it between
    a batch and its rows one by one. So a row is never alone, and a column is multiplied with full
    groups of rows. Bitwise so for MKL with AVX-512; see `depends_on_batch` for the others.
    """
    n = len(A)
    if B.shape[1] > 1:
        return A @ B if n != 1 else (torch.cat([A, A]) @ B)[:1]
    rest = n % GROUP_OF_ROWS
    if rest == 0:
        return A @ B
    group = A.new_zeros(GROUP_OF_ROWS, A.shape[1])
    group[:rest] = A[n - rest :]
    last = (group @ B)[:rest]
    return last if n == rest else torch.cat([A[: n - rest] @ B, last])


@cache
def depends_on_batch() -> bool:
    """Whether BLAS on this machine, in float32, lets rows of a product depend on the others.

    Tried once a process, on one thread as predictions are, with shapes of distances and of
    predictions. MKL does not with AVX-512, but does with AVX2.
    """
    with torch_threads(1):
        return try_products()


def try_products() -> bool:
    """Whether rows of some product differ from the same rows among others."""
    random = torch.Generator().manual_seed(0)
    for k, m in TRIED_PRODUCTS:
        A, B = torch.randn(TRIED_ROWS[-1], k, generator=random), torch.randn(k, m, generator=random)
        together = multiply(A, B)
        if any(not torch.equal(multiply(A[-n:], B), together[-n:]) for n in TRIED_ROWS):
            return True
    return False


def block_rows(m: int, itemsize: int, n_rows: int) -> int:
    """How many of n_rows rows to take at a time against m rows of numbers of so many bytes."""
    rows_in_cache = BLOCK_BYTES // (itemsize * m)
    return min(max(SHORTEST_BLOCK, rows_in_cache), max(1, n_rows))


def coordinate_limit(d: int, dtype: torch.dtype) -> float:
    """A coordinate of d this large still has a finite |x|^2; every kernel is 0 long before."""
    return float(torch.finfo(dtype).max ** 0.5) / (8 * d)
