"""One page about a fitted model: plain HTML that asks nothing of the network.

Words say what each picture shows, for a reader who has not read the paper. Whatever comes from
the user, names of columns above all, is escaped on its way into the page.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from parkrr.data import atomic_write
from parkrr.inspection import (
    Fitted,
    balance,
    border_jumps,
    cell_table,
    compared,
    feature_names,
    fitted,
    seen_rows,
    theory_of,
    worst_rows,
)
from parkrr.kernels import FeatureMap
from parkrr.plots import plots
from parkrr.report.html import facts, figures, folded, shown, table, whole_page
from parkrr.uncertainty import COVERAGE, DiagnosticRows

ROWS = 20  # of a table
TARGETS = 10  # whose errors are listed
ROUNDING = 1e-12  # what is smaller than this is no error
Drawn = tuple[Callable[[Any], object], str]  # what draws into an ax, and a caption
CELL_COLUMNS = ("cell", "rows", "share", "centres", "error", "solver", "iterations", "seconds")
KERNEL_COLUMNS = ("step", "kernel", "metric", "penalty", "error")
TRIAL_COLUMNS = ("level", "blend", "error")
UNEVEN, FAR_OFF = 4.0, 3.0  # times what is usual: beyond these a reader is warned
STEPS = {
    "sample search": "sample search: kernels on a sample",
    "metric search": "metric search: metric, lengthscale, penalty",
    "blend trial": "blend trial: blending, coarse level",
    "partition": "partition: place centroids, assign rows",
    "cells": "fit the cells",
    "uncertainty": "learn from rows left out",
}
SCALES = {
    "constant": "the same width everywhere in a cell",
    "posterior": "wider where the model itself knows little",
    "learned": "wider where errors were seen to be large",
    "temperature": "one factor for all scores",
    "platt": "a factor and an offset for each class",
    "isotonic": "any increasing function of the score",
}


def write_report(
    model: Fitted, path: str | Path, X: Any = None, y: ArrayLike | None = None
) -> None:
    """Write one page about a fitted model, with pictures, to an HTML file.

    It is about rows of the fit that were each left out; with rows X (n, d) that the fit has not
    seen also about them, and with their targets y about the errors there. The page needs no
    other file and no network. Written at once or not at all.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from parkrr import ParKRegressor
    >>> from parkrr.report.report import write_report
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=1, blend=1, coarse=0).fit(X, X[:, 0])
    >>> path = Path(tempfile.mkdtemp(), "report.html")
    >>> write_report(model, path)
    >>> path.read_text().startswith("<!doctype html>")
    True
    """
    given = None if y is None else seen_rows(model, X, y)
    sections = {
        "What to watch": warnings_of(model),
        "What the model is": about(model),
        "How well it does": performance(model, given, X, y),
        "The cells": cells(model, X, y),
        "What was tried": tried(model),
        "What it listens to": importances(model),
        "How sure it is": uncertainty(model, X),
        "What the theory says": theory_words(model, X),
    }
    title = f"{type(model).__name__} of {balance(model).rows:,} rows"
    body = tiles(model) + "".join(f"<h2>{k}</h2>\n{v}\n" for k, v in sections.items() if v)
    with atomic_write(Path(path)) as temporary:
        temporary.write_text(whole_page(title, body), encoding="utf-8")


def tiles(model: Fitted) -> str:
    """The numbers that matter most."""
    found, seconds = balance(model), sum(getattr(model, "seconds_", {}).values())
    numbers: dict[str, Any] = {"rows": found.rows, "features": model.n_features_in_}
    numbers |= {"cells": found.cells, "seconds": seconds}
    for name, value in (scores(model.validation_rows_) or [{}])[0].items():
        if name in ("root mean squared error", "right"):
            numbers[f"{name}, rows left out"] = value
    inner = (
        f'<div class="tile"><b>{shown(v)}</b><span>{k}</span></div>' for k, v in numbers.items()
    )
    return f'<div class="tiles">{"".join(inner)}</div>'


def warnings_of(model: Fitted) -> str:
    """What a reader should know before believing the rest."""
    report, found = fitted(model).report_, balance(model)
    stuck = [cell for cell in report if not cell.converged]
    saved = [f"{cell.cell} ({cell.rescue})" for cell in report if cell.rescue]
    said = []
    if stuck:
        worst = max(cell.residual for cell in stuck)
        said.append(
            f"{len(stuck)} of {len(report)} cells stopped before they converged (worst residual "
            f"{worst:.1e}). Raise max_iter, or the penalty."
        )
    if saved:
        said.append(
            f"Numerics needed help in {len(saved)} of {len(report)} cells, as with copies of "
            f"rows or a penalty near zero: cells {', '.join(saved[:5])}."
        )
    if found.ratio > UNEVEN:
        said.append(f"The largest cell has {found.ratio:.1f} times the mean; see balance.")
    errors = [(cell.error, cell.cell) for cell in report if cell.error is not None]
    usual = max(float(np.median([error for error, _ in errors] or [0.0])), ROUNDING)
    if errors and max(errors)[0] > FAR_OFF * usual:
        said.append(f"Cell {max(errors)[1]} errs more than {FAR_OFF:.0f} times as much as most.")
    if not said:
        return "<p>Nothing: all cells converged, without help, and none is far from the others.</p>"
    return f'<ul class="warn">{"".join(f"<li>{escape(line)}</li>" for line in said)}</ul>'


def about(model: Fitted) -> str:
    """Sizes, choices and seconds."""
    inner, params = model.model_, model.chosen_.params
    blend, coarse = inner.blend, inner.coarse
    known = {
        "kernel": short(repr(inner.kernel)),
        "metric": metric_words(inner.metric),
        "penalty": params["penalty"],
        "cells": len(inner.centroids),
        "centres": sum(len(centers) for centers in inner.centers),
        "answers come from": "the nearest cell"
        if blend.n_nearest == 1
        else f"up to {blend.n_nearest} nearest cells, blended",
        "coarse level": "none" if coarse is None else f"{len(coarse.centers):,} centres",
        "precision": params["precision"],
    }
    seconds = getattr(model, "seconds_", {})
    steps = [{"step": STEPS.get(name, name), "seconds": value} for name, value in seconds.items()]
    return (
        "<p>Rows are divided into cells of rows that are near to each other for the kernel; each "
        "cell has a kernel ridge regression of its own, whose centres are some or all of its "
        "rows.</p>" + facts(known) + table(steps)
    )


def short(text: str) -> str:
    """A kernel or a blend in words, with numbers of four digits."""
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.4g}", text)


def metric_words(metric: FeatureMap) -> str:
    """What the map does to features, in words."""
    if metric.origin is None:
        return "features as they are"
    words = ["features centred" if metric.scale is None else "features centred and scaled"]
    words += ["their normal scores beside them"] if metric.knots is not None else []
    if metric.matrix is not None:
        words += ["learned weights" if metric.matrix.ndim == 1 else "a learned matrix"]
    return ", ".join(words)


def performance(model: Fitted, given: DiagnosticRows | None, X: Any, y: Any) -> str:
    """Errors, of rows left out and of those given, and predictions beside the truth."""
    sets = {"left out of the fit": model.validation_rows_, "given to this report": given or {}}
    found = [{"rows": name, **one} for name, seen in sets.items() for one in scores(seen)]
    words = (
        "<p>Each of the rows left out was predicted by the model without it, so that these errors "
        "are those of new rows of the same kind.</p>"
    )
    if hasattr(model, "classes_"):
        listed = table(by_class(given or model.validation_rows_))
        return words + table(found) + folded("Class by class", listed, unfolded=True)
    caption = (
        "{}: points on the line are predicted exactly, blue ones lie in their interval, red ones "
        "do not. The grey band is a typical interval; it should widen where points scatter."
    )
    drawn = [(lambda ax: plots.plot_predictions(model, ax=ax), caption.format("Rows left out"))]
    if given is not None:
        rows = (lambda ax: plots.plot_predictions(model, X, y, ax=ax), caption.format("Rows given"))
        drawn.append(rows)
    worst = [] if given is None else worst_rows(model, X, y, ROWS // 2)
    note = (
        "<p>The rows given with the largest errors; a high novelty says that their cell has seen "
    )
    note += "nothing like them, a low one that rows like them were different.</p>"
    return words + table(found) + pictures(drawn) + (note + table(worst) if worst else "")


def scores(seen: DiagnosticRows) -> list[dict[str, Any]]:
    """Errors of rows, for each target."""
    if not len(seen.get("cell", ())):
        return []
    n = {"number": len(seen["cell"])}
    if "confidence" in seen:
        right, sure = np.mean(seen["predicted"] == seen["truth"]), seen["confidence"].mean()
        return [{**n, "right": f"{right:.1%}", "sure on average": f"{sure:.1%}"}]
    columns = {k: v.reshape(n["number"], -1).T for k, v in seen.items() if k != "cell"}  # (t, h)
    found = []
    for k, truth in enumerate(columns["truth"][:TARGETS]):
        one: dict[str, Any] = {**n, "target": k} if len(columns["truth"]) > 1 else dict(n)
        off, spread = columns["predicted"][k] - truth, float(truth.var())
        one["root mean squared error"] = float(np.sqrt(np.mean(off**2)))
        one["mean absolute error"] = float(np.mean(np.abs(off)))
        varies = spread > (ROUNDING * np.abs(truth).max()) ** 2
        one["R2"] = 1 - float(np.mean(off**2)) / spread if varies else None
        if "lower" in columns:
            low, high = columns["lower"][k], columns["upper"][k]
            one[f"in {COVERAGE:.0%} interval"] = f"{np.mean((low <= truth) & (truth <= high)):.1%}"
            one["its mean width"] = float(np.mean(high - low))
        found.append(one)
    return found


def by_class(seen: DiagnosticRows) -> list[dict[str, Any]]:
    """Of each class how many rows were found, and how often its name was right."""
    if not seen:
        return []
    truth, said, found = seen["truth"], seen["predicted"], []
    for label in np.unique(truth)[:ROWS]:
        hits, called = np.mean(said[truth == label] == label), truth[said == label]
        one = {"class": str(label), "rows": int(np.sum(truth == label)), "found": f"{hits:.1%}"}
        right = f"{np.mean(called == label):.1%}" if len(called) else None
        found.append({**one, "right when named": right})
    return found


def cells(model: Fitted, X: Any, y: Any) -> str:
    """How rows are divided, and how well each part does."""
    found, rows = balance(model), cell_table(model)
    plane = (
        lambda ax: plots.plot_partition(model, X, ax=ax),
        "Rows in the two directions that tell cells apart best, coloured by cell. Colours mix "
        "where cells differ in directions that are not shown.",
    )
    if found.cells == 1:
        return f"<p>One cell holds all {found.rows:,} rows.</p>{pictures([plane])}"
    words = (
        f"<p>{found.cells:,} cells have {found.smallest:,} to {found.largest:,} rows, half of them "
        f"fewer than {found.median:,.0f}. The largest holds {found.largest_share:.1%} of all rows. "
        f"As many as {found.effective:,.1f} cells of equal size would be as uneven.</p>"
    )
    if X is not None:
        words += border_words(model, X)
    sizes = (
        lambda ax: plots.plot_cell_sizes(model, ax=ax),
        "A flat top edge is even; a steep one means that few cells hold most rows and take most "
        "of the time.",
    )
    errors = (
        lambda ax: plots.plot_error_by_cell(model, X if y is not None else None, y, ax=ax),
        "Each dot is a cell. Cells far above the line are hard or have too few rows: if those "
        "are on the left, fewer cells may help.",
    )
    by_rows = sorted(rows, key=lambda cell: -cell["rows"])[:ROWS]
    by_error = sorted(rows, key=lambda cell: -(cell["error"] or 0))[:ROWS]
    listed = folded("Cells with the largest errors", cell_rows(by_error), unfolded=True)
    listed += folded("Cells with the most rows", cell_rows(by_rows))
    kind = " of scores, which are -1 or 1 for the truth," if hasattr(model, "classes_") else ""
    note = f"<p>Errors in the tables are root mean squared errors{kind} of rows left out.</p>"
    return words + pictures([sizes, errors, plane]) + note + listed


def cell_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Some cells, as a table."""
    kept = ({**cell, "share": f"{cell['share']:.2%}", "centres": cell["centers"]} for cell in rows)
    return table([{name: cell[name] for name in CELL_COLUMNS} for cell in kept])


