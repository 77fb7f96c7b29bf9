"""A fit from files: sample, choose, partition, pass, solve. Start at :func:`fit_from_disk`.

Everything up to the pass is decided on a sample of the rows and kept as one file, the unfitted
model; the pass and the cells are tasks of :mod:`parkrr.out_of_core.statistics_pass` or
:mod:`parkrr.out_of_core.sorted_pass`.
"""

import hashlib
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import (
    FEW_ROWS,
    VALIDATION_SHARE,
    ArraySource,
    Block,
    EncodedTable,
    Holdout,
    ParquetTable,
    TableEncoder,
    Target,
    fingerprint,
    has_copies,
    is_repeated,
    merge_copies,
)
from parkrr.errors import ParameterError, ResultError
from parkrr.kernels import FeatureMap
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.region_fit import fit_by_region
from parkrr.out_of_core.sorted_pass import fit_from_sorted_rows
from parkrr.out_of_core.statistics_pass import fit_from_statistics, statistics_lengths
from parkrr.out_of_core.unfitted_model import UnfittedModel, prepare_model, prepare_regions
from parkrr.park import Coarse, FitResult, FitSettings
from parkrr.persistence import encode_kernel, read_model, write_model
from parkrr.planning import (
    KEPT_CHOICES,
    DiskPlan,
    apply_lengthscales,
    build_settings,
    count_passes,
    keep_choices,
    learn_table,
    open_choices,
    sizes_on_disk,
    tune_settings,
)
from parkrr.runtime import LocalEngine, as_engine, check_device, move_to_device
from parkrr.solvers import smallest_penalty
from parkrr.tuning import Chosen, OpenChoices, TuningLog

SAMPLE_ROWS = 2000  # that are kept, for importances
DENSER = 4  # times the rows of the sample, from which lengthscale and penalty are chosen again
JOB_VERSION = 8
ATTEMPTS = 3  # when results of finished tasks are lost with the disk they were on, or damaged
UNFITTED = "unfitted.park"
CODES = "codes."  # of columns by fold, in that file
# What may change between two runs of one job.
FREE = ("engine", "progress", "callbacks", "checkpoint", "device")


class DiskFit(NamedTuple):
    """A fit from disk, and what was decided before the pass."""

    result: FitResult
    rows: EncodedTable
    settings: FitSettings
    log: TuningLog
    sample: Tensor  # a few rows as numbers, (2000, d)
    seconds: dict[str, float]  # of each step
    by_region: bool  # whether rows were sorted
    blend_is_open: bool


def fit_from_disk(
    table: ParquetTable, params: dict[str, Any], seed: int, classify: bool
) -> DiskFit:
    """The fit of a table that stays on disk."""
    start = time.perf_counter()
    job = describe_job(table, params, classify)
    check_possible(params)
    device = own_device(params)
    with open_checkpoint(params["checkpoint"], job) as folder:

        def make() -> PassSettings:
            made = decide(learn_table(table, params, seed, classify), params, seed)
            folder.begin(job)  # not before everything has been checked
            return made

        unfitted = folder.make_once(UNFITTED, make, lambda path, made: made.write(path))
        with unfitted as (checkpoint, path):  # its centres stay mapped
            decided = PassSettings.read(path, table, params)
            before = time.perf_counter() - start
            result, settings = run_until_kept(decided, checkpoint)
            result = move_to_device(result, device)
    chosen = decided.log.seconds
    seconds = {
        **chosen,
        "sample and partition": max(0.0, before - sum(chosen.values())),
        "pass": result.partition_seconds,
        "cells": result.cells_seconds,
    }
    sample = move_to_device(decided.sample, device)
    by_region = decided.sizes.n_regions > 0
    facts = (decided.log, sample, seconds, by_region, decided.choices.blend)
    return DiskFit(result, decided.rows, settings, *facts)


