"""Models of 10^5 cells and 10^7 centres: routing, single rows, batches, loading.

    python benchmarks/large_model.py --folder /data

Two models of random numbers, as if they had been fitted: 316 regions of 316 cells of 100 centres,
with 9 features (0.45 GB) and with 100 (4 GB). In the same run the bare operations of routing are
timed on the same shapes: a product with the centroids of all regions and one with those of a
region, each with its argmin. Memory is what the system reports of a process that does nothing else.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from parkrr import Gaussian, ParKRegressor, load
from parkrr.partition import Blend, Regions
from recording import record

REGIONS, CELLS, CENTERS = 316, 316, 100  # cells of a region, centres of a cell
NARROW, WIDE = 9, 100  # features
ROUTED, BATCH, SINGLES, ROUNDS = 500_000, 20_000, 2000, 5


def write(path, features):
    """A model of so many random centres, as if it had been fitted."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, features))
    settings = {"kernel": Gaussian(), "metric": "standard", "penalty": 1e-3, "blend": 1}
    model = ParKRegressor(**settings, coarse=0, n_cells=1, random_state=0).fit(X, X[:, 0])
    torch.manual_seed(0)
    upper = torch.randn(REGIONS, features)
    centroids = (upper[:, None] + 0.5 * torch.randn(REGIONS, CELLS, features)).flatten(0, 1)
    Q = len(centroids)
    centers = list(centroids[:, None] + 0.1 * torch.randn(Q, CENTERS, features))
    weights = list(torch.randn(Q, CENTERS, 1, dtype=torch.float64))
    sizes, widths = torch.full((REGIONS,), CELLS), torch.full((REGIONS,), 0.1, dtype=torch.float64)
    model.model_ = replace(
        model.model_,
        centroids=centroids,
        centers=centers,
        weights=weights,
        regions=Regions(upper, sizes, widths),
        blend=Blend(2, 0.1),
        limits=torch.stack([torch.full((Q, 1), -9.0), torch.full((Q, 1), 9.0)]).double(),
    )
    model.report_ = [model.report_[0]._replace(cell=q) for q in range(Q)]
    bars = model.intervals_
    noise, ridge = bars.posterior.noise.repeat(Q, 1), bars.posterior.ridge.repeat(Q)
    posterior = replace(bars.posterior, noise=noise, ridge=ridge)
    model.intervals_ = replace(bars, posterior=posterior, factors=bars.factors.repeat(Q, 1))
    model.save(path)


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def near_cells(model, n, seed):
    """Rows (n, d) near cells of the model, in the units of the user."""
    rng = np.random.default_rng(seed)
    C = model.model_.centroids[torch.from_numpy(rng.integers(len(model.model_.centroids), size=n))]
    Z = C.double().numpy() + 0.1 * rng.normal(size=C.shape)
    metric = model.model_.metric
    return Z / metric.scale.numpy() + metric.origin.numpy()


