"""Test errors with `effort="thorough"` beside those with defaults, of peers.py and tables.py.

    python benchmarks/effort.py                     # 12 tasks and 15 tables, some 25 minutes
    python benchmarks/effort.py pol titanic         # some of them

The errors with defaults are those on file, and nothing is timed. Results are kept from run to run.
"""

import json
import sys

import numpy as np

import peers
import tables
from recording import RESULTS, record

LARGE = ["taxi1m", "houseelectric", "airline3m", "airline3m:cls"]  # 5 to 15 minutes each
TASKS = [task for task in peers.TASKS if task not in LARGE]


def error_of_task(task):
    data, classify = peers.load(task)
    model = peers.parkrr(classify, effort="thorough").fit(data.X, data.y)
    return peers.error_of(peers.score_rows(model, data.X_test, classify), data.y_test, classify)


def error_of_table(table):
    """The mean over the seeds of tables.py."""
    errors = []
    for seed in tables.list_seeds(table):
        X, X_test, y, y_test, task = tables.load(table, seed)
        model, X_test = tables.fit_parkrr(X, y, X_test, task, effort="thorough")
        errors.append(tables.measure_error(model, X_test, y_test, np.unique(y), task))
    return float(np.mean(errors))


def main(names):
    kept = RESULTS / "effort.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    defaults = {}
    for name in ("peers", "tables"):
        on_file = json.loads((RESULTS / f"{name}.json").read_text())["results"]
        defaults |= {case: methods["parkrr"]["error"] for case, methods in on_file.items()}
    for name in names:
        error = error_of_task(name) if name in TASKS else error_of_table(name)
        results[name] = {"balanced": defaults[name], "thorough": error}
        print(name, results[name], flush=True)
    known = [name for name in [*TASKS, *tables.TABLES] if name in results]
    rows, ratios = [], []
    for name in known:
        balanced, thorough = results[name]["balanced"], results[name]["thorough"]
        ratios.append(thorough / balanced if balanced > 0.001 else 1.0)  # a few rows decide below
        rows.append([name, f"{balanced:.4f}", f"{thorough:.4f}", f"{ratios[-1]:.3f}"])
    note = f"Geometric mean of the ratios: {np.exp(np.mean(np.log(ratios))):.3f}."
    header = ["data", "balanced", "thorough", "ratio"]
    record("effort", results, "Test errors with more effort", header, rows, [note])


if __name__ == "__main__":
    main(sys.argv[1:] or [*TASKS, *tables.TABLES])
