"""Plots of a fitted estimator.

Each function draws into the `ax` it is given, or a new one, and returns it. A plot has one
message, which its title states with numbers.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from parkrr.data import draw_indices
from parkrr.errors import ParameterError, check_one_of
from parkrr.inspection import (
    FittedEstimator,
    balance,
    check_fitted,
    errors_by_cell,
    evaluate_rows,
    feature_names,
    leading_plane,
    tuning_errors,
)
from parkrr.plots.drawing import (
    BLUE,
    FEATURES,
    GOLD,
    GREY,
    PALETTE,
    RED,
    draw_bars,
    finish,
    ink,
    legend_below,
    limits,
    marker_size,
    new_axes,
    separate_thousands,
    short_name,
    with_own_style,
    write,
)
from parkrr.runtime import show_number
from parkrr.uncertainty import COVERAGE, DiagnosticRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 2000  # of a scatter plot: more hide each other and make a report heavy
ENOUGH = 10  # rows, for the error of a cell to mean something
BINS = 10  # of a reliability curve
MEDIAN_ROWS = 25  # for each median of residuals
NO_ROWS = "The fit has no leave-one-out rows, so no error is known"


@with_own_style
def plot_cell_sizes(model: FittedEstimator, *, ax: "Axes | None" = None) -> "Axes":
    """Rows of each cell, the largest first, beside their mean.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
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
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_cell_sizes(model).get_ylabel()
    'rows'
    """
    cells, rows = balance(model), sorted((cell.rows for cell in model.report_), reverse=True)
    ax = new_axes(ax)
    ax.stairs(rows, np.arange(len(rows) + 1), fill=True, color=BLUE, alpha=0.8)
    mean = cells.rows / cells.cells
    ax.axhline(mean, color=RED, linestyle="--", label=f"mean, {mean:,.0f} rows")
    ax.set(xlim=(0, len(rows)), ylim=(0, 1.08 * cells.largest))
    ax.locator_params("x", integer=True)
    separate_thousands(ax)
    ax.legend(frameon=False)
    title = f"The largest of {cells.cells:,} cells has {cells.ratio:.1f} times the mean"
    title = title if cells.cells > 1 else f"One cell has all {cells.rows:,} rows"
    return finish(ax, title, "cells, the largest first", "rows")


@with_own_style
def plot_error_by_cell(
    model: FittedEstimator, X: Any = None, y: ArrayLike | None = None, *, ax: "Axes | None" = None
) -> "Axes":
    """Error of each cell against its rows: of rows X (n, d) with targets y, or leave-one-out.

    Cells of fewer than 10 rows, whose errors are chance, do not count for the limits and the title.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like, frame or None, default=None
        Rows to use instead of the validation rows of the fit.
    y : array-like or None, default=None
        Their targets.
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
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_error_by_cell(model, X, X[:, 0]).get_ylabel()
    'root mean squared error'
    """
    ax, name, power = new_axes(ax), "root mean squared error", 2
    classifies = hasattr(model, "classes_")
    if y is None:
        name = "root mean squared error of scores" if classifies else name
        report = check_fitted(model).report_
        table = [(cell.cell, cell.rows, cell.error) for cell in report if cell.error is not None]
    else:
        key = "error_rate" if classifies else "rmse"
        name, power = ("error rate", 1) if classifies else (name, 2)
        table = [(cell["cell"], cell["rows"], cell[key]) for cell in errors_by_cell(model, X, y)]
    if not table:
        return write(ax, NO_ROWS)
    cell, rows, error = (np.array(column) for column in zip(*table, strict=True))
    overall = float(np.average(error**power, weights=rows) ** (1 / power))
    ax.scatter(rows, error, s=max(8, marker_size(len(rows))), color=BLUE, alpha=0.7, linewidths=0)
    ax.axhline(overall, color=RED, linestyle="--", label=f"all rows, {show_number(overall)}")
    worst = int(np.where(rows >= min(ENOUGH, rows.max()), error, -1).argmax())
    side = "right" if rows[worst] > (rows.min() + rows.max()) / 2 else "left"
    ax.annotate(f"  cell {cell[worst]}  ", (rows[worst], error[worst]), ha=side, va="center")
    ax.set_ylim(0, 1.2 * float(error[worst]) or 1.0)
    separate_thousands(ax)
    ax.legend(frameon=False)
    ratio = float(error[worst] / overall) if overall else 1.0
    title = f"Cell {cell[worst]} has the largest error: {ratio:.1f} times the overall"
    return finish(ax, title, "rows of the cell" if y is None else "rows of X in the cell", name)


@with_own_style
def plot_partition(model: FittedEstimator, X: Any = None, *, ax: "Axes | None" = None) -> "Axes":
    """Rows X (n, d), or centres, along the first two principal components of the mapped centres.

    A learned map has scaled features by their effect, so this is where cells differ most. Points
    have the colour of their cell (7 colours in turn) and centroids are black; those of a model of
    one cell have the colour of their prediction. A model of one feature is drawn against it.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame, default=None
        Rows to draw. None draws the centres.
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
    >>> X = np.random.default_rng(0).normal(size=(400, 2)) * [5, 1]
    >>> known = {"metric": "euclidean", "blend": 1, "coarse": 0}
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, **known).fit(X, X[:, 0])
    >>> plots.plot_partition(model, X).get_ylabel()
    'direction 2 (4%), mostly x1'
    """
    inner, plane = check_fitted(model).model_, leading_plane(model)
    Z = torch.cat(list(inner.centers)) if X is None else inner.map_rows(model._rows(X))
    Z = Z[draw_indices(len(Z), POINTS, 0)].to(inner.centroids.dtype)
    cell_of, Q = inner.assign(Z).cpu().numpy(), len(inner.centroids)
    ax = new_axes(ax)
    x, y = plane.coordinates(inner, Z)
    if Q == 1:
        values = inner.evaluate(Z)[:, 0].cpu().numpy()
        dots = ax.scatter(x, y, c=values, s=8, linewidths=0)
        ax.figure.colorbar(
            dots, ax=ax, label="score" if hasattr(model, "classes_") else "prediction"
        )
    else:
        colours = np.array(PALETTE)[cell_of % len(PALETTE)]
        ax.scatter(x, y, c=colours, s=8, alpha=0.8, linewidths=0)
    ax.set(xlim=limits(x), ylim=limits(y))
    if Q > 1:
        x, y = plane.coordinates(inner, inner.centroids)
        size, edge = marker_size(Q), 0.7 if Q <= 100 else 0.0
        around = ax.get_facecolor()
        ax.scatter(x, y, size, ink(ax), edgecolors=around, linewidths=edge, label="centroids")
        ax.legend(frameon=False, handletextpad=0.1)
    labels = [
        f"direction {k + 1} ({share:.0%}), mostly {short_name(name)}"
        for k, (share, name) in enumerate(zip(plane.shares, plane.features, strict=True))
    ]
    cells = f"{Q:,} cells" if Q > 1 else "Predictions"
    title = f"{cells} in the plane that shows {sum(plane.shares):.0%} of the spread"
    return finish(ax, title, labels[0], labels[1] if len(labels) > 1 else "prediction")


@with_own_style
def plot_tuning(
    model: FittedEstimator,
    against: str = "penalty",
    *,
    step: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Validation error of the kernels compared, against their "penalty" or "lengthscale".

    Of one step of the search, since steps use different rows and baselines. A line marks the value
    of the fitted model. It need not have the least error: weights of features are preferred to a
    metric that is better by no more than chance.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    against : {'penalty', 'lengthscale'}, default='penalty'
        What to draw the validation error against.
    step : str, default=None
        A step of `chosen_.tried` that compared kernels. None is the one that ended the search.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed or saved.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor, plots
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> plots.plot_tuning(ParKRegressor().fit(X, X[:, 0]), against="lengthscale").get_xlabel()
    'lengthscale'
    """
    check_one_of("against", against, ("penalty", "lengthscale"))
    tried = tuning_errors(model, against)
    if not tried:
        return write(
            new_axes(ax), f"Nothing was compared: the {against} was given, or there is none"
        )
    steps = list(dict.fromkeys(one["step"] for one in tried))
    step = tried[-1]["step"] if step is None else check_one_of("step", step, steps)
    ax, tried = new_axes(ax), [one for one in tried if one["step"] == step]
    for colour, family in zip(PALETTE, sorted({one["family"] for one in tried}), strict=False):
        own = [(one["value"], one["ratio"]) for one in tried if one["family"] == family]
        ax.plot(*zip(*own, strict=True), "o", color=colour, alpha=0.8, label=family)
    params = check_fitted(model).chosen_.params
    chosen = params["penalty"] if against == "penalty" else params["kernel"].lengthscale
    ax.axvline(chosen, color=ink(ax), linestyle="--", linewidth=1, label=f"chosen, {chosen:.2g}")
    best = min(tried, key=lambda one: one["ratio"])
    where = (best["value"], best["ratio"])
    ax.scatter(*where, s=200, c=GOLD, marker="*", edgecolors=ink(ax), zorder=4, label="least error")
    ax.set_xscale("log")
    if against == "lengthscale":  # seldom spans a decade
        ax.set_xscale("log", subs=[2, 5])
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(lambda value, _: f"{value:g}")
    ax.set_yscale("log" if max(one["ratio"] for one in tried) > 5 else "linear")
    legend_below(ax)
    title = f"{against.capitalize()} {chosen:.2g} chosen of {len(tried)}, {step}"
    return finish(ax, title, against, "squared error / least")


