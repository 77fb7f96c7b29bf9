"""Pictures and the page: do they show what there is?"""

import ast
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from parkrr import ParKClassifier, ParKRegressor, load
from parkrr.errors import ParameterError, StorageError
from parkrr.kernels import Gaussian, Linear
from parkrr.park.cells import CellReport
from parkrr.plots import plots
from parkrr.report.html import folded, shown, table
from parkrr.report.report import scores, short, warnings_of, write_report
from plain import PLAIN

mpl.use("Agg")
SETTLED = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-4, "n_cells": 5, "random_state": 0}
NAMES = ["<script>alert(1)</script>", "price $_$^", "kind"]


def waves(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + 0.1 * rng.normal(size=n)


def frame(n, seed):
    """Rows with two columns of numbers and one of words, all with awkward names."""
    X, y = waves(n, seed)
    words = np.where(X[:, 0] > 0, "a & b", "c")
    return pd.DataFrame({NAMES[0]: X[:, 0], NAMES[1]: X[:, 1], NAMES[2]: words}), y


def labels(X):
    return np.array(["low", "middle", "top"])[np.digitize(X[:, 0] + X[:, 1], [-1, 1])]


@pytest.fixture(scope="module")
def model():
    return ParKRegressor(**SETTLED).fit(*frame(800, 0))


@pytest.fixture(scope="module")
def chooser():
    """A model with something to choose: each of few rows is left out, which is quick."""
    return ParKRegressor(random_state=0).fit(*waves(120, 0))


@pytest.fixture(scope="module")
def classifier():
    X, _ = waves(800, 0)
    return ParKClassifier(**SETTLED).fit(X, labels(X))


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(model, path, *frame(400, 1))
    return path.read_text(encoding="utf-8")


@pytest.fixture
def ax():
    return Figure().subplots()


DRAWINGS = [
    plots.plot_cell_sizes,
    plots.plot_error_by_cell,
    plots.plot_partition,
    plots.plot_tuning,
    plots.plot_importances,
    plots.plot_predictions,
]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.__name__)
@pytest.mark.parametrize("kind", ["model", "chooser", "classifier"])
def test_a_picture_is_drawn_into_the_ax_that_is_given(drawing, kind, ax, request):
    assert drawing(request.getfixturevalue(kind), ax=ax) is ax
    assert ax.has_data() or ax.texts
    ax.figure.draw_without_rendering()


def test_without_an_ax_there_is_a_new_one_and_pictures_of_a_page_are_nobody_elses(model):
    plt.close("all")
    assert plots.plot_cell_sizes(model).figure is plt.gcf()
    plt.close("all")
    assert plots.picture(lambda ax: plots.plot_cell_sizes(model, ax=ax)).startswith(b"\x89PNG")
    assert plt.get_fignums() == []


def test_sizes_are_drawn_from_the_largest_to_the_smallest(model, ax):
    [steps] = plots.plot_cell_sizes(model, ax=ax).patches
    rows = sorted((cell.rows for cell in model.report_), reverse=True)
    assert steps.get_data().values.tolist() == rows


def test_a_dot_stands_at_the_rows_and_the_error_of_its_cell(model, ax):
    dots = plots.plot_error_by_cell(model, ax=ax).collections[0].get_offsets()
    np.testing.assert_allclose(dots, [(cell.rows, cell.error) for cell in model.report_])


def test_the_worst_cell_is_one_with_enough_rows(ax):
    how = {"centers": 1, "penalty": 0.1, "solver": "direct", "why": "", "iterations": 0}
    done = {"residual": 0.0, "converged": True, "rescue": "", "seconds": 0.0}
    cells = [(3, 9.0), (50, 2.0), (60, 1.0)]
    report = [
        CellReport(cell=q, rows=n, weight=n, error=error, **how, **done)
        for q, (n, error) in enumerate(cells)
    ]
    plots.plot_error_by_cell(SimpleNamespace(report_=report), ax=ax)
    assert ax.get_title(loc="left").startswith("Cell 1 errs most")


