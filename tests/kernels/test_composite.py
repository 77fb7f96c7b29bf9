"""Sums and products of kernels, and functions as kernels."""

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import laplacian_kernel

import reference
from parkrr.errors import ParameterError
from parkrr.kernels import (
    FunctionKernel,
    Gaussian,
    KernelProduct,
    KernelSum,
    Linear,
    Matern,
    Polynomial,
    as_kernel,
)

RNG = np.random.default_rng(0)
X, Z = (torch.from_numpy(RNG.normal(size=(n, 3))) for n in (40, 7))
COMPOSED = [
    Gaussian(1.3) + 0.5 * Linear(),
    2 * Gaussian([1.0, 2.0, 3.0]) + Polynomial(2),
    Gaussian(0.8) * Matern(2.0),
    (Gaussian() + Linear()) * Polynomial(2, 0.3) * 3.0,
    FunctionKernel(lambda A, B: torch.exp(-torch.cdist(A, B, p=1))),
]


@pytest.mark.parametrize("kernel", COMPOSED, ids=lambda kernel: type(kernel).__name__)
def test_values_are_those_of_the_formula(kernel):
    expected = reference.kernel_matrix(kernel, X.numpy(), Z.numpy())
    np.testing.assert_allclose(kernel(X, Z).numpy(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        kernel.diag(X).numpy(),
        np.diag(reference.kernel_matrix(kernel, X.numpy(), X.numpy())),
        rtol=1e-12,
    )


@pytest.mark.parametrize("kernel", COMPOSED, ids=lambda kernel: type(kernel).__name__)
def test_the_nearest_fixed_rows_are_those_of_the_distance_in_feature_space(kernel):
    D = reference.rkhs_distances(kernel, X.numpy(), Z.numpy())
    np.testing.assert_array_equal(kernel.distance(Z).argmin(X).numpy(), D.argmin(1))


@pytest.mark.parametrize("kernel", COMPOSED, ids=lambda kernel: type(kernel).__name__)
def test_one_row_no_row_and_blocks_in_reused_memory_are_the_same(kernel):
    K_Z = kernel.against(Z)
    whole = K_Z(X)
    torch.testing.assert_close(K_Z(X[:1]), whole[:1])
    assert K_Z(X[:0]).shape == (0, 7)
    buffers = K_Z.workspace(20)
    values = K_Z.values(K_Z.augment(X[20:]), buffers, no_underflow=False)
    torch.testing.assert_close(values, whole[20:])
    assert values is buffers[0]


def test_sums_and_products_stay_flat_and_numbers_multiply():
    a, b, c = Gaussian(), Linear(), Matern()
    assert a + b + c == KernelSum((a, b, c), (1.0, 1.0, 1.0))
    assert np.float64(2) * (a + 3 * b) == KernelSum((a, b), (2.0, 6.0))
    assert a * b * c == KernelProduct((a, b, c))


@pytest.mark.parametrize("factor", [0, -1.0, float("nan"), float("inf")])
def test_a_factor_must_be_positive(factor):
    with pytest.raises(ParameterError, match="the factor of a kernel must be a positive finite"):
        factor * Gaussian()


def test_what_is_no_kernel_cannot_be_added():
    with pytest.raises(TypeError):
        Gaussian() + 1.0
    with pytest.raises(TypeError):
        Gaussian() * "2"
    with pytest.raises(ParameterError, match="kernels must be at least one Kernel"):
        KernelProduct(())
    with pytest.raises(ParameterError, match="factors must be one for each of 1 kernels"):
        KernelSum((Gaussian(),), (1.0, 2.0))


def test_a_function_of_arrays_is_a_kernel():
    expected = laplacian_kernel(X.numpy(), Z.numpy())
    np.testing.assert_allclose(as_kernel(laplacian_kernel)(X, Z).numpy(), expected)


def test_a_function_that_returns_another_shape_is_refused():
    with pytest.raises(ParameterError, match=r"kernel must return a matrix .* got shape \(7, 40\)"):
        FunctionKernel(lambda A, B: B @ A.T)(X, Z)


def test_a_precomputed_kernel_is_refused_with_a_way_out():
    with pytest.raises(ParameterError, match=r"kernel cannot be 'precomputed'.*pass row numbers"):
        as_kernel("precomputed")
