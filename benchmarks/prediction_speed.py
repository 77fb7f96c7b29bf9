"""How fast a model predicts: rows a second in batches, and microseconds of single rows.

Taxi-like rides of 9 features, about 512 cells of some 300 centres. In the same run the bare
operations are timed on the same shapes: distances to all centroids and their argmin, the kernel of
rows and the centres of their cell, and its product with the coefficients.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from parkrr import ParKRegressor
from parkrr.kernels import Gaussian
from recording import record
from scale import rides

CELLS, CENTERS = 512, 300
BATCH, ROUNDS, SINGLES = 2_000_000, 5, 10_000
CORES = 2


def fitted():
    X, y = rides(400_000, 0)
    settings = {"metric": "standard", "penalty": 1e-7, "blend": 1, "coarse": 0, "random_state": 0}
    model = ParKRegressor(
        kernel=Gaussian(3.0), n_cells=CELLS, n_centers=CELLS * CENTERS, progress=False, **settings
    )
    return model.fit(X, y)


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bare(model, X):
    """GEMM, exp and argmin on the shapes of a batch, two threads with a half each."""
    inner = model.model_
    away, order = (
        inner.kernel.distance(inner.centroids),
        np.argsort([len(Z) for Z in inner.centers]),
    )
    middle = inner.centers[order[len(order) // 2]]
    section, w = inner.kernel.against(middle), torch.ones(len(middle), 1)
    Z = inner.map_rows(X)

    def half(part):
        A = away.augment(part)
        rows = away.block_rows(len(A))
        room = away.workspace(rows)
        for block in torch.split(A, rows):
            D = away.values(block, [b[: len(block)] for b in room], no_underflow=True)
            np.argmin(D.numpy(), 1)
        A = section.augment(part)
        rows = section.block_rows(len(A))
        room = section.workspace(rows)
        for block in torch.split(A, rows):
            section.values(block, [b[: len(block)] for b in room], no_underflow=True) @ w

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(half, torch.chunk(Z, CORES)))


def batches(model):
    X, _ = rides(BATCH, 1)
    raw = torch.from_numpy(X)
    torch.set_num_threads(1)
    bare(model, raw[: BATCH // 10])
    pairs = []
    for _ in range(ROUNDS):
        least = seconds(lambda: bare(model, raw))
        torch.set_num_threads(CORES)
        took = seconds(lambda: model.predict(X))
        torch.set_num_threads(1)
        pairs.append((took, least))
    torch.set_num_threads(CORES)
    return pairs


def singles(model):
    """Microseconds of each of many single rows, in rounds: (rounds, rows)."""
    X, _ = rides(SINGLES + 100, 2)
    rounds = []
    for _ in range(ROUNDS):
        each = [1e6 * seconds(lambda row=row: model.predict(row[None])) for row in X]
        rounds.append(each[100:])
    return np.array(rounds)


def main():
    model = fitted()
    cells = [len(Z) for Z in model.model_.centers]
    pairs, each = batches(model), singles(model)
    rate = BATCH / statistics.median(took for took, _ in pairs)
    share = statistics.median(least / took for took, least in pairs)
    middle, high = np.quantile(each, [0.5, 0.99])
    quick, slow = np.quantile(np.median(each, 1), [0, 1])
    results = {
        "cells": len(cells),
        "centers": statistics.mean(cells),
        "pairs": pairs,
        "rows_per_second": rate,
        "share_of_bare": share,
        "single_median": middle,
        "single_p99": high,
        "single_max": each.max(),
        "single_median_of_rounds": np.median(each, 1).tolist(),
    }
    record(
        "prediction_speed",
        results,
        "How fast a model predicts",
        ["what", "figure"],
        [
            ["rows a second in batches", f"{rate:,.0f}"],
            ["bare operations over that", f"{share:.2f}"],
            ["a single row, median", f"{middle:.0f} us"],
            ["a single row, median of the best and the worst round", f"{quick:.0f}, {slow:.0f} us"],
            ["a single row, 99 of 100", f"{high:.0f} us"],
        ],
        [
            f"{len(cells)} cells of {statistics.mean(cells):.0f} centres on average, 9 features; "
            f"{ROUNDS} rounds of {BATCH:,} rows in a batch and of {SINGLES:,} single rows."
        ],
    )


if __name__ == "__main__":
    main()
