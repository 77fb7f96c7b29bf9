"""Hostile data: a fit ends with finite predictions, or with an error that gives the reason."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from parkrr import ParKClassifier, ParKRegressor
from parkrr.errors import ParKError
from parkrr.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, Radial
from plain import PLAIN

MANY = settings(
    max_examples=700,
    deadline=10_000,  # milliseconds a case: none may hang
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

KERNELS = st.sampled_from(
    [
        Gaussian(1.0),
        Gaussian(1e-6),
        Gaussian(1e6),
        Laplacian(2.0),
        Matern(0.5, nu=0.5),
        Matern(3.0, nu=1.5),
        Matern(3.0, nu=2.5),
        Polynomial(degree=2),
        Polynomial(degree=5, gamma=0.1, coef0=0.0),
        Linear(),
    ]
)

SETTINGS = st.fixed_dictionaries(
    {
        "kernel": KERNELS,
        "penalty": st.sampled_from([1e-14, 1e-10, 1e-6, 1e-2, 1e2]),
        "n_cells": st.integers(1, 8),
        "n_centers": st.sampled_from(["auto", 1, 5, 20]),
        "centroids": st.sampled_from(["greedy", "uniform", "rpcholesky"]),
        "solver": st.sampled_from(["auto", "falkon", "direct"]),
        "n_candidates": st.sampled_from([None, 1, 10]),
        "balance": st.booleans(),
        "fit_intercept": st.booleans(),
        "max_iter": st.sampled_from([1, 20]),
        "precision": st.sampled_from(["float32", "float64"]),
    }
)


@st.composite
def tables(draw):
    """Small tables with duplicated rows, constant columns, and tiny and huge values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    n, d = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    X = rng.normal(size=(n, d))
    X *= draw(st.sampled_from([1e-12, 1e-3, 1.0, 1e3, 1e12]))
    X += draw(st.sampled_from([0.0, 1e-12, 1.0, 1e6, -1e12]))
    constant = draw(st.sampled_from([0.0, 3.0]))
    X[:, rng.random(d) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = constant
    X = X[rng.integers(0, draw(st.integers(1, n)), size=n)]
    y = rng.normal(size=n) * draw(st.sampled_from([0.0, 1e-12, 1.0, 1e12]))
    y += draw(st.sampled_from([0.0, 1.0, 1e12]))
    return X, y


def attempt(model, X, y, w=None):
    """Predictions at rows seen and unseen, or the message with which the fit was refused."""
    elsewhere = np.concatenate([X, X[::-1] * 1.5 + 1.0, np.zeros_like(X[:1])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "n_cells=")
        try:
            return model.fit(X, y, w).predict(elsewhere), ""
        except ParKError as error:
            return np.zeros(0), str(error)


def is_honest(kernel, message):
    """A bounded kernel is never refused; another one with the parameter, the rule, the value."""
    rule = (
        r"(K\(x, x\)|predictions|kernel of the centres|local system|weights) must .* but .*[Ss]cale"
    )
    return message == "" or (not isinstance(kernel, Radial) and re.search(rule, message))


@MANY
@given(tables(), SETTINGS)
def test_a_regression_is_finite_or_refused_by_name(table, parameters):
    predictions, refusal = attempt(ParKRegressor(**PLAIN | parameters, random_state=0), *table)
    assert np.isfinite(predictions).all()
    assert is_honest(parameters["kernel"], refusal)


@MANY
@given(tables())
def test_automatic_choices_give_finite_predictions(table):
    predictions, refusal = attempt(ParKRegressor(random_state=0), *table)
    assert np.isfinite(predictions).all()
    assert refusal == ""


@MANY
@given(tables(), SETTINGS, st.integers(1, 5))
def test_a_classification_gives_a_known_class_or_is_refused_by_name(table, parameters, k):
    X, y = table
    labels = np.arange(len(y)) % k
    model = ParKClassifier(**PLAIN | parameters, random_state=0)
    predictions, refusal = attempt(model, X, labels)
    assert set(predictions) <= set(labels)
    assert is_honest(parameters["kernel"], refusal)


@MANY
@given(tables(), SETTINGS, st.sampled_from([1e-12, 1.0, 1e12]), st.integers(0, 2**16))
def test_a_weighted_regression_is_finite_or_refused_by_name(table, parameters, scale, seed):
    w = np.random.default_rng(seed).exponential(size=len(table[0])) * scale
    w[::3] *= 1e-60
    predictions, refusal = attempt(ParKRegressor(**PLAIN | parameters, random_state=0), *table, w)
    assert np.isfinite(predictions).all()
    assert is_honest(parameters["kernel"], refusal)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("estimator", [ParKRegressor, ParKClassifier])
def test_infinity_is_refused_by_name(estimator, value):
    X = np.ones((10, 2))
    y = np.arange(10) % 2
    X[3, 1] = value
    with pytest.raises(ValueError, match="contains infinity in column 1"):
        estimator().fit(X, y)
    with pytest.raises(ValueError, match="contains infinity in column 1"):
        estimator().fit(np.ones((10, 2)), y).predict(X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_target_that_is_not_finite_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"y must have a value in every row|Input y contains"):
        ParKRegressor().fit(np.ones((3, 1)), [1.0, 2.0, value])


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("penalty", 0.0, "positive finite number, got 0.0"),
        ("penalty", np.nan, "positive finite number, got nan"),
        ("n_cells", 0, "whole number >= 1 or .auto., got 0"),
        ("n_cells", 2.5, "whole number >= 1 or .auto., got 2.5"),
        ("n_centers", -1, "whole number >= 1 or .auto., got -1"),
        ("n_candidates", 0, "whole number >= 1 or None, got 0"),
        ("max_iter", 0, "whole number >= 1, got 0"),
        ("tol", -1.0, "positive finite number, got -1.0"),
        ("centroids", "kmeans", "one of .*'greedy'.*, got 'kmeans'"),
        ("solver", "lu", "one of .*'falkon'.*, got 'lu'"),
        ("precision", "half", "one of .*'float32'.*, got 'half'"),
        ("kernel", "rbf", "one of .*'gaussian'.*, got 'rbf'"),
        ("balance", "off", "True or False, got 'off'"),
        ("fit_intercept", 1, "True or False, got 1"),
        ("n_cells", "many", "whole number >= 1 or 'auto', got 'many'"),
        ("n_candidates", "all", "whole number >= 1 or None, got 'all'"),
        ("centroids", ["greedy"], "one of .*'greedy'.*, got \\['greedy'\\]"),
        ("device", "tpu", "such as 'cpu', got 'tpu'"),
        ("engine", "dask", "a LocalEngine, a RayEngine or another .* got 'dask'"),
    ],
)
def test_a_parameter_that_breaks_its_rule_is_named(name, value, rule):
    with pytest.raises(ValueError, match=f"{name} must be .*{rule}"):
        ParKRegressor(**{name: value}).fit([[1.0], [2.0]], [1.0, 2.0])


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (Gaussian, {"lengthscale": 0.0}),
        (Laplacian, {"lengthscale": np.nan}),
        (Matern, {"lengthscale": np.inf}),
        (Matern, {"nu": 1.0}),
        (Gaussian, {"lengthscale": 1e-200}),
        (Polynomial, {"degree": 0}),
        (Polynomial, {"degree": np.nan}),
        (Polynomial, {"gamma": -1.0}),
        (Polynomial, {"coef0": -1.0}),
    ],
)
def test_a_kernel_checks_its_own_settings(kernel, arguments):
    [name] = arguments
    with pytest.raises(ValueError, match=f"{name} must be .*, got"):
        kernel(**arguments)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [1.0]])
def test_weights_that_are_none_are_refused_by_name(weights):
    with pytest.raises(ValueError, match="sample_weight must"):
        ParKRegressor().fit([[1.0], [2.0]], [1.0, 2.0], weights)
