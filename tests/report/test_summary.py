"""The summary of a fitted estimator: plain facts, and the same as text."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.metrics.pairwise import cosine_similarity

from parkrr import ParKClassifier, ParKRegressor
from parkrr.kernels import FeatureMap, Gaussian, Linear
from parkrr.park import CellReport
from parkrr.report.summary import describe, find_warnings, score, summarize
from plain import PLAIN

SETTLED = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-4, "n_cells": 3, "random_state": 0}


def waves(n):
    X = np.random.default_rng(0).uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + X[:, 1]


def cell(q, **changes):
    values = {"rows": 9, "weight": 1.0, "centers": 1, "penalty": 0.1, "solver": "falkon"}
    values |= {"why": "", "iterations": 5, "residual": 0.0, "converged": True, "fallback": ""}
    return CellReport(cell=q, **{**values, "seconds": 0.0, **changes})


def test_facts_are_those_of_the_model_and_json_can_hold_them():
    X, y = waves(300)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.where(y > 0, "u", "v")})
    model = ParKRegressor(**SETTLED).fit(frame, y)
    facts = summarize(model)
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["rows"], facts["cells"]) == (300, model.n_cells_)
    assert facts["kernel"] == {"name": "gaussian", "lengthscale": 1.0}
    assert [one["kind"] for one in facts["features"]] == ["number", "number", "2 categories"]
    assert facts["validation"]["rows"] == len(model.validation_rows_["cell"])


def test_facts_as_text():
    X, y = waves(300)
    text = describe(summarize(ParKRegressor(**SETTLED).fit(X, y)))
    assert text["rows"] == "300"
    assert text["cells"].startswith("3, of ")
    assert text["kernel"] == "gaussian, lengthscale 1"
    assert text["metric"] == "euclidean"
    assert text["predictions"] == "from the nearest cell"
    assert text["leave-one-out"].startswith("root mean squared error 0.")


def test_a_classifier_has_an_error_rate_and_one_class_none():
    X, y = waves(300)
    model = ParKClassifier(**SETTLED).fit(X, y > 0)
    rows = model.validation_rows_
    wrong = np.mean(rows["truth"] != rows["predicted"])
    text = describe(summarize(model))["leave-one-out"]
    assert text == f"{wrong:.1%} of {len(rows['cell'])} rows get the wrong label"
    assert "leave-one-out" not in describe(summarize(ParKClassifier(**PLAIN).fit(X, y > 99)))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (Gaussian(2.0) + 0.5 * Linear(), "1 (gaussian, lengthscale 2) + 0.5 (linear)"),
        (Gaussian([1.0, 3.0]) * Linear(), "(gaussian, lengthscale 1 3) * (linear)"),
        (cosine_similarity, f"FunctionKernel(function={cosine_similarity!r})"),
    ],
    ids=["sum", "product", "function"],
)
def test_sums_products_and_functions_are_described(kernel, text):
    model = ParKRegressor(**{**SETTLED, "kernel": kernel, "n_cells": 1}).fit(*waves(60))
    assert describe(summarize(model))["kernel"] == text


def test_a_kernel_without_slopes_has_no_importances():
    model = ParKRegressor(**{**SETTLED, "kernel": Linear(), "n_cells": 1}).fit(*waves(100))
    assert [one["importance"] for one in summarize(model)["features"]] == [None, None]


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth, off = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    rows = {"cell": np.zeros(50), "truth": truth, "predicted": truth + off}
    scores = score(rows | {"lower": truth - 1, "upper": truth + np.array([1, -1])})
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(off**2)))
    assert scores["mae"] == pytest.approx(mean_absolute_error(truth, truth + off))
    assert scores["r2"] == pytest.approx(r2_score(truth, truth + off))
    assert (scores["share_in_0.9_interval"], scores["mean_width"]) == (0.5, pytest.approx(1))
    assert score({}) is None


@pytest.mark.parametrize("n", [1, 10])
def test_a_constant_target_has_no_r2(n):
    rows = {"cell": np.zeros(n), "truth": np.full(n, 3.7), "predicted": np.full(n, 3.6)}
    assert score(rows)["r2"] is None


def test_cells_that_did_not_converge_or_needed_a_fallback_are_named():
    stuck = cell(1, residual=0.3, converged=False, fallback="jitter")
    lines = find_warnings([cell(0), stuck])
    assert lines[0].startswith("1 of 2 cells stopped before they converged (worst residual 3.0e-01")
    assert "fallback was needed in 1 of 2 cells" in lines[1]
    assert "cells 1 (jitter)" in lines[1]
    assert find_warnings([cell(0)]) == []


def test_uneven_cells_and_large_errors_are_named():
    report = [cell(q, error=1.0) for q in range(9)]
    assert find_warnings(report) == []
    [uneven] = find_warnings([*report, cell(9, rows=90, error=1.0)])
    assert uneven == "The largest cell has 5.3 times the mean rows; see balance."
    [large] = find_warnings([*report, cell(9, error=3.1)])
    assert large == "The error of cell 9 is over 3 times the median."


def test_a_metric_as_text():
    zero, one = torch.zeros(2), torch.ones(2)
    assert FeatureMap().describe() == "euclidean"
    assert FeatureMap(zero, one).describe() == "standard features"
    weights = FeatureMap(zero, one, matrix=one)
    assert weights.describe() == "standard features, learned weights"
    matrix = FeatureMap(zero, one, matrix=torch.eye(2))
    assert matrix.describe() == "standard features, learned matrix"