@with_own_style
def plot_importances(model: FittedEstimator, *, ax: "Axes | None" = None) -> "Axes":
    """Feature importances, the 20 largest: how much predictions change along each feature.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
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
    >>> [label.get_text() for label in plots.plot_importances(model).get_yticklabels()]
    ['x0', 'x1']
    """
    ax, shares = new_axes(ax), getattr(check_fitted(model), "feature_importances_", None)
    if shares is None:
        return write(ax, "Importances are known for radial kernels only")
    if not shares.sum() > 0:
        return write(ax, "No feature changes the predictions")
    order = np.argsort(-shares, kind="stable")[:FEATURES]
    names = [short_name(feature_names(model)[k]) for k in order]
    draw_bars(ax, shares[order], names, BLUE)
    half = int(np.searchsorted(np.cumsum(np.sort(shares)[::-1]), 0.5)) + 1
    title = f"{half} of {len(shares)} features carry half of the changes"
    if half == 1:
        title = f"{names[0]} carries {shares[order[0]]:.0%} of the changes"
    return finish(ax, title, "share of squared changes", "", wrap=54 - max(map(len, names)))


@with_own_style
def plot_predictions(
    model: FittedEstimator,
    X: Any = None,
    y: ArrayLike | None = None,
    coverage: float = COVERAGE,
    *,
    target: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Truth against prediction, with intervals; for a classifier its reliability curve.

    Of at most 2,000 of rows X (n, d) with targets y, or of leave-one-out rows, whose intervals
    have a coverage of 0.9. With several targets, `target` is the number of one.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like, frame or None, default=None
        Rows to use instead of the validation rows of the fit.
    y : array-like or None, default=None
        Their targets.
    coverage : float, default=0.9
        Of the intervals, between 0 and 1.
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
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_predictions(model).get_xlabel()
    'prediction'
    """
    if y is None and coverage != COVERAGE:
        raise ParameterError(
            f"coverage of leave-one-out rows must be {COVERAGE}, got {coverage!r}; give X and y"
        )
    rows, ax = draw_rows(model, X, y, coverage, target), new_axes(ax)
    if not len(rows.get("cell", ())):
        return write(ax, NO_ROWS)
    if hasattr(model, "classes_"):
        return draw_reliability(rows, ax)
    x, truth, inside = rows["predicted"], rows["truth"], np.ones(len(rows["cell"]), dtype=bool)
    rmse = float(np.sqrt(np.mean((x - truth) ** 2)))
    title = f"{len(x):,} rows, root mean squared error {show_number(rmse)}"
    if "lower" in rows:
        inside = (truth >= rows["lower"]) & (truth <= rows["upper"])
        # Median distances of the ends in rows with similar predictions; those of the first and last
        # part hold up to the least and the largest prediction.
        parts = np.array_split(np.argsort(x), np.clip(len(x) // 20, 2, 40))
        place = np.array([x.min(), *(np.median(x[part]) for part in parts), x.max()])
        below, above = (
            np.pad([np.median(rows[end][part] - x[part]) for part in parts], 1, mode="edge")
            for end in ("lower", "upper")
        )
        ends = place + below, place + above
        ax.fill_between(place, *ends, color=GREY, alpha=0.3, lw=0, label="typical interval")
        title = f"{coverage:.0%} intervals cover {inside.mean():.1%} of {len(x):,} rows"
    ax.scatter(x[inside], truth[inside], 7, BLUE, alpha=0.6, linewidths=0)
    if not inside.all():
        ax.scatter(x[~inside], truth[~inside], 9, RED, linewidths=0, label="outside its interval")
        ax.legend(frameon=False, loc="upper left", fontsize=8)
    ax.set(xlim=limits(x), ylim=limits(np.concatenate([x, truth])))
    separate_thousands(ax)
    ax.axline((float(x.mean()), float(x.mean())), slope=1, color=ink(ax), linewidth=0.8)
    return finish(ax, title, "prediction", "truth")


@with_own_style
def plot_residuals(
    model: FittedEstimator,
    X: Any = None,
    y: ArrayLike | None = None,
    *,
    target: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Residuals of a regressor, truth minus prediction, against predictions.

    Of at most 2,000 of rows X (n, d) with targets y, or of leave-one-out rows. A line joins the
    medians of rows with similar predictions: where it leaves zero, predictions are biased.

    Parameters
    ----------
    model : ParKRegressor
        A fitted regressor.
    X : array-like, frame or None, default=None
        Rows to use instead of the validation rows of the fit.
    y : array-like or None, default=None
        Their targets.
    target : int, default=0
        The number of a target, if there are several.
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
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=1, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_residuals(model).get_ylabel()
    'truth - prediction'
    """
    if hasattr(check_fitted(model), "classes_"):
        raise ParameterError(
            f"model must be a regressor, got {type(model).__name__}; see plot_predictions"
        )
    rows, ax = draw_rows(model, X, y, COVERAGE, target), new_axes(ax)
    if not len(rows.get("cell", ())):
        return write(ax, NO_ROWS)
    x = rows["predicted"]
    residual = rows["truth"] - x
    ax.scatter(x, residual, 7, BLUE, alpha=0.5, linewidths=0)
    ax.axhline(0, color=ink(ax), linewidth=0.8)
    if len(x) >= 2 * MEDIAN_ROWS:  # one median makes no line
        parts = np.array_split(np.argsort(x), min(len(x) // MEDIAN_ROWS, 20))
        medians = [(np.median(x[part]), np.median(residual[part])) for part in parts]
        ax.plot(*zip(*medians, strict=True), color=RED, linewidth=2, label="median")
        ax.legend(frameon=False)
    ax.set(xlim=limits(x), ylim=limits(residual))
    separate_thousands(ax)
    half = float(np.median(np.abs(residual)))
    title = f"Half of {len(x):,} predictions are within {show_number(half)} of the truth"
    return finish(ax, title, "prediction", "truth - prediction")


def draw_rows(
    model: FittedEstimator, X: Any, y: ArrayLike | None, coverage: float, target: int
) -> DiagnosticRows:
    """At most 2,000 of the leave-one-out rows, or of rows X with targets y; of one target."""
    rows = check_fitted(model).validation_rows_
    if y is not None:
        rows = evaluate_rows(model, X, y, coverage)
    some = draw_indices(len(rows.get("cell", ())), POINTS, 0).numpy()
    return {name: v[some, target] if v.ndim == 2 else v[some] for name, v in rows.items()}


def draw_reliability(rows: DiagnosticRows, ax: "Axes") -> "Axes":
    """Share of correct labels against their probability, in bins of equally many rows."""
    sure, correct = rows["confidence"], rows["predicted"] == rows["truth"]
    bins = np.array_split(np.argsort(sure, kind="stable"), min(BINS, len(sure)))
    x, share = (np.array([values[part].mean() for part in bins]) for values in (sure, correct))
    error = np.sqrt(share * (1 - share) / [len(part) for part in bins])
    ax.plot([0, 1], [0, 1], color=ink(ax), linewidth=0.8)
    ax.errorbar(x, share, error, fmt="o-", color=BLUE, ecolor=GREY, capsize=2)
    low = max(0.0, min(float(x.min()), float((share - error).min())) - 0.05)
    ax.set(xlim=(low, 1.02), ylim=(low, 1.02))
    title = f"Mean probability {sure.mean():.1%}, correct {correct.mean():.1%} of the time"
    return finish(ax, title, "probability of the predicted class", "share that is correct")
