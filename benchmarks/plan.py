"""Plans against what then happens: peak memory and seconds of 18 fits, and of fits from disk.

python benchmarks/plan.py            all of it, about half an hour on two cores
python benchmarks/plan.py --resume   what is missing of it
python benchmarks/plan.py NAME N     one fit, as JSON

Every fit is a process of its own, whose plan is made before it. Memory is the peak of the
process, seconds those of the whole fit. Each is then asked for again with its sizes named and three
quarters of the memory that it took: that must be refused.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from recording import RESULTS, record

SIZES = {
    "kin40k": (2000, 5000, 10_000),
    "protein": (5000, 15_000, 41_157),
    "higgs51k": (4000, 12_000, 31_403),
    "taxi1m": (20_000, 100_000, 300_000),
    "houseelectric": (20_000, 80_000, 200_000),
    "airline3m": (20_000, 80_000, 200_000),
}
# Settings that are not automatic: data, rows, and what is named.
NAMED = {
    "taxi1m, FALKON": ("taxi1m", {"n_cells": 1, "n_centers": 5000, "solver": "falkon"}),
    "taxi1m, 40 cells": ("taxi1m", {"n_cells": 40, "n_centers": 60_000, "solver": "direct"}),
}
GIVEN = {"penalty": 1e-7, "metric": "standard", "blend": 1, "coarse": 0}
DISK = (300_000, 2_000_000, 10_000_000)  # rows of taxi-like files that stay on disk
TITLE = "Plans, and what then happened"
HEADER = [
    *("data", "rows", "memory planned", "GB", "ratio"),
    *("seconds planned", "took", "ratio", "refused"),
]
TRIED = 0.75  # of the memory that a fit took


class Peak:
    """The most memory this process held while the context lasted."""

    def __enter__(self):
        self.over, self.bytes = threading.Event(), 0.0
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()
        return self

    def watch(self):
        from parkrr.runtime.memory import process_bytes

        while not self.over.wait(0.02):
            self.bytes = max(self.bytes, process_bytes())

    def __exit__(self, *_):
        self.over.set()
        self.watcher.join()


def rows_of(name, n):
    from real_data import load

    data = load(name)
    at = np.random.default_rng(0).permutation(len(data.X))[:n]
    return data.X[at], data.y[at]


def one(name, n):
    """Plan, fit, and ask again with too little memory."""
    if name == "disk":
        return from_disk(n)
    if name in NAMED:
        return named(*NAMED[name], n)
    from parkrr import ParKClassifier, ParKRegressor

    X, y = rows_of(name, n)
    estimator = ParKClassifier if name == "higgs51k" else ParKRegressor
    y = (y > 0).astype(int) if name == "higgs51k" else y
    model = estimator(random_state=0, progress=False)
    found = watched(model, X, y)
    sizes = {"n_cells": found["plan"]["cells"], "n_centers": found["plan"]["centers"]}
    took = found["peak"] - found["began"]
    return found | {"refused": refused(estimator(**sizes, max_memory=TRIED * took), X, y)}


def named(name, settings, n):
    """A fit with settings of its own."""
    from parkrr import Matern, ParKRegressor

    X, y = rows_of(name, n)
    settings = {"kernel": Matern(), **GIVEN, **settings, "random_state": 0, "progress": False}
    found = watched(ParKRegressor(**settings), X, y)
    took = found["peak"] - found["began"]
    return found | {"refused": refused(ParKRegressor(**settings, max_memory=TRIED * took), X, y)}


def watched(model, *data):
    from parkrr.runtime.memory import process_bytes

    plan = model.plan(*data)
    began, start = process_bytes(), time.perf_counter()
    with Peak() as peak:
        model.fit(*data)
    seconds = time.perf_counter() - start
    return {
        "plan": plan.plain(),
        "text": str(plan),
        "began": began,
        "peak": peak.bytes,
        "seconds": seconds,
        "steps": model.seconds_,
        "cells": model.n_cells_,
        "largest": max(cell.rows for cell in model.report_),
    }


def from_disk(n):
    """Rows of taxi-like files."""
    from parkrr import ParKRegressor, scan_parquet
    from scale import make

    with tempfile.TemporaryDirectory() as folder:
        table = scan_parquet(make(Path(folder, "rows"), n), target="y")
        model = ParKRegressor(random_state=0, progress=False, checkpoint=Path(folder, "job"))
        return watched(model, table)


def refused(model, *data):
    """Whether a fit is refused before it begins."""
    from parkrr.errors import BudgetError

    start = time.perf_counter()
    try:
        model.set_params(progress=False, time_budget=1.0).fit(*data)
    except BudgetError as error:
        return {"said": str(error), "after": time.perf_counter() - start}
    return None


def everything():
    tasks = [(name, n) for name, sizes in SIZES.items() for n in sizes]
    tasks += [(name, 200_000) for name in NAMED] + [("disk", n) for n in DISK]
    kept = Path(RESULTS, "plan.json")
    results = json.loads(kept.read_text())["results"] if "--resume" in sys.argv else []
    done = [(r["name"], r["n"]) for r in results]
    for name, n in (task for task in tasks if task not in done):
        command = [sys.executable, __file__, name, str(n)]
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        results.append({"name": name, "n": n, **json.loads(out.splitlines()[-1])})
        show(results[-1:])
        record("plan", results, TITLE, HEADER, [row_of(r) for r in results], summary(results))


def row_of(r):
    planned, took = r["plan"]["memory"] / 1e9, r["peak"] / 1e9
    seconds, real = r["plan"]["total_seconds"], r["seconds"]
    return [
        r["name"],
        f"{r['n']:,}",
        f"{planned:.2f}",
        f"{took:.2f}",
        f"{planned / took:.2f}",
        f"{seconds:.0f}",
        f"{real:.0f}",
        f"{seconds / real:.2f}",
        "" if "refused" not in r else "yes" if r["refused"] else "no",
    ]


def show(results):
    for r in results:
        print(*row_of(r), flush=True)


def summary(results):
    memory = [r["plan"]["memory"] / r["peak"] for r in results]
    seconds = [r["plan"]["total_seconds"] / r["seconds"] for r in results]
    tries = [r["refused"] for r in results if "refused" in r]
    return [
        f"Planned over real: memory {min(memory):.2f} to {max(memory):.2f}, seconds "
        f"{min(seconds):.2f} to {max(seconds):.2f}. Asked for again with the same sizes and "
        f"{TRIED} of the memory it took, a fit was refused {sum(map(bool, tries))} times out of "
        f"{len(tries)}.",
    ]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]))))
    else:
        everything()
