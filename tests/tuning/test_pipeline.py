"""Automatic choices: what they find, what they promise, what they record."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parkrr import LocalEngine, ParKClassifier, ParKRegressor, load
from parkrr.data.rows import ArraySource
from parkrr.kernels import FeatureMap, Gaussian, Laplacian
from parkrr.planning.settings import build_settings, open_choices
from parkrr.tuning.log import TuningLog
from parkrr.tuning.pipeline import first_maps, search_sample
from plain import plain

AUTO = {"random_state": 0}
LEARNED = {"kernel": "gaussian", "metric": "learned", **AUTO}


def ridge_function(n, seed=0):
    """A target that changes along one direction of six, and a held-out part."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, np.sin(3 * X[:, 0] + X[:, 1]) + 0.05 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = ridge_function(3000)
    return ParKRegressor(n_cells=5, **AUTO).fit(X[:2000], y[:2000]), X[2000:], y[2000:]


@pytest.fixture(scope="module")
def few_choices():
    X, y = ridge_function(600)  # one cell, whose factor takes nine tiles
    return X, y, ParKRegressor(engine=LocalEngine(2), **LEARNED).fit(X, y)


def rmse(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def test_a_learned_metric_finds_the_direction_of_change(fitted):
    model, X, y = fitted
    X_train, y_train = ridge_function(3000)
    standard = ParKRegressor(metric="standard", **AUTO).fit(X_train[:2000], y_train[:2000])
    assert rmse(model, X, y) < 0.5 * rmse(standard, X, y)


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1600, 104))
    return ParKRegressor(effort="fast", **AUTO).fit(X, np.sin(2 * X[:, 5]) + X[:, 90] ** 2), X


def test_of_many_columns_those_that_matter_are_left(wide):
    model, _ = wide
    assert model.feature_importances_[[5, 90]].sum() > 0.99
    assert (model.feature_importances_ == 0).sum() >= 78


def test_a_model_of_few_of_its_columns_is_the_same_after_a_reload(wide, tmp_path):
    model, X = wide
    model.save(tmp_path / "wide.park")
    again = load(tmp_path / "wide.park")
    np.testing.assert_array_equal(again.predict(X[:50]), model.predict(X[:50]))


def test_importances_are_shares_of_the_features_that_matter(fitted):
    shares = fitted[0].feature_importances_
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == pytest.approx(0.9, abs=0.05)  # slopes of sin(3 x_0 + x_1) are 3 to 1
    assert shares[1] == pytest.approx(0.1, abs=0.05)


def test_the_chosen_parameters_fit_the_same_model(fitted):
    model, X, _ = fitted
    X_train, y_train = ridge_function(3000)
    again = ParKRegressor(**model.chosen_.params).fit(X_train[:2000], y_train[:2000])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_what_was_tried_is_recorded_with_its_error(fitted):
    chosen = fitted[0].chosen_
    assert {"sample search", "metric search", "coarse comparison"} == set(chosen.seconds)
    choices = [e for e in chosen.tried if e["step"] not in ("intervals", "extrapolation")]
    assert {entry["step"] for entry in choices} == {
        *(
            "sample search",
            "metric descent",
            "kernel comparison",
            "comparison on cells",
            "coarse comparison",
            "blend",
        )
    }
    assert all(np.isfinite(entry["error"]) for entry in choices)


def test_settled_parameters_leave_nothing_to_try():
    X, y = ridge_function(300)
    model = plain(random_state=0).fit(X, y)
    assert {entry["step"] for entry in model.chosen_.tried} == {"intervals", "extrapolation"}


@pytest.fixture(scope="module")
def automatic():
    X, y = ridge_function(2000)
    return rmse(ParKRegressor(**AUTO).fit(X[:1000], y[:1000]), X[1000:], y[1000:])


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_unit_of_a_feature_or_the_target_does_not_matter(automatic, scale):
    X, y = ridge_function(2000)
    X, y = X * np.array([scale, 1, 1, 1 / scale, 1, 1]), y * scale
    error = rmse(ParKRegressor(**AUTO).fit(X[:1000], y[:1000]), X[1000:], y[1000:])
    assert error == pytest.approx(scale * automatic, rel=0.02)


def test_the_order_of_columns_does_not_matter(automatic):
    X, y = ridge_function(2000)
    X = X[:, ::-1]
    error = rmse(ParKRegressor(**AUTO).fit(X[:1000], y[:1000]), X[1000:], y[1000:])
    assert error == pytest.approx(automatic, rel=0.02)


def test_the_order_of_rows_does_not_matter(automatic):
    X, y = ridge_function(2000)
    order = np.random.default_rng(1).permutation(1000)
    error = rmse(ParKRegressor(**AUTO).fit(X[order], y[order]), X[1000:], y[1000:])
    assert error == pytest.approx(automatic, rel=0.02)


def test_choices_see_an_integer_weight_as_copies_of_the_row():
    X, y = ridge_function(120)
    w = np.random.default_rng(0).integers(0, 4, size=120)
    weighted = ParKRegressor(**AUTO).fit(X, y, w)
    copied = ParKRegressor(**AUTO).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert copied.chosen_.params["kernel"] == weighted.chosen_.params["kernel"]
    np.testing.assert_allclose(copied.predict(X), weighted.predict(X), rtol=1e-6, atol=1e-6)


def noisy_rows(n):
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(X[:, 0]) + 0.5 * rng.normal(size=n)


