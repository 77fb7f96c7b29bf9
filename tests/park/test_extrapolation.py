"""Bounds of predictions far from the data: what is seen, what is chosen, and where they hold."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import modelreader
from parkrr import Blend, ParKClassifier, ParKRegressor, load
from parkrr.errors import ModelFileError, ParameterError
from parkrr.inspection import explain
from parkrr.kernels import Gaussian, Linear
from parkrr.park.cells import include_targets, largest, target_ranges, widen

KNOWN = {
    "kernel": Gaussian(3.0),
    "penalty": 1e-9,
    "metric": "euclidean",
    "blend": 1,
    "coarse": 0,
    "n_cells": 1,
    "random_state": 0,
    "progress": False,
}


def draw(n=400, noise=0.1):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)


FAR = np.array([[2.5, 2.5], [3.0, -3.0], [-3.5, 2.0], [-3.0, -3.0]])


def widths(model):
    return [each["error"] for each in model.chosen_.tried if each["step"] == "extrapolation"]


def test_a_prediction_just_outside_of_the_data_overshoots_if_it_is_free():
    X, y = draw()
    free = ParKRegressor(**KNOWN, extrapolation="free").fit(X, y)
    assert np.abs(free.predict(FAR)).max() > 3 * np.abs(y).max()


def test_a_prediction_just_outside_of_the_data_is_bounded():
    X, y = draw()
    model = ParKRegressor(**KNOWN).fit(X, y)
    assert np.abs(model.predict(FAR)).max() < 1.5 * np.abs(y).max()


def test_free_predictions_are_those_without_limits():
    X, y = draw()
    bounded, free = (
        ParKRegressor(**KNOWN, extrapolation=how).fit(X, y) for how in ("bounded", "free")
    )
    assert free.model_.limits is None
    without = bounded.model_.replace_limits(None).predict(torch.from_numpy(FAR))
    np.testing.assert_array_equal(free.predict(FAR), without[:, 0].numpy())
    assert widths(free) == []


def test_rows_like_those_of_the_fit_are_predicted_as_if_free():
    X, y = draw()
    bounded, free = (
        ParKRegressor(**KNOWN, extrapolation=how).fit(X, y) for how in ("bounded", "free")
    )
    np.testing.assert_array_equal(bounded.predict(0.8 * X), free.predict(0.8 * X))


def test_a_trend_goes_on_beyond_the_data():
    X, _ = draw()
    y = X @ [1.0, 2.0]
    model = ParKRegressor(**KNOWN | {"kernel": Gaussian(6.0)}).fit(X, y)
    assert model.predict([[2.2, 2.2]])[0] == pytest.approx(6.6, abs=0.01)
    assert model.predict([[2.2, 2.2]])[0] > y.max()


def test_rows_left_out_at_a_steep_edge_widen_the_bound():
    X = np.linspace(0, 1, 40)[:, None]
    y = np.exp(8 * X[:, 0])  # the last value is 0.23 of the range above the one before
    model = ParKRegressor(**KNOWN | {"kernel": Gaussian(0.5)}).fit(X, y)
    assert widths(model)[1] < widths(model)[0]
    assert model.model_.limits[1].item() > 1.2 * y.max()


def test_a_linear_kernel_keeps_its_slope():
    X, _ = draw()
    model = ParKRegressor(**KNOWN | {"kernel": Linear()}).fit(X, X @ [1.0, 2.0])
    assert model.predict([[100.0, 100.0]])[0] == pytest.approx(300, rel=0.01)


@pytest.mark.parametrize("blend", [1, Blend(2, 1.0)], ids=["nearest", "blend"])
def test_predictions_of_many_cells_stay_inside_of_their_limits(blend):
    X, y = draw(3000)
    Y = np.stack([y, -2 * y], 1)
    model = ParKRegressor(**KNOWN | {"n_cells": 8, "blend": blend}).fit(X, Y)
    low, high = model.model_.limits.numpy()  # (Q, t) each
    found = model.predict(20 * FAR + 1)
    assert (found >= low.min(0)).all()
    assert (found <= high.max(0)).all()
    one_by_one = np.concatenate([model.predict(row[None]) for row in FAR])
    np.testing.assert_array_equal(one_by_one, model.predict(FAR))


def test_a_loaded_model_has_the_same_bound(tmp_path):
    X, y = draw()
    model = ParKRegressor(**KNOWN).fit(X, y)
    model.save(tmp_path / "a.park")
    again = load(tmp_path / "a.park")
    np.testing.assert_array_equal(again.predict(FAR), model.predict(FAR))
    assert again.extrapolation == "bounded"


@pytest.mark.parametrize("blend", [1, Blend(2, 1.0)], ids=["nearest", "blend"])
def test_an_exported_model_has_the_same_bound(blend, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = draw(3000)
    model = ParKRegressor(**KNOWN | {"n_cells": 8, "blend": blend}).fit(X, y)
    model.to_onnx(tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    [found, *_] = session.run(None, {session.get_inputs()[0].name: FAR})
    np.testing.assert_allclose(found.ravel(), model.predict(FAR), atol=1e-6)


def test_rows_that_are_added_move_the_bound():
    X, y = draw()
    model = ParKRegressor(**KNOWN, keep_statistics=True).fit(X, y)
    more = np.array([[2.1, 2.1], [2.2, 2.1]])
    model.partial_fit(more, [50.0, 60.0])
    assert model.model_.limits[1].max() == 60.0


def test_scores_of_a_classifier_are_free():
    X, y = draw()
    assert ParKClassifier(**KNOWN).fit(X, y > 0).model_.limits is None


NUMBERED = KNOWN | {"metric": "standard", "penalty": 1e-6}


def numbered_rows():
    """Rows with a number that counts up and has no part in the target."""
    X, y = draw()
    return np.column_stack([np.arange(len(X)), X]), y


def later(X, times):
    """The same rows with numbers that lie so many times their range above the largest."""
    return np.column_stack([np.full(len(X), 399.0 * (1 + times)), X[:, 1:]])


@pytest.mark.parametrize("estimator", [ParKRegressor, ParKClassifier])
def test_a_value_far_outside_counts_as_one_range_outside(estimator):
    X, y = numbered_rows()
    model = estimator(**NUMBERED).fit(X, y if estimator is ParKRegressor else y > 0)
    once, far = (model.model_.predict(torch.from_numpy(later(X, times))) for times in (1, 1000))
    torch.testing.assert_close(far, once, rtol=0, atol=1e-6)
    half = model.model_.predict(torch.from_numpy(later(X, 0.5)))
    assert (half - once).abs().max() > 0.01


def test_a_row_number_far_outside_does_no_harm():
    X, y = numbered_rows()
    bounded, free = (
        ParKRegressor(**NUMBERED, extrapolation=how).fit(X, y) for how in ("bounded", "free")
    )
    assert bounded.score(later(X, 30), y) > 0.5
    assert free.score(later(X, 30), y) < 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {"extrapolation": "free"},
        {"guarantee": "jackknife+"},
        {"kernel": Linear()},
        {"metric": "euclidean"},
    ],
    ids=str,
)
def test_features_are_free_where_predictions_follow_the_data_outside(settings):
    X, y = numbered_rows()
    assert ParKRegressor(**NUMBERED | settings).fit(X, y).model_.metric.bounds is None


def test_a_model_file_has_the_bounds_of_features_as_documented(tmp_path):
    X, y = numbered_rows()
    model = ParKRegressor(**NUMBERED).fit(X, y)
    model.save(tmp_path / "m.park")
    t, about = modelreader.read(tmp_path / "m.park")
    values = modelreader.values(t, about, modelreader.mapped(later(X, 30), t))
    np.testing.assert_allclose(values[:, 0], model.predict(later(X, 30)), atol=1e-5)
    np.testing.assert_array_equal(
        load(tmp_path / "m.park").predict(later(X, 30)), model.predict(later(X, 30))
    )


def test_crossed_bounds_of_features_have_no_file(tmp_path):
    X, y = numbered_rows()
    model = ParKRegressor(**NUMBERED).fit(X, y)
    metric = model.model_.metric
    model.model_ = replace(model.model_, metric=replace(metric, bounds=metric.bounds.flip(0)))
    with pytest.raises(ModelFileError, match=r"metric\.bounds must not be crossed"):
        model.save(tmp_path / "m.park")


def test_a_slope_by_a_feature_far_outside_is_zero():
    X, y = numbered_rows()
    model = ParKRegressor(**NUMBERED).fit(X, y)
    slopes = explain(model, later(X, 30)[:5]).slopes
    assert (slopes[:, 0] == 0).all()
    assert (slopes[:, 1:] != 0).any()


def test_another_extrapolation_is_refused():
    X, y = draw(50)
    with pytest.raises(ParameterError, match="extrapolation must be one of"):
        ParKRegressor(**KNOWN, extrapolation="wild").fit(X, y)


def test_the_largest_of_a_group_without_a_row_is_that_of_the_others():
    Y = torch.tensor([[1.0], [5.0], [5.0], [2.0], [7.0]]).double()
    first, others = largest(Y, torch.tensor([0, 0, 0, 1, 1]), 2)
    assert first.flatten().tolist() == [5.0, 7.0]
    assert others.flatten().tolist() == [5.0, 5.0, 5.0, 7.0, 2.0]


def test_a_cell_with_few_rows_has_the_range_of_all():
    Y = torch.arange(100.0).double()[:, None]
    seen, _ = target_ranges(Y, (torch.arange(100) >= 95).long(), 2)
    assert seen[:, 0, 0].tolist() == [0.0, 94.0]
    assert seen[:, 1, 0].tolist() == [0.0, 99.0]


def test_a_range_is_widened_by_a_multiple_of_its_length():
    ranges = torch.tensor([[[1.0]], [[3.0]]])
    assert widen(ranges, 0.5).flatten().tolist() == [0.0, 4.0]
    assert widen(ranges, math.inf).flatten().tolist() == [-math.inf, math.inf]


def test_new_targets_are_let_through_in_their_cell():
    limits = torch.tensor([[[0.0], [0.0]], [[1.0], [1.0]]])
    found = include_targets(limits, torch.tensor([[3.0], [-2.0]]), torch.tensor([1, 1]))
    assert found.flatten().tolist() == [0.0, -2.0, 1.0, 3.0]


def test_a_row_far_outside_of_the_bounds_of_features_is_novel():
    given = {"kernel": Gaussian(5.0), "penalty": 1e-3, "metric": "standard", "n_cells": 1}
    model = ParKRegressor(**given, blend=1, coarse=0, random_state=0, progress=False)
    rows = np.random.default_rng(0).normal(size=(300, 2))
    model.fit(rows, rows[:, 0])
    assert model.model_.metric.bounds is not None
    assert model.novelty(rows).max() < 0.01
    assert model.novelty(rows + 100).min() > 0.99
