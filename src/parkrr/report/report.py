"""One HTML report of a fitted estimator, which needs no other file and no network.

Facts are collected here; report.html has the text and escapes whatever is put into it.
"""

import base64
from collections.abc import Iterable, Mapping
from datetime import date
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from parkrr.data import atomic_write
from parkrr.inspection import (
    border_jumps,
    cell_table,
    evaluate_rows,
    theory_of,
    tuning_errors,
    worst_rows,
)
from parkrr.plots import (
    draw_png,
    plot_cell_sizes,
    plot_error_by_cell,
    plot_importances,
    plot_interaction,
    plot_partial_dependence,
    plot_partition,
    plot_predictions,
    plot_residuals,
    plot_tuning,
)
from parkrr.report.summary import describe, score, summarize
from parkrr.runtime import shorten_numbers, show_number
from parkrr.uncertainty import COVERAGE, DiagnosticRows

Table = list[dict[str, Any]]
ROWS = 20  # of a table
EXPLAINED = 3  # features whose partial dependence is drawn
TARGETS = 10  # whose errors are listed
CONFUSED = 10  # classes of a confusion matrix
CELL_COLUMNS = ("cell", "rows", "share", "centres", "error", "solver", "iterations", "seconds")
SCORES = {
    "rows": "number",
    "rmse": "root mean squared error",
    "baseline": "baseline",
    "mae": "mean absolute error",
    "r2": "R2",
    f"share_in_{COVERAGE}_interval": f"in {COVERAGE:.0%} interval",
    "mean_width": "its mean width",
    "error": "error rate",
    "confidence": "mean probability",
}
SHARES = ("error", "confidence", f"share_in_{COVERAGE}_interval")


