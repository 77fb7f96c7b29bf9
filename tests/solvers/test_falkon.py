"""Conjugate gradient, FALKON, and the choice of the solver."""

import numpy as np
import pytest
import torch

from parkrr.data import ArraySource
from parkrr.kernels import Gaussian, Laplacian
from parkrr.solvers import Direct, LocalProblem, choose_solver, kernel_of_rows
from parkrr.solvers.falkon import Falkon, conjugate_gradient


def rows_of(n, d=3, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).to(dtype)


def test_float32_products_that_lead_nowhere_are_repeated_in_float64():
    X = rows_of(400, d=1, dtype=torch.float32).round(decimals=1)
    cell = ArraySource(X, torch.sin(3 * X))
    fit = Falkon(100, 1e-4).solve(LocalProblem(Gaussian(1.0), cell, X[:200], None, 4e-6))
    assert "float64 products" in fit.fallback
    assert fit.dtype == torch.float64
    predicted = Gaussian(1.0)(X.double(), X[:200].double()) @ fit.weights
    torch.testing.assert_close(predicted, cell.Y.double(), rtol=0, atol=1e-2)


def test_conjugate_gradient_solves_each_column_to_the_tolerance():
    A = kernel_of_rows(Laplacian(1.0), rows_of(40)) + torch.eye(40, dtype=torch.float64)
    b = rows_of(40, d=5, seed=1) * torch.tensor([1e-9, 1.0, 1e9, 1.0, 0.0])
    solution = conjugate_gradient(lambda v: A @ v, b, max_iter=100, tol=1e-10)
    error = (A @ solution.x - b).norm(dim=0)
    assert bool((error <= 2e-10 * b.norm(dim=0)).all())
    assert solution.residual <= 1e-10


def test_an_indefinite_system_is_called_lost():
    A = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))
    b = torch.tensor([[0.1], [1.0]], dtype=torch.float64)
    assert conjugate_gradient(lambda v: A @ v, b, max_iter=10, tol=1e-10).lost


def test_the_cheaper_solver_is_direct_for_few_centres_and_falkon_for_many():
    falkon = Falkon()
    assert choose_solver(10_000, 100, 1, falkon)[0] == Direct()
    assert choose_solver(10_000, 5_000, 1, falkon)[0] == falkon


def test_conjugate_gradient_needs_a_step_for_each_different_eigenvalue():
    A = torch.diag(torch.tensor([1.0, 1.0, 2.0, 2.0, 5.0], dtype=torch.float64))
    b = torch.ones(5, 2, dtype=torch.float64)
    solution = conjugate_gradient(lambda v: A @ v, b, max_iter=50, tol=1e-12)
    assert solution.n_iter == 3
    assert solution.finished
    torch.testing.assert_close(solution.x, torch.linalg.solve(A, b))


@pytest.mark.parametrize("weighted", [False, True])
def test_falkon_converges_to_the_direct_solution(weighted):
    X = rows_of(300)
    w = torch.linspace(0.5, 2, 300, dtype=torch.float64) if weighted else None
    cell = ArraySource(X, torch.sin(X[:, :2]), w)
    problem = LocalProblem(Laplacian(2.0), cell, X[:40], None, 0.3, n_threads=2)
    iterated, exact = Falkon(200, 1e-10).solve(problem), Direct().solve(problem)
    assert iterated.converged
    torch.testing.assert_close(iterated.weights, exact.weights, rtol=1e-5, atol=1e-7)
