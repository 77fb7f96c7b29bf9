"""Blend trial: does blending neighbouring cells help, and does a coarse level below them?

The cells around a few centroids are fitted to most of their rows, by the same code and at the same
size as the final cells, and compared on their other rows, around which all near cells are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, Holdout, join_blocks
from parkrr.kernels import FeatureMap, Radial
from parkrr.park import (
    Coarse,
    FitSettings,
    NystromModel,
    divide_rows,
    fit_cells,
    fit_nystrom_model,
    make_tasks,
    place_centroids,
)
from parkrr.partition import HARD, Blend, median_margin
from parkrr.runtime import map_on_threads
from parkrr.tuning.log import TuningLog

VALIDATION_SHARE = 0.2
ALL_CELLS = 48  # up to here all take part
CENTERS = 2  # random centroids around which cells take part if there are more
FITTED, VALIDATED = 24, 6  # cells nearest to each: those that are fitted, and compared
NEAREST = (2, 3, 5)  # cells that a blend joins
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of a blend, over its median margin between nearest cells
COARSE_CENTERS = 1000
COARSE_LENGTH = 3.0  # lengthscale of the coarse level over that of the cells
GAIN = 0.995  # what has a cost in prediction must cut the error by more


class NearestPredictions(NamedTuple):
    """What the nearest cells of each validation row predict, in one level."""

    farther: Tensor  # (n, k + 1)  how much farther than the nearest centroid the nearest ones are
    values: Tensor  # (n, k, t)  of the k nearest cells, zero where no blend uses them
    coarse: Tensor | None  # (n, t)  of the level below them

    def blend(self, blend: Blend) -> Tensor:
        """Predictions under a blend, shape (n, t)."""
        k, cells = blend.n_blended(self.farther.shape[1]), self.values[:, 0]
        if k > 1:
            shares = blend.weigh(self.farther[:, : k + 1]).double()  # (n, k)
            cells = torch.einsum("nk,nkt->nt", shares, self.values[:, :k])
        return cells if self.coarse is None else cells + self.coarse


@dataclass(frozen=True)
class BlendTrial:
    """Some cells to fit, and rows to compare them on; all rows are mapped."""

    settings: FitSettings  # of the cells
    n: float  # total weight of all training rows, of which a cell has its share
    centroids: Tensor  # of these cells, (q, e)
    cells: list[ArraySource]  # training rows of each
    validation: ArraySource
    rest: ArraySource  # all rows but the validation rows
    every_row: bool = False  # whether all training rows are centres

    def predict(self, levels: Sequence[Coarse | None], widest: Blend) -> list[NearestPredictions]:
        """Predictions with each coarse level or none, of the cells that the widest blend uses.

        Coefficients are linear in the targets, so all levels share one fit: those of Y less those
        of what a coarse level predicts are those of its residual. Predictions of a cell are
        computed once and blended in every way: together a third of the time for 100,000 rows.
        """
        settings, X = self.settings, self.validation.X
        cores = settings.engine.cores
        coarse = [self.fit_coarse(level) for level in levels]
        estimators = self.fit_cells([each for each in coarse if each is not None])
        k = widest.n_blended(len(self.centroids))
        cells, farther = settings.kernel.distance(self.centroids).nearest(X, k + 1)
        used = (
            widest.weigh(farther) > 0 if k > 1 else torch.ones_like(cells[:, :1], dtype=torch.bool)
        )

        def predict_cell(q: int) -> tuple[Tensor, Tensor, Tensor]:
            row, rank = (used & (cells[:, :k] == q)).nonzero(as_tuple=True)
            return row, rank, estimators[q](X[row]) if len(row) else X.new_empty(0, width)

        t = self.validation.n_outputs
        width = t * (1 + sum(each is not None for each in coarse))
        values = torch.zeros(len(X), k, width, dtype=torch.float64, device=X.device)
        for row, rank, of_cell in map_on_threads(predict_cell, range(len(estimators)), cores):
            values[row, rank] = of_cell.double()
        of_Y, *of_coarse = torch.split(values, t, dim=2)
        parts = iter(of_coarse)
        return [
            NearestPredictions(farther, of_Y, None)
            if each is None
            else NearestPredictions(farther, of_Y - next(parts), each(X))
            for each in coarse
        ]

    def fit_coarse(self, level: Coarse | None) -> NystromModel | None:
        """A coarse level that has not seen validation rows."""
        if level is None:
            return None
        settings = self.settings
        kernel, cores = level.kernel or settings.kernel, settings.engine.cores
        return fit_nystrom_model(kernel, self.rest, level.n_centers, cores, settings.seed)

    def fit_cells(self, coarse: list[NystromModel]) -> list[NystromModel]:
        """An estimator of every cell, of its targets (n, t) and then of each coarse level there."""
        settings = self.settings
        cells = [
            replace(c, Y=torch.cat([c.Y, *(each(c.X).to(c.Y.dtype) for each in coarse)], 1))
            for c in self.cells
        ]
        tasks = make_tasks(settings, cells, self.n, settings.seed, every_row=self.every_row)
        fitted = fit_cells(settings, tasks)
        return [NystromModel(settings.kernel, cell.centers, cell.weights) for cell in fitted]

    def error(self, predicted: Tensor) -> float:
        """Mean squared error of predictions (n, t) of the validation rows."""
        predicted = predicted.to(self.validation.Y.device)
        return float(self.validation.squared_error(predicted)) / self.validation.total_weight

    def open_blends(self) -> list[Blend]:
        """The nearest cell alone, and blends of as many cells and widths as are compared."""
        width = median_margin(self.settings.kernel, self.centroids, self.validation.X)
        return [HARD, *(Blend(k, width * factor) for k in NEAREST for factor in WIDTHS)]

    def compare(
        self, levels: Sequence[Coarse | None], blend: bool, log: TuningLog
    ) -> list[tuple[float, Blend]]:
        """Mean squared error with each coarse level or none, and the blend that gives it.

        If `blend` is open it is the best one; the nearest cell alone unless another is clearly
        better.
        """
        blends = self.open_blends() if blend else [self.settings.blend]
        chosen = []
        for level, nearest in zip(levels, self.predict(levels, blends[-1]), strict=True):
            errors = {each: self.error(nearest.blend(each)) for each in blends}
            name = "cells" if level is None else "coarse and cells"
            for each, error in errors.items():
                log.note("blend trial", error, level=name, blend=repr(each))
            best = min(errors, key=lambda each: errors[each])
            best = best if errors[best] < GAIN * errors[blends[0]] else blends[0]
            share, relative = log.progress.share, errors[best] / log.variance
            log.progress.report("blend trial", f"{name}, {best!r}", relative, share)
            chosen.append((errors[best], best))
        return chosen


def choose_levels(
    settings: FitSettings,
    rows: ArraySource,
    blend: bool,
    coarse: bool,
    log: TuningLog,
    holdout: Holdout | None = None,
) -> FitSettings:
    """The settings with blend and coarse level, where they are left open and help."""
    assert isinstance(settings.metric, FeatureMap)
    if settings.n_cells == 1 or not (blend or coarse):
        return settings
    log.progress.begin("blend trial")
    mapped = rows.map(partial(settings.metric, dtype=settings.dtype))
    blend_trial = prepare_blend_trial(settings, mapped, holdout)
    if len(blend_trial.cells) < 3 or blend_trial.validation.n_rows == 0:
        return settings
    kernel, levels = settings.kernel, [settings.coarse]
    if coarse and isinstance(kernel, Radial):
        wide = kernel.with_lengthscale(COARSE_LENGTH * kernel.one_lengthscale)
        levels.append(Coarse(COARSE_CENTERS, wide))
    [(error, best), *others] = blend_trial.compare(levels, blend, log)
    for level, (coarse_error, coarse_best) in zip(levels[1:], others, strict=True):
        if coarse_error < GAIN * error:
            return replace(settings, blend=coarse_best, coarse=level)
    return replace(settings, blend=best)


def prepare_blend_trial(
    settings: FitSettings, rows: ArraySource, holdout: Holdout | None = None
) -> BlendTrial:
    """All cells of these mapped rows, or those around a few centroids, with their rows divided.

    Validation rows are those of the holdout, or a fifth of each cell.
    """
    seen = rows
    if holdout is not None and holdout.keeps_apart:
        seen = replace(rows, index=(~holdout.is_validation).nonzero()[:, 0])
    assert isinstance(settings.metric, FeatureMap)
    C = place_centroids(settings, settings.metric, seen, settings.seed)
    centroids, cells = divide_rows(settings, rows, C)
    fitted = list(range(len(cells)))
    validated = set(fitted)
    if len(cells) > ALL_CELLS:  # compare the cells whose neighbours are all fitted
        chosen = np.random.default_rng(settings.seed).choice(len(cells), CENTERS, False)
        distance = settings.kernel.distance(centroids)
        near = distance.nearest(centroids[chosen], FITTED)[0].tolist()
        fitted = sorted({q for around in near for q in around})
        validated = {q for around in near for q in around[:VALIDATED]}
    rng = np.random.default_rng(settings.seed)
    train, validation = [], []
    is_rest = torch.ones(rows.n_rows, dtype=torch.bool, device=centroids.device)
    share = VALIDATION_SHARE
    if holdout is not None:
        is_rest, share = ~holdout.is_validation, float(holdout.is_validation.double().mean())
    for q in fitted:
        cell, index = cells[q], cells[q].index
        assert index is not None
        order = torch.from_numpy(rng.permutation(cell.n_rows)).to(centroids.device)
        cut = int(VALIDATION_SHARE * cell.n_rows)
        if holdout is not None:
            first = holdout.is_validation[index[order]]
            order = torch.cat([order[first], order[~first]])
            cut = min(int(first.sum()), cell.n_rows - 1)
        train.append(ArraySource(*cell.block(order[cut:])))
        if q in validated:
            validation.append(cell.block(order[:cut]))
            is_rest[index[order[:cut]]] = False
    return BlendTrial(
        settings=settings,
        n=(1 - share) * rows.total_weight,
        centroids=centroids[fitted],
        cells=train,
        validation=join_blocks(validation),
        rest=replace(rows, index=is_rest.nonzero()[:, 0]),
        every_row=settings.n_centers >= rows.n_rows,
    )
