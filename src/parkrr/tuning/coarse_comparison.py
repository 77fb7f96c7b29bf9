"""Coarse comparison: does a coarse level below the cells help? And the blend, which follows a rule.

A few cells are fitted to most of their rows, by the same code and at the same size as the final
cells, with and without a coarse level below them, and compared on their other rows.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from parkrr.data import VALIDATION_SHARE, ArraySource, Holdout, draw_indices
from parkrr.kernels import FeatureMap, Radial
from parkrr.park import (
    CellResult,
    Coarse,
    FitSettings,
    NystromModel,
    divide_rows,
    fit_cells,
    fit_nystrom_model,
    make_tasks,
    place_centroids,
)
from parkrr.partition import Blend, median_margin
from parkrr.runtime import map_on_threads
from parkrr.tuning.log import TuningLog

# Cells that are fitted, at most half of all. On six of nine tables of 40,000 to 150,000 rows eight
# random cells decide as all cells do in more than nine of ten draws (six: in nine); on the others
# the errors differ by at most 0.2 %.
MOST_CELLS = 8
FEWEST_CELLS = 3  # of a partition with a blend or a coarse level
COARSE_CENTERS = 1000
COARSE_LENGTH = 3.0  # lengthscale of the coarse level over that of the cells
# The width of a blend over the median margin between the two nearest cells. Of nearest cells (2, 3,
# 5) and widths (0.25 to 4), this has the smallest largest loss over thirteen tables: errors are 2 %
# lower to 1.6 % higher than those of the nearest cell alone, where the best blend of each table,
# which only a fit of all cells finds, has 3.5 % lower ones. 0.5 loses 31 % on bike.
NEAREST, WIDTH = 2, 0.25
MARGIN_ROWS = 10_000  # whose median margin stands for that of all rows


@dataclass(frozen=True)
class CoarseComparison:
    """Some cells to fit, and rows of each to compare them on; all rows are mapped."""

    settings: FitSettings  # of the cells
    n: float  # total weight of all training rows, of which a cell has its share
    training: list[ArraySource]  # of each cell
    validation: list[ArraySource]  # of each cell
    rest: ArraySource  # all rows but the validation rows
    every_row: bool = False  # whether all training rows are centres

    def compare(self, level: Coarse) -> tuple[float, float]:
        """Mean squared errors without this coarse level, and with it.

        Coefficients are linear in the targets, so both share one fit of each cell: those of Y less
        those of what the coarse level predicts are those of its residual.
        """
        settings, t = self.settings, self.rest.n_outputs
        kernel, cores = level.kernel or settings.kernel, settings.engine.cores
        # It has not seen validation rows.
        coarse = fit_nystrom_model(kernel, self.rest, level.n_centers, cores, settings.seed)
        cells = [
            replace(cell, Y=torch.cat([cell.Y, coarse(cell.X).to(cell.Y.dtype)], 1))
            for cell in self.training
        ]
        seed, every_row = settings.seed, self.every_row
        fitted = fit_cells(settings, make_tasks(settings, cells, self.n, seed, every_row=every_row))

        def squared_errors(pair: tuple[CellResult, ArraySource]) -> Tensor:
            cell, rows = pair
            values = NystromModel(settings.kernel, cell.centers, cell.weights)(rows.X).double()
            of_Y, of_coarse = torch.split(values, t, 1)  # (h, t) each
            with_coarse = of_Y - of_coarse + coarse(rows.X)
            return torch.stack([rows.squared_error(each) for each in (of_Y, with_coarse)])

        pairs = list(zip(fitted, self.validation, strict=True))
        sums = torch.stack(map_on_threads(squared_errors, pairs, cores)).sum(0)
        without, with_coarse = (sums / sum(rows.total_weight for rows in self.validation)).tolist()
        return without, with_coarse


def choose_levels(
    settings: FitSettings,
    rows: ArraySource,
    blend: bool,
    coarse: bool,
    log: TuningLog,
    holdout: Holdout | None = None,
) -> FitSettings:
    """The settings with a blend, and with a coarse level if it helps, where they are left open.

    Parameters
    ----------
    rows
        Raw rows.
    blend, coarse
        Whether they are open.
    holdout
        Which rows are validation rows; None draws them from each cell.
    """
    metric, kernel = settings.metric, settings.kernel
    assert isinstance(metric, FeatureMap)
    if settings.n_cells < FEWEST_CELLS or not (blend or coarse):
        return settings
    rows = rows.map(partial(metric, dtype=settings.dtype))
    seen = rows
    if holdout is not None and holdout.keeps_apart:
        seen = replace(rows, index=(~holdout.is_validation).nonzero()[:, 0])
    C = place_centroids(settings, metric, seen, settings.seed)
    if len(C) < FEWEST_CELLS:
        return settings
    if blend:
        margin = median_margin(kernel, C, seen.sample(MARGIN_ROWS, settings.seed).X)
        settings = replace(settings, blend=Blend(NEAREST, WIDTH * margin))
    if not coarse or not isinstance(kernel, Radial):
        return settings
    log.progress.begin("coarse comparison")
    comparison = prepare_comparison(settings, rows, C, holdout)
    if not comparison.validation:
        return settings
    wide = kernel.with_lengthscale(COARSE_LENGTH * kernel.one_lengthscale)
    level = Coarse(COARSE_CENTERS, wide)
    errors = dict(zip(("cells", "coarse and cells"), comparison.compare(level), strict=True))
    for name, error in errors.items():
        log.note("coarse comparison", error, level=name)
        log.progress.report("coarse comparison", name, error / log.variance, log.progress.share)
    helps = errors["coarse and cells"] < errors["cells"]
    return replace(settings, coarse=level) if helps else settings


def prepare_comparison(
    settings: FitSettings, rows: ArraySource, centroids: Tensor, holdout: Holdout | None = None
) -> CoarseComparison:
    """Some cells of these mapped rows, drawn at random, with their rows divided.

    Validation rows are those of the holdout, or a fifth of each cell.
    """
    centroids, cells = divide_rows(settings, rows, centroids)
    fitted = draw_indices(len(cells), max(1, min(MOST_CELLS, len(cells) // 2)), settings.seed)
    rng = np.random.default_rng(settings.seed)
    training, validation = [], []
    is_rest = torch.ones(rows.n_rows, dtype=torch.bool, device=centroids.device)
    share = VALIDATION_SHARE
    if holdout is not None:
        is_rest, share = ~holdout.is_validation, float(holdout.is_validation.double().mean())
    for q in fitted.tolist():
        cell, index = cells[q], cells[q].index
        assert index is not None
        order = torch.from_numpy(rng.permutation(cell.n_rows)).to(centroids.device)
        cut = int(VALIDATION_SHARE * cell.n_rows)
        if holdout is not None:
            first = holdout.is_validation[index[order]]
            order = torch.cat([order[first], order[~first]])
            cut = min(int(first.sum()), cell.n_rows - 1)
        if cut == 0:
            continue
        training.append(ArraySource(*cell.block(order[cut:])))
        validation.append(ArraySource(*cell.block(order[:cut])))
        is_rest[index[order[:cut]]] = False
    return CoarseComparison(
        settings=settings,
        n=(1 - share) * rows.total_weight,
        training=training,
        validation=validation,
        rest=replace(rows, index=is_rest.nonzero()[:, 0]),
        every_row=settings.n_centers >= rows.n_rows,
    )
