"""A fit killed at 20 random moments and started again: `killed.py rows folder cells centers`.

Forks before torch has threads, so that a start costs milliseconds. Prints what happened.
"""

import json
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import torch

from ondisk import on_disk
from parkrr import scan_parquet
from parkrr.planning import disk_sizes

KILLS = 20


def fit(rows, checkpoint, result):
    disk_sizes.LEAST_REGION = 1000  # or these rows would be one region
    n_cells, n_centers = map(json.loads, sys.argv[3:])
    model = on_disk(checkpoint, n_cells=n_cells, n_centers=n_centers, progress=False)
    model.fit(scan_parquet(rows, target="y"))
    torch.save([*model.model_.weights, *model.model_.centers], result)


def in_a_process(seconds, *arguments):
    """Run a fit for so long at most; whether it came to its end."""
    process = multiprocessing.get_context("fork").Process(target=fit, args=arguments)
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode == 0


def markers(checkpoint):
    return {path.name: path.stat().st_mtime_ns for path in checkpoint.glob("*.json")}


def main():
    rows, folder = Path(sys.argv[1]), Path(sys.argv[2])
    for name in ("cold", "whole"):
        start = time.perf_counter()
        assert in_a_process(None, rows, folder / name, folder / f"{name}.pt")
    whole = time.perf_counter() - start
    rng = np.random.default_rng(0)
    again, kills, number, seen = set(), 0, 0, {}
    while kills < KILLS and number < 3 * KILLS:
        checkpoint = folder / f"killed-{number}"
        start = time.perf_counter()
        ended = in_a_process(rng.uniform(0, whole), rows, checkpoint, folder / "x")
        if ended and checkpoint not in seen:  # other programs had slowed the first one down
            whole = min(whole, time.perf_counter() - start)
        kills, number = kills + (not ended), number + ended
        there = markers(checkpoint)
        before = seen.setdefault(checkpoint, {})
        # Sorted rows are deleted at the end.
        again |= {name for name, when in before.items() if there.get(name, when) != when}
        before.update(there)
    same = []
    for checkpoint, before in seen.items():
        result = checkpoint.with_suffix(".pt")
        assert in_a_process(None, rows, checkpoint, result)
        pairs = zip(torch.load(result), torch.load(folder / "whole.pt"), strict=True)
        same.append(all(torch.equal(a, b) for a, b in pairs))
        after = markers(checkpoint)
        again |= {name for name, when in before.items() if after.get(name, when) != when}
    print(json.dumps({"kills": kills, "run again": sorted(again), "same": all(same)}))


if __name__ == "__main__":
    main()
