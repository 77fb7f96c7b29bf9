"""The coarse comparison and the rule of the blend: rows, errors, and when the settings change."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parkrr.data import ArraySource, Holdout
from parkrr.kernels import FeatureMap, Gaussian
from parkrr.park import Coarse, Model, fit_cells, fit_nystrom_model, make_tasks, place_centroids
from parkrr.partition import Blend, median_margin
from parkrr.planning.settings import build_settings, open_choices
from parkrr.tuning.coarse_comparison import MOST_CELLS, choose_levels, prepare_comparison
from parkrr.tuning.log import TuningLog
from plain import plain

N = 400
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(N, 2))
HARD = Blend()


def rows(y):
    return ArraySource(torch.from_numpy(X), torch.from_numpy(y[:, None]))


SMOOTH = rows(np.sin(2 * X[:, 0]) + X[:, 1] ** 2)
NOISE = rows(rng.normal(size=N))


def settings(n_cells=6, lengthscale=0.4, **changes):
    given = plain(n_cells=n_cells, balance=False, progress=False, **changes).get_params()
    sizes = SimpleNamespace(n_cells=n_cells, n_centers=N)
    made = build_settings(given, open_choices(given, N, 2), sizes, N, 0)
    return replace(made, kernel=Gaussian(lengthscale), metric=FeatureMap(), penalty=1e-6)


def prepare(n_cells=6, holdout=None):
    given = settings(n_cells=n_cells)
    return prepare_comparison(
        given, SMOOTH, place_centroids(given, FeatureMap(), SMOOTH, 0), holdout
    )


def test_validation_rows_and_the_rest_are_all_rows():
    comparison = prepare()
    both = torch.cat([*(part.X for part in comparison.validation), comparison.rest.load().X])
    assert sorted(both.tolist()) == sorted(X.tolist())


def test_a_fifth_of_each_fitted_cell_are_validation_rows():
    comparison = prepare()
    for train, validation in zip(comparison.training, comparison.validation, strict=True):
        assert validation.n_rows == int(0.2 * (train.n_rows + validation.n_rows))
    assert comparison.n == pytest.approx(0.8 * N)


def test_validation_rows_of_a_holdout_are_those_of_the_comparison():
    is_validation = torch.from_numpy(rng.permutation(N) < 100)
    comparison = prepare(holdout=Holdout(is_validation))
    given = {tuple(row) for row in X[is_validation.numpy()].tolist()}
    assert all(tuple(row) in given for part in comparison.validation for row in part.X.tolist())
    assert comparison.rest.n_rows == N - 100
    assert comparison.n == pytest.approx(0.75 * N)


@pytest.mark.parametrize(("n_cells", "fitted"), [(4, 2), (6, 3), (16, MOST_CELLS)])
def test_half_of_the_cells_are_fitted_or_eight(n_cells, fitted):
    assert len(prepare(n_cells).training) == fitted


def fit_alone(comparison, coarse):
    """Mean squared error of cells that are fitted to what this coarse level leaves."""
    given, cells, squares = comparison.settings, comparison.training, 0.0
    if coarse is not None:
        cells = [replace(cell, Y=cell.Y - coarse(cell.X)) for cell in cells]
    fitted = fit_cells(given, make_tasks(given, cells, comparison.n, given.seed, every_row=True))
    for cell, rows in zip(fitted, comparison.validation, strict=True):
        model = Model(
            kernel=given.kernel,
            metric=FeatureMap(),
            centroids=rows.X[:1],
            centers=[cell.centers],
            weights=[cell.weights],
            intercept=torch.zeros(1, dtype=torch.float64),
            coarse=coarse,
        )
        squares += float((rows.Y - model.predict(rows.X)).square().sum())
    return squares / sum(rows.n_rows for rows in comparison.validation)


def test_errors_that_share_a_fit_are_those_of_fits_of_their_own():
    comparison, level = prepare(), Coarse(50, Gaussian(2.0))
    coarse = fit_nystrom_model(level.kernel, comparison.rest, 50, 1, comparison.settings.seed)
    without, with_coarse = comparison.compare(level)
    assert without == pytest.approx(fit_alone(comparison, None), rel=1e-6)
    assert with_coarse == pytest.approx(fit_alone(comparison, coarse), rel=1e-4)


def test_the_two_nearest_cells_are_blended_in_a_quarter_of_the_median_margin():
    given, log = settings(), TuningLog()
    margin = median_margin(
        given.kernel, place_centroids(given, FeatureMap(), SMOOTH, 0), torch.from_numpy(X)
    )
    tuned = choose_levels(given, SMOOTH, True, False, log)
    assert tuned == replace(given, blend=Blend(2, pytest.approx(0.25 * margin)))
    assert log.tried == []


def test_a_coarse_level_is_three_times_as_wide_as_the_cells():
    tuned = choose_levels(settings(lengthscale=0.1), SMOOTH, False, True, TuningLog())
    assert tuned.coarse == Coarse(1000, Gaussian(3.0 * 0.1))
    assert tuned.blend == HARD


def test_there_is_no_coarse_level_where_it_does_not_lower_the_error():
    log = TuningLog()
    assert choose_levels(settings(lengthscale=0.1), NOISE, False, True, log).coarse is None
    errors = {entry["level"]: entry["error"] for entry in log.tried}
    assert errors["coarse and cells"] >= errors["cells"]


@pytest.mark.parametrize("n_cells", [1, 2])
def test_one_or_two_cells_have_neither(n_cells):
    given, log = settings(n_cells=n_cells), TuningLog()
    assert choose_levels(given, SMOOTH, True, True, log) == given
    assert log.tried == []


def test_nothing_open_leaves_the_settings():
    given = settings()
    assert choose_levels(given, SMOOTH, False, False, TuningLog()) is given
