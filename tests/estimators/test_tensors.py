"""Tensors in, tensors out, and the numbers of arrays."""

import numpy as np
import pytest
import torch

from parkrr import Gaussian, ParKClassifier, ParKRegressor
from pretend import NAME, Elsewhere, pretending

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=400)
W = RNG.uniform(0.5, 2.0, 400)
NEW = RNG.normal(size=(50, 2))
KNOWN = {"penalty": 1e-4, "n_cells": 2, "blend": 1, "coarse": 0, "random_state": 0}


@pytest.fixture(scope="module")
def regressor():
    return ParKRegressor(Gaussian(1.0), **KNOWN).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return ParKClassifier(Gaussian(1.0), **KNOWN).fit(X, np.digitize(Y, [-0.5, 0.5]))


QUESTIONS = {
    "predict": lambda model, X: model.predict(X),
    "standard deviation": lambda model, X: model.predict(X, return_std=True)[1],
    "lower end": lambda model, X: model.predict_interval(X, coverage=0.8)[0],
    "quantiles": lambda model, X: model.predict_quantile(X=X, levels=[0.1, 0.9]),
    "novelty": lambda model, X: model.novelty(X),
    "cells": lambda model, X: model.apply(X),
}
LABELS = {
    "labels": lambda model, X: model.predict(X),
    "probabilities": lambda model, X: model.predict_proba(X),
    "log-probabilities": lambda model, X: model.predict_log_proba(X),
    "decision function": lambda model, X: model.decision_function(X),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_regressor_returns_tensors_of_the_same_numbers(regressor, question):
    expected, out = question(regressor, NEW), question(regressor, torch.from_numpy(NEW))
    assert isinstance(expected, np.ndarray)
    assert isinstance(out, torch.Tensor)
    np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize("question", LABELS.values(), ids=LABELS)
def test_a_classifier_returns_tensors_of_the_same_numbers(classifier, question):
    out = question(classifier, torch.from_numpy(NEW))
    assert isinstance(out, torch.Tensor)
    np.testing.assert_array_equal(out.numpy(), question(classifier, NEW))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats_have_the_dtype_of_the_rows(regressor, dtype):
    out = regressor.predict(torch.from_numpy(NEW).to(dtype))
    assert out.dtype == dtype
    np.testing.assert_allclose(out.numpy(), regressor.predict(NEW), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_that_numpy_or_scikit_learn_lack_are_accepted(regressor, dtype):
    rows = torch.from_numpy(NEW).to(dtype)
    expected = torch.from_numpy(regressor.predict(rows.float().numpy())).to(dtype)
    torch.testing.assert_close(regressor.predict(rows), expected)


def test_a_fit_of_tensors_is_that_of_arrays():
    rows, y, w = (torch.from_numpy(part) for part in (X, Y, W))
    model = ParKRegressor(Gaussian(1.0), **KNOWN).fit(rows, y, sample_weight=w)
    expected = ParKRegressor(Gaussian(1.0), **KNOWN).fit(X, Y, sample_weight=W)
    np.testing.assert_array_equal(model.predict(NEW), expected.predict(NEW))
    assert model.score(rows, y, w) == expected.score(X, Y, W)


def test_an_update_with_tensors_is_that_with_arrays():
    models = [ParKRegressor(Gaussian(1.0), **KNOWN, keep_statistics=True) for _ in range(2)]
    models[0].fit(X, Y).partial_fit(NEW, NEW[:, 0])
    models[1].fit(X, Y).partial_fit(torch.from_numpy(NEW), torch.from_numpy(NEW[:, 0]))
    np.testing.assert_array_equal(models[0].predict(NEW), models[1].predict(NEW))


def test_a_tensor_with_gradients_is_accepted_and_predictions_have_none(regressor):
    rows = torch.from_numpy(NEW).requires_grad_()
    assert not regressor.predict(rows).requires_grad
    model = ParKClassifier(Gaussian(1.0), **KNOWN).fit(rows, torch.arange(50) % 2)
    assert model.classes_.tolist() == [0, 1]


def test_predictions_are_where_the_rows_are(regressor):
    with pretending():
        rows = torch.from_numpy(NEW).to(NAME)
        out = regressor.predict(rows)
        assert isinstance(out, Elsewhere)
        np.testing.assert_array_equal(out.cpu().numpy(), regressor.predict(NEW))


def test_labels_that_are_text_stay_an_array():
    model = ParKClassifier(Gaussian(1.0), **KNOWN).fit(X, np.where(Y > 0, "up", "down"))
    assert isinstance(model.predict(torch.from_numpy(NEW)), np.ndarray)
