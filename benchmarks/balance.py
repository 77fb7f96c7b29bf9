"""Greedy cells with and without balance, beside uniform ones, on taxi1m at Q = 512.

python benchmarks/balance.py [--trials 3]
"""

import argparse
import statistics

import numpy as np

import datasets
from parkrr import ParKRegressor
from parkrr.kernels import Gaussian
from recording import record

METHODS = {
    "uniform": {"centroids": "uniform", "balance": False},
    "uniform, balanced": {"centroids": "uniform"},
    "greedy, 10,000 candidates": {"balance": False},
    "greedy, 100,000 candidates": {"balance": False, "n_candidates": 100_000},
    "greedy, balanced": {},
    "rpcholesky": {"centroids": "rpcholesky", "balance": False},
    "rpcholesky, balanced": {"centroids": "rpcholesky"},
}


def trial(data, seed, change):
    model = ParKRegressor(
        Gaussian(1.0), penalty=2e-7, n_cells=512, n_centers=40_000, random_state=seed, **change
    ).fit(data.X, data.y)
    rows = np.array([cell.rows for cell in model.report_])
    return {
        "mse": float(np.mean((model.predict(data.X_test) - data.y_test) ** 2)),
        "place": model.seconds_["place"],
        "total": sum(model.seconds_.values()),
        "largest": rows.max() / rows.mean(),
        "smallest": rows.min() / rows.mean(),
        "cells": len(rows),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    n_trials = parser.parse_args().trials
    data = datasets.load("taxi1m")
    trial(data, 0, METHODS["uniform"])  # warm up
    trials = {name: [] for name in METHODS}
    for seed in range(n_trials):  # methods take turns, so that noise hits all alike
        for name, change in METHODS.items():
            trials[name].append(trial(data, seed, change))
    rows = []
    for name, runs in trials.items():
        mean = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
        sd = statistics.stdev(run["mse"] for run in runs)
        rows.append(
            [
                name,
                f"{mean['mse']:.4f} ± {sd:.4f}",
                f"{mean['place']:.2f}",
                f"{mean['total']:.2f}",
                f"{max(run['largest'] for run in runs):.1f}",
                f"{min(run['smallest'] for run in runs):.3f}",
                f"{mean['cells']:.0f}",
            ]
        )
    record(
        "balance",
        trials,
        "Balance: taxi1m, Q = 512, 40,000 centres",
        ["centroids", "test MSE", "place s", "total s", "largest / mean", "smallest / mean", "Q"],
        rows,
        [f"Means over {n_trials} trials; largest and smallest are the worst of them."],
    )


if __name__ == "__main__":
    main()
