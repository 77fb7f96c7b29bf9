"""What a fit will be before it begins: cells, centres, memory, seconds, bytes."""

import time
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

from parkrr.data import ArraySource, EncodedTable, ParquetTable, category_columns
from parkrr.errors import check_bytes, check_positive_or
from parkrr.planning.costs import EVEN, LIBRARIES_BYTES, FitSize, bytes_of, seconds_of
from parkrr.planning.disk_costs import DiskFitSize, disk_bytes, disk_seconds, disk_written
from parkrr.planning.disk_sizes import MEMORY, learned, n_outputs, sizes_on_disk, stays_on_disk
from parkrr.planning.machine_speed import measured_pace
from parkrr.planning.settings import shape_of, spread_of
from parkrr.runtime import as_engine, free_bytes, plural, process_bytes, told_bytes, told_seconds

SHORT = 0.05  # seconds of a step that are not worth a word
LOADED_COPIES = 2  # of rows of files, when they have just been loaded


@dataclass(frozen=True)
class Plan:
    """What a fit will be. Print it.

    Parameters
    ----------
    where
        "memory" or "disk": where rows are while they are fitted.
    rows, features, numbers, targets
        Of the data; numbers are what the features of a row become.
    cells, cell_rows, largest_cell
        Cells, rows of a mean one, and of the largest as a sample shows.
    centers
        Of all cells together.
    passes
        Over all rows, for statistics; 0 in memory.
    memory, memory_now, max_memory, free
        Bytes: the peak of the process, what it holds now, what it may take (in memory beyond
        what it holds now), and what the machine has left.
    seconds
        Of every step, on this machine.
    time_budget
        Seconds it may take, or None.
    bytes_read, bytes_written
        From and to disk.
    advice
        What would have to shrink, if a limit is not met.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> plan = ParKRegressor(n_cells=2).plan(np.random.default_rng(0).normal(size=(1000, 3)))
    >>> print(plan)  # doctest: +ELLIPSIS
    data     1,000 rows of 3 features, 1 target
    cells    2 of about 500 rows, the largest ...
    centres  1,000, every row
    memory   ...
    time     about ...
    disk     reads nothing, writes nothing
    """

    where: str
    rows: int
    features: int
    numbers: int
    targets: int
    cells: int
    cell_rows: int
    largest_cell: int
    centers: int
    passes: int
    memory: float
    memory_now: float
    max_memory: float | None
    free: float | None
    seconds: dict[str, float]
    time_budget: float | None
    bytes_read: float
    bytes_written: float
    advice: tuple[str, ...] = ()

    @property
    def total_seconds(self) -> float:
        """Of all steps."""
        return sum(self.seconds.values())

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "total_seconds": self.total_seconds, "advice": list(self.advice)}

    def __str__(self) -> str:
        """The plan in a few lines."""
        long = {name: s for name, s in self.seconds.items() if s >= SHORT}
        steps = ", ".join(f"{name} {told_seconds(s)}" for name, s in long.items())
        numbers = "" if self.numbers == self.features else f", {self.numbers} numbers a row"
        lines = {
            "data": f"{self.rows:,} rows of {plural(self.features, 'feature')}{numbers}, "
            f"{plural(self.targets, 'target')}",
            "cells": self.told_cells(),
            "centres": f"{self.centers:,}{', every row' if self.centers == self.rows else ''}",
            "memory": self.told_memory(),
            "time": f"about {told_seconds(self.total_seconds)}{': ' if steps else ''}{steps}",
            "disk": f"reads {told_bytes(self.bytes_read)}{self.told_passes()}, writes "
            f"{told_bytes(self.bytes_written)}",
        }
        advice = [f"note     {line}" for line in self.advice]
        return "\n".join([*(f"{name:<9}{line}" for name, line in lines.items()), *advice])

    def told_cells(self) -> str:
        """Cells and their sizes in words."""
        if self.cells == 1:
            return "1, of all rows"
        return f"{self.cells:,} of about {self.cell_rows:,} rows, the largest {self.largest_cell:,}"

    def told_passes(self) -> str:
        """How often rows are read, in words."""
        passes = plural(self.passes, "pass", "passes")
        return f" ({passes} over all rows)" if self.passes else ""

    def told_memory(self) -> str:
        """Memory in words."""
        peak = f"{told_bytes(self.memory)} at its peak, rows {self.where_told}"
        now = f"{told_bytes(self.memory_now)} in use now"
        limit = "" if self.max_memory is None else f", max_memory {told_bytes(self.max_memory)}"
        free = "" if self.free is None else f", {told_bytes(self.free)} free"
        return f"{peak} ({now}{limit}{free})"

    @property
    def where_told(self) -> str:
        """Where rows are, in words."""
        return "on disk" if self.where == "disk" else "in memory"


