"""Rows on disk brought together by cell, for solvers that visit a cell's rows more than once.

Each slice of the table is a task that maps its rows, sorts them by cell and writes them down
(:func:`sort_slice`); a cell is then a piece of each of these files. Cells are fitted as those in
memory are (:func:`parkrr.park.cells.fit_cell`), one a core at a time.
"""

import math
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from parkrr.data import (
    VALIDATION_SHARE,
    ArraySource,
    Block,
    EncodedTable,
    group_by_cell,
    join_blocks,
)
from parkrr.errors import ParameterError
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.unfitted_model import UnfittedModel, finished
from parkrr.park import (
    CellReport,
    CellResult,
    CellTask,
    FitResult,
    FitSettings,
    fit_cell,
    join_left_out,
)
from parkrr.partition import assign
from parkrr.planning import SORT_COPIES
from parkrr.runtime import move_to_device, run_tasks, torch_threads


@dataclass(frozen=True)
class SortTask:
    """A slice of the table."""

    name: str
    rows: EncodedTable


def sort_slice(skeleton: UnfittedModel, ledger: Checkpoint, task: SortTask) -> dict[str, Any]:
    """Publish the rows of a slice by cell: mapped features, targets, weight."""
    skeleton = skeleton.placed()
    model = skeleton.model
    with torch_threads(1):
        block = join_blocks([skeleton.mapped(block) for block in task.rows.blocks()])
        cell_of = assign(model.kernel, block.X, model.centroids)
    order, counts = group_by_cell(cell_of, len(model.centroids))
    w = block.Y.new_ones(len(order)) if block.w is None else block.w
    table = torch.cat([block.X, block.Y.to(block.X), w[:, None].to(block.X)], 1)[order]
    weights = [float(part.sum(dtype=torch.float64)) for part in torch.split(table[:, -1], counts)]
    facts = {"counts": counts, "weights": weights}
    ledger.publish(task.name, table.cpu().numpy(), facts)
    return facts


