"""The solver's K'(K v) against the bare torch operations on the same blocks.

Bare means a GEMM, an exp, K v and K'u on buffers of the same shapes, each alone in a loop,
and nothing else. Both run a thread on every core with torch on one thread each.

    python benchmarks/hot_loop.py
"""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import Gaussian
from parkrr.runtime.engine import LocalEngine, torch_threads
from parkrr.solvers.problem import LocalProblem, Shard
from recording import record

ENTRIES = 3e8  # kernel values in a pass
ROUNDS = 21


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def bare_operations(shard: Shard, v):
    """The four operations of a block, as functions that do one of them."""
    A = shard.rows.X[: shard.block_rows]
    G = torch.mm(A, shard.kernel_block.fixed)
    K = G.exp()
    u, K_t = K @ v, K.T
    out_u, out_v = torch.empty_like(u), torch.empty_like(v)
    other = torch.empty_like(G)
    # The solver's exp is in place, which a loop cannot repeat. From one half of a block into
    # the other half, twice, touches the same memory.
    half = G.numel() // 2
    source, target = G.flatten()[:half], other.flatten()[:half]

    def exp():
        torch.exp(source, out=target)
        torch.exp(source, out=target)

    return {
        "gemm": lambda: torch.mm(A, shard.kernel_block.fixed, out=other),
        "exp": exp,
        "Kv": lambda: torch.mm(K, v, out=out_u),
        "K'u": lambda: torch.mm(K_t, u, out=out_v),
    }


def repeated(operation, times):
    for _ in range(times):
        operation()


def measure(m, d, cores):
    """Seconds of the bare operations and of the solver, over several rounds."""
    torch.manual_seed(0)
    n = int(ENTRIES / m)
    cell = ArraySource(torch.randn(n, d), torch.zeros(n, 1))
    problem = LocalProblem(Gaussian(d**0.5), cell, torch.randn(m, d), None, 1.0, cores)
    shards = problem.shards()
    v = torch.randn(m, 1, dtype=torch.float64)
    operations = [bare_operations(shard, v.float()) for shard in shards]
    times = [shard.rows.n_rows / shard.block_rows for shard in shards]
    rounds = []
    with torch_threads(1), ThreadPoolExecutor(cores) as pool:
        for _ in range(ROUNDS + 1):
            bare = {}
            for name in operations[0]:
                work = [op[name] for op in operations]
                counts = [round(count) for count in times]
                bare[name] = seconds(lambda w=work, c=counts: list(pool.map(repeated, w, c)))
            ours = seconds(lambda: problem.sum_shards(shards, lambda shard: shard.normal(v)))
            rounds.append({**bare, "ours": ours, "ratio": sum(bare.values()) / ours})
    rounds = rounds[1:]
    median = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
    ratios = sorted(r["ratio"] for r in rounds)
    return {
        "m": m,
        "d": d,
        "block_rows": shards[0].block_rows,
        "entries_per_second": {k: n * m / s for k, s in median.items() if k != "ratio"},
        "ratio": median["ratio"],
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
    }


def main():
    cores = LocalEngine().cores
    results = [measure(m, d, cores) for d in (9, 28, 90) for m in (300, 1000, 3000, 10000)]
    names = ["gemm", "exp", "Kv", "K'u", "ours"]
    rows = [
        [
            r["d"],
            r["m"],
            r["block_rows"],
            *(f"{r['entries_per_second'][name] / 1e9:.2f}" for name in names),
            f"{r['ratio']:.2f} ({r['ratio_quartiles'][0]:.2f} to {r['ratio_quartiles'][1]:.2f})",
        ]
        for r in results
    ]
    record(
        "hot_loop",
        results,
        "K'(K v) of the solver against the bare operations",
        ["d", "m", "rows a block", *(f"{name}, 10^9/s" for name in names), "ours / bare"],
        rows,
        [
            f"Kernel entries a second on {cores} cores; median of {ROUNDS} rounds, quartiles in",
            "brackets. 1.00 would be the four bare operations one after the other.",
        ],
    )


if __name__ == "__main__":
    main()
