"""Tables of more than 100 columns: seconds, errors, and whether columns that matter are found.

    python benchmarks/wide.py            # five tables, some five minutes on two cores
    python benchmarks/wide.py gas

Two are real, three are generated with columns that are known to matter. Every fit has default
parameters. A fifth of the rows are test rows. The error is the rate of wrong classes, or the RMSE
over the standard deviation of the test target.
"""

import json
import sys
import time

import numpy as np
from sklearn.model_selection import train_test_split

import tables
from recording import RESULTS, record


def make_additive(rng):
    """Five of 200 columns matter, each by itself."""
    X = rng.normal(size=(5000, 200))
    smooth = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - np.abs(X[:, 2]) + X[:, 3] + np.cos(X[:, 4])
    return X, smooth + 0.3 * rng.normal(size=len(X)), 5


def make_interactions(rng):
    """Six of 500 columns matter, in pairs; the others are copies of a few signals with noise."""
    signals = rng.normal(size=(20_000, 20))
    X = signals[:, rng.integers(20, size=500)] + rng.normal(size=(20_000, 500))
    X[:, :6] = rng.normal(size=(20_000, 6))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2] + X[:, 3]) + np.abs(X[:, 4] - X[:, 5])
    return X, y + 0.3 * rng.normal(size=len(X)), 6


def make_sparse(rng):
    """Twenty of 1,000 counts matter, of which nine in ten are zero."""
    X = rng.poisson(0.1, size=(12_000, 1000)).astype(float)
    weights = rng.normal(size=20)
    return X, np.tanh(X[:, :20] @ weights) + 0.1 * rng.normal(size=len(X)), 20


MADE = {"additive": make_additive, "interactions": make_interactions, "sparse": make_sparse}
NAMES = ("cnae9", "gas", *MADE)


def load(name):
    """Training and test rows, the task, and how many of the first columns matter, if known."""
    if name not in MADE:
        return *tables.load(name, 0), None
    X, y, known = MADE[name](np.random.default_rng(0))
    return *train_test_split(X, y, test_size=0.2, random_state=0), "reg", known


def compare(name):
    """Seconds and errors of both methods on one table."""
    X, X_test, y, y_test, task, known = load(name)
    facts = {"rows": len(X), "columns": X.shape[1], "relevant": known}
    for method in ("parkrr", "lightgbm-1000"):
        start = time.perf_counter()
        model, rows = tables.METHODS[method][0](as_frame(X), y, as_frame(X_test), task)
        seconds = time.perf_counter() - start
        if task == "reg":
            error = np.sqrt(np.mean((model.predict(rows) - y_test) ** 2)) / y_test.std()
        else:
            error = np.mean(model.predict(rows) != y_test)
        facts[method] = {"seconds": seconds, "error": float(error)}
        if method == "parkrr" and known:
            facts["importance"] = float(model.feature_importances_[:known].sum())
    return facts


def as_frame(X):
    import pandas as pd

    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(X).add_prefix("x")


def main(names):
    kept = RESULTS / "wide.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for name in names:
        results[name] = compare(name)
        print(name, results[name], flush=True)
    rows = []
    for name, facts in results.items():
        share = f"{facts['importance']:.2f}" if "importance" in facts else "-"
        ours, theirs = facts["parkrr"], facts["lightgbm-1000"]
        errors = [f"{each['error']:.4f} ({each['seconds']:.0f} s)" for each in (ours, theirs)]
        relevant = facts["relevant"] or "-"
        rows.append([name, facts["rows"], facts["columns"], relevant, *errors, share])
    header = ["table", "rows", "columns", "relevant", "parkrr", "lightgbm-1000"]
    header.append("importance of relevant columns")
    record("wide", results, "Tables of more than 100 columns", header, rows)


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
