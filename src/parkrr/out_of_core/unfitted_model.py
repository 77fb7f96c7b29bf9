"""All of a model but its weights, decided on a sample, and fitted cells as files."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from parkrr.data import ArraySource, Block, EncodedTable, group_by_cell
from parkrr.out_of_core.checkpoint import Checkpoint, checksums
from parkrr.park import (
    CellReport,
    CellResult,
    FitSettings,
    Model,
    count_centers,
    divide_rows,
    prepare_rows,
    select_centroids,
)
from parkrr.partition import median_margin
from parkrr.runtime import move_to_device

MARGIN_ROWS = 5000  # whose median margin between neighbouring cells is that of all rows


@dataclass(frozen=True)
class UnfittedModel:
    """All of a model but its weights, and what turns rows of the table into its rows."""

    model: Model  # with weights of zero
    scale: float  # of the target
    weight: float  # mean weight of the rows of the sample, which becomes one
    left_out: Block  # rows that get leave-one-out predictions, mapped and sorted by cell
    counts: list[int]  # how many of them are in each cell
    device: str = "cpu"  # where tasks compute; what they are sent and publish is on the CPU
    margin: float = 0.0  # between neighbouring cells of the sample that chose the blend; 0 if given

    @property
    def sizes(self) -> list[int]:
        """Centres of each cell."""
        return [len(Z) for Z in self.model.centers]

    @property
    def width(self) -> int:
        """Mapped features, e."""
        return self.model.centroids.shape[1]

    @property
    def n_outputs(self) -> int:
        return len(self.model.intercept)

    def on_device(self) -> "UnfittedModel":
        """The same where tasks compute."""
        return self if self.device == "cpu" else move_to_device(self, self.device)

    def left_out_by_cell(self) -> list[Block]:
        """The leave-one-out rows of each cell."""
        X, Y, w = self.left_out
        counts = self.counts
        weights = [None] * len(counts) if w is None else torch.split(w, counts)
        parts = zip(torch.split(X, counts), torch.split(Y, counts), weights, strict=True)
        return [Block(*part) for part in parts]

    def prepare(self, rows: Block) -> Block:
        """Rows of the table as the cells are fitted to them."""
        X, Y, w = self.model.residual(rows, self.scale)
        return Block(X, Y, None if w is None else w / self.weight)


@dataclass(frozen=True)
class SliceTask:
    """Rows of the table, and the cells that count: `first` to `last`, exclusive."""

    name: str
    rows: EncodedTable
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.rows.n_rows


def prepare_model(settings: FitSettings, sample: ArraySource, n_left_out: int) -> UnfittedModel:
    """Lines 2 to 6 of Algorithm 1 on a sample, whose rows become the centres, eq. (11).

    Rows drawn uniformly from all cells are m rho_q of each, up to chance. The last rows of the
    sample get leave-one-out predictions, and are centres only if the others are too few.
    """
    weight = 1.0 if sample.w is None else sample.total_weight / sample.n_rows
    left_out = torch.arange(sample.n_rows, device=sample.X.device) >= sample.n_rows - n_left_out
    rows, model, scale = prepare_rows(settings, sample, left_out, load=True)
    C = select_centroids(settings, rows, settings.seeds.centroids)  # (Q, e)
    C, cells = divide_rows(settings, rows, C)
    centers = []
    for cell in cells:
        m_q = count_centers(settings, cell, cell.n_rows / rows.n_rows)
        centers.append(cell.block(slice(0, m_q)).X)  # (m_q, e)
    zero = [Z.new_zeros(len(Z), rows.n_outputs, dtype=torch.float64) for Z in centers]
    model = replace(model, centroids=C, centers=centers, weights=zero)
    last = rows.rows(slice(rows.n_rows - n_left_out, None))
    order, counts = group_by_cell(model.assign(last.X), len(C))
    return UnfittedModel(model, scale, weight, last.block(order), counts)


def prepare_regions(
    settings: FitSettings, sample: ArraySource, n_regions: int, blend_chosen: bool
) -> UnfittedModel:
    """What is decided before rows are sorted: feature map, coarse level, centroids of regions.

    A region has its centroid for a centre until it is fitted. The settings have as many cells as
    the sample that chose the blend.
    """
    weight = 1.0 if sample.w is None else sample.total_weight / sample.n_rows
    left_out = torch.zeros(sample.n_rows, dtype=torch.bool, device=sample.X.device)
    rows, model, scale = prepare_rows(settings, sample, left_out, load=True)
    margin = 0.0
    if blend_chosen and settings.blend.width:
        C = select_centroids(settings, rows, settings.seeds.centroids)
        margin = median_margin(settings.kernel, C, rows.block(slice(0, MARGIN_ROWS)).X)
    upper = replace(settings, n_cells=n_regions)
    C = select_centroids(upper, rows, settings.seeds.centroids)  # (R, e)
    zero = [C.new_zeros(1, rows.n_outputs, dtype=torch.float64) for _ in C]
    model = replace(model, centroids=C, centers=list(torch.split(C, 1)), weights=zero)
    none = rows.block(slice(0, 0))
    return UnfittedModel(model, scale, weight, none, [0] * len(C), margin=margin)


def publish_cells(
    checkpoint: Checkpoint,
    name: str,
    cells: Sequence[CellResult],
    *,
    own_rows: bool,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Publish fitted cells: their reports as facts, their arrays one after the other.

    Centres and leave-one-out rows are written only if they are the cells' own, and not those of
    the unfitted model. `about` are more facts.
    """
    reports, arrays = list[dict[str, Any]](), list[torch.Tensor]()
    for Z, alpha, report, rows, change, _ in cells:
        none = alpha[:0]
        X, Y, w = rows or Block(Z[:0], none, None)
        w = torch.ones_like(Y[:, 0]) if w is None else w
        arrays += [alpha, none if change is None else change]
        arrays += [Z, X, Y, w] if own_rows else []
        wide = Z.dtype == torch.float64
        reports.append({"left_out": len(X), "wide": wide, "report": report._asdict()})
    numbers = torch.cat([array.double().reshape(-1) for array in arrays]).cpu().numpy()
    checks = checksums(numbers, [len(numbers)])
    facts = {"own_rows": own_rows, "cells": reports, "checks": checks, **(about or {})}
    checkpoint.publish(name, numbers, facts)
    return facts


