"""Factors of K_mm in float64, whatever the dtype of the rows, and the preconditioner of FALKON."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from parkrr.errors import NotFiniteError

EPS = torch.finfo(torch.float64).eps


class Factor:
    """K_mm = U U' (m, m) in float64, by the first of three ways that works.

    Cholesky; Cholesky with jitter; the spectrum above the jitter, where U is (m, r). The jitter is
    what counts as zero beside the largest K(x, x). Real data has duplicate rows (two thirds of
    KEGG), which make K_mm singular.
    """

    def __init__(self, K_mm: Tensor, jitter: float) -> None:
        if not bool(torch.isfinite(K_mm).all()):
            raise NotFiniteError(
                "the kernel of the centres must be finite, but has infinite or NaN entries; "
                "scale the features, or choose a kernel that is bounded"
            )
        size = float(K_mm.diagonal().max())
        self.rescue = ""
        self.eigenvalues: Tensor | None = None
        U = cholesky(K_mm, smallest_pivot=jitter / 10 * size)
        if U is None:
            self.rescue = f"jitter {jitter:.0e}"
            U = cholesky(add_to_diagonal(K_mm, jitter * size), smallest_pivot=jitter / 10 * size)
        if U is None:
            values, vectors = torch.linalg.eigh(K_mm)
            large = values > jitter * size
            self.eigenvalues = values[large]  # (r,)
            self.rescue = f"cut-off {len(values) - int(large.sum())} of {len(values)}"
            U = vectors[:, large] * values[large].sqrt()
        self.U: Tensor = U  # (m, r)

    def solve(self, v: Tensor) -> Tensor:
        """U^-1 v, shape (r, t)."""
        if self.eigenvalues is not None:
            return (self.U.T @ v) / self.eigenvalues[:, None]
        return solve_triangular(self.U, v, upper=False)

    def solve_t(self, v: Tensor) -> Tensor:
        """U^-T v, shape (m, t)."""
        if self.eigenvalues is not None:
            return self.U @ (v / self.eigenvalues[:, None])
        return solve_triangular(self.U.T, v, upper=True)


def solve_triangular(A: Tensor, v: Tensor, *, upper: bool) -> Tensor:
    """A^-1 v for a triangular A, shape (r, t)."""
    solution: Tensor = torch.linalg.solve_triangular(A, v, upper=upper)
    return solution


def add_to_diagonal(A: Tensor, shift: float | Tensor) -> Tensor:
    """A + shift I, or A + diag(shift), as a new matrix."""
    A = A.clone()
    A.diagonal().add_(shift)
    return A


def cholesky(A: Tensor, smallest_pivot: float) -> Tensor | None:
    """The lower factor, or None if A is not positive definite beyond rounding."""
    L: Tensor
    L, info = torch.linalg.cholesky_ex(A)
    if int(info) != 0 or not float(L.diagonal().square().min()) > smallest_pivot:
        return None
    return L


def cholesky_or_nan(A: Tensor) -> Tensor:
    """The lower factor, or NaN if A is not positive definite."""
    L = cholesky(A, smallest_pivot=0.0)
    return torch.full_like(A, math.nan) if L is None else L


class Preconditioner:
    """B_q with B_q B_q' = (n/m K_mm W_m K_mm + lambda n K_mm)^-1 (paper, section 3.2).

    With K_mm = U U' and U' W_m U / m + lambda I = S S', B = U^-T S^-T / sqrt(n). W_m holds
    the weights of the centres, scaled to mean one; all are one in the paper.
    """

    def __init__(self, K_mm: Tensor, center_weights: Tensor | None, ridge: float, n: float) -> None:
        self.factor = Factor(K_mm, jitter=10 * len(K_mm) * EPS)
        U = self.factor.U  # (m, r)
        weighted = U if center_weights is None else center_weights[:, None] * U
        inner = U.T @ weighted / len(U)  # (r, r)
        self.penalty, self.n = ridge / n, n
        self.S, rescue = regular_cholesky(inner.clone, self.penalty)
        self.rescue = join_rescues(self.factor.rescue, rescue)

    def apply(self, v: Tensor) -> Tensor:
        """B v, shape (m, t)."""
        v = solve_triangular(self.S.T, v, upper=True)
        return self.factor.solve_t(v) / math.sqrt(self.n)

    def apply_t(self, v: Tensor) -> Tensor:
        """B' v, shape (r, t)."""
        return solve_triangular(self.S, self.factor.solve(v), upper=False) / math.sqrt(self.n)

    def ridge(self, v: Tensor) -> Tensor:
        """lambda n B' K_mm B v = lambda S^-1 S^-T v, shape (r, t)."""
        v = solve_triangular(self.S.T, v, upper=True)
        return self.penalty * solve_triangular(self.S, v, upper=False)


def join_rescues(*rescues: str) -> str:
    """The rescues that were needed, as one text."""
    return ", ".join(filter(None, rescues))


def cholesky_in_place(A: Tensor) -> Tensor | None:
    """The lower factor of a symmetric A in its memory, or None if it is not positive definite.

    LAPACK's columns are the rows of A, so that torch has nothing to copy: a cell of 14,000 rows
    takes 1.6 GB and not 4.7.
    """
    info = torch.empty((), dtype=torch.int32, device=A.device)
    L: Tensor
    L, info = torch.linalg.cholesky_ex(A.mT, out=(A.mT, info))
    return L if int(info) == 0 and float(L.diagonal().min()) > 0 else None


def regular_cholesky(build: Callable[[], Tensor], shift: float | Tensor) -> tuple[Tensor, str]:
    """The lower factor of A + shift I, and the jitter it took if rounding ate the shift.

    `build` makes A, which the factor takes the place of.
    """
    for jitter in (0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7):
        A = build()
        size = float(A.diagonal().max())
        A.diagonal().add_(shift + jitter * size)
        L = cholesky_in_place(A)
        if L is not None:
            return L, f"jitter {jitter:.0e}" if jitter else ""
    raise NotFiniteError(
        f"the local system must be finite, but its largest entry is {size:.1e}; scale the "
        f"features, or raise the penalty"
    )