def check_possible(params: dict[str, Any]) -> None:
    """Refuse what could only fail later."""
    for kernel in open_choices(params, 1, 1).families:
        encode_kernel(kernel)
    check_device(own_device(params))
    for name, rule in (("centroids", "a rule such as 'uniform'"), ("n_centers", "a number")):
        if np.ndim(params[name]):
            raise ParameterError(
                f"{name} must be {rule} for rows that stay on disk, got an array of shape "
                f"{np.shape(params[name])}; load the rows and pass them as an array"
            )
    engine = as_engine(params["engine"])
    if params["checkpoint"] is None and engine.remote and engine.n_nodes > 1:
        raise ParameterError(
            f"checkpoint must be a folder that all {engine.n_nodes} nodes of the Ray cluster see, "
            f"such as 's3://bucket/fit-1', got None"
        )


def own_device(params: dict[str, Any]) -> Any:
    """Where this process computes: the workers of a cluster may have what it lacks."""
    return "cpu" if as_engine(params["engine"]).remote else params["device"]


class PassSettings(NamedTuple):
    """What a sample of the rows decided."""

    rows: EncodedTable
    sizes: DiskPlan
    choices: OpenChoices
    settings: FitSettings
    log: TuningLog
    unfitted: UnfittedModel
    sample: Tensor

    def write(self, path: Path) -> None:
        """All of it, as plain data and tensors."""
        labels, weights = self.rows.target.classes, self.rows.target.class_weights
        facts = {
            "columns": self.rows.columns.plain(),
            "classes": None if labels is None else labels.tolist(),
            "class_weights": None if weights is None else weights.tolist(),
            "sizes": vars(self.sizes),
            "penalty": self.settings.penalty,
            "seed": self.settings.seed,
            "coarse": self.settings.coarse and self.settings.coarse.n_centers,
            "dtype": str(self.settings.dtype).removeprefix("torch."),
            "tried": self.log.tried,
            "seconds": self.log.seconds,
            "scale": self.unfitted.scale,
            "weight": self.unfitted.weight,
            "sample": self.sample.tolist(),
            "counts": self.unfitted.counts,
            "margin": self.unfitted.margin,
        }
        X, Y, w = self.unfitted.left_out
        left_out = {"X": X, "Y": Y} | ({} if w is None else {"w": w})
        codes = {CODES + name: torch.from_numpy(c) for name, c in self.rows.fold_codes.items()}
        write_model(path, self.unfitted.model, facts, left_out | codes)

    @classmethod
    def read(cls, path: Path, table: ParquetTable, params: dict[str, Any]) -> "PassSettings":
        """What was written there."""
        model, facts, left_out = read_model(path)
        named = (facts[name] for name in ("classes", "class_weights"))
        labels = (None if values is None else np.array(values) for values in named)
        rows = EncodedTable(
            table,
            TableEncoder.from_plain(facts["columns"]),
            Target(table.target, *labels),
            {k.removeprefix(CODES): c.numpy() for k, c in left_out.items() if k.startswith(CODES)},
            facts["seed"],
        )
        sizes = DiskPlan(**facts["sizes"])
        params = keep_choices(params, rows.columns.width)
        choices = open_choices(params, rows.n_rows, rows.columns.width)
        settings = replace(
            build_settings(params, choices, sizes, rows.n_rows, facts["seed"]),
            kernel=model.kernel,
            penalty=facts["penalty"],
            metric=model.metric,
            blend=model.blend,
            coarse=Coarse(facts["coarse"], model.coarse.kernel) if model.coarse else None,
            dtype=getattr(torch, facts["dtype"]),
        )
        unfitted = UnfittedModel(
            model,
            facts["scale"],
            facts["weight"],
            Block(left_out["X"], left_out["Y"], left_out.get("w")),
            facts["counts"],
            str(params["device"]),
            facts["margin"],
        )
        log = TuningLog(facts["tried"], facts["seconds"])
        sample = torch.tensor(facts["sample"], dtype=torch.float64)
        return cls(rows, sizes, choices, settings, log, unfitted, sample)


