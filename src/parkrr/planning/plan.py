"""What a fit will be before it begins: cells, centres, memory, seconds, bytes."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from parkrr.data import ArraySource, Category, FreeText, ParquetTable
from parkrr.errors import check_bytes, check_positive_or
from parkrr.planning.disk_sizes import (
    MEMORY,
    DiskFitSize,
    estimate_disk_bytes,
    estimate_disk_seconds,
    learn_table,
    sizes_on_disk,
    stays_on_disk,
)
from parkrr.planning.machine_speed import measure_speed
from parkrr.planning.settings import measure_spread, size_fit, size_fit_of_sample
from parkrr.planning.sizes import (
    EVEN,
    LIBRARIES_BYTES,
    FitSize,
    estimate_bytes,
    estimate_seconds,
    free_bytes,
    model_bytes,
)
from parkrr.runtime import (
    as_engine,
    describe_bytes,
    describe_count,
    describe_seconds,
    process_bytes,
)

SHORT = 0.05  # seconds of a step that are not worth a mention
LOADED_COPIES = 2  # of rows of files, when they have just been loaded


@dataclass(frozen=True)
class Plan:
    """What a fit will be. Print it.

    Parameters
    ----------
    where : str
        "memory" or "disk": where rows are while they are fitted.
    rows, features, numbers, targets : int
        Of the data; numbers are what the features of a row become.
    cells, cell_rows, largest_cell : int
        Cells, rows of a mean one, and of the largest as a sample shows.
    centers : int
        Of all cells together.
    passes : int
        Over all rows, for statistics; 0 in memory.
    memory, memory_now, max_memory, free : float or None
        Bytes: the peak of the process, what it holds now, what it may take (in memory beyond what
        it holds now), and what the machine has left.
    seconds : dict of str to float
        Of every step, on your machine.
    time_budget : float or None
        Seconds it may take.
    bytes_read, bytes_written : float
        From and to disk.
    model_bytes : float
        Of the centres and their coefficients at most, in float64. Where no cell needs that, they
        have about half of it from 10,000 rows on.
    regions : int
        By which rows on disk are sorted, to be fitted one after the other; 0 if they are not.
    advice : tuple of str
        What would have to shrink, if a limit is not met.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> plan = ParKRegressor(n_cells=2).plan(np.random.default_rng(0).normal(size=(1000, 3)))
    >>> print(plan)  # doctest: +ELLIPSIS
    data     1,000 rows of 3 features, 1 target
    cells    2 of about 500 rows, the largest ...
    centres  1,000, every row, a model of up to ...
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
    model_bytes: float
    regions: int = 0
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
        numbers = "" if self.numbers == self.features else f", {self.numbers} numbers a row"
        cells = "1, of all rows"
        if self.cells > 1:
            about = f"{self.cells:,} of about {self.cell_rows:,} rows"
            cells = f"{about}, the largest {self.largest_cell:,}"
            cells += f", in {describe_count(self.regions, 'region')}" if self.regions else ""
        where = "on disk" if self.where == "disk" else "in memory"
        now = f"{describe_bytes(self.memory_now)} in use now"
        limit = "" if self.max_memory is None else f", max_memory {describe_bytes(self.max_memory)}"
        free = "" if self.free is None else f", {describe_bytes(self.free)} free"
        steps = [f"{name} {describe_seconds(s)}" for name, s in self.seconds.items() if s >= SHORT]
        passes = describe_count(self.passes, "pass", "passes")
        over = f" ({passes} over all rows)" if self.passes else ""
        lines = {
            "data": f"{self.rows:,} rows of {describe_count(self.features, 'feature')}{numbers}, "
            f"{describe_count(self.targets, 'target')}",
            "cells": cells,
            "centres": f"{self.centers:,}{', every row' if self.centers == self.rows else ''}, "
            f"a model of up to {describe_bytes(self.model_bytes)}",
            "memory": f"{describe_bytes(self.memory)} at its peak, "
            f"rows {where} ({now}{limit}{free})",
            "time": f"about {describe_seconds(self.total_seconds)}{': ' if steps else ''}"
            f"{', '.join(steps)}",
            "disk": f"reads {describe_bytes(self.bytes_read)}{over}, writes "
            f"{describe_bytes(self.bytes_written)}",
        }
        advice = [f"note     {line}" for line in self.advice]
        return "\n".join([*(f"{name:<9}{line}" for name, line in lines.items()), *advice])


def subtract_memory(params: dict[str, Any], held: float) -> dict[str, Any]:
    """The parameters with what is left of max_memory, which for files is of the whole process."""
    limit = check_bytes("max_memory", params["max_memory"]) or MEMORY
    return {**params, "max_memory": max(1.0, limit - held)}


def plan_rows(params: dict[str, Any], rows: ArraySource, n: int, features: int) -> Plan:
    """The plan of n rows in memory, of which `rows` are some, as numbers."""
    now = process_bytes()
    return plan_in_memory(params, size_fit_of_sample(params, rows, n), features, now)


