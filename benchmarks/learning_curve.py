"""Does a model grow with its rows? Error against their number, fitted from disk.

    python benchmarks/learning_curve.py --folder /data/octaves --rows 1e5 1e6 1e7 1e8
    python benchmarks/learning_curve.py --folder /data/octaves --rows 1e7 --n-centers 240000
    python benchmarks/learning_curve.py --folder /data/rides --data rides --rows 1e7 1e8
    python benchmarks/learning_curve.py --folder /data/octaves --data airline3m --rows 1e5 1e6 2e6
    python benchmarks/learning_curve.py --folder /data/rides --data taxi1m --rows 9e5 --in-memory

Made-up data has two features and detail at every scale: twelve octaves of plane waves, each with
half the variance of the one before, plus noise of a tenth of the standard deviation. Its error is
the root mean squared distance to the function without noise. So is that of the rides of scale.py,
which have nine features. Real data (airline3m, taxi1m, houseelectric) has its RMSE over the
standard deviation of the target. Every fit has defaults and a process of its own, whose memory,
with that of its children, is sampled. Results are kept from run to run.
"""

import os

# Before torch: OpenMP threads that spin while they wait slow each other down.
os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import real_data
import scale
from recording import RESULTS, record

OCTAVES, WAVES, NOISE = 12, 8, 0.1
FILE_ROWS, GROUP_ROWS = 10_000_000, 500_000
TEST_ROWS = 100_000


def wave(X):
    """The function without noise at rows X (n, 2), of variance one."""
    rng = np.random.default_rng(0)
    directions, phases, heights = [], [], []
    for k in range(OCTAVES):
        angles, shifts = rng.uniform(0, 2 * np.pi, (2, WAVES))
        directions.append(2**k * 2 * np.pi * np.stack([np.cos(angles), np.sin(angles)]))
        phases.append(shifts)
        heights.append(np.full(WAVES, 2 ** (-k / 2)))
    D, p, h = (torch.from_numpy(np.concatenate(each, -1)) for each in (directions, phases, heights))
    h /= h.square().sum().div(2).sqrt()
    # In pieces that stay in the cache, and by torch: a seventh of the time of numpy.
    pieces = torch.split(torch.from_numpy(X), 4000)
    return torch.cat([torch.addmm(p, rows, D).cos_() @ h for rows in pieces]).numpy()


