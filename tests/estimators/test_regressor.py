"""ParKRegressor: shapes, refusals and updates."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from parkrr import ParKRegressor
from parkrr.errors import ParameterError
from plain import PLAIN

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (300, 2))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2])


def regressor(**params):
    return ParKRegressor(**PLAIN | {"random_state": 0, "progress": False} | params)


@pytest.fixture(scope="module")
def model():
    return regressor(keep_statistics=True).fit(X, Y[:, 0])


def test_predictions_have_the_shape_of_the_target(model):
    assert model.predict(X).shape == (300,)
    assert regressor().fit(X, Y[:, :1]).predict(X).shape == (300, 1)
    assert regressor().fit(X, Y).predict(X).shape == (300, 2)


def test_a_prediction_is_that_of_the_predictor(model):
    np.testing.assert_array_equal(model.predict(X), model._predictor().predict(model._rows(X)))


def test_several_outputs_at_once_are_those_of_the_methods(model):
    outputs = model.predict_outputs(X[:9], ["prediction", "interval", "novelty"], coverage=0.8)
    lower, upper = model.predict_interval(X[:9], 0.8)
    np.testing.assert_array_equal(outputs["prediction"], model.predict(X[:9]))
    np.testing.assert_array_equal(outputs["lower"], lower)
    np.testing.assert_array_equal(outputs["upper"], upper)
    np.testing.assert_array_equal(outputs["novelty"], model.novelty(X[:9]))
    assert list(model.predict_outputs(X[:9], "std")) == ["std"]


def test_outputs_and_coverage_that_are_not_known_are_refused(model):
    with pytest.raises(ParameterError, match="outputs must be one of"):
        model.predict_outputs(X, ["probability"])
    with pytest.raises(ParameterError, match="coverage must be above 0"):
        model.predict_outputs(X, ["interval"], coverage=1.0)


@pytest.mark.parametrize("coverage", ["0.9", None, 90])
def test_a_coverage_that_is_no_share_is_refused(model, coverage):
    with pytest.raises(ParameterError, match=r"coverage must be .* it is a share, such as 0.9"):
        model.predict_interval(X, coverage=coverage)


def test_the_largest_coverage_in_a_message_is_accepted():
    model = regressor().fit(X[:5], Y[:5, 0])
    with pytest.raises(ParameterError, match=r"at most 0.666 .* fit more rows"):
        model.predict_interval(X, coverage=0.9)
    model.predict_interval(X, coverage=0.666)


def test_quantiles_need_a_level(model):
    with pytest.raises(ParameterError, match=r"levels must hold a number .*, got \[\]"):
        model.predict_quantile(X, [])


def test_a_generator_is_no_random_state():
    with pytest.raises(ParameterError, match=r"random_state must be .*int\(rng.integers"):
        ParKRegressor(random_state=np.random.default_rng(0)).fit(X, Y)


def test_std_intervals_and_quantiles_have_the_shape_of_predictions():
    model = regressor().fit(X, Y)
    mean, std = model.predict(X[:7], return_std=True)
    lower, upper = model.predict_interval(X[:7], coverage=0.5)
    assert mean.shape == std.shape == lower.shape == upper.shape == (7, 2)
    assert model.predict_quantile(X[:7], [0.1, 0.5, 0.9]).shape == (7, 2, 3)
    assert (std > 0).all()
    assert (lower <= upper).all()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("predict", [X]),
        ("predict_interval", [X]),
        ("predict_quantile", [X, [0.5]]),
        ("novelty", [X]),
        ("forget", [X, Y]),
        ("predict_to", ["rows", "folder"]),
        ("save", ["model.park"]),
        ("to_onnx", ["model.onnx"]),
        ("show_report", ["report.html"]),
    ],
)
def test_an_estimator_that_is_not_fitted_is_refused(method, arguments):
    with pytest.raises(NotFittedError):
        getattr(ParKRegressor(), method)(*arguments)


def test_a_number_of_features_that_is_not_that_of_the_fit_is_refused(model):
    with pytest.raises(ValueError, match="X has 1 features"):
        model.predict(X[:, :1])


@pytest.mark.parametrize(
    ("y", "rule"),
    [
        (["a"] * 300, "y"),
        ([None] * 300, "y must have a value"),
        (Y[:200, 0], "inconsistent numbers"),
    ],
)
def test_a_target_that_is_none_is_refused(y, rule):
    with pytest.raises(ValueError, match=rule):
        regressor().fit(X, y)


def test_a_frame_needs_a_target_for_each_row():
    frame = pd.DataFrame({"sky": ["sun", "rain"] * 10})
    with pytest.raises(ParameterError, match="y must have one entry for each of 20 rows"):
        regressor().fit(frame, np.ones(19))


def test_importances_of_a_frame_belong_to_its_columns():
    frame = pd.DataFrame({"sky": ["sun", "rain", "snow"] * 100, "km": X[:, 0]})
    model = regressor().fit(frame, 3 * (frame["sky"] == "sun") + 0.0 * frame["km"])
    assert list(model.feature_names_in_) == ["sky", "km"]
    assert model.n_features_in_ == 2
    assert model.feature_importances_.argmax() == 0


def test_a_second_fit_leaves_nothing_of_the_first():
    model = regressor().fit(pd.DataFrame({"sky": ["sun", "rain"] * 20}), np.arange(40.0))
    again = model.fit(X, Y[:, 0])
    assert again.columns_.names == ["x0", "x1"]
    assert not hasattr(again, "feature_names_in_")
    assert again.n_features_in_ == 2


def test_fit_sets_only_names_that_end_in_an_underscore(model):
    own = set(vars(model)) - set(model.get_params())
    assert all(name.endswith("_") for name in own)


def test_a_first_partial_fit_keeps_statistics_whatever_is_set():
    model = regressor(keep_statistics=False).partial_fit(X[:200], Y[:200, 0])
    assert model.statistics_ is not None
    assert model.keep_statistics is False
    rows = sum(cell.rows for cell in model.partial_fit(X[200:], Y[200:, 0]).report_)
    assert rows == 300


def test_a_model_without_statistics_is_not_updated():
    model = regressor(keep_statistics=False).fit(X, Y[:, 0])
    for update in (model.partial_fit, model.forget):
        with pytest.raises(ParameterError, match="keep_statistics=True"):
            update(X, Y[:, 0])


def test_targets_of_an_update_have_the_shape_of_the_fit(model):
    with pytest.raises(ParameterError, match="y must be 300 finite rows of 1 targets"):
        model.partial_fit(X, Y)
    with pytest.raises(ParameterError, match="decay must"):
        model.partial_fit(X, Y[:, 0], decay=2.0)


def test_cells_that_do_not_converge_are_warned_of_where_fit_is_called():
    with pytest.warns(ConvergenceWarning, match="cells stopped after at most max_iter=1") as caught:
        regressor(solver="falkon", n_centers=100, penalty=1e-9, max_iter=1, tol=1e-9).fit(X, Y)
    assert caught[0].filename == __file__


def test_a_negative_seed_is_refused():
    with pytest.raises(ParameterError, match="random_state must be >= 0, got -1"):
        regressor(random_state=-1).fit(X, Y)


def test_choices_fit_the_same_model_again():
    model = ParKRegressor(random_state=0, progress=False).fit(X, Y[:, 0])
    again = ParKRegressor(**model.chosen_.params).fit(X, Y[:, 0])
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-9, atol=1e-9)


def test_a_bounded_model_keeps_its_bound_where_cells_need_float64():
    X = np.random.default_rng(0).uniform(size=(10_500, 4))
    y = np.sin(4 * X).sum(1)
    bounded = regressor(penalty=1e-9, n_cells=16, solver="direct", max_model_size=50_000)
    model = bounded.set_params(centroids="uniform").fit(X, y).model_
    assert {centers.dtype for centers in model.centers} == {torch.float64}
    assert 48_000 < sum(tensor.nbytes for tensor in [*model.centers, *model.weights]) <= 50_000