def border_words(model: Fitted, X: Any) -> str:
    """How far neighbouring cells are apart where they meet."""
    jumps = border_jumps(model, X)
    if not jumps.rows:
        return ""
    after = "Blending takes these jumps away" if jumps.blended else "Nothing smooths these jumps"
    return (
        f"<p>At {jumps.rows:,} rows near a border the two nearest cells differ by "
        f"{jumps.median:.2g} standard deviations of the predictions in the median and by "
        f"{jumps.high:.2g} at the 0.9 quantile. {after}.</p>"
    )


def tried(model: Fitted) -> str:
    """Kernels, penalties and metrics, blending and the coarse level."""
    notes = model.chosen_.tried
    drawn = [
        (
            lambda ax, what=what: plots.plot_tuning(model, what, ax=ax),
            f"Lower is better; 1 is the best of its step. A flat valley around the star means that "
            f"the {what} hardly matters, a star at the edge that it may lie beyond.",
        )
        for what in ("penalty", "lengthscale")
        if compared(model, what)
    ]
    kernels = [
        {k: one[k] for k in KERNEL_COLUMNS} | {"kernel": short(one["kernel"])}
        for one in notes
        if "kernel" in one
    ]
    trials = [
        {k: one[k] for k in TRIAL_COLUMNS} | {"blend": short(one["blend"])}
        for one in notes
        if "level" in one
    ]
    if not kernels and not trials:
        return "<p>Nothing: kernel, penalty, blending and coarse level were given.</p>"
    words = (
        "<p>Errors are squared and of held-out rows; those of one step can be compared, those of "
        "two cannot.</p>"
    )
    best = sorted(trials, key=lambda one: one["error"])[:ROWS]
    listed = folded("Kernels, metrics and penalties", table(kernels[-ROWS:]))
    return words + pictures(drawn) + listed + folded("Blending and coarse level", table(best))


