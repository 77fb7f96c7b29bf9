"""Probabilities: from scores, out of sample, for many classes and weights."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parkrr import ParKClassifier, load, scan_parquet
from parkrr.errors import ParameterError
from parkrr.kernels import Gaussian
from parkrr.uncertainty.calibration import (
    Affine,
    Isotonic,
    calibration_from_dict,
    fit_affine,
    fit_calibration,
    learn_calibration,
    rank_within,
)
from plain import PLAIN


def settled(**changes):
    given = {"kernel": Gaussian(1.0), "n_cells": 4, "random_state": 0}
    return ParKClassifier(**{**PLAIN, "penalty": 1e-4, **given, **changes})


def chances(X):
    return 1 / (1 + np.exp(-3 * np.sin(2 * X[:, 0]) - X[:, 1]))


def two_classes(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, (rng.random(n) < chances(X)).astype(int)


def many_classes(n, k, seed):
    """Classes as noisy places on a plane; labels are strings."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(0).normal(size=(k, 2)) * 3
    at = rng.permutation(np.arange(n) % k)
    names = np.array([f"class {number:04d}" for number in range(k)])
    return places[at] + 0.4 * rng.normal(size=(n, 2)), names[at]


def calibration_error(p, y, bins=15):
    """Expected calibration error."""
    at = np.minimum((p * bins).astype(int), bins - 1)
    counts = np.bincount(at, minlength=bins)
    off = np.abs(np.bincount(at, p, bins) - np.bincount(at, y, bins))
    return off.sum() / counts.sum()


@pytest.mark.parametrize(
    "changes", [{}, {"n_centers": 200}, {"n_centers": 400, "solver": "falkon"}]
)
def test_probabilities_are_those_of_new_rows(changes):
    model = settled(**changes).fit(*two_classes(8000, 0))
    X, y = two_classes(20_000, 1)
    p = model.predict_proba(X)[:, 1]
    assert calibration_error(p, y) < 0.02
    assert np.abs(p - chances(X)).mean() < 0.04


@pytest.mark.parametrize("data", [two_classes(3000, 0), many_classes(3000, 5, 0)], ids=["2", "5"])
def test_a_prediction_is_the_likeliest_class(data):
    model = settled().fit(*data)
    likeliest = model.classes_[model.predict_proba(data[0]).argmax(1)]
    np.testing.assert_array_equal(model.predict(data[0]), likeliest)


def test_a_positive_score_is_the_second_of_two_classes():
    X, y = two_classes(3000, 0)
    model = settled().fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)


def test_the_largest_score_is_the_class():
    X, y = many_classes(3000, 5, 0)
    model = settled().fit(X, y)
    by_score = model.classes_[model.decision_function(X).argmax(1)]
    np.testing.assert_array_equal(model.predict(X), by_score)


@pytest.mark.parametrize("values", [[0.1, 0.3], [0.6, 0.9], [0.2, 0.5], [0.5, 0.8], [0.2, 0.8]])
def test_an_increasing_function_decides_as_its_probabilities(values):
    way = Isotonic([np.array([-1.0, 1.0])], [np.array(values)])
    F = np.array([[-9.0], [-1.0], [0.5], [1.0], [9.0]])
    np.testing.assert_array_equal(way.decide(F)[:, 0] > 0, way.probabilities(F)[:, 1] > 0.5)


def test_the_way_with_the_least_log_loss_wins_and_is_named():
    model = settled().fit(*two_classes(14_000, 0))
    losses = {r["by"]: r["log loss"] for r in model.chosen_.tried if r["step"] == "probabilities"}
    assert set(losses) == {"temperature", "platt", "isotonic"}
    assert model.chosen_.uncertainty == min(losses, key=losses.get) == model.calibration_.name


@pytest.mark.parametrize("k", [1, 3])
def test_a_temperature_is_found_again(k):
    rng = np.random.default_rng(0)
    F = rng.normal(size=(20_000, k))
    P = Affine(np.full(k, 2.5), np.zeros(k), "temperature").probabilities(F)
    y = (rng.random(20_000)[:, None] > P.cumsum(1)).sum(1)
    found, losses = learn_calibration(F, y, np.ones(20_000), 0)
    assert found.name == "temperature" == min(losses, key=losses.get)
    np.testing.assert_allclose(found.factor, 2.5, rtol=0.05)


def test_offsets_are_found_again():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(20_000, 1))
    p = 1 / (1 + np.exp(-2 * F[:, 0] + 1))
    found, _ = learn_calibration(F, (rng.random(20_000) < p).astype(int), np.ones(20_000), 0)
    assert found.name == "platt"
    np.testing.assert_allclose([found.factor[0], found.offset[0]], [2, -1], rtol=0.1)