def left_of(params: dict[str, Any], held: float) -> dict[str, Any]:
    """The parameters with what files leave of max_memory, which is for the whole process."""
    limit = check_bytes("max_memory", params["max_memory"]) or MEMORY
    return {**params, "max_memory": max(1.0, limit - held)}


def seen_shape(params: dict[str, Any], rows: ArraySource, n: int) -> FitSize:
    """The fit of n rows in numbers; `rows`, some of them, say how uneven its cells will be."""
    how = (n, rows.X.shape[1], rows.n_outputs)
    n_cells = shape_of({**params, "max_memory": None}, *how, EVEN).n_cells
    return shape_of(params, *how, spread_of(params, rows, n_cells))


def checked_shape(params: dict[str, Any], rows: ArraySource) -> FitSize:
    """The fit of rows in memory in numbers, once it is known that it keeps max_memory."""
    if params["max_memory"] is not None:
        return seen_shape(params, rows, rows.n_rows)
    shape = shape_of(params, rows.n_rows, rows.X.shape[1], rows.n_outputs, EVEN)
    need, free = bytes_of(shape), free_bytes()
    if free is not None and need > free:
        warnings.warn(
            f"this fit takes about {told_bytes(need)} and {told_bytes(free)} are free; set "
            f"max_memory to have it smaller",
            ResourceWarning,
            stacklevel=4,
        )
    return shape


def plan_rows(params: dict[str, Any], rows: ArraySource, n: int, features: int) -> Plan:
    """Of n rows in memory, of which `rows` are some, as numbers."""
    now, shape = process_bytes(), seen_shape(params, rows, n)
    seconds = seconds_of(shape, measured_pace(shape.d, shape.t, shape.cores))
    return planned_in_memory(params, shape, features, seconds, now)


def planned_in_memory(
    params: dict[str, Any],
    shape: FitSize,
    features: int,
    seconds: dict[str, float],
    now: float,
    loaded: float = 0.0,
    read: float = 0.0,
) -> Plan:
    """The plan of a fit in memory, of rows that are there or, so many bytes, are loaded first."""
    # Pieces that were timed have left behind what libraries keep, which the fit need not take.
    held, need = max(now, process_bytes() - LIBRARIES_BYTES), bytes_of(shape)
    plan = Plan(
        where="memory",
        rows=shape.n,
        features=features,
        numbers=shape.d,
        targets=shape.t,
        cells=shape.n_cells,
        cell_rows=round(shape.rows),
        largest_cell=round(min(shape.n, shape.spread.largest * shape.rows)),
        centers=min(shape.n, shape.n_centers),
        passes=0,
        memory=held + loaded + need,
        memory_now=now,
        max_memory=check_bytes("max_memory", params["max_memory"]),
        free=free_bytes(),
        seconds=seconds,
        time_budget=check_positive_or("time_budget", params["time_budget"], "auto"),
        bytes_read=read,
        bytes_written=0.0,
    )
    return advised(plan, shape.chooses)


