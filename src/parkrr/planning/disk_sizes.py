"""Cells, centres, tasks and passes of a fit from disk, and the bytes and seconds it takes.

A worker holds 8 m_q (m_q + t) bytes of statistics for each cell it adds up, some copies of a block
of rows, and the row group it reads. There are as many passes over the rows as it takes for the
statistics to fit in memory.
"""

import math
from dataclasses import dataclass, replace
from itertools import product
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
from parkrr.planning.settings import check_effort, check_keep_statistics, size_fit
from parkrr.planning.sizes import (
    CROSS_FIT,
    EVEN,
    LADDER,
    LIMITS,
    NYSTROM_COPIES,
    FitSize,
    cells_seconds,
    center_bytes,
    coarse_seconds,
    estimate_seconds,
    estimate_tuning_bytes,
    largest_cell_rows,
    model_bytes,
    partition_seconds,
    uncertainty_seconds,
    usual_model_bytes,
)
from parkrr.runtime import Engine, as_engine, describe_bytes
from parkrr.uncertainty import SCALE_CENTERS

# Centres of a cell, rows for each of them at least, and most cells, unless they are given: a row
# costs m_q^2 products.
CENTERS, ROWS_PER_CENTER, MOST_CELLS = 400, 10, 4096
CELL_ROWS = 4000  # of a cell of `CENTERS` centres, where rows are sorted
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
# Rows that choices are made on. Up to `LOADED_ROWS` they are all that memory holds, as in a fit in
# memory: houseelectric has an error of 0.0241 with its 1.6 million, and of 0.0261 with 870,000.
LEAST_SAMPLE, MOST_SAMPLE = 100_000, 1_000_000
SAMPLE_SHARE = 0.3  # of the memory beside the process; the sample is gone when regions are fitted
ALLOCATOR_SHARE = 1 / 8  # of the memory: freed, but not yet returned, while regions are fitted
# Rows and cells of a region at least, and its rows, or those of a cell, over the mean at most.
LEAST_REGION, LEAST_CELLS, HEAVIEST = 50_000, 4, 2.7
# Of the centres, and bytes of those that are prepared, when all regions are joined to a model.
MODEL_COPIES, PREPARED_BYTES = 2, 2.7e8
CELL_COPIES = 1.5  # matrices of a cell whose every row is a centre: its factor, and blocks
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
    room: float  # bytes each has for statistics or for the rows of a cell or region
    sort_rows: int  # rows that one can sort
    n_regions: int = 0  # that rows are sorted by; 0 for statistics of all cells in one pass


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
    """Cells, centres, tasks and passes for a table; on Ray the memory is that of each task.

    Rows are sorted by region and fitted as those in memory are, with as many centres as there is
    use for. Where their number is given, or there is no memory for that, a pass adds up statistics.
    """
    n, width, t = rows.n_rows, rows.columns.width, count_outputs(rows.target)
    n_cells = check_integer_or("n_cells", params["n_cells"], "auto")
    n_centers = check_integer_or("n_centers", params["n_centers"], "auto")
    cores = 1 if engine.remote else engine.cores
    limit = check_bytes("max_memory", params["max_memory"]) or MEMORY
    group_bytes = max(group.n_bytes for group in rows.table.row_groups)
    kept = check_keep_statistics(params["keep_statistics"])  # of cells with few centres
    most = None
    if (most_bytes := check_bytes("max_model_size", params["max_model_size"])) is not None:
        free = {"max_memory": None, "max_model_size": None, "time_budget": "auto"}
        whole = size_fit({**params, **free}, n, width, t, EVEN)
        most = max(1, int(most_bytes / center_bytes(whole)))
    if n_centers is None and params["solver"] != "falkon" and not kept:
        largest = largest_cell_rows(n, check_effort(params))
        plan = choose_region_sizes(n, width, t, n_cells, cores, limit, group_bytes, largest, most)
        if plan is not None:
            return plan
    return choose_disk_sizes(n, width, t, n_cells, n_centers, cores, limit, group_bytes, most)


