"""A trial of neighbouring cells: does blending help, does a coarse level?

The cells around a few centroids are fitted to most of their rows, by the same code and to the
same size as the final ones, and judged on the others, where every near cell takes part.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, join_blocks
from parkrr.kernels import FeatureMap, Radial
from parkrr.park import Coarse, CoarseModel, FitSettings, Model, coarse_model
from parkrr.partition import HARD, Blend
from parkrr.tuning.sample_search import Note

HELD_OUT = 0.2
ALL_CELLS = 48  # up to here all take part
AROUND, JUDGED = 24, 6  # cells nearest to an anchor: those that are fitted, and judged
ANCHORS = 2
NEAREST = (2, 3, 5)
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # over the median gap between first and second
COARSE_CENTERS = 1000
COARSE_LENGTH = 3.0  # lengthscale of the coarse level over that of the cells
GAIN = 0.995  # what has a cost in prediction must cut the error by more


@dataclass(frozen=True)
class BlendTrial:
    """Some cells to fit, and rows to judge them by.

    Parameters
    ----------
    park
        Settings of the cells.
    n
        Total weight that their shares refer to.
    centroids
        Of these cells, shape (q, e).
    cells
        Mapped rows to fit.
    held_out
        Mapped rows to judge by.
    rest
        All mapped rows that do not judge.
    """

    park: FitSettings
    n: float
    centroids: Tensor
    cells: list[ArraySource]
    held_out: ArraySource
    rest: ArraySource

    def coarse(self, level: Coarse) -> CoarseModel:
        """That coarse level, which has not seen who judges."""
        kernel, seed = level.kernel or self.park.kernel, self.park.seed
        return coarse_model(kernel, self.rest, level.n_centers, self.park.engine.cores, seed)

    def fit(self, coarse: CoarseModel | None) -> Model:
        """The cells, fitted to what the coarse level leaves."""
        cells = self.cells if coarse is None else [residual(cell, coarse) for cell in self.cells]
        fitted = self.park.run(self.park.tasks(cells, self.n, self.park.seed))
        return Model(
            kernel=self.park.kernel,
            metric=FeatureMap(),
            centroids=self.centroids,
            centers=[cell.centers for cell in fitted],
            weights=[cell.weights for cell in fitted],
            intercept=self.centroids.new_zeros(self.held_out.n_outputs, dtype=torch.float64),
            coarse=coarse,
        )

    def error(self, model: Model) -> float:
        """Mean squared error on the held-out rows."""
        predicted = model.predict(self.held_out.X, self.park.engine.cores)
        predicted = predicted.to(self.held_out.Y.device)
        return float(self.held_out.squared_error(predicted)) / self.held_out.total_weight

    def judge(self, coarse: CoarseModel | None, blend: bool, note: Note) -> tuple[float, Blend]:
        """The error with or without a coarse level, and the blend that gives it."""
        model = self.fit(coarse)
        level = "cells" if coarse is None else "coarse and cells"
        if blend:
            return self.best_blend(model, note, level)
        error = self.error(replace(model, blend=self.park.blend))
        note("blend trial", error, level=level, blend=repr(self.park.blend))
        return error, self.park.blend

    def best_blend(self, model: Model, note: Note, level: str) -> tuple[float, Blend]:
        """The blend of least error; the nearest cell alone unless another is clearly better."""
        gaps = self.park.kernel.distance(self.centroids).nearest(self.held_out.X, 2)[1][:, 1]
        width = float(gaps.median())
        blends = [Blend(k, width * factor) for k in NEAREST for factor in WIDTHS]
        found = {blend: self.error(replace(model, blend=blend)) for blend in (HARD, *blends)}
        for blend, error in found.items():
            note("blend trial", error, level=level, blend=repr(blend))
        best = min(found, key=lambda blend: found[blend])
        best = best if found[best] < GAIN * found[HARD] else HARD
        return found[best], best


def choose_levels(
    park: FitSettings, rows: ArraySource, blend: bool, coarse: bool, note: Note
) -> FitSettings:
    """The settings with blend and coarse level, where they are left open and help."""
    assert isinstance(park.metric, FeatureMap)
    if park.n_cells == 1 or not (blend or coarse):
        return park
    rows = rows.map(partial(park.metric, dtype=park.dtype))
    trial = prepare(park, rows)
    if len(trial.cells) < 3 or trial.held_out.n_rows == 0:
        return park
    given = None if park.coarse is None else trial.coarse(park.coarse)
    error, chosen = trial.judge(given, blend, note)
    if not coarse or not isinstance(park.kernel, Radial):
        return replace(park, blend=chosen)
    level = Coarse(
        COARSE_CENTERS, park.kernel.with_lengthscale(COARSE_LENGTH * park.kernel.lengthscale)
    )
    there, also = trial.judge(trial.coarse(level), blend, note)
    if there < GAIN * error:
        return replace(park, blend=also, coarse=level)
    return replace(park, blend=chosen)


def prepare(park: FitSettings, rows: ArraySource) -> BlendTrial:
    """Cells around a few anchors, or all of them, their mapped rows divided."""
    centroids, cells = park.divide(rows, park.place(rows, park.seed))
    taken, judged = around(park, centroids)
    rng = np.random.default_rng(park.seed)
    kept, judged_rows = [], []
    rest = torch.ones(rows.n_rows, dtype=torch.bool, device=centroids.device)
    for q in taken:
        order = torch.from_numpy(rng.permutation(cells[q].n_rows)).to(centroids.device)
        cut = int(HELD_OUT * cells[q].n_rows)
        kept.append(ArraySource(*cells[q].block(order[cut:])))
        index = cells[q].index
        assert index is not None
        if q in judged:
            judged_rows.append(cells[q].block(order[:cut]))
            rest[index[order[:cut]]] = False
    n = (1 - HELD_OUT) * rows.total_weight
    others = replace(rows, index=rest.nonzero()[:, 0])
    return BlendTrial(park, n, centroids[taken], kept, join_blocks(judged_rows), others)


def around(park: FitSettings, centroids: Tensor) -> tuple[list[int], set[int]]:
    """Cells that take part, and those in whose middle the others are all near."""
    if len(centroids) <= ALL_CELLS:
        return list(range(len(centroids))), set(range(len(centroids)))
    anchors = centroids[np.random.default_rng(park.seed).choice(len(centroids), ANCHORS, False)]
    near = park.kernel.distance(centroids).nearest(anchors, AROUND)[0].tolist()
    judged = {q for cells in near for q in cells[:JUDGED]}
    return sorted({q for cells in near for q in cells}), judged


def residual(cell: ArraySource, coarse: CoarseModel) -> ArraySource:
    """The cell with what the coarse level leaves of its target."""
    return replace(cell, Y=cell.Y - coarse(cell.X).to(cell.Y.dtype))
