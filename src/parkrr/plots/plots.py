"""Plots of a fitted estimator; matplotlib is imported only here, when something is drawn.

Each function draws into the `ax` it is given, or a new one, and returns it. A plot has one
message, which its title states with numbers.
"""

import io
import textwrap
import warnings
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from parkrr.data import draw_indices
from parkrr.errors import ParameterError
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
from parkrr.uncertainty import COVERAGE, DiagnosticRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, GREY, GOLD = "#2a6fb0", "#d1542b", "#8c8c8c", "#f2b705"
PALETTE = [BLUE, RED, "#2f9e77", "#b0579a", "#c9930a", "#56a9d8", "#7a6a53"]
MARKERS = "o^s"  # of the steps in which kernels were compared
POINTS = 2000  # of a scatter plot: more hide each other and make a report heavy
FEATURES = 20  # bars of importances
ENOUGH = 10  # rows, for the error of a cell to mean something
BINS = 10  # of a reliability curve
LARGEST_RATIO = 10.0  # of an error to the best: larger ones are drawn at the edge
NO_ROWS = "The fit has no leave-one-out rows, so no error is known"


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
    ax.legend(frameon=False)
    title = f"The largest of {cells.cells:,} cells has {cells.ratio:.1f} times the mean"
    title = title if cells.cells > 1 else f"One cell has all {cells.rows:,} rows"
    return style(ax, title, "cells, the largest first", "rows")


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
    ax.axhline(overall, color=RED, linestyle="--", label=f"all rows, {overall:.3g}")
    worst = int(np.where(rows >= min(ENOUGH, rows.max()), error, -1).argmax())
    side = "right" if rows[worst] > (rows.min() + rows.max()) / 2 else "left"
    ax.annotate(f"  cell {cell[worst]}  ", (rows[worst], error[worst]), ha=side, va="center")
    ax.set_ylim(0, 1.2 * float(error[worst]) or 1.0)
    ax.legend(frameon=False)
    ratio = float(error[worst] / overall) if overall else 1.0
    title = f"Cell {cell[worst]} has the largest error: {ratio:.1f} times the overall"
    return style(ax, title, "rows of the cell" if y is None else "rows of X in the cell", name)


def plot_partition(model: FittedEstimator, X: Any = None, *, ax: "Axes | None" = None) -> "Axes":
    """Rows X (n, d), or centres, along the first two principal components of the mapped centres.

    A learned map has scaled features by their effect, so this is where cells differ most. Points
    have the colour of their cell (10 colours in turn) and centroids are black. A model of one
    feature is drawn against its prediction.

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
    ax.scatter(x, y, c=cell_of % 10, cmap="tab10", vmin=0, vmax=9, s=8, alpha=0.8, linewidths=0)
    ax.set(xlim=limits(x), ylim=limits(y))
    x, y = plane.coordinates(inner, inner.centroids)
    size, edge = marker_size(Q), 0.7 if Q <= 100 else 0.0
    ax.scatter(x, y, size, "black", edgecolors="white", linewidths=edge, label="centroids")
    ax.legend(frameon=False, handletextpad=0.1)
    labels = [
        f"direction {k + 1} ({share:.0%}), mostly {short_name(name)}"
        for k, (share, name) in enumerate(zip(plane.shares, plane.features, strict=True))
    ]
    cells = f"{Q:,} cells" if Q > 1 else "One cell"
    title = f"{cells} in the plane that shows {sum(plane.shares):.0%} of the spread"
    return style(ax, title, labels[0], labels[1] if len(labels) > 1 else "prediction")


def plot_tuning(
    model: FittedEstimator, against: str = "penalty", *, ax: "Axes | None" = None
) -> "Axes":
    """Validation error of the kernels compared, against their "penalty" or "lengthscale".

    Steps of the search use different rows and baselines, so errors are over the best of the step.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    against : {'penalty', 'lengthscale'}, default='penalty'
        What to draw the validation error against.
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
    if against not in ("penalty", "lengthscale"):
        raise ParameterError(f"against must be 'penalty' or 'lengthscale', got {against!r}")
    ax, tried = new_axes(ax), tuning_errors(model, against)
    if not tried:
        return write(ax, f"Nothing was compared: the {against} was given, or there is none")
    families = sorted({one["family"] for one in tried})
    markers = dict(zip(dict.fromkeys(one["step"] for one in tried), cycle(MARKERS), strict=False))
    for one in tried:
        colour, marker = PALETTE[families.index(one["family"])], markers[one["step"]]
        ax.scatter(one["value"], one["ratio"], 36, colour, marker=marker, alpha=0.75, linewidths=0)
    last = [one for one in tried if one["step"] == tried[-1]["step"]]
    best = min(last, key=lambda one: one["ratio"])
    where = (best["value"], best["ratio"])
    ax.scatter(*where, s=220, c=GOLD, marker="*", edgecolors="black", zorder=4, label="chosen")
    for k, family in enumerate(families):
        ax.scatter([], [], color=PALETTE[k], label=family)
    for step, marker in markers.items():
        ax.scatter([], [], color=GREY, marker=marker, label=step)
    ax.set_xscale("log")
    if against == "lengthscale":  # seldom spans a decade
        ax.set_xscale("log", subs=[2, 5])
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(lambda value, _: f"{value:g}")
    ax.set_yscale("log" if max(one["ratio"] for one in tried) > 5 else "linear")
    legend_below(ax)
    title = f"{len(tried)} compared, {against} {best['value']:.2g} chosen"
    return style(ax, title, against, "squared error / best of its step")


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
    return style(ax, title, "share of squared changes", "", wrap=54 - max(map(len, names)))


