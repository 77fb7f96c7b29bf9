"""Factors of K_mm in float64, whatever the dtype of the rows, and the preconditioner of FALKON.

Large matrices are cut into tiles of a fixed size, which threads share: LAPACK's own factor has
other last bits on one thread than on two.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from parkrr.errors import NotFiniteError
from parkrr.runtime import map_on_threads

EPS = torch.finfo(torch.float64).eps
# Rows or columns; up to so many LAPACK is as fast on one thread as tiles on two. On two threads a
# factor of 10,000 rows takes 6.1 s in tiles of 256, 4.7 of 384 and 5.5 of 512.
TILE = 384


class Factor:
    """K_mm = U U' (m, m) in float64, by the first of three ways that works.

    Cholesky; Cholesky with jitter; the spectrum above the jitter, where U is (m, r). The jitter is
    what counts as zero beside the largest K(x, x). Real data has duplicate rows (two thirds of
    KEGG), which make K_mm singular.
    """

    def __init__(self, K_mm: Tensor, jitter: float, n_threads: int = 1) -> None:
        if not bool(torch.isfinite(K_mm).all()):
            raise NotFiniteError(
                "the kernel of the centres must be finite, but has infinite or NaN entries; "
                "scale the features, or choose a kernel that is bounded"
            )
        size = float(K_mm.diagonal().max())
        self.fallback, self.n_threads = "", n_threads
        self.eigenvalues: Tensor | None = None
        smallest = jitter / 10 * size
        U = cholesky(K_mm, smallest, n_threads)
        if U is None:
            self.fallback = f"jitter {jitter:.0e}"
            U = cholesky(add_to_diagonal(K_mm, jitter * size), smallest, n_threads)
        if U is None:
            values, vectors = torch.linalg.eigh(K_mm)
            large = values > jitter * size
            self.eigenvalues = values[large]  # (r,)
            self.fallback = f"cut-off {len(values) - int(large.sum())} of {len(values)}"
            U = vectors[:, large] * values[large].sqrt()
        self.U: Tensor = U  # (m, r)

    def solve(self, v: Tensor) -> Tensor:
        """U^-1 v, shape (r, t)."""
        if self.eigenvalues is not None:
            return multiply(self.U.T, v, self.n_threads) / self.eigenvalues[:, None]
        return solve_triangular(self.U, v, upper=False, n_threads=self.n_threads)

    def solve_t(self, v: Tensor) -> Tensor:
        """U^-T v, shape (m, t)."""
        if self.eigenvalues is not None:
            return multiply(self.U, v / self.eigenvalues[:, None], self.n_threads)
        return solve_triangular(self.U.T, v, upper=True, n_threads=self.n_threads)


def solve_triangular(A: Tensor, v: Tensor, *, upper: bool, n_threads: int = 1) -> Tensor:
    """A^-1 v for a triangular A, shape (r, t)."""
    return by_columns(partial(torch.linalg.solve_triangular, A, upper=upper), v, n_threads)


def multiply(A: Tensor, v: Tensor, n_threads: int) -> Tensor:
    """A v, shape (r, t)."""
    return by_columns(partial(torch.mm, A), v, n_threads)


def by_columns(function: Callable[[Tensor], Tensor], v: Tensor, n_threads: int) -> Tensor:
    """function(v) of some columns of v (m, t) at a time, on threads."""
    if v.shape[1] <= TILE or v.device.type != "cpu":
        return function(v)
    return torch.cat(map_on_threads(function, torch.split(v, TILE, 1), n_threads), 1)


def add_to_diagonal(A: Tensor, shift: float | Tensor) -> Tensor:
    """A + shift I, or A + diag(shift), as a new matrix."""
    A = A.clone()
    A.diagonal().add_(shift)
    return A


def cholesky(A: Tensor, smallest_pivot: float, n_threads: int = 1) -> Tensor | None:
    """The lower factor, or None if A is not positive definite beyond rounding."""
    if len(A) <= TILE or A.device.type != "cpu":
        L, info = torch.linalg.cholesky_ex(A)
        L = L if int(info) == 0 else None
    else:
        L = factor_tiles(A.clone(), n_threads)
    return L if L is not None and float(L.diagonal().square().min()) > smallest_pivot else None


def factor_tiles(A: Tensor, n_threads: int) -> Tensor | None:
    """The lower factor of a symmetric A (n, n) in its memory; None if it is not positive definite.

    One column of tiles after the other: what the columns before it take away, the factor of the
    tile on the diagonal, and the tiles below it.
    """
    starts = range(0, len(A), TILE)
    for a in starts:
        column, before = A[:, a : a + TILE], A[a : a + TILE, :a]

        def subtract(i: int, column: Tensor = column, before: Tensor = before) -> None:
            own = slice(i, i + TILE)
            column[own].addmm_(A[own, : before.shape[1]], before.T, alpha=-1)

        map_on_threads(subtract, starts[a // TILE :] if a else (), n_threads)
        diagonal = column[a : a + TILE]
        L, info = torch.linalg.cholesky_ex(diagonal)
        if int(info) != 0:
            return None
        diagonal.copy_(L)

        def divide(i: int, column: Tensor = column, L: Tensor = L) -> None:
            own = column[i : i + TILE]
            own.copy_(torch.linalg.solve_triangular(L.T, own, upper=True, left=False))

        map_on_threads(divide, starts[a // TILE + 1 :], n_threads)
        column[:a] = 0.0
    return A


def cholesky_or_nan(A: Tensor) -> Tensor:
    """The lower factor, or NaN if A is not positive definite; on one thread."""
    L, info = torch.linalg.cholesky_ex(A)
    return L if int(info) == 0 else torch.full_like(A, math.nan)


def solve_factor(L: Tensor, v: Tensor) -> Tensor:
    """(L L')^-1 v; a tenth of the time of `torch.cholesky_solve`, which copies L."""
    half = torch.linalg.solve_triangular(L, v, upper=False)
    solved: Tensor = torch.linalg.solve_triangular(L.mT, half, upper=True)
    return solved


class Preconditioner:
    """B_q with B_q B_q' = (n/m K_mm W_m K_mm + lambda n K_mm)^-1 (paper, section 3.2).

    With K_mm = U U' and U' W_m U / m + lambda I = S S', B = U^-T S^-T / sqrt(n). W_m holds
    the weights of the centres, scaled to mean one; all are one in the paper.
    """

    def __init__(
        self,
        K_mm: Tensor,
        center_weights: Tensor | None,
        ridge: float,
        n: float,
        n_threads: int = 1,
    ) -> None:
        self.factor = Factor(K_mm, 10 * len(K_mm) * EPS, n_threads)
        U = self.factor.U  # (m, r)
        weighted = U if center_weights is None else center_weights[:, None] * U
        inner = multiply(U.T, weighted, n_threads) / len(U)  # (r, r)
        self.penalty, self.n = ridge / n, n
        self.S, fallback = regular_cholesky(inner.clone, self.penalty, n_threads)
        self.fallback = join_fallbacks(self.factor.fallback, fallback)

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


def join_fallbacks(*fallbacks: str) -> str:
    """The fallbacks that were needed, as one text."""
    return ", ".join(filter(None, fallbacks))


def cholesky_in_place(A: Tensor, n_threads: int = 1) -> Tensor | None:
    """The lower factor of a symmetric A in its memory, or None if it is not positive definite.

    A cell of 14,000 rows takes 1.6 GB and not the 4.7 of a factor beside it. LAPACK's columns are
    the rows of A, so that torch has nothing to copy.
    """
    if A.device.type == "cpu":
        L = factor_tiles(A.mT, n_threads)
    else:
        info = torch.empty((), dtype=torch.int32, device=A.device)
        L, info = torch.linalg.cholesky_ex(A.mT, out=(A.mT, info))
        L = L if int(info) == 0 else None
    return L if L is not None and float(L.diagonal().min()) > 0 else None


def regular_cholesky(
    build: Callable[[], Tensor], shift: float | Tensor, n_threads: int = 1
) -> tuple[Tensor, str]:
    """The lower factor of A + shift I, and the jitter it took if rounding ate the shift.

    `build` makes A, which the factor takes the place of.
    """
    for jitter in (0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7):
        A = build()
        size = float(A.diagonal().max())
        A.diagonal().add_(shift + jitter * size)
        L = cholesky_in_place(A, n_threads)
        if L is not None:
            return L, f"jitter {jitter:.0e}" if jitter else ""
    raise NotFiniteError(
        f"the local system must be finite, but its largest entry is {size:.1e}; scale the "
        f"features, or raise the penalty"
    )
