"""The HTML report: complete, escaped, and without the network."""

import re
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from parkrr import ParKClassifier, ParKRegressor, load
from parkrr.errors import StorageError
from parkrr.kernels import Gaussian
from parkrr.report import write_report
from parkrr.report.report import class_table, confusion_table, score_table, show
from parkrr.runtime import shorten_numbers
from plain import PLAIN

SETTLED = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-4, "n_cells": 5, "random_state": 0}
NAMES = ["<script>alert(1)</script>", "price $_$^", "kind"]


def waves(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + 0.1 * rng.normal(size=n)


def frame(n, seed):
    """Rows with two columns of numbers and one of categories, all with awkward names."""
    X, y = waves(n, seed)
    kind = np.where(X[:, 0] > 0, "a & b", "c")
    return pd.DataFrame({NAMES[0]: X[:, 0], NAMES[1]: X[:, 1], NAMES[2]: kind}), y


def report_of(model, folder, *rows):
    write_report(model, folder / "report.html", *rows)
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    model = ParKRegressor(**SETTLED).fit(*frame(800, 0))
    return report_of(model, tmp_path_factory.mktemp("report"), *frame(400, 1))


@pytest.fixture(scope="module")
def chooser():
    """A model with something to choose, of few rows, which is quick."""
    return ParKRegressor(random_state=0).fit(*waves(120, 0))


def test_a_report_needs_no_network(report):
    assert not re.search(r"https?://|//cdn|@import|<link|<script|<iframe", report)
    sources = re.findall(r'(?:src|href|url)\s*[=(]\s*"?([^">)]{0,22})', report)
    assert set(sources) == {"data:image/png;base64,"}


def test_a_report_shows_errors_with_and_without_a_coarse_level(tmp_path):
    given = {"kernel": "gaussian", "metric": "standard", "n_cells": 6, "random_state": 0}
    model = ParKRegressor(**given).fit(*waves(800, 0))
    text = report_of(model, tmp_path)
    assert "Coarse level" in text
    assert "coarse and cells" in text


def test_a_report_is_light_and_fits_a_phone_and_dark_mode(report):
    assert len(report.encode()) < 1_500_000
    assert '<meta name="viewport" content="width=device-width' in report
    assert "prefers-color-scheme: dark" in report


def test_names_of_columns_are_escaped(report):
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in report
    assert "price $_$^" in report
    assert "<script>" not in report


def test_a_report_has_the_table_of_columns(report):
    table = report.partition("<h2>Columns</h2>")[2].partition("<h2>")[0]
    assert "a column for each of 2 categories" in table
    assert table.count(">itself<") == 2


def test_a_report_with_rows_has_all_sections_and_plots(report):
    assert re.findall("<h2>(.*?)</h2>", report) == [
        "Warnings",
        "The model",
        "Columns",
        "Errors",
        "Cells",
        "Tuning",
        "Feature importance",
        "Explanations",
        "Uncertainty",
        "Theory",
    ]
    # Predictions of leave-one-out rows and of those given, residuals, sizes, errors, plane,
    # importances, partial dependence on three features, and an interaction.
    assert report.count('<img alt="') == report.count("<figcaption>") == 11
    assert "cos(theta)" in report


def test_a_report_of_a_loaded_model_without_rows_has_what_was_compared_and_no_theory(
    chooser, tmp_path
):
    chooser.save(tmp_path / "model.park")
    text = report_of(load(tmp_path / "model.park"), tmp_path)
    assert "<h2>Theory" not in text
    # Predictions, residuals, the plane of its one cell, penalties, lengthscales, importances.
    assert text.count("<img ") == 6


def test_a_report_begins_with_target_version_r2_and_baseline(tmp_path):
    X, y = frame(300, 0)
    model = ParKRegressor(**SETTLED).fit(X, pd.Series(y, name="height"))
    start = report_of(model, tmp_path).partition("<h2>")[0]
    rows = model.validation_rows_
    r2, baseline = r2_score(rows["truth"], rows["predicted"]), np.std(rows["truth"])
    assert "<h1>Model of height</h1>" in start
    assert f"parkrr {version('parkrr')}" in start
    assert f"<b>{r2:.4g}</b><span>R2, leave-one-out</span>" in start
    assert f"<b>{baseline:.4g}</b><span>baseline: always the mean</span>" in start


def test_a_notebook_shows_the_facts_of_a_fitted_model():
    model = ParKRegressor(**SETTLED)
    assert "<th style='text-align:left'>cells</th>" not in model._repr_mimebundle_()["text/html"]
    shown = model.fit(*waves(300, 0))._repr_mimebundle_()["text/html"]
    cells = f"<td style='text-align:left'>{model.n_cells_}, of"
    assert f"<th style='text-align:left'>cells</th>{cells}" in shown


def test_a_confusion_matrix_counts_rows_by_true_and_predicted_class():
    rows = {"truth": np.array(["a", "a", "b"]), "predicted": np.array(["a", "b", "b"])}
    assert confusion_table(rows) == [
        {"true class": "a", "a": 1, "b": 1},
        {"true class": "b", "a": 0, "b": 1},
    ]


def test_rows_without_targets_add_borders_novelty_and_theory(tmp_path):
    X, y = waves(400, 0)
    text = report_of(ParKRegressor(**SETTLED).fit(X, y), tmp_path, X)
    assert "rows near a border" in text
    assert "Novelty of the rows given" in text
    assert "<h2>Theory" in text
    assert "largest errors. A high novelty" not in text


def test_a_report_of_a_classifier_lists_its_classes(tmp_path):
    X, _ = waves(800, 0)
    labels = np.array(["low", "middle", "<top>"])[np.digitize(X[:, 0] + X[:, 1], [-1, 1])]
    model = ParKClassifier(**SETTLED).fit(X, labels)
    text = report_of(model, tmp_path)
    rows = model.validation_rows_
    wrong = np.mean(rows["predicted"] != rows["truth"])
    assert f"<b>{wrong:.1%}</b><span>error rate, leave-one-out</span>" in text
    for label in ("low", "middle", "&lt;top&gt;"):
        assert f'<td class="text">{label}</td>' in text


def test_a_report_appears_complete_or_not_at_all(chooser, tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        write_report(chooser, tmp_path / "missing" / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_each_target_has_its_line_of_scores():
    truth = np.random.default_rng(0).normal(size=(50, 2))
    rows = {"cell": np.zeros(50), "truth": truth, "predicted": truth + np.array([1, 2])}
    rows |= {"lower": truth - 1, "upper": truth + np.array([1, -1])}
    first, second = score_table("given", rows)
    assert (first["rows"], first["target"], second["target"]) == ("given", 0, 1)
    assert second["root mean squared error"] == pytest.approx(2)
    assert (first["in 90% interval"], second["in 90% interval"]) == ("100.0%", "0.0%")
    assert score_table("given", {}) == []


def test_a_class_table_has_recall_and_precision():
    rows = {"truth": np.array([*"aaab"]), "predicted": np.array([*"aacc"])}
    assert class_table(rows) == [
        {"class": "a", "rows": 3, "recall": "66.7%", "precision": "100.0%"},
        {"class": "b", "rows": 1, "recall": "0.0%", "precision": None},
    ]
    assert class_table({}) == []


def test_values_are_shown_with_few_digits():
    assert [show(value) for value in (None, 0.123456, 123456.7, 1234567, "&")] == [
        "–",
        "0.1235",
        "123,457",
        "1,234,567",
        "&",
    ]
    short = "Matern(lengthscale=56.87, nu=1.5)"
    assert shorten_numbers("Matern(lengthscale=56.874239867, nu=1.5)") == short
