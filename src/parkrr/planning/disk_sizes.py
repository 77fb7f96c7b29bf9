"""Cells, centres, tasks and passes of a fit from disk, within a promise of memory.

A worker holds 8 m_q (m_q + t) bytes of statistics for each cell it adds up, some copies of a block
of rows, and the row group it reads.
"""

import math
from dataclasses import dataclass
from typing import Any

from parkrr.data import (
    BLOCK_BYTES,
    EncodedTable,
    ParquetTable,
    Target,
    largest_width,
    learn_encoded_table,
    learn_target,
)
from parkrr.errors import BudgetError, ParameterError, check_bool, check_bytes
from parkrr.partition import PARTITION_ROWS_PER_CELL
from parkrr.planning.settings import given_sizes
from parkrr.runtime import Engine, as_engine, told_bytes

# Centres of a cell, rows for each of them at least, and most cells, unless the user says
# otherwise: a row costs m_q^2 products.
CENTERS, ROWS_A_CENTER, MOST_CELLS = 400, 10, 4096
LOOK_ROWS = 100_000  # from which columns are learned
LOADED_ROWS = 3_000_000  # up to here every row can be a centre, so rows are loaded
LOADED_COPIES = 4  # of the rows, while they are fitted in memory
MEMORY = 4e9  # bytes, unless the user says otherwise
PROCESS_BYTES = 7e8  # Python with torch, pyarrow and scikit-learn, and some room
BLOCK_COPIES = 14  # of a block of rows, from Arrow to sorted and lifted
GROUP_COPIES = 2  # of a row group, while it is decoded and cut
SAMPLE_COPIES = 6  # of the sample and of the centres
USED = 0.8  # share of the room that statistics take
SLICE_ROWS = 2_000_000  # of one task, and between 8 and 64 of them
SLICE_DISK = 8e9  # bytes of statistics on disk, if that leaves 8 tasks
LEAST_SAMPLE = 100_000  # rows
# Rows that are each left out to measure uncertainty, of each cell and at least and at most.
LEFT_OUT_A_CELL, LEFT_OUT_ROWS = 200, (20_000, 400_000)
SORT_COPIES = 6  # of the rows that a task sorts, or of a cell's while it is fitted
LEAST_ROOM = 2**24


@dataclass(frozen=True)
class DiskPlan:
    """Of a fit from disk.

    Parameters
    ----------
    n_cells, n_centers
        Cells, and centres of all cells together.
    n_slices, n_groups
        Tasks of a pass; passes, each for some of the cells.
    n_sample, n_left_out
        Rows that decide; rows that are each left out to measure uncertainty.
    n_workers
        Tasks that run here at once.
    room
        Bytes each has for statistics or for the rows of a cell.
    sort_rows
        Rows that one can sort.
    """

    n_cells: int
    n_centers: int
    n_slices: int
    n_groups: int
    n_sample: int
    n_left_out: int
    n_workers: int
    room: float
    sort_rows: int


@dataclass(frozen=True)
class MemoryBudget:
    """Memory, and what of it is not for statistics.

    Parameters
    ----------
    limit
        Bytes of the whole process.
    width, t
        Numbers of a row that are features, and targets.
    group_bytes
        Of the largest row group, decoded.
    sample
        Rows that decide, centres among them.
    """

    limit: float
    width: int
    t: int
    group_bytes: int
    sample: int

    def room(self, workers: int) -> float:
        """Bytes of statistics that each of so many workers may hold; below zero if none."""
        shared = PROCESS_BYTES + SAMPLE_COPIES * 8 * self.sample * (self.width + self.t)
        own = BLOCK_COPIES * BLOCK_BYTES + GROUP_COPIES * self.group_bytes
        return USED * ((self.limit - shared) / workers - own)


