"""Slopes and gradients of radial kernels."""

import numpy as np
import pytest
import torch

from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian, Laplacian, Matern, gradient_products, gradients

RADIAL = [Gaussian(1.3), Laplacian(2.0), Matern(1.1, 0.5), Matern(1.1, 1.5), Matern(0.9, 2.5)]
PER_FEATURE = [Gaussian([1.3, 0.5, 4.0]), Laplacian([2.0, 1.0, 0.7]), Matern([1.1, 3.0, 0.6])]


def normal_rows(n, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


@pytest.mark.parametrize("kernel", RADIAL, ids=repr)
def test_the_slope_is_the_gradient_by_finite_differences(kernel):
    X, Z, step = normal_rows(5, 3), normal_rows(4, 3, seed=1), 1e-6
    S = kernel.slope(Z)(X)
    shift = torch.tensor([step, 0, 0], dtype=torch.float64)
    expected = (kernel(X + shift, Z) - kernel(X - shift, Z)) / (2 * step)
    torch.testing.assert_close(S * (X[:, :1] - Z[:, 0]), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", [*RADIAL, *PER_FEATURE], ids=repr)
def test_gradients_of_a_model_are_those_by_finite_differences(kernel):
    X, Z, weights = normal_rows(5, 3), normal_rows(4, 3, seed=1), normal_rows(4, 2, seed=2)
    G = gradients(kernel, weights, Z, X)  # (t, n, e)
    for column, step in enumerate(1e-6 * torch.eye(3, dtype=torch.float64)):
        change = (kernel(X + step, Z) - kernel(X - step, Z)) @ weights / 2e-6
        torch.testing.assert_close(G[:, :, column].T, change, rtol=1e-5, atol=1e-7)
    expected = torch.einsum("tni,tnj->ij", G, G)
    torch.testing.assert_close(gradient_products(kernel, weights, Z, X), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [1e4, 1e12, 1e17])
@pytest.mark.parametrize("kernel", [*RADIAL, *PER_FEATURE], ids=repr)
def test_a_centre_far_away_leaves_the_kernel_of_the_others(kernel, far, dtype):
    X, Z = normal_rows(50, 3), normal_rows(200, 3, seed=1)
    Z[7, 0] = far
    K = kernel(X.to(dtype), Z.to(dtype)).double()
    usual = torch.arange(200) != 7
    torch.testing.assert_close(K[:, usual], kernel(X, Z[usual]), rtol=0, atol=2e-3)
    assert (K[:, 7] < 1e-30).all()
    itself = kernel(Z.to(dtype), Z.to(dtype)).double().diagonal()[usual]
    torch.testing.assert_close(itself, torch.ones(199).double(), rtol=0, atol=1e-5)


def test_a_slope_is_zero_where_rows_coincide():
    Z = normal_rows(4, 3)
    for kernel in RADIAL[1:3]:  # those with a peak
        assert bool((kernel.slope(Z)(Z).diagonal() == 0).all())


@pytest.mark.parametrize("kernel", RADIAL, ids=repr)
def test_another_lengthscale_leaves_the_rest_of_a_kernel(kernel):
    other = kernel.with_lengthscale(3.0)
    assert other.lengthscale == 3.0
    assert other.with_lengthscale(kernel.lengthscale) == kernel


@pytest.mark.parametrize("lengthscale", [0.0, -1.0, float("nan"), 1e101])
@pytest.mark.parametrize("kind", [Gaussian, Laplacian, Matern])
def test_a_lengthscale_must_be_positive_and_not_too_large(kind, lengthscale):
    with pytest.raises(ParameterError, match="lengthscale must be between 1e-100 and 1e100"):
        kind(lengthscale)


def test_a_smoothness_without_a_formula_is_refused():
    with pytest.raises(ParameterError, match=r"nu must be one of 0.5, 1.5, 2.5, got 2"):
        Matern(nu=2)


@pytest.mark.parametrize("kind", [Gaussian, Laplacian, Matern])
def test_lengthscales_of_features_are_those_of_scaled_features(kind):
    X, Z, lengthscales = normal_rows(6, 3), normal_rows(4, 3, seed=1), torch.tensor([0.5, 2, 30])
    scaled = kind(1.0)(X / lengthscales, Z / lengthscales)
    torch.testing.assert_close(kind(lengthscales.tolist())(X, Z), scaled, rtol=1e-12, atol=0)


def test_kernels_with_the_same_lengthscales_are_equal_whatever_holds_them():
    assert Gaussian([1.0, 2.0]) == Gaussian((1, 2)) == Gaussian(np.array([1.0, 2.0]))
    assert hash(Gaussian([1.0, 2.0])) == hash(Gaussian((1.0, 2.0)))


@pytest.mark.parametrize("lengthscale", ["wide", [[1.0, 2.0]], [1.0, "2"], None, []])
def test_what_is_no_lengthscale_is_refused(lengthscale):
    with pytest.raises(ParameterError, match="lengthscale must be one number, or one for each"):
        Gaussian(lengthscale)


@pytest.mark.parametrize("lengthscale", [[1.0, 0.0], [1.0, float("nan")], [1e101, 1.0]])
def test_each_lengthscale_must_be_positive_and_not_too_large(lengthscale):
    with pytest.raises(ParameterError, match="lengthscale must be between 1e-100 and 1e100"):
        Matern(lengthscale)


def test_other_columns_than_lengthscales_are_refused():
    with pytest.raises(ParameterError, match="one for each of the 3 columns"):
        Gaussian([1.0, 2.0])(normal_rows(5, 3), normal_rows(4, 3))
