"""The blend trial: which rows it uses, what it measures, and when it changes the settings."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import FeatureMap, Gaussian
from parkrr.park import Coarse, Model, fit_cells, fit_nystrom_model, make_tasks
from parkrr.partition import Blend
from parkrr.planning.settings import build_settings, open_choices
from parkrr.tuning.blend_trial import (
    ALL_CELLS,
    CENTERS,
    FITTED,
    VALIDATED,
    choose_levels,
    prepare_blend_trial,
)
from parkrr.tuning.log import TuningLog
from plain import plain

N = 400
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(N, 2))
HARD = Blend()


def rows(y):
    return ArraySource(torch.from_numpy(X), torch.from_numpy(y[:, None]))


SMOOTH = rows(np.sin(2 * X[:, 0]) + X[:, 1] ** 2)
NOISY = rows(np.sin(2 * X[:, 0]) + rng.normal(size=N))


def settings(n_cells=6, lengthscale=0.4, **changes):
    given = plain(n_cells=n_cells, balance=False, progress=False, **changes).get_params()
    sizes = SimpleNamespace(n_cells=n_cells, n_centers=N)
    made = build_settings(given, open_choices(given, N, 2), sizes, N, 0)
    return replace(made, kernel=Gaussian(lengthscale), metric=FeatureMap(), penalty=1e-6)


def test_validation_rows_and_the_rest_are_all_rows():
    prepared = prepare_blend_trial(settings(), SMOOTH)
    both = torch.cat([prepared.validation.X, prepared.rest.load().X])
    assert sorted(both.tolist()) == sorted(X.tolist())


def test_a_fifth_of_every_cell_are_validation_rows():
    prepared = prepare_blend_trial(settings(), SMOOTH)
    train = sum(cell.n_rows for cell in prepared.cells)
    assert train + prepared.validation.n_rows == N
    assert 0.18 * N < prepared.validation.n_rows <= 0.2 * N
    assert prepared.n == pytest.approx(0.8 * N)


def test_of_many_cells_those_around_a_few_centroids_are_fitted():
    prepared = prepare_blend_trial(settings(n_cells=ALL_CELLS + 30), SMOOTH)
    assert FITTED <= len(prepared.cells) <= CENTERS * FITTED
    assert len(prepared.cells) == len(prepared.centroids)
    inside = sum(cell.n_rows for cell in prepared.cells)
    assert 0 < prepared.validation.n_rows < 0.2 * inside * VALIDATED / FITTED * 4


def fit_model(prepared, level, blend):
    """The cells fitted by themselves to what this coarse level leaves, as a model."""
    given, coarse = prepared.settings, None
    cells = prepared.cells
    if level is not None:
        coarse = fit_nystrom_model(level.kernel, prepared.rest, level.n_centers, 1, given.seed)
        cells = [replace(cell, Y=cell.Y - coarse(cell.X)) for cell in cells]
    tasks = make_tasks(given, cells, prepared.n, given.seed, every_row=True)
    fitted = fit_cells(given, tasks)
    return Model(
        kernel=given.kernel,
        metric=FeatureMap(),
        centroids=prepared.centroids,
        centers=[cell.centers for cell in fitted],
        weights=[cell.weights for cell in fitted],
        intercept=torch.zeros(1, dtype=torch.float64),
        blend=blend,
        coarse=coarse,
    )


@pytest.mark.parametrize("level", [None, Coarse(50, Gaussian(2.0))], ids=["cells", "coarse"])
@pytest.mark.parametrize("blend", [HARD, Blend(2, 0.1), Blend(3, 0.4), Blend(5, 0.8)], ids=repr)
def test_predictions_that_share_a_fit_are_those_of_a_model_of_its_own(level, blend):
    prepared = prepare_blend_trial(settings(), SMOOTH)
    [_, nearest, *_] = prepared.predict([None, level, Coarse(20)], Blend(5, 0.8))
    expected = fit_model(prepared, level, blend).predict(prepared.validation.X)
    torch.testing.assert_close(nearest.blend(blend), expected, rtol=1e-6, atol=1e-6)


def test_the_error_is_the_mean_squared_error_of_predictions():
    prepared = prepare_blend_trial(settings(), SMOOTH)
    Y = prepared.validation.Y
    assert prepared.error(Y + 0.5) == pytest.approx(0.25)


@pytest.mark.parametrize(("blend", "noted"), [(False, 1), (True, 16)])
def test_every_blend_that_is_open_is_noted(blend, noted):
    log = TuningLog()
    [(error, best)] = prepare_blend_trial(settings(), SMOOTH).compare([None], blend, log)
    errors = {entry["blend"]: entry["error"] for entry in log.tried}
    assert len(errors) == noted
    assert errors[repr(best)] == error
    assert {entry["level"] for entry in log.tried} == {"cells"}


def test_blending_is_chosen_where_it_lowers_the_error():
    log = TuningLog()
    tuned = choose_levels(settings(), NOISY, True, False, log)
    errors = {entry["blend"]: entry["error"] for entry in log.tried}
    assert errors[repr(tuned.blend)] < 0.995 * errors[repr(HARD)]
    assert errors[repr(tuned.blend)] == min(errors.values())


def test_the_nearest_cell_alone_stays_where_nothing_is_better():
    constant = rows(np.zeros(N))
    assert choose_levels(settings(), constant, True, False, TuningLog()).blend == HARD


def test_a_coarse_level_is_three_times_as_wide_as_the_cells():
    tuned = choose_levels(settings(lengthscale=0.1), SMOOTH, False, True, TuningLog())
    assert tuned.coarse == Coarse(1000, Gaussian(3.0 * 0.1))


@pytest.mark.parametrize("n_cells", [1, 2])
def test_one_or_two_cells_are_not_compared(n_cells):
    given, log = settings(n_cells=n_cells), TuningLog()
    assert choose_levels(given, SMOOTH, True, True, log) == given
    assert log.tried == []


def test_nothing_open_leaves_the_settings():
    given = settings()
    assert choose_levels(given, SMOOTH, False, False, TuningLog()) is given
