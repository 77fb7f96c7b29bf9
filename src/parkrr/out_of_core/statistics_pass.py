"""Algorithm 1 for rows that stay on disk: one pass adds up the statistics of every cell.

A sample of rows gave centroids and centres (:mod:`.unfitted_model`). Every slice of the table is
a task: its rows go to their cells and add K'W[K, Y] to those (:func:`accumulate`).
Last, runs of cells are tasks that add up the slices in order and solve (:func:`solve_run`). So
the result depends neither on who ran a task nor on how often.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parkrr.data import Block, EncodedTable, cut_evenly, group_by_cell
from parkrr.errors import CellError, ParameterError
from parkrr.kernels import Kernel
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.unfitted_model import UnfittedModel, finished
from parkrr.park import CellReport, CellResult, FitResult, FitSettings, Model, join_left_out
from parkrr.partition import assign
from parkrr.runtime import run_tasks, torch_threads
from parkrr.solvers import (
    add_gram,
    fill_lower,
    leave_one_out_block,
    needs_float64,
    solve_statistics,
)

RUN_BYTES = 2**26  # statistics of the cells that one task solves
TRIES = 3  # when results of finished tasks are lost with the disk they were on


@dataclass(frozen=True)
class SliceTask:
    """A slice of the table, and which cells to add up."""

    name: str
    rows: EncodedTable
    first: int
    last: int  # exclusive


def lengths_of(sizes: Sequence[int], t: int) -> list[int]:
    """Numbers in the statistics of cells with so many centres."""
    return [m * (m + t) + 2 for m in sizes]


class Statistics:
    """K'W[K, Y], rows and weight of some cells, in one float64 array."""

    def __init__(self, sizes: Sequence[int], t: int, device: str) -> None:
        self.sizes, self.t = sizes, t
        lengths = lengths_of(sizes, t)
        self.flat = torch.zeros(sum(lengths), dtype=torch.float64, device=device)
        self.cells = list(torch.split(self.flat, lengths))

    def gram(self, q: int) -> Tensor:
        """K'W[K, Y] of a cell, shape (m_q, m_q + t)."""
        m = self.sizes[q]
        return self.cells[q][:-2].view(m, m + self.t)

    def sums(self, q: int) -> Tensor:
        """Rows and weight of a cell."""
        return self.cells[q][-2:]


def accumulate(skeleton: UnfittedModel, ledger: Checkpoint, task: SliceTask) -> dict[str, Any]:
    """Add up a slice and publish it; the weight of its rows in these cells.

    On one thread, for products on two round differently and a task run again must not.
    """
    with torch_threads(1):
        stats, facts = added_up(skeleton.placed(), task)
    ledger.publish(task.name, stats.flat.cpu().numpy(), facts)
    return facts


def added_up(skeleton: UnfittedModel, task: SliceTask) -> tuple[Statistics, dict[str, Any]]:
    """The statistics of a slice, and the weight of its rows."""
    model = skeleton.model
    sizes = skeleton.sizes[task.first : task.last]
    stats = Statistics(sizes, len(model.intercept), skeleton.device)
    wide = stats.flat.new_empty(0)
    weight = 0.0
    for block in task.rows.blocks():
        rows, cell_of, counts = sorted_rows(skeleton, block, task.first, task.last)
        if not len(rows.X):
            continue
        count_rows(stats, rows, counts[task.first : task.last])
        weight += len(rows.X) if rows.w is None else float(rows.w.sum())
        for q, at, K in model.kernel_values(rows.X, cell_of, counts):
            b, m = K.shape
            if wide.numel() < b * (m + stats.t):
                wide = wide.new_empty(b * (m + stats.t))
            KY = wide[: b * (m + stats.t)].view(b, m + stats.t)
            KY[:, :m] = K
            KY[:, m:] = rows.Y[at]
            w = None if rows.w is None else rows.w[at, None]
            add_gram(stats.gram(q - task.first), KY, w)
    return stats, {"weight": weight}


