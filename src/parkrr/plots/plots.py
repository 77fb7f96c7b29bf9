"""Pictures of a fitted model; the only home of matplotlib, which is imported when one is drawn.

Each function draws into the `ax` it is given, or a new one, and returns it. A picture has one
message, which its title says with numbers.
"""

import io
import textwrap
import warnings
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from parkrr.data import draw_indices
from parkrr.errors import ParameterError
from parkrr.inspection import (
    Fitted,
    balance,
    compared,
    errors_by_cell,
    feature_names,
    fitted,
    leading_plane,
    limits,
    seen_rows,
    typical,
)
from parkrr.uncertainty import COVERAGE, DiagnosticRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, GREY, GOLD = "#2a6fb0", "#d1542b", "#8c8c8c", "#f2b705"
PALETTE = [BLUE, RED, "#2f9e77", "#b0579a", "#c9930a", "#56a9d8", "#7a6a53"]
MARKERS = "o^s"  # of the steps in which kernels were compared
POINTS = 2000  # of a cloud: more hide each other and make a page heavy
FEATURES = 20  # bars of importances
ENOUGH = 10  # rows, for the error of a cell to mean something
BINS = 10  # of a reliability curve
MOST = 10.0  # times the best error: what is worse is drawn at the edge


def plot_cell_sizes(model: Fitted, *, ax: "Axes | None" = None) -> "Axes":
    """Rows of each cell, the largest first, beside their mean.

    Examples
    --------
    >>> import matplotlib, numpy as np
    >>> matplotlib.use("Agg")
    >>> from parkrr import ParKRegressor, plots
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_cell_sizes(model).get_ylabel()
    'rows'
    """
    found, rows = balance(model), sorted((cell.rows for cell in model.report_), reverse=True)
    ax = new_axes(ax)
    ax.stairs(rows, np.arange(len(rows) + 1), fill=True, color=BLUE, alpha=0.8)
    mean = found.rows / found.cells
    ax.axhline(mean, color=RED, linestyle="--", label=f"mean, {mean:,.0f} rows")
    ax.set(xlim=(0, len(rows)), ylim=(0, 1.08 * found.largest))
    ax.legend(frameon=False)
    title = f"The largest of {found.cells:,} cells has {found.ratio:.1f} times the mean"
    title = title if found.cells > 1 else f"One cell has all {found.rows:,} rows"
    return dressed(ax, title, "cells, the largest first", "rows")


def plot_error_by_cell(
    model: Fitted, X: Any = None, y: ArrayLike | None = None, *, ax: "Axes | None" = None
) -> "Axes":
    """Error of each cell against its rows: of rows X (n, d) with targets y, or those left out.

    Cells of fewer than 10 rows, whose errors are chance, do not count for the frame and the title.

    Examples
    --------
    >>> import matplotlib, numpy as np
    >>> matplotlib.use("Agg")
    >>> from parkrr import ParKRegressor, plots
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_error_by_cell(model, X, X[:, 0]).get_ylabel()
    'root mean squared error'
    """
    ax, name, scores = new_axes(ax), "root mean squared error", hasattr(model, "classes_")
    if y is not None:
        key, name = ("error_rate", "error rate") if scores else ("rmse", name)
        told = [(c["cell"], c["rows"], c[key]) for c in errors_by_cell(model, X, y)]
    else:
        name = "root mean squared error of scores" if scores else name
        report = fitted(model).report_
        told = [(c.cell, c.rows, c.error) for c in report if c.error is not None]
    if not told:
        return said(ax, "No row was left out, so no error is known")
    cell, rows, error = (np.array(column) for column in zip(*told, strict=True))
    power = 1 if name == "error rate" else 2
    whole = float(np.average(error**power, weights=rows) ** (1 / power))
    ax.scatter(rows, error, s=max(8, size_of(len(rows))), color=BLUE, alpha=0.7, linewidths=0)
    ax.axhline(whole, color=RED, linestyle="--", label=f"all rows, {whole:.3g}")
    enough = rows >= min(ENOUGH, rows.max())
    worst = int(np.where(enough, error, -1).argmax())
    side = "right" if rows[worst] > (rows.min() + rows.max()) / 2 else "left"
    ax.annotate(f"  cell {cell[worst]}  ", (rows[worst], error[worst]), ha=side, va="center")
    ax.set_ylim(0, 1.2 * float(error[worst]) or 1.0)
    ax.legend(frameon=False)
    ratio = float(error[worst] / whole) if whole else 1.0
    title = f"Cell {cell[worst]} errs most: {ratio:.1f} times the error of all rows"
    return dressed(ax, title, "rows of the cell" if y is None else "rows of X in the cell", name)