def test_with_rows_the_error_of_a_classifier_is_its_error_rate(classifier, ax):
    X, _ = waves(300, 1)
    plots.plot_error_by_cell(classifier, X, labels(X), ax=ax)
    rate = np.mean(classifier.predict(X) != labels(X))
    assert ax.get_ylabel() == "error rate"
    assert ax.get_legend().get_texts()[0].get_text() == f"all rows, {rate:.3g}"


@pytest.mark.parametrize("n_cells", [1, 40])
def test_every_centroid_is_marked_however_many_there_are(n_cells, ax):
    few = {"n_cells": n_cells, "balance": False}
    many = ParKRegressor(**{**SETTLED, **few}).fit(*waves(1000, 0))
    marks = plots.plot_partition(many, ax=ax).collections[1].get_offsets()
    assert len(marks) == many.n_cells_ == n_cells


def test_one_feature_is_drawn_against_its_value(ax):
    X, y = waves(300, 0)
    model = ParKRegressor(**SETTLED).fit(X[:, :1], y)
    assert plots.plot_partition(model, X[:, :1], ax=ax).get_ylabel() == "prediction"
    heights = ax.collections[0].get_offsets()[:, 1]
    np.testing.assert_allclose(heights, model.predict(X[:, :1]), atol=1e-9)


@pytest.mark.parametrize("against", ["penalty", "lengthscale"])
def test_the_star_stands_at_what_was_chosen(chooser, against, ax):
    plots.plot_tuning(chooser, against, ax=ax)
    [star] = [marks for marks in ax.collections if marks.get_label() == "chosen"]
    chosen = {
        "penalty": chooser.chosen_.params["penalty"],
        "lengthscale": chooser.chosen_.params["kernel"].lengthscale,
    }
    np.testing.assert_allclose(star.get_offsets(), [(chosen[against], 1.0)])


def test_a_model_with_nothing_to_choose_says_so(model, ax):
    plots.plot_tuning(model, ax=ax)
    assert "Nothing was tried" in ax.texts[0].get_text()
    with pytest.raises(ParameterError, match="against must be 'penalty' or 'lengthscale'"):
        plots.plot_tuning(model, "weight", ax=ax)


def test_bars_are_importances_with_their_names(model, ax):
    bars = plots.plot_importances(model, ax=ax).patches
    widths = [bar.get_width() for bar in bars]
    np.testing.assert_allclose(widths, np.sort(model.feature_importances_)[::-1])
    named = [label.get_text() for label in ax.get_yticklabels()]
    order = np.argsort(-model.feature_importances_)
    assert named == [plots.plain(NAMES[k]) for k in order]


def test_half_of_the_changes_is_counted_over_all_features(ax):
    even = SimpleNamespace(report_=[], n_features_in_=100, feature_importances_=np.full(100, 0.01))
    title = plots.plot_importances(even, ax=ax).get_title(loc="left")
    assert title == "50 of 100 features carry half of the changes"
    assert len(ax.patches) == plots.FEATURES


def test_a_kernel_without_slopes_says_that_importances_are_unknown(ax):
    linear = ParKRegressor(**{**SETTLED, "kernel": Linear()}).fit(*waves(100, 0))
    assert "radial kernels" in plots.plot_importances(linear, ax=ax).texts[0].get_text()


def test_red_rows_are_those_outside_of_their_interval(model, ax):
    X, y = frame(300, 1)
    plots.plot_predictions(model, X, y, 0.8, ax=ax)
    lower, upper = model.predict_interval(X, 0.8)
    outside = (y < lower) | (y > upper)
    [red] = [dots for dots in ax.collections if dots.get_label() == "outside its interval"]
    np.testing.assert_allclose(red.get_offsets()[:, 1], y[outside])
    assert ax.get_title(loc="left") == f"80% intervals hold {np.mean(~outside):.1%} of 300 rows"


