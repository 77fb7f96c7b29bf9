"""Seconds of exact Shapley values, slopes, contributions and neighbours, by number of centres.

    python benchmarks/explanation.py

1,000 rows of 20 features are explained by a model of one cell whose training rows all are centres.
There is one background row, as by default.
"""

import time

import numpy as np

from parkrr import Gaussian, ParKRegressor
from parkrr.inspection import explain, neighbors, shapley_values
from recording import record

ROWS, FEATURES = 1000, 20
CENTERS = (500, 1000, 2000, 5000, 10_000)
CALLS = {"shapley_values": shapley_values, "explain": explain, "neighbors": neighbors}


def measure(n_centers):
    """Seconds of each function, and how far the sum of Shapley values is from the prediction."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_centers + ROWS, FEATURES))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
    known = {"metric": "standard", "n_cells": 1, "blend": 1, "coarse": 0, "precision": "float64"}
    model = ParKRegressor(Gaussian(4.0), 1e-6, **known, extrapolation="free", progress=False)
    model.fit(X[:n_centers], y[:n_centers])
    facts = {"centers": n_centers}
    for name, call in CALLS.items():
        start = time.perf_counter()
        result = call(model, X[n_centers:])
        facts[name] = time.perf_counter() - start
        if name == "shapley_values":
            total = result.base + result.values.sum(1)
            facts["error"] = float(np.abs(total - model.predict(X[n_centers:])).max())
    return facts


def main():
    results = []
    for n_centers in CENTERS:
        results.append(measure(n_centers))
        print(results[-1], flush=True)
    rows = [
        [one["centers"], *(f"{one[name]:.2f}" for name in CALLS), f"{one['error']:.0e}"]
        for one in results
    ]
    header = ["centres", *(f"{name}, s" for name in CALLS), "base + Shapley values - prediction"]
    notes = [f"{ROWS:,} rows of {FEATURES} features; one background row, as by default."]
    record("explanation", results, "Explanations", header, rows, notes)


if __name__ == "__main__":
    main()
