"""Plots: do they show the numbers of the model?"""

import ast
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from parkrr import ParKClassifier, ParKRegressor
from parkrr.errors import ParameterError
from parkrr.inspection import tuning_errors
from parkrr.kernels import Gaussian, Linear
from parkrr.park.cells import CellReport
from parkrr.plots import draw_png, drawing, plots
from plain import PLAIN

mpl.use("Agg")
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
def test_a_plot_is_drawn_into_the_ax_that_is_given(drawing, kind, ax, request):
    assert drawing(request.getfixturevalue(kind), ax=ax) is ax
    assert ax.has_data() or ax.texts
    ax.figure.draw_without_rendering()


def test_without_an_ax_there_is_a_new_one_and_png_files_leave_pyplot_alone(model):
    plt.close("all")
    assert plots.plot_cell_sizes(model).figure is plt.gcf()
    plt.close("all")
    assert draw_png(plots.plot_cell_sizes, model).startswith(b"\x89PNG")
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
    done = {"residual": 0.0, "converged": True, "fallback": "", "seconds": 0.0}
    cells = [(3, 9.0), (50, 2.0), (60, 1.0)]
    report = [
        CellReport(cell=q, rows=n, weight=n, error=error, **how, **done)
        for q, (n, error) in enumerate(cells)
    ]
    plots.plot_error_by_cell(SimpleNamespace(report_=report), ax=ax)
    assert ax.get_title().startswith("Cell 1 has the largest error")


def test_with_rows_the_error_of_a_classifier_is_its_error_rate(classifier, ax):
    X, _ = waves(300, 1)
    plots.plot_error_by_cell(classifier, X, labels(X), ax=ax)
    rate = np.mean(classifier.predict(X) != labels(X))
    assert ax.get_ylabel() == "error rate"
    assert ax.get_legend().get_texts()[0].get_text() == f"all rows, {rate:.3g}"


@pytest.mark.parametrize("n_cells", [2, 40])
def test_every_centroid_is_marked_however_many_there_are(n_cells, ax):
    few = {"n_cells": n_cells, "balance": False}
    many = ParKRegressor(**{**SETTLED, **few}).fit(*waves(1000, 0))
    marks = plots.plot_partition(many, ax=ax).collections[1].get_offsets()
    assert len(marks) == many.n_cells_ == n_cells


def test_centres_of_one_cell_have_the_colour_of_their_prediction(ax):
    model = ParKRegressor(**{**SETTLED, "n_cells": 1}).fit(*waves(300, 0))
    colours = plots.plot_partition(model, ax=ax).collections[0].get_array()
    values = model.model_.evaluate(model.model_.centers[0])[:, 0]
    np.testing.assert_allclose(np.sort(colours), np.sort(values.numpy()))


def test_one_feature_is_drawn_against_its_value(ax):
    X, y = waves(300, 0)
    model = ParKRegressor(**SETTLED).fit(X[:, :1], y)
    assert plots.plot_partition(model, X[:, :1], ax=ax).get_ylabel() == "prediction"
    heights = ax.collections[0].get_offsets()[:, 1]
    np.testing.assert_allclose(heights, model.predict(X[:, :1]), atol=1e-9)


@pytest.mark.parametrize("against", ["penalty", "lengthscale"])
def test_a_line_marks_the_value_chosen_and_a_star_the_least_error(chooser, against, ax):
    plots.plot_tuning(chooser, against, ax=ax)
    [star] = [marks for marks in ax.collections if marks.get_label() == "least error"]
    [line] = [line for line in ax.lines if line.get_label().startswith("chosen")]
    chosen = {
        "penalty": chooser.chosen_.params["penalty"],
        "lengthscale": chooser.chosen_.params["kernel"].lengthscale,
    }
    np.testing.assert_allclose(star.get_offsets(), [(chosen[against], 1.0)])
    np.testing.assert_allclose(line.get_xdata(), chosen[against])


def test_one_step_of_tuning_is_drawn_at_a_time(chooser, ax):
    first = tuning_errors(chooser, "penalty")[0]["step"]
    plots.plot_tuning(chooser, step=first, ax=ax)
    assert ax.get_title().replace("\n", " ").endswith(f", {first}")
    with pytest.raises(ParameterError, match="step must be one of"):
        plots.plot_tuning(chooser, step="none such", ax=ax)


def test_the_step_of_tuning_that_is_drawn_is_the_one_that_ended_the_search(ax):
    searched = ParKRegressor(effort="fast", random_state=0).fit(*waves(600, 0))
    plots.plot_tuning(searched, ax=ax)
    last = tuning_errors(searched, "penalty")[-1]
    assert last["value"] == searched.chosen_.params["penalty"]
    assert ax.get_title().replace("\n", " ").endswith(", comparison on cells")


def test_a_model_with_nothing_to_choose_has_no_plot_of_it(model, ax):
    plots.plot_tuning(model, ax=ax)
    assert "Nothing was compared" in ax.texts[0].get_text()
    with pytest.raises(
        ParameterError, match=r"against must be one of \['lengthscale', 'penalty'\]"
    ):
        plots.plot_tuning(model, "weight", ax=ax)


def test_bars_are_importances_with_their_names(model, ax):
    bars = plots.plot_importances(model, ax=ax).patches
    widths = [bar.get_width() for bar in bars]
    np.testing.assert_allclose(widths, np.sort(model.feature_importances_)[::-1])
    named = [label.get_text() for label in ax.get_yticklabels()]
    order = np.argsort(-model.feature_importances_)
    assert named == [plots.short_name(NAMES[k]) for k in order]


