"""Plots of explanations: do they show the numbers of the model?"""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from parkrr import ParKClassifier, ParKRegressor
from parkrr.errors import ParameterError
from parkrr.inspection import explain, partial_dependence, shapley_values
from parkrr.kernels import Gaussian
from parkrr.plots import plot_explanation, plot_interaction, plot_partial_dependence
from plain import PLAIN

mpl.use("Agg")
SETTLED = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-3, "metric": "standard", "n_cells": 1}


def frame(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    columns = {"<b>": X[:, 0], "price $_$^": X[:, 1], "kind": np.where(X[:, 0] > 0, "a & b", "c")}
    columns["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    columns["open"] = rng.uniform(size=n) < 0.5
    return pd.DataFrame(columns), np.sin(X[:, 0]) * X[:, 1]


@pytest.fixture(scope="module")
def model():
    return ParKRegressor(**SETTLED, random_state=0).fit(*frame(300, 0))


@pytest.fixture
def ax():
    return Figure(layout="constrained").subplots()


@pytest.mark.parametrize("feature", ["<b>", "price $_$^", "day"])
def test_a_line_shows_the_mean_prediction(model, feature, ax):
    X, _ = frame(100, 1)
    assert plot_partial_dependence(model, feature, X, ax=ax) is ax
    wanted = partial_dependence(model, feature, X).average
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), wanted)
    ax.figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("feature", "names"), [("kind", ["a & b", "c"]), ("open", ["False", "True"])]
)
def test_categories_and_booleans_are_named(model, feature, names, ax):
    plot_partial_dependence(model, feature, frame(100, 1)[0], ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == names


def test_lines_of_single_rows_are_drawn_if_asked_for(model, ax):
    X, _ = frame(100, 1)
    plot_partial_dependence(model, 0, X, individual=True, ax=ax)
    assert len(ax.lines) == 50 + 2
    single = partial_dependence(model, 0, X).individual
    np.testing.assert_array_equal(ax.lines[7].get_ydata(), single[7])


def test_an_interaction_is_a_map_of_mean_predictions(model, ax):
    X, _ = frame(100, 1)
    plot_interaction(model, ("<b>", "price $_$^"), X, ax=ax)
    wanted = partial_dependence(model, (0, 1), X, grid_resolution=15, n_rows=200)
    np.testing.assert_array_equal(ax.collections[0].get_array(), wanted.average.T)
    assert ax.get_title().startswith(f"{wanted.interaction:.0%} of the joint effect")
    ax.figure.draw_without_rendering()


def test_features_of_an_interaction_are_two(model):
    with pytest.raises(ParameterError, match="features must be a pair"):
        plot_interaction(model, ("<b>",), frame(100, 1)[0])


def test_a_feature_with_one_value_does_not_interact(model, ax):
    X, _ = frame(50, 1)
    plot_interaction(model, ("<b>", "kind"), X.assign(kind="c"), ax=ax)
    assert "single value" in ax.texts[0].get_text()


def test_bars_are_contributions_from_the_largest_to_the_smallest(model, ax):
    X, _ = frame(20, 1)
    plot_explanation(model, X[3:4], ax=ax)
    sizes = explain(model, X[3:4]).contributions[0]
    order = np.argsort(-np.abs(sizes), kind="stable")
    np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], sizes[order])
    ax.figure.draw_without_rendering()


def test_bars_are_shapley_values_if_asked_for(model, ax):
    X, _ = frame(20, 1)
    plot_explanation(model, X[3:4], values="shapley", ax=ax)
    sizes = np.sort(np.abs(shapley_values(model, X[3:4]).values[0]))[::-1]
    np.testing.assert_array_equal(np.abs([bar.get_width() for bar in ax.patches]), sizes)


def test_one_row_is_explained_at_a_time(model):
    with pytest.raises(ParameterError, match=r"row must be one row such as X\[7:8\], got 2 rows"):
        plot_explanation(model, frame(2, 1)[0])


def test_the_score_of_a_class_is_drawn(ax):
    X, y = frame(200, 0)
    classifier = ParKClassifier(**SETTLED).fit(X, np.digitize(y, [-1, 1]))
    plot_partial_dependence(classifier, "<b>", X, target=2, ax=ax)
    assert ax.get_ylabel() == "score"