def test_rows_left_out_are_drawn_when_none_are_given(model, ax):
    plots.plot_predictions(model, ax=ax)
    drawn = np.concatenate([dots.get_offsets() for dots in ax.collections[1:]])
    wanted = np.stack([model.validation_rows_["predicted"], model.validation_rows_["truth"]], 1)
    np.testing.assert_allclose(np.sort(drawn, 0), np.sort(wanted, 0))


def test_their_intervals_have_one_coverage(model, ax):
    with pytest.raises(ParameterError, match=r"must be 0\.9, got 0\.5; give X and y"):
        plots.plot_predictions(model, coverage=0.5, ax=ax)


def test_of_several_targets_one_is_drawn(ax):
    X, y = waves(300, 0)
    both = ParKRegressor(**SETTLED).fit(X, np.stack([y, 100 + y], 1))
    plots.plot_predictions(both, target=1, ax=ax)
    assert ax.get_xlim()[0] > 50


def test_a_reliability_curve_is_the_share_that_is_right_of_rows_as_sure(classifier, ax):
    X, _ = waves(200, 1)
    sure, right = classifier.predict_proba(X).max(1), classifier.predict(X) == labels(X)
    order = np.argsort(sure, kind="stable").reshape(10, 20)
    line = plots.plot_predictions(classifier, X, labels(X), ax=ax).lines[1]
    np.testing.assert_allclose(line.get_xdata(), sure[order].mean(1))
    np.testing.assert_allclose(line.get_ydata(), right[order].mean(1))


def test_errors_and_seconds_of_methods_are_beside_the_best_of_each_task(ax):
    def result(error, seconds):
        return {"error": error, "fit_seconds": seconds}

    tasks = {
        "one": {"slow": result(1.0, 100.0), "fast": result(2.0, 1.0)},
        "two": {"slow": result(1.0, 300.0), "fast": result(99.0, 3.0)},
        "alone": {"slow": result(1.0, 1e6)},
        "failed": {"slow": result(1.0, 200.0), "fast": {"failed": "over 600 s"}},
    }
    plots.plot_error_against_time({"machine": {}, "results": tasks}, ax=ax)
    marks = {marks.get_label(): marks.get_offsets() for marks in ax.collections}
    np.testing.assert_allclose(marks["slow"], [(200.0, 1.0)])
    np.testing.assert_allclose(marks["fast"], [(2.0, plots.MOST)])
    np.testing.assert_allclose(ax.collections[4].get_offsets(), [(3.0, plots.MOST)])


def test_the_results_of_the_benchmark_can_be_drawn(ax):
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "peers.json"
    plots.plot_error_against_time(json.loads(path.read_text()), ax=ax)
    assert "parkrr" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_without_matplotlib_the_way_out_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ParameterError, match=r"needs matplotlib.*pip install 'parkrr\[plot\]'"):
        plots.plot_cell_sizes(model)


def test_matplotlib_is_imported_only_when_something_is_drawn():
    """Only plots.py imports it at all (test_architecture), and not at its top."""
    top = ast.parse(Path(plots.__file__).read_text()).body
    names = [ast.unparse(node) for node in top if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [name for name in names if "matplotlib" in name]


def test_a_page_asks_nothing_of_the_network(page):
    assert not re.search(r"https?://|//cdn|@import|<link|<script|<iframe", page)
    sources = re.findall(r'(?:src|href|url)\s*[=(]\s*"?([^">)]{0,22})', page)
    assert set(sources) == {"data:image/png;base64,"}


def test_a_page_is_light_and_fits_a_phone_and_the_dark(page):
    assert len(page.encode()) < 1_500_000
    assert '<meta name="viewport" content="width=device-width' in page
    assert "prefers-color-scheme: dark" in page


def test_names_of_columns_are_escaped(page):
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "price $_$^" in page
    assert "<script>" not in page


def test_a_page_with_rows_has_all_sections_and_pictures(page):
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        "What to watch",
        "What the model is",
        "How well it does",
        "The cells",
        "What was tried",
        "What it listens to",
        "How sure it is",
        "What the theory says",
    ]
    # Predictions of rows left out and given, sizes, errors, the plane, importances.
    assert page.count('<img alt="') == page.count("<figcaption>") == 6
    assert "cos(theta)" in page