def importances(model: Fitted) -> str:
    """Which features move predictions."""
    shares = getattr(model, "feature_importances_", None)
    if shares is None:
        return ""
    caption = "How much predictions change along each feature, in units of its spread. Features "
    caption += "that say the same share what they carry."
    names, order = feature_names(model), np.argsort(-shares, kind="stable")[:ROWS]
    listed = [{"feature": str(names[k]), "share": f"{shares[k]:.1%}"} for k in order]
    drawn = pictures([(lambda ax: plots.plot_importances(model, ax=ax), caption)])
    return drawn + folded("The same as a table", table(listed))


def uncertainty(model: Fitted, X: Any) -> str:
    """What error bars or probabilities rest on."""
    how, notes = model.chosen_.uncertainty, model.chosen_.tried
    words = (
        f"<p>Rows left out chose: {escape(SCALES.get(how, how))} ({escape(how)}).</p>"
        if how
        else ""
    )
    drawn: list[Drawn] = []
    if hasattr(model, "classes_"):
        listed = [{"by": o["by"], "log loss": o["log loss"]} for o in notes if "log loss" in o]
        caption = "When the model says 80 %, it should be right 80 % of the time: points belong on "
        caption += "the line. Below it, the model is too sure of itself."
        drawn = [(lambda ax: plots.plot_predictions(model, ax=ax), caption)]
    else:
        listed = [{"scale": o["scale"], "width": o["width"]} for o in notes if "width" in o]
        words += f"<p>Mean widths of {COVERAGE:.0%} intervals, over those of a constant scale:</p>"
    told = words + pictures(drawn) + table(listed)
    if X is not None:
        new = model._predictor().novelty(model._rows(X), model._cores)
        told += (
            f"<p>Novelty of the rows given: median {np.median(new):.2g}, 0.9 quantile "
            f"{np.quantile(new, 0.9):.2g}; {np.mean(new > 0.5):.1%} are above 0.5. It is 0 at a "
            f"row that the model has seen and 1 where it has seen nothing; what it says of its "
            f"errors holds for rows like those of the fit.</p>"
        )
    return told


def theory_words(model: Fitted, X: Any) -> str:
    """Angles and dimensions, and what they mean."""
    if X is None or len(model.model_.centroids) == 1:  # no angle
        return ""
    found = theory_of(model, X)
    return (
        f"<p>Fitting cells apart loses nothing if they have nothing to do with each other, that is "
        f"if functions of one cell are at right angles to those of another: a cosine of 0. With "
        f"a cosine near 1, as between close cells of a smooth kernel, the bounds of the paper are "
        f"loose, and the errors above count.</p><p>{found.n:,} of the rows given: "
        f"{escape(str(found))}</p>"
    )


def pictures(drawn: Sequence[Drawn]) -> str:
    """Pictures with their captions."""
    return figures((plots.picture(drawing), caption) for drawing, caption in drawn)
