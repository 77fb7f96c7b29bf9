"""Blend trial: does blending neighbouring cells help, and does a coarse level below them?

The cells around a few centroids are fitted to most of their rows, by the same code and at the same
size as the final cells, and compared on their other rows, around which all near cells are there.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, Holdout, join_blocks
from parkrr.kernels import FeatureMap, Radial
from parkrr.park import (
    Coarse,
    FitSettings,
    Model,
    divide_rows,
    fit_cells,
    fit_coarse,
    make_tasks,
    place_centroids,
)
from parkrr.partition import HARD, Blend
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

    def compare(self, level: Coarse | None, blend: bool, log: TuningLog) -> tuple[float, Blend]:
        """Mean squared error with this coarse level or none, and the blend that gives it.

        If `blend` is open it is the best one; the nearest cell alone unless another is clearly
        better.
        """
        model, settings = self.fit(level), self.settings
        blends = [settings.blend]
        if blend:
            distance = settings.kernel.distance(self.centroids)
            margins = distance.nearest(self.validation.X, 2)[1][:, 1]
            width = float(margins.median())
            blends = [HARD, *(Blend(k, width * factor) for k in NEAREST for factor in WIDTHS)]
        errors = {each: self.error(replace(model, blend=each)) for each in blends}
        name = "cells" if level is None else "coarse and cells"
        for each, error in errors.items():
            log.note("blend trial", error, level=name, blend=repr(each))
            share = log.progress.share
            log.progress.report("blend trial", f"{name}, {each!r}", error / log.variance, share)
        best = min(errors, key=lambda each: errors[each])
        best = best if errors[best] < GAIN * errors[blends[0]] else blends[0]
        return errors[best], best

    def fit(self, level: Coarse | None) -> Model:
        """The cells, fitted to the residual of a coarse level that has not seen validation rows."""
        settings, cells, coarse = self.settings, self.cells, None
        if level is not None:
            kernel, cores = level.kernel or settings.kernel, settings.engine.cores
            coarse = fit_coarse(kernel, self.rest, level.n_centers, cores, settings.seed)
            cells = [replace(c, Y=c.Y - coarse(c.X).to(c.Y.dtype)) for c in cells]
        tasks = make_tasks(settings, cells, self.n, settings.seed, every_row=self.every_row)
        fitted = fit_cells(settings, tasks)
        return Model(
            kernel=settings.kernel,
            metric=FeatureMap(),
            centroids=self.centroids,
            centers=[cell.centers for cell in fitted],
            weights=[cell.weights for cell in fitted],
            intercept=self.centroids.new_zeros(self.validation.n_outputs, dtype=torch.float64),
            coarse=coarse,
        )

    def error(self, model: Model) -> float:
        """Mean squared error on the validation rows."""
        predicted = model.evaluate_pieces(self.validation.X, self.settings.engine.cores)
        predicted = predicted.to(self.validation.Y.device)
        return float(self.validation.squared_error(predicted)) / self.validation.total_weight


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
    error, best = blend_trial.compare(settings.coarse, blend, log)
    kernel = settings.kernel
    if coarse and isinstance(kernel, Radial) and not log.progress.is_ended_by_user:
        level = Coarse(
            COARSE_CENTERS, kernel.with_lengthscale(COARSE_LENGTH * kernel.one_lengthscale)
        )
        coarse_error, coarse_best = blend_trial.compare(level, blend, log)
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
