"""Cells, centres, tasks and passes of a fit from disk, and the bytes and seconds it takes.

A worker holds 8 m_q (m_q + t) bytes of statistics for each cell it adds up, some copies of a block
of rows, and the row group it reads. There are as many passes over the rows as it takes for the
statistics to fit in memory.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from parkrr.data import (
    BLOCK_BYTES,
    EncodedTable,
    ParquetTable,
    Target,
    count_sampled_groups,
    largest_width,
    learn_encoded_table,
    learn_target,
)
from parkrr.errors import (
    BudgetError,
    ParameterError,
    check_bool,
    check_bytes,
    check_column_kinds,
    check_integer_or,
)
from parkrr.partition import PARTITION_ROWS_PER_CELL
from parkrr.planning.machine_speed import MachineSpeed
from parkrr.planning.sizes import FitSize, coarse_seconds, estimate_seconds, estimate_tuning_bytes
from parkrr.runtime import Engine, as_engine, describe_bytes
from parkrr.uncertainty import FOLDS, SCALE_CENTERS

# Centres of a cell, rows for each of them at least, and most cells, unless they are given: a row
# costs m_q^2 products.
CENTERS, ROWS_PER_CENTER, MOST_CELLS = 400, 10, 4096
COLUMN_ROWS = 100_000  # from which encoders are learned
LOADED_ROWS = 3_000_000  # up to here every row can be a centre, so rows are loaded
LOADED_COPIES = 4  # of the rows, while they are fitted in memory
MEMORY = 4e9  # bytes, unless max_memory is given
PROCESS_BYTES = 7e8  # Python with torch, pyarrow and scikit-learn, and some more
BLOCK_COPIES = 14  # of a block of rows, from Arrow to sorted and lifted
USUAL_BLOCK_COPIES = 6  # that are there at once; a promise counts with more
GROUP_COPIES = 2  # of a row group, while it is decoded and cut
SAMPLE_COPIES = 6  # of the sample and of the centres
USED = 0.8  # share of a worker's memory that statistics take
SLICE_ROWS = 2_000_000  # of one task, and between 8 and 64 of them
SLICE_DISK = 8e9  # bytes of statistics on disk, if that leaves 8 tasks
LEAST_SAMPLE = 100_000  # rows
# Rows that are each left out to measure uncertainty, of each cell and at least and at most.
LEFT_OUT_PER_CELL, LEFT_OUT_ROWS = 200, (20_000, 400_000)
SORT_COPIES = 6  # of the rows that a task sorts, or of a cell's while it is fitted
LEAST_WORKSPACE = 2**24
WRITTEN, READ = 5e8, 2e9  # bytes a second of statistics, through the file cache
SOLVE = 6.0  # products of a cell from its statistics, over m^3


@dataclass(frozen=True)
class DiskPlan:
    """Sizes of a fit from disk."""

    n_cells: int
    n_centers: int  # of all cells together
    n_slices: int  # tasks of a pass
    n_groups: int  # passes, each for some of the cells
    n_sample: int  # rows that choices are made on
    n_left_out: int  # rows that are each left out to measure uncertainty
    n_workers: int  # tasks that run here at once
    room: float  # bytes each has for statistics or for the rows of a cell
    sort_rows: int  # rows that one can sort


def stays_on_disk(table: ParquetTable, params: dict[str, Any]) -> bool:
    """Whether rows are too many to load, or a checkpoint needs tasks."""
    limit = check_bytes("max_memory", params["max_memory"]) or MEMORY
    width = largest_width(table.schema, table.features, check_column_kinds(params["columns"]))
    width += len(table.target)
    large = table.n_rows > LOADED_ROWS or table.n_rows * 8 * width * LOADED_COPIES > limit / 2
    return large or params["checkpoint"] is not None


def learn_table(
    table: ParquetTable, params: dict[str, Any], seed: int, classify: bool
) -> EncodedTable:
    """The table with encoders of its columns and its target."""
    if not table.target:
        raise ParameterError("target must name a column to fit; scan_parquet(..., target=...)")
    engine, shown = as_engine(params["engine"]), check_bool("progress", params["progress"])
    target = learn_target(table, classify, params.get("class_weight"), engine)
    declared = check_column_kinds(params["columns"])
    return learn_encoded_table(table, target, declared, COLUMN_ROWS, seed, engine, shown)


def count_outputs(target: Target) -> int:
    """Columns the target becomes."""
    if target.classes is None:
        return len(target.names)
    return 1 if len(target.classes) == 2 else len(target.classes)


def sizes_on_disk(rows: EncodedTable, params: dict[str, Any], engine: Engine) -> DiskPlan:
    """Cells, centres, tasks and passes for a table; on Ray the memory is that of each task."""
    return choose_disk_sizes(
        rows.n_rows,
        rows.columns.width,
        count_outputs(rows.target),
        n_cells=check_integer_or("n_cells", params["n_cells"], "auto"),
        n_centers=check_integer_or("n_centers", params["n_centers"], "auto"),
        cores=1 if engine.remote else engine.cores,
        max_memory=check_bytes("max_memory", params["max_memory"]),
        group_bytes=max(group.n_bytes for group in rows.table.row_groups),
    )


def choose_disk_sizes(
    n: int,
    width: int,
    t: int,
    n_cells: int | None,
    n_centers: int | None,
    cores: int,
    max_memory: float | None,
    group_bytes: int,
) -> DiskPlan:
    """What is not given, for n rows on disk of `width` features and t targets as numbers.

    `group_bytes` are those of the largest row group, decoded. The automatic number of cells counts
    with two workers, however many there are, so that a model does not depend on the machine.
    """
    limit = max_memory or MEMORY

    def workspace(workers: int, sample: int) -> float:
        """Bytes of statistics that each of so many workers may hold; below zero if none."""
        shared = PROCESS_BYTES + SAMPLE_COPIES * 8 * sample * (width + t)
        own = BLOCK_COPIES * BLOCK_BYTES + GROUP_COPIES * group_bytes
        return USED * ((limit - shared) / workers - own)

    cells = n_cells
    if cells is None:
        sampled = SAMPLE_COPIES * 8 * (CENTERS + LEFT_OUT_PER_CELL) * (width + t) / 2
        each = 8 * CENTERS * (CENTERS + t) + USED * sampled
        two = workspace(2, LEAST_SAMPLE)
        total = two if two > 0 else workspace(1, LEAST_SAMPLE)
        cells = max(1, min(MOST_CELLS, int(total / each), n // (CENTERS * ROWS_PER_CENTER)))
    centers = n_centers or CENTERS * cells
    sample = min(n, max(centers, PARTITION_ROWS_PER_CELL * cells, LEAST_SAMPLE))
    few, many = LEFT_OUT_ROWS
    left_out = min(n, many, max(few, LEFT_OUT_PER_CELL * cells))
    statistics = 8.0 * centers * (centers / cells + t)
    largest = 3 * 8.0 * (2.7 * centers / cells) ** 2  # of one cell, and what solves it
    need = max(largest, LEAST_WORKSPACE)
    rooms = {workers: workspace(workers, sample + left_out) for workers in range(1, cores + 1)}
    possible = [workers for workers, room in rooms.items() if room >= need]
    if not possible:
        least = limit + (need - rooms[1]) / USED
        raise BudgetError(
            f"max_memory must be at least {describe_bytes(least)} for rows on disk with "
            f"n_cells={cells}, n_centers={centers}, {width} numbers a row and row groups of up to "
            f"{describe_bytes(group_bytes)}, got {describe_bytes(limit)}; raise it, or lower "
            f"n_centers"
        )
    # More workers, or fewer with memory for fewer passes: whichever is faster.
    workers = max(possible, key=lambda w: (w / math.ceil(statistics / rooms[w]), w))
    room = rooms[workers]
    tasks = max(8, min(64, n // SLICE_ROWS))
    return DiskPlan(
        n_cells=cells,
        n_centers=centers,
        n_slices=max(8, min(tasks, int(SLICE_DISK / statistics))),
        n_groups=math.ceil(statistics / room),
        n_sample=sample,
        n_left_out=left_out,
        n_workers=workers,
        room=room,
        sort_rows=max(1, min(SLICE_ROWS, int(room / (SORT_COPIES * 8 * (2 * width + t + 1))))),
    )


def count_passes(plan: DiskPlan, statistics: int) -> int:
    """Passes, once the size of all statistics is known."""
    return max(1, math.ceil(statistics / plan.room))


@dataclass(frozen=True)
class DiskFitSize:
    """A fit from disk in numbers."""

    sizes: DiskPlan
    sample: FitSize  # what choices are made on, as a fit in memory
    n: int  # rows
    groups: int  # row groups
    group_bytes: int  # of the largest row group, decoded
    row_seconds: float  # to read a row and encode it, on one core
    has_categories: bool  # which one more reading counts

    @property
    def centers(self) -> float:
        """Centres of a cell."""
        return self.sizes.n_centers / self.sizes.n_cells

    @property
    def sample_rows(self) -> int:
        """Rows of the sample and those that are left out."""
        return min(self.n, self.sizes.n_sample + self.sizes.n_left_out)

    @property
    def sampling_reads(self) -> float:
        """How often all rows are read before the passes."""
        groups = count_sampled_groups(self.sample_rows, self.groups, self.n)
        return 2 * min(1.0, groups / self.groups) + self.has_categories

    @property
    def statistics(self) -> float:
        """Bytes of statistics of all cells."""
        return 8.0 * self.sizes.n_centers * (self.centers + self.sample.t)

    @property
    def bytes_written(self) -> float:
        """Bytes of statistics that tasks leave for each other."""
        return self.statistics * self.sizes.n_slices


def estimate_disk_seconds(size: DiskFitSize, speed: MachineSpeed) -> dict[str, float]:
    """Seconds of every step."""
    sizes, m, workers = size.sizes, size.centers, size.sizes.n_workers
    sample = estimate_seconds(size.sample, speed)
    reading = size.sampling_reads * size.n * size.row_seconds
    own_steps = ("partition", "cells", "uncertainty")
    seconds = {step: each for step, each in sample.items() if step not in own_steps}
    seconds["sample and partition"] = reading / workers + sample["partition"]
    products = m * (speed.short_value + m * speed.product)
    row = size.row_seconds + sizes.n_cells * speed.distance + products / sizes.n_groups
    seconds["pass"] = sizes.n_groups * size.n * row / workers + size.bytes_written / WRITTEN
    solves = sizes.n_cells * (m**2 * speed.value + SOLVE * m**3 * speed.product) / workers
    seconds["cells"] = solves + size.bytes_written / READ
    h = sizes.n_left_out
    widths = (FOLDS + 1) * coarse_seconds(size.sample, speed, SCALE_CENTERS, h)
    seconds["uncertainty"] = widths + h * (speed.schur + 3 * m * speed.short_value) / workers
    return seconds


def estimate_disk_bytes(size: DiskFitSize) -> float:
    """Most that the process holds, itself included."""
    sample = SAMPLE_COPIES / 2 * 8.0 * size.sample_rows * (size.sample.d + size.sample.t)
    own = USUAL_BLOCK_COPIES * BLOCK_BYTES + GROUP_COPIES * size.group_bytes
    passing = size.sizes.n_workers * (own + size.statistics / size.sizes.n_groups)
    tuning = estimate_tuning_bytes(replace(size.sample, n=size.sample_rows))
    return PROCESS_BYTES + sample + max(passing, tuning)
