"""The contract with scikit-learn: its own checks, and what its users do."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from parkrr import ParKClassifier, ParKRegressor
from parkrr.kernels import Gaussian, Kernel, Laplacian, Linear, Matern
from parkrr.kernels.feature_map import FeatureMap
from parkrr.park.algorithm import Coarse
from parkrr.partition import Blend
from parkrr.runtime.engine import LocalEngine
from plain import PLAIN, plain

# Tables of scikit-learn's checks are too small for four balanced cells.
pytestmark = pytest.mark.filterwarnings("ignore:n_cells=")

CONFIGURATIONS = [
    {},
    PLAIN | {"centroids": "greedy", "solver": "falkon", "n_cells": 4},
    PLAIN | {"centroids": "uniform", "solver": "direct", "n_cells": 4},
    PLAIN | {"n_cells": 1, "solver": "falkon"},
]
ESTIMATORS = [
    estimator(**configuration, random_state=0)
    for estimator in (ParKRegressor, ParKClassifier)
    for configuration in CONFIGURATIONS
]

GRID = {
    "kernel": ["gaussian", "auto", Gaussian(2.0), Laplacian(3.0)],
    "penalty": [1e-6, 1e-3, "auto"],
    "metric": [
        "auto",
        "euclidean",
        "standard",
        "learned",
        FeatureMap(torch.zeros(3), torch.ones(3)),
    ],
    "n_cells": ["auto", 1, 3],
    "n_centers": ["auto", 20],
    "centroids": ["greedy", "uniform", "rpcholesky"],
    "solver": ["auto", "falkon", "direct"],
    "n_candidates": [None, 50],
    "balance": [True, False],
    "blend": [1, "auto", Blend(2, 1.0)],
    "coarse": [0, "auto", 20, Coarse(20, Gaussian(3.0))],
    "effort": ["fast", "balanced", "thorough"],
    "time_budget": ["auto", 5.0],
    "max_memory": [None, 1e9],
    "max_model_size": [None, 1e6],
    "fit_intercept": [True, False],
    "max_iter": [50, 100],
    "tol": [1e-2, 1e-3],
    "precision": ["auto", "float32", "float64"],
    "columns": [None, {0: "number"}, {"x1": "category", 2: "ignore"}],
    "device": ["cpu", torch.device("cpu")],
    "engine": ["local", LocalEngine(n_threads=1)],
    "checkpoint": [None, "a folder"],
    "keep_statistics": ["auto", True, False],
    "progress": [True, False],
    "callbacks": [None, [print]],
    "warm_start": [False, True],
    "random_state": [None, 0, np.random.RandomState(0)],
}
REGRESSOR_GRID = {
    "guarantee": ["none", "split", "cell", "jackknife+"],
    "extrapolation": ["bounded", "free"],
    "loss": ["squared_error", "poisson", "gamma", "tweedie"],
    "power": [1.5, 2.0],
}


class Named(Kernel):
    """A kernel that is not a dataclass."""

    diag, against, distance = Linear.diag, Linear.against, Linear.distance

    def __init__(self, name="linear"):
        self.name = name.strip()


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, np.sin(X[:, 0]) + X[:, 1]


def test_the_grid_names_every_parameter():
    assert set(GRID) | set(REGRESSOR_GRID) == set(ParKRegressor().get_params())
    assert set(GRID) | {"class_weight"} == set(ParKClassifier().get_params())


def test_grid_search_runs_over_class_weights(rows):
    X, y = rows
    grid = {"class_weight": [None, "balanced", {False: 1.0, True: 3.0}]}
    search = GridSearchCV(ParKClassifier(random_state=0), grid, cv=2).fit(X, y > 0)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("name", sorted(REGRESSOR_GRID))
def test_grid_search_of_a_regressor_runs_over(name, rows):
    X, y = rows
    grid = {name: REGRESSOR_GRID[name]}
    search = GridSearchCV(ParKRegressor(**PLAIN, random_state=0), grid, cv=2).fit(X, y + 10)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.filterwarnings("ignore:checkpoint")  # which arrays do not use
@pytest.mark.parametrize("name", sorted(GRID))
@pytest.mark.parametrize("estimator", [ParKRegressor, ParKClassifier])
def test_grid_search_runs_over(name, estimator, rows):
    X, y = rows
    others = {key: value for key, value in PLAIN.items() if key != name}  # nothing to choose
    search = GridSearchCV(estimator(**others).set_params(random_state=0), {name: GRID[name]}, cv=2)
    search.fit(X, y > 0)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_parameters_of_the_kernel_are_listed_by_their_names():
    deep = ParKRegressor(Matern(2.0)).get_params()
    assert deep["kernel__lengthscale"] == 2.0
    assert deep["kernel__nu"] == 1.5
    assert "kernel__lengthscale" not in ParKRegressor(Matern(2.0)).get_params(deep=False)
    assert "kernel__lengthscale" not in ParKRegressor("matern").get_params()


def test_setting_a_parameter_of_a_kernel_changes_no_estimator_that_shares_it():
    kernel = Matern(1.0, nu=2.5)
    changed, other = ParKRegressor(kernel), ParKRegressor(kernel)
    assert changed.set_params(kernel__lengthscale=2.0, penalty=1e-3) is changed
    assert (changed.kernel, changed.penalty) == (Matern(2.0, nu=2.5), 1e-3)
    assert other.kernel is kernel
    assert kernel == Matern(1.0, nu=2.5)


def test_a_kernel_and_its_parameter_are_set_in_one_call():
    params = {"kernel__lengthscale": 2.0, "kernel": Laplacian(5.0)}
    assert ParKRegressor().set_params(**params).kernel == Laplacian(2.0)


@pytest.mark.parametrize(
    ("kernel", "params", "message"),
    [
        ("gaussian", {"kernel__lengthscale": 2.0}, r"such as Gaussian\(\), to set kernel__length"),
        (Gaussian(), {"kernel__lenghtscale": 2.0}, "did you mean 'lengthscale'"),
        (Gaussian(), {"kernel__lengthscale": -1.0}, "lengthscale must be between"),
        (Gaussian(), {"kernels__lengthscale": 2.0}, "Invalid parameter 'kernels'"),
        (Named(), {"kernel__name": "a"}, "kernel must be an instance that is a dataclass"),
    ],
)
def test_a_parameter_that_a_kernel_does_not_have_is_refused(kernel, params, message):
    model = ParKRegressor(kernel)
    with pytest.raises(ValueError, match=message):
        model.set_params(**params)
    assert model.kernel is kernel


def test_a_clone_of_an_estimator_with_a_kernel_of_your_own_has_a_copy():
    kernel = Named("mine")
    assert clone(ParKRegressor(kernel)).kernel.name == "mine"
    assert clone(ParKRegressor(Matern(2.0))).kernel == Matern(2.0)


def test_grid_search_finds_the_lengthscale_of_the_rows(rows):
    X, _ = rows
    grid = {"parkregressor__kernel__lengthscale": [1e-3, 2.0, 1e6]}
    pipeline = make_pipeline(StandardScaler(), plain(random_state=0))
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, np.sin(X[:, 0]))
    assert search.best_params_ == {"parkregressor__kernel__lengthscale": 2.0}
    assert PLAIN["kernel"] == Gaussian()


def test_random_search_draws_lengthscales_from_a_distribution(rows):
    X, y = rows
    space = {"kernel__lengthscale": loguniform(1e-2, 1e2)}
    search = RandomizedSearchCV(plain(random_state=0), space, n_iter=10, cv=2, random_state=0)
    search.fit(X, y)
    assert search.best_score_ > 0.9
    best = search.best_params_["kernel__lengthscale"]
    assert search.best_estimator_.kernel == Gaussian(best)


def test_optuna_sets_parameters_of_the_kernel(rows):
    optuna = pytest.importorskip("optuna")
    X, y = rows
    estimator = plain(random_state=0)

    def score(trial):
        lengthscale = trial.suggest_float("kernel__lengthscale", 1e-2, 1e2, log=True)
        return (
            estimator.set_params(kernel__lengthscale=lengthscale)
            .fit(X[:100], y[:100])
            .score(X[100:], y[100:])
        )

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(0))
    study.optimize(score, n_trials=10)
    assert study.best_value > 0.9
    again = estimator.set_params(**study.best_params).fit(X[:100], y[:100])
    assert again.score(X[100:], y[100:]) == study.best_value


@pytest.mark.parametrize("estimator", [ParKRegressor, ParKClassifier])
def test_pickling_changes_no_prediction(estimator, rows):
    X, y = rows
    model = estimator(n_cells=3, random_state=0).fit(X, y > 0)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("estimator", [ParKRegressor, ParKClassifier])
@pytest.mark.parametrize("frame", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_apply_returns_the_cells_to_which_the_model_routes_rows(estimator, frame, rows):
    X, y = rows
    table = frame(X)
    model = estimator(**PLAIN, n_cells=4, balance=False, random_state=0).fit(table, y > 0)
    cells = model.apply(table)
    assert cells.dtype == np.int64
    np.testing.assert_array_equal(cells, model.model_.route(torch.from_numpy(X)).numpy())
    assert np.bincount(cells).tolist() == [cell.rows for cell in model.report_]


def test_a_clone_fits_the_same_model(rows):
    model = ParKRegressor(n_cells=3, random_state=0)
    expected = model.fit(*rows).predict(rows[0])
    np.testing.assert_array_equal(clone(model).fit(*rows).predict(rows[0]), expected)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, torch.tensor, np.float32])
def test_every_kind_of_table_gives_the_same_predictions(frame, rows):
    X, y = rows
    X = X.astype(np.float32).astype(np.float64)
    expected = ParKRegressor(random_state=0).fit(X, y).predict(X)
    table = frame(X)
    np.testing.assert_allclose(
        ParKRegressor(random_state=0, precision="float64").fit(table, y).predict(table),
        expected,
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_column_names_are_kept(frame, rows):
    X, y = rows
    table = frame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    assert list(ParKRegressor().fit(table, y).feature_names_in_) == ["a", "b", "c"]


def test_it_works_behind_a_scaler(rows):
    X, y = rows
    model = make_pipeline(StandardScaler(), ParKRegressor(random_state=0)).fit(X * 1e6, y)
    assert model.score(X * 1e6, y) > 0.9


def test_several_outputs_equal_as_many_fits(rows):
    X, y = rows
    Y = np.column_stack([y, y**2])
    model = plain(n_cells=3, solver="direct", random_state=0)
    together = model.fit(X, Y).predict(X)
    apart = [model.fit(X, Y[:, k]).predict(X) for k in (0, 1)]
    np.testing.assert_allclose(together, np.column_stack(apart), rtol=1e-7, atol=1e-7)


def test_probabilities_come_out_of_cross_validation(rows):
    X, y = rows
    P = cross_val_predict(
        ParKClassifier(random_state=0, progress=False), X, y > 0, cv=3, method="predict_proba"
    )
    np.testing.assert_allclose(P.sum(1), 1)
    assert np.mean(P.argmax(1) == (y > 0)) > 0.9


def test_a_calibration_curve_is_drawn(rows):
    X, y = rows
    model = ParKClassifier(random_state=0).fit(X, y > 0)
    drawn = CalibrationDisplay.from_estimator(model, X, y > 0, n_bins=5)
    assert 0 <= drawn.prob_true.min() <= drawn.prob_true.max() <= 1


def test_shuffling_a_feature_that_matters_costs_most(rows):
    X, y = rows
    model = ParKRegressor(random_state=0).fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=3, random_state=0).importances_mean
    assert found.argmin() == 2
    assert found[:2].min() > 10 * found[2]


@pytest.mark.parametrize("estimator", [ParKRegressor, ParKClassifier])
def test_partial_dependence_rises_with_a_feature_that_adds(estimator, rows):
    X, y = rows
    target = y if estimator is ParKRegressor else y > 0
    model = estimator(random_state=0).fit(X, target)
    found = partial_dependence(model, X, [1], grid_resolution=5)["average"][0]
    assert (np.diff(found) > 0).all()
