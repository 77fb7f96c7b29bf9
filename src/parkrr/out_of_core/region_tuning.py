"""Lengthscale and penalty at the density of all rows, once they are sorted by region.

They were chosen on a sample, whose rows are farther apart: 100 times as many rows of two features
are ten times as close, and show detail that a sample takes for noise. So they are compared again on
neighbourhoods of rows as large as a cell, in a few regions, by leave-one-out error.

A kernel that hardly falls inside of a cell is a spline whatever its lengthscale, but float32 cannot
tell its values apart: cells of 0.06 under a Matern kernel of 0.9 took 66 core-microseconds a row,
and 14 under one as wide as themselves. So lengthscales are compared in units of a neighbourhood,
and of those with almost the least error the shortest is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, draw_indices
from parkrr.errors import CellError
from parkrr.kernels import Radial
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.sorted_pass import DiskCell
from parkrr.park import FitSettings, fit_cell, make_tasks, prepare_cell
from parkrr.runtime import torch_threads
from parkrr.solvers import Direct
from parkrr.tuning import OpenChoices, TuningLog

# Lengthscales over the radius of a neighbourhood, and penalties of its fit; then factors around the
# best of these.
LENGTHSCALES, PENALTIES = (1 / 4, 1 / 2, 1.0, 2.0, 4.0), tuple(10.0**k for k in range(-8, 0))
FINER_LENGTHSCALES, FINER_PENALTIES = (0.7, 1.0, 1.4), (0.3, 1.0, 3.0)
REGIONS, NEIGHBORHOODS = 8, 2  # that are compared on, and of each of these regions
# Rows of a neighbourhood. With 200 the choice for 10^7 rows of rides had an error of 0.057, with
# 1,000 of 0.053, and takes 14 s more.
LEFT_OUT = 1000
MOST_VALUES = 4e6  # of the kernel in a neighbourhood: rows times centres
TOLERANCE = 1.002  # over the least squared error, up to which the shortest lengthscale is taken


class Candidate(NamedTuple):
    """What is compared."""

    lengthscale: float | None  # None for that of the kernel
    ridge: float  # lambda n, the same in every region and every cell


@dataclass(frozen=True)
class ComparisonTask:
    """Candidates to compare on the rows of a region; without any, its radius is measured."""

    name: str
    rows: DiskCell
    settings: FitSettings
    candidates: tuple[Candidate, ...] = ()

    @property
    def size(self) -> int:
        return self.rows.n_rows


def tune_on_regions(
    settings: FitSettings,
    regions: Sequence[tuple[DiskCell, FitSettings]],
    checkpoint: Checkpoint,
    choices: OpenChoices,
) -> tuple[FitSettings, list[dict[str, object]]]:
    """Settings with the lengthscale and the penalty of least error in some of the regions.

    A region has rows and settings. What is not open stays. Also returns what was tried.
    """
    kernel = settings.kernel
    search = choices.lengthscale and isinstance(kernel, Radial)
    if not (search or choices.penalty):
        return settings, []
    log, n = TuningLog(), sum(rows.total_weight for rows, _ in regions)
    some = regions[:: max(1, len(regions) // REGIONS)][:REGIONS]

    def run(k: int, candidates: tuple[Candidate, ...]) -> list[dict[str, Any]]:
        names = [f"tuning-{k}-{r:06d}" for r in range(len(some))]
        pairs = zip(names, some, strict=True)
        tasks = [ComparisonTask(name, *region, candidates) for name, region in pairs]
        work = partial(compare_and_publish, checkpoint)
        return checkpoint.run(settings, "comparing lengthscales", work, tasks)

    own = Candidate(None, settings.penalty * n)
    lengths: list[float | None] = [None]
    if search:
        radius = float(np.median([facts["radius"] for facts in run(0, ())]))
        lengths = [factor * radius for factor in LENGTHSCALES]
    weight = n / settings.n_cells  # of a cell
    ridges = [each * weight for each in PENALTIES] if choices.penalty else [own.ridge]
    candidates = (own, *(Candidate(*pair) for pair in product(lengths, ridges)))
    for k in (1, 2):
        errors = np.mean([facts["errors"] for facts in run(k, candidates)], 0)  # (candidates,)
        for candidate, error in zip(candidates, errors.tolist(), strict=True):
            tried = scale_settings(settings, candidate, n)
            log.note(
                "region tuning", math.sqrt(error), kernel=repr(tried.kernel), penalty=tried.penalty
            )
        best = shortest(candidates, errors.tolist())
        length = best.lengthscale
        lengths = [None] if length is None else [f * length for f in FINER_LENGTHSCALES]
        ridges = [f * best.ridge for f in FINER_PENALTIES] if choices.penalty else [best.ridge]
        candidates = tuple(Candidate(*pair) for pair in product(lengths, ridges))
    return scale_settings(settings, best, n), log.tried


def shortest(candidates: Sequence[Candidate], errors: Sequence[float]) -> Candidate:
    """Of the candidates with almost the least error, the one with the shortest lengthscale.

    The first one, which has the lengthscale of the sample, counts as the longest.
    """
    near = [
        (math.inf if candidate.lengthscale is None else candidate.lengthscale, error, candidate)
        for candidate, error in zip(candidates, errors, strict=True)
        if error <= TOLERANCE * min(errors)
    ]
    return min(near, key=lambda each: each[:2])[2]


def scale_settings(settings: FitSettings, candidate: Candidate, n: float) -> FitSettings:
    """Settings of rows of the weight n with the lengthscale and ridge of a candidate."""
    kernel = settings.kernel
    if isinstance(kernel, Radial) and candidate.lengthscale is not None:
        kernel = kernel.with_lengthscale(candidate.lengthscale)
    return replace(settings, kernel=kernel, penalty=candidate.ridge / n)


def compare_and_publish(checkpoint: Checkpoint, task: ComparisonTask) -> dict[str, Any]:
    """Compare, and publish the error of each; on one thread, for two round differently."""
    with torch_threads(1):
        radius, errors = compare_candidates(task)
    facts = {"radius": radius, "errors": errors}
    checkpoint.publish(task.name, np.array(errors), facts)
    return facts


def compare_candidates(task: ComparisonTask) -> tuple[float, list[float]]:
    """The radius of neighbourhoods, and the mean squared leave-one-out error of each candidate."""
    settings = task.settings
    rows, is_validation = task.rows.load_without_copies()
    cell_rows = rows.n_rows / settings.n_cells
    share = min(1.0, settings.n_centers / rows.n_rows)
    size = math.ceil(min(rows.n_rows, cell_rows, math.sqrt(MOST_VALUES / share)))
    drawn = draw_indices(rows.n_rows, min(rows.n_rows, NEIGHBORHOODS), settings.seed).tolist()
    radii, errors = [], np.zeros(len(task.candidates))
    for row in drawn:
        near = nearest_rows(rows.X, rows.X[row], size)
        cell = ArraySource(*rows.block(near))
        radii.append(float(torch.linalg.vector_norm(cell.X - rows.X[row], dim=1).max()))
        h = min(LEFT_OUT, size // 4)
        if is_validation is not None:  # no code of a category depends on the targets of these
            h = min(h, int(is_validation[near].sum()))
        own = (scale_settings(settings, each, rows.total_weight) for each in task.candidates)
        errors += [left_out_error(each, rows, cell, h) for each in own]
    return float(np.median(radii)), [float(error) for error in errors / len(drawn)]


def nearest_rows(X: Tensor, x: Tensor, count: int) -> Tensor:
    """The rows of X (n, e) nearest to x (e,), in the order of X."""
    return (X - x).square().sum(1).topk(count, largest=False).indices.sort().values


def left_out_error(settings: FitSettings, rows: ArraySource, cell: ArraySource, h: int) -> float:
    """The mean squared error of the last h rows of a cell, each left out; infinite without a fit.

    Centres and ridge are those of a cell of that weight among all rows of the region. Statistics
    alone must give the fit, for all cells will be fitted so.
    """
    every_row = settings.n_centers >= rows.n_rows
    seed = settings.seeds.cells
    [task] = make_tasks(settings, [cell], rows.total_weight, seed, [h], every_row=every_row)
    if isinstance(task.solver, Direct):
        task = replace(task, solver=Direct(iterate=False))
    try:
        fitted = fit_cell(task)
    except CellError:
        return math.inf
    if fitted.rows is None or fitted.change is None or not fitted.report.converged:
        return math.inf
    X, Y, w = fitted.rows
    estimator = prepare_cell(settings.kernel, fitted.centers, fitted.weights)
    left_out = estimator.predict(X).double() - fitted.change  # (h, t)
    squares = (left_out - Y).square().mean(1)  # (h,)
    error = float(squares.mean() if w is None else (w * squares).sum() / w.sum())
    return error if math.isfinite(error) else math.inf
