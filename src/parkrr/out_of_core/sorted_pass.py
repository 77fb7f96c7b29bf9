"""Rows on disk sorted by cell or by region, for what visits the rows of one more than once.

Each slice of the table is a task that maps its rows, sorts them by cell and writes them to a file
(:func:`sort_slice`); a cell is then a part of each of these files. Cells are fitted as those in
memory are (:func:`parkrr.park.cells.fit_cell`), one a core at a time. So are single cells that a
pass for statistics could not solve (:func:`refit_from_rows`).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from parkrr.data import (
    FOLDS,
    VALIDATION_SHARE,
    ArraySource,
    EncodedTable,
    FoldedRows,
    group_by_cell,
    has_copies,
    join_blocks,
    merge_copies,
)
from parkrr.errors import CellError, NotFiniteError, ParameterError
from parkrr.out_of_core.checkpoint import Checkpoint, checksums
from parkrr.out_of_core.unfitted_model import SliceTask, UnfittedModel, publish_cells, read_cells
from parkrr.park import (
    CellResult,
    CellTask,
    FitResult,
    FitSettings,
    collect,
    fit_cell,
    local_penalty,
    make_tasks,
)
from parkrr.planning import SORT_COPIES
from parkrr.runtime import move_to_device, torch_threads
from parkrr.solvers import Direct

SORTED = "sorted-"  # how names of files with sorted rows begin


@dataclass(frozen=True)
class DiskCell:
    """The rows of one cell: consecutive rows in each of several files."""

    checkpoint: Checkpoint
    parts: tuple[tuple[str, int, int, int], ...]  # name of the file, first row, rows, checksum
    total_weight: float
    n_validation: int  # rows of which no code depends on their targets: all, if none does
    width: int  # mapped features
    n_outputs: int
    marked: bool  # whether a last column marks validation rows
    dtype: str  # of the files
    device: str  # to which rows are loaded

    @property
    def n_rows(self) -> int:
        return sum(count for _, _, count, _ in self.parts)

    @property
    def columns(self) -> int:
        return self.width + self.n_outputs + 1 + self.marked

    @property
    def row_bytes(self) -> int:
        return self.columns * np.dtype(self.dtype).itemsize

    def load(self) -> ArraySource:
        """Its rows in memory, in random order, so that the last ones stand for all."""
        return self.load_marked().rows

    def load_marked(self) -> FoldedRows:
        """As `load`, with validation rows behind the others, if they are marked, and the marks."""
        columns = self.columns
        parts = [
            self.checkpoint.read(name, start * columns, [count * columns], [check], self.dtype)
            for name, start, count, check in self.parts
        ]
        rows = np.concatenate(parts).reshape(-1, columns)
        rows = np.random.default_rng(self.n_rows).permutation(rows)
        if self.marked:
            rows = rows[np.argsort(rows[:, -1], kind="stable")]
        table = torch.from_numpy(rows).to(self.device)
        X, Y, w, mark = torch.split(table, [self.width, self.n_outputs, 1, int(self.marked)], dim=1)
        weighted = bool((w != 1).any())
        source = ArraySource(X.contiguous(), Y.contiguous(), w[:, 0].clone() if weighted else None)
        return FoldedRows(source, mark[:, 0] > 0 if self.marked else None)

    def load_without_copies(self) -> FoldedRows:
        """As `load_marked`, with copies merged: a row left out would be predicted by them."""
        rows, is_validation = self.load_marked()
        if is_validation is None and has_copies(rows):
            rows = merge_copies(rows)
            rows = replace(rows, w=None if rows.w is None else rows.w.to(rows.X.dtype))
        return FoldedRows(rows, is_validation)


def fit_from_sorted_rows(
    unfitted: UnfittedModel,
    settings: FitSettings,
    rows: EncodedTable,
    checkpoint: Checkpoint,
    *,
    n_slices: int,
    max_bytes: float,
    n_left_out: int,
) -> FitResult:
    """Sort the rows in `n_slices` tasks, then fit the cells with centres of their own.

    A core may use `max_bytes` for a cell, and at most `n_left_out` rows get leave-one-out
    predictions.
    """
    start = time.perf_counter()
    numbers = range(len(unfitted.model.centroids))
    cells = sort_rows(unfitted, settings, rows, checkpoint, n_slices, numbers)
    row_bytes, largest = SORT_COPIES * cells[0].row_bytes, max(cell.n_rows for cell in cells)
    if largest * row_bytes > max_bytes:
        raise ParameterError(
            f"n_cells must be larger, or max_memory, for solver='falkon' on disk: the largest "
            f"of {len(cells)} cells has {largest:,} rows, and a core has room for "
            f"{int(max_bytes / row_bytes):,}"
        )
    sorted_at = time.perf_counter()
    share = min(VALIDATION_SHARE, n_left_out / sum(cell.n_rows for cell in cells))
    left_out = [min(math.ceil(share * cell.n_rows), cell.n_validation) for cell in cells]
    n = sum(cell.total_weight for cell in cells)
    # On as many threads as if all were to be fitted, whatever is finished already.
    tasks = make_tasks(settings, cells, n, settings.seed, left_out)
    work = partial(fit_and_publish, checkpoint)
    fitted = zip(tasks, checkpoint.run(settings, "fitting cells", work, tasks), strict=True)
    results = [
        read_cells(checkpoint, task.name, facts, unfitted, task.q)[0] for task, facts in fitted
    ]
    seconds = (sorted_at - start, time.perf_counter() - sorted_at)
    return collect(unfitted.model, results, unfitted.scale, seconds)


def refit_from_rows(
    unfitted: UnfittedModel,
    settings: FitSettings,
    rows: EncodedTable,
    checkpoint: Checkpoint,
    numbers: Sequence[int],
    *,
    n_slices: int,
    max_bytes: float,
    ridge: float,
) -> list[CellResult]:
    """The cells of these numbers, fitted to their rows with the ridge they were meant to have.

    Cells whose rows do not fit into `max_bytes`, and those on which FALKON does not converge, are
    not among the results. For the others one more pass sorts their rows.
    """
    if not numbers:
        return []
    cells = sort_rows(unfitted, settings, rows, checkpoint, n_slices, numbers)
    seeds = np.random.default_rng(settings.seed).integers(2**31, size=len(unfitted.sizes))
    tasks = []
    for q, cell in zip(numbers, cells, strict=True):
        # In float64, whatever the files are.
        if SORT_COPIES * 8 * cell.columns * cell.n_rows > max_bytes:
            continue
        lambda_q = local_penalty(ridge, cell.total_weight)
        m_q, h_q = unfitted.sizes[q], min(unfitted.counts[q], int(VALIDATION_SHARE * cell.n_rows))
        why = "its statistics left no solution"
        tasks.append(
            CellTask(q, cell, settings.kernel, Direct(), why, m_q, lambda_q, int(seeds[q]), 1, h_q)
        )
    work = partial(refit_and_publish, checkpoint)
    fitted = zip(tasks, checkpoint.run(settings, "fitting cells again", work, tasks), strict=True)
    results = [
        read_cells(checkpoint, task.name, facts, unfitted, task.q)[0]
        for task, facts in fitted
        if facts["cells"]
    ]
    return [cell for cell in results if cell.report.converged]


def sort_rows(
    unfitted: UnfittedModel,
    settings: FitSettings,
    rows: EncodedTable,
    checkpoint: Checkpoint,
    n_slices: int,
    numbers: Sequence[int],
) -> list[DiskCell]:
    """The cells of these numbers, from slices that were sorted before or are sorted now."""
    slices = enumerate(rows.slices(n_slices))
    Q = len(unfitted.model.centroids)
    tasks = [SliceTask(f"{SORTED}{k:05d}", part, 0, Q) for k, part in slices]
    work = partial(sort_slice, unfitted, checkpoint, numbers)
    facts = checkpoint.run(settings, "sorting rows", work, tasks)
    names = [task.name for task in tasks]
    counts = np.array([slice_facts["counts"] for slice_facts in facts])  # (slices, cells)
    weights = np.array([slice_facts["weights"] for slice_facts in facts]).sum(0)  # (cells,)
    checks = np.array([slice_facts["checks"] for slice_facts in facts])  # (slices, cells)
    validation = np.array([slice_facts["validation"] for slice_facts in facts]).sum(0)  # (cells,)
    starts = counts.cumsum(1) - counts
    parts = np.stack([starts, counts, checks], -1)  # (slices, cells, 3)
    return [
        DiskCell(
            checkpoint,
            tuple((name, *part) for name, part in zip(names, parts[:, k].tolist(), strict=True)),
            float(weights[k]),
            int(validation[k]),
            unfitted.width,
            unfitted.n_outputs,
            bool(rows.fold_codes),
            str(unfitted.model.centroids.dtype).removeprefix("torch."),
            unfitted.device,
        )
        for k in range(len(numbers))
    ]


def remove_sorted_rows(checkpoint: Checkpoint) -> None:
    """Delete the files of sorted rows, once nothing needs them; markers first."""
    for name in sorted(checkpoint.place.names()):  # .json before .numbers
        if name.startswith(SORTED):
            checkpoint.place.remove(name)


def sort_slice(
    unfitted: UnfittedModel, checkpoint: Checkpoint, cells: Sequence[int], task: SliceTask
) -> dict[str, Any]:
    """Publish the rows of a slice by cell, of these cells: mapped features, targets, weight."""
    unfitted = unfitted.on_device()
    with torch_threads(1):
        blocks = [(unfitted.prepare(block), fold) for block, fold in task.rows.folded_blocks()]
        rows = join_blocks([block for block, _ in blocks])
        cell_of = unfitted.model.assign(rows.X)
    order, counts = group_by_cell(cell_of, len(unfitted.model.centroids))
    parts = torch.split(order, counts)
    order, counts = torch.cat([parts[q] for q in cells]), [counts[q] for q in cells]
    w = rows.Y.new_ones(rows.n_rows) if rows.w is None else rows.w
    columns = [rows.X, rows.Y, w[:, None]]
    folds = [fold for _, fold in blocks if fold is not None]
    if folds:
        columns.append(torch.from_numpy(np.concatenate(folds) == FOLDS)[:, None])
    table = torch.cat([column.to(rows.X) for column in columns], 1)[order]
    own = table[:, unfitted.width + unfitted.n_outputs]
    weights = [float(part.sum(dtype=torch.float64)) for part in torch.split(own, counts)]
    validation = counts
    if folds:
        validation = [int(part.sum()) for part in torch.split(table[:, -1], counts)]
    numbers = table.cpu().numpy()
    checks = checksums(numbers, [count * numbers.shape[1] for count in counts])
    facts = {"counts": counts, "weights": weights, "validation": validation, "checks": checks}
    checkpoint.publish(task.name, numbers, facts)
    return facts


def fit_and_publish(checkpoint: Checkpoint, task: CellTask) -> dict[str, Any]:
    """Fit a cell and publish it."""
    with torch_threads(1):
        cell = move_to_device(fit_cell(task), "cpu")
    return publish_cells(checkpoint, task.name, [cell], own_rows=True)


def refit_and_publish(checkpoint: Checkpoint, task: CellTask) -> dict[str, Any]:
    """Fit a cell and publish it, or that rounding got in the way here as well."""
    try:
        return fit_and_publish(checkpoint, task)
    except CellError as error:
        if not isinstance(error.__cause__, NotFiniteError):
            raise
    facts: dict[str, Any] = {"own_rows": True, "cells": []}
    checkpoint.publish(task.name, np.empty(0), facts)
    return facts