def plan_table(params: dict[str, Any], table: ParquetTable, classify: bool, seed: int) -> Plan:
    """The plan of rows of files, of which one row group is read."""
    first = replace(table, row_groups=table.row_groups[:1])
    now, start = process_bytes(), time.perf_counter()
    encoded = learn_table(first, {**params, "progress": False}, seed, classify)
    engine = as_engine(params["engine"])
    rows, _ = encoded.load(engine.local)
    row_seconds = (time.perf_counter() - start) / max(1, first.n_rows)
    n, d, t = table.n_rows, rows.X.shape[1], rows.n_outputs
    table_bytes = float(sum(group.n_bytes for group in table.row_groups))
    if not stays_on_disk(table, params):
        loaded = LOADED_COPIES * 8.0 * n * (d + t)
        size = size_fit_of_sample(subtract_memory(params, now + loaded), rows, n)
        plan = plan_in_memory(params, size, len(table.features), now, loaded, n * row_seconds)
        return replace(plan, bytes_read=table_bytes)
    sizes = sizes_on_disk(replace(encoded, table=table), params, engine)
    given = {**params, "n_cells": sizes.n_cells, "n_centers": sizes.n_centers, "max_memory": None}
    n_sample, of_sample = min(n, sizes.n_sample), given
    if sizes.n_regions:  # whose choices are made on cells of as many rows
        counts = {name: max(1, given[name] * n_sample // n) for name in ("n_cells", "n_centers")}
        of_sample = {**given, **counts}
    disk = DiskFitSize(
        sizes=sizes,
        sample=size_fit(of_sample, n_sample, d, t, EVEN),
        whole=size_fit({**given, "time_budget": "auto"}, n, d, t, EVEN),
        n=n,
        groups=len(table.row_groups),
        group_bytes=max(group.n_bytes for group in table.row_groups),
        row_seconds=row_seconds,
        has_categories=any(
            isinstance(column, Category | FreeText) for column in encoded.columns.columns
        ),
    )
    plan = Plan(
        where="disk",
        rows=n,
        features=len(table.features),
        numbers=d,
        targets=t,
        cells=sizes.n_cells,
        cell_rows=round(n / sizes.n_cells),
        largest_cell=round(measure_spread(params, rows, sizes.n_cells).largest * n / sizes.n_cells),
        centers=sizes.n_centers,
        passes=sizes.n_groups,
        memory=estimate_disk_bytes(disk),
        memory_now=now,
        max_memory=check_bytes("max_memory", params["max_memory"]) or MEMORY,
        free=free_bytes(),
        seconds=estimate_disk_seconds(disk, measure_speed(d, t, engine.local.cores)),
        time_budget=check_positive_or("time_budget", params["time_budget"], "auto"),
        bytes_read=(disk.sampling_reads + sizes.n_groups) * table_bytes,
        bytes_written=disk.bytes_written,
        regions=sizes.n_regions,
        model_bytes=disk.model_bytes,
    )
    return replace(plan, advice=advise(plan, disk.sample.chooses))


def plan_in_memory(
    params: dict[str, Any],
    size: FitSize,
    features: int,
    now: float,
    loaded: float = 0.0,
    load_seconds: float = 0.0,
) -> Plan:
    """The plan of a fit in memory, of rows that are there or, so many bytes, are loaded first."""
    seconds = estimate_seconds(size, measure_speed(size.d, size.t, size.cores))
    seconds["partition"] += load_seconds
    # Pieces that were timed have left behind what libraries keep, which the fit need not take.
    held = max(now, process_bytes() - LIBRARIES_BYTES)
    plan = Plan(
        where="memory",
        rows=size.n,
        features=features,
        numbers=size.d,
        targets=size.t,
        cells=size.n_cells,
        cell_rows=round(size.rows),
        largest_cell=round(min(size.n, size.spread.largest * size.rows)),
        centers=min(size.n, size.n_centers),
        passes=0,
        memory=held + loaded + estimate_bytes(size),
        memory_now=now,
        max_memory=check_bytes("max_memory", params["max_memory"]),
        free=free_bytes(),
        seconds=seconds,
        time_budget=check_positive_or("time_budget", params["time_budget"], "auto"),
        bytes_read=0.0,
        bytes_written=0.0,
        model_bytes=model_bytes(size),
    )
    return replace(plan, advice=advise(plan, size.chooses))


def advise(plan: Plan, chooses: bool) -> tuple[str, ...]:
    """What would have to shrink, if a limit is not met."""
    lines, need = [], plan.memory - plan.memory_now
    if plan.free is not None and need > plan.free:
        lines.append(
            f"needs {describe_bytes(need)} and {describe_bytes(plan.free)} are free: set "
            f"max_memory, or "
            f"raise n_cells"
        )
    budget, total = plan.time_budget, plan.total_seconds
    if budget is not None and total > budget + SHORT:
        longest = max(plan.seconds, key=lambda step: plan.seconds[step])
        settled = " set kernel, penalty, metric, blend and coarse," if chooses else ""
        lines.append(
            f"time_budget={budget:g} is too short by {describe_seconds(total - budget)}, most "
            f"of it "
            f"for {longest}:{settled} lower n_centers, or fit fewer rows"
        )
    return tuple(lines)
