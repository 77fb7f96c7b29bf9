"""Kernel values against fixed rows, and the nearest of them."""

import numpy as np
import pytest
import torch

import reference
from parkrr.errors import ParameterError
from parkrr.kernels import (
    GROUP_OF_ROWS,
    KERNELS,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    as_kernel,
    base,
    block_rows,
)

ALL = [
    Gaussian(1.3),
    Laplacian(0.7),
    *(Matern(1.1, nu) for nu in (0.5, 1.5, 2.5)),
    Polynomial(2, 0.5, 1.0),
    Linear(),
    Gaussian([1.3, 0.4, 6.0]),
    Laplacian([0.7, 2.0, 1.0]),
    *(Matern([1.1, 0.3, 5.0], nu) for nu in (0.5, 1.5, 2.5)),
]
RNG = np.random.default_rng(0)
X, Z = (torch.from_numpy(RNG.normal(size=(n, 3))) for n in (40, 7))


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_values_are_those_of_the_formula(kernel):
    expected = reference.kernel_matrix(kernel, X.numpy(), Z.numpy())
    np.testing.assert_allclose(kernel(X, Z).numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_one_row_no_row_and_blocks_in_reused_memory_are_the_same(kernel):
    K_Z = kernel.against(Z)
    whole = K_Z(X)
    torch.testing.assert_close(K_Z(X[:1]), whole[:1])
    assert K_Z(X[:0]).shape == (0, 7)
    buffers = K_Z.workspace(20)
    for start in (0, 20):
        A = K_Z.augment(X[start : start + 20])
        values = K_Z.values(A, buffers, no_underflow=False)
        torch.testing.assert_close(values, whole[start : start + 20])
        assert values is buffers[0]


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_products_in_blocks_are_those_of_all_values(kernel, monkeypatch):
    monkeypatch.setattr(base, "block_rows", lambda *_: 16)
    K_Z, weights = kernel.against(Z), X[:7, :2].contiguous()
    torch.testing.assert_close(K_Z.multiply(X, weights), K_Z(X) @ weights)
    assert K_Z.multiply(X[:0], weights).shape == (0, 2)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_the_first_row_of_a_group_of_copies_has_the_values_of_that_row_among_others(kernel):
    K_Z = kernel.against(Z.float())
    rows = X[:GROUP_OF_ROWS].float()
    values = K_Z.values_of_one(rows[:1].expand(GROUP_OF_ROWS, -1).contiguous())
    assert values.shape == (GROUP_OF_ROWS, 7)
    torch.testing.assert_close(values[0], K_Z(rows)[0], rtol=0, atol=0)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_matrices_of_many_small_sets_are_those_of_each(kernel):
    sets = X[:30].view(10, 3, 3)
    expected = torch.stack([kernel(rows, rows) for rows in sets])
    torch.testing.assert_close(kernel.among(sets), expected)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_the_nearest_fixed_rows_are_those_of_the_distance_in_feature_space(kernel):
    D = reference.rkhs_distances(kernel, X.numpy(), Z.numpy())
    distances = kernel.distance(Z)
    np.testing.assert_array_equal(distances.argmin(X).numpy(), D.argmin(1))
    numbers, farther = distances.nearest(X, 3)
    np.testing.assert_array_equal(numbers.numpy(), D.argsort(1)[:, :3])
    assert bool((farther[:, 0] == 0).all())
    assert bool((farther.diff(dim=1) >= 0).all())


def test_ties_go_to_the_smaller_number():
    twice = torch.cat([Z, Z])
    assert bool((Gaussian().distance(twice).argmin(X) < len(Z)).all())


def test_rows_of_several_blocks_can_be_augmented_at_once():
    first, second = Gaussian().against(Z), Gaussian().against(Z + 5)
    rows, origins = torch.cat([X[:2], X[:2]]), torch.stack([first.origin, second.origin])
    A = first.augment(rows, origins.repeat_interleave(2, 0))
    torch.testing.assert_close(A, torch.cat([first.augment(X[:2]), second.augment(X[:2])]))


def test_far_rows_in_float32_have_kernel_zero_and_no_nan():
    K = Gaussian().against(Z.float())(1e30 * X.float())
    assert float(K.max()) < 1e-37
    assert bool(torch.isfinite(K).all())


def test_blocks_fit_the_cache_but_are_not_too_short():
    assert block_rows(m=1000, itemsize=4, n_rows=10**6) == 2**20 // 4000
    assert block_rows(m=10**6, itemsize=8, n_rows=10**6) == 64
    assert block_rows(m=10, itemsize=8, n_rows=0) == 1


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_kernel_has_a_name(name):
    assert isinstance(as_kernel(name), Kernel)
    assert as_kernel(name) == KERNELS[name]()


@pytest.mark.parametrize("kernel", ["rbf", 3, Gaussian])
def test_what_is_no_kernel_is_refused(kernel):
    with pytest.raises(
        ParameterError, match=r"kernel must be 'auto', a Kernel such as .*, or one of"
    ):
        as_kernel(kernel)
