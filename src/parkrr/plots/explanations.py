"""Plots that explain predictions: partial dependence, interactions, and single rows."""

from typing import TYPE_CHECKING, Any

import numpy as np

from parkrr.errors import ParameterError, check_one_of
from parkrr.inspection import (
    FittedEstimator,
    Grid,
    Value,
    explain,
    feature_values,
    partial_dependence,
    shapley_values,
)
from parkrr.plots.drawing import (
    BLUE,
    FEATURES,
    GREY,
    RED,
    draw_bars,
    finish,
    ink,
    new_axes,
    separate_thousands,
    short_name,
    with_own_style,
    write,
)
from parkrr.runtime import show_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = 50  # of single rows
INTERACTION_GRID, INTERACTION_ROWS = 15, 200  # 45,000 predictions


@with_own_style
def plot_partial_dependence(
    model: FittedEstimator,
    feature: str | int,
    X: Any,
    *,
    individual: bool = False,
    target: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Mean predictions of rows X (n, d) when one feature is set to other values.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    feature : str or int
        Name or position of a feature that is a number, a date or a category.
    X : array-like or frame of shape (n, d)
        Rows over which predictions are averaged, at most 500 of them.
    individual : bool, default=False
        Whether to draw the lines of 50 single rows, too.
    target : int, default=0
        The number of a target, if there are several; see :func:`parkrr.inspection.explain`.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed or saved.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, plots
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_partial_dependence(model, "x0", X).get_xlabel()
    'x0'
    """
    dependence = partial_dependence(model, feature, X, target=target)
    [grid], average = dependence.grids, dependence.average
    ax, lines = new_axes(ax), dependence.individual[:LINES] if individual else ()
    places = axis_positions(grid)
    for line in lines:
        ax.plot(places, line, color=GREY, alpha=0.3, linewidth=0.7)
    if grid.ordered:
        ax.plot(places, average, color=BLUE, linewidth=2, marker="o" if len(places) < 10 else "")
    else:
        ax.plot(places, average, "o", color=BLUE, markersize=7)
        ax.vlines(places, average.mean(), average, color=BLUE, linewidth=1)
    ax.axhline(float(average.mean()), color=RED, linestyle="--", linewidth=0.8)
    label_axis(ax, grid, "x")
    separate_thousands(ax, "xy" if grid.ordered and places.dtype.kind == "f" else "y")
    name = short_name(grid.feature)
    low, high = float(average.min()), float(average.max())
    title = f"{name} moves the mean prediction between {show_number(low)} and {show_number(high)}"
    return finish(ax, title, name, describe_output(model))


@with_own_style
def plot_interaction(
    model: FittedEstimator,
    features: tuple[str | int, str | int],
    X: Any,
    *,
    target: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Mean predictions of rows X (n, d) when two features are set to other values, as a heat map.

    The title has the share of their joint effect that is interaction: the variance of the map that
    is left when the effect of each feature alone is subtracted.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    features : pair of str or int
        Names or positions of features that are numbers, dates or categories.
    X : array-like or frame of shape (n, d)
        Rows over which predictions are averaged, at most 200 of them.
    target : int, default=0
        The number of a target, if there are several; see :func:`parkrr.inspection.explain`.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed or saved.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, plots
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> known = {"n_cells": 4, "blend": 1, "coarse": 0}
    >>> model = ParKRegressor(Gaussian(), 1e-6, **known).fit(X, X[:, 0] * X[:, 1])
    >>> plots.plot_interaction(model, ("x0", "x1"), X).get_ylabel()
    'x1'
    """
    if not isinstance(features, tuple | list) or len(features) != 2:
        raise ParameterError(f"features must be a pair such as ('x0', 'x1'), got {features!r}")
    dependence = partial_dependence(
        model,
        (features[0], features[1]),
        X,
        grid_resolution=INTERACTION_GRID,
        n_rows=INTERACTION_ROWS,
        target=target,
    )
    ax, (across, upwards) = new_axes(ax), dependence.grids
    if min(len(across.values), len(upwards.values)) < 2:
        return write(ax, "One of the features has a single value, so nothing can interact")
    image = ax.pcolormesh(
        axis_positions(across),
        axis_positions(upwards),
        dependence.average.T,
        shading="nearest",
        cmap="viridis",
    )
    ax.figure.colorbar(image, ax=ax, label=describe_output(model))
    label_axis(ax, across, "x")
    label_axis(ax, upwards, "y")
    names = [short_name(grid.feature) for grid in (across, upwards)]
    share = f"{dependence.interaction:.0%} of the joint effect of {names[0]} and {names[1]}"
    finish(ax, f"{share} is interaction", names[0], names[1], wrap=44)
    ax.grid(visible=False)
    return ax


@with_own_style
def plot_explanation(
    model: FittedEstimator,
    row: Any,
    *,
    values: str = "contributions",
    target: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """What each feature contributes to the prediction of one row, the 20 largest as bars.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    row : array-like or frame of shape (1, d)
        The row, such as ``X[7:8]``.
    values : {"contributions", "shapley"}, default="contributions"
        Contributions of :func:`parkrr.inspection.explain`, or Shapley values, which not every model
        has.
    target : int, default=0
        The number of a target, if there are several; see :func:`parkrr.inspection.explain`.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed or saved.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, plots
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> ax = plots.plot_explanation(model, [[2.0, 0.1]])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x0 = 2', 'x1 = 0.1']
    """
    check_one_of("values", values, ("contributions", "shapley"))
    if values == "shapley":
        shapley = shapley_values(model, row, target=target)
        names, predictions, sizes = shapley.features, shapley.predictions, shapley.values
        base, other = float(shapley.base[0]), "a typical row of its cell"
    else:
        explanation = explain(model, row, target=target)
        names, predictions = explanation.features, explanation.predictions
        sizes, base, other = explanation.contributions, explanation.base, "a typical row"
    if len(predictions) != 1:
        raise ParameterError(f"row must be one row such as X[7:8], got {len(predictions)} rows")
    ax, bars = new_axes(ax), sizes[0]
    order = np.argsort(-np.abs(bars), kind="stable")[:FEATURES]
    colours = [BLUE if bars[k] >= 0 else RED for k in order]
    [own] = feature_values(model, row)
    labels = [name_bar(names[k], own[k]) for k in order]
    draw_bars(ax, bars[order], labels, colours)
    ax.axvline(0, color=ink(ax), linewidth=0.8)
    first = short_name(names[order[0]])
    predicted = show_number(float(predictions[0]))
    title = f"Predicted {predicted}, {other} {show_number(base)}: {first} counts most"
    name = "Shapley value" if values == "shapley" else "contribution to the prediction"
    return finish(ax, title, name, "", wrap=54 - max(map(len, labels)))


def name_bar(name: str, value: Value) -> str:
    """A feature with its value, if that is known."""
    if value is None:
        return short_name(name)
    return f"{short_name(name, 14)} = {short_name(show_value(value), 12)}"


def show_value(value: Value) -> str:
    """A number with four digits, other values as they are."""
    return f"{value:.4g}" if isinstance(value, float) else str(value).removesuffix("T00:00:00")


def axis_positions(grid: Grid) -> Any:
    """Where values stand on an axis: numbers, dates, or 0, 1, ... for categories."""
    dates = grid.ordered and any(isinstance(value, str) for value in grid.values)
    if dates and "T" in str(grid.values[0]):
        return np.array(grid.values, dtype="datetime64[s]")
    return grid.positions / 3600 if dates else grid.positions


def label_axis(ax: "Axes", grid: Grid, axis: str) -> None:
    """Name categories and booleans on an axis, and leave space for dates."""
    if not grid.ordered:
        names = ["missing" if value is None else short_name(value, 12) for value in grid.values]
        ticks = ax.set_xticks if axis == "x" else ax.set_yticks
        ticks(grid.positions, names)
    if axis == "x" and (any(isinstance(value, str) for value in grid.values)):
        ax.tick_params("x", rotation=30 if len(grid.values) > 4 else 0)


def describe_output(model: FittedEstimator) -> str:
    """What is predicted."""
    return "score" if hasattr(model, "classes_") else "mean prediction"
