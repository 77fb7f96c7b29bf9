"""Does `drift` flag rows that are unlike those of the fit, and no others?

    python benchmarks/drift.py

The satellite map: a model of 5,000 pixels under a clear sky, 2,000 other pixels under a clear sky,
and 2,000 under clouds, whose places the model has not seen. Three seeds.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

from dataclasses import asdict

import numpy as np

import real_data
from parkrr import Laplacian, ParKRegressor, inspection
from recording import record

FITTED, NEW, SEEDS = 5000, 2000, (0, 1, 2)
SETTINGS = {"metric": "euclidean", "n_cells": 5, "blend": 1, "coarse": 0, "progress": False}


def main():
    data = real_data.load("satellite")
    results, rows = {}, []
    for seed in SEEDS:
        seen = np.random.default_rng(seed).permutation(len(data.X))[: FITTED + NEW]
        covered = np.random.default_rng(seed).permutation(len(data.X_test))[:NEW]
        clouds = data.X_test[covered]
        model = ParKRegressor(Laplacian(0.5), 1e-6, random_state=seed, **SETTINGS)
        model.fit(data.X[seen[:FITTED]], data.y[seen[:FITTED]])
        for name, X in (("clear sky", data.X[seen[FITTED:]]), ("clouds", clouds)):
            found = inspection.drift(model, X)
            results[f"{name}, seed {seed}"] = {**asdict(found), "drifted": found.has_drifted}
            rows.append(
                [
                    f"{name}, seed {seed}",
                    f"{100 * found.novel_share:.1f} %",
                    f"{100 * found.moved_share:.1f} %",
                    f"{found.cells_pvalue:.2g}",
                    "yes" if found.has_drifted else "no",
                ]
            )
    header = ["rows", "novel (1 % expected)", "in other cells", "p of cells", "flagged"]
    notes = [
        f"{FITTED:,} pixels fitted in 5 cells, {NEW:,} new ones; Laplacian(0.5), penalty 1e-6."
    ]
    record("drift", results, "Drift on the satellite map", header, rows, notes)


if __name__ == "__main__":
    main()
