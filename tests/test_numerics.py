"""Numerics that never fail silently: the rescue ladder, convergence, and what is reported."""

import dataclasses
import pickle
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from parkrr import ParKRegressor
from parkrr.engine import LocalEngine
from parkrr.errors import CellError, NotFiniteError
from parkrr.factors import Factor
from parkrr.kernels import Gaussian, Laplacian, Linear
from parkrr.solvers import Direct, Falkon, cheaper, conjugate_gradient, kernel_of_centers
from parkrr.sources import ArraySource


def rows_of(n, d=3, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).to(dtype)


def test_a_regular_kernel_matrix_needs_no_rescue():
    factor = Factor(kernel_of_centers(Laplacian(1.0), rows_of(50)), jitter=1e-12)
    assert factor.rescue == ""


def test_duplicate_centres_are_rescued_by_jitter():
    Z = torch.cat([rows_of(30), rows_of(30)])
    factor = Factor(kernel_of_centers(Laplacian(1.0), Z), jitter=1e-12)
    assert factor.rescue == "jitter 1e-12"


def test_an_indefinite_matrix_is_rescued_by_a_spectral_cut_off():
    K = kernel_of_centers(Gaussian(1.0), rows_of(30)) - 0.5 * torch.eye(30, dtype=torch.float64)
    factor = Factor(K, jitter=1e-12)
    assert factor.rescue.startswith("cut-off")


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_solves_with_the_factor_are_inverses_on_what_it_kept(shift):
    K = kernel_of_centers(Laplacian(1.0), rows_of(30))
    factor = Factor(K - shift * torch.eye(30, dtype=torch.float64), jitter=1e-12)
    eye = torch.eye(factor.U.shape[1], dtype=torch.float64)
    torch.testing.assert_close(factor.solve(factor.U), eye)
    torch.testing.assert_close(factor.U.T @ factor.solve_t(eye), eye)


def test_a_kernel_that_overflowed_is_refused_by_name():
    with pytest.raises(NotFiniteError, match="kernel of the centres overflowed"):
        Factor(torch.full((2, 2), torch.inf, dtype=torch.float64), jitter=1e-12)


@pytest.mark.parametrize("solver", [Direct(), Falkon(200, 1e-8)], ids=repr)
def test_duplicate_rows_do_not_change_the_function(solver):
    X = rows_of(60)
    Y = torch.sin(X[:, :1])
    once, twice = ArraySource(X, Y), ArraySource(X.repeat(2, 1), Y.repeat(2, 1))
    settings = {"center_weights": None, "n_threads": 1}
    a = solver.solve(Gaussian(2.0), once, X[:40], ridge=0.06, **settings)
    b = solver.solve(Gaussian(2.0), twice, X[:40].repeat(2, 1), ridge=0.12, **settings)
    K = Gaussian(2.0)(X, X[:40])
    torch.testing.assert_close(K.repeat(1, 2) @ b.weights, K @ a.weights, rtol=1e-6, atol=1e-6)


def test_float32_products_that_lead_nowhere_are_repeated_in_float64():
    X = rows_of(400, d=1, dtype=torch.float32).round(decimals=1)
    cell = ArraySource(X, torch.sin(3 * X))
    fit = Falkon(100, 1e-4).solve(
        Gaussian(1.0), cell, X[:200], center_weights=None, ridge=4e-6, n_threads=1
    )
    assert "float64 products" in fit.rescue
    assert fit.dtype == torch.float64
    predicted = Gaussian(1.0)(X.double(), X[:200].double()) @ fit.weights
    torch.testing.assert_close(predicted, cell.Y.double(), rtol=0, atol=1e-2)


def test_running_out_of_iterations_is_reported_not_hidden():
    X = rows_of(500).numpy()
    model = ParKRegressor(n_cells=1, n_centers=100, solver="falkon", max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"1 of 1 cells stopped .* max_iter=2 .* Raise"):
        model.fit(X, np.sin(X[:, 0]))
    [cell] = model.report_
    assert (cell.iterations, cell.converged) == (2, False)
    assert cell.residual > 1e-4


def test_the_tolerance_does_not_depend_on_the_scale_of_the_target():
    X = rows_of(300).numpy()
    y = np.sin(X[:, 0])
    model = ParKRegressor(n_cells=1, n_centers=50, solver="falkon", random_state=0)
    steps = [model.fit(X, scale * y).n_iter_ for scale in (2.0**-600, 1.0, 2.0**600)]
    assert len(set(steps)) == 1


def test_conjugate_gradient_solves_each_column_to_the_tolerance():
    A = kernel_of_centers(Laplacian(1.0), rows_of(40)) + torch.eye(40, dtype=torch.float64)
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
    assert cheaper(10_000, 100, 1, falkon)[0] == Direct()
    assert cheaper(10_000, 5_000, 1, falkon)[0] == falkon


def test_the_report_says_why_a_solver_was_chosen():
    X = rows_of(200).numpy()
    [cell] = ParKRegressor(n_cells=1, n_centers=50).fit(X, X[:, 0]).report_
    assert cell.solver == "direct"
    assert "s direct" in cell.why
    assert "s falkon" in cell.why


def test_the_report_is_a_table():
    X = rows_of(400).numpy()
    report = ParKRegressor(n_cells=4, random_state=0).fit(X, X[:, 0]).report_
    table = pd.DataFrame(report)
    assert len(table) == len(report)
    assert {"rows", "centers", "penalty", "solver", "iterations", "residual", "seconds"} < set(
        table.columns
    )


def test_a_failing_cell_names_itself_across_processes():
    error = pickle.loads(pickle.dumps(CellError(3, 1200, "K_mm")))
    assert str(error) == "cell 3 (1,200 rows) could not be fitted: K_mm"


def test_a_kernel_survives_pickling_and_says_what_it_is():
    kernel = pickle.loads(pickle.dumps(Laplacian(2.0)))
    assert repr(kernel) == "Laplacian(lengthscale=2.0)"
    assert dataclasses.replace(kernel, lengthscale=1.0) == Laplacian(1.0)


def test_a_large_offset_costs_no_precision_in_float32():
    X = rows_of(300, d=2).numpy()
    y = np.sin(X[:, 0])
    model = ParKRegressor(precision="float32", random_state=0)
    near, far = model.fit(X, y).predict(X), model.fit(X + 1.6e9, y).predict(X + 1.6e9)
    np.testing.assert_allclose(far, near, atol=1e-4)


def test_far_rows_are_as_fast_as_near_ones_to_evaluate():
    section = Gaussian(1.0).against(rows_of(50, dtype=torch.float32))
    K = section(section.lift(1e6 * rows_of(50, dtype=torch.float32)))
    assert float(K.min()) >= torch.finfo(torch.float32).tiny  # subnormals run 100 times slower


def test_a_linear_kernel_recovers_a_linear_function_in_every_cell():
    X = rows_of(100).numpy()
    model = ParKRegressor(Linear(), n_cells=3, fit_intercept=False, balance=False)
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
