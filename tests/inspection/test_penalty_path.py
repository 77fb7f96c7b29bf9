"""Errors by penalty and by iteration, beside fits one by one."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import reference
from parkrr import Gaussian, ParKClassifier, ParKRegressor
from parkrr.errors import ParameterError
from parkrr.inspection import effective_dimension, iteration_curve, penalty_path

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (90, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=90)
NEW = RNG.uniform(-3, 3, (60, 2))
Y_NEW = np.sin(2 * NEW[:, 0]) + NEW[:, 1]
KNOWN = {"blend": 1, "coarse": 0, "random_state": 0, "progress": False, "extrapolation": "free"}
PENALTIES = [1e-6, 1e-4, 1e-2]


def ridge(penalty, n=90):
    return KernelRidge(alpha=penalty * n, kernel="rbf", gamma=0.5)


def rmse(predicted, truth):
    return np.sqrt(np.mean((predicted - truth) ** 2))


def test_errors_under_each_penalty_are_those_of_fits_one_by_one():
    path = penalty_path(Gaussian(1.0), X, Y, PENALTIES, X_val=NEW, y_val=Y_NEW)
    for k, penalty in enumerate(PENALTIES):
        model = ridge(penalty)
        left_out = cross_val_predict(model, X, Y, cv=LeaveOneOut())
        np.testing.assert_allclose(path.leave_one_out[k], rmse(left_out, Y), rtol=1e-8)
        model.fit(X, Y)
        np.testing.assert_allclose(path.training[k], rmse(model.predict(X), Y), rtol=1e-6)
        np.testing.assert_allclose(path.validation[k], rmse(model.predict(NEW), Y_NEW), rtol=1e-8)
        K = reference.kernel_matrix(Gaussian(1.0), X, X)
        expected = np.trace(np.linalg.solve(K + penalty * 90 * np.eye(90), K))
        np.testing.assert_allclose(path.effective_dimension[k], expected, rtol=1e-8)
    assert path.best == PENALTIES[int(np.argmin(path.validation))]


def test_the_path_of_a_model_is_that_of_its_cells():
    model = ParKRegressor(Gaussian(1.0), 1e-4, n_cells=2, balance=False, **KNOWN)
    model.set_params(coarse=10).fit(X, Y)
    path = penalty_path(model, X, Y, [1e-4], X_val=NEW, y_val=Y_NEW)
    np.testing.assert_allclose(path.training, rmse(model.predict(X), Y), rtol=1e-6)
    np.testing.assert_allclose(path.validation, rmse(model.predict(NEW), Y_NEW), rtol=1e-6)
    np.testing.assert_allclose(path.effective_dimension, effective_dimension(model, X).sum())
    assert model.n_cells_ == 2


def test_the_path_of_several_targets_is_that_of_all_of_them():
    both = np.stack([Y, -2 * Y], 1)
    one, two = (penalty_path(Gaussian(1.0), X, y, PENALTIES) for y in (Y, both))
    np.testing.assert_allclose(two.leave_one_out, one.leave_one_out * np.sqrt(2.5))
    assert two.validation is None


def test_penalties_are_sorted_and_thirty_four_by_default():
    assert penalty_path(Gaussian(1.0), X, Y, PENALTIES[::-1]).penalties.tolist() == PENALTIES
    assert len(penalty_path(Gaussian(1.0), X, Y).leave_one_out) == 34


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_errors_after_k_iterations_are_those_of_a_fit_that_stops_there():
    given = KNOWN | {"n_cells": 2, "n_centers": 40, "solver": "falkon", "precision": "float64"}
    model = ParKRegressor(Gaussian(1.0), 1e-5, tol=1e-12, **given).fit(X, Y)
    curve = iteration_curve(model, X, Y, 6, X_val=NEW, y_val=Y_NEW)
    for k in (1, 3, 6):
        stopped = ParKRegressor(Gaussian(1.0), 1e-5, tol=1e-12, max_iter=k, **given).fit(X, Y)
        np.testing.assert_allclose(curve.training[k], rmse(stopped.predict(X), Y), rtol=1e-6)
        error = rmse(stopped.predict(NEW), Y_NEW)
        np.testing.assert_allclose(curve.validation[k], error, rtol=1e-6)
    assert curve.iterations.tolist() == list(range(7))


def test_iterations_begin_with_the_intercept_and_end_with_the_direct_solution():
    given = KNOWN | {"n_cells": 2, "n_centers": 40, "solver": "direct"}
    model = ParKRegressor(Gaussian(1.0), 1e-4, **given).fit(X, Y)
    curve = iteration_curve(model, X, Y, 80)
    np.testing.assert_allclose(curve.training[0], Y.std())
    np.testing.assert_allclose(curve.training[-1], rmse(model.predict(X), Y), rtol=1e-6)
    assert curve.validation is None


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (penalty_path, {"penalties": [0.0, 1.0]}, "penalties must be positive"),
        (penalty_path, {"penalties": []}, "penalties must be positive"),
        (penalty_path, {"X_val": NEW}, "X_val and y_val must be given together"),
        (penalty_path, {"y": Y[:5]}, "y must have a target for each row"),
        (penalty_path, {"y": Y * np.nan}, "y must be finite numbers"),
        (penalty_path, {"X": X[0]}, r"X must be finite numbers of shape \(n, d\)"),
        (iteration_curve, {}, "model must be a fitted regressor"),
        (iteration_curve, {"max_iter": 0}, "max_iter must be"),
    ],
)
def test_what_does_not_fit_together_is_refused(function, given, message):
    with pytest.raises(ParameterError, match=message):
        function(**{"model": Gaussian(1.0), "X": X, "y": Y} | given)


@pytest.mark.parametrize("function", [penalty_path, iteration_curve])
def test_a_classifier_is_refused(function):
    model = ParKClassifier(Gaussian(1.0), 1e-3, random_state=0).fit(X, np.sign(Y))
    with pytest.raises(ParameterError, match="model must be a regressor or a kernel"):
        function(model, X, np.sign(Y))