def sorted_rows(
    skeleton: UnfittedModel, block: Block, first: int, last: int
) -> tuple[Block, Tensor, list[int]]:
    """The rows of some cells, mapped and sorted by cell; their cells, and rows in each cell."""
    X, Y, w = skeleton.mapped(block)
    model = skeleton.model
    cell_of = assign(model.kernel, X, model.centroids)
    order, counts = group_by_cell(cell_of, len(model.centroids))
    start = sum(counts[:first])
    order = order[start : start + sum(counts[first:last])]
    counts = [count if first <= q < last else 0 for q, count in enumerate(counts)]
    X, Y = X.index_select(0, order), Y.index_select(0, order)
    return Block(X, Y, None if w is None else w[order]), cell_of[order], counts


def count_rows(stats: Statistics, rows: Block, counts: list[int]) -> None:
    """Add rows and weight of sorted rows."""
    w = rows.Y.new_ones(len(rows.X)) if rows.w is None else rows.w
    each = torch.stack([torch.ones_like(w), w], 1)  # (n, 2)
    for q, part in enumerate(torch.split(each, counts)):
        stats.sums(q).add_(part.sum(0))


@dataclass(frozen=True)
class RunTask:
    """A run of cells to solve, and the slices to add up for it."""

    name: str
    first: int
    last: int  # exclusive
    slices: tuple[str, ...]
    start: int  # where its statistics begin in those files


class Total(NamedTuple):
    """The penalty, and the weight of all rows."""

    penalty: float
    weight: float


def solve_run(skeleton: UnfittedModel, ledger: Checkpoint, total: Total, task: RunTask) -> None:
    """Solve a run of cells and publish their weights; on one thread, as `accumulate`."""
    skeleton = skeleton.placed()
    t = len(skeleton.model.intercept)
    stats = Statistics(skeleton.sizes[task.first : task.last], t, skeleton.device)
    for name in task.slices:  # in order, so that the sum is the same whoever made the parts
        part = ledger.read(name, task.start, task.start + len(stats.flat))
        stats.flat.add_(torch.from_numpy(part).to(skeleton.device))
    with torch_threads(1):
        cells = range(task.last - task.first)
        judges = skeleton.judges()[task.first : task.last]
        model = skeleton.model
        fits = [solve_cell(model, task.first + k, stats, k, total, judges[k]) for k in cells]
    facts = {
        "reports": [asdict(fit.report) for fit in fits],
        "wide": [too_short(skeleton.model.kernel, fit) for fit in fits],
    }
    numbers = [fit.weights * skeleton.scale for fit in fits] + [
        fit.change for fit in fits if fit.change is not None
    ]
    ledger.publish(task.name, torch.cat(numbers).cpu().numpy(), facts)


def too_short(kernel: Kernel, fit: CellResult) -> bool:
    """Whether float32 is too short for predictions of a cell, as its centres show."""
    short = fit.centers.dtype == torch.float32
    return short and needs_float64(kernel, fit.centers, fit.centers, fit.weights)


def solve_cell(
    model: Model, q: int, stats: Statistics, place: int, total: Total, judges: Block
) -> CellResult:
    """eq. (8) of cell q from the statistics at `place` among those of a run."""
    start = time.perf_counter()
    n_rows, n_q = stats.sums(place).tolist()
    Z, ridge = model.centers[q], total.penalty * total.weight
    gram, left_out = fill_lower(stats.gram(place)), leave_one_out_block(model.kernel, judges, Z)
    fit = solve_statistics(model.kernel, Z, gram, ridge, max(n_q, 1.0), left_out=left_out)
    if fit is None:
        raise CellError(q, int(n_q), "rounding left no solution; raise penalty, or use float64")
    report = CellReport(
        cell=q,
        rows=int(n_rows),
        weight=n_q,
        centers=len(fit.weights),
        penalty=ridge / max(n_q, 1e-300),
        solver="direct",
        why="rows stay on disk",
        iterations=0,
        residual=0.0,
        converged=True,
        rescue=fit.rescue,
        seconds=time.perf_counter() - start,
    )
    return CellResult(Z, fit.weights, report, judges, fit.change)