def test_half_of_the_changes_is_counted_over_all_features(ax):
    even = SimpleNamespace(report_=[], n_features_in_=100, feature_importances_=np.full(100, 0.01))
    title = plots.plot_importances(even, ax=ax).get_title()
    assert title == "50 of 100 features carry half of the changes"
    assert len(ax.patches) == plots.FEATURES


def test_a_kernel_without_slopes_has_no_importances(ax):
    linear = ParKRegressor(**{**SETTLED, "kernel": Linear(), "n_cells": 1}).fit(*waves(100, 0))
    assert "radial kernels" in plots.plot_importances(linear, ax=ax).texts[0].get_text()


def test_red_rows_are_those_outside_of_their_interval(model, ax):
    X, y = frame(300, 1)
    plots.plot_predictions(model, X, y, 0.8, ax=ax)
    lower, upper = model.predict_interval(X, 0.8)
    outside = (y < lower) | (y > upper)
    [red] = [dots for dots in ax.collections if dots.get_label() == "outside its interval"]
    np.testing.assert_allclose(red.get_offsets()[:, 1], y[outside])
    assert ax.get_title() == f"80% intervals cover {np.mean(~outside):.1%} of 300 rows"


def test_leave_one_out_rows_are_drawn_when_none_are_given(model, ax):
    plots.plot_predictions(model, ax=ax)
    drawn = np.concatenate([dots.get_offsets() for dots in ax.collections[1:]])
    wanted = np.stack([model.validation_rows_["predicted"], model.validation_rows_["truth"]], 1)
    np.testing.assert_allclose(np.sort(drawn, 0), np.sort(wanted, 0))


def test_the_band_of_intervals_reaches_from_the_least_to_the_largest_prediction(model, ax):
    X, y = frame(300, 1)
    band = plots.plot_predictions(model, X, y, ax=ax).collections[0].get_paths()[0].vertices
    predicted = model.predict(X)
    np.testing.assert_allclose(band[:, 0].min(), predicted.min())
    np.testing.assert_allclose(band[:, 0].max(), predicted.max())
    lower, upper = model.predict_interval(X)
    widths = [np.ptp(band[band[:, 0] == x, 1]) for x in (predicted.min(), predicted.max())]
    assert (upper - lower).min() < min(widths) <= max(widths) < (upper - lower).max()


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


def test_residuals_are_truth_minus_prediction(model, ax):
    X, y = frame(200, 1)
    dots = plots.plot_residuals(model, X, y, ax=ax).collections[0].get_offsets()
    np.testing.assert_allclose(dots[:, 0], model.predict(X))
    np.testing.assert_allclose(dots[:, 1], y - model.predict(X))


def test_residuals_of_the_fit_are_those_of_leave_one_out_rows(model, ax):
    dots = plots.plot_residuals(model, ax=ax).collections[0].get_offsets()
    rows = model.validation_rows_
    np.testing.assert_allclose(np.sort(dots[:, 1]), np.sort(rows["truth"] - rows["predicted"]))


def test_residuals_of_few_rows_have_no_line_of_medians(model, ax):
    X, y = frame(49, 1)
    plots.plot_residuals(model, X, y, ax=ax)
    assert [line.get_label() for line in ax.lines if line.get_label() == "median"] == []
    assert ax.get_legend() is None


def test_a_classifier_has_no_residuals(classifier):
    with pytest.raises(ParameterError, match="model must be a regressor, got ParKClassifier"):
        plots.plot_residuals(classifier)


def test_plots_of_their_own_look_the_same_in_any_style(model):
    plt.close("all")
    with plt.style.context("dark_background"):
        own = plots.plot_predictions(model)
        assert own.figure.get_facecolor() == mpl.colors.to_rgba("white")
        assert own.title.get_color() == "black"
        dark = draw_png(plots.plot_predictions, model)
    plt.close("all")
    assert dark == draw_png(plots.plot_predictions, model)


def test_on_axes_that_are_given_a_plot_follows_their_style(model):
    with plt.style.context("dark_background"):
        ax = plots.plot_predictions(model, ax=Figure().subplots())
    assert mpl.colors.to_rgb(ax.lines[-1].get_color()) == (1, 1, 1)


def test_large_numbers_have_thousands_separators(ax):
    X, y = waves(300, 0)
    model = ParKRegressor(**SETTLED).fit(X, 1e5 * y)
    plots.plot_predictions(model, ax=ax).figure.draw_without_rendering()
    assert "200,000" in [label.get_text() for label in ax.get_yticklabels()]


def test_without_matplotlib_the_way_out_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ParameterError, match=r"needs matplotlib.*pip install 'parkrr\[plot\]'"):
        plots.plot_cell_sizes(model)


def test_matplotlib_is_imported_only_when_something_is_drawn():
    """Only drawing.py imports it at all (test_architecture), and not at its top."""
    top = ast.parse(Path(drawing.__file__).read_text()).body
    names = [ast.unparse(node) for node in top if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [name for name in names if "matplotlib" in name]


def test_a_far_value_does_not_stretch_the_limits():
    low, high = drawing.limits(np.append(np.linspace(0, 1, 1000), 1e6))
    assert -0.1 < low < 0
    assert 1 < high < 1.1
