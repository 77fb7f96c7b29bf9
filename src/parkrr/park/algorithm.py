"""Algorithm 1: divide the rows into cells and fit one estimator in each. Start at `fit_park`."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import (
    FEW_ROWS,
    ArraySource,
    CellRows,
    Holdout,
    canonical_order,
    draw_indices,
    group_by_cell,
    join_blocks,
    select_validation_rows,
)
from parkrr.errors import ParameterError
from parkrr.kernels import (
    FeatureMap,
    Kernel,
    Radial,
    bound_features,
    center_features,
    standardize_features,
)
from parkrr.park.cells import (
    ApartFit,
    CellReport,
    CellResult,
    CellTask,
    LeaveOneOutRows,
    fit_cell,
    join_left_out,
)
from parkrr.park.model import Model, NystromModel
from parkrr.partition import (
    PARTITION_ROWS_PER_CELL,
    Blend,
    assign,
    balance_cells,
    choose_centroids,
    move_to_means,
)
from parkrr.runtime import Engine, LocalEngine, map_on_threads, run_tasks
from parkrr.solvers import (
    PENALTIES,
    Direct,
    Falkon,
    Influence,
    LocalProblem,
    PenaltyPath,
    Shard,
    Solver,
    choose_solver,
    mean_target,
    needs_float64,
    penalty_path,
    solve_gram,
    statistics_jitter,
)

# When cells are balanced, one lighter than this is merged: too few rows for a model.
LIGHTEST_CELL = 32
CANDIDATES_PER_CELL = 4  # at least, or greedy would have no choice
METRIC_ROWS = 10_000  # whose mean and spread stand for those of all rows
# At 1e-11 rounding of the statistics of a wide Gaussian made a training error of 0.25 of 83.
COARSE_PENALTIES = PENALTIES[PENALTIES >= 1e-8]
# Rows a centre that the coarse level is fitted to, drawn from all. On 100,000 taxi rides 100 and 50
# have the same error, and 25 one that is 0.1 % higher.
COARSE_ROWS = 50
ASSIGN_ROWS = 2**16  # rows routed by one task
LARGEST_TARGET = 1e150
RARE_ROWS = 20  # leave-one-out rows of each class, if it has so many
# Groups that are a larger part of a cell are left out by another fit, which has other cells.
LARGEST_GROUP = 0.2
FEW_GROUPS = 100  # of validation rows: 30 of them covered between 0.57 and 1.0 for 0.9
LEFT_OUT_VALUES = 2**24  # most kernel values of leave-one-out rows in one cell


@dataclass(frozen=True)
class Coarse:
    """One model of all rows below the cells, which are fitted to its residual.

    Its penalty is the one of least generalised cross-validation score.

    Parameters
    ----------
    n_centers : int, default=1000
        Its Nystrom centres, at least 1.
    kernel : Kernel or None, default=None
        Its kernel; None takes that of the cells.

    Examples
    --------
    >>> from parkrr import Coarse
    >>> from parkrr.kernels import Gaussian
    >>> Coarse(500, Gaussian(10.0))
    Coarse(n_centers=500, kernel=Gaussian(lengthscale=10.0))
    """

    n_centers: int = 1000
    kernel: Kernel | None = None


@dataclass(frozen=True)
class FitSettings:
    """Checked settings of Algorithm 1; the estimators document them."""

    kernel: Kernel
    penalty: float  # lambda; cells are fitted with lambda n
    metric: FeatureMap | str
    n_cells: int
    n_centers: int
    centroids: str  # the rule that chooses them
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
    own_centroids: Tensor | None = None  # (Q, d)  in the units of the features, instead of the rule
    power: float | None = None  # of the variance of the target along its mean; None for squares
    own_centers: Tensor | None = None  # (m, d)  likewise, instead of rows that are drawn
    bounded: bool = True  # whether values far outside of those of the rows are moved towards them
    left_out_values: int = LEFT_OUT_VALUES
    assign_rows: int = ASSIGN_ROWS

    @property
    def seeds(self) -> "Seeds":
        """Independent seeds for the random steps."""
        return Seeds(*np.random.SeedSequence(self.seed).generate_state(4).tolist())


class Seeds(NamedTuple):
    """A seed for each random step."""

    metric: int
    centroids: int
    cells: int
    coarse: int


class FitResult(NamedTuple):
    """A model, a report of each cell, seconds, and rows with leave-one-out predictions."""

    model: Model
    report: list[CellReport]
    partition_seconds: float
    cells_seconds: float
    left_out: LeaveOneOutRows
    influence: list[Influence] | None = None  # of these rows in each cell, if it was kept


def fit_park(
    settings: FitSettings,
    rows: ArraySource,
    holdout: Holdout | None = None,
    classify: bool = False,
) -> FitResult:
    """Algorithm 1 on rows in memory.

    Validation rows get leave-one-out predictions: those of the holdout, or rows drawn at random,
    or all if they are few. So do some more rows of rare classes.
    """
    start = time.perf_counter()
    groups = None
    if holdout is None:
        validation = select_validation_rows(rows, settings.seed) | (rows.n_rows < FEW_ROWS)  # (n,)
    elif holdout.apart:
        return fit_apart(settings, rows, holdout)
    else:
        validation, groups = holdout.is_validation, holdout.groups
        if groups is not None and len(groups[validation].bincount().nonzero()) < FEW_GROUPS:
            validation = torch.ones_like(validation)  # of few groups each is left out in turn
    added = torch.zeros_like(validation)
    if classify and groups is None:
        added = select_rare_rows(rows, validation)
    given = rows
    rows, model, scale = prepare_rows(settings, rows, validation)

    C = place_centroids(settings, model.metric, rows, settings.seeds.centroids)  # (Q, e)  line 2
    ordered = rows.move_last(validation, groups)
    if bool(added.any()):
        ordered = ordered.move_to_end(added)
    C, cells = divide_rows(settings, ordered, C)  # Q sources  lines 3-6
    partitioned = time.perf_counter()

    validation = validation | added
    left_out = [int(validation[cell.index].sum()) for cell in cells]
    together: list[Tensor] = []  # the groups of validation rows of each cell
    for cell, h in zip(cells, left_out, strict=True):
        if holdout is not None and groups is not None and cell.index is not None:
            together.append(groups[cell.index[cell.n_rows - h :]])
            if h and float(together[-1].bincount().max()) > LARGEST_GROUP * cell.n_rows:
                return fit_apart(settings, given, holdout)
    n, seed = rows.total_weight, settings.seeds.cells
    centers = divide_centers(settings, model.metric, C)
    every_row = settings.n_centers >= rows.n_rows
    tasks = make_tasks(settings, cells, n, seed, left_out, together, every_row, centers)
    fitted = fit_cells(settings, tasks)  # lines 7-10

    seconds = (partitioned - start, time.perf_counter() - partitioned)
    result = collect(replace(model, centroids=C), fitted, scale, seconds)  # line 11
    if together:
        own = [task.left_out_groups for task in tasks if task.left_out_groups is not None]
        result = result._replace(left_out=replace(result.left_out, groups=torch.cat(own)))
    if not classify:
        return result
    flags = [
        added[cell.index][cell.n_rows - task.n_left_out :]
        for task, cell in zip(tasks, cells, strict=True)
    ]
    kept = replace(result.left_out, added=torch.cat(flags))
    return result._replace(left_out=restore_shares(kept, given))


def select_rare_rows(rows: ArraySource, validation: Tensor) -> Tensor:
    """More rows to leave out, (n,), so that there are `RARE_ROWS` of each class if it has so many.

    The same rows in whatever order they arrive.
    """
    label = class_numbers(rows.block(slice(None)).Y)
    n_rows, n_chosen = (
        torch.bincount(part, minlength=int(label.max()) + 1) for part in (label, label[validation])
    )
    missing = n_rows.clamp_max(RARE_ROWS) - n_chosen  # (k,)
    added = torch.zeros_like(validation)
    if not bool((missing > 0).any()):
        return added
    order = canonical_order(rows)
    for k in (missing > 0).nonzero()[:, 0].tolist():
        own = order[(label[order] == k) & ~validation[order]]
        added[own[: int(missing[k])]] = True
    return added


def restore_shares(left_out: LeaveOneOutRows, rows: ArraySource) -> LeaveOneOutRows:
    """Leave-one-out rows with weights by which each class has its share of all rows."""
    _, Y, w = rows.block(slice(None))
    own, label = class_numbers(left_out.Y), class_numbers(Y)
    k = max(int(own.max()), int(label.max())) + 1
    w = torch.ones_like(label, dtype=torch.float64) if w is None else w.double()
    total = torch.zeros(k, dtype=torch.float64, device=w.device).index_add_(0, label, w)
    kept = torch.zeros_like(total).index_add_(0, own, left_out.weights)
    factor = (total / total.sum()) / (kept / kept.sum()).clamp_min(1e-300)
    return replace(left_out, w=left_out.weights * factor[own])


def class_numbers(Y: Tensor) -> Tensor:
    """The class of rows with targets Y (n, t), one score for two classes, shape (n,)."""
    return (Y[:, 0] > 0).long() if Y.shape[1] == 1 else Y.argmax(1)


def fit_leaving_out(settings: FitSettings, seen: ArraySource, others: ArraySource) -> FitResult:
    """Algorithm 1 on two sets of rows, of which only `seen` decides anything but the cells' fits.

    Each of the others is left out in turn, with its influence on all predictions. Intercept,
    feature map, coarse level, centroids, and the number of centres of each cell follow from
    `seen`, so that a fit without one of the others is the fit of the same algorithm to one row
    less. Centres are rows of `seen`, or all rows: then the fit without a row, which has no weight
    on its centre, is the same whether that centre is there or not.
    """
    start = time.perf_counter()
    rows = join_blocks([seen.block(slice(None)), others.block(slice(None))])
    decisive = seen if seen.n_rows else rows
    left_out = torch.zeros(decisive.n_rows, dtype=torch.bool, device=decisive.X.device)
    prepared, model, scale = prepare_rows(settings, decisive, left_out)
    C = place_centroids(settings, model.metric, prepared, settings.seeds.centroids)
    C, cells_seen = divide_rows(settings, prepared, C)
    X, Y, w = model.residual(rows.block(slice(None)), scale)
    w = None if w is None else (w * (decisive.n_rows / decisive.total_weight)).clamp_min(1e-30)
    rows = ArraySource(X, Y, w).to(settings.dtype)
    C, cells = divide_rows(settings, rows, C)
    partitioned = time.perf_counter()

    every_row = settings.n_centers >= rows.n_rows
    direct = replace(settings, solver="direct")
    drafts = make_tasks(direct, cells, rows.total_weight, settings.seeds.cells)
    tasks = []
    for task, cell in zip(drafts, cells_seen, strict=True):
        m_q = count_centers(settings, cell, cell.n_rows / decisive.n_rows)
        m_q = task.cell.n_rows if every_row else m_q
        h_q = task.cell.n_rows - min(cell.n_rows, seen.n_rows)
        tasks.append(replace(task, m_q=m_q, n_left_out=h_q, keep_influence=True))
    fitted = fit_cells(settings, tasks)
    seconds = (partitioned - start, time.perf_counter() - partitioned)
    return collect(replace(model, centroids=C), fitted, scale, seconds)


def fit_apart(settings: FitSettings, rows: ArraySource, holdout: Holdout) -> FitResult:
    """Algorithm 1 on all rows, with validation rows predicted by a fit to the others.

    For validation rows that cannot be left out cell by cell: the future, or groups that are a large
    part of a cell, where the fit without them would have other cells.
    """
    held = holdout.is_validation.nonzero()[:, 0]
    training = replace(rows, index=(~holdout.is_validation).nonzero()[:, 0]).load()
    left_out, engine = replace(rows, index=held).load(), settings.engine.local
    groups = None if holdout.groups is None else holdout.groups[held]
    model = fit_park(settings, training).model
    return with_left_out(fit_park(settings, rows), model, left_out, engine, groups)


def with_left_out(
    result: FitResult,
    model: Model,
    rows: ArraySource,
    engine: LocalEngine,
    groups: Tensor | None = None,
) -> FitResult:
    """The result with these rows, of groups (h,), left out as another model predicts them."""
    X, Y, w = rows.block(slice(None))
    mapped, predicted = result.model.map_rows(X), model.predict(X, engine.cores)
    order, counts = group_by_cell(result.model.assign(mapped), len(result.model.centroids))
    cell = torch.repeat_interleave(torch.tensor(counts, device=mapped.device))
    left_out = LeaveOneOutRows(
        X=mapped[order],
        Y=Y[order].double(),
        w=None if w is None else w[order],
        cell=cell,
        change=torch.zeros_like(predicted),
        predicted=predicted[order],
        groups=None if groups is None else groups[order],
        apart=None if model is result.model else ApartFit(model, model.map_rows(X[order])),
    )
    return result._replace(left_out=left_out)


def prepare_rows(
    settings: FitSettings, rows: ArraySource, left_out: Tensor, load: bool = False
) -> tuple[ArraySource, Model, float]:
    """What comes before Algorithm 1: scale the target, map the features, fit the coarse level.

    Returns the rows as cells are fitted to them, with targets less intercept and coarse level over
    a scale; a model that has no cells yet; and the scale.

    The coarse level is not fitted to the rows for which `left_out` (n,) holds, unless that is all.
    With `load`, rows are mapped once and not each time they are read, which takes memory.
    """
    kernel, seeds, local = settings.kernel, settings.seeds, settings.engine.local
    if settings.power is None:
        rows, intercept, scale = scale_target(rows, settings.fit_intercept, settings.dtype)
    else:
        rows, intercept = divide_by_mean(rows, settings.fit_intercept, settings.dtype)
        scale = 1.0
    metric = make_feature_map(settings.metric, kernel, rows, seeds.metric, settings.bounded)
    rows = rows.map(partial(metric, dtype=settings.dtype))
    rows = rows.load() if load else rows
    check_kernel_range(kernel, rows, settings.dtype)
    coarse = None
    if settings.coarse is not None:
        others = (~left_out).nonzero()[:, 0]
        seen = rows if bool(left_out.all()) else replace(rows, index=others)
        n_centers, coarse_kernel = settings.coarse.n_centers, settings.coarse.kernel or kernel
        level = fit_nystrom_model(coarse_kernel, seen, n_centers, local.cores, seeds.coarse)
        shards = rows.shards(math.ceil(rows.n_rows / settings.assign_rows))
        values = torch.cat(local.map(lambda shard: level(shard.load().X), shards))  # (n, t)
        rows = replace(rows, Y=rows.Y - values.to(rows.Y.dtype))
        coarse = replace(level, weights=level.weights * scale)
    none = torch.empty(0, 0, dtype=settings.dtype, device=rows.X.device)  # centroids come later
    link = "identity" if settings.power is None else "log"
    model = Model(kernel, metric, none, [], [], intercept, settings.blend, coarse, link=link)
    return rows, model, scale


def place_centroids(
    settings: FitSettings, metric: FeatureMap, rows: ArraySource, seed: int
) -> Tensor:
    """Line 2: the centroids that are given, behind the feature map, or those of the rule; (Q, e).

    Given centroids stay where they are, however uneven their cells.
    """
    if settings.own_centroids is None:
        return select_centroids(settings, rows, seed)
    return metric(settings.own_centroids.to(rows.X.device), settings.dtype)


def select_centroids(
    settings: FitSettings, rows: ArraySource, seed: int, even: bool = True
) -> Tensor:
    """Line 2: centroids by the rule, eq. (7), balanced unless switched off; shape (Q, e).

    With `even`, uniform centroids also move to the means of their cells.
    """
    kernel, rule, n_cells = settings.kernel, settings.centroids, settings.n_cells
    if settings.balance:
        n_cells = max(1, min(n_cells, int(rows.total_weight / LIGHTEST_CELL)))
    n_candidates = max(settings.n_candidates or rows.n_rows, CANDIDATES_PER_CELL * n_cells)
    sample = rows.sample(max(n_candidates, PARTITION_ROWS_PER_CELL * n_cells), seed)
    C = choose_centroids(kernel, sample.X, rule, n_cells, n_candidates=n_candidates, seed=seed)
    if not settings.balance or len(C) == 1:
        return C
    lightest = LIGHTEST_CELL * sample.total_weight / rows.total_weight
    X, w = sample.X, sample.w
    if even and rule == "uniform" and isinstance(kernel, Radial):
        C = move_to_means(kernel, X, w, C)
    return balance_cells(kernel, X, w, C, rule=rule, lightest=lightest, seed=seed)


def divide_centers(settings: FitSettings, metric: FeatureMap, centroids: Tensor) -> list[Tensor]:
    """The centres that are given, behind the feature map, by cell; none if they are to be drawn.

    A cell that has none gets the one nearest to its centroid.
    """
    if settings.own_centers is None:
        return []
    Z = metric(settings.own_centers.to(centroids.device), settings.dtype)  # (m, e)
    cell_of = assign(settings.kernel, Z, centroids)
    nearest = assign(settings.kernel, centroids, Z)  # (Q,)
    own = [Z[cell_of == q] for q in range(len(centroids))]
    return [part if len(part) else Z[nearest[q]][None] for q, part in enumerate(own)]


def divide_rows(
    settings: FitSettings, rows: ArraySource, centroids: Tensor
) -> tuple[Tensor, list[ArraySource]]:
    """Lines 3-6: the centroids of cells that have rows, and the rows of these cells."""
    shards = rows.shards(math.ceil(rows.n_rows / settings.assign_rows))
    work = lambda shard: assign(settings.kernel, shard.load().X, centroids)  # noqa: E731
    cell_of = torch.cat(settings.engine.local.map(work, shards))  # (n,)
    present = torch.bincount(cell_of, minlength=len(centroids)) > 0  # (Q,)
    number = present.cumsum(0) - 1
    return centroids[present], rows.split(number[cell_of], int(present.sum()))


def make_tasks(
    settings: FitSettings,
    cells: Sequence[CellRows],
    n: float,
    seed: int,
    left_out: Sequence[int] = (),
    groups: Sequence[Tensor] = (),
    every_row: bool = False,
    centers: Sequence[Tensor] = (),
    counts: Sequence[int] = (),
) -> list[CellTask]:
    """A task for each cell of rows that have the total weight n.

    A cell has m_q = m rho_q centres (section 5) and the penalty lambda_q = lambda / rho_q
    (Theorem 4), so that its ridge lambda_q n_q is lambda n, the same for every cell. `left_out` are
    the rows at the end of each cell that get leave-one-out predictions, and `groups` marks which of
    them are left out together. `centers` are those of each cell, or `counts` their number, if they
    are given.

    With `every_row` all rows are centres, whatever they weigh: a cell of protein, of whose rows
    some are copies and weigh more, had a centre less than rows, and took ten times as long.
    """
    seeds = np.random.default_rng(seed).integers(2**31, size=len(cells)).tolist()
    n_threads = settings.engine.threads_per_task(len(cells))
    tasks = []
    for q, cell in enumerate(cells):
        rho_q = cell.total_weight / n
        if centers:
            m_q = len(centers[q])
        elif counts:
            m_q = min(cell.n_rows, counts[q])
        else:
            m_q = cell.n_rows if every_row else count_centers(settings, cell, rho_q)
        lambda_q = settings.penalty / rho_q
        solver: Solver = Direct() if settings.solver == "direct" else settings.falkon
        why = "asked for"
        if settings.solver == "auto":
            solver, why = choose_solver(cell.n_rows, m_q, cell.n_outputs, settings.falkon)
        most = min(max(1, settings.left_out_values // m_q), solver.most_left_out(cell.n_rows))
        h_q = min(left_out[q], most) if left_out else 0
        own = None
        if groups:
            own = groups[q][len(groups[q]) - h_q :]
            if 0 < h_q < left_out[q]:  # the first group may have been cut
                own = own[own != own[0]]
            h_q = len(own)
        tasks.append(
            CellTask(
                q=q,
                cell=cell,
                kernel=settings.kernel,
                solver=solver,
                why=why,
                m_q=m_q,
                lambda_q=lambda_q,
                seed=seeds[q],
                n_threads=n_threads,
                n_left_out=h_q,
                left_out_groups=own if h_q else None,
                power=settings.power,
                centers=centers[q] if centers else None,
            )
        )
    return tasks


def count_centers(settings: FitSettings, cell: CellRows, rho_q: float) -> int:
    """m_q = m rho_q, but at most all rows."""
    return min(cell.n_rows, max(1, math.ceil(settings.n_centers * rho_q)))


def fit_cells(settings: FitSettings, tasks: list[CellTask]) -> list[CellResult]:
    """Lines 7-10, the largest cells first, so that none is left to run alone.

    A cell with more than a core's share of the work gets all cores to itself.
    """
    engine = settings.engine
    share = sum(task.work for task in tasks) / engine.cores
    cores = engine.threads_per_task(1)
    return run_tasks(
        engine,
        fit_cell,
        [replace(task, n_threads=cores) if task.work > share else task for task in tasks],
        label="fitting cells",
        unit="rows",
        size_of=lambda task: task.size,
        work_of=lambda task: task.work,
        alone=lambda task: task.work > share,
        shown=settings.shown,
    )


def join_cells(model: Model, cells: Sequence[CellResult], scale: float) -> Model:
    """Line 11: the estimators of all cells as one model, eq. (14), in the units of the target."""
    return replace(
        model,
        centers=[cell.centers for cell in cells],
        weights=[(cell.weights * scale).contiguous() for cell in cells],
    )


def collect(
    model: Model, cells: Sequence[CellResult], scale: float, seconds: tuple[float, float]
) -> FitResult:
    """The model of all cells, their report and their leave-one-out rows."""
    model = join_cells(model, cells, scale)
    report = [cell.report for cell in cells]
    influence = None
    if any(cell.influence is not None for cell in cells):
        t = len(model.intercept)
        none = [Influence(Z.new_zeros(len(Z), 0), Z.new_zeros(0, t)) for Z in model.centers]
        kept = [cell.influence or own for cell, own in zip(cells, none, strict=True)]
        influence = [Influence(B, scale * changes) for B, changes in kept]
    return FitResult(model, report, *seconds, join_left_out(model, cells, scale), influence)


def make_feature_map(
    metric: FeatureMap | str, kernel: Kernel, rows: ArraySource, seed: int, bounded: bool = True
) -> FeatureMap:
    """The map itself, or the one of that name for these rows, with bounds of features or without.

    A linear or polynomial kernel is chosen for its slope beyond the data, and has none.
    """
    if isinstance(metric, FeatureMap):
        return metric
    if metric == "euclidean" and not isinstance(kernel, Radial):
        return FeatureMap()  # a shift would change the kernel
    sample = rows.sample(METRIC_ROWS, seed).X
    if metric == "euclidean":
        return center_features(sample)
    made = standardize_features(sample)
    if not bounded or not isinstance(kernel, Radial):
        return made
    ends = [torch.aminmax(X, dim=0) for X, _, _ in rows.blocks(ASSIGN_ROWS)]
    low = torch.stack([low for low, _ in ends]).amin(0)
    return bound_features(made, low, torch.stack([high for _, high in ends]).amax(0))


def fit_nystrom_model(
    kernel: Kernel, rows: ArraySource, n_centers: int, n_threads: int, seed: int
) -> NystromModel:
    """The Nystrom estimator of least cross-validation score on a sample of the rows."""
    sample = rows.sample(COARSE_ROWS * n_centers, seed)
    chosen = draw_indices(sample.n_rows, n_centers, seed)
    path, penalty = choose_nystrom_penalty(kernel, sample, chosen, n_threads)
    return NystromModel(kernel, path.problem.centers, path.weights(penalty))


def cross_fit_nystrom_model(
    kernel: Kernel,
    rows: ArraySource,
    n_centers: int,
    fold: NDArray[np.int64],
    n_threads: int,
    seed: int,
) -> tuple[NystromModel, Tensor]:
    """As :func:`fit_nystrom_model`, and values at each row without the rows of its fold, (n, t).

    Without the centres of its fold, too: as centres, rows of kin40k were predicted better than new
    ones, and intervals of 0.9 held 0.888. The penalty is that of all rows, and statistics of folds
    are added up once: a fit for each of ten folds took three times as long. A fold that cannot be
    solved has the value zero.
    """
    fold_of = torch.from_numpy(fold).to(rows.X.device)  # (n,)
    drawn = draw_indices(rows.n_rows, COARSE_ROWS * n_centers, seed).to(rows.X.device)
    sample = ArraySource(*rows.block(drawn))
    chosen = draw_indices(sample.n_rows, n_centers, seed).to(drawn.device)
    path, penalty = choose_nystrom_penalty(kernel, sample, chosen, n_threads)
    Z, folds = path.problem.centers, sorted(set(fold.tolist()))
    of_sample = fold_of[drawn]
    of_center = of_sample[chosen]  # (m,)

    def gram_of(k: int) -> Tensor:
        part = replace(sample, index=(of_sample == k).nonzero()[:, 0])
        if not part.n_rows:  # a fold of few rows, none of them in the sample
            return path.b.new_zeros(len(Z), len(Z) + rows.Y.shape[1])
        problem = replace(path.problem, cell=part, n_threads=1)
        return problem.sum_shards(problem.shards(), Shard.gram)  # (m, m + t)

    grams = map_on_threads(gram_of, folds, n_threads)
    total, K_mm = torch.stack(grams).sum(0), path.problem.K_mm()
    outputs = torch.arange(len(Z), total.shape[1], device=Z.device)

    def predict_fold(pair: tuple[int, Tensor]) -> Tensor:
        k, own = pair
        X, kept = rows.X[fold_of == k], (of_center != k).nonzero()[:, 0]
        if not len(kept):
            return total.new_zeros(len(X), len(outputs))
        gram = (total - own)[kept][:, torch.cat([kept, outputs])]
        jitter = statistics_jitter(len(kept), penalty)
        fit = solve_gram(K_mm[kept][:, kept], gram, penalty * path.n, jitter, None)
        weights = total.new_zeros(len(kept), len(outputs)) if fit is None else fit.weights
        return NystromModel(kernel, Z[kept], weights)(X)

    values, pairs = total.new_empty(rows.Y.shape), list(zip(folds, grams, strict=True))
    for k, part in zip(folds, map_on_threads(predict_fold, pairs, n_threads), strict=True):
        values[fold_of == k] = part
    return NystromModel(kernel, Z, path.weights(penalty)), values


def choose_nystrom_penalty(
    kernel: Kernel, sample: ArraySource, chosen: Tensor, n_threads: int
) -> tuple[PenaltyPath, float]:
    """The path of a sample whose chosen rows (m,) are centres, and its best penalty."""
    Z = sample.X[chosen]  # (m, e)
    smallest = float(COARSE_PENALTIES[0]) * sample.total_weight
    path = penalty_path(LocalProblem(kernel, sample, Z, None, smallest, n_threads))
    order = path.gcv(COARSE_PENALTIES).argsort().cpu()
    for penalty in COARSE_PENALTIES[order].tolist():
        weights = path.weights(penalty)
        if Z.dtype == torch.float64 or not needs_float64(kernel, sample.X, Z, weights):
            return path, penalty
    return path, float(PENALTIES[-1])


def scale_target(
    rows: ArraySource, centre: bool, dtype: torch.dtype
) -> tuple[ArraySource, Tensor, float]:
    """The rows with targets centred and scaled to [-1, 1], the centre (t,) and the scale.

    The problem is linear in Y, so the scale only keeps float32 from overflowing. Weights are
    scaled to mean one, which changes nothing either: the ridge lambda n is scaled with them.
    """
    Y, w = rows.Y.double(), scale_weights(rows.w)
    check_target(Y)
    mean = Y.new_zeros(Y.shape[1])  # (t,)
    if centre:
        mean = Y.mean(0) if w is None else w.double() @ Y / len(Y)
    Y = Y - mean
    scale = max(abs(float(end)) for end in Y.aminmax()) or 1.0
    w = None if w is None else w.to(dtype)
    return replace(rows, Y=Y.div_(scale).to(dtype), w=w), mean, scale


def divide_by_mean(
    rows: ArraySource, centre: bool, dtype: torch.dtype
) -> tuple[ArraySource, Tensor]:
    """The rows with targets of mean one for a logarithmic link, and its intercept (1,).

    Then the penalty has the same meaning in any unit of the target.
    """
    check_target(rows.Y)
    mean, w = mean_target(rows) if centre else 1.0, scale_weights(rows.w)
    rows = replace(rows, Y=(rows.Y.double() / mean).to(dtype), w=None if w is None else w.to(dtype))
    return rows, torch.tensor([math.log(mean)], dtype=torch.float64, device=rows.X.device)


def scale_weights(w: Tensor | None) -> Tensor | None:
    """Weights (n,) of mean one."""
    if w is None:
        return None
    # First by the largest, for a sum of weights near 1e308 is infinite; and none so small that it
    # is zero in float32, for then a cell could have no weight at all.
    w = w / w.max()
    return (w / w.mean()).clamp_min(1e-30)


def check_target(Y: Tensor) -> None:
    """Refuse targets Y (n, t) whose squares would overflow."""
    largest = max(abs(float(end)) for end in Y.aminmax())
    if not largest <= LARGEST_TARGET:
        raise ParameterError(
            f"y must lie between {-LARGEST_TARGET:.0e} and {LARGEST_TARGET:.0e}, since errors are "
            f"squared, but is as large as {largest:.1e}; scale it"
        )


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