def choose_region_sizes(
    n: int,
    width: int,
    t: int,
    n_cells: int | None,
    cores: int,
    limit: float,
    group_bytes: int,
    largest: int,
    most_centers: int | None = None,
) -> DiskPlan | None:
    """Regions, cells and centres of n rows on disk that are sorted; None if memory is too short.

    Up to `LOADED_ROWS` cells are those of a fit in memory, of at most `largest` rows. Beyond, a
    cell has `CELL_ROWS` rows and `CENTERS` centres, so that a row costs the same however many there
    are. A model has at most `most_centers`.
    Sizes count with two workers, or one, however many there are.
    """
    sample = int((limit - PROCESS_BYTES) * SAMPLE_SHARE / (SAMPLE_COPIES * 8 * (width + t)))
    most_rows = n if n <= LOADED_ROWS else MOST_SAMPLE
    sample = min(n, max(LEAST_SAMPLE, min(most_rows, sample)))
    free = (1 - ALLOCATOR_SHARE) * limit - PROCESS_BYTES
    passing = BLOCK_COPIES * BLOCK_BYTES + GROUP_COPIES * group_bytes  # of one worker
    row_bytes = SORT_COPIES * 8 * (2 * width + t + 2)
    held = max(1, int((free - PREPARED_BYTES) / (MODEL_COPIES * 8 * (width + t))))

    def cell_bytes(rows: float, centers: float) -> float:
        copies = CELL_COPIES if centers == rows else NYSTROM_COPIES
        return copies * 8 * (HEAVIEST * centers) ** 2

    ladder = cell_ladder(n, n_cells, largest, min(held, most_centers or n))
    for workers, (rows, centers) in product((2, 1), ladder):
        room = USED * (free / workers - passing)
        most = (room - cell_bytes(rows, centers)) / (HEAVIEST * row_bytes)  # rows of a region
        if most >= min(n, LEAST_CELLS * rows):
            break
    else:
        return None
    region_rows = min(n, most, max(LEAST_REGION, LEAST_CELLS * rows, math.sqrt(n * rows)))
    n_regions = math.ceil(n / region_rows)
    need = cell_bytes(rows, centers) + HEAVIEST * row_bytes * region_rows
    cells = max(1, round(n / rows))
    few, many = LEFT_OUT_ROWS
    return DiskPlan(
        n_cells=cells,
        n_centers=n if centers == rows else min(most_centers or n, round(centers * cells)),
        n_slices=0,
        n_groups=1,
        n_sample=sample,
        n_left_out=min(n, many, max(few, LEFT_OUT_PER_CELL * cells)),
        n_workers=max(1, min(cores, int(free / (need / USED + passing)))),
        room=room,
        sort_rows=max(1, min(SLICE_ROWS, int(min(room, need) / row_bytes))),
        n_regions=3 if n_regions == 2 else n_regions,  # two would not be blended
    )


def cell_ladder(
    n: int, n_cells: int | None, largest: int, most_centers: int
) -> list[tuple[float, float]]:
    """Rows and centres of a cell where rows are sorted by region, from the best to the smallest.

    A model has `most_centers`, or fewer. Where that is less than a tenth of the rows, cells are
    larger.
    """
    if n > LOADED_ROWS:
        rows = n / n_cells if n_cells else max(CELL_ROWS, n * CENTERS / most_centers)
        ladder = [(rows, float(min(rows, CENTERS)))]
    elif n_cells:
        rows = n / n_cells
        ladder = [(rows, rows if rows <= LIMITS.one_cell else float(LIMITS.large_cell_centers))]
    else:
        ladder = [(rows, share * rows) for rows, share in LADDER if rows <= largest]
    most = min(1.0, most_centers / n)
    return [(rows, min(centers, most * rows)) for rows, centers in ladder]


