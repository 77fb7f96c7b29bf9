"""Units and orders that must not matter: test error after scaling and permuting real data.

    python benchmarks/invariance.py --tasks kin40k elevators

Every other feature is multiplied by 10^6, the others by 10^-6; the target by 10^6; columns and
rows are permuted; each alone, with defaults. Errors are over that of the data as they are.
Results are kept from run to run, so that tasks can be added one by one.
"""

import argparse
import json

import numpy as np

import real_data
from parkrr import ParKRegressor
from recording import RESULTS, record


def error(X, y, X_test, y_test):
    model = ParKRegressor(random_state=0).fit(X, y)
    return float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))


def changes(data):
    """Each change by name: training rows and targets, test rows and targets, unit of the error."""
    X, y, X_test, y_test = (np.asarray(a, np.float64) for a in data[:4])
    units = np.where(np.arange(X.shape[1]) % 2 == 0, 1e6, 1e-6)
    columns = np.random.default_rng(0).permutation(X.shape[1])
    rows = np.random.default_rng(0).permutation(len(X))
    yield "as they are", (X, y, X_test, y_test), 1.0
    yield "features scaled", (X * units, y, X_test * units, y_test), 1.0
    yield "target scaled", (X, y * 1e6, X_test, y_test * 1e6), 1e6
    yield "columns permuted", (X[:, columns], y, X_test[:, columns], y_test), 1.0
    yield "rows permuted", (X[rows], y[rows], X_test, y_test), 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["kin40k", "elevators"])
    kept = RESULTS / "invariance.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for task in parser.parse_args().tasks:
        tables = changes(real_data.load(task))
        results[task] = {name: error(*table) / unit for name, table, unit in tables}
    rows = [
        [task, name, f"{value:.4f}", f"{value / found['as they are']:.3f}"]
        for task, found in results.items()
        for name, value in found.items()
    ]
    title = "Test RMSE with defaults after changes that must not matter"
    record("invariance", results, title, ["task", "change", "error", "over the first"], rows, [])


if __name__ == "__main__":
    main()
