"""Six basic operations as multiples of bare operations on the same shapes, one file a release.

    python benchmarks/history.py              # write benchmarks/history/VERSION.json
    python benchmarks/history.py --compare    # fail if one is 1.5 times as slow as in the last file
    python benchmarks/history.py --compare --factor 3    # on another kind of machine, as CI may be

A ratio changes much less from machine to machine than seconds do. Both sides are measured in turn,
in seconds of the processor on one thread, so that other programs disturb both alike; a ratio is the
median over rounds.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import parkrr
from parkrr import Gaussian, ParKRegressor, scan_parquet
from parkrr.data import ArraySource
from parkrr.partition import assign
from parkrr.solvers import Direct, LocalProblem
from recording import machine

HISTORY = Path(__file__).parent / "history"
KERNEL = Gaussian(3.0)
D = 10  # features


def random_rows(n, dtype=torch.float32):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(n), dtype=dtype)


def kernel_block():
    """K(X, Z) beside a GEMM and exp."""
    X, Z = random_rows(4000), random_rows(1000)
    return lambda: KERNEL(X, Z), lambda: torch.mm(X, Z.T).mul_(-0.01).exp_()


def solver_product():
    """The solver's K'(K v) beside a GEMM, exp, K v and K'u."""
    X, Z, v = random_rows(4096), random_rows(1000), torch.ones(1000, 1)
    problem = LocalProblem(KERNEL, ArraySource(X, torch.zeros(4096, 1)), Z, None, 1.0, 1)
    shards = problem.shards()

    def bare():
        for rows in X.split(256):
            K = torch.mm(rows, Z.T).mul_(-0.01).exp_()
            torch.mm(K.T, torch.mm(K, v))

    return lambda: problem.sum_shards(shards, lambda shard: shard.normal(v.double())), bare


def direct_solver():
    """Ridge regression on 1,500 rows that are all centres, beside one Cholesky factor."""
    X = random_rows(1500, torch.float64)
    problem = LocalProblem(KERNEL, ArraySource(X, X[:, :1].sin()), X, None, 1.5, 1)
    A = torch.eye(1500, dtype=torch.float64) + KERNEL(X, X)
    return lambda: Direct().solve(problem), lambda: torch.linalg.cholesky(A)


def nearest_centroid():
    """The cell of each row beside a GEMM and the place of its largest entry."""
    X, C = random_rows(100_000), random_rows(256)

    def bare():
        for rows in X.split(4000):
            torch.mm(rows, C.T).argmax(1)

    return lambda: assign(KERNEL, X, C), bare


def prediction():
    """predict with one cell of 1,000 centres beside a GEMM, exp and K v."""
    X = random_rows(20_000)
    settings = {"kernel": KERNEL, "penalty": 1e-4, "metric": "euclidean", "blend": 1, "coarse": 0}
    model = ParKRegressor(**settings, n_cells=1, random_state=0)
    model.fit(X[:1000].numpy(), X[:1000, 0].sin().numpy())
    rows, Z, v = X.numpy(), X[:1000], torch.ones(1000, 1)

    def bare():
        for part in X.split(1000):
            torch.mm(torch.mm(part, Z.T).mul_(-0.01).exp_(), v)

    return lambda: model.predict(rows), bare


def parquet_rows():
    """Blocks of rows from a file beside pyarrow's decoding of it."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "rows.parquet"
    columns = np.random.default_rng(0).normal(size=(D, 200_000))
    table = pa.table({f"x{i}": values for i, values in enumerate(columns)})
    pq.write_table(table, path, row_group_size=50_000)
    names = table.column_names
    rows = scan_parquet(str(path), target="x0")

    def bare():
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            file.read_row_group(group, names, use_threads=False)

    weakref.finalize(bare, folder.cleanup)
    return lambda: list(rows.blocks(50_000, names)), bare


OPERATIONS = (
    kernel_block,
    solver_product,
    direct_solver,
    nearest_centroid,
    prediction,
    parquet_rows,
)


def seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(operation, rounds):
    """The median over rounds of the seconds of ours over those of the bare operation."""
    ours, bare = operation()
    ours(), bare()  # the first call compiles, allocates and fills caches
    ratios = [seconds(ours) / seconds(bare) for _ in range(rounds)]
    return statistics.median(ratios)


def version_of(path):
    return tuple(int(part) for part in path.stem.split("."))


def compare(rounds, factor):
    """Print each ratio beside that of the last release; return the operations that are slower."""
    last = max(HISTORY.glob("*.json"), key=version_of)
    before = json.loads(last.read_text())["ratios"]
    slower = []
    for operation in OPERATIONS:
        name = operation.__name__
        limit = factor * before[name]
        ratio = measure(operation, rounds)
        if ratio > limit:  # once more: a burst of other work can last as long as all rounds
            ratio = min(ratio, measure(operation, 3 * rounds))
        if ratio > limit:
            slower.append(name)
        print(f"{name:17} {ratio:6.2f}   {last.stem}: {before[name]:.2f}   limit: {limit:.2f}")
    return slower


def write(rounds):
    """Measure and write the file of this version."""
    name = parkrr.__version__.partition(".dev")[0]
    ratios = {operation.__name__: round(measure(operation, rounds), 3) for operation in OPERATIONS}
    record = {"parkrr": name, "machine": machine(), "rounds": rounds, "ratios": ratios}
    text = json.dumps(record, indent=1)
    (HISTORY / f"{name}.json").write_text(text + "\n")
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--compare", action="store_true", help="with the last file; write nothing")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--factor", type=float, default=1.5, help="from which on it fails")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.compare:
        write(arguments.rounds)
    elif slower := compare(arguments.rounds, arguments.factor):
        sys.exit(f"more than {arguments.factor} times as slow: {', '.join(slower)}")


if __name__ == "__main__":
    main()
