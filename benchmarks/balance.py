"""Greedy cells with and without balance, beside uniform ones, on taxi1m at Q = 512.

python benchmarks/balance.py [--trials 3]
"""

import argparse
import statistics
import sys

import numpy as np

import real_data
from parkrr import ParKRegressor
from parkrr.kernels import Gaussian
from recording import record

METHODS = {
    "uniform": {"centroids": "uniform", "balance": False},
    "uniform, balanced": {"centroids": "uniform"},
    "greedy": {"balance": False},
    "greedy, 100,000 candidates": {"balance": False, "n_candidates": 100_000},
    "greedy, balanced": {},
    "rpcholesky": {"centroids": "rpcholesky", "balance": False},
    "rpcholesky, balanced": {"centroids": "rpcholesky"},
}


def trial(data, seed, change):
    model = ParKRegressor(
        Gaussian(1.0),
        penalty=2e-7,
        n_cells=512,
        n_centers=40_000,
        blend=1,
        coarse=0,
        random_state=seed,
        **{"centroids": "greedy", **change},
    ).fit(data.X, data.y)
    rows = np.array([cell.rows for cell in model.report_])
    return {
        "mse": float(np.mean((model.predict(data.X_test) - data.y_test) ** 2)),
        "place": model.seconds_["partition"],
        "total": sum(model.seconds_.values()),
        "largest": rows.max() / rows.mean(),
        "smallest": rows.min() / rows.mean(),
        "cells": len(rows),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3)
    n_trials = parser.parse_args().trials
    data = real_data.load("taxi1m")
    trial(data, 0, METHODS["uniform"])  # warm up
    trials = {name: [] for name in METHODS}
    for seed in range(n_trials):  # methods take turns, so that noise hits all alike
        for name, change in METHODS.items():
            trials[name].append(trial(data, seed, change))
    rows, means = [], {}
    for name, runs in trials.items():
        mean = means[name] = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
        sd = statistics.pstdev(run["mse"] for run in runs)
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
        [
            f"Means over {n_trials} trials; largest and smallest are the worst of them.",
            "",
            *(f"- {mark}: {figure}" for mark, figure, _ in marks(trials, means)),
        ],
    )
    sys.exit(not all(reached for _, _, reached in marks(trials, means)))


def marks(trials, means):
    """What balanced greedy cells must reach: the mark, the figure, whether it is reached."""
    ours = means["greedy, balanced"]
    largest = max(run["largest"] for run in trials["greedy, balanced"])
    smallest = min(run["smallest"] for run in trials["greedy, balanced"])
    yield "largest cell at most 4 times the mean", f"{largest:.2f}", largest <= 4
    yield "smallest at least a tenth of it", f"{smallest:.3f}", smallest >= 0.1
    excess = ours["mse"] / means["greedy"]["mse"] - 1
    yield "error at most 1 % above plain greedy", f"{100 * excess:+.1f} %", excess <= 0.01
    more = ours["mse"] / means["greedy, 100,000 candidates"]["mse"] - 1
    yield "for comparison, above plain greedy, 100,000 candidates", f"{100 * more:+.1f} %", True
    time = ours["total"] / means["uniform"]["total"]
    yield "total time at most twice that of uniform", f"{time:.2f}", time <= 2


if __name__ == "__main__":
    main()
