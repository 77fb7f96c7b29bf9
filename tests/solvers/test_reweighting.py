"""Losses with a logarithmic link: reweighted ridge regression of one cell."""

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import Gaussian
from parkrr.solvers import Direct, Falkon
from parkrr.solvers.problem import LocalProblem
from parkrr.solvers.reweighting import solve_reweighted, stabilize
from reference import kernel_matrix, reweighted_ridge

KERNEL = Gaussian(1.0)
EVERY = torch.arange(60)


def cell(power, seed=0, low=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 2))
    mu = np.exp(np.sin(2 * X[:, 0]))
    y = rng.poisson(mu) if power < 2 else mu * rng.gamma(2.0, size=60)
    w = torch.from_numpy(rng.uniform(low, 2, 60))
    return ArraySource(torch.from_numpy(X), torch.from_numpy(y / y.mean())[:, None], w)


def problem(rows, ridge=0.5, n_left_out=0):
    return LocalProblem(KERNEL, rows, rows.X, None, ridge, n_left_out=n_left_out)


def fitted(rows, power, solver, ridge=0.5):
    fit = solve_reweighted(solver, problem(rows, ridge), power, EVERY)
    return problem(rows).evaluate(fit.weights)[:, 0].numpy()


def reference(rows, power, ridge=0.5):
    K = kernel_matrix(KERNEL, rows.X.numpy(), rows.X.numpy())
    return reweighted_ridge(K, rows.Y[:, 0].numpy(), rows.w.numpy(), ridge, power)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0])
def test_the_solution_is_that_of_plain_fisher_scoring(power):
    rows = cell(power)
    np.testing.assert_allclose(fitted(rows, power, Direct()), reference(rows, power), atol=1e-4)


def test_the_solution_for_counts_is_exact():
    rows = cell(1.0)
    np.testing.assert_allclose(fitted(rows, 1.0, Direct()), reference(rows, 1.0), atol=1e-8)


def test_conjugate_gradient_has_the_same_solution():
    rows = cell(1.0)
    found = fitted(rows, 1.0, Falkon(200, 1e-10))
    np.testing.assert_allclose(found, reference(rows, 1.0), atol=1e-4)


def test_centres_that_are_no_rows_have_the_solution_of_the_same_rows():
    rows = cell(1.0)
    fit = solve_reweighted(Direct(), problem(rows), 1.0, None)
    found = problem(rows).evaluate(fit.weights)[:, 0].numpy()
    np.testing.assert_allclose(found, fitted(rows, 1.0, Direct()), atol=1e-8)


def test_a_cell_of_zeros_has_a_small_finite_mean():
    rows = cell(1.0)
    eta = fitted(ArraySource(rows.X, torch.zeros_like(rows.Y), rows.w), 1.0, Direct())
    assert np.isfinite(eta).all()
    assert (np.exp(eta) < 0.9).mean() > 0.9


def test_one_huge_count_among_zeros_does_not_diverge():
    rows = cell(1.0)
    Y = torch.zeros_like(rows.Y)
    Y[7] = 1e6
    outlying = ArraySource(rows.X, Y, rows.w)
    found = fitted(outlying, 1.0, Direct(), ridge=1e-3)
    assert np.isfinite(found).all()
    assert np.argmax(found) == 7


def test_leave_one_out_changes_are_close_to_those_of_fits_without_the_row():
    rows = cell(1.0)
    fit = solve_reweighted(Direct(), problem(rows, n_left_out=60), 1.0, EVERY)
    expected = []
    for i in range(60):
        w = rows.w.clone()
        w[i] = 1e-12
        without = fitted(ArraySource(rows.X, rows.Y, w), 1.0, Direct())
        expected.append(without[i])
    found = fitted(rows, 1.0, Direct()) - fit.change[:, 0].numpy()
    assert np.corrcoef(found, expected)[0, 1] > 0.99
    assert np.abs(found - np.array(expected)).mean() < 0.05


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_noise_of_stabilized_targets_is_the_same_at_any_mean(power):
    rng = np.random.default_rng(0)
    mean = np.repeat([20.0, 200.0], 4000)
    noise = {1.0: rng.poisson(mean), 2.0: mean * rng.gamma(50.0, 1 / 50.0, 8000)}
    y = noise.get(power, mean + mean**0.75 * rng.normal(size=8000) / 5)
    rows = ArraySource(torch.zeros(8000, 1), torch.from_numpy(y.astype(float))[:, None])
    few, many = stabilize(rows, power).Y[:, 0].split(4000)
    assert float(many.std() / few.std()) == pytest.approx(1.0, abs=0.05)
