"""Probabilities, intervals, many classes: do they hold, and what do they cost?

    python benchmarks/uncertainty.py                        # everything, some 25 minutes
    python benchmarks/uncertainty.py --tasks protein digits

Estimators have their defaults and see training rows alone; all test rows judge intervals,
those of peers.py judge classes. Each task has a process of its own. Results are kept from run to
run.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import peers
import real_data
import scale
from parkrr import ParKClassifier, ParKRegressor, scan_parquet
from recording import RESULTS, record

INTERVALS = ["kin40k", "protein", "taxi1m", "houseelectric", "airline3m", "satellite"]
CLASSES = ["higgs51k", "airline_nyc13:cls", "airline3m:cls"]
COVERAGES = (0.8, 0.9, 0.95)
CELL_ROWS = 500  # test rows of a cell that counts
BINS = 15
MANY, FEW, MANY_ROWS, MANY_FEATURES = 200, 2, 100_000, 10
DISK_ROWS = 10_000_000


def intervals(task):
    """Coverage, cell by cell too, and width beside an interval of constant width."""
    data = real_data.load(task)  # all test rows, so that cells have enough of them
    model = ParKRegressor(random_state=0)
    start = time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    return {"fit": seconds, **model.seconds_, **judged(model, data.X_test, data.y_test)}


def judged(model, X, y):
    """What its intervals are worth on these rows."""
    found = {"scale": model.chosen_.uncertainty, "widths": widths(model), "cells": model.n_cells_}
    cell = model.apply(X)
    n = np.bincount(cell)
    for coverage in COVERAGES:
        lower, upper = model.predict_interval(X, coverage)
        held = (lower <= y) & (y <= upper)
        large = n >= CELL_ROWS
        each = np.bincount(cell, held)[large] / n[large]
        found[str(coverage)] = {
            "coverage": float(held.mean()),
            "cells": int(large.sum()),
            "cell_gap": float(np.abs(each - coverage).mean()) if large.any() else None,
            "width": float(np.mean(upper - lower)),
            "constant_width": constant_width(model, coverage),
        }
    novelty, error = model.novelty(X), np.abs(y - model.predict(X))
    found["novelty"] = float(novelty.mean())
    order = np.argsort(novelty)
    found["error by novelty"] = [float(part.mean()) for part in np.array_split(error[order], 4)]
    return found


def widths(model):
    tried = [r for r in model.chosen_.tried if r["step"] == "intervals"]
    return {r["scale"]: r["width"] for r in tried}


def constant_width(model, coverage):
    """Of a split conformal interval of the same model: the same half-width everywhere."""
    rows = model.validation_rows_
    residuals = np.abs(rows["truth"] - rows["predicted"])
    rank = int(np.ceil((len(residuals) + 1) * coverage)) - 1
    return float(2 * np.sort(residuals)[rank])


def calibration_error(p, y):
    at = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = np.abs(np.bincount(at, p, BINS) - np.bincount(at, y, BINS))
    return float(gaps.sum() / len(p))


def classes(task):
    """Two classes, beside LightGBM with its defaults."""
    from sklearn.metrics import log_loss, roc_auc_score

    data, _ = peers.load(task)
    y = data.y_test > 0
    found = {}
    for name in ("parkrr", "lightgbm"):
        model = peers.METHODS[name](True)
        start = time.perf_counter()
        model.fit(data.X, data.y)
        fit = time.perf_counter() - start
        p = model.predict_proba(data.X_test)[:, 1]
        found[name] = {
            "fit": fit,
            "1 - AUC": float(1 - roc_auc_score(y, p)),
            "error": float(np.mean((p > 0.5) != y)),
            "log loss": float(log_loss(y, p)),
            "calibration error": calibration_error(p, y),
        }
        if name == "parkrr":
            found["by"] = model.chosen_.uncertainty
            tried = [r for r in model.chosen_.tried if r["step"] == "probabilities"]
            found["tried"] = {r["by"]: r["log loss"] for r in tried}
    return found


def digits(_):
    """scikit-learn's digits, a quarter of them to judge by."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = peers.parkrr(True)
    start = time.perf_counter()
    P = model.fit(X, y).predict_proba(X_test)
    seconds = time.perf_counter() - start
    error = float(np.mean(P.argmax(1) != y_test))
    return {"error": error, "log loss": float(log_loss(y_test, P)), "fit": seconds}


