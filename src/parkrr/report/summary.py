"""A fitted estimator as plain facts; the terminal and the HTML report show the same."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from parkrr.data import Category, ColumnEncoder, DateTime, FreeText, Number
from parkrr.errors import ModelFileError
from parkrr.inspection import balance, feature_names
from parkrr.kernels import Kernel
from parkrr.park import CellReport
from parkrr.persistence import encode_kernel
from parkrr.runtime import describe_count, show_number
from parkrr.uncertainty import COVERAGE, DiagnosticRows

Facts = dict[str, Any]
UNEVEN, LARGE_ERROR = 4.0, 3.0  # times the mean rows, or the median error, of a cell
ROUNDING = 1e-12  # relative: what varies less than this is a constant


def summarize(model: Any) -> Facts:
    """All facts about a fitted estimator that need no rows, as data that JSON can hold."""
    chosen, coarse, sizes = model.chosen_.params, model.model_.coarse, balance(model)
    classes, seconds = getattr(model, "classes_", None), dict(model.seconds_)
    if "pass" in seconds:  # the pass over rows on disk includes their assignment
        seconds.pop("partition", None)
    columns = model.columns_.columns
    shares = getattr(model, "feature_importances_", np.full(len(columns), np.nan)).tolist()
    return {
        "estimator": type(model).__name__,
        "targets": model.target_names_,
        "rows": sizes.rows,
        "cells": sizes.cells,
        "rows_of_cells": {
            **{"least": sizes.smallest, "median": int(sizes.median), "most": sizes.largest},
            **{"largest_share": sizes.largest_share, "effective_cells": sizes.effective},
        },
        "centers": sum(cell.centers for cell in model.report_),
        "kernel": kernel_facts(model.model_.kernel),
        "penalty": chosen["penalty"],
        "metric": model.model_.metric.describe(),
        "nearest_cells": model.model_.blend.n_nearest,
        "coarse_centers": 0 if coarse is None else len(coarse.centers),
        "precision": chosen["precision"],
        "uncertainty": model.chosen_.uncertainty,
        "guarantee": getattr(model, "guarantee", "none"),
        "classes": None if classes is None else classes.tolist(),
        "validation": score(model.validation_rows_),
        "unconverged_cells": sum(not cell.converged for cell in model.report_),
        "fallback_cells": sum(bool(cell.fallback) for cell in model.report_),
        "warnings": find_warnings(model.report_),
        "seconds": seconds,
        "columns": model.columns_.describe(),
        "features": [
            {
                "name": name,
                "kind": describe_column(column),
                "importance": None if np.isnan(w) else w,
            }
            for name, column, w in zip(feature_names(model), columns, shares, strict=True)
        ],
    }


def kernel_facts(kernel: Kernel) -> Facts:
    """A kernel as in a model file; one of your own, which no file holds, by its text."""
    try:
        return encode_kernel(kernel)
    except ModelFileError:
        return {"name": repr(kernel)}


def describe_kernel(kernel: Facts) -> str:
    """The facts of a kernel as text, such as "1 (gaussian, lengthscale 2) + 0.5 (linear)"."""
    parts = [f"({describe_kernel(part)})" for part in kernel.get("kernels", ())]
    if "factors" in kernel:
        terms = zip(kernel["factors"], parts, strict=True)
        return " + ".join(f"{factor:.4g} {part}" for factor, part in terms)
    if parts:
        return " * ".join(parts)
    texts = [kernel["name"]]
    for name, value in kernel.items():
        if name != "name":
            values = value if isinstance(value, list | tuple) else [value]
            texts.append(f"{name} {' '.join(f'{one:.4g}' for one in values)}")
    return ", ".join(texts)


def score(rows: DiagnosticRows) -> dict[str, float | None] | None:
    """Errors of rows, over all targets; None without rows, and r2 of a constant target.

    The baseline is the error of the mean of the targets, or of their most frequent class.
    """
    if not rows or not len(rows["cell"]):  # all of them were forgotten
        return None
    truth, predicted, n = rows["truth"], rows["predicted"], len(rows["cell"])
    if "confidence" in rows:
        wrong, confidence = np.mean(truth != predicted), np.mean(rows["confidence"])
        other = 1 - np.unique(truth, return_counts=True)[1].max() / n
        shares = {"error": wrong, "baseline": other, "confidence": confidence}
        return {"rows": n, **{name: float(value) for name, value in shares.items()}}
    varies = np.var(truth, axis=0) > (ROUNDING * np.abs(truth).max(axis=0)) ** 2
    scores: dict[str, float | None] = {
        "rows": n,
        "rmse": float(np.sqrt(np.mean((truth - predicted) ** 2))),
        "baseline": float(np.sqrt(np.mean((truth - truth.mean(axis=0)) ** 2))),
        "mae": float(np.mean(np.abs(truth - predicted))),
        "r2": float(r2_score(truth, predicted)) if np.all(varies) else None,
    }
    if "lower" in rows:
        inside = (rows["lower"] <= truth) & (truth <= rows["upper"])
        scores[f"share_in_{COVERAGE}_interval"] = float(inside.mean())
        scores["mean_width"] = float(np.mean(rows["upper"] - rows["lower"]))
    return scores


def find_warnings(report: list[CellReport]) -> list[str]:
    """What you should know before you rely on the model."""
    warnings, cells = [], describe_count(len(report), "cell")
    stuck = [cell.residual for cell in report if not cell.converged]
    if stuck:
        warnings.append(
            f"{len(stuck)} of {cells} stopped before they converged (worst residual "
            f"{max(stuck):.1e}). Raise max_iter, or the penalty."
        )
    named = [f"{cell.cell} ({cell.fallback})" for cell in report if cell.fallback]
    if named:
        warnings.append(
            f"A numerical fallback was needed in {len(named)} of {cells}, as with equal "
            f"rows or a penalty near zero: cells {', '.join(named[:5])}."
        )
    rows = np.array([cell.rows for cell in report])
    if rows.max() > UNEVEN * rows.mean():
        ratio = rows.max() / rows.mean()
        warnings.append(f"The largest cell has {ratio:.1f} times the mean rows; see balance.")
    errors = {cell.cell: cell.error for cell in report if cell.error is not None}
    median = max(float(np.median([*errors.values()] or [0.0])), ROUNDING)
    if errors and max(errors.values()) > LARGE_ERROR * median:
        worst = max(errors, key=lambda q: errors[q])
        warnings.append(f"The error of cell {worst} is over {LARGE_ERROR:.0f} times the median.")
    return warnings


def describe_column(column: ColumnEncoder) -> str:
    """What a column holds."""
    if isinstance(column, Category):
        return f"{len(column.values):,} categories"
    if isinstance(column, FreeText):
        return f"text, {len(column.tokens)} tokens"
    if isinstance(column, DateTime):
        return "date or time" if column.elapsed else "time of day"
    if not isinstance(column, Number):
        return column.holds
    more = ", some missing" * column.flagged + ", means at single values" * bool(column.means)
    return column.holds + more


def describe(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts of :func:`summarize` as short texts, each with its name."""
    sizes, scores = facts["rows_of_cells"], facts["validation"]
    near, coarse = facts["nearest_cells"], facts["coarse_centers"]
    cells, predictions = f"{facts['cells']:,}", "one cell"
    if facts["cells"] > 1:
        cells += f", of {sizes['least']:,} to {sizes['most']:,} rows"
        predictions = "the nearest cell" if near == 1 else f"up to {near} nearest cells, blended"
    if coarse:
        predictions += f", over a coarse level of {coarse:,} centres"
    error = ""
    if scores:
        rows = describe_count(scores["rows"], "row")
        if "error" in scores:
            error = f"{scores['error']:.1%} of {rows} get the wrong label"
        else:
            r2 = "" if scores["r2"] is None else f", R2 {show_number(scores['r2'])}"
            error = f"root mean squared error {show_number(scores['rmse'])}{r2}, {rows}"
            share = scores.get(f"share_in_{COVERAGE}_interval")
            error += "" if share is None else f"; {COVERAGE} intervals cover {share:.3f}"
    total = f"{sum(facts['seconds'].values()):.1f}"
    steps = ", ".join(f"{name} {s:.1f}" for name, s in facts["seconds"].items() if s >= 0.1)
    texts = {
        "rows": f"{facts['rows']:,}",
        "cells": cells,
        "centres": f"{facts['centers']:,}",
        "kernel": describe_kernel(facts["kernel"]),
        "penalty": f"{facts['penalty']:.4g}",
        "metric": facts["metric"],
        "predictions": f"from {predictions}",
        "precision": facts["precision"],
        "leave-one-out": error,
        "seconds": f"{total} ({steps})" if steps else total,
    }
    return {name: text for name, text in texts.items() if text}
