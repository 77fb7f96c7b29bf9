"""Cells solved from their statistics alone."""

import numpy as np
import pytest
import torch

import reference
from parkrr.data import Block
from parkrr.kernels import Gaussian, Linear
from parkrr.solvers import add_gram, fill_lower, leave_one_out_block, solve_statistics

KERNEL, RIDGE = Gaussian(1.5), 0.05
RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(60, 3)))
Y = torch.sin(X[:, :2]) + 0.1 * torch.from_numpy(RNG.normal(size=(60, 2)))
W = torch.from_numpy(RNG.uniform(0.5, 2, 60))


def gram_of(kernel, Z, X, Y, w):
    total = torch.zeros(len(Z), len(Z) + Y.shape[1], dtype=torch.float64)
    for rows in torch.arange(len(X)).split(13):  # additive over blocks
        add_gram(total, torch.cat([kernel(X[rows], Z), Y[rows]], 1), w[rows, None])
    return fill_lower(total)


def test_statistics_are_products_of_kernel_values_weights_and_targets():
    Z = X[:15]
    K = reference.kernel_matrix(KERNEL, X.numpy(), Z.numpy())
    expected = K.T @ (W.numpy()[:, None] * np.concatenate([K, Y.numpy()], 1))
    np.testing.assert_allclose(gram_of(KERNEL, Z, X, Y, W).numpy(), expected, rtol=1e-10)


def test_the_estimator_and_its_leave_one_out_changes_are_those_of_the_rows():
    Z, last = X[:15], list(range(50, 60))
    left_out = leave_one_out_block(KERNEL, Block(X[50:], Y[50:], W[50:]), Z)
    gram, weight = gram_of(KERNEL, Z, X, Y, W), float(W.sum())
    fit = solve_statistics(KERNEL, Z, gram, RIDGE, weight, left_out=left_out)
    K_nm, K_mm = (reference.kernel_matrix(KERNEL, A.numpy(), Z.numpy()) for A in (X, Z))
    problem = (K_nm, K_mm, Y.numpy(), W.numpy(), RIDGE)
    expected = reference.ridge_regression(*problem)
    np.testing.assert_allclose(K_nm @ fit.weights.numpy(), K_nm @ expected, atol=1e-7)
    changes = reference.left_out_changes(*problem, [[row] for row in last])
    np.testing.assert_allclose(fit.change.numpy(), changes, rtol=1e-5, atol=1e-7)


def test_where_the_kernel_is_zero_the_estimator_is_zero():
    Z = torch.zeros(4, 3, dtype=torch.float64)
    fit = solve_statistics(Linear(), Z, torch.zeros(4, 6).double(), RIDGE, 10.0)
    assert torch.equal(fit.weights, torch.zeros(4, 2).double())
    assert fit.fallback == "K is zero on all centres"


def test_a_larger_ridge_is_tried_only_on_request():
    """Statistics that rounding made indefinite by far more than the ridge."""
    Z = X[:15]
    gram = gram_of(KERNEL, Z, X, Y, W)
    gram[:, :15] = -1e-9 * KERNEL(Z, Z)
    tiny = {"ridge": 1e-12, "weight": 60.0}
    assert solve_statistics(KERNEL, Z, gram, **tiny) is None
    fit = solve_statistics(KERNEL, Z, gram, raise_ridge=True, **tiny)
    assert bool(torch.isfinite(fit.weights).all())
    assert "ridge raised" in fit.fallback


@pytest.mark.parametrize("ridge", [1e-300, 1e-30, 1e-12])
def test_a_larger_ridge_always_ends_with_a_solution(ridge):
    Z = X[:15]
    gram = gram_of(KERNEL, Z, X, Y, W)
    gram[:, :15] -= 1e-6 * KERNEL(Z, Z)
    fit = solve_statistics(KERNEL, Z, gram, ridge, 60.0, raise_ridge=True)
    assert bool(torch.isfinite(fit.weights).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_predictions_need_the_dtype_of_the_centres(dtype):
    Z = X[:15].to(dtype)
    fit = solve_statistics(KERNEL, Z, gram_of(KERNEL, X[:15], X, Y, W), RIDGE, 60.0)
    assert fit.dtype == dtype
