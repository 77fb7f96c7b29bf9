"""Scores of files are those of scikit-learn on the same rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score

from parkrr import Gaussian, ParKClassifier, ParKRegressor, scan_parquet
from parkrr.errors import ParameterError
from parkrr.out_of_core import score_files

FIXED = {"kernel": Gaussian(1.0), "penalty": 1e-3, "metric": "standard", "n_cells": 1}
FIXED |= {"blend": 1, "coarse": 0, "random_state": 0, "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore:target .* is missing in 1 of 600 rows")

N = 600
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = 1e6 + np.sin(X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=N)
W = RNG.integers(0, 4, N).astype(float)
KINDS = np.array(["left", "middle", "right"])[np.digitize(Y, [1e6 - 0.5, 1e6 + 0.5])]


@pytest.fixture
def path(tmp_path):
    """Rows in several row groups, one of them without a target."""
    y = np.where(np.arange(N) == 5, np.nan, Y)
    columns = {"a": X[:, 0], "b": X[:, 1], "y": y, "z": -2 * y, "w": W, "kind": KINDS}
    table = pa.table({**columns, "high": Y > 1e6, "one": np.ones(N)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50)
    return tmp_path / "rows.parquet"


def rows(path, target, weight=None, features=("a", "b")):
    return scan_parquet(path, target=target, features=list(features), weight=weight)


def without_gap(values):
    return np.delete(values, 5, axis=0)


@pytest.mark.parametrize("weight", [None, "w"])
def test_scores_of_a_regression_are_those_of_scikit_learn(path, weight):
    model = ParKRegressor(**FIXED).fit(rows(path, "y"))
    scores = model.score_files(rows(path, "y", weight))
    y, w = without_gap(Y), without_gap(np.ones(N) if weight is None else W)
    predicted = model.predict(pa.table({"a": X[:, 0], "b": X[:, 1]}))
    predicted = without_gap(predicted)
    assert scores["rows"] == int((w > 0).sum())
    assert scores["rmse"] == pytest.approx(np.sqrt(np.average((y - predicted) ** 2, weights=w)))
    assert scores["mae"] == pytest.approx(mean_absolute_error(y, predicted, sample_weight=w))
    assert scores["r2"] == pytest.approx(r2_score(y, predicted, sample_weight=w), rel=1e-6)
    assert scores["share_in_0.9_interval"] == pytest.approx(0.9, abs=0.08)


def test_scores_of_several_targets_are_means(path):
    model = ParKRegressor(**FIXED).fit(rows(path, ["y", "z"]))
    scores = model.score_files(rows(path, ["y", "z"]))
    predicted = without_gap(model.predict(pa.table({"a": X[:, 0], "b": X[:, 1]})))
    both = without_gap(np.stack([Y, -2 * Y], 1))
    assert scores["r2"] == pytest.approx(r2_score(both, predicted), rel=1e-6)
    assert scores["mae"] == pytest.approx(mean_absolute_error(both, predicted))


@pytest.mark.parametrize("weight", [None, "w"])
def test_scores_of_two_classes_are_those_of_scikit_learn(path, weight):
    model = ParKClassifier(**FIXED).fit(rows(path, "high"))
    scores = model.score_files(rows(path, "high", weight))
    frame, w = pa.table({"a": X[:, 0], "b": X[:, 1]}), np.ones(N) if weight is None else W
    p, label = model.predict_proba(frame), Y > 1e6
    wrong = model.predict(frame) != label
    assert scores["error"] == pytest.approx(np.average(wrong, weights=w))
    assert scores["log_loss"] == pytest.approx(log_loss(label, p, sample_weight=w))
    assert scores["auc"] == pytest.approx(roc_auc_score(label, p[:, 1], sample_weight=w), abs=1e-3)


def test_labels_that_the_fit_has_not_seen_are_wrong_and_counted(path):
    few = scan_parquet(path, "kind", ["a", "b"], filter="kind != 'middle'")
    model = ParKClassifier(**FIXED).fit(few)
    scores = model.score_files(rows(path, "kind"))
    share = np.mean(KINDS == "middle")
    assert scores["unknown_labels"] == pytest.approx(share)
    assert scores["error"] >= share
    assert "unknown_labels" not in model.score_files(few)


def test_a_constant_target_has_no_r2(path):
    model = ParKRegressor(**FIXED).fit(rows(path, "y"))
    assert model.score_files(rows(path, "one"))["r2"] is None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, r"source must have 1 target columns, as in fit, got \[\]; name them as target="),
        (["y", "z"], r"source must have 1 target columns, as in fit, got \['y', 'z'\]"),
        ("w", "target must hold labels as in fit, such as 'left', but 'w' is double"),
    ],
)
def test_a_target_that_is_not_that_of_the_fit_is_refused(path, target, message):
    model = ParKClassifier(**FIXED).fit(rows(path, "kind"))
    with pytest.raises(ParameterError, match=message):
        model.score_files(rows(path, target))


def test_a_frame_is_refused_with_the_method_for_it(path):
    model = ParKRegressor(**FIXED).fit(rows(path, "y"))
    with pytest.raises(ParameterError, match=r"source must be .* use predict or score for rows in"):
        model.score_files(pa.table({"a": X[:, 0]}))


def test_the_area_under_a_curve_counts_pairs_in_order():
    odds = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])  # negatives, positives at three steps
    pairs_in_order = 1 * (1 + 2 / 2) + 1 * 3
    assert score_files.area_under_curve(odds) == pairs_in_order / (3 * 2)


def test_rows_without_any_target_have_no_scores(path):
    model = ParKRegressor(**FIXED).fit(rows(path, "y"))
    gap = scan_parquet(path, "y", ["a", "b"], filter="y is null")
    with pytest.raises(ParameterError, match=r"target must have values, but \['y'\] is missing"):
        model.score_files(gap)
