"""A fitted regressor as a Gaussian process, beside that of scikit-learn."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from parkrr import Gaussian, Matern, ParKClassifier, ParKRegressor
from parkrr.errors import NotFiniteError, ParameterError
from parkrr.inspection import effective_dimension, posterior

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (120, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=120)
NEW = RNG.uniform(-4, 4, (30, 2))
PENALTY = 1e-3
KNOWN = {"blend": 1, "coarse": 0, "fit_intercept": False, "random_state": 0, "progress": False}
KERNELS = [
    (Gaussian(1.3), RBF(1.3)),
    (Gaussian([0.7, 3.0]), RBF([0.7, 3.0])),
    (Matern(2.0, nu=2.5), SklearnMatern(2.0, nu=2.5)),
]


def regressor(kernel, y=Y, **given):
    return ParKRegressor(kernel, PENALTY, **{"n_cells": 1} | KNOWN | given).fit(X, y)


def reference_process(kernel, rows=X, y=Y, alpha=PENALTY * 120):
    return GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(rows, y)


@pytest.mark.parametrize(("kernel", "same"), KERNELS, ids=repr)
def test_one_cell_is_the_gaussian_process_of_scikit_learn(kernel, same):
    process, expected = posterior(regressor(kernel), X, Y), reference_process(same)
    mean, covariance = expected.predict(NEW, return_cov=True)
    np.testing.assert_allclose(process.mean(NEW), mean, atol=1e-6)
    np.testing.assert_allclose(process.covariance(NEW), covariance, atol=1e-6)
    likelihood = expected.log_marginal_likelihood_value_
    np.testing.assert_allclose(process.log_marginal_likelihood, likelihood, rtol=1e-6)


def test_the_posterior_mean_is_the_prediction():
    model = ParKRegressor(Gaussian(1.0), PENALTY, n_cells=3, blend=1, coarse=20, random_state=0)
    model.set_params(extrapolation="free").fit(X, Y)
    np.testing.assert_allclose(posterior(model, X, Y).mean(NEW), model.predict(NEW), atol=1e-8)


def test_several_targets_are_several_processes():
    both = np.stack([Y, np.cos(X[:, 0])], 1)
    process = posterior(regressor(Gaussian(1.0), both), X, both)
    expected = reference_process(RBF(1.0), y=both)
    mean, covariance = expected.predict(NEW, return_cov=True)
    np.testing.assert_allclose(process.mean(NEW), mean, atol=1e-6)
    np.testing.assert_allclose(process.covariance(NEW), covariance, atol=1e-6)
    likelihood = expected.log_marginal_likelihood_value_
    np.testing.assert_allclose(process.log_marginal_likelihood, likelihood, rtol=1e-6)
    assert process.sample(NEW, 4).shape == (30, 2, 4)


def test_cells_are_independent_processes_with_the_same_noise():
    model = regressor(Gaussian(1.0), n_cells=3)
    process, own, new = posterior(model, X, Y), model.apply(X), model.apply(NEW)
    covariance = process.covariance(NEW)
    assert bool((covariance[new[:, None] != new] == 0).all())
    likelihood = 0.0
    for q in range(model.n_cells_):
        expected = reference_process(RBF(1.0), X[own == q], Y[own == q])
        inside = np.ix_(new == q, new == q)
        np.testing.assert_allclose(
            covariance[inside], expected.predict(NEW[new == q], return_cov=True)[1], atol=1e-6
        )
        likelihood += expected.log_marginal_likelihood_value_
    np.testing.assert_allclose(process.log_marginal_likelihood, likelihood, rtol=1e-6)


def test_a_row_of_more_weight_has_less_noise():
    w = RNG.uniform(0.2, 3.0, 120)
    model = ParKRegressor(Gaussian(1.0), PENALTY, n_cells=1, **KNOWN).fit(X, Y, sample_weight=w)
    process = posterior(model, X, Y, w)
    expected = reference_process(RBF(1.0), alpha=PENALTY * w.sum() / w)
    mean, covariance = expected.predict(NEW, return_cov=True)
    np.testing.assert_allclose(process.mean(NEW), mean, atol=1e-6)
    np.testing.assert_allclose(model.predict(NEW), mean, atol=1e-6)
    np.testing.assert_allclose(process.covariance(NEW), covariance, atol=1e-6)


def test_a_row_of_weight_zero_is_not_there():
    w = np.r_[np.zeros(20), np.ones(100)]
    model = ParKRegressor(Gaussian(1.0), PENALTY, n_cells=1, **KNOWN).fit(X, Y, sample_weight=w)
    expected = reference_process(RBF(1.0), X[20:], Y[20:], PENALTY * 100)
    covariance = expected.predict(NEW, return_cov=True)[1]
    np.testing.assert_allclose(posterior(model, X, Y, w).covariance(NEW), covariance, atol=1e-6)


def test_a_prior_variance_scales_the_covariance_and_the_noise():
    process = posterior(regressor(Gaussian(1.0)), X, Y, variance=4.0)
    expected = reference_process(ConstantKernel(4.0) * RBF(1.0), alpha=4.0 * PENALTY * 120)
    covariance = expected.predict(NEW, return_cov=True)[1]
    np.testing.assert_allclose(process.covariance(NEW), covariance, atol=1e-6)
    likelihood = expected.log_marginal_likelihood_value_
    np.testing.assert_allclose(process.log_marginal_likelihood, likelihood, rtol=1e-6)


def test_the_variance_of_largest_likelihood_is_a_maximum():
    model = regressor(Gaussian(1.0))
    best = posterior(model, X, Y, variance="likelihood")
    [variance] = best.variance
    others = [posterior(model, X, Y, variance=variance * f) for f in (0.9, 1.1)]
    assert all(other.log_marginal_likelihood < best.log_marginal_likelihood for other in others)


def test_samples_have_the_mean_and_covariance_of_the_posterior():
    process = posterior(regressor(Gaussian(1.0), n_cells=2), X, Y)
    samples = process.sample(NEW, 20_000, random_state=1)
    np.testing.assert_allclose(samples.mean(1), process.mean(NEW), atol=0.03)
    np.testing.assert_allclose(np.cov(samples), process.covariance(NEW), atol=0.04)
    np.testing.assert_array_equal(samples, process.sample(NEW, 20_000, random_state=1))


def test_rows_twice_in_a_sample_have_the_same_values():
    process = posterior(regressor(Gaussian(1.0)), X, Y)
    samples = process.sample(np.repeat(NEW[:3], 2, axis=0), 5)
    np.testing.assert_allclose(samples[::2], samples[1::2], atol=1e-2)


def test_effective_dimensions_are_those_of_the_formula():
    w = RNG.uniform(0.2, 3.0, 120)
    model = regressor(Gaussian(1.0), n_cells=3)
    own, ridge = model.apply(X), PENALTY * len(X)
    for q, dimension in enumerate(effective_dimension(model, X, w)):
        rows = own == q
        K = RBF(1.0)(X[rows])
        noise = np.diag(ridge * w.mean() / w[rows])
        np.testing.assert_allclose(dimension, np.trace(np.linalg.solve(K + noise, K)), rtol=1e-8)


@pytest.mark.parametrize(
    ("y", "given", "message"),
    [
        (Y[:5], {}, "y must have 1 targets for each of 120 rows"),
        (Y, {"variance": 0.0}, "variance must be"),
        (Y, {"variance": "auto"}, "variance must be 'likelihood' or a number"),
        (Y, {"sample_weight": [1.0]}, "sample_weight"),
    ],
)
def test_what_does_not_fit_together_is_refused(y, given, message):
    with pytest.raises(ParameterError, match=message):
        posterior(regressor(Gaussian(1.0)), X, y, **given)


def test_a_classifier_is_refused():
    model = ParKClassifier(Gaussian(1.0), PENALTY, random_state=0).fit(X, np.sign(Y))
    with pytest.raises(ParameterError, match="model must be a regressor"):
        posterior(model, X, np.sign(Y))


def test_a_penalty_next_to_zero_is_refused():
    copies = np.repeat(X, 2, axis=0)
    model = regressor(Gaussian(100.0)).set_params(penalty=1e-19).fit(X, Y)
    with pytest.raises(NotFiniteError, match="fit with a larger penalty"):
        posterior(model, copies, np.repeat(Y, 2))
