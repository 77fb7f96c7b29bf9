"""A Cholesky factor in the memory of its matrix."""

import torch

from parkrr.kernels import Matern
from parkrr.solvers.factors import cholesky_in_place
from parkrr.solvers.problem import kernel_of_rows


def test_a_factor_takes_the_place_of_its_matrix():
    X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = kernel_of_rows(Matern(1.0), X)
    K.diagonal().add_(0.1)
    expected, place = torch.linalg.cholesky(K), K.data_ptr()
    L = cholesky_in_place(K)
    assert L.data_ptr() == place
    torch.testing.assert_close(L, expected, rtol=1e-12, atol=1e-12)


def test_a_matrix_that_is_not_positive_has_no_factor_in_place():
    assert cholesky_in_place(-torch.eye(3, dtype=torch.float64)) is None