def test_a_table_that_was_repeated_is_fitted_as_the_table():
    X, y = noisy_rows(400)
    once = ParKRegressor(**AUTO).fit(X, y)
    twice = ParKRegressor(**AUTO).fit(np.concatenate([X, X]), np.concatenate([y, y]))
    assert twice.chosen_.params["kernel"] == once.chosen_.params["kernel"]
    np.testing.assert_allclose(twice.predict(X), once.predict(X), rtol=1e-6, atol=1e-6)


def test_where_new_rows_may_be_copies_choices_follow_the_noise():
    X, y = noisy_rows(400)
    counts = np.random.default_rng(0).integers(1, 8, size=400)
    copied = ParKRegressor(**AUTO).fit(X.repeat(counts, 0), y.repeat(counts))
    once = ParKRegressor(**AUTO).fit(X, y)
    assert np.std(copied.predict(X) - y) < 0.2 * np.std(once.predict(X) - y)


def test_a_classifier_can_choose_too():
    X, y = ridge_function(1500)
    model = ParKClassifier(**AUTO).fit(X[:1000], y[:1000] > 0)
    assert model.score(X[1000:], y[1000:] > 0) > 0.9


def test_a_fixed_lengthscale_is_kept():
    X, y = ridge_function(300)
    model = ParKRegressor(kernel=Gaussian(1.7), penalty="auto", random_state=0).fit(X, y)
    assert model.model_.kernel == Gaussian(1.7)
    assert model.chosen_.params["penalty"] != 1e-6


@pytest.mark.parametrize("n", [1, 2, 3, 20])
@pytest.mark.parametrize("changes", [{"metric": "learned"}, {"n_cells": 10, "balance": False}])
@pytest.mark.filterwarnings("ignore:n_cells=10 gave")
def test_a_handful_of_rows_can_be_fitted(n, changes):
    X, y = ridge_function(20)
    model = ParKRegressor(**changes, **AUTO).fit(X[:n], y[:n])
    assert np.isfinite(model.predict(X)).all()


def test_equal_rows_can_be_fitted():
    X = np.ones((400, 2))
    model = ParKRegressor(**AUTO).fit(X, np.arange(400.0))
    assert model.predict(X[:1])[0] == pytest.approx(199.5, rel=1e-3)


@pytest.mark.parametrize("n", [100, 400])
def test_a_given_penalty_is_kept(n):
    X, y = ridge_function(n)
    assert ParKRegressor(penalty=1e-6, **AUTO).fit(X, y).chosen_.params["penalty"] == 1e-6


def test_a_budget_too_short_for_any_descent_still_gives_a_model():
    X, y = ridge_function(1000)
    model = ParKRegressor(time_budget=1e-3, **AUTO).fit(X, y)
    assert "metric descent" not in {entry["step"] for entry in model.chosen_.tried}
    assert np.isfinite(model.predict(X)).all()


def small(metric, n=350, **changes):
    X, y = ridge_function(n)
    params = plain(metric=metric, progress=False, **changes).get_params()
    choices = open_choices(params, n, 6)
    settings = build_settings(params, choices, SimpleNamespace(n_cells=1, n_centers=n), n, 0)
    return settings, choices, ArraySource(torch.from_numpy(X), torch.from_numpy(y[:, None]))


@pytest.mark.parametrize(
    ("metric", "names"),
    [
        (FeatureMap(), ["given"]),
        ("standard", ["standard"]),
        ("euclidean", ["euclidean"]),
        ("learned", ["standard", "scores"]),
    ],
)
def test_a_metric_to_learn_starts_with_and_without_scores(metric, names):
    _, choices, rows = small(metric)
    assert [name for _, name in first_maps(choices, rows, 0)] == names


def test_every_kernel_family_is_searched_behind_every_map():
    settings, choices, rows = small("learned", kernel="auto")
    log = TuningLog()
    candidates = search_sample(settings, choices, rows, [0, 0], log)
    errors = [candidate.error for candidate in candidates]
    assert len(candidates) == 4 * 2 == len(log.tried)
    assert errors == sorted(errors)


def test_a_penalty_of_the_sample_keeps_lambda_n_for_all_rows():
    settings, choices, rows = small("standard", kernel=Laplacian(2.0), penalty="auto")
    log = TuningLog()
    [candidate] = search_sample(settings, choices, rows, [0, 0], log)
    train = 350 - 350 // 4
    assert candidate.penalty * 350 == pytest.approx(log.tried[0]["penalty"] * train)
    assert candidate.kernel == Laplacian(2.0)


def tensors(model):
    """Everything a model computes with."""
    own = model.model_
    return [own.metric.matrix, own.centroids, *own.centers, *own.weights, own.intercept]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_number_of_threads_does_not_change_a_bit_of_the_model(n_threads, few_choices):
    X, y, two = few_choices
    other = ParKRegressor(engine=LocalEngine(n_threads), **LEARNED).fit(X, y)
    assert all(torch.equal(a, b) for a, b in zip(tensors(two), tensors(other), strict=True))
    assert torch.equal(two.intervals_.quantiles, other.intervals_.quantiles)


def test_a_clock_that_runs_fast_does_not_change_a_bit_of_the_model(few_choices, monkeypatch):
    X, y, two = few_choices
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: 1000 * clock())
    other = ParKRegressor(engine=LocalEngine(2), **LEARNED).fit(X, y)
    assert all(torch.equal(a, b) for a, b in zip(tensors(two), tensors(other), strict=True))


def test_a_budget_that_strikes_is_in_what_was_tried(monkeypatch):
    X, y = ridge_function(500)
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: 1000 * clock())
    model = ParKRegressor(time_budget=100.0, **AUTO).fit(X, y)
    [stop] = [each for each in model.chosen_.tried if each["step"] == "time budget"]
    assert stop["stopped"].startswith("sample search")