def read_cells(
    checkpoint: Checkpoint, name: str, facts: dict[str, Any], unfitted: UnfittedModel, first: int
) -> list[CellResult]:
    """What `publish_cells` wrote and returned of the cells from number `first` on."""
    e, t, own_rows = unfitted.width, unfitted.n_outputs, facts["own_rows"]
    shapes = list[tuple[int, int]]()
    for cell in facts["cells"]:
        m, h = cell["report"]["centers"], cell["left_out"]
        shapes += [(m, t), (h, t), *([(m, e), (h, e), (h, t), (h, 1)] if own_rows else [])]
    sizes = [math.prod(shape) for shape in shapes]
    numbers = torch.from_numpy(checkpoint.read(name, 0, [sum(sizes)], facts["checks"]))
    parts = zip(torch.split(numbers, sizes), shapes, strict=True)
    arrays = (part.view(shape).clone() for part, shape in parts)
    left_out = [] if own_rows else unfitted.left_out_by_cell()
    results = []
    for q, cell in enumerate(facts["cells"], first):
        alpha, change = next(arrays), next(arrays)
        if own_rows:
            Z, X, Y, w = (next(arrays) for _ in range(4))
            rows = Block(X.to(unfitted.model.centroids), Y, w[:, 0])
        else:
            Z, rows = unfitted.model.centers[q], left_out[q]
        Z = Z.to(torch.float64 if cell["wide"] else torch.float32)
        results.append(CellResult(Z, alpha, CellReport(**cell["report"]), rows, change))
    return results