def draw_bars(
    ax: "Axes", lengths: NDArray[np.float64], names: list[str], color: str | list[str]
) -> None:
    """Named horizontal bars, the first one on top."""
    places = np.arange(len(lengths))
    ax.barh(places, lengths, color=color, alpha=0.85)
    ax.set_yticks(places, names)
    ax.tick_params("y", labelsize=8 if len(lengths) > 12 else 10)
    ax.set_ylim(max(len(lengths), 5) - 0.5, -0.5)  # so that one bar does not fill the plot


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
    rows = check_fitted(model).validation_rows_
    if y is not None:
        rows = evaluate_rows(model, X, y, coverage)
    ax, n = new_axes(ax), len(rows.get("cell", ()))
    if not n:
        return write(ax, NO_ROWS)
    rows = {name: values[draw_indices(n, POINTS, 0).numpy()] for name, values in rows.items()}
    if hasattr(model, "classes_"):
        return draw_reliability(rows, ax)
    rows = {name: v[:, target] if v.ndim == 2 else v for name, v in rows.items()}
    x, truth, inside = rows["predicted"], rows["truth"], np.ones(len(rows["cell"]), dtype=bool)
    rmse = float(np.sqrt(np.mean((x - truth) ** 2)))
    title = f"{len(x):,} rows, root mean squared error {rmse:.3g}"
    if "lower" in rows:
        inside = (truth >= rows["lower"]) & (truth <= rows["upper"])
        # Medians of rows with similar predictions.
        parts = np.array_split(np.argsort(x), np.clip(len(x) // 20, 2, 40))
        ends = ("predicted", "lower", "upper")
        mean, lower, upper = ([np.median(rows[k][part]) for part in parts] for k in ends)
        ax.fill_between(mean, lower, upper, color=GREY, alpha=0.3, lw=0, label="typical interval")
        title = f"{coverage:.0%} intervals hold {inside.mean():.1%} of {len(x):,} rows"
    ax.scatter(x[inside], truth[inside], 7, BLUE, alpha=0.6, linewidths=0)
    if not inside.all():
        ax.scatter(x[~inside], truth[~inside], 9, RED, linewidths=0, label="outside its interval")
        ax.legend(frameon=False, loc="upper left", fontsize=8)
    ax.set(xlim=limits(x), ylim=limits(np.concatenate([x, truth])))
    ax.axline((float(x.mean()), float(x.mean())), slope=1, color="black", linewidth=0.8)
    return style(ax, title, "prediction", "truth")


def draw_reliability(rows: DiagnosticRows, ax: "Axes") -> "Axes":
    """Share of correct labels against their probability, in bins of equally many rows."""
    sure, correct = rows["confidence"], rows["predicted"] == rows["truth"]
    bins = np.array_split(np.argsort(sure, kind="stable"), min(BINS, len(sure)))
    x, share = (np.array([values[part].mean() for part in bins]) for values in (sure, correct))
    error = np.sqrt(share * (1 - share) / [len(part) for part in bins])
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    ax.errorbar(x, share, error, fmt="o-", color=BLUE, ecolor=GREY, capsize=2)
    low = max(0.0, min(float(x.min()), float((share - error).min())) - 0.05)
    ax.set(xlim=(low, 1.02), ylim=(low, 1.02))
    title = f"Mean probability {sure.mean():.1%}, correct {correct.mean():.1%} of the time"
    return style(ax, title, "probability of the predicted class", "share that is correct")


def plot_error_against_time(results: Mapping[str, Any], *, ax: "Axes | None" = None) -> "Axes":
    """Error over the best of its task against fit seconds of each method, medians large.

    `results` are those of benchmarks/results/peers.json: for each task and method "error" and
    "fit_seconds". Errors of more than 10 times the best are drawn at the edge.

    Parameters
    ----------
    results : mapping
        As `benchmarks/peers.py` writes it.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed or saved.

    Examples
    --------
    >>> from parkrr import plots
    >>> one, other = {"error": 0.1, "fit_seconds": 2.0}, {"error": 0.2, "fit_seconds": 1.0}
    >>> ax = plots.plot_error_against_time({"flights": {"one": one, "other": other}})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['one', 'other']
    """
    ax, points = new_axes(ax), dict[str, list[tuple[float, float]]]()
    for methods in results.get("results", results).values():
        known = {name: r for name, r in methods.items() if "error" in r}
        best = min((r["error"] for r in known.values()), default=0.0)
        for name, r in known.items() if len(known) > 1 else ():
            points.setdefault(name, []).append((r["fit_seconds"], r["error"] / max(best, 1e-300)))
    for k, (name, pairs) in enumerate(points.items()):
        seconds, ratio = np.array(pairs).T
        colour, far = PALETTE[k % len(PALETTE)], ratio > LARGEST_RATIO
        ax.scatter(seconds[~far], ratio[~far], 16, colour, alpha=0.5, linewidths=0)
        ax.scatter(seconds[far], np.full(far.sum(), LARGEST_RATIO), 24, colour, marker="^")
        median = (np.median(seconds), min(LARGEST_RATIO, float(np.median(ratio))))
        ax.scatter(*median, s=130, c=colour, edgecolors="white", label=name, zorder=4)
    ax.set(xscale="log", yscale="log", ylim=(0.93, 1.15 * LARGEST_RATIO))
    ax.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10+"])
    ax.minorticks_off()
    legend_below(ax)
    title = "Error and time on each task; large: median of a method"
    return style(ax, title, "fit seconds", "error / best of the task")


def draw_png(plot: Callable[..., object], *args: Any) -> bytes:
    """plot(*args) as PNG without a background; pyplot, and so your own plots, is not touched."""
    check_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

    figure, file = Figure(figsize=(4.8, 3.6), layout="constrained"), io.BytesIO()
    plot(*args, ax=figure.subplots())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of a name, which the report has as text too
        figure.savefig(file, format="png", dpi=160, transparent=True)
    return file.getvalue()


def check_matplotlib() -> None:
    """Refuse to draw without it."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - optional, and slow to import
    except ImportError as error:
        raise ParameterError(
            "a plot needs matplotlib, which is not installed; pip install 'parkrr[plot]'"
        ) from error


def new_axes(ax: "Axes | None") -> "Axes":
    """The ax that was given, or a new one."""
    if ax is not None:
        return ax
    check_matplotlib()
    import matplotlib.pyplot as plt  # noqa: PLC0415 - optional, and slow to import

    return plt.subplots(figsize=(6.4, 4.4), layout="constrained")[1]


def style(ax: "Axes", title: str, x: str, y: str, wrap: int = 54) -> "Axes":
    """Give all plots the same look, with a title of lines of so many letters."""
    ax.set_title(textwrap.fill(title, wrap), loc="left", fontsize=10.5, fontweight="bold")
    ax.set(xlabel=x, ylabel=y, axisbelow=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    return ax


def legend_below(ax: "Axes") -> None:
    """Put the legend where it hides nothing."""
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def write(ax: "Axes", text: str) -> "Axes":
    """Write text where there is nothing to draw."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, textwrap.fill(text, 40), ha="center", va="center", transform=ax.transAxes)
    return ax


def limits(values: NDArray[Any]) -> tuple[float, float]:
    """Limits of an axis that a few extreme values do not stretch."""
    low, high = np.quantile(values, [0.003, 0.997]).tolist()
    margin = 0.08 * (high - low) or 0.5
    return low - margin, high + margin


def marker_size(count: int) -> float:
    """Area of a marker, in points squared, for so many of them."""
    return float(np.clip(3000 / max(count, 1), 3, 60))


def short_name(name: object, most: int = 22) -> str:
    """A name of a feature, cut, and with dollar signs that matplotlib prints as they are."""
    text = str(name)
    return (text if len(text) <= most else f"{text[:most]}…").replace("$", r"\$")