def plan_disk(
    n: int,
    width: int,
    t: int,
    n_cells: int | None,
    n_centers: int | None,
    cores: int,
    max_memory: float | None,
    group_bytes: int,
) -> DiskPlan:
    """What is not given, for n rows of so many numbers that stay on disk."""
    first = MemoryBudget(max_memory or MEMORY, width, t, group_bytes, LEAST_SAMPLE)
    cells = n_cells or automatic_cells(n, first)
    centers = n_centers or CENTERS * cells
    sample = min(n, max(centers, PARTITION_ROWS_PER_CELL * cells, LEAST_SAMPLE))
    few, many = LEFT_OUT_ROWS
    left_out = min(n, many, max(few, LEFT_OUT_A_CELL * cells))
    promise = MemoryBudget(first.limit, width, t, group_bytes, sample + left_out)
    statistics = 8.0 * centers * (centers / cells + t)
    largest = 3 * 8.0 * (2.7 * centers / cells) ** 2  # of one cell, and what solves it
    need = max(largest, LEAST_ROOM)
    fits = [w for w in range(1, cores + 1) if promise.room(w) >= need]
    if not fits:
        least = promise.limit + (need - promise.room(1)) / USED
        raise BudgetError(
            f"max_memory must be at least {told_bytes(least)} for rows on disk with "
            f"n_cells={cells}, n_centers={centers}, {width} numbers a row and row groups of up to "
            f"{told_bytes(group_bytes)}, got {told_bytes(promise.limit)}; raise it, or lower "
            f"n_centers"
        )
    # More workers, or fewer with room to do it in fewer passes: whichever is faster.
    workers = max(fits, key=lambda w: (w / math.ceil(statistics / promise.room(w)), w))
    room = promise.room(workers)
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


def automatic_cells(n: int, promise: MemoryBudget) -> int:
    """As many as two workers have room for, there are rows for, and at most so many.

    Two, however many there are, so that a model does not depend on the machine.
    """
    drawn = CENTERS + LEFT_OUT_A_CELL
    sample = SAMPLE_COPIES * 8 * drawn * (promise.width + promise.t) / 2
    each = 8 * CENTERS * (CENTERS + promise.t) + USED * sample
    room = promise.room(2) if promise.room(2) > 0 else promise.room(1)
    return max(1, min(MOST_CELLS, int(room / each), n // (CENTERS * ROWS_A_CENTER)))


def groups_of(plan: DiskPlan, statistics: int) -> int:
    """Passes, once the size of all statistics is known."""
    return max(1, math.ceil(statistics / plan.room))


def stays_on_disk(table: ParquetTable, params: dict[str, Any]) -> bool:
    """Whether rows are too many to load, or a checkpoint asks for tasks."""
    limit = check_bytes("max_memory", params["max_memory"]) or MEMORY
    width = largest_width(table.schema, table.features) + len(table.target)
    large = table.n_rows > LOADED_ROWS or table.n_rows * 8 * width * LOADED_COPIES > limit / 2
    return large or params["checkpoint"] is not None


def learned(table: ParquetTable, params: dict[str, Any], seed: int, classify: bool) -> EncodedTable:
    """The table with what its columns become."""
    if not table.target:
        raise ParameterError("target must name a column to fit; scan_parquet(..., target=...)")
    engine, shown = as_engine(params["engine"]), check_bool("progress", params["progress"])
    target = learn_target(table, classify, params.get("class_weight"), engine)
    return learn_encoded_table(table, target, LOOK_ROWS, seed, engine, shown)


def n_outputs(target: Target) -> int:
    """Columns the target becomes."""
    if target.classes is None:
        return len(target.names)
    return 1 if len(target.classes) == 2 else len(target.classes)


def sizes_on_disk(rows: EncodedTable, params: dict[str, Any], engine: Engine) -> DiskPlan:
    """Cells, centres, tasks and passes for a table; on Ray the memory is that of each task."""
    return plan_disk(
        rows.n_rows,
        rows.columns.width,
        n_outputs(rows.target),
        **given_sizes(params),
        cores=1 if engine.remote else engine.cores,
        max_memory=check_bytes("max_memory", params["max_memory"]),
        group_bytes=max(group.n_bytes for group in rows.table.row_groups),
    )
