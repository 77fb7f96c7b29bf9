"""Numerics that never fail silently: the fallback ladder, convergence, and what is reported."""

import dataclasses
import pickle
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from parkrr.data.rows import ArraySource
from parkrr.errors import CellError
from parkrr.kernels import Gaussian, Laplacian, Linear, Matern
from parkrr.park.cells import CellTask, fit_cell
from parkrr.runtime.engine import LocalEngine
from parkrr.solvers.direct import Direct
from parkrr.solvers.falkon import Falkon
from parkrr.solvers.problem import LocalProblem
from plain import plain
from reference import kernel_matrix, stacked_ridge_regression


def rows_of(n, d=3, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).to(dtype)


@pytest.mark.parametrize("solver", [Direct(), Falkon(200, 1e-8)], ids=repr)
def test_duplicate_rows_do_not_change_the_function(solver):
    X = rows_of(60)
    Y = torch.sin(X[:, :1])
    once, twice = ArraySource(X, Y), ArraySource(X.repeat(2, 1), Y.repeat(2, 1))
    a = solver.solve(LocalProblem(Gaussian(2.0), once, X[:40], None, 0.06))
    b = solver.solve(LocalProblem(Gaussian(2.0), twice, X[:40].repeat(2, 1), None, 0.12))
    K = Gaussian(2.0)(X, X[:40])
    torch.testing.assert_close(K.repeat(1, 2) @ b.weights, K @ a.weights, rtol=1e-6, atol=1e-6)


def test_running_out_of_iterations_is_reported_not_hidden():
    X = rows_of(500).numpy()
    model = plain(n_cells=1, n_centers=100, solver="falkon", max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"1 of 1 cells stopped .* max_iter=2 .* Raise"):
        model.fit(X, np.sin(X[:, 0]))
    [cell] = model.report_
    assert (cell.iterations, cell.converged) == (2, False)
    assert cell.residual > 1e-4


def test_the_tolerance_does_not_depend_on_the_scale_of_the_target():
    X = rows_of(300).numpy()
    y = np.sin(X[:, 0])
    model = plain(n_cells=1, n_centers=50, solver="falkon", random_state=0)
    steps = [model.fit(X, scale * y).n_iter_ for scale in (2.0**-480, 1.0, 2.0**480)]
    assert len(set(steps)) == 1


def test_there_are_as_many_cells_as_asked_even_above_the_number_of_candidates():
    X = rows_of(2000).numpy()
    model = plain(n_cells=50, n_candidates=10, balance=False, random_state=0)
    assert model.fit(X, X[:, 0]).n_cells_ == 50


def test_rows_that_are_all_zero_are_no_obstacle_to_a_linear_kernel():
    X = np.zeros((50, 2))
    model = plain(Linear(), fit_intercept=True).fit(X, np.arange(50.0))
    np.testing.assert_allclose(model.predict(X), 24.5)


@pytest.mark.filterwarnings("ignore:n_cells=")
def test_many_copies_of_one_row_cannot_be_split_and_are_not_lost():
    X = np.concatenate([np.zeros((900, 2)), rows_of(100, d=2).numpy()])
    model = plain(n_cells=5, random_state=0).fit(X, X.sum(1))
    assert sum(cell.rows for cell in model.report_) == 1000


def test_direct_weights_too_large_for_float32_predict_in_float64():
    X = rows_of(3000, d=1, dtype=torch.float32)
    cell = ArraySource(X, torch.sin(5 * X))
    fit = Direct().solve(LocalProblem(Gaussian(1.0), cell, X[:50], None, 3e-7))
    assert fit.dtype == torch.float64
    assert "falkon in float64" in fit.fallback


