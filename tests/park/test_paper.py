"""Carratino, Vigogna, Calandriello, Rosasco: one test per equation or algorithm line."""

import pickle

import numpy as np
import pytest
import torch

import reference
from parkrr import ParKClassifier
from parkrr.data.rows import ArraySource
from parkrr.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial
from parkrr.partition.centroids import assign, select_greedy
from parkrr.runtime.engine import LocalEngine
from parkrr.solvers import Direct, Falkon
from parkrr.solvers.factors import Preconditioner
from parkrr.solvers.problem import LocalProblem, kernel_of_rows
from plain import PLAIN, plain

KERNELS = [
    Gaussian(1.5),
    Laplacian(2.0),
    Matern(2.0, nu=0.5),
    Matern(2.0, nu=1.5),
    Matern(2.0, nu=2.5),
    Polynomial(degree=3, gamma=0.5, coef0=1.0),
    Linear(),
]
SOLVERS = [Direct(), Falkon(max_iter=200, tol=1e-12)]
PAPER = {"balance": False, "n_candidates": None, "fit_intercept": False, "solver": "falkon"}


def tensors(*arrays):
    return tuple(torch.from_numpy(np.asarray(a, dtype=np.float64)) for a in arrays)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    Y = np.column_stack([np.sin(X[:, 0]) + 0.1 * rng.normal(size=120), X[:, 1]])
    return X, Y


