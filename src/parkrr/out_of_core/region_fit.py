"""Rows on disk, sorted by region once; each region is then loaded and fitted as rows in memory are.

Regions are the upper level of a partition of two (:class:`parkrr.partition.Regions`), few enough
that a sample decides them. A pass sorts the rows by region (:mod:`.sorted_pass`). A region is a
task that loads its rows, divides them into cells and fits these (:func:`fit_region`), so the number
of cells and centres grows with the number of rows, and memory does not.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import VALIDATION_SHARE, EncodedTable
from parkrr.errors import ParameterError
from parkrr.kernels import Radial
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.region_tuning import Candidate, scale_settings, tune_on_regions
from parkrr.out_of_core.sorted_pass import DiskCell, remove_sorted_rows, sort_rows
from parkrr.out_of_core.unfitted_model import (
    MARGIN_ROWS,
    UnfittedModel,
    publish_cells,
    read_cells,
)
from parkrr.park import (
    CellResult,
    CellTask,
    FitResult,
    FitSettings,
    collect,
    divide_rows,
    fit_cell,
    make_tasks,
    select_centroids,
)
from parkrr.partition import PARTITION_ROWS_PER_CELL, Regions, median_margin
from parkrr.planning import HEAVIEST, SORT_COPIES
from parkrr.runtime import LocalEngine, describe_bytes, move_to_device, torch_threads
from parkrr.tuning import OpenChoices, TuningLog

FINISHED = "regions"  # the result that is there when all of them are fitted


@dataclass(frozen=True)
class RegionTask:
    """The rows of a region, and the settings of its fit."""

    name: str
    rows: DiskCell
    settings: FitSettings  # with cells, centres, penalty and seed of this region
    left_out_share: float

    @property
    def size(self) -> int:
        return self.rows.n_rows


@dataclass(frozen=True)
class FittedRegion:
    """What a task leaves: the cells of a region, in order."""

    centroids: Tensor  # (q, e)
    cells: list[CellResult]
    margin: float  # between the two nearest cells, the median of rows


def fit_by_region(
    unfitted: UnfittedModel,
    settings: FitSettings,
    rows: EncodedTable,
    checkpoint: Checkpoint,
    *,
    n_slices: int,
    max_bytes: float,
    n_left_out: int,
    choices: OpenChoices | None,
    log: TuningLog,
) -> tuple[FitResult, FitSettings]:
    """Sort the rows in `n_slices` tasks, then fit region after region; the settings used, too.

    The centroids of the unfitted model are those of the regions. A core may use `max_bytes` for the
    rows of a region, and at most about `n_left_out` rows get leave-one-out predictions. With
    `choices`, what they leave open of lengthscale and penalty is chosen again on the sorted rows.
    """
    start = sorted_at = time.perf_counter()
    finished = read_finished(checkpoint)
    if finished is None:
        R = len(unfitted.model.centroids)
        all_regions = sort_rows(unfitted, settings, rows, checkpoint, n_slices, range(R))
        there = [r for r, region in enumerate(all_regions) if region.n_rows]
        regions = [all_regions[r] for r in there]
        check_room(regions, max_bytes)
        sorted_at = time.perf_counter()
        tuned, tried = settings, list[dict[str, object]]()
        if choices is not None:
            own = [(task.rows, task.settings) for task in make_region_tasks(settings, regions, 0)]
            tuned, tried = tune_on_regions(settings, own, checkpoint, choices)
        tasks = make_region_tasks(tuned, regions, n_left_out)
        work = partial(fit_and_publish, checkpoint)
        published = checkpoint.run(settings, "fitting regions", work, tasks)
        kernel, length = tuned.kernel, None
        if kernel != settings.kernel and isinstance(kernel, Radial):
            length = kernel.one_lengthscale
        finished = FinishedRegions(there, length, tuned.penalty, tried, published)
        finished.publish(checkpoint)
    remove_sorted_rows(checkpoint)
    settings = scale_settings(settings, Candidate(finished.lengthscale, finished.penalty), 1.0)
    fitted = list(read_regions(unfitted, checkpoint, finished.published))
    seconds = (sorted_at - start, time.perf_counter() - sorted_at)
    model = replace(
        unfitted.model,
        kernel=settings.kernel,
        centroids=torch.cat([region.centroids for region in fitted]),
        **join_levels(unfitted, unfitted.model.centroids[finished.numbers], fitted),
    )
    result = collect(model, number_cells(fitted), unfitted.scale, seconds)
    log.tried.extend(finished.tried)  # once, if damaged results were made again
    return result, settings


class FinishedRegions(NamedTuple):
    """What a fit builds its model from, once no sorted rows are needed."""

    numbers: list[int]  # of the regions that have rows
    lengthscale: float | None  # None for that of the settings
    penalty: float
    tried: list[dict[str, object]]  # to choose these two
    published: list[dict[str, Any]]  # facts of each region

    def publish(self, checkpoint: Checkpoint) -> None:
        facts = self._asdict()
        del facts["published"]  # each region has its own
        checkpoint.publish(FINISHED, np.empty(0), facts)


def read_finished(checkpoint: Checkpoint) -> FinishedRegions | None:
    """What an earlier call finished, if none of it is missing or damaged."""
    if f"{FINISHED}.json" not in checkpoint.place.names():
        return None
    facts = checkpoint.facts(FINISHED)
    if facts is None:
        return None
    published = [checkpoint.facts(region_name(k)) for k in range(len(facts["numbers"]))]
    if any(each is None for each in published):
        return None
    return FinishedRegions(**facts, published=published)


def region_name(k: int) -> str:
    """Of the result of the k-th region that has rows."""
    return f"region-{k:06d}"


def check_room(regions: list[DiskCell], max_bytes: float) -> None:
    """Refuse rows of which too many are in one region."""
    row_bytes, largest = SORT_COPIES * regions[0].row_bytes, max(r.n_rows for r in regions)
    if largest * row_bytes > max_bytes:
        raise ParameterError(
            f"max_memory must leave {describe_bytes(largest * row_bytes)} to a core, since one of "
            f"{len(regions)} regions has {largest:,} rows, and a core has "
            f"{describe_bytes(max_bytes)}; raise it, or set n_centers, for a fit that does not "
            f"sort rows"
        )


def make_region_tasks(
    settings: FitSettings, regions: list[DiskCell], n_left_out: int
) -> list[RegionTask]:
    """A task for each region, which has its share of the cells and of the centres.

    The ridge lambda n is that of all rows, in every region and in every cell.
    """
    n, n_rows = sum(r.total_weight for r in regions), sum(r.n_rows for r in regions)
    share = min(VALIDATION_SHARE, n_left_out / n_rows)
    every_row = settings.n_centers >= n_rows
    seeds = np.random.default_rng(settings.seed).integers(2**31, size=len(regions)).tolist()
    tasks = []
    for r, region in enumerate(regions):
        n_cells = max(1, round(settings.n_cells * region.n_rows / n_rows))
        n_centers = max(1, round(settings.n_centers * region.n_rows / n_rows))
        own = replace(
            settings,
            penalty=settings.penalty * n / region.total_weight,
            n_cells=n_cells,
            n_centers=region.n_rows if every_row else n_centers,
            n_candidates=settings.n_candidates or PARTITION_ROWS_PER_CELL * n_cells,
            engine=LocalEngine(1),
            seed=seeds[r],
            shown=False,
        )
        tasks.append(RegionTask(region_name(r), region, own, share))
    return tasks


def fit_region(task: RegionTask) -> FittedRegion:
    """Algorithm 1 on the rows of one region, loaded."""
    settings = task.settings
    rows, is_validation = task.rows.load_without_copies()
    C = select_centroids(settings, rows, settings.seeds.centroids)  # (q, e)
    C, cells = divide_rows(settings, rows, C)
    left_out = [math.ceil(task.left_out_share * cell.n_rows) for cell in cells]
    if is_validation is not None:  # no code of a category depends on the targets of these
        marked = [int(is_validation[cell.index].sum()) for cell in cells]
        left_out = [min(pair) for pair in zip(left_out, marked, strict=True)]
    n, seed = rows.total_weight, settings.seeds.cells
    if settings.n_centers >= rows.n_rows:
        tasks = make_tasks(settings, cells, n, seed, left_out, every_row=True)
        tasks = [limit_centers(task, settings) for task in tasks]
    else:
        counts = [root_share_centers(settings, cell.total_weight / n) for cell in cells]
        tasks = make_tasks(settings, cells, n, seed, left_out, counts=counts)
    fitted = [fit_cell(task) for task in tasks]
    margin = median_margin(settings.kernel, C, rows.block(slice(0, MARGIN_ROWS)).X)
    return FittedRegion(C, fitted, margin)


def root_share_centers(settings: FitSettings, rho_q: float) -> int:
    """Centres of a cell with this share of the rows of its region.

    Between as many for each cell and m rho_q of section 5: a cell that is large because its rows
    are dense needs few more, and a row costs the square of the centres of its cell.
    """
    mean = settings.n_centers / settings.n_cells
    return math.ceil(mean * min(HEAVIEST, math.sqrt(rho_q * settings.n_cells)))


def limit_centers(task: CellTask, settings: FitSettings) -> CellTask:
    """A cell that could not be divided, such as one of copies, with as many centres as a mean one.

    Memory is planned for cells of up to `HEAVIEST` times the mean.
    """
    mean = math.ceil(settings.n_centers / settings.n_cells)
    return task if task.m_q <= HEAVIEST * mean else replace(task, m_q=mean)


def fit_and_publish(checkpoint: Checkpoint, task: RegionTask) -> dict[str, Any]:
    """Fit a region and publish its cells; on one thread, for products on two round differently."""
    with torch_threads(1):
        region = fit_region(task)
    cells = [move_to_device(cell, "cpu") for cell in region.cells]
    about = {"centroids": region.centroids.double().cpu().tolist(), "margin": region.margin}
    return publish_cells(checkpoint, task.name, cells, own_rows=True, about=about)


def read_regions(
    unfitted: UnfittedModel,
    checkpoint: Checkpoint,
    published: list[dict[str, Any]],
) -> Iterator[FittedRegion]:
    """What the tasks published, in order."""
    for k, facts in enumerate(published):
        cells = read_cells(checkpoint, region_name(k), facts, unfitted, 0)
        C = torch.tensor(facts["centroids"], dtype=torch.float64).to(unfitted.model.centroids)
        yield FittedRegion(C, cells, facts["margin"])


def number_cells(regions: list[FittedRegion]) -> list[CellResult]:
    """The cells of all regions, with their numbers among all."""
    cells = [cell for region in regions for cell in region.cells]
    return [cell._replace(report=cell.report._replace(cell=q)) for q, cell in enumerate(cells)]


def join_levels(
    unfitted: UnfittedModel, upper: Tensor, regions: list[FittedRegion]
) -> dict[str, Any]:
    """The blend and the regions of the model.

    A width that was chosen on cells of the sample is, over their margin, that of all cells. Where
    cells are h apart and regions H, margins are about h^2 and H^2, and a band of the same thickness
    as between cells has a width of h H between regions. A width that is given is that of all.
    """
    blend, margin = unfitted.model.blend, unfitted.margin
    widths = torch.full((len(regions),), blend.width, dtype=torch.float64)
    if margin:
        margins = torch.tensor([region.margin for region in regions], dtype=torch.float64)
        widths = blend.width / margin * margins  # (R,)
        middles = torch.stack([region.centroids.mean(0) for region in regions])
        between = median_margin(unfitted.model.kernel, upper, middles)
        width = blend.width / margin * math.sqrt(between * float(margins.median()))
        blend = replace(blend, width=width)
    if len(regions) == 1:
        return {"blend": replace(blend, width=float(widths)), "regions": None}
    sizes = torch.tensor([len(region.cells) for region in regions])
    return {"blend": blend, "regions": Regions(upper, sizes, widths)}
