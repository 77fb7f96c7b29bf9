"""Leave-one-out rows that a fitted model keeps for diagnostics."""

import numpy as np
import pytest
import torch

from parkrr import ParKClassifier, load
from parkrr.park import LeaveOneOutRows
from parkrr.uncertainty import learn_intervals, regression_rows
from plain import PLAIN, plain


def rows(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def regressor(**changes):
    return plain(n_cells=4, penalty=1e-4, random_state=0, **changes).fit(*rows())


def classifier():
    X, y = rows()
    names = np.array(["low", "middle", "high"])[np.digitize(y, [-1, 1])]
    return ParKClassifier(**{**PLAIN, "penalty": 1e-4}, n_cells=4, random_state=0).fit(X, names)


def test_the_error_of_a_cell_is_that_of_its_leave_one_out_rows():
    model = regressor()
    at = model.validation_rows_["cell"]
    squares = (model.validation_rows_["truth"] - model.validation_rows_["predicted"]) ** 2
    expected = np.sqrt(np.bincount(at, squares) / np.bincount(at))
    np.testing.assert_allclose([cell.error for cell in model.report_], expected, rtol=1e-12)


@pytest.mark.parametrize("scale", ["constant", "posterior", "learned"])
def test_about_nine_in_ten_leave_one_out_rows_are_in_their_interval(scale):
    """Here they are new rows, on which the model is as far off as on those left out."""
    model, (X, y) = regressor().model_, (torch.from_numpy(values) for values in rows(seed=1))
    cell, order = model.route(X).sort(stable=True)
    predicted, Y = model.predict(X[order]), y[order, None]
    left_out = LeaveOneOutRows(X[order], Y, None, cell, torch.zeros_like(Y))
    sizes = torch.bincount(cell, minlength=4).tolist()
    settings = {"ridge": 0.15, "sizes": sizes, "n_threads": 1, "seed": 0, "scale": scale}
    intervals, _, v = learn_intervals(model, left_out, predicted, **settings)
    assert intervals.scale_name == scale
    kept = regression_rows(model, left_out, predicted, intervals, v, seed=0)
    inside = (kept["lower"] <= kept["truth"]) & (kept["truth"] <= kept["upper"])
    assert 0.85 < inside.mean() < 0.95


def test_at_most_two_thousand_rows_are_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 2))
    model = plain(n_cells=12, n_centers=600, random_state=0).fit(X, X[:, 0])
    assert len(model.validation_rows_["truth"]) == 2000


def test_several_targets_are_kept_side_by_side():
    X, y = rows()
    model = plain(n_cells=2, random_state=0).fit(X, np.column_stack([y, -y]))
    assert model.validation_rows_["upper"].shape == model.validation_rows_["truth"].shape
    assert model.validation_rows_["truth"].shape[1] == 2


def test_labels_are_kept_as_the_user_gave_them():
    kept = classifier().validation_rows_
    assert set(kept["truth"]) == set(kept["predicted"]) == {"low", "middle", "high"}
    assert kept["confidence"].min() >= 1 / 3
    assert (kept["truth"] == kept["predicted"]).mean() > 0.8


@pytest.mark.parametrize("fitted", [regressor, classifier])
def test_a_loaded_model_keeps_them(fitted, tmp_path):
    model = fitted()
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    assert again.report_ == model.report_
    assert set(again.validation_rows_) == set(model.validation_rows_)
    for name, values in model.validation_rows_.items():
        np.testing.assert_array_equal(again.validation_rows_[name], values)


def test_one_class_leaves_nothing_to_keep(tmp_path):
    X, _ = rows(300)
    model = ParKClassifier(**PLAIN).fit(X, np.zeros(300))
    model.save(tmp_path / "m.park")
    assert load(tmp_path / "m.park").validation_rows_ == model.validation_rows_ == {}
