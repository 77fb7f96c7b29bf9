"""Algorithm 1: partition, split, fit cells, collect. Start reading at :meth:`FitSettings.fit`."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import FEW_ROWS, ArraySource, CellRows, draw_indices, select_validation_rows
from parkrr.errors import ParameterError
from parkrr.kernels import FeatureMap, Kernel, Radial, center_features, standardize_features
from parkrr.park.cells import CellReport, CellResult, CellTask, fit_cell
from parkrr.park.holdout import LeaveOneOutRows, join_left_out
from parkrr.park.model import CoarseModel, Model
from parkrr.partition import PARTITION_ROWS_PER_CELL, Blend, assign, balance_cells, choose_centroids
from parkrr.runtime import Engine, run_tasks
from parkrr.solvers import (
    PENALTIES,
    Direct,
    Falkon,
    LocalProblem,
    Solver,
    choose_solver,
    needs_float64,
    penalty_path,
)

# When cells are balanced, one lighter than this is merged: too few rows for a model.
LIGHTEST_CELL = 32
CANDIDATES_PER_CELL = 4  # at least, or greedy would have no choice
METRIC_ROWS = 10_000  # whose mean and spread stand for those of all rows
# At 1e-11 rounding of the statistics of a wide Gaussian made a training error of 0.25 of 83.
COARSE_PENALTIES = PENALTIES[PENALTIES >= 1e-8]
COARSE_ROWS = 100  # rows a centre that the coarse level is fitted to, drawn from all
ASSIGN_ROWS = 2**16  # rows routed by one task
LARGEST_TARGET = 1e150
LEFT_OUT_VALUES = 2**24  # of the kernel, of rows of one cell that are each left out


class FitResult(NamedTuple):
    """A model, a report per cell, the seconds to place and to fit the cells, and who judges."""

    model: Model
    report: list[CellReport]
    place_seconds: float
    cells_seconds: float
    left_out: LeaveOneOutRows


@dataclass(frozen=True)
class Coarse:
    """One model of all rows below the cells, which are fitted to its residual.

    Its penalty is the one of least generalised cross-validation score.

    Parameters
    ----------
    n_centers
        Its Nystrom centres.
    kernel
        Its kernel; None takes that of the cells.

    Examples
    --------
    >>> from parkrr.park.algorithm import Coarse
    >>> from parkrr.kernels import Gaussian
    >>> Coarse(500, Gaussian(10.0))
    Coarse(n_centers=500, kernel=Gaussian(lengthscale=10.0))
    """

    n_centers: int = 1000
    kernel: Kernel | None = None


@dataclass(frozen=True)
class FitSettings:
    """The settings of Algorithm 1; the estimators say what each of them means."""

    kernel: Kernel
    penalty: float
    metric: FeatureMap | str
    n_cells: int
    n_centers: int
    centroids: str
    n_candidates: int | None
    balance: bool
    blend: Blend
    coarse: Coarse | None
    solver: str
    falkon: Falkon
    fit_intercept: bool
    dtype: torch.dtype
    engine: Engine
    seed: int
    shown: bool  # progress

    def fit(self, rows: ArraySource) -> FitResult:
        """Algorithm 1: line 2 chooses centroids, 3-6 divide the rows, 7-10 fit the cells.

        Rows that judge, or all if they are few, are each left out in turn.
        """
        start = time.perf_counter()
        seeds = np.random.SeedSequence(self.seed).generate_state(4).tolist()
        judging = select_validation_rows(rows, self.seed) | (rows.n_rows < FEW_ROWS)  # (n,)
        rows, intercept, scale = with_target_scaled(rows, self.fit_intercept, self.dtype)
        metric = as_map(self.metric, self.kernel, rows, seeds[0])
        rows = rows.map(partial(metric, dtype=self.dtype))
        check_kernel_range(self.kernel, rows, self.dtype)
        coarse, rows = self.fit_coarse(rows, judging, seeds[3])
        centroids = self.place(rows, seeds[1])  # (Q, e)
        centroids, cells = self.divide(rows.move_last(judging), centroids)  # Q sources
        placed = time.perf_counter()

        left_out = [int(judging[cell.index].sum()) for cell in cells]
        fitted = self.run(self.tasks(cells, rows.total_weight, seeds[2], left_out))
        model = Model(
            kernel=self.kernel,
            metric=metric,
            centroids=centroids,
            centers=[cell.centers for cell in fitted],
            weights=[cell.weights * scale for cell in fitted],
            intercept=intercept,
            blend=self.blend,
            coarse=coarse and replace(coarse, weights=coarse.weights * scale),
        )
        report = [cell.report for cell in fitted]
        seconds = (placed - start, time.perf_counter() - placed)
        return FitResult(model, report, *seconds, join_left_out(model, fitted, scale))

    def fit_coarse(
        self, rows: ArraySource, judging: Tensor, seed: int
    ) -> tuple[CoarseModel | None, ArraySource]:
        """The coarse level, if there is one, and the rows with what it leaves of the target.

        Rows that judge (n,) do not teach it, unless all do.
        """
        if self.coarse is None:
            return None, rows
        kernel = self.coarse.kernel or self.kernel
        learning = rows if bool(judging.all()) else replace(rows, index=(~judging).nonzero()[:, 0])
        how = (self.coarse.n_centers, self.engine.local.cores, seed)
        model = coarse_model(kernel, learning, *how)
        shards = rows.shards(math.ceil(rows.n_rows / ASSIGN_ROWS))
        parts = self.engine.local.map(lambda shard: model(shard.load().X), shards)
        fitted = torch.cat(parts)  # (n, t)
        return model, replace(rows, Y=rows.Y - fitted.to(rows.Y.dtype))

    def place(self, rows: ArraySource, seed: int) -> Tensor:
        """Line 2: centroids by the rule, eq. (7), balanced unless switched off; (Q, d)."""
        n_cells = self.n_cells
        if self.balance:
            n_cells = max(1, min(n_cells, int(rows.total_weight / LIGHTEST_CELL)))
        n_candidates = max(self.n_candidates or rows.n_rows, CANDIDATES_PER_CELL * n_cells)
        sample = rows.sample(max(n_candidates, PARTITION_ROWS_PER_CELL * n_cells), seed)
        C = choose_centroids(
            self.kernel, sample.X, self.centroids, n_cells, n_candidates=n_candidates, seed=seed
        )
        if not self.balance or len(C) == 1:
            return C
        lightest = LIGHTEST_CELL * sample.total_weight / rows.total_weight
        return balance_cells(
            self.kernel, sample.X, sample.w, C, rule=self.centroids, lightest=lightest, seed=seed
        )

    def divide(self, rows: ArraySource, centroids: Tensor) -> tuple[Tensor, list[ArraySource]]:
        """Lines 3-6: the rows of each cell that has any, and those cells' centroids."""
        shards = rows.shards(math.ceil(rows.n_rows / ASSIGN_ROWS))
        place = partial(assign_rows, self.kernel, centroids)
        cell_of = torch.cat(self.engine.local.map(place, shards))  # (n,)
        present = torch.bincount(cell_of, minlength=len(centroids)) > 0  # (Q,)
        number = present.cumsum(0) - 1
        return centroids[present], rows.split(number[cell_of], int(present.sum()))

    def tasks(
        self, cells: Sequence[CellRows], n: float, seed: int, left_out: Sequence[int] = ()
    ) -> list[CellTask]:
        """m_q = m rho_q and lambda_q = lambda / rho_q (paper, section 5 and Theorem 4).

        Of each cell so many rows at the end are to be left out in turn, if any.
        """
        seeds = np.random.default_rng(seed).integers(2**31, size=len(cells)).tolist()
        n_threads = self.engine.threads_per_task(len(cells))
        tasks = []
        for q, cell in enumerate(cells):
            rho_q = cell.total_weight / n
            m_q = self.centers_of(cell, rho_q)
            solver, why = self.solver_for(cell, m_q)
            lambda_q = self.penalty / rho_q
            most = min(max(1, LEFT_OUT_VALUES // m_q), solver.most_left_out(cell.n_rows))
            h_q = min(left_out[q], most) if left_out else 0
            how = (solver, why, m_q, lambda_q, seeds[q], n_threads)
            tasks.append(CellTask(q, cell, self.kernel, *how, h_q))
        return tasks

    def centers_of(self, cell: CellRows, rho_q: float) -> int:
        """m_q = m rho_q, all rows at most."""
        return min(cell.n_rows, max(1, math.ceil(self.n_centers * rho_q)))

    def solver_for(self, cell: CellRows, m_q: int) -> tuple[Solver, str]:
        if self.solver == "auto":
            return choose_solver(cell.n_rows, m_q, cell.n_outputs, self.falkon)
        return (Direct() if self.solver == "direct" else self.falkon), "asked for"

    def run(self, tasks: list[CellTask]) -> list[CellResult]:
        """Lines 7-10, the largest cells first, so that none is left to run alone.

        A cell with more than a core's share of the work gets all cores to itself.
        """
        share = sum(task.work for task in tasks) / self.engine.cores
        cores = self.engine.threads_per_task(1)
        return run_tasks(
            self.engine,
            fit_cell,
            [replace(task, n_threads=cores) if task.work > share else task for task in tasks],
            label="fitting cells",
            unit="rows",
            size_of=lambda task: task.cell.n_rows,
            work_of=lambda task: task.work,
            alone=lambda task: task.work > share,
            shown=self.shown,
        )


def as_map(metric: FeatureMap | str, kernel: Kernel, rows: ArraySource, seed: int) -> FeatureMap:
    """The map itself, or the one of that name for these rows."""
    if isinstance(metric, FeatureMap):
        return metric
    if metric == "euclidean" and not isinstance(kernel, Radial):
        return FeatureMap()  # a shift would change the kernel
    sample = rows.sample(METRIC_ROWS, seed).X
    return center_features(sample) if metric == "euclidean" else standardize_features(sample)


def coarse_model(
    kernel: Kernel, rows: ArraySource, n_centers: int, n_threads: int, seed: int
) -> CoarseModel:
    """The Nystrom estimator of least cross-validation score on a sample of the rows."""
    sample = rows.sample(COARSE_ROWS * n_centers, seed)
    drawn = draw_indices(sample.n_rows, n_centers, seed)
    Z = sample.X[drawn]  # (m, e)
    smallest = float(COARSE_PENALTIES[0]) * sample.total_weight
    path = penalty_path(LocalProblem(kernel, sample, Z, None, smallest, n_threads))
    order = path.gcv(COARSE_PENALTIES).argsort().cpu()
    fits = (path.weights(penalty) for penalty in COARSE_PENALTIES[order].tolist())
    if Z.dtype == torch.float64:
        return CoarseModel(kernel, Z, next(fits))
    kept = (a for a in fits if not needs_float64(kernel, sample.X, Z, a))
    return CoarseModel(kernel, Z, next(kept, path.weights(float(PENALTIES[-1]))))


def assign_rows(kernel: Kernel, centroids: Tensor, rows: ArraySource) -> Tensor:
    """The cell of each of these rows, shape (n,)."""
    return assign(kernel, rows.load().X, centroids)


def with_target_scaled(
    rows: ArraySource, centre: bool, dtype: torch.dtype
) -> tuple[ArraySource, Tensor, float]:
    """The rows with targets centred and scaled to [-1, 1], the centre (t,) and the scale.

    The problem is linear in Y, so the scale only keeps float32 from overflowing. For the
    same reason weights are scaled to mean one, which changes nothing: lambda n follows.
    """
    Y, w = rows.Y.double(), rows.w
    largest = max(abs(float(end)) for end in Y.aminmax())
    if not largest <= LARGEST_TARGET:
        raise ParameterError(
            f"y must lie between {-LARGEST_TARGET:.0e} and {LARGEST_TARGET:.0e}, since errors are "
            f"squared, but is as large as {largest:.1e}; scale it"
        )
    if w is not None:
        # First by the largest, for a sum of weights near 1e308 is infinite; and none so small
        # that it is zero in float32, for then a cell could have no weight at all.
        w = w / w.max()
        w = (w / w.mean()).clamp_min(1e-30)
    mean = Y.new_zeros(Y.shape[1])  # (t,)
    if centre:
        mean = Y.mean(0) if w is None else w.double() @ Y / len(Y)
    Y = Y - mean
    scale = max(abs(float(end)) for end in Y.aminmax()) or 1.0
    narrow_w = None if w is None else w.to(dtype)
    return replace(rows, Y=Y.div_(scale).to(dtype), w=narrow_w), mean, scale


def check_kernel_range(kernel: Kernel, rows: ArraySource, dtype: torch.dtype) -> None:
    """Refuse rows whose kernel values, squared and summed, would overflow."""
    if isinstance(kernel, Radial):  # K(x, x) = 1
        return
    largest = max(float(kernel.diag(block.X).max()) for block in rows.blocks(ASSIGN_ROWS))
    limit = torch.finfo(dtype).max ** 0.4  # 3e15 in float32
    if not largest < limit:
        raise ParameterError(
            f"K(x, x) must stay below {limit:.0e} for {dtype}, but kernel={kernel!r} gives "
            f"{largest:.1e} on these rows. Scale the features (StandardScaler)."
        )