def test_a_page_of_a_loaded_model_without_rows_has_what_was_tried_and_no_theory(chooser, tmp_path):
    chooser.save(tmp_path / "model.park")
    write_report(load(tmp_path / "model.park"), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What the theory says" not in text
    # Predictions, the plane of its one cell, penalties, lengthscales, importances.
    assert text.count("<img ") == 5


def test_a_page_of_a_classifier_tells_of_its_classes(classifier, tmp_path):
    write_report(classifier, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    right = np.mean(
        classifier.validation_rows_["predicted"] == classifier.validation_rows_["truth"]
    )
    assert f"<b>{right:.1%}</b><span>right, rows left out</span>" in text
    assert all(f'<td class="word">{label}</td>' in text for label in classifier.classes_)


def test_a_page_is_written_at_once_or_not_at_all(chooser, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "picture", lambda drawing: b"")
    with pytest.raises(StorageError, match="cannot be written"):
        write_report(chooser, tmp_path / "missing" / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_cells_that_did_not_converge_or_needed_help_are_named():
    how = {"centers": 1, "penalty": 0.1, "solver": "falkon", "why": "", "weight": 1.0}
    report = [
        CellReport(
            cell=0, rows=9, iterations=5, residual=0.0, converged=True, rescue="", seconds=0, **how
        ),
        CellReport(
            cell=1,
            rows=9,
            iterations=5,
            residual=0.3,
            converged=False,
            rescue="<jitter>",
            seconds=0,
            **how,
        ),
    ]
    told = warnings_of(SimpleNamespace(report_=report))
    assert "1 of 2 cells stopped before they converged (worst residual 3.0e-01)" in told
    assert "Numerics needed help in 1 of 2 cells" in told
    assert "cells 1 (&lt;jitter&gt;)" in told
    assert warnings_of(SimpleNamespace(report_=report[:1])).startswith("<p>Nothing")


def test_scores_are_those_of_each_target():
    rng = np.random.default_rng(0)
    truth, off = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    seen = {"cell": np.zeros(50), "truth": truth, "predicted": truth + off}
    seen |= {"lower": truth - 1, "upper": truth + np.array([1, -1])}
    for k, found in enumerate(scores(seen)):
        assert found["target"] == k
        assert found["root mean squared error"] == pytest.approx(np.sqrt(np.mean(off[:, k] ** 2)))
        assert found["mean absolute error"] == pytest.approx(np.mean(np.abs(off[:, k])))
        assert found["R2"] == pytest.approx(1 - np.mean(off[:, k] ** 2) / truth[:, k].var())
        assert found["in 90% interval"] == ("100.0%", "0.0%")[k]
        assert found["its mean width"] == pytest.approx((2, 0)[k], abs=1e-12)
    assert scores({}) == []


def test_what_is_put_into_a_table_is_escaped():
    assert table([{"<a>": "<b>", "n": 1234567}]) == (
        '<div class="scroll"><table><tr><th class="word">&lt;a&gt;</th><th>n</th></tr>'
        '<tr><td class="word">&lt;b&gt;</td><td>1,234,567</td></tr></table></div>'
    )
    assert table([]) == folded("nothing", "") == ""
    assert [shown(value) for value in (None, 0.123456, 123456.7, "&")] == [
        "–",
        "0.1235",
        "123,457",
        "&amp;",
    ]
    assert short("Matern(lengthscale=56.874239867, nu=1.5)") == "Matern(lengthscale=56.87, nu=1.5)"
