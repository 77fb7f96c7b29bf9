"""Rows on disk: seconds, memory and error against their number.

    python benchmarks/scale.py --folder /data/scale --rows 1e6 1e7 1e8
    python benchmarks/scale.py --folder /data/scale --rows 1e9 --repeat 1e8 --memory 8GB

Makes rides like those of New York's taxis, 9 features, all rows different, in files of ten million
rows; with --repeat only so many rows are made and files are listed again until there are enough.
Fits them with some 270 cells and 51,200 centres in a process of its own whose memory, with that
of all its children, is sampled. Kernel and metric are chosen once, on the rows of the smallest
size, and held fixed. In the same run the bare operations of the pass are timed on the same shapes.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import argparse
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from parkrr import ParKRegressor, load, scan_parquet
from parkrr.data.parquet import rows_per_block
from parkrr.planning.disk_sizes import BLOCK_BYTES
from parkrr.planning.settings import as_engine
from parkrr.solvers.problem import add_gram
from recording import RESULTS, record

FILE_ROWS, GROUP_ROWS = 10_000_000, 1_000_000
CELLS, CENTERS = 270, 51_200
TEST_ROWS = 100_000
NOTES = [
    "Bare operations are timed on two threads on the shapes of the pass: decoding with pyarrow,",
    "distances to all centroids, the kernel, and K'[K, y] in float64, first by plain GEMMs, then",
    "only the half that symmetry leaves, as the library does. Peak memory is that of the process",
    "and its children. In memory: the same settings and ridge on the first million rows, an array.",
    "Ray and its workers are started before seconds are counted.",
]
NAMES = ["hour", "weekday", "month", "people", "from_x", "from_y", "to_x", "to_y", "miles"]


def rides(n, seed, noise=0.2):
    """Features (n, 9) and the logarithm of the minutes with noise, float32."""
    rng = np.random.default_rng(seed)
    hour, weekday = rng.uniform(0, 24, n), rng.integers(0, 7, n)
    month, people = rng.integers(1, 13, n), rng.integers(1, 7, n)
    ends = [rng.normal(size=(n, 2)) * rng.choice([0.3, 1.5], size=(n, 1)) for _ in range(2)]
    miles = np.abs(ends[0] - ends[1]).sum(1) * rng.lognormal(0.1, 0.1, n)
    rush = np.exp(-((hour - 8.5) ** 2) / 4) + np.exp(-((hour - 17.5) ** 2) / 6)
    centre = np.exp(-(np.square(ends[0]).sum(1))) + np.exp(-(np.square(ends[1]).sum(1)))
    slow = 1 + (weekday < 5) * rush * (1 + centre) + 0.1 * np.cos(2 * np.pi * month / 12)
    y = np.log(2 + 3 * miles * slow) + noise * rng.normal(size=n)
    X = np.column_stack([hour, weekday, month, people, *ends[0].T, *ends[1].T, miles])
    return X.astype(np.float32), y.astype(np.float32)


def make(folder, n):
    """Files with that many rows, those that are not there yet; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for start in range(0, n, FILE_ROWS):
        rows = min(FILE_ROWS, n - start)
        path = folder / f"rides-{start // FILE_ROWS:04d}-{rows}.parquet"
        files.append(path)
        if path.exists():
            continue
        temporary = path.with_suffix(".tmp")
        schema = pa.schema([(name, pa.float32()) for name in [*NAMES, "y"]])
        with pq.ParquetWriter(temporary, schema, use_dictionary=False) as writer:
            group = min(GROUP_ROWS, -(-rows // 8))  # or two cores would share one
            for first in range(0, rows, group):
                X, y = rides(min(group, rows - first), [start, first])
                writer.write_table(pa.table([*X.T.copy(), y], schema=schema))
        temporary.rename(path)
    return [str(path) for path in files]


def listed(folder, n, distinct):
    """Files for n rows, each listed as often as it takes when only some rows are distinct."""
    files = make(folder, min(n, distinct))
    if n % distinct and n > distinct:
        raise SystemExit(f"--rows must be a multiple of --repeat {distinct:,}, got {n:,}")
    return files * max(1, n // distinct)


def memory_of_tree(pid):
    """Bytes a process and its children take, shared pages divided among them."""
    total = 0
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += int(rollup.split("Pss:")[1].split()[0]) * 1024
        for task in Path(f"/proc/{pid}/task").iterdir():
            children = (task / "children").read_text().split()
            total += sum(memory_of_tree(int(child)) for child in children)
    except (OSError, IndexError):
        pass  # it has just ended
    return total


def one(files, settings, path):
    """Fit files in this process, and save what came out; Ray and its workers start before."""
    model = ParKRegressor(**settings)
    as_engine(settings["engine"]).map(abs, [1, 2])
    start = time.perf_counter()
    model.fit(scan_parquet(files, target="y"))
    seconds = time.perf_counter() - start
    model.save(path)
    rows = sum(cell.rows for cell in model.report_)
    centers = sum(map(len, model.model_.centers))
    sizes = {"rows": rows, "n_cells": model.n_cells_, "n_centers": centers}
    print(json.dumps({"fit": seconds, **sizes, **model.seconds_}))


def watched(files, settings, path):
    """The fit of files in a process of its own: its seconds and the peak of its memory."""
    command = [sys.executable, __file__, "--one", json.dumps([files, settings, str(path)])]
    output, peak = run_watched(command)
    return {**json.loads(output.splitlines()[-1]), "peak_gb": peak / 1e9}


def run_watched(command):
    """What a command prints, and the peak of the memory of its processes in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak, over = 0, threading.Event()

    def watch():
        nonlocal peak
        while not over.wait(0.5):  # a look at large processes costs milliseconds
            peak = max(peak, memory_of_tree(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    over.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return output, peak


class Bare:
    """What the pass cannot do without, on blocks of the shapes it has.

    Decoding with pyarrow; distances to all centroids; the kernel of a cell's rows and its
    centres; their products in float64. Of 16 cells, at even shares of the rows. Each returns how
    many rows it did.
    """

    def __init__(self, files, model, shares):
        self.file, self.away = files[0], model.kernel.distance(model.centroids)
        order = np.argsort(shares)
        places = np.searchsorted(np.cumsum(shares[order]), (np.arange(16) + 0.5) / 16)
        self.cells = [self.cell(model, q, shares[q]) for q in order[places]]

    def cell(self, model, q, share):
        """The kernel against its centres, and rows of one block."""
        section = model.kernel.against(model.centers[q])
        there = round(share * rows_per_block(len(NAMES), BLOCK_BYTES))
        rows = section.block_rows(max(1, there))
        return section, model.centers[q][torch.randint(len(model.centers[q]), (rows,))]

    def decode(self, _):
        return len(pq.ParquetFile(self.file).read_row_group(0, use_threads=False))

    def each(self, prepare):
        """Blocks of every cell until each has had 20,000 rows."""
        done = 0
        for section, X in self.cells:
            work = prepare(section, X)
            for _ in range(max(1, 20_000 // len(X))):
                work()
                done += len(X)
        return done

    def distances(self, _):
        def prepare(section, X):
            A, out = self.away.augment(X), self.away.workspace(len(X))[0]
            return lambda: torch.mm(A, self.away.fixed, out=out)

        return self.each(prepare)

    def kernel(self, _):
        def prepare(section, X):
            A, room = section.augment(X), section.workspace(len(X))
            return lambda: section.values(A, room, no_underflow=True)

        return self.each(prepare)

    def products(self, _):
        """K'[K, y] by one plain GEMM, which does all of a symmetric matrix."""

        def prepare(section, X):
            K, KY, total = self.matrices(section, X)
            return lambda: total.addmm_(K.T, KY)

        return self.each(prepare)

    def half_products(self, _):
        """The same on and right of the diagonal, in panels, as the library does."""

        def prepare(section, X):
            _, KY, total = self.matrices(section, X)
            return lambda: add_gram(total, KY, None)

        return self.each(prepare)

    def matrices(self, section, X):
        m = section.fixed.shape[1]
        KY = torch.rand(len(X), m + 1, dtype=torch.float64)
        return KY[:, :m], KY, torch.zeros(m, m + 1, dtype=torch.float64)


def bare(files, estimator):
    """Microseconds a row of each of these, on two threads."""
    rows = np.array([cell.rows for cell in estimator.report_])
    work = Bare(files, estimator.model_, rows / rows.sum())
    parts = (work.decode, work.distances, work.kernel, work.products, work.half_products)
    return {part.__name__: on_two(part) for part in parts}


def on_two(work):
    """Microseconds a row, the median of five times, each on two threads at once."""
    torch.set_num_threads(1)
    found = []
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
        for _ in range(5):
            start = time.perf_counter()
            rows = sum(pool.map(work, range(2)))
            found.append((time.perf_counter() - start) / rows * 1e6)
    torch.set_num_threads(2)
    return float(np.median(found))


def chosen(files, folder):
    """Kernel, metric and the rest, chosen once by a fit of few rows; and lambda n."""
    path = folder / "chosen.park"
    if not path.exists():
        settings = {"n_cells": CELLS, "n_centers": CENTERS, "random_state": 0}
        model = ParKRegressor(**settings, checkpoint=folder / "choosing")
        model.fit(scan_parquet(files, target="y")).save(path)
    return load(path)


def error(model, as_table=True):
    X, y = rides(TEST_ROWS, [10**9])
    rows = pa.table(dict(zip(NAMES, X.T.copy(), strict=True))) if as_table else X
    return float(np.sqrt(np.mean((model.predict(rows) - y) ** 2)))


def in_memory(like, ridge):
    """The same settings on a million rows as an array."""
    X, y = rides(1_000_000, [0, 0])
    settings = {**like.chosen_.params, "checkpoint": None, "penalty": ridge / len(X)}
    start = time.perf_counter()
    model = ParKRegressor(**settings).fit(X, y)
    return {"fit": time.perf_counter() - start, "error": error(model, as_table=False)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", nargs="+", type=float, default=[1e6, 1e7, 1e8])
    parser.add_argument("--repeat", type=float, default=1e12, help="distinct rows at most")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        files, settings, path = json.loads(arguments.one)
        metric = load(settings.pop("like")).chosen_.params
        one(files, {**metric, **settings}, path)
        return
    folder = arguments.folder
    kept = RESULTS / "scale.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    like = chosen(make(folder, 1_000_000), folder)
    ridge = like.chosen_.params["penalty"] * 1_000_000
    results["1000000 in memory"] = in_memory(like, ridge)
    for n in map(int, arguments.rows):
        files = listed(folder, n, int(arguments.repeat))
        settings = {
            "like": str(folder / "chosen.park"),
            "penalty": ridge / n,
            "max_memory": arguments.memory,
            "engine": arguments.engine,
            "checkpoint": str(folder / f"fit-{n}-{arguments.engine}"),
            "progress": True,
        }
        path = folder / f"{n}.park"
        subprocess.run(["rm", "-rf", settings["checkpoint"]], check=True)
        found = watched(files, settings, path)
        found |= {"error": error(load(path)), "bare": bare(files, load(path))}
        found["distinct"] = min(n, int(arguments.repeat))
        found["memory"] = arguments.memory
        results[f"{n} {arguments.engine}"] = found
        write(results)


def write(results):
    """A row for each number of rows."""
    rows = []
    for name, r in results.items():
        if "pass" not in r:
            rows.append(
                [name, "1e+06", "-", "-", f"{r['fit']:.1f}", *["-"] * 6, f"{r['error']:.4f}"]
            )
            continue
        each = r["pass"] / r["rows"] * 1e6
        shared = sum(r["bare"][name] for name in ("decode", "distances", "kernel"))
        plain, half = (shared + r["bare"][name] for name in ("products", "half_products"))
        rows.append(
            [
                name,
                f"{r['distinct']:.0e}",
                f"{r['n_cells']}",
                f"{r['n_centers']:,}",
                f"{r['fit']:.1f}",
                f"{r['pass']:.1f}",
                f"{r['rows'] / r['pass'] / 1e6:.2f}",
                f"{each:.2f}",
                f"{plain:.2f}, {half:.2f}",
                f"{plain / each:.2f}, {half / each:.2f}",
                f"{r['peak_gb']:.2f} of {r['memory']}",
                f"{r['error']:.4f}",
            ]
        )
    header = [
        "rows, engine", "distinct", "cells", "centres", "fit s", "pass s", "million rows/s",
        "us a row",
        "bare us a row", "bare / pass", "peak GB", "test RMSE",
    ]  # fmt: skip
    record("scale", results, "Rows on disk, 9 features", header, rows, NOTES)


if __name__ == "__main__":
    main()