@dataclass(frozen=True)
class StatisticsPass:
    """The passes over a table, given what its sample decided.

    Parameters
    ----------
    skeleton
        All of the model but its weights.
    park
        Settings.
    rows
        The table.
    ledger
        Where results of tasks lie.
    n_slices, n_groups
        Tasks of a pass; passes, each for some of the cells.
    """

    skeleton: UnfittedModel
    park: FitSettings
    rows: EncodedTable
    ledger: Checkpoint
    n_slices: int
    n_groups: int

    def fit(self) -> FitResult:
        """The model, by tasks that have not been finished before."""
        start = time.perf_counter()
        for _ in range(TRIES):
            total = self.run_slices()
            passed = time.perf_counter()
            try:
                self.run_cells(total)
                return self.collect(passed - start, time.perf_counter() - passed)
            except FileNotFoundError:  # with the disk of a node; then some slices run again
                continue
        raise ParameterError(
            f"checkpoint must be a folder that all workers see and keep, but results vanished from "
            f"{self.ledger.place.display_name('')!r} {TRIES} times"
        )

    def groups(self) -> list[tuple[int, int]]:
        """Which cells each pass is for: runs of about the same statistics."""
        return cut_evenly(self.lengths(), self.n_groups)

    def lengths(self) -> list[int]:
        return lengths_of(self.skeleton.sizes, len(self.skeleton.model.intercept))

    def slice_tasks(self) -> list[SliceTask]:
        """Every slice for every group of cells."""
        slices = self.rows.slices(self.n_slices)
        return [
            SliceTask(f"statistics-{g}-{k:05d}", part, first, last)
            for g, (first, last) in enumerate(self.groups())
            for k, part in enumerate(slices)
        ]

    def run_slices(self) -> Total:
        """Those without a marker; what all of them say together."""
        tasks = self.slice_tasks()
        work = partial(accumulate, self.skeleton, self.ledger)
        found = finished("reading rows", work, tasks, self.ledger, self.park)
        return Total(self.park.penalty, math.fsum(found[task.name]["weight"] for task in tasks))

    def run_tasks(self) -> list[RunTask]:
        """Runs of cells of every group."""
        lengths, tasks = self.lengths(), list[RunTask]()
        slices = len(self.rows.slices(self.n_slices))
        for g, (first, last) in enumerate(self.groups()):
            names = tuple(f"statistics-{g}-{k:05d}" for k in range(slices))
            own = lengths[first:last]
            for a, b in cut_evenly(own, math.ceil(8 * sum(own) / RUN_BYTES)):
                name = f"cells-{first + a:06d}"
                tasks.append(RunTask(name, first + a, first + b, names, sum(own[:a])))
        return tasks

    def run_cells(self, total: Total) -> None:
        """Runs of cells without a marker."""
        every = self.run_tasks()
        found = self.ledger.known(task.name for task in every)
        run_tasks(
            self.park.engine,
            partial(solve_run, self.skeleton, self.ledger, total),
            [task for task in every if found[task.name] is None],
            label="solving cells",
            unit="cells",
            size_of=lambda task: task.last - task.first,
            shown=self.park.shown,
        )

    def collect(self, slices_seconds: float, cells_seconds: float) -> FitResult:
        """The model and its report from what tasks have published."""
        found = [cell for task in self.run_tasks() for cell in self.solved(task)]
        model = replace(
            self.skeleton.model,
            weights=[cell.weights for cell in found],
            centers=[cell.centers for cell in found],
        )
        report = [cell.report for cell in found]
        left_out = join_left_out(model, found, self.skeleton.scale)
        return FitResult(model, report, slices_seconds, cells_seconds, left_out)

    def solved(self, task: RunTask) -> list[CellResult]:
        """What a task has published of its cells."""
        facts = self.ledger.facts(task.name)
        if facts is None:
            raise FileNotFoundError(task.name)
        own = slice(task.first, task.last)
        sizes, counts = self.skeleton.sizes[own], self.skeleton.counts[own]
        t = len(self.skeleton.model.intercept)
        numbers = self.ledger.read(task.name, 0, (sum(sizes) + sum(counts)) * t)
        parts = torch.split(torch.from_numpy(numbers).view(-1, t), [*sizes, *counts])
        centers, judges = self.skeleton.model.centers[own], self.skeleton.judges()[own]
        each = zip(centers, facts["wide"], facts["reports"], judges, strict=True)
        return [
            CellResult(
                Z.double() if wide else Z,
                parts[k].clone(),
                CellReport(**report),
                rows,
                parts[len(sizes) + k].clone(),
            )
            for k, (Z, wide, report, rows) in enumerate(each)
        ]
