"""Predictions of default models beside LightGBM in the same run: batches, and single rows.

    python benchmarks/prediction_peers.py                  # three tasks, some two minutes
    python benchmarks/prediction_peers.py protein pol

Every model predicts the same rows in turn, in rounds, so that a slow moment of the machine is one
of all of them. Figures are medians over rounds.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import sys
import time

import lightgbm
import numpy as np

from parkrr import ParKRegressor
from peers import load
from recording import record

TASKS = ["pol", "protein", "airline_nyc13"]
BATCH, SINGLES, ROUNDS = 100_000, 200, 7


def fit_models(X, y):
    trees = {"learning_rate": 0.05, "random_state": 0, "verbose": -1}
    return {
        "parkrr": ParKRegressor(random_state=0, progress=False).fit(X, y),
        "LightGBM": lightgbm.LGBMRegressor(random_state=0, verbose=-1).fit(X, y),
        "LightGBM, 1,000 trees": lightgbm.LGBMRegressor(n_estimators=1000, **trees).fit(X, y),
    }


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(models, rows):
    """Microseconds a row in batches, and of single rows, of every model: medians of rounds."""
    batch = np.resize(rows, (BATCH, rows.shape[1]))
    singles = [row[None] for row in rows[:SINGLES]]
    taken = {name: ([], []) for name in models}
    for _ in range(ROUNDS + 1):
        for name, model in models.items():
            in_batch, alone = taken[name]
            in_batch.append(1e6 * seconds(lambda model=model: model.predict(batch)) / BATCH)
            each = [seconds(lambda model=model, row=row: model.predict(row)) for row in singles]
            alone.append(1e6 * np.median(each))
    # The first round prepares what later ones use.
    return {name: [float(np.median(part[1:])) for part in parts] for name, parts in taken.items()}


def main(tasks):
    results, rows = {}, []
    for task in tasks:
        data, _ = load(task)
        models = fit_models(data.X, data.y)
        results[task] = measured = measure(models, data.X_test)
        cells = models["parkrr"].n_cells_
        own_batch, own_alone = measured["parkrr"]
        for name, (in_batch, alone) in measured.items():
            label = f"parkrr, {cells} cells" if name == "parkrr" else name
            speed, over = f"{1 / in_batch:.2f}", f"{in_batch / own_batch:.2f}"
            rows.append([task, label, speed, over, f"{alone:.0f}", f"{alone / own_alone:.2f}"])
            print(*rows[-1], flush=True)
    record(
        "prediction_peers",
        results,
        "Predictions of default models beside LightGBM",
        ["task", "model", "million rows a second", "time over parkrr", "a row, us", "over parkrr"],
        rows,
        [f"Batches of {BATCH:,} rows; medians of {ROUNDS} rounds in which models take turns."],
    )


if __name__ == "__main__":
    main(sys.argv[1:] or TASKS)