def solve(solver, kernel, X, Y, Z, penalty, n_threads=1):
    problem = LocalProblem(kernel, ArraySource(X, Y), Z, None, penalty * len(X), n_threads)
    return solver.solve(problem)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_kernel_block_equals_its_formula_entry_by_entry(kernel, rows):
    X, Z = rows[0] + 100.0, rows[0][:7] + 100.0
    expected = reference.kernel_matrix(kernel, X, Z)
    actual = kernel(*tensors(X, Z)).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_diagonal_is_the_kernel_of_a_row_with_itself(kernel, rows):
    X = rows[0]
    expected = np.diag(reference.kernel_matrix(kernel, X, X))
    np.testing.assert_allclose(kernel.diag(*tensors(X)).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_eq_4_every_row_is_in_exactly_one_cell(kernel, rows):
    X, Y = tensors(*rows)
    cells = ArraySource(X, Y).split(assign(kernel, X, X[:9]), 9)
    assert sorted(torch.cat([cell.index for cell in cells]).tolist()) == list(range(len(X)))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_eq_5_assignment_is_the_nearest_centroid_in_the_rkhs(kernel, rows):
    X = rows[0]
    expected = reference.rkhs_distances(kernel, X, X[:9]).argmin(1)
    np.testing.assert_array_equal(assign(kernel, *tensors(X, X[:9])).numpy(), expected)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_eq_5_ties_go_to_the_smaller_cell(kernel):
    centroids = [[1.0, 1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]
    cells = assign(kernel, *tensors([[0.0, 0.0], [1.0, 0.0], [0.0, -1.0]], centroids))
    assert cells.tolist() == [0, 0, 3]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_eq_7_greedy_picks_the_largest_schur_complement_at_every_step(kernel, rows):
    X = rows[0]
    K = reference.kernel_matrix(kernel, X, X)
    rank = np.linalg.matrix_rank(K)
    expected = reference.greedy(K, min(12, rank))
    assert select_greedy(kernel, *tensors(X), 12).tolist() == expected


def test_eq_7_the_first_centroid_has_the_largest_kernel_diagonal(rows):
    X = rows[0]
    assert select_greedy(Linear(), *tensors(X), 1).item() == (X**2).sum(1).argmax()


def test_eq_7_greedy_stops_when_nothing_is_left_outside_the_span():
    X = np.repeat(np.eye(3), 5, axis=0)
    assert len(select_greedy(Gaussian(), *tensors(X), 10)) == 3


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_eq_10_every_row_a_centre_recovers_exact_krr(solver, kernel, rows):
    X, Y = tensors(*rows)
    fit = solve(solver, kernel, X, Y, X, penalty=1e-2)
    K = reference.kernel_matrix(kernel, *rows[:1], *rows[:1])
    exact = K @ reference.krr_weights(K, rows[1], 1e-2)
    np.testing.assert_allclose(K @ fit.weights.numpy(), exact, rtol=1e-8, atol=1e-8)


def test_eq_11_centres_are_rows_of_their_cell(rows):
    X, Y = rows
    model = plain(n_cells=4, n_centers=40, random_state=0, **PAPER).fit(X, Y).model_
    cell_of = model.route(torch.from_numpy(X)).numpy()
    for q, centers in enumerate(model.centers):
        cell = X[cell_of == q] - model.metric.origin.numpy()
        distance = np.abs(centers.numpy()[:, None] - cell[None]).max(2).min(1)
        np.testing.assert_allclose(distance, 0, atol=1e-12)


def test_section_3_2_the_preconditioner_equals_its_definition(rows):
    K_mm = kernel_of_rows(Laplacian(2.0), torch.from_numpy(rows[0][:30]))
    n, penalty = 500.0, 1e-3
    B = Preconditioner(K_mm, None, ridge=penalty * n, n=n)
    definition = torch.linalg.inv(n / 30 * K_mm @ K_mm + penalty * n * K_mm)
    dense = B.apply(torch.eye(30, dtype=torch.float64))
    torch.testing.assert_close(dense @ dense.T, definition, rtol=1e-7, atol=1e-9)


def test_section_3_2_the_preconditioner_counts_the_weights_of_the_centres(rows):
    K_mm = kernel_of_rows(Laplacian(2.0), torch.from_numpy(rows[0][:30]))
    w = torch.linspace(0.5, 1.5, 30, dtype=torch.float64)
    n, penalty = 500.0, 1e-3
    B = Preconditioner(K_mm, w, ridge=penalty * n, n=n)
    definition = torch.linalg.inv(n / 30 * K_mm @ torch.diag(w) @ K_mm + penalty * n * K_mm)
    dense = B.apply(torch.eye(30, dtype=torch.float64))
    torch.testing.assert_close(dense @ dense.T, definition, rtol=1e-7, atol=1e-9)


def test_section_3_2_the_transpose_of_the_preconditioner_is_its_transpose(rows):
    Z = torch.from_numpy(rows[0][:30])
    B = Preconditioner(kernel_of_rows(Laplacian(2.0), Z), None, ridge=0.5, n=500.0)
    eye = torch.eye(30, dtype=torch.float64)
    torch.testing.assert_close(B.apply_t(eye), B.apply(eye).T)


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Laplacian(2.0), Matern(2.0)], ids=repr)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_eq_13_at_convergence_is_the_exact_nystrom_estimator(solver, kernel, rows):
    X, Y = tensors(*rows)
    fit = solve(solver, kernel, X, Y, X[:40], penalty=1e-3)
    K_nm = reference.kernel_matrix(kernel, rows[0], rows[0][:40])
    exact = K_nm @ reference.nystrom_weights(K_nm, K_nm[:40], rows[1], 1e-3)
    np.testing.assert_allclose(K_nm @ fit.weights.numpy(), exact, rtol=1e-7, atol=1e-7)


def test_eq_12_more_iterations_never_raise_the_objective(rows):
    X, Y = tensors(*rows)
    K_nm = reference.kernel_matrix(Gaussian(1.5), rows[0], rows[0][:40])

    def objective(max_iter):
        alpha = solve(Falkon(max_iter, 1e-14), Gaussian(1.5), X, Y, X[:40], 1e-4).weights.numpy()
        ridge = 1e-4 * np.einsum("it,ij,jt->", alpha, K_nm[:40], alpha)
        return ((K_nm @ alpha - rows[1]) ** 2).sum() / len(X) + ridge

    values = [objective(max_iter) for max_iter in (1, 2, 4, 8, 16, 32)]
    assert np.diff(values).max() < 1e-12


def test_section_5_lambda_q_and_m_q_follow_the_rule(rows):
    X, Y = rows
    model = plain(penalty=1e-4, n_cells=4, n_centers=40, random_state=0, **PAPER)
    report = model.fit(X, Y).report_
    rho = np.array([cell.rows for cell in report]) / len(X)
    np.testing.assert_allclose([cell.penalty for cell in report], 1e-4 / rho)
    np.testing.assert_array_equal([cell.centers for cell in report], np.ceil(40 * rho))