def test_steps_are_found_by_an_increasing_function():
    rng = np.random.default_rng(0)
    F = rng.uniform(-1, 1, (20_000, 1))
    p = np.where(F[:, 0] < 0.3, 0.1, 0.9)
    found, _ = learn_calibration(F, (rng.random(20_000) < p).astype(int), np.ones(20_000), 0)
    assert isinstance(found, Isotonic)
    np.testing.assert_allclose(
        found.probabilities(np.array([[0.0], [0.6]]))[:, 1], [0.1, 0.9], atol=0.03
    )
    np.testing.assert_array_equal(np.sign(found.decide(np.array([[0.2], [0.4]])))[:, 0], [-1, 1])
    assert (found.probabilities(np.array([[-9.0], [9.0]])) > 0).all()


@pytest.mark.parametrize("data", [two_classes(4000, 0), many_classes(3000, 3, 0)], ids=["2", "3"])
def test_saving_changes_no_probability(data, tmp_path):
    model = settled().fit(*data)
    model.save(tmp_path / "m.park")
    again = load(tmp_path / "m.park")
    expected = model.predict_proba(data[0])
    np.testing.assert_allclose(again.predict_proba(data[0]), expected, rtol=1e-10)
    np.testing.assert_array_equal(again.predict(data[0]), model.predict(data[0]))


def test_plain_data_describe_every_way():
    ways = [Affine(np.ones(1), np.ones(1), "platt"), Isotonic([np.arange(2.0)], [np.arange(2.0)])]
    for way in ways:
        F = np.linspace(-1, 2, 5)[:, None]
        again = calibration_from_dict(way.to_dict())
        np.testing.assert_array_equal(again.probabilities(F), way.probabilities(F))


@pytest.mark.parametrize("k", [1, 3])
def test_probabilities_of_scores_of_any_size_are_finite(k):
    F = np.array([np.full(k, -1e4), np.full(k, 1e4), np.arange(k) * 1e4])
    P = Affine(np.ones(k), np.zeros(k), "temperature").probabilities(F)
    np.testing.assert_allclose(P.sum(1), 1)
    np.testing.assert_array_equal(P.shape, [3, max(2, k)])


def test_with_few_rows_one_factor_is_learned_and_nothing_compared():
    F, y = np.linspace(-1, 1, 20)[:, None], np.arange(20) // 10
    calibration, losses = learn_calibration(F, y, np.ones(20), 0)
    assert (calibration.name, losses) == ("temperature", {})


def test_weights_count_as_copies_of_rows():
    rng = np.random.default_rng(0)
    F, w = rng.normal(size=(2000, 1)), rng.integers(1, 3, 2000)
    y = (rng.random(2000) < 1 / (1 + np.exp(-2 * F[:, 0]))).astype(int)
    weighted = fit_calibration("platt", F, y, w.astype(float))
    copied = fit_calibration("platt", F.repeat(w, 0), y.repeat(w), np.ones(w.sum()))
    np.testing.assert_allclose(weighted.factor, copied.factor, rtol=1e-4)
    np.testing.assert_allclose(weighted.offset, copied.offset, atol=1e-4)


def test_a_label_missing_from_most_cells_has_a_probability():
    X, y = many_classes(2000, 12, 0)
    model = settled(n_cells=12, kernel=Gaussian(0.5)).fit(X, y)
    P = model.predict_proba(X)
    assert P.shape == (2000, 12)
    np.testing.assert_allclose(P.sum(1), 1)
    assert np.mean(model.predict(X) == y) > 0.8


def test_a_thousand_classes_are_one_fit():
    X, y = many_classes(6000, 1000, 0)
    model = settled(n_cells=4, n_centers=600).fit(X, y)
    assert len(model.classes_) == 1000 == model.model_.weights[0].shape[1]
    np.testing.assert_allclose(model.predict_proba(X[:50]).sum(1), 1)


def test_one_class_is_certain():
    model = settled(n_cells=1).fit([[0.0], [1.0], [2.0]], ["a", "a", "a"])
    np.testing.assert_array_equal(model.predict_proba([[5.0]]), [[1.0]])
    np.testing.assert_array_equal(model.predict([[5.0]]), ["a"])


def rare(n):
    X, y = two_classes(n, 0)
    kept = (y == 0) | (np.arange(n) % 10 == 0)
    return X[kept], np.where(y[kept], "rare", "usual")


def test_balanced_classes_are_rows_weighted_by_class():
    X, y = rare(3000)
    n = {label: np.sum(y == label) for label in ("rare", "usual")}
    by_label = {label: len(y) / (2 * n[label]) for label in n}
    weights = np.array([by_label[label] for label in y])
    expected = settled().fit(X, y, sample_weight=weights).predict_proba(X)
    for given in ("balanced", by_label):
        found = settled(class_weight=given).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert expected[:, 0].mean() > 0.25 > 2 * np.mean(y == "rare")


