"""Feature importance from slopes, compared with finite differences."""

import numpy as np
import pytest
import torch

from parkrr import ParKRegressor
from parkrr.kernels import FeatureMap, Gaussian
from parkrr.park import Model, feature_importances
from plain import PLAIN


def fit(f, **changes):
    X = np.random.default_rng(0).uniform(-1, 1, (400, 3))
    settings = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-6, "random_state": 0}
    return X, ParKRegressor(**{**settings, "n_cells": 1, **changes}).fit(X, f(X))


@pytest.mark.parametrize("changes", [{}, {"metric": "standard"}])
def test_importances_are_mean_squared_slopes_times_variances(changes):
    X, model = fit(lambda X: np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2, **changes)
    h, slopes = 1e-4, []
    for k in range(3):
        step = h * np.eye(3)[k]
        slopes.append((model.predict(X + step) - model.predict(X - step)) / (2 * h))
    expected = np.mean(np.square(slopes), axis=1) * X.var(0)
    shares = feature_importances(model.model_, torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-4, atol=1e-7)


def test_a_feature_without_effect_has_no_importance():
    X, model = fit(lambda X: 3 * X[:, 1])
    shares = feature_importances(model.model_, torch.from_numpy(X))
    assert shares[1] > 0.99
    assert float(shares.sum()) == pytest.approx(1)


@pytest.mark.parametrize("wild", [1e4, 1e12, 1e30])
@pytest.mark.parametrize("kernel", ["gaussian", "matern"])
def test_a_wild_value_leaves_importances(kernel, wild):
    X = np.random.default_rng(0).uniform(-1, 1, (400, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2
    settings = {**PLAIN, "kernel": kernel, "metric": "standard", "random_state": 0, "n_cells": 1}
    usual = ParKRegressor(**settings).fit(X, y).feature_importances_
    X[0, 1] = wild
    found = ParKRegressor(**settings).fit(X, y).feature_importances_
    np.testing.assert_allclose(found, usual, atol=0.02)


@pytest.mark.parametrize("n_targets", [1, 2])
def test_a_matrix_of_one_feature_has_importance_one(n_targets):
    X = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
    metric = FeatureMap(matrix=torch.full((1, 1), 2.0, dtype=torch.float64))
    weights = torch.ones(50, n_targets, dtype=torch.float64)
    intercept = torch.zeros(n_targets, dtype=torch.float64)
    model = Model(Gaussian(1.0), metric, 2 * X[:1], [2 * X], [weights], intercept)
    assert feature_importances(model, X).tolist() == [1.0]