def test_theorem_4_the_unnormalised_ridge_is_the_same_in_every_cell(rows):
    model = plain(penalty=1e-4, n_cells=4, random_state=0, **PAPER).fit(*rows)
    ridges = [cell.penalty * cell.rows for cell in model.report_]
    np.testing.assert_allclose(ridges, 1e-4 * len(rows[0]))


def test_eq_14_a_prediction_is_that_of_exactly_one_local_model(rows):
    X, Y = rows
    model = plain(n_cells=4, n_centers=60, random_state=0, **PAPER).fit(X, Y)
    park = model.model_
    shifted = X - park.metric.origin.numpy()
    cell_of = reference.rkhs_distances(Gaussian(), shifted, park.centroids.numpy()).argmin(1)
    expected = [
        reference.kernel_matrix(Gaussian(), shifted[[i]], park.centers[q].numpy())[0]
        @ park.weights[q].numpy()
        for i, q in enumerate(cell_of)
    ]
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9, atol=1e-9)


def test_algorithm_1_equals_its_steps_done_by_hand(rows):
    X, Y = rows
    model = plain(
        Laplacian(2.0), penalty=1e-3, n_cells=3, n_centers=len(X), tol=1e-12, **PAPER
    ).fit(X, Y)
    K = reference.kernel_matrix(Laplacian(2.0), X, X)
    chosen = reference.greedy(K, 3)
    cell_of = reference.rkhs_distances(Laplacian(2.0), X, X[chosen]).argmin(1)
    expected = np.empty_like(Y)
    for q in range(3):
        i = cell_of == q
        K_q = K[np.ix_(i, i)]
        expected[i] = K_q @ reference.krr_weights(K_q, Y[i], 1e-3 / i.mean())
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-8, atol=1e-8)


def test_one_cell_is_global_falkon(rows):
    X, Y = rows
    model = plain(n_cells=1, n_centers=40, penalty=1e-3, tol=1e-12, **PAPER).fit(X, Y)
    Z = model.model_.centers[0].numpy() + model.model_.metric.origin.numpy()
    K_nm = reference.kernel_matrix(Gaussian(), X, Z)
    K_mm = reference.kernel_matrix(Gaussian(), Z, Z)
    exact = K_nm @ reference.nystrom_weights(K_nm, K_mm, Y, 1e-3)
    np.testing.assert_allclose(model.predict(X), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", ["falkon", "direct"])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_cells", [1, 5])
def test_thread_count_does_not_change_a_bit_of_the_weights(solver, n_threads, n_cells, rows):
    X, Y = rows
    settings = {"n_cells": n_cells, "solver": solver, "tol": 1e-12, "random_state": 0}
    settings |= {"balance": False}  # or five cells of 120 rows would be two
    one = plain(n_centers=50, engine=LocalEngine(1), **settings).fit(X, Y)
    other = plain(n_centers=50, engine=LocalEngine(n_threads), **settings).fit(X, Y)
    pairs = zip(one.model_.weights, other.model_.weights, strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("solver", ["falkon", "direct"])
@pytest.mark.parametrize("n_centers", [300, 10_000])
def test_threads_share_a_large_cell_without_changing_a_bit(solver, n_centers):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000 if n_centers == 300 else 700, 3))
    Y = np.sin(X[:, :1])
    settings = {"solver": solver, "n_centers": min(n_centers, len(X)), "penalty": 1e-3}
    one, two = (plain(engine=LocalEngine(k), random_state=0, **settings).fit(X, Y) for k in (1, 2))
    assert torch.equal(one.model_.weights[0], two.model_.weights[0])


