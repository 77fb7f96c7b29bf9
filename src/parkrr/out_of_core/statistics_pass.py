"""Algorithm 1 for rows that stay on disk: one pass adds up the statistics of every cell.

A sample of rows gave centroids and centres (:mod:`.unfitted_model`). Every slice of the table is
a task that assigns its rows to cells and adds K'W[K, Y] to the statistics of these
(:func:`add_up_slice`). Then consecutive cells are tasks that add up the slices in order and solve
(:func:`solve_cells`). So the result depends neither on where a task ran nor on how often. Cells
whose statistics leave no solution at their ridge are fitted to their rows, as those in memory are,
or keep a larger ridge.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from parkrr.data import EncodedTable, cut_evenly, group_by_cell
from parkrr.errors import CellError
from parkrr.out_of_core.checkpoint import Checkpoint, checksums
from parkrr.out_of_core.sorted_pass import refit_from_rows
from parkrr.out_of_core.unfitted_model import SliceTask, UnfittedModel, publish_cells, read_cells
from parkrr.park import CellReport, CellResult, FitResult, FitSettings, collect, local_penalty
from parkrr.runtime import torch_threads
from parkrr.solvers import (
    RAISED,
    add_gram,
    fill_lower,
    leave_one_out_block,
    needs_float64,
    solve_statistics,
)

TASK_BYTES = 2**26  # statistics of the cells that one task solves


@dataclass(frozen=True)
class SolveTask:
    """Cells to solve, the slices to add up for them, and where their statistics begin in these."""

    name: str
    first: int
    last: int
    slices: tuple[str, ...]
    checks: tuple[tuple[int, ...], ...]  # checksums of the statistics, by slice and cell
    start: int

    @property
    def size(self) -> int:
        return self.last - self.first


def statistics_lengths(sizes: Sequence[int], t: int) -> list[int]:
    """How many numbers the statistics of cells with so many centres have."""
    return [m * (m + t) + 2 for m in sizes]


class Statistics:
    """K'W[K, Y], rows and weight of some cells, in one float64 array."""

    def __init__(self, sizes: Sequence[int], t: int, device: str) -> None:
        self.sizes, self.t = sizes, t
        lengths = statistics_lengths(sizes, t)
        self.flat = torch.zeros(sum(lengths), dtype=torch.float64, device=device)
        self.cells = list(torch.split(self.flat, lengths))

    def gram(self, k: int) -> Tensor:
        """K'W[K, Y] of the k-th cell, shape (m_q, m_q + t)."""
        m = self.sizes[k]
        return self.cells[k][:-2].view(m, m + self.t)

    def totals(self, k: int) -> Tensor:
        """Rows and weight of the k-th cell."""
        return self.cells[k][-2:]


def fit_from_statistics(
    unfitted: UnfittedModel,
    settings: FitSettings,
    rows: EncodedTable,
    checkpoint: Checkpoint,
    *,
    n_slices: int,
    n_groups: int,
    n_sorted: int,
    max_bytes: float,
) -> FitResult:
    """The fit in `n_groups` passes of `n_slices` tasks, each pass for some of the cells.

    Cells that need their rows again are sorted in `n_sorted` tasks, and a core may use `max_bytes`
    for one of them.
    """
    start = time.perf_counter()
    lengths = statistics_lengths(unfitted.sizes, unfitted.n_outputs)
    slices = rows.slices(n_slices)
    groups = cut_evenly(lengths, n_groups)
    to_add = [
        SliceTask(f"statistics-{g}-{k:05d}", part, first, last)
        for g, (first, last) in enumerate(groups)
        for k, part in enumerate(slices)
    ]
    add_up = partial(add_up_slice, unfitted, checkpoint)
    added = checkpoint.run(settings, "reading rows", add_up, to_add)
    to_solve = list[SolveTask]()
    for g, (first, last) in enumerate(groups):
        of_group = slice(g * len(slices), (g + 1) * len(slices))
        names, checks = to_add[of_group], [facts["checks"] for facts in added[of_group]]
        own = lengths[first:last]
        for a, b in cut_evenly(own, math.ceil(8 * sum(own) / TASK_BYTES)):
            task = SolveTask(
                name=f"cells-{first + a:06d}",
                first=first + a,
                last=first + b,
                slices=tuple(part.name for part in names),
                checks=tuple(tuple(check[a:b]) for check in checks),
                start=sum(own[:a]),
            )
            to_solve.append(task)
    ridge = settings.penalty * math.fsum(facts["weight"] for facts in added)
    solve = partial(solve_cells, unfitted, checkpoint, ridge)
    passed = time.perf_counter()
    cells = list[CellResult]()
    solved = checkpoint.run(settings, "solving cells", solve, to_solve, unit="cells")
    for task, facts in zip(to_solve, solved, strict=True):
        cells += read_cells(checkpoint, task.name, facts, unfitted, task.first)
    refitted = refit_from_rows(
        unfitted,
        settings,
        rows,
        checkpoint,
        [cell.report.cell for cell in cells if RAISED in cell.report.fallback],
        n_slices=n_sorted,
        max_bytes=max_bytes,
        ridge=ridge,
    )
    for cell in refitted:
        cells[cell.report.cell] = cell
    seconds = (passed - start, time.perf_counter() - passed)
    return collect(unfitted.model, cells, unfitted.scale, seconds)


