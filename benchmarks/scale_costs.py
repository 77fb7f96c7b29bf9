"""What fits of 10^6 to 10^11 rows take: cells, centres, bytes, core-hours, model size, price.

    python benchmarks/scale_costs.py

Sizes are those that the library plans for 9 numeric features and one target. Core-seconds are
projected from the fits of 10^7 and 10^8 rides in benchmarks/results/learning_curve.json, which have
nine features: their difference is what rows take, and the rest is there however many there are.
Prices are the list prices named below; put your own there.
"""

import json

from parkrr.planning.disk_sizes import choose_region_sizes
from recording import RESULTS, record

FEATURES, WIDTH, TARGETS = 9, 18, 1  # normal scores may stand beside features
ROW_BYTES = 4 * (FEATURES + TARGETS)  # of files of float32, without compression
GROUP_BYTES = 2**26
CORES, MEMORY = 16, 64e9  # of a machine, m7i.4xlarge
DOLLARS_PER_HOUR = 0.8064  # of that machine on demand, us-east-1, list price of 2025
DOLLARS_PER_GB_MONTH = 0.023  # S3 Standard
DOLLARS_PER_1000_WRITES, DOLLARS_PER_1000_READS = 0.005, 0.0004
SCRATCH_DAYS = 1  # that sorted rows stay in the bucket
NODES = (1, 10, 100)


def measured():
    """Core-seconds of a row, and core-seconds of a fit besides, from two fits."""
    results = json.loads((RESULTS / "learning_curve.json").read_text())["results"]
    few, many = (results[f"rides, {n:,}"] for n in (10**7, 10**8))
    row_seconds = (many["core_seconds"] - few["core_seconds"]) / (many["rows"] - few["rows"])
    return row_seconds, few["core_seconds"] - few["rows"] * row_seconds


def project(n, row_seconds, fixed_seconds):
    """The plan of n rows, and what it takes."""
    sizes = choose_region_sizes(n, WIDTH, TARGETS, None, CORES, MEMORY, GROUP_BYTES, 2000)
    written = n * 4 * (WIDTH + TARGETS + 1) + 8 * sizes.n_centers * (WIDTH + TARGETS)
    tasks = -(-n // sizes.sort_rows)
    core_seconds = n * row_seconds
    requests = (tasks + sizes.n_regions) / 1000 * DOLLARS_PER_1000_WRITES
    requests += tasks * sizes.n_regions / 1000 * DOLLARS_PER_1000_READS
    scratch = written / 1e9 * DOLLARS_PER_GB_MONTH * SCRATCH_DAYS / 30
    hours = {nodes: (fixed_seconds / 2 + core_seconds / (CORES * nodes)) / 3600 for nodes in NODES}
    return {
        "cells": sizes.n_cells,
        "centers": sizes.n_centers,
        "regions": sizes.n_regions,
        "read_bytes": n * ROW_BYTES,
        "written_bytes": written,
        "model_bytes": sizes.n_centers * (4 * WIDTH + 8 * TARGETS),
        "core_hours": (core_seconds + fixed_seconds) / 3600,
        "hours": hours,
        "dollars": {
            nodes: nodes * hours[nodes] * DOLLARS_PER_HOUR + requests + scratch for nodes in NODES
        },
        "request_dollars": requests,
        "scratch_dollars": scratch,
    }


def describe_bytes(n):
    size, unit = (n / 1e9, "GB") if n >= 1e9 else (n / 1e6, "MB")
    return f"{size:,.0f} {unit}" if size >= 10 else f"{size:.1f} {unit}"


def describe_hours(hours):
    if hours < 0.05:
        return f"{3600 * hours:.0f} s"
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.0f} h"


def main():
    row_seconds, fixed = measured()
    results, rows = {}, []
    for power in range(6, 12):
        each = results[f"10^{power}"] = project(10**power, row_seconds, fixed)
        rows.append(
            [
                f"10^{power}",
                f"{each['regions']:,}",
                f"{each['cells']:,}",
                f"{each['centers']:.1e}",
                describe_bytes(each["read_bytes"]),
                describe_bytes(each["written_bytes"]),
                describe_bytes(each["model_bytes"]),
                f"{each['core_hours']:.3g}",
                *(
                    f"{describe_hours(each['hours'][nodes])}, ${each['dollars'][nodes]:,.2f}"
                    for nodes in NODES
                ),
            ]
        )
    header = ["rows", "regions", "cells", "centres", "read", "written and read again", "model"]
    header += ["core-hours", *(f"{nodes} machine{'s' * (nodes > 1)}" for nodes in NODES)]
    notes = [
        f"Projected from 10^7 and 10^8 rows: {1e6 * row_seconds:.1f} core-microseconds a row, and "
        f"{fixed:.0f} core-seconds besides, on two cores. Up to 3 million rows every row is a "
        f"centre, which takes longer than the line of 10^6 rows tells.",
        f"Machines of {CORES} cores and {MEMORY / 1e9:.0f} GB at ${DOLLARS_PER_HOUR} an hour; "
        f"${DOLLARS_PER_GB_MONTH} a GB and month, ${DOLLARS_PER_1000_WRITES} for 1,000 writes, "
        f"${DOLLARS_PER_1000_READS} for 1,000 reads. Storage of your own rows is not counted.",
    ]
    record("scale_costs", results, "What fits take", header, rows, notes)


if __name__ == "__main__":
    main()