def places(k):
    """Rows around k places, each a class, or two classes of places."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(MANY, MANY_FEATURES))
    at = rng.integers(MANY, size=2 * MANY_ROWS)
    X = centres[at] + 0.5 * rng.normal(size=(2 * MANY_ROWS, MANY_FEATURES))
    return X.astype(np.float32), at % k


def many_classes(_):
    """As many rows with 200 classes and with 2."""
    found = {}
    for k in (FEW, MANY):
        X, y = places(k)
        model = peers.parkrr(True)
        start = time.perf_counter()
        model.fit(X[:MANY_ROWS], y[:MANY_ROWS])
        seconds = time.perf_counter() - start
        right = model.predict(X[MANY_ROWS:]) == y[MANY_ROWS:]
        found[str(k)] = {"fit": seconds, "error": float(1 - right.mean()), **model.seconds_}
    found["ratio"] = found[str(MANY)]["fit"] / found[str(FEW)]["fit"]
    return found


def disk(_):
    """Ten million rows in files: intervals, novelty, and two classes."""
    with tempfile.TemporaryDirectory() as folder:
        files = scale.make(Path(folder), DISK_ROWS)
        model = ParKRegressor(random_state=0, max_memory="4GB")
        start = time.perf_counter()
        model.fit(scan_parquet(files, target="y"))
        fitted = time.perf_counter()
        X, y = scale.rides(scale.TEST_ROWS, [10**9])
        table = scale.pa.table(dict(zip(scale.NAMES, X.T.copy(), strict=True)))
        found = {"fit": fitted - start, **model.seconds_, **judged(model, table, y)}
        labels = classes_on_disk(folder, files)
    return {**found, "classification": labels}


def classes_on_disk(folder, files):
    """The same files with a label: is the ride longer than half of them?"""
    for k, file in enumerate(files):
        table = scale.pq.read_table(file)
        long = scale.pa.array(table["y"].to_numpy() > 2.5)
        labelled = table.drop(["y"]).append_column("long", long)
        scale.pq.write_table(labelled, f"{folder}/labels-{k}.parquet", row_group_size=10**6)
    start = time.perf_counter()
    rows = scan_parquet(f"{folder}/labels-*.parquet", target="long")
    model = ParKClassifier(random_state=0, max_memory="4GB").fit(rows)
    seconds = time.perf_counter() - start
    X, y = scale.rides(scale.TEST_ROWS, [10**9])
    table = scale.pa.table(dict(zip(scale.NAMES, X.T.copy(), strict=True)))
    p = model.predict_proba(table)[:, 1]
    return {"fit": seconds, "calibration error": calibration_error(p, y > 2.5)}


TASKS = {
    **dict.fromkeys(INTERVALS, intervals),
    **dict.fromkeys(CLASSES, classes),
    "digits": digits,
    "200 classes": many_classes,
    "10^7 rows on disk": disk,
}


def watched(task):
    """The task in a process of its own, with the peak of its memory."""
    command = [sys.executable, __file__, "--one", task]
    output, peak = scale.run_watched(command)
    return {**json.loads(output.splitlines()[-1]), "peak_gb": peak / 1e9}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(TASKS[arguments.one](arguments.one)))
        return
    kept = RESULTS / "uncertainty.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for task in arguments.tasks:
        results[task] = watched(task)
        write(results)


def write(results):
    """A table of intervals; the rest in lines below."""
    rows = []
    for task in (*INTERVALS, "10^7 rows on disk"):
        r = results.get(task)
        for coverage in map(str, COVERAGES) if r else ():
            at = r[coverage]
            gap = "-" if at["cell_gap"] is None else f"{at['cell_gap']:.3f} of {at['cells']}"
            ratio = at["width"] / at["constant_width"]
            rows.append([task, coverage, f"{at['coverage']:.3f}", gap, f"{ratio:.3f}", r["scale"]])
    header = ["task", "target", "coverage", "mean gap in cells", "width / constant", "scale"]
    title = "Coverage of intervals, and calibration"
    record("uncertainty", results, title, header, rows, lines(results))


def lines(results):
    """What is not a row of the table."""
    found = [
        "Cells count if they have 500 test rows or more. Width is the mean, over that of split"
    ]
    found += ["conformal intervals of constant width with the same model.", ""]
    found += ["| classes | | 1 - AUC | error | log-loss | calibration error, 15 bins | fit s |"]
    found += ["|---|---|---|---|---|---|---|"]
    for task in CLASSES:
        for name in ("parkrr", "lightgbm") if task in results else ():
            r = results[task][name]
            how = f"parkrr, {results[task]['by']}" if name == "parkrr" else name
            numbers = [f"{r[k]:.4f}" for k in ("1 - AUC", "error", "log loss", "calibration error")]
            found.append(f"| {task} | {how} | {' | '.join(numbers)} | {r['fit']:.0f} |")
    found.append("")
    for task in ("satellite", *INTERVALS[:-1]):
        if task in results:
            parts = ", ".join(f"{e:.3f}" for e in results[task]["error by novelty"])
            found.append(
                f"{task}: mean novelty of test rows {results[task]['novelty']:.4f}; mean absolute "
                f"error by quarters of it: {parts}."
            )
    return [*found, *other_lines(results)]


def other_lines(results):
    found = []
    if "digits" in results:
        r = results["digits"]
        found.append(f"digits: error {r['error']:.4f}, log-loss {r['log loss']:.4f}.")
    if "200 classes" in results:
        r = results["200 classes"]
        two, many = r[str(FEW)], r[str(MANY)]
        found.append(
            f"100,000 rows: 2 classes {two['fit']:.1f} s, 200 classes {many['fit']:.1f} s, "
            f"ratio {r['ratio']:.2f}; errors {two['error']:.3f} and {many['error']:.3f}."
        )
    if "10^7 rows on disk" in results:
        r = results["10^7 rows on disk"]
        found.append(
            f"10^7 rows in files: fit {r['fit']:.0f} s, {r['uncertainty']:.1f} s of it intervals, "
            f"peak {r['peak_gb']:.2f} GB of 4 (both fits); labels: calibration error "
            f"{r['classification']['calibration error']:.4f}."
        )
    return found


if __name__ == "__main__":
    main()
