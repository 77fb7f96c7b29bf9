"""All of a model but its weights, decided on a sample; how rows meet it, and tasks over slices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from parkrr.data import ArraySource, Block, EncodedTable, group_by_cell
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.park import FitSettings, Model, as_map, check_kernel_range, with_target_scaled
from parkrr.runtime import move_to_device, run_tasks


@dataclass(frozen=True)
class UnfittedModel:
    """All of a model but its weights, and what turns rows of the table into its rows.

    Parameters
    ----------
    model
        With weights of zero.
    scale
        Of the target.
    weight
        Mean weight of the rows of the sample, which becomes one.
    left_out
        Rows of the table as the cells see them, sorted by cell, that are each to be left out.
    counts
        How many of them are in each cell.
    device
        Where tasks compute. What tasks are sent and what they publish is on the CPU.
    """

    model: Model
    scale: float
    weight: float
    left_out: Block
    counts: list[int]
    device: str = "cpu"

    def placed(self) -> "UnfittedModel":
        """The same on its device."""
        return self if self.device == "cpu" else move_to_device(self, self.device)

    @property
    def sizes(self) -> list[int]:
        return [len(Z) for Z in self.model.centers]

    def judges(self) -> list[Block]:
        """Those rows of each cell."""
        X, Y, w = self.left_out
        counts = self.counts
        weights = [None] * len(counts) if w is None else torch.split(w, counts)
        parts = zip(torch.split(X, counts), torch.split(Y, counts), weights, strict=True)
        return [Block(*part) for part in parts]

    def mapped(self, rows: Block) -> Block:
        """Rows as the cells see them: features mapped, target centred, scaled, less coarse."""
        X = self.model.narrowed(rows.X)
        Y = (rows.Y.to(X.device).double() - self.model.intercept) / self.scale
        if self.model.coarse is not None:
            Y = Y - self.model.coarse(X) / self.scale
        return Block(X, Y, None if rows.w is None else rows.w.to(X.device).double() / self.weight)


def skeleton(park: FitSettings, sample: ArraySource, n_left_out: int) -> UnfittedModel:
    """Lines 2 to 6 on a sample: centroids, and the rows of the sample as centres, eq. (11).

    Rows drawn uniformly from all cells are m rho_q of each, up to chance. The last rows of the
    sample are left out in turn, and are centres only if the others are too few.
    """
    seeds = np.random.SeedSequence(park.seed).generate_state(4).tolist()
    weight = 1.0 if sample.w is None else sample.total_weight / sample.n_rows
    rows, intercept, scale = with_target_scaled(sample, park.fit_intercept, park.dtype)
    metric = as_map(park.metric, park.kernel, rows, seeds[0])
    rows = rows.map(partial(metric, dtype=park.dtype)).load()
    check_kernel_range(park.kernel, rows, park.dtype)
    judging = torch.arange(rows.n_rows, device=rows.X.device) >= rows.n_rows - n_left_out
    coarse, rows = park.fit_coarse(rows, judging, seeds[3])
    centroids, cells = park.divide(rows, park.place(rows, seeds[1]))
    centers = []
    for cell in cells:
        m_q = park.centers_of(cell, cell.n_rows / rows.n_rows)
        centers.append(cell.block(slice(0, m_q)).X)  # (m_q, e)
    zero = [Z.new_zeros(len(Z), rows.n_outputs, dtype=torch.float64) for Z in centers]
    scaled = coarse and replace(coarse, weights=coarse.weights * scale)
    model = Model(park.kernel, metric, centroids, centers, zero, intercept, park.blend, scaled)
    rows = rows.rows(slice(rows.n_rows - n_left_out, None))
    order, counts = group_by_cell(model.cell_of(rows.X), len(centroids))
    return UnfittedModel(model, scale, weight, rows.block(order), counts)


class TableTask(Protocol):
    """A slice of a table, by the name of its result."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> EncodedTable: ...


Slice = TypeVar("Slice", bound=TableTask)


def finished(
    label: str,
    work: Callable[[Slice], dict[str, Any]],
    tasks: Sequence[Slice],
    ledger: Checkpoint,
    park: FitSettings,
) -> dict[str, dict[str, Any]]:
    """Run the tasks that have no marker, the largest first; what is known of all, in order."""
    found = ledger.known(task.name for task in tasks)
    results = run_tasks(
        park.engine,
        work,
        tasks,
        label=label,
        unit="rows",
        size_of=lambda task: task.rows.n_rows,
        shown=park.shown,
        done=[found[task.name] for task in tasks],
    )
    return {task.name: facts for task, facts in zip(tasks, results, strict=True)}