def plot_partition(model: Fitted, X: Any = None, *, ax: "Axes | None" = None) -> "Axes":
    """Rows X (n, d), or centres, in the plane of the mapped centres' two leading directions.

    A learned map has scaled features by what matters, so that this is where cells differ most.
    Points have the colour of their cell (10 colours take turns) and centroids are black. A
    model of one feature is drawn against its value.

    Examples
    --------
    >>> import matplotlib, numpy as np
    >>> matplotlib.use("Agg")
    >>> from parkrr import ParKRegressor, plots
    >>> X = np.random.default_rng(0).normal(size=(400, 2)) * [5, 1]
    >>> known = {"metric": "euclidean", "blend": 1, "coarse": 0}
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, **known).fit(X, X[:, 0])
    >>> plots.plot_partition(model, X).get_ylabel()
    'direction 2 (4%), mostly x1'
    """
    inner, plane = fitted(model).model_, leading_plane(model)
    Z = torch.cat(inner.centers) if X is None else inner.narrowed(model._rows(X))
    Z = Z[draw_indices(len(Z), POINTS, 0)].to(inner.centroids.dtype)
    cell_of, Q = inner.cell_of(Z).cpu().numpy(), len(inner.centroids)
    ax = new_axes(ax)
    x, y = plane.coordinates(inner, Z)
    ax.scatter(x, y, c=cell_of % 10, cmap="tab10", vmin=0, vmax=9, s=8, alpha=0.8, linewidths=0)
    ax.set(xlim=limits(x), ylim=limits(y))
    x, y = plane.coordinates(inner, inner.centroids)
    edge = 0.7 if Q <= 100 else 0.0
    ax.scatter(x, y, size_of(Q), "black", edgecolors="white", linewidths=edge, label="centroids")
    ax.legend(frameon=False, handletextpad=0.1)
    labels = [
        f"direction {k + 1} ({share:.0%}), mostly {plain(name)}"
        for k, (share, name) in enumerate(zip(plane.shares, plane.features, strict=True))
    ]
    seen = sum(plane.shares)
    what = f"{Q:,} cells" if Q > 1 else "One cell"
    title = f"{what} in the plane that shows {seen:.0%} of the spread"
    return dressed(ax, title, labels[0], labels[1] if len(labels) > 1 else "prediction")


def plot_tuning(model: Fitted, against: str = "penalty", *, ax: "Axes | None" = None) -> "Axes":
    """Held-out error of what was tried, against its "penalty" or "lengthscale".

    Steps of choosing see different rows and baselines, so errors are over the best of the step.

    Examples
    --------
    >>> import matplotlib, numpy as np
    >>> matplotlib.use("Agg")
    >>> from parkrr import ParKRegressor, plots
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> plots.plot_tuning(ParKRegressor().fit(X, X[:, 0]), against="lengthscale").get_xlabel()
    'lengthscale'
    """
    if against not in ("penalty", "lengthscale"):
        raise ParameterError(f"against must be 'penalty' or 'lengthscale', got {against!r}")
    ax, tried = new_axes(ax), compared(model, against)
    if not tried:
        return said(ax, f"Nothing was tried: the {against} was given, or there is none")
    families = sorted({one["family"] for one in tried})
    steps = dict.fromkeys(one["step"] for one in tried)
    markers = dict(zip(steps, cycle(MARKERS), strict=False))
    for one in tried:
        colour, marker = PALETTE[families.index(one["family"])], markers[one["step"]]
        ax.scatter(one["at"], one["ratio"], 36, colour, marker=marker, alpha=0.75, linewidths=0)
    last = [one for one in tried if one["step"] == tried[-1]["step"]]
    best = min(last, key=lambda one: one["ratio"])
    where = (best["at"], best["ratio"])
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
    title = f"{len(tried)} tried, {against} {best['at']:.2g} chosen"
    return dressed(ax, title, against, "squared error / best of its step")


