"""Losses for counts and amounts, through the estimator."""

import numpy as np
import pytest
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.metrics import mean_poisson_deviance

import modelreader
from parkrr import Blend, Coarse, Gaussian, Linear, ParKRegressor, load, scan_parquet
from parkrr.errors import ParameterError
from reference import kernel_matrix, reweighted_ridge

KNOWN = {"metric": "euclidean", "n_cells": 1, "blend": 1, "coarse": 0, "random_state": 0}
LINEAR = {**KNOWN, "kernel": Linear(), "penalty": 0.01, "fit_intercept": False}
CELLS = {**KNOWN, "kernel": Gaussian(1.0), "penalty": 1e-3, "n_cells": 3}


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    exposure = rng.uniform(0.2, 2.0, 400)
    mu = np.exp(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1])
    return X, rng.poisson(exposure * mu) / exposure, exposure, mu


@pytest.fixture(scope="module")
def model(counts):
    X, rate, exposure, _ = counts
    return ParKRegressor(**CELLS, loss="poisson").fit(X, rate, exposure)


def test_a_linear_kernel_has_the_coefficients_of_poisson_regression(counts):
    X, y, w, _ = counts
    model = ParKRegressor(**LINEAR, loss="poisson").fit(X, y, w)
    known = PoissonRegressor(alpha=0.01, fit_intercept=False, tol=1e-12).fit(X, y, w)
    np.testing.assert_allclose(model.predict(X), known.predict(X), rtol=1e-6)


def test_a_linear_kernel_has_the_coefficients_of_gamma_regression(counts):
    X, y, w, _ = counts
    model = ParKRegressor(**LINEAR, loss="gamma").fit(X, y + 0.1, w)
    known = GammaRegressor(alpha=0.01, fit_intercept=False, tol=1e-12).fit(X, y + 0.1, w)
    np.testing.assert_allclose(model.predict(X), known.predict(X), rtol=1e-3)


def test_a_linear_kernel_has_the_coefficients_of_tweedie_regression(counts):
    X, y, w, _ = counts
    model = ParKRegressor(**LINEAR, loss="tweedie", power=1.3).fit(X, y, w)
    known = TweedieRegressor(power=1.3, alpha=0.01, fit_intercept=False, link="log", tol=1e-12)
    np.testing.assert_allclose(model.predict(X), known.fit(X, y, w).predict(X), rtol=1e-4)


def test_the_penalty_has_the_same_meaning_in_any_unit_of_the_target(counts):
    X, y, w, _ = counts
    model = ParKRegressor(**CELLS, loss="poisson")
    once, thousand = (model.fit(X, unit * y, w).predict(X) for unit in (1.0, 1000.0))
    np.testing.assert_allclose(thousand, 1000 * once, rtol=1e-6)


def test_the_prediction_is_that_of_plain_fisher_scoring_around_the_mean(counts):
    X, y, w, _ = counts
    X, y, w = X[:80], y[:80], w[:80] / w[:80].mean()
    model = ParKRegressor(Gaussian(1.0), 1e-2, **KNOWN, loss="poisson", extrapolation="free")
    mean = np.average(y, weights=w)
    K = kernel_matrix(Gaussian(1.0), X, X)
    expected = mean * np.exp(reweighted_ridge(K, y / mean, w, 0.8, 1.0))
    np.testing.assert_allclose(model.fit(X, y, w).predict(X), expected, rtol=1e-6)


def test_predictions_are_positive_and_close_to_the_means(counts, model):
    X, _, _, mu = counts
    assert (model.predict(X) > 0).all()
    assert np.corrcoef(model.predict(X), mu)[0, 1] > 0.95


def test_choices_are_made_for_counts(counts):
    X, y, w, mu = counts
    model = ParKRegressor(loss="poisson", effort="fast", random_state=0, progress=False)
    model.fit(X[:250], y[:250], w[:250])
    constant = np.full(150, np.average(y[:250], weights=w[:250]))
    assert mean_poisson_deviance(mu[250:], model.predict(X[250:])) < 0.2 * mean_poisson_deviance(
        mu[250:], constant
    )


def test_an_integer_weight_equals_copies_of_the_row(counts):
    X, y, _, _ = counts
    times = np.arange(len(y)) % 3 + 1
    weighted = ParKRegressor(**{**CELLS, "n_cells": 1}, loss="poisson").fit(X, y, times)
    copied = ParKRegressor(**{**CELLS, "n_cells": 1}, loss="poisson")
    copied.fit(np.repeat(X, times, 0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), rtol=1e-5)


def test_validation_rows_hold_targets_and_leave_one_out_means(counts, model):
    _, y, _, _ = counts
    rows = model.validation_rows_
    assert np.isin(rows["truth"].round(9), y.round(9)).all()
    assert (rows["predicted"] > 0).all()