@pytest.mark.parametrize("solver", ["falkon", "direct"])
@pytest.mark.parametrize("block_bytes", [64, 8192])
def test_block_size_does_not_change_the_answer(solver, block_bytes, rows, monkeypatch):
    X, Y = rows
    settings = {"n_cells": 3, "solver": solver, "tol": 1e-12, "random_state": 0}
    expected = plain(n_centers=50, **settings).fit(X, Y).predict(X)
    monkeypatch.setattr("parkrr.kernels.base.BLOCK_BYTES", block_bytes)
    monkeypatch.setattr("parkrr.kernels.base.SHORTEST_BLOCK", 1)
    actual = plain(n_centers=50, **settings).fit(X, Y).predict(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


class LastFirst(LocalEngine):
    """An engine that runs tasks one by one and backwards."""

    def run(self, function, tasks):
        for number in reversed(range(len(tasks))):
            yield number, function(pickle.loads(pickle.dumps(tasks[number])))


@pytest.mark.parametrize("solver", ["falkon", "direct"])
def test_the_engine_does_not_change_the_answer(solver, rows):
    X, Y = rows
    settings = {"n_cells": 5, "n_centers": 50, "solver": solver, "tol": 1e-12, "random_state": 0}
    settings |= {"balance": False}  # or they would be two
    expected = plain(**settings).fit(X, Y).predict(X)
    actual = plain(engine=LastFirst(), **settings).fit(X, Y).predict(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-6, 1e6, 1e300])
@pytest.mark.parametrize("solver", ["falkon", "direct"])
def test_only_ratios_of_weights_matter(solver, scale, rows):
    X, Y = rows
    w = np.random.default_rng(1).uniform(0.1, 3, size=len(X))
    model = plain(n_cells=3, n_centers=60, solver=solver, tol=1e-12, random_state=0)
    expected = model.fit(X, Y, w).predict(X)
    np.testing.assert_allclose(model.fit(X, Y, scale * w).predict(X), expected, rtol=1e-7)


@pytest.mark.parametrize("solver", ["falkon", "direct"])
def test_an_integer_weight_counts_copies_of_a_row(solver, rows):
    X, Y = rows
    w = np.random.default_rng(1).integers(0, 4, size=len(X))
    settings = {"n_cells": 1, "solver": solver, "tol": 1e-13, "random_state": 0, "penalty": 1e-3}
    weighted = plain(Laplacian(2.0), n_centers=1000, **settings).fit(X, Y, w)
    copied = plain(Laplacian(2.0), n_centers=1000, **settings)
    copied.fit(np.repeat(X, w, axis=0), np.repeat(Y, w, axis=0))
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("solver", ["falkon", "direct"])
def test_weighted_nystrom_equals_its_normal_equations(solver, rows):
    X, Y = rows
    w = np.random.default_rng(1).uniform(0.1, 3, size=len(X))
    model = plain(
        Laplacian(2.0),
        n_cells=1,
        n_centers=40,
        penalty=1e-3,
        solver=solver,
        tol=1e-13,
        fit_intercept=False,
    ).fit(X, Y, w)
    Z = model.model_.centers[0].numpy() + model.model_.metric.origin.numpy()
    K_nm = reference.kernel_matrix(Laplacian(2.0), X, Z)
    K_mm = reference.kernel_matrix(Laplacian(2.0), Z, Z)
    system = K_nm.T @ (w[:, None] * K_nm) + 1e-3 * w.sum() * K_mm
    exact = K_nm @ np.linalg.solve(system, K_nm.T @ (w[:, None] * Y))
    np.testing.assert_allclose(model.predict(X), exact, rtol=1e-8, atol=1e-8)


def test_classes_are_codes_of_one_multi_output_solve(rows):
    X, Y = rows
    labels = np.array(["a", "b", "c"])[np.digitize(Y[:, 0], [-0.5, 0.5])]
    codes = np.where(labels[:, None] == np.array(["a", "b", "c"]), 1.0, -1.0)
    settings = {"n_cells": 3, "random_state": 0, "solver": "direct"}
    classifier = ParKClassifier(**PLAIN, **settings).fit(X, labels)
    scores = plain(**settings).fit(X, codes).predict(X)
    found = classifier.model_.predict(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(found, scores, rtol=1e-9, atol=1e-9)
    calibrated = classifier.calibration_.decide(scores)
    np.testing.assert_allclose(classifier.decision_function(X), calibrated, rtol=1e-7, atol=1e-7)
