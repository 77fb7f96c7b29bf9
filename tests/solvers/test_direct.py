"""The penalty path: one eigendecomposition against a solve for every penalty."""

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import Gaussian
from parkrr.solvers import Direct
from parkrr.solvers.direct import leave_one_out_errors, penalty_path
from parkrr.solvers.problem import LocalProblem

PENALTIES = torch.logspace(-6, 0, 7, dtype=torch.float64)


def source(n, weighted, seed):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.normal(size=(n, 3)))
    Y = torch.stack([torch.sin(2 * X[:, 0]), X[:, 1] * X[:, 2]], 1)
    w = torch.from_numpy(rng.uniform(0.5, 2, n)) if weighted else None
    return ArraySource(X, Y + 0.1 * torch.from_numpy(rng.normal(size=(n, 2))), w)


def problem(weighted, ridge=1e-6 * 300):
    cell = source(300, weighted, seed=0)
    return LocalProblem(Gaussian(1.5), cell, cell.X[:60], None, ridge)


def smoother(problem, penalty):
    """H with fitted values H Y, by the normal equations of the Nystrom estimator."""
    X, w = problem.cell.X, problem.cell.w
    w = torch.ones(len(X), dtype=torch.float64) if w is None else w
    K = problem.kernel(X, problem.centers)
    normal = K.T @ (w[:, None] * K) + penalty * w.sum() * problem.K_mm()
    return K @ torch.linalg.solve(normal, K.T * w), w


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [1e-6, 1e-4, 1e-1])
def test_the_path_passes_through_the_direct_solution(weighted, penalty):
    whole = problem(weighted)
    at = problem(weighted, penalty * whole.cell.total_weight)
    found = penalty_path(whole).weights(penalty)
    K = whole.kernel(whole.cell.X, whole.centers)
    torch.testing.assert_close(K @ found, K @ Direct().solve(at).weights, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_training_error_is_that_of_the_fitted_values(weighted):
    cell = problem(weighted).cell
    expected = []
    for penalty in PENALTIES:
        H, w = smoother(problem(weighted), penalty)
        expected.append(w @ (cell.Y - H @ cell.Y).square().sum(1) / w.sum())
    found = penalty_path(problem(weighted)).training_error(PENALTIES)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-6, atol=1e-10)


def test_the_effective_dimension_is_the_trace_of_the_smoother():
    expected = [smoother(problem(False), penalty)[0].trace() for penalty in PENALTIES]
    found = penalty_path(problem(False)).effective_dimension(PENALTIES)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-6, atol=1e-8)


def test_generalised_cross_validation_is_its_formula():
    cell = problem(False).cell
    expected = []
    for penalty in PENALTIES:
        H, _ = smoother(problem(False), penalty)
        error = (cell.Y - H @ cell.Y).square().sum() / 300
        expected.append(error / (1 - H.trace() / 300) ** 2)
    found = penalty_path(problem(False)).gcv(PENALTIES)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_errors_are_those_of_each_estimator(weighted):
    held_out, path = source(100, weighted, seed=1), penalty_path(problem(weighted))
    w = torch.ones(100, dtype=torch.float64) if held_out.w is None else held_out.w
    K = path.problem.kernel(held_out.X, path.problem.centers)
    expected = [
        w @ (held_out.Y - K @ path.weights(float(penalty))).square().sum(1) for penalty in PENALTIES
    ]
    torch.testing.assert_close(path.errors(held_out, PENALTIES), torch.stack(expected))


def test_leaving_each_row_out_equals_doing_so():
    rng = np.random.default_rng(0)
    X, Y = (torch.from_numpy(rng.normal(size=(12, k))) for k in (2, 2))
    w = torch.from_numpy(rng.uniform(0.5, 2, size=12))
    penalty = 1e-2
    found = leave_one_out_errors(Gaussian(1.0), ArraySource(X, Y, w), torch.tensor([1.0, penalty]))
    K = Gaussian(1.0)(X, X)
    expected = 0.0
    for i in range(12):
        t = torch.arange(12) != i
        alpha = torch.linalg.solve(K[t][:, t] + torch.diag(penalty * w.sum() / w[t]), Y[t])
        expected += float(w[i] * (K[i, t] @ alpha - Y[i]).square().sum())
    assert float(found[1]) == pytest.approx(expected)
