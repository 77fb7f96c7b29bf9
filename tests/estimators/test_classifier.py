"""ParKClassifier: labels, weights of classes and updates."""

import numpy as np
import pandas as pd
import pytest

from parkrr import ParKClassifier
from parkrr.errors import ParameterError
from plain import PLAIN

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (300, 2))
THREE = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.7, 0.7])]
TWO = X[:, 0] > 0


def classifier(**params):
    return ParKClassifier(**PLAIN | {"random_state": 0, "progress": False} | params)


@pytest.mark.parametrize("labels", [THREE, TWO, TWO.astype(int), TWO.astype(str).astype(object)])
def test_labels_of_any_kind_are_predicted(labels):
    model = classifier().fit(X, labels)
    assert model.predict(X).dtype == labels.dtype
    assert model.score(X, labels) > 0.9


def test_scores_have_one_column_a_class_and_one_for_two():
    assert classifier().fit(X, THREE).decision_function(X).shape == (300, 3)
    two = classifier().fit(X, TWO)
    assert two.decision_function(X).shape == (300,)
    np.testing.assert_array_equal(two.decision_function(X) > 0, two.predict(X))


@pytest.mark.parametrize("labels", [THREE, TWO])
def test_probabilities_add_up_to_one_and_their_logarithm_is_finite(labels):
    model = classifier().fit(X, labels)
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[P.argmax(1)], model.predict(X))
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_one_class_has_probability_one():
    model = classifier().fit(X, np.ones(300, dtype=int))
    assert model.calibration_ is None
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((300, 1)))


def test_a_continuous_target_is_refused():
    with pytest.raises(ValueError, match="continuous"):
        classifier().fit(X, X[:, 0])


def test_balanced_classes_are_predicted_more_often_if_they_are_rare():
    rare = X[:, 0] + RNG.normal(size=300) > 2
    plain = classifier(penalty=1e-2).fit(X, rare)
    balanced = classifier(penalty=1e-2, class_weight="balanced").fit(X, rare)
    assert balanced.predict(X).sum() > plain.predict(X).sum()


def test_weights_of_classes_are_those_of_their_rows():
    by_class = classifier(class_weight={True: 3.0}).fit(X, TWO)
    by_row = classifier().fit(X, TWO, np.where(TWO, 3.0, 1.0))
    np.testing.assert_array_equal(by_class.decision_function(X), by_row.decision_function(X))


def test_classes_of_a_first_update_need_not_occur_in_it():
    model = classifier().partial_fit(X[TWO], THREE[TWO], classes=["high", "low", "middle"])
    assert list(model.classes_) == ["high", "low", "middle"]
    assert model.partial_fit(X[~TWO], THREE[~TWO]).score(X, THREE) > 0.8


def test_a_label_that_is_new_in_an_update_is_refused():
    model = classifier().partial_fit(X[TWO], THREE[TWO])
    with pytest.raises(ParameterError, match=r"y must hold labels of the first fit.*'low'"):
        model.partial_fit(X[~TWO], np.full((~TWO).sum(), "low"))


def test_an_update_with_balanced_classes_is_refused():
    model = classifier(class_weight="balanced", keep_statistics=True).fit(X, TWO)
    with pytest.raises(ParameterError, match="class_weight must be None or a weight"):
        model.partial_fit(X, TWO)


def test_categories_learn_from_labels():
    frame = pd.DataFrame({"sky": ["sun", "rain", "snow"] * 100})
    model = classifier().fit(frame, frame["sky"] == "snow")
    assert model.predict(frame[:3]).tolist() == [False, False, True]


@pytest.mark.parametrize(("y", "targets"), [(None, 1), (TWO, 1), (THREE, 3)])
def test_a_plan_has_one_target_a_class_and_one_for_two(y, targets):
    assert classifier().plan(X, y).targets == targets