def add_up_slice(
    unfitted: UnfittedModel, checkpoint: Checkpoint, task: SliceTask
) -> dict[str, Any]:
    """Publish the statistics of a slice; returns the weight of its rows in these cells, and checks.

    On one thread, for products on two round differently and a task run again must not.
    """
    unfitted = unfitted.on_device()
    model, first, last = unfitted.model, task.first, task.last
    statistics = Statistics(unfitted.sizes[first:last], unfitted.n_outputs, unfitted.device)
    wide, weight = statistics.flat.new_empty(0), 0.0  # memory that blocks use again
    with torch_threads(1):
        for block in task.rows.blocks():
            X, Y, w = unfitted.prepare(block)
            cell_of = model.assign(X)
            order, counts = group_by_cell(cell_of, len(model.centroids))
            start = sum(counts[:first])
            order = order[start : start + sum(counts[first:last])]  # rows of these cells alone
            if not len(order):
                continue
            counts = counts[first:last]
            X, Y, cell_of = (part.index_select(0, order) for part in (X, Y, cell_of))
            w = None if w is None else w[order]
            ones = Y.new_ones(len(X))
            totals = torch.stack([ones, ones if w is None else w], 1)  # (n, 2)
            for k, part in enumerate(torch.split(totals, counts)):
                statistics.totals(k).add_(part.sum(0))
            weight += len(X) if w is None else float(w.sum())
            for q, own, K in model.kernel_values(X, cell_of, range(first, last), counts):
                b, m, t = *K.shape, Y.shape[1]
                if wide.numel() < b * (m + t):
                    wide = wide.new_empty(b * (m + t))
                KY = wide[: b * (m + t)].view(b, m + t)
                KY[:, :m] = K
                KY[:, m:] = Y[own]
                add_gram(statistics.gram(q - first), KY, None if w is None else w[own, None])
    numbers = statistics.flat.cpu().numpy()
    facts = {"weight": weight, "checks": checksums(numbers, list(map(len, statistics.cells)))}
    checkpoint.publish(task.name, numbers, facts)
    return facts


def solve_cells(
    unfitted: UnfittedModel, checkpoint: Checkpoint, ridge: float, task: SolveTask
) -> dict[str, Any]:
    """Solve eq. (8) of consecutive cells and publish them; on one thread, as `add_up_slice`."""
    unfitted = unfitted.on_device()
    sizes = unfitted.sizes[task.first : task.last]
    statistics = Statistics(sizes, unfitted.n_outputs, unfitted.device)
    lengths = list(map(len, statistics.cells))
    # In order, so that the sum is the same wherever the parts were made.
    for name, checks in zip(task.slices, task.checks, strict=True):
        part = checkpoint.read(name, task.start, lengths, checks)
        statistics.flat.add_(torch.from_numpy(part).to(unfitted.device))
    kernel, left_out = unfitted.model.kernel, unfitted.left_out_by_cell()
    cells = []
    with torch_threads(1):
        for k, q in enumerate(range(task.first, task.last)):
            start = time.perf_counter()
            Z, (n_rows, n_q) = unfitted.model.centers[q], statistics.totals(k).tolist()
            fit = solve_statistics(
                kernel,
                Z,
                fill_lower(statistics.gram(k)),
                ridge,
                max(n_q, 1.0),
                left_out=leave_one_out_block(kernel, left_out[q], Z),
                raise_ridge=True,
            )
            if fit is None:
                reason = "its statistics must be finite; scale features, target or weights"
                raise CellError(q, int(n_q), reason)
            report = CellReport(
                cell=q,
                rows=int(n_rows),
                weight=n_q,
                centers=len(Z),
                penalty=local_penalty(ridge, n_q),
                solver="direct",
                why="rows stay on disk",
                iterations=0,
                residual=0.0,
                converged=True,
                fallback=fit.fallback,
                seconds=time.perf_counter() - start,
            )
            if Z.dtype == torch.float32 and needs_float64(kernel, Z, Z, fit.weights):
                Z = Z.double()
            cells.append(CellResult(Z, fit.weights, report, left_out[q], fit.change))
    return publish_cells(checkpoint, task.name, cells, own_rows=False)