def choose_disk_sizes(
    n: int,
    width: int,
    t: int,
    n_cells: int | None,
    n_centers: int | None,
    cores: int,
    limit: float,
    group_bytes: int,
    most_centers: int | None = None,
) -> DiskPlan:
    """What is not given, for n rows on disk of `width` features and t targets as numbers.

    `group_bytes` are those of the largest row group, decoded. The automatic number of cells counts
    with two workers, however many there are, so that a model does not depend on the machine.
    """

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
    centers = n_centers or min(CENTERS * cells, most_centers or CENTERS * cells)
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
    whole: FitSize  # all rows, as if they were in memory
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
        """Rows of the sample, and those that are left out unless regions have them."""
        more = 0 if self.sizes.n_regions else self.sizes.n_left_out
        return min(self.n, self.sizes.n_sample + more)

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
        """Bytes that tasks leave for each other: sorted rows and centres, or statistics."""
        if not self.sizes.n_regions:
            return self.statistics * self.sizes.n_slices
        e, t = self.sample.width, self.sample.t
        row = (8 if self.whole.float64 else 4) * (e + t + 1)
        return float(self.n * row + 8 * self.sizes.n_centers * (e + t))

    @property
    def model_bytes(self) -> float:
        """Most bytes of centres and their coefficients."""
        return model_bytes(self.whole)


def estimate_disk_seconds(size: DiskFitSize, speed: MachineSpeed) -> dict[str, float]:
    """Seconds of every step."""
    sizes, m, workers = size.sizes, size.centers, size.sizes.n_workers
    sample = estimate_seconds(size.sample, speed)
    reading = size.sampling_reads * size.n * size.row_seconds
    own_steps = ("partition", "cells", "uncertainty")
    seconds = {step: each for step, each in sample.items() if step not in own_steps}
    seconds["sample and partition"] = reading / workers + sample["partition"]
    if sizes.n_regions:
        return seconds | estimate_region_seconds(size, speed)
    products = m * (speed.short_value + m * speed.product)
    row = size.row_seconds + sizes.n_cells * speed.distance + products / sizes.n_groups
    seconds["pass"] = sizes.n_groups * size.n * row / workers + size.bytes_written / WRITTEN
    solves = sizes.n_cells * (m**2 * speed.value + SOLVE * m**3 * speed.product) / workers
    seconds["cells"] = solves + size.bytes_written / READ
    h = sizes.n_left_out
    widths = CROSS_FIT * coarse_seconds(size.sample, speed, SCALE_CENTERS, h)
    seconds["uncertainty"] = widths + h * (speed.schur + 3 * m * speed.short_value) / workers
    return seconds


def estimate_region_seconds(size: DiskFitSize, speed: MachineSpeed) -> dict[str, float]:
    """Seconds of sorting rows by region, and of fitting regions."""
    sizes, workers = size.sizes, size.sizes.n_workers
    whole = replace(size.whole, cores=workers)
    row = size.row_seconds + sizes.n_regions * speed.distance
    cells = cells_seconds(whole, speed, whole.n_cells, whole.rows)
    cells += partition_seconds(whole, speed, sizes.n_cells / sizes.n_regions)
    return {
        "pass": size.n * row / workers + size.bytes_written / WRITTEN,
        "cells": cells + size.bytes_written / READ,
        "uncertainty": uncertainty_seconds(whole, speed, sizes.n_left_out),
    }


def estimate_disk_bytes(size: DiskFitSize) -> float:
    """Most that the process holds, itself included."""
    sample = SAMPLE_COPIES / 2 * 8.0 * size.sample_rows * (size.sample.d + size.sample.t)
    own = USUAL_BLOCK_COPIES * BLOCK_BYTES + GROUP_COPIES * size.group_bytes
    each = size.statistics / size.sizes.n_groups
    model = 0.0
    if size.sizes.n_regions:
        row_bytes = SORT_COPIES / 2 * 8 * (size.sample.width + size.sample.t + 1)
        each = row_bytes * size.n / size.sizes.n_regions + 3 * 8 * size.centers**2
        model = 2 * usual_model_bytes(size.whole)
    passing = model + size.sizes.n_workers * (own + each)
    tuning = estimate_tuning_bytes(replace(size.sample, n=size.sample_rows))
    return PROCESS_BYTES + sample + max(passing, tuning)
