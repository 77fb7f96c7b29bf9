"""One cell, and its leave-one-out predictions, against the formulas."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import reference
from parkrr.data import ArraySource, Block
from parkrr.errors import CellError
from parkrr.kernels import Gaussian, Linear
from parkrr.park import CellTask, Coarse, fit_cell, fit_park
from parkrr.park.cells import (
    CellReport,
    CellResult,
    choose_blend,
    join_left_out,
    local_penalty,
)
from parkrr.partition import Blend
from parkrr.solvers import Direct
from plain import fit_settings

KERNEL, RIDGE = Gaussian(1.5), 0.05


def cell(n=80, weighted=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    w = torch.from_numpy(rng.uniform(0.5, 2, size=n)) if weighted else None
    return ArraySource(torch.from_numpy(X), torch.from_numpy(np.sin(X[:, :1])), w)


def task(rows, m_q=30, kernel=KERNEL, n_left_out=0):
    lambda_q = RIDGE / rows.total_weight
    return CellTask(2, rows, kernel, Direct(), "", m_q, lambda_q, 0, 1, n_left_out)


def report(rows, n_q, penalty):
    return CellReport(0, rows, n_q, 3, penalty, "direct", "", 0, 0.0, True, "", 0.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_cell_is_the_nystrom_estimator_of_its_rows(weighted):
    rows = cell(weighted=weighted)
    result = fit_cell(task(rows))
    X, Z, Y = rows.X.numpy(), result.centers.numpy(), rows.Y.numpy()
    w = np.ones(80) if rows.w is None else rows.w.numpy()
    K_nm, K_mm = (reference.kernel_matrix(KERNEL, A, Z) for A in (X, Z))
    expected = K_nm @ reference.ridge_regression(K_nm, K_mm, Y, w, RIDGE)
    np.testing.assert_allclose(K_nm @ result.weights.numpy(), expected, rtol=1e-7, atol=1e-8)


def test_the_report_has_the_local_penalty():
    result = fit_cell(task(cell(weighted=True)))
    assert result.report.penalty == RIDGE / cell(weighted=True).total_weight
    assert result.report.ridge == pytest.approx(RIDGE)


def test_a_cell_without_weight_has_a_penalty():
    assert np.isfinite(local_penalty(1e-6, 0.0))


def test_rows_that_are_left_out_are_centres_only_if_others_are_too_few():
    rows = cell()
    last = rows.X[-20:]
    others = fit_cell(task(rows, m_q=60, n_left_out=20)).centers
    assert not bool((torch.cdist(others, last) == 0).any())
    every = fit_cell(task(rows, m_q=80, n_left_out=20)).centers
    assert bool((torch.cdist(every, last) == 0).any())


def test_the_change_is_that_of_a_fit_without_the_row():
    rows = cell()
    result = fit_cell(task(rows, n_left_out=10))
    X, Z = rows.X.numpy(), result.centers.numpy()
    K_nm, K_mm = (reference.kernel_matrix(KERNEL, A, Z) for A in (X, Z))
    groups = [[i] for i in range(70, 80)]
    expected = reference.left_out_changes(K_nm, K_mm, rows.Y.numpy(), np.ones(80), RIDGE, groups)
    np.testing.assert_allclose(result.change.numpy(), expected, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(result.rows.X, rows.X[-10:])


def test_a_kernel_that_is_zero_on_all_centres_fits_nothing():
    rows = ArraySource(torch.zeros(9, 2).double(), torch.ones(9, 1).double())
    result = fit_cell(task(rows, m_q=3, kernel=Linear(), n_left_out=2))
    assert not bool(result.weights.any())
    assert not bool(result.change.any())


def test_weights_that_are_not_finite_are_refused_with_the_cell():
    rows = ArraySource(cell().X, torch.full((80, 1), float("nan"), dtype=torch.float64))
    with pytest.raises(CellError, match=r"cell 2 \(80 rows\).*raise the penalty"):
        fit_cell(task(rows))


@pytest.mark.parametrize("blend", [Blend(), Blend(2, 2.0)])
def test_a_leave_one_out_prediction_is_that_of_a_model_fitted_without_the_row(blend):
    """The same centres, but the weights of one cell solved again without the row."""
    rows = cell(250)
    settings = fit_settings(
        kernel=KERNEL, penalty=1e-3, n_cells=3, n_centers=60, blend=blend, fit_intercept=True
    )
    model, _, _, _, left_out, _ = fit_park(settings, rows)
    predicted = left_out.predictions(model, 1)
    assert len(predicted) == 250
    for i in (0, 100, 249):
        x, q = left_out.X[i : i + 1], int(left_out.cell[i])
        own = (left_out.cell == q).nonzero()[:, 0]
        kept = own[own != i]
        Z, R = model.centers[q], (left_out.Y - model.intercept)[kept]
        K_nm, K_mm = KERNEL(left_out.X[kept], Z).numpy(), KERNEL(Z, Z).numpy()
        alpha = reference.ridge_regression(K_nm, K_mm, R.numpy(), np.ones(len(kept)), 0.25)
        weights = list(model.weights)
        weights[q] = torch.from_numpy(alpha)
        without = model.replace_weights(weights, [q]).evaluate(x)
        torch.testing.assert_close(predicted[i : i + 1], without, rtol=1e-5, atol=1e-6)


def test_the_blend_of_least_leave_one_out_error_is_chosen():
    rows = cell(600)
    settings = fit_settings(
        kernel=KERNEL, penalty=1e-3, n_cells=6, n_centers=600, blend=Blend(2, 2.0)
    )
    result = fit_park(settings, rows)
    model, left_out = result.model, result.left_out
    blends = {1.0: Blend(2, 2.0), 0.4: Blend(2, 0.8), 0.0: Blend()}
    predicted = {k: left_out.predictions(replace(model, blend=b), 1) for k, b in blends.items()}
    errors = {k: float((p - left_out.Y).square().mean()) for k, p in predicted.items()}
    chosen, tried = choose_blend(model, left_out, 1, 0)
    assert [entry["error"] ** 2 for entry in tried] == pytest.approx(list(errors.values()))
    assert chosen.blend == blends[min(errors, key=errors.get)]


def test_a_target_that_steps_where_cells_meet_is_not_blended():
    rows = cell(600)
    settings = fit_settings(
        kernel=KERNEL, penalty=1e-3, n_cells=6, n_centers=600, blend=Blend(2, 2.0)
    )
    cell_of = fit_park(settings, rows).model.route(rows.X)
    steps = replace(rows, Y=10.0 * cell_of[:, None].double())
    result = fit_park(settings, steps)
    assert choose_blend(result.model, result.left_out, 1, 0)[0].blend == Blend()


def test_joined_rows_have_the_targets_of_the_user():
    rows = cell(400)
    settings = fit_settings(coarse=Coarse(20, Gaussian(3.0)), fit_intercept=True)
    result = fit_park(settings, rows)
    left_out, mapped = result.left_out, result.model.map_rows(rows.X)
    nearest = torch.cdist(left_out.X, mapped).argmin(1)
    torch.testing.assert_close(left_out.Y, rows.Y[nearest])


def test_cells_without_leave_one_out_rows_are_skipped():
    model = fit_park(fit_settings(n_cells=1), cell(400)).model
    block = Block(torch.ones(2, 2).double(), torch.ones(2, 1).double(), None)
    some = CellResult(block.X, block.Y, report(2, 2.0, 0.1), block, torch.zeros(2, 1).double())
    none = CellResult(block.X, block.Y, report(2, 2.0, 0.1))
    assert join_left_out(model, [none, some, none, some], 2.0).cell.tolist() == [1, 1, 3, 3]
    assert join_left_out(model, [none, some], 2.0).Y.tolist() == [[2.0], [2.0]]
