"""Penalties next to zero: what rounding leaves of rows of houseelectric on disk.

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

from parkrr import ParKRegressor, scan_parquet
from parkrr.kernels import Gaussian
from real_data import folder
from recording import RESULTS, record

TEST_ROWS = 20_000
NOTES = ("The spread of the target is 0.97. Seconds were taken beside other work on the machine.",)
GIVEN = {"metric": "standard", "blend": 1, "coarse": 0}
CASES = {  # rows, and settings
    "default": (200_000, {}),
    "Gaussian(4), penalty 1e-8": (200_000, {**GIVEN, "kernel": Gaussian(4.0), "penalty": 1e-8}),
    "Gaussian(30), penalty 5e-14": (20_000, {**GIVEN, "kernel": Gaussian(30.0), "penalty": 5e-14}),
}


def fit_case(n, settings):
    """Seconds, error and fallbacks of one fit from Parquet with a checkpoint."""
    table = pq.read_table(folder() / "houseelectric.parquet").drop_columns(["split"])
    order = np.random.default_rng(0).permutation(len(table))
    test = table.take(pa.array(order[-TEST_ROWS:]))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "rows.parquet")
        pq.write_table(table.take(pa.array(order[:n])), path, row_group_size=n // 8)
        start = time.perf_counter()
        model = ParKRegressor(
            checkpoint=Path(place, "job"), random_state=0, progress=False, **settings
        ).fit(scan_parquet(path, target="target"))
        seconds = time.perf_counter() - start
    off = model.predict(test.drop_columns(["target"]).to_pandas()) - test["target"].to_numpy()
    fallbacks = Counter(cell.fallback.split(", ")[-1] or "none" for cell in model.report_)
    return {
        "rows": n,
        "kernel": repr(model.chosen_.params["kernel"]),
        "penalty": model.chosen_.params["penalty"],
        "seconds": round(seconds),
        "rmse": round(float(np.sqrt(np.mean(off**2))), 5),
        "cells": len(model.report_),
        "fallbacks": dict(fallbacks.most_common()),
    }


def main():
    path = RESULTS / "rounding.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    for name in sys.argv[1:] or CASES:
        results[name] = fit_case(*CASES[name])
        print(name, results[name], flush=True)
    rows = []
    for name, case in results.items():
        fallbacks = ", ".join(
            f"{count} {fallback}" for fallback, count in case["fallbacks"].items()
        )
        penalty = f"{case['penalty']:.1e}"
        rows.append((name, f"{case['rows']:,}", penalty, case["rmse"], case["seconds"], fallbacks))
    record(
        "rounding",
        results,
        "Rows of houseelectric from Parquet, with a checkpoint, in float32",
        ("settings", "rows", "penalty", "test RMSE", "seconds", "cells, by what they needed"),
        rows,
        NOTES,
    )


if __name__ == "__main__":
    main()