def advised(plan: Plan, chooses: bool) -> Plan:
    """The plan with what would have to shrink, if a limit is not met."""
    lines, need = [], plan.memory - plan.memory_now
    if plan.free is not None and need > plan.free:
        lines.append(
            f"needs {told_bytes(need)} and {told_bytes(plan.free)} are free: set max_memory, or "
            f"raise n_cells"
        )
    budget, total = plan.time_budget, plan.total_seconds
    if budget is not None and total > budget:
        steps = max(plan.seconds, key=lambda step: plan.seconds[step])
        settled = " set kernel, penalty, metric, blend and coarse," if chooses else ""
        lines.append(
            f"time_budget={budget:g} is too short by {told_seconds(total - budget)}, most of it "
            f"for {steps}:{settled} lower n_centers, or fit fewer rows"
        )
    return replace(plan, advice=tuple(lines))


def plan_table(params: dict[str, Any], table: ParquetTable, classify: bool, seed: int) -> Plan:
    """Of rows of files, of which one row group is read."""
    first = replace(table, row_groups=table.row_groups[:1])
    now, start = process_bytes(), time.perf_counter()
    seen = learned(first, {**params, "progress": False}, seed, classify)
    rows = seen.load(as_engine(params["engine"]).local)
    row_seconds = (time.perf_counter() - start) / max(1, first.n_rows)
    if stays_on_disk(table, params):
        return planned_on_disk(params, replace(seen, table=table), rows, row_seconds, now)
    d, t = rows.X.shape[1], rows.n_outputs
    loaded = LOADED_COPIES * 8.0 * table.n_rows * (d + t)
    own = left_of(params, now + loaded)
    shape = seen_shape(own, rows, table.n_rows)
    seconds = seconds_of(shape, measured_pace(d, t, shape.cores))
    read = float(sum(group.n_bytes for group in table.row_groups))
    seconds["partition"] += table.n_rows * row_seconds
    return planned_in_memory(params, shape, len(table.features), seconds, now, loaded, read)


def planned_on_disk(
    params: dict[str, Any], seen: EncodedTable, rows: ArraySource, row_seconds: float, now: float
) -> Plan:
    """The plan of a fit whose rows stay on disk."""
    table, d, t = seen.table, rows.X.shape[1], n_outputs(seen.target)
    sizes = sizes_on_disk(seen, params, as_engine(params["engine"]))
    given = {**params, "n_cells": sizes.n_cells, "n_centers": sizes.n_centers, "max_memory": None}
    sample = shape_of(given, min(table.n_rows, sizes.n_sample), d, t, EVEN)
    shape = DiskFitSize(
        sizes=sizes,
        sample=sample,
        n=table.n_rows,
        groups=len(table.row_groups),
        group_bytes=max(group.n_bytes for group in table.row_groups),
        bytes=float(sum(group.n_bytes for group in table.row_groups)),
        row_seconds=row_seconds,
        counted=bool(category_columns(table.schema, table.features)),
    )
    pace = measured_pace(d, t, as_engine(params["engine"]).local.cores)
    cell_rows = table.n_rows / sizes.n_cells
    plan = Plan(
        where="disk",
        rows=table.n_rows,
        features=len(table.features),
        numbers=d,
        targets=t,
        cells=sizes.n_cells,
        cell_rows=round(cell_rows),
        largest_cell=round(spread_of(params, rows, sizes.n_cells).largest * cell_rows),
        centers=sizes.n_centers,
        passes=sizes.n_groups,
        memory=disk_bytes(shape),
        memory_now=now,
        max_memory=check_bytes("max_memory", params["max_memory"]) or MEMORY,
        free=free_bytes(),
        seconds=disk_seconds(shape, pace),
        time_budget=check_positive_or("time_budget", params["time_budget"], "auto"),
        bytes_read=shape.readings * shape.bytes,
        bytes_written=disk_written(shape),
    )
    return advised(plan, sample.chooses)
