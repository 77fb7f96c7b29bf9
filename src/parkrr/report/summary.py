"""A fitted model as plain facts: what was chosen, how well it does, what it listens to.

Knows models, not how anything is shown.
"""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from parkrr.data import Category, ColumnEncoder, DateTime
from parkrr.kernels import FeatureMap
from parkrr.persistence import encode_kernel

Estimator = Any  # either estimator, fitted
Facts = dict[str, Any]


def summary(model: Estimator) -> Facts:
    """What there is to say of a model, as plain data."""
    chosen, coarse = model.chosen_.params, model.model_.coarse
    rows = [cell.rows for cell in model.report_]
    classes = getattr(model, "classes_", None)
    return {
        "estimator": type(model).__name__,
        "rows": sum(rows),
        "cells": len(rows),
        "rows_of_cells": {"least": min(rows), "median": int(np.median(rows)), "most": max(rows)},
        "centers": sum(cell.centers for cell in model.report_),
        "kernel": encode_kernel(model.model_.kernel),
        "penalty": chosen["penalty"],
        "metric": metric_words(model.model_.metric),
        "nearest_cells": model.model_.blend.n_nearest,
        "coarse_centers": 0 if coarse is None else len(coarse.centers),
        "precision": chosen["precision"],
        "uncertainty": model.chosen_.uncertainty,
        "classes": None if classes is None else classes.tolist(),
        "held_out": held_out(model),
        "unconverged_cells": sum(not cell.converged for cell in model.report_),
        "rescued_cells": sum(bool(cell.rescue) for cell in model.report_),
        "seconds": seconds(model.seconds_),
        "features": features(model),
    }


def seconds(steps: dict[str, float]) -> dict[str, float]:
    """What each step took; of rows on disk placing them is the pass, which has its own name."""
    return {name: s for name, s in steps.items() if name != "partition" or "pass" not in steps}


def metric_words(metric: FeatureMap) -> str:
    """In what units distances are measured."""
    ranks = "" if metric.knots is None else " and ranks"
    if metric.matrix is not None:
        what = "weights of features" if metric.matrix.ndim == 1 else "matrix of features"
        return f"learned {what}{ranks}"
    return "euclidean" if metric.scale is None else f"standard features{ranks}"


def held_out(model: Estimator) -> dict[str, float] | None:
    """How far off predictions of rows were that had been left out."""
    known = model.validation_rows_
    if not known:
        return None
    truth, predicted = known["truth"], known["predicted"]
    if hasattr(model, "classes_"):
        told = {"error": np.mean(truth != predicted), "confidence": known["confidence"].mean()}
    else:
        squares = np.mean((truth - predicted) ** 2)
        told = {"rmse": math.sqrt(squares), "r2": explained(truth, predicted)}
        if "lower" in known:
            held = (known["lower"] <= truth) & (truth <= known["upper"])
            told["share_in_0.9_interval"] = held.mean()
    return {"rows": len(truth), **{name: float(value) for name, value in told.items()}}


def explained(truth: Any, predicted: Any) -> float:
    """The share of the variance of targets that predictions explain, mean over targets."""
    left = np.mean((truth - predicted) ** 2, axis=0)
    spread = np.maximum(np.var(truth, axis=0), np.finfo(np.float64).tiny)
    return float(np.mean(1 - left / spread))


def features(model: Estimator) -> list[Facts]:
    """The columns a model was fitted to, each with its kind and importance if it is known."""
    names = getattr(model, "feature_names_in_", None)
    names = [f"x{k}" for k in range(model.n_features_in_)] if names is None else names.tolist()
    columns = [None] * len(names) if model.columns_ is None else model.columns_.columns
    shares = getattr(model, "feature_importances_", np.full(len(names), np.nan)).tolist()
    return [
        {"name": name, "kind": kind_of(column), "importance": None if math.isnan(w) else w}
        for name, column, w in zip(names, columns, shares, strict=True)
    ]


def kind_of(column: ColumnEncoder | None) -> str:
    """What a column holds, in words."""
    if isinstance(column, Category):
        return f"{len(column.values):,} words"
    if isinstance(column, DateTime):
        return "date or time" if column.elapsed else "time of day"
    return "number, with gaps" if column is not None and column.flagged else "number"


def cells(model: Estimator) -> list[Facts]:
    """The report of every cell."""
    return [asdict(cell) for cell in model.report_]
