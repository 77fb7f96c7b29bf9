"""Everything that is predicted beside values, from the parts of a fitted model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from parkrr import ParKClassifier
from parkrr.errors import ParameterError
from parkrr.uncertainty import Predictor
from parkrr.uncertainty.predictor import check_levels
from plain import PLAIN, plain

X = np.random.default_rng(0).uniform(-2, 2, (400, 2))
ROWS = torch.from_numpy(X[:5])


@pytest.fixture(scope="module")
def regressor():
    model = plain(n_cells=2, penalty=1e-4, random_state=0).fit(X, np.stack([X[:, 0], -X[:, 0]], 1))
    return Predictor(model.model_, False, model.intervals_)


@pytest.fixture(scope="module")
def classifier():
    model = ParKClassifier(**PLAIN, n_cells=2, random_state=0).fit(X, X[:, 0] > 0)
    return Predictor(model.model_, False, classes=model.classes_, calibration=model.calibration_)


def test_with_one_output_the_axis_of_targets_is_dropped(regressor):
    assert regressor.predict(ROWS).shape == regressor.std(ROWS).shape == (5, 2)
    assert regressor.quantiles(ROWS, [0.1, 0.9, 0.95]).shape == (5, 2, 3)
    one = Predictor(regressor.model, True, regressor.intervals)
    np.testing.assert_array_equal(one.predict(ROWS), regressor.predict(ROWS)[:, 0])
    np.testing.assert_array_equal(one.std(ROWS), regressor.std(ROWS)[:, 0])


def test_an_interval_is_between_two_quantiles(regressor):
    levels = regressor.intervals.end_levels(0.8)
    assert levels[1] - levels[0] == pytest.approx(0.8)
    lower, upper = regressor.interval(ROWS, 0.8)
    np.testing.assert_array_equal(np.stack([lower, upper], 2), regressor.quantiles(ROWS, levels))


@pytest.mark.parametrize("scale", ["constant", "posterior"])
def test_outputs_computed_together_are_those_computed_alone(scale, regressor):
    intervals = replace(regressor.intervals, scale_name=scale, learned=None)
    predictor = Predictor(regressor.model, False, intervals)
    names = ["novelty", "interval", "std", "prediction"]
    together = predictor.compute(ROWS + 0.1, names, 0.8)
    assert list(together) == ["novelty", "lower", "upper", "std", "prediction"]
    lower, upper = predictor.interval(ROWS + 0.1, 0.8)
    np.testing.assert_array_equal(together["lower"], lower)
    np.testing.assert_array_equal(together["upper"], upper)
    np.testing.assert_array_equal(together["novelty"], predictor.novelty(ROWS + 0.1))
    np.testing.assert_array_equal(together["std"], predictor.std(ROWS + 0.1))
    np.testing.assert_array_equal(together["prediction"], predictor.predict(ROWS + 0.1))


def test_probabilities_computed_with_labels_are_those_computed_alone(classifier):
    together = classifier.compute(ROWS, ["prediction", "probability"], 0.9)
    np.testing.assert_array_equal(together["prediction"], classifier.predict(ROWS))
    np.testing.assert_array_equal(together["probability"], classifier.probabilities(ROWS))


def test_the_class_is_the_sign_of_the_decision_and_the_largest_probability(classifier):
    decision, P = classifier.decide(ROWS)[:, 0], classifier.probabilities(ROWS)
    np.testing.assert_array_equal(classifier.predict(ROWS), decision > 0)
    np.testing.assert_array_equal(classifier.predict(ROWS), P[:, 1] > 0.5)


def test_one_class_has_probability_one(regressor):
    only = Predictor(regressor.model, False, classes=np.array(["a"]))
    np.testing.assert_array_equal(only.probabilities(ROWS), np.ones((5, 1)))


def test_novelty_is_zero_at_a_centre(regressor):
    assert regressor.novelty(ROWS).max() < 1e-6 < regressor.novelty(ROWS + 100).min()


@pytest.mark.parametrize("levels", [0.0, [0.5, 1.0], [np.nan]])
def test_levels_outside_those_that_are_stored_are_refused(levels):
    with pytest.raises(ParameterError, match=r"levels must be between 0\.001 and 0\.999, got"):
        check_levels(levels)


def test_the_ends_of_the_largest_coverage_are_levels(regressor):
    regressor.check_coverage(regressor.intervals.largest_coverage)
    regressor.interval(ROWS, regressor.intervals.largest_coverage)
    with pytest.raises(ParameterError, match="coverage must be above 0 and at most"):
        regressor.check_coverage(regressor.intervals.largest_coverage + 1e-6)