@pytest.mark.parametrize("ridge", [1e-1, 1e-2])
def test_where_float32_is_too_short_a_direct_solve_is_that_of_float64_rows(ridge):
    kernel, X = Matern(3.0, 1.5), rows_of(3000, d=1, dtype=torch.float32)
    cell = ArraySource(X, torch.sin(5 * X))
    fit = Direct().solve(LocalProblem(kernel, cell, X[:50], None, ridge))
    assert fit.fallback == "float64 statistics"
    x, z = X.double().numpy(), X[:50].double().numpy()
    K_nm, K_mm = kernel_matrix(kernel, x, z), kernel_matrix(kernel, z, z)
    expected = K_nm @ stacked_ridge_regression(K_nm, K_mm, cell.Y.double().numpy(), ridge)
    np.testing.assert_allclose(K_nm @ fit.weights.numpy(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("penalty", [1e-10, 1e-12, 1e-14])
@pytest.mark.parametrize("m", [50, 500])
def test_where_statistics_lose_all_digits_a_direct_solve_iterates_and_reports_it(penalty, m):
    X = torch.linspace(-2, 2, 3000, dtype=torch.float64)[
        np.random.default_rng(0).permutation(3000), None
    ]
    cell = ArraySource(X, torch.sin(5 * X))
    fit = Direct().solve(LocalProblem(Gaussian(1.0), cell, X[:m], None, penalty * 3000))
    predicted = Gaussian(1.0)(X, X[:m]) @ fit.weights
    torch.testing.assert_close(predicted, cell.Y, rtol=0, atol=0.02)
    assert "falkon in float64" in fit.fallback


def test_the_report_tells_why_a_solver_was_chosen():
    X = rows_of(200).numpy()
    [cell] = plain(n_cells=1, n_centers=50).fit(X, X[:, 0]).report_
    assert cell.solver == "direct"
    assert "s direct" in cell.why
    assert "s falkon" in cell.why


def test_the_report_is_a_table():
    X = rows_of(400).numpy()
    report = plain(n_cells=4, random_state=0).fit(X, X[:, 0]).report_
    table = pd.DataFrame(report)
    assert len(table) == len(report)
    assert {"rows", "centers", "penalty", "solver", "iterations", "residual", "seconds"} < set(
        table.columns
    )


class Broken:
    """A solver that cannot."""

    def solve(self, *_, **__):
        raise ArithmeticError("no pivot")


def test_a_failing_cell_names_itself_across_processes():
    cell = ArraySource(rows_of(1200), rows_of(1200, d=1))
    task = CellTask(3, cell, Gaussian(), Broken(), "", 10, 1e-6, 0, 1)
    with pytest.raises(CellError) as caught:
        fit_cell(task)
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == "cell 3 (1,200 rows) could not be fitted: no pivot"
    assert isinstance(caught.value.__cause__, ArithmeticError)


def test_a_kernel_survives_pickling_and_has_a_repr():
    kernel = pickle.loads(pickle.dumps(Laplacian(2.0)))
    assert repr(kernel) == "Laplacian(lengthscale=2.0)"
    assert dataclasses.replace(kernel, lengthscale=1.0) == Laplacian(1.0)


def test_a_large_offset_costs_no_precision_in_float32():
    X = rows_of(300, d=2).numpy()
    y = np.sin(X[:, 0])
    model = plain(precision="float32", random_state=0)
    near, far = model.fit(X, y).predict(X), model.fit(X + 1.6e9, y).predict(X + 1.6e9)
    np.testing.assert_allclose(far, near, atol=1e-4)


def test_no_kernel_value_is_subnormal():
    section = Gaussian(1.0).against(rows_of(50, dtype=torch.float32))
    K = section(1e6 * rows_of(50, dtype=torch.float32))
    assert float(K.min()) >= torch.finfo(torch.float32).tiny  # subnormals run 100 times slower


def test_a_linear_kernel_recovers_a_linear_function_in_every_cell():
    X = rows_of(100).numpy()
    model = plain(Linear(), n_cells=3, fit_intercept=False, balance=False)
    np.testing.assert_allclose(model.fit(X, X[:, 0]).predict(X), X[:, 0], atol=1e-3)


def test_tasks_run_side_by_side():
    both_here = threading.Barrier(2, timeout=30)
    done = sorted(LocalEngine(n_threads=2).run(lambda task: both_here.wait() >= 0, [0, 1]))
    assert done == [(0, True), (1, True)]


def test_the_default_engine_uses_every_thread_torch_has():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    both_here = threading.Barrier(2, timeout=30)
    done = sorted(LocalEngine().run(lambda task: both_here.wait() >= 0, [0, 1]))
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert (done, after) == ([(0, True), (1, True)], 2)


@pytest.mark.parametrize("centroids", ["greedy", "uniform", "rpcholesky"])
def test_outliers_do_not_multiply_balanced_cells(centroids):
    X = np.random.default_rng(0).standard_t(df=1.5, size=(20_000, 5))
    model = plain(n_cells=20, n_centers=400, centroids=centroids, random_state=0)
    rows = np.array([cell.rows for cell in model.fit(X, X[:, 0]).report_])
    assert 10 <= len(rows) <= 40
    assert rows.max() <= 4 * rows.mean()
    assert rows.min() >= 0.1 * rows.mean()


def test_float32_gives_way_where_rows_lie_close_together_and_far_out():
    """Squared norms of 250,000 leave float32 a hundredth for distances of about one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) + rng.choice([-500.0, 500.0], size=(400, 1))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1])
    settings = {"kernel": Gaussian(1.0), "penalty": 1e-9, "n_cells": 1}
    short = plain(**settings, precision="float32").fit(X, y)
    assert short.model_.centers[0].dtype == torch.float64
    long = plain(**settings, precision="float64").fit(X, y)
    np.testing.assert_allclose(short.predict(X), long.predict(X), atol=5e-3)