@dataclass(frozen=True)
class DiskCell:
    """The rows of one cell: a run of rows in each of several files.

    Parameters
    ----------
    ledger, names
        Where the files are.
    starts, counts
        The first row of the cell in each, and how many.
    total_weight
        Of all its rows.
    width, n_outputs
        Mapped features, and targets.
    dtype
        Of the files.
    device
        Where they are loaded to.
    """

    ledger: Checkpoint
    names: tuple[str, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    total_weight: float
    width: int
    n_outputs: int
    dtype: str
    device: str

    @property
    def n_rows(self) -> int:
        return sum(self.counts)

    def load(self) -> ArraySource:
        """Its rows in memory, in an order of chance, so that the last ones stand for all."""
        each = self.width + self.n_outputs + 1
        parts = [
            self.ledger.read(name, start * each, (start + count) * each, self.dtype)
            for name, start, count in zip(self.names, self.starts, self.counts, strict=True)
        ]
        rows = np.concatenate(parts).reshape(-1, each)
        mixed = torch.from_numpy(np.random.default_rng(self.n_rows).permutation(rows))
        mixed = mixed.to(self.device)
        X, Y, w = torch.split(mixed, [self.width, self.n_outputs, 1], dim=1)
        weighted = bool((w != 1).any())
        return ArraySource(X.contiguous(), Y.contiguous(), w[:, 0].clone() if weighted else None)


def fit_and_publish(ledger: Checkpoint, task: CellTask) -> dict[str, Any]:
    """Fit a cell and keep its centres and weights; what is known of it."""
    with torch_threads(task.n_threads):
        found = move_to_device(fit_cell(task), "cpu")
    X, Y, w = found.rows or Block(found.centers[:0], found.weights[:0], None)
    change = found.weights[:0] if found.change is None else found.change
    w = torch.ones(len(X), dtype=torch.float64) if w is None else w
    tables = [found.centers, found.weights, X, Y, w, change]
    facts = {
        "centers": len(found.centers),
        "left_out": len(X),
        "wide": found.centers.dtype == torch.float64,
        "report": asdict(found.report),
    }
    numbers = torch.cat([table.double().reshape(-1) for table in tables])
    ledger.publish(cell_name(task.q), numbers.numpy(), facts)
    return facts


def cell_name(q: int) -> str:
    """Of the result of a cell."""
    return f"cell-{q:06d}"


@dataclass(frozen=True)
class SortedPass:
    """A fit of a table whose rows are sorted by cell on the way.

    Parameters
    ----------
    skeleton
        Centroids and the map; its centres are not used.
    park
        Settings of the cells.
    rows
        The table.
    ledger
        Where results of tasks lie.
    n_slices
        Tasks that sort.
    room
        Bytes a core may use for a cell.
    n_left_out
        Most rows that are left out to measure uncertainty.
    """

    skeleton: UnfittedModel
    park: FitSettings
    rows: EncodedTable
    ledger: Checkpoint
    n_slices: int
    room: float
    n_left_out: int

    def fit(self) -> FitResult:
        """Sort, then fit what has not been fitted before."""
        start = time.perf_counter()
        cells = self.cells(self.sort())
        sorted_at = time.perf_counter()
        found = self.fit_cells(cells)
        model = replace(
            self.skeleton.model,
            centers=[cell.centers for cell in found],
            weights=[cell.weights * self.skeleton.scale for cell in found],
        )
        report = [cell.report for cell in found]
        seconds = (sorted_at - start, time.perf_counter() - sorted_at)
        left_out = join_left_out(model, found, self.skeleton.scale)
        return FitResult(model, report, *seconds, left_out)

    @property
    def shape(self) -> tuple[int, int]:
        """Mapped features, and targets."""
        model = self.skeleton.model
        return model.centroids.shape[1], len(model.intercept)

    def sort(self) -> dict[str, Any]:
        """What is known of every slice, those sorted before and those that are sorted now."""
        slices = enumerate(self.rows.slices(self.n_slices))
        tasks = [SortTask(f"sorted-{k:05d}", rows) for k, rows in slices]
        work = partial(sort_slice, self.skeleton, self.ledger)
        return finished("sorting rows", work, tasks, self.ledger, self.park)

    def cells(self, facts: dict[str, Any]) -> list[DiskCell]:
        """One for each centroid, from what each slice found."""
        counts = np.array([part["counts"] for part in facts.values()])  # (slices, Q)
        weights = np.array([part["weights"] for part in facts.values()]).sum(0)  # (Q,)
        starts = counts.cumsum(1) - counts
        dtype = str(self.skeleton.model.centroids.dtype).removeprefix("torch.")
        where = (dtype, self.skeleton.device)
        cells = [
            DiskCell(self.ledger, tuple(facts), tuple(a), tuple(n), float(w), *self.shape, *where)
            for a, n, w in zip(starts.T.tolist(), counts.T.tolist(), weights, strict=True)
        ]
        self.check(cells)
        return cells

    def check(self, cells: list[DiskCell]) -> None:
        """Refuse cells that do not fit a core's share of the memory."""
        largest = max(cell.n_rows for cell in cells)
        each = (cells[0].width + cells[0].n_outputs + 1) * np.dtype(cells[0].dtype).itemsize
        if largest * each * SORT_COPIES > self.room:
            raise ParameterError(
                f"n_cells must be larger, or max_memory, for solver='falkon' on disk: the largest "
                f"of {len(cells)} cells has {largest:,} rows, and a core has room for "
                f"{int(self.room / each / SORT_COPIES):,}"
            )

    def fit_cells(self, cells: list[DiskCell]) -> list[CellResult]:
        """Every cell, the largest first, each on as many threads as if all were to be fitted."""
        total = sum(cell.total_weight for cell in cells)
        n = sum(cell.n_rows for cell in cells)
        share = min(VALIDATION_SHARE, self.n_left_out / n)
        left_out = [math.ceil(share * cell.n_rows) for cell in cells]
        tasks = self.park.tasks(cells, total, self.park.seed, left_out)
        known = self.ledger.known(cell_name(task.q) for task in tasks)
        results = run_tasks(
            self.park.engine,
            partial(fit_and_publish, self.ledger),
            tasks,
            label="fitting cells",
            unit="rows",
            size_of=lambda task: task.cell.n_rows,
            work_of=lambda task: task.work,
            shown=self.park.shown,
            done=[known[cell_name(task.q)] for task in tasks],
        )
        return [self.published(q, facts) for q, facts in enumerate(results)]

    def published(self, q: int, facts: dict[str, Any]) -> CellResult:
        """What a task has published of a cell, and said of it."""
        model = self.skeleton.model
        e, t, m, h = *self.shape, facts["centers"], facts["left_out"]
        sizes = [m * e, m * t, h * e, h * t, h, h * t]
        numbers = torch.from_numpy(self.ledger.read(cell_name(q), 0, sum(sizes)))
        Z, a, X, Y, w, change = torch.split(numbers, sizes)
        dtype = torch.float64 if facts["wide"] else torch.float32
        rows = Block(X.view(h, e).to(model.centroids), Y.view(h, t), w)
        return CellResult(
            Z.view(m, e).to(dtype).clone(),
            a.view(m, t).clone(),
            CellReport(**facts["report"]),
            rows,
            change.view(h, t),
        )
