"""What model files lose and save with centres in float32 and float16, on real data.

    python benchmarks/narrowing.py

Kernel and penalty are given, so that this takes a minute; with smaller penalties weights are
larger, and more is lost.
"""

import tempfile
from pathlib import Path

import numpy as np

import real_data
from parkrr import ParKRegressor, load
from parkrr.kernels import Gaussian
from recording import record

TASKS = {"kin40k": Gaussian(2.0), "protein": Gaussian(1.0), "taxi1m": Gaussian(1.0)}
PENALTIES = [1e-3, 1e-6]
ROWS = 10_000


def measured(model, path, X_test, y_test, centers):
    """Size, loss as `save` says it, change of test predictions and test error."""
    loss = model.save(path, centers=centers)
    before, after = model.predict(X_test), load(path).predict(X_test)
    return {
        "megabytes": path.stat().st_size / 1e6,
        "loss": loss or 0.0,
        "change": float(np.sqrt(np.mean((after - before) ** 2)) / before.std()),
        "error": float(np.sqrt(np.mean((after - y_test) ** 2)) / y_test.std()),
    }


def main():
    results = []
    for task, kernel in TASKS.items():
        X, y, X_test, y_test = (np.asarray(a, np.float64)[:ROWS] for a in real_data.load(task)[:4])
        for penalty in PENALTIES:
            settings = {"kernel": kernel, "penalty": penalty, "metric": "standard"}
            model = ParKRegressor(**settings, blend=1, coarse=0, random_state=0).fit(X, y)
            for centers in (None, "float32", "float16"):
                with tempfile.TemporaryDirectory() as folder:
                    found = measured(model, Path(folder, "m.park"), X_test, y_test, centers)
                results.append({"task": task, "penalty": penalty, "centers": centers, **found})
    header = ["task", "penalty", "centers", "MB", "loss", "change of test rows", "test error"]
    rows = [
        [
            *(r["task"], f"{r['penalty']:.0e}", r["centers"] or "as they are"),
            *(f"{r['megabytes']:.2f}", f"{r['loss']:.1e}", f"{r['change']:.1e}"),
            f"{r['error']:.4f}",
        ]
        for r in results
    ]
    notes = [
        f"{ROWS:,} rows, all of them centres. Loss is what `save` returns: root mean squared "
        "change at 2,000 centres over the spread of predictions; the error is over the spread of "
        "targets."
    ]
    record("narrowing", results, "Model files with narrower centres", header, rows, notes)


if __name__ == "__main__":
    main()
