"""The penalty of a Poisson loss, by leave-one-out deviance."""

import numpy as np
import pytest

from parkrr import Gaussian, ParKRegressor

KNOWN = {"kernel": Gaussian(1.0), "metric": "euclidean", "n_cells": 1, "blend": 1, "coarse": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (320, 2))
    return X, rng.poisson(np.exp(np.sin(2 * X[:, 0]) - 1)).astype(float)


@pytest.fixture(scope="module")
def model(rows):
    return ParKRegressor(**KNOWN, loss="poisson", random_state=0, progress=False).fit(*rows)


def deviances(model):
    tried = [each for each in model.chosen_.tried if each["step"] == "loss"]
    return {each["penalty"]: each["error"] for each in tried}


def test_the_penalty_has_the_least_deviance_of_those_tried(model):
    tried = deviances(model)
    assert len(tried) >= 3
    assert model.chosen_.params["penalty"] == min(tried, key=tried.get)


def test_the_choices_fit_the_same_model_again(rows, model):
    X, y = rows
    again = ParKRegressor(**model.chosen_.params).fit(X, y)
    assert deviances(again) == {}
    assert (again.predict(X) == model.predict(X)).all()


def test_rows_in_another_order_choose_the_same_penalty(rows, model):
    X, y = rows
    turned = ParKRegressor(**KNOWN, loss="poisson", random_state=0, progress=False)
    turned.fit(X[::-1], y[::-1])
    assert turned.chosen_.params["penalty"] == pytest.approx(model.chosen_.params["penalty"])


def test_validation_rows_of_your_own_decide(rows):
    X, y = rows
    model = ParKRegressor(**KNOWN, loss="poisson", random_state=0, progress=False)
    model.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert len(deviances(model)) >= 3
    assert len(model.validation_rows_["truth"]) == 120