def write_report(model: Any, path: str | Path, X: Any = None, y: Any = None) -> None:
    """Write an HTML report of a fitted estimator, with plots, to a file.

    It shows leave-one-out errors; with rows X (n, d) that the fit has not seen also facts about
    those, and with their targets y the errors there. The file appears complete or not at all.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from parkrr import Gaussian, ParKRegressor
    >>> from parkrr.report import write_report
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=1, blend=1, coarse=0).fit(X, X[:, 0])
    >>> path = Path(tempfile.mkdtemp(), "report.html")
    >>> write_report(model, path)
    >>> path.read_text().startswith("<!doctype html>")
    True
    """
    facts, classifies = summarize(model), hasattr(model, "classes_")
    validation, tried = model.validation_rows_, model.chosen_.tried
    given = {} if y is None else evaluate_rows(model, X, y)
    cells = [
        {**cell, "share": f"{cell['share']:.2%}", "centres": cell["centers"]}
        for cell in cell_table(model)
    ]
    kernels = [
        {**one, "kernel": shorten_numbers(one["kernel"])} for one in tried if "kernel" in one
    ]
    features = sorted(facts["features"], key=lambda one: -(one["importance"] or 0))
    several = facts["cells"] > 1

    images = {
        "predictions": draw_png(plot_predictions, model),
        "partition": draw_png(plot_partition, model, X),
    }
    if not classifies:
        images["residuals"] = draw_png(plot_residuals, model, *((X, y) if given else ()))
    if given and not classifies:
        images["given"] = draw_png(plot_predictions, model, X, y)
    if several:
        images["sizes"] = draw_png(plot_cell_sizes, model)
        images["errors"] = draw_png(plot_error_by_cell, model, *((X, y) if given else ()))
    for name in ("penalty", "lengthscale"):
        if tuning_errors(model, name):
            images[name] = draw_png(plot_tuning, model, name)
    if hasattr(model, "feature_importances_"):
        images["importances"] = draw_png(plot_importances, model)
    explained = [] if X is None else choose_explained(model)
    for k, feature in enumerate(explained):
        images[f"dependence_{k}"] = draw_png(plot_partial_dependence, model, feature, X)
    if len(explained) > 1:
        images["interaction"] = draw_png(plot_interaction, model, (explained[0], explained[1]), X)
    text = render(
        facts=facts,
        classifies=classifies,
        has_rows=X is not None,
        plots={name: base64.b64encode(png).decode() for name, png in images.items()},
        about=describe(facts),
        scores=score_table("leave-one-out", validation) + score_table("given", given),
        classes=class_table(given or validation) if classifies else [],
        confusion=confusion_table(given or validation) if classifies else [],
        written=f"{date.today():%d %B %Y}".lstrip("0"),
        version=version("parkrr"),
        worst=worst_rows(model, X, y, ROWS // 2) if given and not classifies else [],
        jumps=border_jumps(model, X) if several and X is not None else None,
        largest_errors=select(sorted(cells, key=lambda c: -(c["error"] or 0)), CELL_COLUMNS),
        most_rows=select(sorted(cells, key=lambda c: -c["rows"]), CELL_COLUMNS),
        kernels=select(kernels[-ROWS:], ("step", "kernel", "metric", "penalty", "error")),
        levels=select((one for one in tried if "level" in one), ("level", "error")),
        importances=[
            {"feature": one["name"], "share": f"{one['importance']:.1%}"}
            for one in features[:ROWS]
            if one["importance"] is not None
        ],
        losses=select((one for one in tried if "log loss" in one), ("by", "log loss")),
        widths=select(
            (one for one in tried if "width" in one), ("scale", "power", "width", "likelihood")
        ),
        novelty=None if X is None else model._predictor().novelty(model._rows(X), model._cores),
        theory=theory_of(model, X) if several and X is not None else None,
    )
    with atomic_write(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def describe_in_html(model: Any) -> str:
    """Facts about a fitted estimator as a table, for notebooks."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in describe(summarize(model)).items()
    )
    return f"<table>{lines}</table>"


def choose_explained(model: Any) -> list[int]:
    """The most important features whose partial dependence can be drawn."""
    shares = getattr(model, "feature_importances_", np.zeros(model.n_features_in_))
    drawn = [column.holds not in ("text", "ignored") for column in model.columns_.columns]
    order = np.argsort(-shares, kind="stable").tolist()
    return [k for k in order if drawn[k] and shares[k] > 0][:EXPLAINED]


def render(**context: Any) -> str:
    """The template with these facts; every text is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"show": show, "quantile": np.quantile, "mean": np.mean}
    template = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(context)


def select(rows: Iterable[Mapping[str, Any]], names: tuple[str, ...]) -> Table:
    """Some columns of the first rows."""
    return [{name: row[name] for name in names} for row in list(rows)[:ROWS]]


def score_table(name: str, rows: DiagnosticRows) -> Table:
    """Errors of rows, a line for each target."""
    table = []
    several = bool(rows) and rows["truth"].ndim == 2
    count = min(TARGETS, rows["truth"].shape[1]) if several else len(rows) > 0
    for k in range(count):
        line: dict[str, Any] = {"rows": name} | ({"target": k} if several else {})
        part = {key: v[:, k] if v.ndim == 2 else v for key, v in rows.items()}
        for key, value in (score(part) or {}).items():
            is_share = key in SHARES or (key == "baseline" and "confidence" in part)
            line[SCORES[key]] = f"{value:.1%}" if is_share else value
        table.append(line)
    return table


def confusion_table(rows: DiagnosticRows) -> Table:
    """How many rows of each class are predicted to be of each; of up to ten classes."""
    if not rows:
        return []
    labels = np.unique([rows["truth"], rows["predicted"]])
    if len(labels) > CONFUSED:
        return []
    counts = confusion_matrix(rows["truth"], rows["predicted"], labels=labels)
    return [
        {"true class": str(label)} | dict(zip(map(str, labels), line, strict=True))
        for label, line in zip(labels, counts.tolist(), strict=True)
    ]


def class_table(rows: DiagnosticRows) -> Table:
    """Rows, recall and precision of each class."""
    if not rows:
        return []
    truth, predicted = rows["truth"], rows["predicted"]
    labels = np.unique(truth)[:ROWS]
    columns = precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=np.nan)
    table = []
    for label, precision, recall, _, n in zip(labels, *columns, strict=True):
        named = None if np.isnan(precision) else f"{precision:.1%}"
        line = {"class": str(label), "rows": int(n), "recall": f"{recall:.1%}"}
        table.append({**line, "precision": named})
    return table


def show(value: Any) -> str:
    """A value as text."""
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return show_number(value)
    return str(value)
