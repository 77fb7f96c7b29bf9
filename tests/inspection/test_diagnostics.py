"""Facts about a fitted estimator, compared with slow computations."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import reference
from parkrr import ParKClassifier, ParKRegressor
from parkrr.errors import ParameterError
from parkrr.inspection import (
    balance,
    border_jumps,
    cell_table,
    errors_by_cell,
    evaluate_rows,
    leading_plane,
    theory_of,
    tuning_errors,
    worst_rows,
)
from parkrr.kernels import Gaussian, Laplacian
from parkrr.park.cells import CellReport
from parkrr.partition import Blend
from parkrr.theory.bounds import theory
from plain import PLAIN

SETTLED = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-4, "n_cells": 5, "random_state": 0}


def waves(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + 0.1 * rng.normal(size=n)


def labels(X):
    return np.array(["low", "middle", "top"])[np.digitize(X[:, 0] + X[:, 1], [-1, 1])]


@pytest.fixture(scope="module")
def model():
    return ParKRegressor(**SETTLED).fit(*waves(800, 0))


@pytest.fixture(scope="module")
def model_of_logarithms():
    X, y = waves(800, 0)
    return ParKRegressor(**SETTLED, loss="gamma").fit(X, np.exp(y))


@pytest.fixture(scope="module")
def classifier():
    X, _ = waves(800, 0)
    return ParKClassifier(**SETTLED).fit(X, labels(X))


def cells_of(model, X):
    return model.model_.route(torch.from_numpy(X)).numpy()


def report_of(rows):
    how = {"centers": 1, "penalty": 0.1, "solver": "direct", "why": "", "iterations": 0}
    done = {"residual": 0.0, "converged": True, "fallback": "", "seconds": 0.0}
    return [CellReport(cell=q, rows=n, weight=n, **how, **done) for q, n in enumerate(rows)]


def test_balance_is_what_a_hand_counts():
    found = balance(SimpleNamespace(report_=report_of([1, 2, 3, 6])))
    assert found[:5] == (4, 12, 1, 2.5, 6)
    assert found.ratio == 2
    assert found.largest_share == 0.5
    assert found.effective == pytest.approx(144 / 50)


def test_cells_of_equal_size_are_as_many_as_they_are():
    assert balance(SimpleNamespace(report_=report_of([7] * 9))).effective == pytest.approx(9)


def test_the_share_of_a_cell_is_that_of_its_penalty():
    """lambda_q = lambda / rho_q, with weights."""
    X, y = waves(600, 0)
    model = ParKRegressor(**SETTLED).fit(X, y, sample_weight=np.exp(X[:, 0]))
    table = cell_table(model)
    np.testing.assert_allclose([cell["penalty"] * cell["share"] for cell in table], 1e-4)
    assert sum(cell["share"] for cell in table) == pytest.approx(1)
    assert [cell["rows"] for cell in table] == [cell.rows for cell in model.report_]


def test_errors_by_cell_are_those_of_the_rows_of_each_cell(model):
    X, y = waves(500, 1)
    cell, off = cells_of(model, X), model.predict(X) - y
    assert errors_by_cell(model, X, y) == [
        {
            "cell": q,
            "rows": np.sum(cell == q),
            "rmse": pytest.approx(np.sqrt(np.mean(off[cell == q] ** 2))),
            "bias": pytest.approx(np.mean(off[cell == q])),
        }
        for q in range(model.n_cells_)
    ]


def test_cells_without_rows_are_not_listed(model):
    X, y = waves(500, 1)
    first = cells_of(model, X) == 0
    assert [one["cell"] for one in errors_by_cell(model, X[first], y[first])] == [0]


def test_error_rate_and_log_loss_are_those_of_labels_and_probabilities(classifier):
    X, _ = waves(500, 1)
    y, cell = labels(X), cells_of(classifier, X)
    wrong = classifier.predict(X) != y
    own = classifier.predict_proba(X)[np.arange(500), np.searchsorted(classifier.classes_, y)]
    for found in errors_by_cell(classifier, X, y):
        inside = cell == found["cell"]
        assert found["error_rate"] == pytest.approx(np.mean(wrong[inside]))
        assert found["log_loss"] == pytest.approx(np.mean(-np.log(own[inside])))


def test_errors_of_several_targets_are_over_all_of_them():
    X, y = waves(500, 0)
    model = ParKRegressor(**{**SETTLED, "n_cells": 1}).fit(X, np.stack([y, -y, y], 1))
    off = model.predict(X) - np.stack([y, -y, y], 1)
    [found] = errors_by_cell(model, X, np.stack([y, -y, y], 1))
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(off**2)))
    worst = worst_rows(model, X, np.stack([y, -y, y], 1), count=3)
    sizes = np.sqrt(np.mean(off**2, axis=1))
    assert [one["index"] for one in worst] == np.argsort(-sizes)[:3].tolist()
    np.testing.assert_allclose(worst[0]["prediction"], model.predict(X)[worst[0]["index"]])


def test_the_row_that_was_spoilt_is_the_worst(model):
    X, y = waves(300, 1)
    y[17] += 9
    first, second = worst_rows(model, X, y, count=2)
    assert first["index"] == 17
    assert first["error"] == pytest.approx(model.predict(X)[17] - y[17])
    assert abs(second["error"]) < 1
    assert (first["cell"], first["truth"]) == (cells_of(model, X)[17], y[17])
    assert first["novelty"] == pytest.approx(model.novelty(X)[17], abs=1e-12)


def test_the_worst_row_of_a_classifier_has_the_least_probability_of_its_class(classifier):
    X, _ = waves(300, 1)
    y = labels(X)
    own = classifier.predict_proba(X)[np.arange(300), np.searchsorted(classifier.classes_, y)]
    [found] = worst_rows(classifier, X, y, count=1)
    assert found["error"] == pytest.approx(1 - own.min())
    assert (found["index"], found["truth"]) == (own.argmin(), y[own.argmin()])


def test_a_constant_target_has_no_jumps():
    X, _ = waves(400, 0)
    jumps = border_jumps(ParKRegressor(**SETTLED).fit(X, np.full(400, 3.7)), X)
    assert (jumps.rows, jumps.median, jumps.high, jumps.blended) == (40, 0.0, 0.0, False)


def check_jumps(model, X, values):
    """Jumps near borders beside the spread of the values of the model at rows X (200, 2)."""
    inner = model.model_
    Z = inner.map_rows(torch.from_numpy(X)).numpy()
    differences = Z[:, None] - inner.centroids.numpy()  # (n, Q, e)
    distances = np.sum(differences**2, axis=2)  # increases with that of eq. (5), as in a blend
    order = np.argsort(distances, axis=1)[:, :2]
    differ = np.diff(np.take_along_axis(distances, order, 1), axis=1)[:, 0]
    near = np.argsort(differ)[:20]
    local = [
        reference.kernel_matrix(inner.kernel, Z[near], Z_q.numpy()) @ w.numpy()[:, 0]
        for Z_q, w in zip(inner.centers, inner.weights, strict=True)
    ]
    both = np.take_along_axis(np.stack(local, 1), order[near], 1)  # (20, 2)
    sizes = np.abs(both[:, 0] - both[:, 1]) / values.std()
    found = border_jumps(model, X)
    np.testing.assert_allclose(found[1:3], np.quantile(sizes, [0.5, 0.9]), rtol=1e-6)
    assert found.rows == 20


def test_jumps_are_those_between_the_two_nearest_estimators(model):
    X, _ = waves(200, 1)
    check_jumps(model, X, model.predict(X))


def test_jumps_of_a_loss_with_a_logarithmic_link_are_those_of_the_logarithm(model_of_logarithms):
    X, _ = waves(200, 1)
    check_jumps(model_of_logarithms, X, np.log(model_of_logarithms.predict(X)))


def test_a_blend_is_reported_and_one_cell_has_no_border():
    X, y = waves(400, 0)
    blended = ParKRegressor(**{**SETTLED, "blend": Blend(2, 1.0)}).fit(X, y)
    assert border_jumps(blended, X).blended
    assert border_jumps(ParKRegressor(**{**SETTLED, "n_cells": 1}).fit(X, y), X).rows == 0


def check_theory(model, X, values):
    """The theory of the kernel ridge fit to the values of the model at rows X (150, 2)."""
    inner = model.model_
    Z = inner.map_rows(torch.from_numpy(X))
    f = values - float(inner.intercept)
    K = reference.kernel_matrix(inner.kernel, Z.numpy(), Z.numpy())
    weights = torch.from_numpy(reference.krr_weights(K, f, 1e-4))
    wanted = theory(inner.kernel, Z, inner.assign(Z), weights, 1e-4)
    found = theory_of(model, X, n_rows=150)
    names = ("cosine", "projections", "norm", "local_dimension", "dimension")
    for name in names:
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-4)
    assert (found.n_cells, found.n, found.penalty) == (model.n_cells_, 150, 1e-4)


def test_theory_is_that_of_the_kernel_ridge_fit_of_the_model(model):
    X, _ = waves(150, 1)
    check_theory(model, X, model.predict(X))


def test_theory_of_a_loss_with_a_logarithmic_link_is_that_of_the_logarithm(model_of_logarithms):
    X, _ = waves(150, 1)
    check_theory(model_of_logarithms, X, np.log(model_of_logarithms.predict(X)))


def test_of_many_cells_the_theory_is_that_of_fifty_neighbours():
    X, y = waves(3000, 0)
    many = {"kernel": Laplacian(1.0), "n_cells": 80, "balance": False}
    model = ParKRegressor(**{**SETTLED, **many}).fit(X, y)
    found = theory_of(model, X, n_rows=200)
    assert model.n_cells_ == 80
    assert found.n_cells <= 50
    assert 0.4 < 1e-4 / found.penalty < 0.9  # the share of rows in 50 of about 80 cells


def test_rows_are_evaluated_with_predictions_and_intervals(model, classifier):
    X, y = waves(100, 1)
    found = evaluate_rows(model, X, y, coverage=0.8)
    lower, upper = model.predict_interval(X, 0.8)
    wanted = {"cell": cells_of(model, X), "predicted": model.predict(X), "truth": y}
    wanted |= {"lower": lower, "upper": upper}
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values)
    sure = evaluate_rows(classifier, X, labels(X))["confidence"]
    np.testing.assert_allclose(sure, classifier.predict_proba(X).max(1))


def test_intervals_that_few_rows_cannot_know_are_missing():
    X, y = waves(15, 0)
    few = ParKRegressor(**{**SETTLED, "n_cells": 1}).fit(X, y)
    assert "lower" not in evaluate_rows(few, X, y, coverage=0.99)


def test_errors_are_compared_within_a_step():
    tried = [
        {
            "step": "sample search",
            "kernel": "Gaussian(lengthscale=2.0)",
            "penalty": 1e-3,
            "error": 0.5,
        },
        {
            "step": "comparison on cells",
            "kernel": "Gaussian(lengthscale=4.0)",
            "penalty": 1e-4,
            "error": 30.0,
        },
        {"step": "sample search", "kernel": "Linear()", "penalty": 1e-2, "error": 1.0},
        {"step": "coarse comparison", "level": "cells", "error": 0.1},
    ]
    model = SimpleNamespace(report_=[], chosen_=SimpleNamespace(tried=tried))
    found = tuning_errors(model, "penalty")
    assert [(one["value"], one["ratio"]) for one in found] == [(1e-3, 1), (1e-4, 1), (1e-2, 2)]
    assert [one["value"] for one in tuning_errors(model, "lengthscale")] == [2.0, 4.0]


@pytest.mark.parametrize("ask", [balance, cell_table, leading_plane])
def test_a_model_that_is_not_fitted_is_refused(ask):
    with pytest.raises(ParameterError, match=r"model must be fitted.*call its fit"):
        ask(ParKRegressor())


def test_targets_of_the_wrong_shape_or_kind_are_refused(model, classifier):
    X, y = waves(10, 0)
    with pytest.raises(ParameterError, match=r"y must have shape \(10,\), got \(9,\)"):
        errors_by_cell(model, X, y[:9])
    with pytest.raises(ParameterError, match=r"labels of the fit, got also 'other'"):
        errors_by_cell(classifier, X, np.full(10, "other"))
