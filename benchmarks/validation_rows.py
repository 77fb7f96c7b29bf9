"""Validation rows as the model will be used: blocks of a map, the future, or rows at random.

    python benchmarks/validation_rows.py [satellite taxi1m airline3m]

The test rows of the satellite map are regions without data, under clouds. Blocks of 1/30 of the
map are left out: in them the median distance to the next pixel that is left, 0.028, is about that
of the holes which the training rows themselves show, 0.031. Rides and flights are in the order of
time: tests are rows drawn at random, or the last fifth.
"""

import sys
import time

import numpy as np
import pyarrow.parquet as pq

import real_data
from parkrr import ParKRegressor
from recording import record

N_BLOCKS = 30  # of each side of the map
TRAINING_ROWS, TEST_ROWS = 60_000, 40_000  # of rides and flights


def measure(X, y, X_test, y_test, **given):
    """A default fit: its own error, that of test rows, and coverage, errors over the spread."""
    start = time.perf_counter()
    model = ParKRegressor(random_state=0, progress=False).fit(X, y, **given)
    seconds = time.perf_counter() - start
    own, spread = model.validation_rows_, y.std()
    lower, upper = model.predict_interval(X_test)
    error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)) / spread
    return {
        "reported": float(np.sqrt(np.mean((own["truth"] - own["predicted"]) ** 2)) / spread),
        "error": float(error),
        "coverage": float(np.mean((lower <= y_test) & (y_test <= upper))),
        "width": float(np.mean(upper - lower) / spread),
        "kernel": repr(model.chosen_.params["kernel"]),
        "penalty": model.chosen_.params["penalty"],
        "seconds": seconds,
    }


def measure_map():
    """The satellite map with validation rows at random and in blocks."""
    data = real_data.load("satellite")
    low, high = data.X.min(0), data.X.max(0)
    block = np.minimum((data.X - low) / (high - low) * N_BLOCKS, N_BLOCKS - 1).astype(int)
    groups = block[:, 0] * N_BLOCKS + block[:, 1]
    return {
        "test in holes, validation in blocks": measure(*data, groups=groups),
        "test in holes, validation at random": measure(*data),
    }


def measure_time(name):
    """Rides or flights: the future as test rows, and as validation rows."""
    table = pq.read_table(real_data.folder() / f"{name}.parquet").to_pandas()
    X = table.drop(columns=[c for c in table if c.startswith(("target", "split"))]).to_numpy(float)
    y = table["target"].to_numpy(float)
    order = np.random.default_rng(0).permutation(len(y))
    mixed = (order[:TRAINING_ROWS], order[-TEST_ROWS:])
    edge = int(0.8 * len(y))
    past, future = order[order < edge][:TRAINING_ROWS], order[order >= edge][:TEST_ROWS]

    def rows(train, test):
        return X[train], y[train], X[test], y[test]

    return {
        "test at random, validation at random": measure(*rows(*mixed)),
        "test in the future, validation at random": measure(*rows(past, future)),
        "test in the future, validation the last fifth": measure(*rows(past, future), time=past),
    }


def main(names):
    results = {name: measure_map() if name == "satellite" else measure_time(name) for name in names}
    rows = [
        [name, case, *(f"{r[key]:.3f}" for key in ("reported", "error", "coverage", "width"))]
        for name, cases in results.items()
        for case, r in cases.items()
    ]
    header = ["data", "rows", "error reported", "error", "0.9 intervals cover", "width"]
    record("validation_rows", results, "Validation rows as the model will be used", header, rows)


if __name__ == "__main__":
    main(sys.argv[1:] or ["satellite", "taxi1m", "airline3m"])