def plot_importances(model: Fitted, *, ax: "Axes | None" = None) -> "Axes":
    """How much predictions change along each feature: the 20 largest shares.

    Examples
    --------
    >>> import matplotlib, numpy as np
    >>> matplotlib.use("Agg")
    >>> from parkrr import ParKRegressor, plots
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> [label.get_text() for label in plots.plot_importances(model).get_yticklabels()]
    ['x0', 'x1']
    """
    ax, shares = new_axes(ax), getattr(fitted(model), "feature_importances_", None)
    if shares is None or not shares.sum() > 0:
        known = "Importances are known for radial kernels only"
        return said(ax, known if shares is None else "No feature changes the predictions")
    names, order = feature_names(model), np.argsort(-shares, kind="stable")[:FEATURES]
    place = np.arange(len(order))
    ax.barh(place, shares[order], color=BLUE, alpha=0.85)
    ax.set_yticks(place, [plain(names[k]) for k in order])
    ax.tick_params("y", labelsize=8 if len(order) > 12 else 10)
    ax.set_ylim(max(len(order), 5) - 0.5, -0.5)  # one bar is no wall
    half = int(np.searchsorted(np.cumsum(np.sort(shares)[::-1]), 0.5)) + 1
    title = f"{half} of {len(names)} features carry half of the changes"
    if half == 1:
        title = f"{plain(names[order[0]])} carries {shares[order[0]]:.0%} of the changes"
    room = 54 - max(len(plain(names[k])) for k in order)  # beside the names
    return dressed(ax, title, "share of squared changes", "", wide=room)