def test_intervals_do_not_go_below_zero(counts, model):
    X, y, _, _ = counts
    lower, upper = model.predict_interval(X, coverage=0.9)
    assert (lower >= 0).all()
    assert np.mean((lower <= y) & (y <= upper)) > 0.85
    assert (model.predict_quantile(X, [0.1]) >= 0).all()


def test_a_saved_model_predicts_the_same_means(counts, model, tmp_path):
    X = counts[0]
    model.save(tmp_path / "rates.park")
    again = load(tmp_path / "rates.park")
    assert again.loss == "poisson"
    assert (again.predict(X) == model.predict(X)).all()


def test_the_documented_steps_read_the_same_means_from_a_file(counts, model, tmp_path):
    X = counts[0]
    model.save(tmp_path / "rates.park")
    t, about = modelreader.read(tmp_path / "rates.park")
    found = modelreader.values(t, about, modelreader.mapped(X, t))[:, 0]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-6)


def test_an_onnx_file_predicts_the_same_means(counts, model, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X = counts[0]
    model.to_onnx(tmp_path / "rates.onnx")
    [found] = onnxruntime.InferenceSession(tmp_path / "rates.onnx").run(None, {"X": X})
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-6)


def test_centres_of_your_own_are_used(counts):
    X, y, w, mu = counts
    model = ParKRegressor(**CELLS, n_centers=X[:90], loss="poisson").fit(X, y, w)
    assert sum(cell.centers for cell in model.report_) == 90
    assert np.corrcoef(model.predict(X), mu)[0, 1] > 0.95


def test_one_row_is_predicted_as_among_others(counts, model):
    X = counts[0]
    one = [model.predict(row[None])[0] for row in X[:5]]
    np.testing.assert_allclose(one, model.predict(X)[:5], rtol=1e-6)


def test_cells_blend_on_the_scale_of_the_logarithm(counts):
    X, y, w, _ = counts
    blended = {**CELLS, "blend": Blend(2, 0.5), "extrapolation": "free"}
    model = ParKRegressor(**blended, loss="poisson").fit(X, y, w)
    linear = model.model_.replace_limits(None, link="identity")
    rows = model._rows(X)
    np.testing.assert_allclose(
        model.predict(X), np.exp(linear.predict(rows)[:, 0].numpy()), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of"),
        ({"loss": "tweedie", "power": 0.5}, "power must be from 1"),
        ({"coarse": Coarse(5)}, "coarse must be 'auto' or 0 for loss='poisson'"),
        ({"keep_statistics": True}, "loss must be 'squared_error' for partial_fit"),
        ({"guarantee": "jackknife+"}, "guarantee must be 'none', 'split' or 'cell' for loss"),
    ],
)
def test_what_a_loss_cannot_do_is_refused(counts, change, message):
    X, y, _, _ = counts
    model = ParKRegressor(**{**KNOWN, "loss": "poisson", **change})
    with pytest.raises(ParameterError, match=message):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (
            "poisson",
            [-1.0, 2.0, 3.0],
            "y must be >= 0 and not all 0 for this loss, got values from",
        ),
        ("poisson", [0.0, 0.0, 0.0], "y must be >= 0 and not all 0"),
        ("gamma", [0.0, 2.0, 3.0], "y must be > 0 for this loss"),
        ("poisson", [[1.0, 2.0]] * 3, "y must be one target"),
    ],
)
def test_targets_without_a_positive_mean_are_refused(loss, y, message):
    with pytest.raises(ParameterError, match=message):
        ParKRegressor(loss=loss).fit([[0.0], [1.0], [2.0]], y)


def test_an_update_is_refused(counts):
    X, y, _, _ = counts
    with pytest.raises(ParameterError, match="loss must be 'squared_error' for partial_fit"):
        ParKRegressor(loss="poisson").partial_fit(X, y)


def test_files_in_memory_give_the_model_of_an_array_and_a_checkpoint_is_refused(counts, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, w, _ = counts
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "w": w}).to_parquet(tmp_path / "rows.parquet")
    rows = scan_parquet(tmp_path / "rows.parquet", target="y", weight="w", features=["a", "b"])
    model = ParKRegressor(**CELLS, loss="poisson")
    frame = pd.DataFrame(X, columns=["a", "b"])
    from_file, from_array = model.fit(rows).predict(frame), model.fit(frame, y, w).predict(frame)
    np.testing.assert_allclose(from_file, from_array, rtol=1e-6)
    with pytest.raises(ParameterError, match="loss must be 'squared_error' for files that stay"):
        model.set_params(checkpoint=tmp_path / "job").fit(rows)
