"""Factors of kernel matrices: the fallback ladder, and Cholesky in place."""

import numpy as np
import pytest
import torch

from parkrr.errors import NotFiniteError
from parkrr.kernels import Gaussian, Laplacian
from parkrr.solvers.factors import (
    Factor,
    Preconditioner,
    add_to_diagonal,
    cholesky,
    cholesky_or_nan,
    join_fallbacks,
    regular_cholesky,
)
from parkrr.solvers.problem import kernel_of_rows


def rows_of(n, d=3, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).to(dtype)


def test_a_regular_kernel_matrix_needs_no_fallback():
    factor = Factor(kernel_of_rows(Laplacian(1.0), rows_of(50)), jitter=1e-12)
    assert factor.fallback == ""


def test_duplicate_centres_need_jitter():
    Z = torch.cat([rows_of(30), rows_of(30)])
    factor = Factor(kernel_of_rows(Laplacian(1.0), Z), jitter=1e-12)
    assert factor.fallback == "jitter 1e-12"


def test_an_indefinite_matrix_needs_a_spectral_cut_off():
    K = kernel_of_rows(Gaussian(1.0), rows_of(30)) - 0.5 * torch.eye(30, dtype=torch.float64)
    factor = Factor(K, jitter=1e-12)
    assert factor.fallback.startswith("cut-off")


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_solves_with_the_factor_are_inverses_on_what_it_kept(shift):
    K = kernel_of_rows(Laplacian(1.0), rows_of(30))
    factor = Factor(K - shift * torch.eye(30, dtype=torch.float64), jitter=1e-12)
    eye = torch.eye(factor.U.shape[1], dtype=torch.float64)
    torch.testing.assert_close(factor.solve(factor.U), eye)
    torch.testing.assert_close(factor.U.T @ factor.solve_t(eye), eye)


def test_a_kernel_that_overflowed_is_refused_by_name():
    with pytest.raises(NotFiniteError, match="kernel of the centres must be finite"):
        Factor(torch.full((2, 2), torch.inf, dtype=torch.float64), jitter=1e-12)


def test_cholesky_is_none_or_nan_where_a_matrix_is_not_positive_definite():
    A = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    expected = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    assert torch.equal(cholesky(A, smallest_pivot=0.5), expected)
    assert cholesky(A, smallest_pivot=1.0) is None
    assert cholesky(-A, smallest_pivot=0.0) is None
    assert torch.equal(cholesky_or_nan(A), expected)
    assert bool(torch.isnan(cholesky_or_nan(-A)).all())


@pytest.mark.parametrize("shift", [0.5, torch.arange(1, 21).double()], ids=["number", "diagonal"])
def test_a_regular_cholesky_factor_is_that_of_the_shifted_matrix(shift):
    K = kernel_of_rows(Gaussian(1.0), rows_of(20))
    L, fallback = regular_cholesky(K.clone, shift)
    torch.testing.assert_close(L @ L.T, add_to_diagonal(K, shift))
    assert fallback == ""


def test_a_shift_that_rounding_ate_is_replaced_by_jitter():
    L, fallback = regular_cholesky(lambda: torch.ones(30, 30, dtype=torch.float64), 1e-30)
    assert fallback.startswith("jitter 1e-")
    torch.testing.assert_close(L @ L.T, torch.ones(30, 30, dtype=torch.float64))


def test_a_matrix_that_no_jitter_helps_is_refused():
    with pytest.raises(NotFiniteError, match="the local system must be finite"):
        regular_cholesky(lambda: -torch.eye(3, dtype=torch.float64), 0.5)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_preconditioner_inverts_the_system_of_the_centres(weighted):
    n, m, ridge = 500.0, 25, 0.4
    K = kernel_of_rows(Laplacian(1.0), rows_of(m))
    w = torch.rand(m, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    w = w / w.mean() if weighted else torch.ones(m, dtype=torch.float64)
    B = Preconditioner(K, w if weighted else None, ridge, n)
    identity = torch.eye(m, dtype=torch.float64)
    system = n / m * K @ (w[:, None] * K) + ridge * K
    torch.testing.assert_close(B.apply_t(system @ B.apply(identity)), identity)
    torch.testing.assert_close(B.ridge(identity), B.apply_t(ridge * K @ B.apply(identity)))


def test_fallbacks_are_joined_where_there_are_any():
    assert join_fallbacks("", "jitter 1e-12", "", "float64 products") == (
        "jitter 1e-12, float64 products"
    )
