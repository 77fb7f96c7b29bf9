"""The steps of Algorithm 1, one function at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from parkrr import Coarse
from parkrr.data import ArraySource, draw_indices
from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian, Linear, Polynomial
from parkrr.park import (
    choose_nystrom_penalty,
    cross_fit_nystrom_model,
    divide_rows,
    fit_cells,
    fit_nystrom_model,
    fit_park,
    make_feature_map,
    make_tasks,
    prepare_rows,
    scale_target,
    select_centroids,
)
from parkrr.partition import assign
from parkrr.runtime import LocalEngine
from plain import fit_settings
from reference import ridge_regression


def rows(n=400, d=3, t=2, weighted=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    Y = np.column_stack([np.sin(X[:, 0]) + k + 0.1 * rng.normal(size=n) for k in range(t)])
    w = torch.from_numpy(rng.uniform(0.5, 2.0, size=n)) if weighted else None
    return ArraySource(torch.from_numpy(X), torch.from_numpy(Y), w)


def tasks(settings, given, left_out=()):
    _, cells = divide_rows(settings, given, select_centroids(settings, given, 0))
    return make_tasks(settings, cells, given.total_weight, 0, left_out)


def test_every_cell_has_the_ridge_lambda_n():
    made = tasks(fit_settings(penalty=1e-3), rows(weighted=True))
    n = rows(weighted=True).total_weight
    assert [task.lambda_q * task.cell.total_weight for task in made] == pytest.approx(
        [1e-3 * n] * 4
    )


def test_centres_are_shared_out_by_the_weight_of_cells():
    given = rows(weighted=True)
    made = tasks(fit_settings(n_centers=50), given)
    rho = [task.cell.total_weight / given.total_weight for task in made]
    assert [task.m_q for task in made] == [int(np.ceil(50 * share)) for share in rho]


def test_a_cell_has_no_more_centres_than_rows():
    assert all(t.m_q == t.cell.n_rows for t in tasks(fit_settings(n_centers=10**6), rows()))


@pytest.mark.parametrize(("solver", "name"), [("direct", "Direct"), ("falkon", "Falkon")])
def test_the_solver_is_the_one_asked_for(solver, name):
    made = tasks(fit_settings(solver=solver), rows())
    assert {(type(task.solver).__name__, task.why) for task in made} == {(name, "asked for")}


def test_leave_one_out_rows_are_capped_by_their_kernel_values():
    settings = fit_settings(n_centers=40, left_out_values=100)
    made = tasks(settings, rows(), left_out=[80] * 4)
    most = [min(80, 100 // task.m_q, task.cell.n_rows) for task in made]
    assert [task.n_left_out for task in made] == most


def test_every_row_is_in_the_cell_of_its_nearest_centroid():
    settings, given = fit_settings(assign_rows=11), rows()
    C, cells = divide_rows(settings, given, given.X[:7])
    cell_of = assign(settings.kernel, given.X, C)
    for q, cell in enumerate(cells):
        assert cell.index.tolist() == (cell_of == q).nonzero()[:, 0].tolist()


def test_centroids_without_rows_are_dropped():
    far = torch.full((1, 3), 1e3, dtype=torch.float64)
    C, cells = divide_rows(
        fit_settings(kernel=Gaussian(100.0)), rows(), torch.cat([far, -far, far])
    )
    assert len(C) == len(cells) < 3


def test_balanced_cells_have_rows_enough_for_a_model():
    C = select_centroids(fit_settings(n_cells=100, balance=True), rows(320), 0)
    assert len(C) <= 10


def test_results_come_in_the_order_of_the_tasks():
    settings = fit_settings(engine=LocalEngine(2))
    made = tasks(settings, rows())
    assert [result.report.cell for result in fit_cells(settings, made)] == [t.q for t in made]
    backwards = fit_cells(settings, made[::-1])
    assert [result.report.cell for result in backwards] == [t.q for t in made[::-1]]


@pytest.mark.parametrize("weighted", [False, True])
def test_targets_are_centred_and_at_most_one(weighted):
    given = rows(weighted=weighted)
    scaled, mean, scale = scale_target(given, centre=True, dtype=torch.float64)
    w = torch.ones(400).double() if given.w is None else given.w
    torch.testing.assert_close(mean, w @ given.Y / w.sum())
    torch.testing.assert_close(scaled.Y * scale + mean, given.Y)
    assert float(scaled.Y.abs().max()) == 1.0


def test_weights_have_mean_one():
    scaled, _, _ = scale_target(rows(weighted=True), centre=True, dtype=torch.float64)
    assert float(scaled.w.mean()) == pytest.approx(1.0)


def test_a_target_whose_square_overflows_is_refused():
    given = replace(rows(), Y=torch.full((400, 1), 1e200, dtype=torch.float64))
    with pytest.raises(ParameterError, match=r"y must lie between -1e\+150 and 1e\+150"):
        scale_target(given, centre=True, dtype=torch.float64)


def test_kernel_values_that_would_overflow_are_refused():
    given = replace(rows(), X=1e30 * rows().X)
    settings = fit_settings(kernel=Polynomial(), dtype=torch.float32)
    with pytest.raises(ParameterError, match=r"K\(x, x\) must stay below"):
        prepare_rows(settings, given, torch.zeros(400, dtype=torch.bool))


def test_a_kernel_that_is_no_function_of_distance_is_not_shifted():
    assert make_feature_map("euclidean", Linear(), rows(), 0).origin is None
    assert make_feature_map("euclidean", Gaussian(), rows(), 0).origin is not None


@pytest.mark.parametrize("load", [False, True])
def test_prepared_rows_are_what_the_model_leaves_of_the_target(load):
    """Scaled back, they are the residual of the model that has no cells yet."""
    settings = fit_settings(coarse=Coarse(30, Gaussian(3.0)), fit_intercept=True)
    given, none = rows(), torch.zeros(400, dtype=torch.bool)
    prepared, model, scale = prepare_rows(settings, given, none, load=load)
    model = replace(model, centroids=prepared.load().X[:1])
    X, R, _ = model.residual(given.block(slice(None)), scale)
    torch.testing.assert_close(prepared.load().X, X)
    torch.testing.assert_close(prepared.Y, R)


def test_the_coarse_level_is_not_fitted_to_rows_that_are_left_out():
    settings = fit_settings(coarse=Coarse(30, Gaussian(3.0)))
    left_out = torch.arange(400) >= 300
    Y = rows().Y.clone()
    Y[300:] = Y[300:].flip(0)
    same = [
        prepare_rows(settings, replace(rows(), Y=target), left_out)[1].coarse.weights
        for target in (rows().Y, Y)
    ]
    torch.testing.assert_close(*same, rtol=0, atol=0)


def test_a_coarse_level_fits_a_smooth_function():
    given = rows()
    coarse = fit_nystrom_model(Gaussian(3.0), given, n_centers=60, n_threads=1, seed=0)
    assert float((coarse(given.X) - given.Y).square().mean().sqrt()) < 0.15


def test_a_cross_fit_predicts_each_row_without_its_fold():
    given, fold, kernel = rows(), np.arange(400) % 5, Gaussian(0.7)
    model, values = cross_fit_nystrom_model(kernel, given, 60, fold, n_threads=2, seed=0)
    drawn = draw_indices(400, 60, 0)
    _, penalty = choose_nystrom_penalty(kernel, given, drawn, n_threads=1)
    torch.testing.assert_close(model.centers, given.X[drawn])
    Z = model.centers[torch.from_numpy(fold)[drawn] != 2]  # no centre is of the fold
    K, K_mm = kernel(given.X, Z).numpy(), kernel(Z, Z).numpy()
    Y, others = given.Y.numpy(), fold != 2
    alpha = ridge_regression(K[others], K_mm, Y[others], np.ones(320), penalty * 400)
    np.testing.assert_allclose(values[~others], K[~others] @ alpha, atol=1e-6)


def test_a_fold_without_a_row_in_the_sample_is_predicted_by_all_others(monkeypatch):
    monkeypatch.setattr("parkrr.park.algorithm.COARSE_ROWS", 2)  # of 60 centres: 120 rows
    drawn, fold = draw_indices(400, 120, 0), np.arange(400) % 5
    fold[np.setdiff1d(np.arange(400), drawn)[0]] = 9
    model, values = cross_fit_nystrom_model(Gaussian(0.7), rows(), 60, fold, n_threads=1, seed=0)
    np.testing.assert_allclose(values[fold == 9], model(rows().X)[fold == 9], atol=1e-6)


def test_a_cross_fit_of_all_rows_is_the_fit():
    fold = np.arange(400) % 5
    model, _ = cross_fit_nystrom_model(Gaussian(3.0), rows(), 60, fold, n_threads=1, seed=0)
    fitted = fit_nystrom_model(Gaussian(3.0), rows(), 60, n_threads=1, seed=0)
    torch.testing.assert_close(model(rows().X), fitted(rows().X), rtol=0, atol=0)


def test_a_fit_reports_every_cell_and_leaves_validation_rows_out():
    result = fit_park(fit_settings(), rows())
    assert sum(cell.rows for cell in result.report) == 400
    assert 0 < len(result.left_out.X) < 400
    assert [cell.cell for cell in result.report] == [0, 1, 2, 3]


def test_all_of_few_rows_are_left_out_in_turn():
    assert len(fit_park(fit_settings(n_cells=1), rows(100)).left_out.X) == 100
