"""What ten processes with one model file take together: memory that is shared counts once.

    python benchmarks/sharing.py

A model of a million centres of nine features, made of random numbers, is loaded by one and by ten
processes, which then predict one row, and then rows of all cells. Memory is what the kernel says
in /proc/PID/smaps_rollup: Pss is what a process has alone and its part of what it shares.
"""

import argparse
import multiprocessing
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from parkrr import Gaussian, ParKRegressor, load
from recording import record

CELLS, CENTERS, FEATURES = 500, 2000, 9
STEPS = ("imported", "loaded", "one row", "all cells")


def write(path):
    """A model of so many random centres, as if it had been fitted."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, FEATURES))
    settings = {"kernel": Gaussian(), "metric": "standard", "penalty": 1e-3, "blend": 1}
    settings |= {"coarse": 0, "n_cells": 1, "extrapolation": "free", "random_state": 0}
    model = ParKRegressor(**settings).fit(X, X[:, 0])
    centroids = torch.from_numpy(rng.normal(size=(CELLS, FEATURES))).float()
    centers = [c + 0.1 * torch.randn(CENTERS, FEATURES) for c in centroids]
    weights = [torch.randn(CENTERS, 1, dtype=torch.float64) for _ in centroids]
    model.model_ = replace(model.model_, centroids=centroids, centers=centers, weights=weights)
    model.report_ = [model.report_[0]._replace(cell=q) for q in range(CELLS)]
    bars = model.intervals_
    noise, ridge = bars.posterior.noise.repeat(CELLS, 1), bars.posterior.ridge.repeat(CELLS)
    posterior = replace(bars.posterior, noise=noise, ridge=ridge)
    model.intervals_ = replace(bars, posterior=posterior, factors=bars.factors.repeat(CELLS, 1))
    model.save(path)


def work(path, orders, done):
    """Take the steps, each when it is asked for."""
    torch.set_num_threads(1)
    model = None
    for step in iter(orders.get, None):
        if step == "loaded":
            model = load(path)
        elif step == "one row":
            model.predict(np.zeros((1, FEATURES)))
        elif step == "all cells":
            model.predict(np.random.default_rng(1).normal(size=(20_000, FEATURES)))
        done.put(step)


def memory(pid):
    """Megabytes by the names that the kernel gives them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}


def measure(path, count):
    """Pss of all processes together after each step, and what each has alone."""
    context = multiprocessing.get_context("spawn")
    orders, done = [context.Queue() for _ in range(count)], context.Queue()
    processes = [context.Process(target=work, args=(path, own, done)) for own in orders]
    for process in processes:
        process.start()
    found = {}
    for step in STEPS:
        for own in orders:
            own.put(step)
        for _ in orders:
            done.get(timeout=300)
        taken = [memory(process.pid) for process in processes]
        alone = sum(t["Private_Clean"] + t["Private_Dirty"] for t in taken)
        found[step] = {"pss": sum(t["Pss"] for t in taken), "alone": alone}
    for own, process in zip(orders, processes, strict=True):
        own.put(None)
        process.join(60)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=10)
    count = parser.parse_args().processes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.park")
        write(path)
        size = path.stat().st_size / 2**20
        results = {"file_mb": size, "one": measure(path, 1), str(count): measure(path, count)}
    rows = []
    for step in STEPS:
        taken = [results[name][step]["pss"] for name in ("one", str(count))]
        before = [results[name]["imported"]["pss"] for name in ("one", str(count))]
        more = [after - first for after, first in zip(taken, before, strict=True)]
        rows.append([step, *(f"{value:,.0f}" for value in taken + more)])
    header = ["after", "one process, MB", f"{count} processes, MB", "model, one", f"model, {count}"]
    notes = [f"The file has {size:.0f} MB: {CELLS} cells of {CENTERS:,} centres."]
    record("sharing", results, "Memory of processes with one model file", header, rows, notes)


if __name__ == "__main__":
    main()