def plot_predictions(
    model: Fitted,
    X: Any = None,
    y: ArrayLike | None = None,
    coverage: float = COVERAGE,
    *,
    target: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Truth against prediction, with intervals; of a classifier how often it is right when sure.

    Of at most 2,000 of rows X (n, d) with targets y, or of those that were left out, whose
    intervals have a coverage of 0.9. Of several targets, the one of that number.

    Examples
    --------
    >>> import matplotlib, numpy as np
    >>> matplotlib.use("Agg")
    >>> from parkrr import ParKRegressor, plots
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> plots.plot_predictions(model).get_xlabel()
    'prediction'
    """
    if y is None and coverage != COVERAGE:
        raise ParameterError(
            f"coverage of rows left out must be {COVERAGE}, got {coverage!r}; give X and y"
        )
    seen = fitted(model).validation_rows_ if y is None else seen_rows(model, X, y, coverage)
    ax, n = new_axes(ax), len(seen.get("cell", ()))
    if not n:
        return said(ax, "No row was left out, so no error is known")
    seen = {name: values[draw_indices(n, POINTS, 0).numpy()] for name, values in seen.items()}
    if hasattr(model, "classes_"):
        return reliability(seen, ax)
    one = {name: v[:, target] if v.ndim == 2 else v for name, v in seen.items()}
    return against_truth(one, coverage, ax)


def against_truth(seen: DiagnosticRows, coverage: float, ax: "Axes") -> "Axes":
    """Truth against prediction of one target, those outside of their interval in red."""
    x, truth = seen["predicted"], seen["truth"]
    inside = np.ones(len(x), dtype=bool)
    rmse = float(np.sqrt(np.mean((x - truth) ** 2)))
    title = f"{len(x):,} rows, root mean squared error {rmse:.3g}"
    if "lower" in seen:
        inside = (truth >= seen["lower"]) & (truth <= seen["upper"])
        ax.fill_between(*typical(seen), color=GREY, alpha=0.3, lw=0, label="typical interval")
        title = f"{coverage:.0%} intervals hold {inside.mean():.1%} of {len(x):,} rows"
    ax.scatter(x[inside], truth[inside], 7, BLUE, alpha=0.6, linewidths=0)
    if not inside.all():
        ax.scatter(x[~inside], truth[~inside], 9, RED, linewidths=0, label="outside its interval")
        ax.legend(frameon=False, loc="upper left", fontsize=8)
    ax.set(xlim=limits(x), ylim=limits(np.concatenate([x, truth])))
    ax.axline((float(x.mean()), float(x.mean())), slope=1, color="black", linewidth=0.8)
    return dressed(ax, title, "prediction", "truth")


def reliability(seen: DiagnosticRows, ax: "Axes") -> "Axes":
    """How often labels are right, against how sure the model was, in bins of as many rows."""
    sure, right = seen["confidence"], seen["predicted"] == seen["truth"]
    bins = np.array_split(np.argsort(sure, kind="stable"), min(BINS, len(sure)))
    x, share = (np.array([values[at].mean() for at in bins]) for values in (sure, right))
    error = np.sqrt(share * (1 - share) / [len(at) for at in bins])
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    ax.errorbar(x, share, error, fmt="o-", color=BLUE, ecolor=GREY, capsize=2)
    low = max(0.0, min(float(x.min()), float((share - error).min())) - 0.05)
    ax.set(xlim=(low, 1.02), ylim=(low, 1.02))
    title = f"{sure.mean():.1%} sure on average, right {right.mean():.1%} of the time"
    return dressed(ax, title, "probability given to the predicted class", "share that is right")


def plot_error_against_time(results: Mapping[str, Any], *, ax: "Axes | None" = None) -> "Axes":
    """Error over the best of its task against fit seconds of each method, medians large.

    `results` are those of benchmarks/results/peers.json: of each task and method "error" and
    "fit_seconds". Errors of more than 10 times the best are drawn at the edge.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
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
        colour, far = PALETTE[k % len(PALETTE)], ratio > MOST
        ax.scatter(seconds[~far], ratio[~far], 16, colour, alpha=0.5, linewidths=0)
        ax.scatter(seconds[far], np.full(far.sum(), MOST), 24, colour, marker="^")
        middle = (np.median(seconds), min(MOST, float(np.median(ratio))))
        ax.scatter(*middle, s=130, c=colour, edgecolors="white", label=name, zorder=4)
    ax.set(xscale="log", yscale="log", ylim=(0.93, 1.15 * MOST))
    ax.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10+"])
    ax.minorticks_off()
    legend_below(ax)
    title = "Error and time on each task; large: median of a method"
    return dressed(ax, title, "fit seconds", "error / best of the task")


def picture(drawing: "Callable[[Axes], object]", size: tuple[float, float] = (4.8, 3.6)) -> bytes:
    """What is drawn into an ax, as PNG without a background; pyplot never hears of it."""
    check_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

    figure, file = Figure(figsize=size, layout="constrained"), io.BytesIO()
    drawing(figure.subplots())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of a name, which the page has as text too
        figure.savefig(file, format="png", dpi=160, transparent=True)
    return file.getvalue()


def check_matplotlib() -> None:
    """Refuse to draw without it."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - optional, and slow to import
    except ImportError as error:
        raise ParameterError(
            "a picture needs matplotlib, which is not installed; pip install 'parkrr[plot]'"
        ) from error


def new_axes(ax: "Axes | None") -> "Axes":
    """The ax that was given, or a new one."""
    if ax is not None:
        return ax
    check_matplotlib()
    import matplotlib.pyplot as plt  # noqa: PLC0415 - optional, and slow to import

    return plt.subplots(figsize=(6.4, 4.4), layout="constrained")[1]


def dressed(ax: "Axes", title: str, x: str, y: str, wide: int = 54) -> "Axes":
    """The same look for all, with a title of lines of so many letters."""
    ax.set_title(textwrap.fill(title, wide), loc="left", fontsize=10.5, fontweight="bold")
    ax.set(xlabel=x, ylabel=y, axisbelow=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    return ax


def legend_below(ax: "Axes") -> None:
    """A legend that hides nothing."""
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def said(ax: "Axes", words: str) -> "Axes":
    """Words where there is nothing to draw."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, textwrap.fill(words, 40), ha="center", va="center", transform=ax.transAxes)
    return ax


def size_of(count: int) -> float:
    """Of a marker, in points squared, that leaves room for so many."""
    return float(np.clip(3000 / max(count, 1), 3, 60))


def plain(name: object, most: int = 22) -> str:
    """A name of the user's, short and not taken for mathematics."""
    text = str(name)
    return (text if len(text) <= most else f"{text[:most]}…").replace("$", r"\$")