def decide(rows: EncodedTable, params: dict[str, Any], seed: int) -> PassSettings:
    """Sizes, choices, centroids and centres, from a sample."""
    engine, params = as_engine(params["engine"]), keep_choices(params, rows.columns.width)
    sizes = sizes_on_disk(rows, params, engine)
    if sizes.n_regions:
        return decide_regions(rows, sizes, params, seed)
    n_drawn = min(rows.n_rows, sizes.n_sample + sizes.n_left_out)
    (sample, is_validation), share_kept = rows.sample(n_drawn, seed, engine)
    n_left_out = min(sizes.n_left_out, math.ceil(VALIDATION_SHARE * sample.n_rows))
    holdout = None
    if is_validation is not None:
        # No code depends on the targets of these rows: half of them, the last, are left out, and
        # the others compare candidates.
        n_left_out = min(n_left_out, max(1, int(is_validation.sum()) // 2))
        order = torch.cat([(~is_validation).nonzero()[:, 0], is_validation.nonzero()[:, 0]])
        sample, n_seen = ArraySource(*sample.block(order)), sample.n_rows - n_left_out
        holdout = Holdout(is_validation[order][:n_seen])
    sample = move_to_device(sample, own_device(params))
    seen = sample.rows(slice(0, sample.n_rows - n_left_out))
    holdout = holdout and holdout.to(sample.X.device)
    params = apply_lengthscales(params, seen, seed)
    choices = open_choices(params, seen.n_rows, seen.X.shape[1])
    settings = build_settings(params, choices, sizes, rows.n_rows, seed)
    settings, log = tune_settings(params, settings, choices, seen, holdout)
    unfitted = prepare_model(settings, sample, n_left_out)
    if choices.penalty:  # lambda n stays the same as rows are added
        penalty = settings.penalty * seen.n_rows / (share_kept * rows.n_rows)
        if settings.solver != "falkon":
            penalty = bound_penalty(penalty, unfitted, log)
        settings = replace(settings, penalty=penalty)
    settings = replace(settings, metric=unfitted.model.metric)
    statistics_bytes = 8 * sum(statistics_lengths(unfitted.sizes, unfitted.n_outputs))
    sizes = replace(sizes, n_groups=count_passes(sizes, statistics_bytes))
    return PassSettings(rows, sizes, choices, settings, log, unfitted, sample.X[:SAMPLE_ROWS])


def decide_regions(
    rows: EncodedTable, sizes: DiskPlan, params: dict[str, Any], seed: int
) -> PassSettings:
    """Sizes, choices and centroids of regions, from a sample.

    Choices are made on cells of as many rows as the final ones, of which the sample has fewer.
    """
    engine = as_engine(params["engine"])
    (sample, is_validation), share_kept = rows.sample(sizes.n_sample, seed, engine)
    sample = move_to_device(sample, own_device(params))
    holdout = None
    if is_validation is not None and sample.n_rows >= FEW_ROWS:
        holdout = Holdout(is_validation.to(sample.X.device))
    share = sample.n_rows / (share_kept * rows.n_rows)
    if is_validation is None and is_repeated(sample) and has_copies(sample):  # as in memory
        sample = merge_copies(sample)
    params = apply_lengthscales(params, sample, seed)
    choices = open_choices(params, sample.n_rows, sample.X.shape[1])
    settings = build_settings(params, choices, sizes, rows.n_rows, seed)
    on_sample = replace(
        settings,
        n_cells=max(1, round(share * sizes.n_cells)),
        n_centers=max(1, math.ceil(share * sizes.n_centers)),
    )
    on_sample, log = tune_settings(params, on_sample, choices, sample, holdout)
    unfitted = prepare_regions(on_sample, sample, sizes.n_regions, choices.blend)
    if choices.penalty:  # lambda n stays the same as rows are added
        on_sample = replace(on_sample, penalty=share * on_sample.penalty)
    settings = replace(
        on_sample,
        n_cells=settings.n_cells,
        n_centers=settings.n_centers,
        metric=unfitted.model.metric,
    )
    return PassSettings(rows, sizes, choices, settings, log, unfitted, sample.X[:SAMPLE_ROWS])


def bound_penalty(penalty: float, unfitted: UnfittedModel, log: TuningLog) -> float:
    """An automatic penalty, or the smallest that the statistics of every cell can carry.

    It was chosen on cells whose every row may be a centre, which need no statistics: 5e-14 for
    200,000 rows of houseelectric, where no cell could be solved.
    """
    total = sum(unfitted.sizes)  # lambda_q is lambda / rho_q, and rho_q the share of the centres
    least = max(smallest_penalty(m) * m / total for m in unfitted.sizes)
    if penalty < least:
        log.tried.append({"step": "statistics", "penalty": least, "instead_of": penalty})
    return max(penalty, least)


def run_until_kept(decided: PassSettings, checkpoint: Checkpoint) -> tuple[FitResult, FitSettings]:
    """The passes, and again those tasks whose results vanish or change before they are used."""
    lost: ResultError | None = None
    for _ in range(ATTEMPTS):
        try:
            return run_passes(decided, checkpoint)
        except ResultError as error:
            lost = error
    raise ParameterError(
        f"checkpoint must be a folder that all workers see and that keeps what they write, but "
        f"{ATTEMPTS} times it did not: {lost}"
    ) from lost


def run_passes(decided: PassSettings, checkpoint: Checkpoint) -> tuple[FitResult, FitSettings]:
    """Rows sorted by region, or by cell for FALKON; or statistics of cells in one pass.

    Returns the settings of the fit, too, which sorted rows may change.
    """
    rows, sizes, settings = decided.rows, decided.sizes, decided.settings
    if settings.engine is settings.engine.local:  # no more threads than there is memory for
        engine = LocalEngine(min(settings.engine.cores, sizes.n_workers))
        settings = replace(settings, engine=engine)
    n_sorted = -(-rows.n_rows // sizes.sort_rows)
    if sizes.n_regions:
        denser = rows.n_rows >= DENSER * sizes.n_sample
        return fit_by_region(
            decided.unfitted,
            settings,
            rows,
            checkpoint,
            n_slices=n_sorted,
            max_bytes=sizes.room,
            n_left_out=sizes.n_left_out,
            choices=decided.choices if denser else None,
            log=decided.log,
        )
    if settings.solver == "falkon":
        result = fit_from_sorted_rows(
            decided.unfitted,
            settings,
            rows,
            checkpoint,
            n_slices=n_sorted,
            max_bytes=sizes.room,
            n_left_out=sizes.n_left_out,
        )
        return result, settings
    result = fit_from_statistics(
        decided.unfitted,
        settings,
        rows,
        checkpoint,
        n_slices=sizes.n_slices,
        n_groups=sizes.n_groups,
        n_sorted=n_sorted,
        max_bytes=sizes.room,
    )
    return result, settings


def describe_job(table: ParquetTable, params: dict[str, Any], classify: bool) -> dict[str, Any]:
    """What makes two runs the same job."""
    return {
        "version": JOB_VERSION,
        "estimator": "ParKClassifier" if classify else "ParKRegressor",
        "parameters": {k: describe(v) for k, v in params.items() if k not in FREE},
        "table": {
            "target": table.target,
            "features": table.features,
            "weight": table.weight,
            "filter": str(table.filter),
        },
        "files": fingerprint(table),
    }


def describe(value: Any) -> str:
    """A parameter as text that differs when it does."""
    if isinstance(value, FeatureMap):
        digest = hashlib.sha256()
        for tensor in vars(value).values():
            digest.update(b"" if tensor is None else tensor.cpu().numpy().tobytes())
        return f"FeatureMap {digest.hexdigest()}"
    if isinstance(value, Chosen):
        return repr({name: describe(value.params[name]) for name in KEPT_CHOICES})
    if isinstance(value, np.random.RandomState):
        return f"RandomState {hashlib.sha256(repr(value.get_state()).encode()).hexdigest()}"
    return repr(value)


@contextmanager
def open_checkpoint(folder: str | Path | None, job: dict[str, Any]) -> Iterator[Checkpoint]:
    """The user's folder, or one that is removed afterwards."""
    if folder is not None:
        with Checkpoint(str(folder)).open_for(job) as checkpoint:
            yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="parkrr-") as own:
        yield Checkpoint(own)