def draw_rows(n, seed):
    """Features (n, 2) and the function at them, with noise, float32."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2), dtype=np.float32)
    return X, (wave(X.astype(np.float64)) + NOISE * rng.normal(size=n)).astype(np.float32)


def make_octaves(folder, n):
    """Files with that many rows, those that are not there yet; their names."""
    files = []
    for start in range(0, n, FILE_ROWS):
        rows = min(FILE_ROWS, n - start)
        path = folder / f"octaves-{start // FILE_ROWS:04d}-{rows}.parquet"
        files.append(str(path))
        if path.exists():
            continue
        temporary = path.with_suffix(".tmp")
        schema = pa.schema([(name, pa.float32()) for name in ("a", "b", "y")])
        with pq.ParquetWriter(temporary, schema, use_dictionary=False) as writer:
            group = min(GROUP_ROWS, -(-rows // 8))  # or two cores would share one
            for first in range(0, rows, group):
                X, y = draw_rows(min(group, rows - first), [start, first])
                writer.write_table(pa.table([*X.T.copy(), y], schema=schema))
        temporary.rename(path)
    return files


def make_real(folder, name, n):
    """A file with the first rows of a shuffled data set."""
    path = folder / f"{name}-{n}.parquet"
    if not path.exists():
        data = real_data.load(name)
        order = np.random.default_rng(0).permutation(len(data.X))[:n]
        columns = {f"x{k}": column for k, column in enumerate(data.X[order].T)}
        table = pa.table({**columns, "y": data.y[order]})
        pq.write_table(table, path, row_group_size=max(1, -(-n // 16)))
    return [str(path)]


def make_files(folder, name, n):
    """Files with that many rows."""
    if name == "octaves":
        return make_octaves(folder, n)
    return scale.make(folder, n) if name == "rides" else make_real(folder, name, n)


def test_rows(name):
    """Rows, what is to be predicted of them, and the unit of errors."""
    if name == "octaves":
        X, _ = draw_rows(TEST_ROWS, 10**9)
        return {"a": X[:, 0], "b": X[:, 1]}, wave(X.astype(np.float64)), 1.0
    if name == "rides":
        X, y = scale.rides(TEST_ROWS, 10**9, noise=0)
        return dict(zip(scale.NAMES, X.T, strict=True)), y, float(y.std())
    data = real_data.load(name)
    drawn = np.random.default_rng(0).permutation(len(data.X_test))[:TEST_ROWS]
    X, y = data.X_test[drawn], data.y_test[drawn]
    return {f"x{k}": column for k, column in enumerate(X.T)}, y, float(y.std())


def fit(name, files, settings, in_memory):
    """Fit files in this process, from disk or in memory; what came out."""
    from parkrr import ParKRegressor, scan_parquet

    model = ParKRegressor(random_state=0, **settings)
    with tempfile.TemporaryDirectory(dir=Path(files[0]).parent) as folder:
        if not in_memory:
            model.set_params(checkpoint=folder)
        start = time.perf_counter()
        model.fit(scan_parquet(files, target="y"))
        seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    columns, y, unit = test_rows(name)
    predicted = model.predict(pa.table(columns))
    regions = model.model_.regions
    return {
        "error": float(np.sqrt(np.mean((predicted - y) ** 2))) / unit,
        "cells": model.n_cells_,
        "regions": 1 if regions is None else len(regions.sizes),
        "centers": sum(map(len, model.model_.centers)),
        "seconds": seconds,
        "core_seconds": used.ru_utime + used.ru_stime,
        "steps": model.seconds_,
        "kernel": repr(model.chosen_.params["kernel"]),
    }


def describe(label, facts):
    n = facts["rows"]
    fitting = facts["steps"].get("pass", 0.0) + facts["steps"]["cells"]
    return [
        label,
        f"{facts['error']:.4f}",
        f"{facts['regions']:,}",
        f"{facts['cells']:,}",
        f"{facts['centers']:,}",
        f"{facts['seconds']:.0f}",
        f"{fitting:.0f}",
        f"{1e6 * facts['core_seconds'] / n:.1f}",
        f"{facts['peak_gb']:.2f}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the rows that are made")
    parser.add_argument("--rows", nargs="+", type=float, default=[1e5, 1e6, 1e7])
    parser.add_argument("--data", default="octaves")
    parser.add_argument("--n-centers", type=int, help="a fixed number, as before regions")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--in-memory", action="store_true", help="the same rows without a disk")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(fit(*json.loads(arguments.one))))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    kept = RESULTS / "learning_curve.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    settings = {"progress": False}
    if not arguments.in_memory:
        settings["max_memory"] = arguments.memory
    if arguments.n_centers:
        settings["n_centers"] = arguments.n_centers
    for n in map(int, arguments.rows):
        name = arguments.data
        files = make_files(arguments.folder, name, n)
        command = [sys.executable, __file__, "--folder", str(arguments.folder)]
        one = json.dumps([name, files, settings, arguments.in_memory])
        output, peak = scale.run_watched([*command, "--one", one])
        facts = json.loads(output.splitlines()[-1])
        fixed = f", n_centers={arguments.n_centers:,}" if arguments.n_centers else ""
        fixed += ", in memory" if arguments.in_memory else ""
        results[f"{name}, {n:,}{fixed}"] = {**facts, "rows": n, "peak_gb": peak / 1e9}
        write(results)  # after every fit, for the next may be interrupted


def write(results):
    header = ["data, rows", "error", "regions", "cells", "centres", "fit s"]
    header += ["of which pass and cells", "core-us a row", "peak GB"]
    rows = [describe(*pair) for pair in results.items()]
    notes = [
        f"Octaves and rides: error to the function without noise over its standard deviation; the "
        f"noise of octaves has {NOISE}. Others: RMSE over the standard deviation. max_memory 4 GB "
        f"from disk, none in memory.",
        "Core-microseconds count all of the process, imports and choices included.",
    ]
    record("learning_curve", results, "Error against rows on disk", header, rows, notes)


if __name__ == "__main__":
    main()
