"""Penalties next to zero: what rounding leaves of 200,000 rows of houseelectric on disk.

    PARKRR_DATA=/path/to/datasets python benchmarks/rounding.py [CASE ...]

Cases that are named are fitted again, the others keep their recorded results.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets import folder
from parkrr import ParKRegressor, scan_parquet
from parkrr.kernels import Gaussian
from recording import RESULTS, record

ROWS, TEST_ROWS = 200_000, 20_000
GIVEN = {"kernel": Gaussian(4.0), "metric": "standard", "blend": 1, "coarse": 0}
CASES = {
    "default": {},
    "Gaussian(4), penalty 1e-8": {**GIVEN, "penalty": 1e-8},
    "Gaussian(4), penalty 5e-14": {**GIVEN, "penalty": 5e-14},
    "Gaussian(4), penalty 1e-20": {**GIVEN, "penalty": 1e-20},
}


def fit_case(settings):
    """Seconds, error and rescues of one fit from Parquet with a checkpoint."""
    table = pq.read_table(folder() / "houseelectric.parquet").drop_columns(["split"])
    order = np.random.default_rng(0).permutation(len(table))
    test = table.take(pa.array(order[-TEST_ROWS:]))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "rows.parquet")
        pq.write_table(table.take(pa.array(order[:ROWS])), path, row_group_size=ROWS // 8)
        start = time.perf_counter()
        model = ParKRegressor(
            checkpoint=Path(place, "job"), random_state=0, progress=False, **settings
        ).fit(scan_parquet(path, target="target"))
        seconds = time.perf_counter() - start
    off = model.predict(test.drop_columns(["target"]).to_pandas()) - test["target"].to_numpy()
    rescues = Counter(cell.rescue.split(", ")[-1] or "none" for cell in model.report_)
    return {
        "kernel": repr(model.chosen_.params["kernel"]),
        "penalty": model.chosen_.params["penalty"],
        "seconds": round(seconds),
        "rmse": round(float(np.sqrt(np.mean(off**2))), 5),
        "cells": len(model.report_),
        "rescues": dict(rescues.most_common()),
    }


def main():
    path = RESULTS / "rounding.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    for name in sys.argv[1:] or CASES:
        results[name] = fit_case(CASES[name])
        print(name, results[name], flush=True)
    rows = []
    for name, case in results.items():
        rescues = ", ".join(f"{count} {rescue}" for rescue, count in case["rescues"].items())
        rows.append((name, f"{case['penalty']:.1e}", case["rmse"], case["seconds"], rescues))
    record(
        "rounding",
        results,
        f"{ROWS:,} rows of houseelectric from Parquet, with a checkpoint, in float32",
        ("settings", "penalty", "test RMSE", "seconds", "cells, by what they needed"),
        rows,
        ["The spread of the target is 0.97. Seconds were taken on a busy machine."],
    )


if __name__ == "__main__":
    main()