def resident():
    """Megabytes that are this process's alone or mapped by it."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1e3


def load_once(path):
    """In a process of its own: seconds of loading and of the first row, and memory."""
    import parkrr  # noqa: F401 - all of it, before memory is read

    ParKRegressor(kernel=Gaussian(), metric="standard", penalty=1e-3, blend=1, coarse=0).fit(
        np.random.default_rng(0).normal(size=(50, 2)), np.arange(50.0)
    )
    before = resident()
    model = []
    took = seconds(lambda: model.append(load(path)))
    loaded = resident()
    row = near_cells(model[0], 1, 0)
    first = seconds(lambda: model[0].predict(row))
    print(json.dumps([took, loaded - before, first, resident() - before]))


def bare_routing(model, X):
    """Products and argmins of both levels, on one thread, without sorting rows."""
    upper, lower = model.regions.centroids, model.centroids[:CELLS]
    for rows in torch.split(X, 2**13):
        for C in (upper, lower):
            torch.addmm(C.square().sum(1), rows, C.T, alpha=-2).argmin(1)


def measure(path):
    """Routing, batches and single rows of the narrow model."""
    model = load(path)
    inner = model.model_
    rows = near_cells(model, ROUTED, 1)
    Z = inner.map_rows(torch.from_numpy(rows))
    torch.set_num_threads(1)
    inner.assign(Z[:10_000])
    routing = [(seconds(lambda: inner.assign(Z)), seconds(lambda: bare_routing(inner, Z)))]
    routing += [
        (seconds(lambda: inner.assign(Z)), seconds(lambda: bare_routing(inner, Z)))
        for _ in range(ROUNDS - 1)
    ]
    shares = [seconds(lambda: inner.cell_shares(Z)) for _ in range(ROUNDS)]
    torch.set_num_threads(2)
    batches = [seconds(lambda: model.predict(rows[:BATCH])) for _ in range(1)]
    single = near_cells(model, SINGLES, 2)
    each = [1e6 * seconds(lambda row=row: model.predict(row[None])) for row in single]
    again = [1e6 * seconds(lambda row=row: model.predict(row[None])) for row in single]
    small = torch.ones(4, NARROW)
    bare = [1e6 * seconds(lambda: small + small) for _ in range(SINGLES)]
    per_row = 1e6 / len(Z)
    return {
        "routing_us": per_row * statistics.median(took for took, _ in routing),
        "bare_routing_us": per_row * statistics.median(bare for _, bare in routing),
        "blended_routing_us": per_row * statistics.median(shares),
        "batch_us": 1e6 / BATCH * statistics.median(batches),
        "first_single_us": statistics.median(each),
        "single_us": statistics.median(again),
        "single_p99_us": float(np.quantile(again, 0.99)),
        "bare_addition_us": statistics.median(bare),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the model files")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        load_once(arguments.load)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    narrow, wide = (arguments.folder / f"random-{d}.park" for d in (NARROW, WIDE))
    for path, features in ((narrow, NARROW), (wide, WIDE)):
        if not path.exists():
            write(path, features)
    results = measure(narrow)
    command = [sys.executable, __file__, "--folder", str(arguments.folder), "--load", str(wide)]
    loads = [json.loads(subprocess.check_output(command)) for _ in range(1)]
    names = ("load_seconds", "load_mb", "first_row_seconds", "first_row_mb")
    columns = zip(*loads, strict=True)
    results |= {name: statistics.median(each) for name, each in zip(names, columns, strict=True)}
    results["wide_gb"] = wide.stat().st_size / 1e9
    rows = [
        ["routing a row in a batch, one core", f"{results['routing_us']:.2f} us"],
        ["its bare operations", f"{results['bare_routing_us']:.2f} us"],
        ["routing with shares of blended cells", f"{results['blended_routing_us']:.2f} us"],
        ["a row in a batch, two cores", f"{results['batch_us']:.1f} us"],
        ["a single row, its cell used before, median", f"{results['single_us']:.0f} us"],
        ["a single row, 99 of 100", f"{results['single_p99_us']:.0f} us"],
        ["one addition of torch, 4 x 9 numbers", f"{results['bare_addition_us']:.1f} us"],
        ["a single row, its cell not used before, median", f"{results['first_single_us']:.0f} us"],
        [f"loading {results['wide_gb']:.1f} GB", f"{results['load_seconds']:.2f} s"],
        ["memory of that", f"{results['load_mb']:.0f} MB"],
        ["its first row", f"{1e3 * results['first_row_seconds']:.0f} ms"],
        ["memory with that", f"{results['first_row_mb']:.0f} MB"],
    ]
    notes = [
        f"{REGIONS * CELLS:,} cells in {REGIONS} regions, {REGIONS * CELLS * CENTERS:,} centres of "
        f"{NARROW} features; for loading {WIDE} features. Files are in the cache of the system."
    ]
    record("large_model", results, "Models of 10^7 centres", ["what", "figure"], rows, notes)


if __name__ == "__main__":
    main()
