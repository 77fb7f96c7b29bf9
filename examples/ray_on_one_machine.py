"""A cluster on one machine.

The same fit on threads and on Ray gives the same predictions.

Without a cluster to connect to, engine="ray" starts Ray on this machine. On a cluster you set the
address, and the checkpoint must be a folder or URL that all machines can reach.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parkrr import Matern, ParKRegressor, plots, scan_parquet

# Ray reads these when it is imported: no warning about missing GPUs, and no task is stopped
# because other programs use the memory of this machine.
os.environ.update(RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_memory_monitor_refresh_ms="0")
import ray

with tempfile.TemporaryDirectory() as folder:
    rng = np.random.default_rng(0)
    for month in range(4):
        X = rng.uniform(-1, 1, (6_000, 4))
        y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=len(X))
        columns = dict(zip("abcd", X.T, strict=True))
        pq.write_table(pa.table({**columns, "y": y}), f"{folder}/month-{month}.parquet")
    rows = scan_parquet(f"{folder}/month-*.parquet", target="y")
    settings = {
        "kernel": Matern(2.0),
        "penalty": 1e-6,
        "n_cells": 16,
        "n_centers": 1600,
        "blend": 1,
        "coarse": 0,
        "random_state": 0,
    }
    here = ParKRegressor(**settings, checkpoint=Path(folder, "threads")).fit(rows)
    print(f"threads: {here.seconds_['pass']:.2f} s for the pass over {rows.n_rows:,} rows")

    there = ParKRegressor(**settings, checkpoint=Path(folder, "ray"), engine="ray").fit(rows)
    print(f"Ray with {ray.cluster_resources()['CPU']:.0f} workers: {there.seconds_['pass']:.2f} s")
    ray.shutdown()

    last = pq.read_table(f"{folder}/month-3.parquet")
    same = np.array_equal(here.predict(last), there.predict(last))
    print(f"identical predictions: {same}")
    results = sorted(path.name for path in Path(folder, "ray").iterdir())
    print(f"{len(results)} files in the checkpoint: {', '.join(results[:4])}, ...")

plots.plot_cell_sizes(there)
plt.show()