def test_class_weights_hold_for_files_too(tmp_path):
    X, y = rare(6000)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), tmp_path / "rows.parquet")
    table = scan_parquet(tmp_path / "rows.parquet", target="y")
    settings = {"n_centers": 200, "metric": "standard", "checkpoint": tmp_path / "c"}
    model = settled(class_weight="balanced", **settings).fit(table)
    frame = pa.table({"a": X[:, 0], "b": X[:, 1]})
    assert model.predict_proba(frame)[:, 0].mean() > 0.25 > 2 * np.mean(y == "rare")
    model.predict_to(table, tmp_path / "out", outputs=["prediction", "probability"])
    found = pq.read_table(tmp_path / "out" / "part-00000.parquet")
    np.testing.assert_allclose(
        np.array(found["probability"].to_pylist()), model.predict_proba(frame)
    )
    np.testing.assert_array_equal(found["prediction"].to_pylist(), model.predict(frame))


@pytest.mark.parametrize("given", [{"rare": -1.0}, {"rare": np.inf}])
def test_a_class_weight_that_is_none_is_refused(given):
    with pytest.raises(ParameterError, match="class_weight must hold weights > 0"):
        settled(class_weight=given).fit(*rare(200))


# Rare classes.


def rare_rows(n, positives, seed):
    """Rows of which so many are positive, more often where the first feature is large."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    chance = np.exp(2 * X[:, 0])
    y = np.zeros(n, bool)
    y[rng.choice(n, positives, replace=False, p=chance / chance.sum())] = True
    return X, y


def rare_model(seed, **changes):
    given = {"kernel": Gaussian(1.0), "penalty": 1e-4, "n_cells": 1, "n_centers": 100}
    return ParKClassifier(**{**PLAIN, "solver": "direct", **given, **changes}, random_state=seed)


@pytest.mark.parametrize("seed", range(6))
def test_eighteen_positives_in_eighteen_thousand_rows_keep_their_rate(seed):
    X, y = rare_rows(18_000, 18, seed)
    model = rare_model(seed).fit(X, y)
    new_X, _ = rare_rows(5000, 5, 100 + seed)
    mean = model.predict_proba(new_X)[:, 1].mean()
    assert 0.7e-3 < mean < 1.4e-3
    assert model.chosen_.uncertainty == "base rate"


def test_too_few_rows_of_a_class_are_named_in_what_was_tried():
    model = rare_model(0).fit(*rare_rows(4000, 6, 0))
    tried = [one for one in model.chosen_.tried if one["step"] == "probabilities"]
    assert [one["by"] for one in tried] == ["base rate"]
    assert tried[0]["fewest rows"] == 6


def test_a_rare_class_among_several_keeps_its_rate():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 2))
    y = np.where(X[:, 0] > 0, "b", "a").astype(object)
    y[rng.choice(6000, 12, replace=False)] = "c"
    P = rare_model(0).fit(X, y).predict_proba(rng.uniform(-1, 1, (4000, 2)))
    assert P[:, 2].mean() == pytest.approx(0.002, rel=0.4)


def test_folds_and_draws_hold_every_class():
    labels = np.repeat([0, 1], [1000, 8])
    np.testing.assert_array_equal(np.bincount(rank_within(labels)[labels == 1] % 4), [2, 2, 2, 2])


def test_the_mean_probability_is_the_share_of_each_class():
    rng = np.random.default_rng(0)
    F, labels = rng.normal(size=(500, 3)), rng.choice(3, 500, p=[0.9, 0.08, 0.02])
    fitted = fit_calibration("base rate", F, labels, np.ones(500))
    shares = (np.bincount(labels) + 1 / 3) / 501
    np.testing.assert_allclose(fitted.probabilities(F).mean(0), shares, atol=1e-6)


def test_validation_rows_are_a_sample_in_which_a_rare_class_is_as_rare():
    X, y = rare_rows(2000, 15, 0)
    model = rare_model(0).fit(X, y)
    assert model.validation_rows_["truth"].sum() <= 8  # 3 of 15 are expected
    assert model.report_[0].error == pytest.approx(2 * (15 / 2000) ** 0.5, rel=0.2)


def test_a_rare_class_survives_saving(tmp_path):
    X, y = rare_rows(2000, 15, 0)
    model = rare_model(0).fit(X, y)
    model.save(tmp_path / "m.park")
    np.testing.assert_array_equal(
        load(tmp_path / "m.park").predict_proba(X), model.predict_proba(X)
    )


def test_classes_of_one_row_each_can_be_calibrated():
    F = np.random.default_rng(0).normal(size=(40, 40))
    calibration, losses = learn_calibration(F, np.arange(40), np.ones(40), 0)
    assert np.isfinite(list(losses.values())).all()
    assert np.isfinite(calibration.probabilities(F)).all()


def test_few_rows_that_can_be_separated_have_the_probabilities_of_platt():
    scores, labels = np.repeat([[-1.0], [1.0]], 5, axis=0), np.repeat([0, 1], 5)
    P = fit_affine("temperature", scores, labels, np.ones(10)).probabilities(scores)
    np.testing.assert_allclose(P[np.arange(10), labels], 6 / 7, atol=0.005)
