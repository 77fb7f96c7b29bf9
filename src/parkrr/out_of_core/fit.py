"""A fit from files: look, choose, place, pass, solve. Start at :func:`stream`.

Everything up to the pass is decided on a sample of the rows and kept as one file, the skeleton;
the pass and the cells are tasks of :mod:`parkrr.out_of_core.statistics_pass`.
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
    VALIDATION_SHARE,
    Block,
    EncodedTable,
    ParquetTable,
    TableEncoder,
    Target,
    fingerprint,
)
from parkrr.errors import ParameterError
from parkrr.kernels import FeatureMap
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.out_of_core.sorted_pass import SortedPass
from parkrr.out_of_core.statistics_pass import StatisticsPass, lengths_of
from parkrr.out_of_core.unfitted_model import UnfittedModel, skeleton
from parkrr.park import Coarse, FitResult, FitSettings
from parkrr.persistence import encode_kernel, read_model, write_model
from parkrr.planning import (
    DiskPlan,
    build_settings,
    count_passes,
    learn_table,
    open_choices,
    sizes_on_disk,
    tune_settings,
)
from parkrr.runtime import LocalEngine, as_engine, check_device, move_to_device
from parkrr.tuning import TuningLog

KEPT_ROWS = 2000  # of the sample, for importances
JOB_VERSION = 2
# What may change between two runs of one job.
FREE = ("engine", "progress", "checkpoint", "device")


class DiskFit(NamedTuple):
    """A fit from disk, and what was decided before the pass."""

    result: FitResult
    rows: EncodedTable
    settled: FitSettings
    diary: TuningLog
    looked_at: Tensor  # a few rows as numbers, (2000, d)
    seconds: dict[str, float]  # that each step took


def stream(table: ParquetTable, params: dict[str, Any], seed: int, classify: bool) -> DiskFit:
    """The fit of a table that stays on disk."""
    start = time.perf_counter()
    wanted = job(table, params, classify)
    check_possible(params)
    with ledger_of(params["checkpoint"], wanted) as folder:

        def make() -> PassSettings:
            made = decide(learn_table(table, params, seed, classify), params, seed)
            folder.begin(wanted)  # not before everything has been checked
            return made

        folder.kept("skeleton.park", make, lambda path, made: made.write(path))
        ledger = folder.tagged("skeleton.park")
        with ledger.place.local("skeleton.park") as path:  # its centres stay mapped
            decided = PassSettings.read(path, table, params)
            before = time.perf_counter() - start
            result = move_to_device(passes(decided, ledger), own_device(params))
    seconds = {
        **decided.diary.seconds,
        "sample and partition": max(0.0, before - sum(decided.diary.seconds.values())),
        "pass": result.place_seconds,
        "cells": result.cells_seconds,
    }
    looked_at = move_to_device(decided.looked_at, own_device(params))
    return DiskFit(result, decided.rows, decided.park, decided.diary, looked_at, seconds)


def check_possible(params: dict[str, Any]) -> None:
    """Refuse what could only fail later."""
    for kernel in open_choices(params, 1, 1).families:
        encode_kernel(kernel)
    check_device(own_device(params))
    engine = as_engine(params["engine"])
    if params["checkpoint"] is None and engine.remote and engine.n_nodes > 1:
        raise ParameterError(
            f"checkpoint must be a folder that all {engine.n_nodes} nodes of the Ray cluster see, "
            f"such as 's3://bucket/fit-1', got None"
        )


def own_device(params: dict[str, Any]) -> Any:
    """Where this process computes: the workers of a cluster may have what it lacks."""
    return "cpu" if as_engine(params["engine"]).remote else params["device"]


def passes(decided: "PassSettings", ledger: Checkpoint) -> FitResult:
    """Statistics of cells in one pass; rows sorted by cell for FALKON, which needs them again."""
    park, sizes = decided.park, decided.sizes
    if not park.engine.remote:  # no more than there is memory for
        park = replace(park, engine=LocalEngine(min(park.engine.cores, sizes.n_workers)))
    if park.solver == "falkon":
        slices = -(-decided.rows.n_rows // sizes.sort_rows)
        limits = (sizes.room, sizes.n_left_out)
        return SortedPass(decided.skeleton, park, decided.rows, ledger, slices, *limits).fit()
    counts = (sizes.n_slices, sizes.n_groups)
    return StatisticsPass(decided.skeleton, park, decided.rows, ledger, *counts).fit()


class PassSettings(NamedTuple):
    """What a sample of the rows decided."""

    rows: EncodedTable
    sizes: DiskPlan
    park: FitSettings
    diary: TuningLog
    skeleton: UnfittedModel
    looked_at: Tensor

    def write(self, path: Path) -> None:
        """All of it, as plain data and tensors."""
        labels, weights = self.rows.target.classes, self.rows.target.class_weights
        facts = {
            "columns": self.rows.columns.plain(),
            "classes": None if labels is None else labels.tolist(),
            "class_weights": None if weights is None else weights.tolist(),
            "sizes": vars(self.sizes),
            "penalty": self.park.penalty,
            "seed": self.park.seed,
            "coarse": self.park.coarse and self.park.coarse.n_centers,
            "dtype": str(self.park.dtype).removeprefix("torch."),
            "tried": self.diary.tried,
            "seconds": self.diary.seconds,
            "scale": self.skeleton.scale,
            "weight": self.skeleton.weight,
            "looked_at": self.looked_at.tolist(),
            "counts": self.skeleton.counts,
        }
        X, Y, w = self.skeleton.left_out
        more = {"X": X, "Y": Y} | ({} if w is None else {"w": w})
        write_model(path, self.skeleton.model, facts, more)

    @classmethod
    def read(cls, path: Path, table: ParquetTable, params: dict[str, Any]) -> "PassSettings":
        """What was written there."""
        model, facts, more = read_model(path)
        named = (facts[name] for name in ("classes", "class_weights"))
        labels = (None if values is None else np.array(values) for values in named)
        target = Target(table.target, *labels)
        rows = EncodedTable(table, TableEncoder.from_plain(facts["columns"]), target)
        sizes = DiskPlan(**facts["sizes"])
        choices = open_choices(params, rows.n_rows, rows.columns.width)
        park = build_settings(params, choices, sizes, rows.n_rows, facts["seed"])
        level = Coarse(facts["coarse"], model.coarse.kernel) if model.coarse else None
        park = replace(
            park,
            kernel=model.kernel,
            penalty=facts["penalty"],
            metric=model.metric,
            blend=model.blend,
            coarse=level,
            dtype=getattr(torch, facts["dtype"]),
        )
        diary = TuningLog(facts["tried"], facts["seconds"])
        left_out = Block(more["X"], more["Y"], more.get("w"))
        scale, weight, counts = facts["scale"], facts["weight"], facts["counts"]
        built = UnfittedModel(model, scale, weight, left_out, counts, str(params["device"]))
        return cls(
            rows, sizes, park, diary, built, torch.tensor(facts["looked_at"], dtype=torch.float64)
        )


def decide(rows: EncodedTable, params: dict[str, Any], seed: int) -> PassSettings:
    """Sizes, choices, centroids and centres, from a sample."""
    engine = as_engine(params["engine"])
    sizes = sizes_on_disk(rows, params, engine)
    drawn = min(rows.n_rows, sizes.n_sample + sizes.n_left_out)
    sample, kept = rows.sample(drawn, seed, engine)
    sample = move_to_device(sample, own_device(params))
    left_out = min(sizes.n_left_out, math.ceil(VALIDATION_SHARE * sample.n_rows))
    deciding = sample.rows(slice(0, sample.n_rows - left_out))
    choices = open_choices(params, deciding.n_rows, deciding.X.shape[1])
    park = build_settings(params, choices, sizes, rows.n_rows, seed)
    park, diary = tune_settings(params, park, choices, deciding)
    built = skeleton(park, sample, left_out)
    if choices.penalty:  # what stays the same as rows are added is lambda n
        park = replace(park, penalty=park.penalty * deciding.n_rows / (kept * rows.n_rows))
    park = replace(park, metric=built.model.metric)
    statistics = 8 * sum(lengths_of(built.sizes, sample.n_outputs))
    sizes = replace(sizes, n_groups=count_passes(sizes, statistics))
    return PassSettings(rows, sizes, park, diary, built, sample.X[:KEPT_ROWS])


def job(table: ParquetTable, params: dict[str, Any], classify: bool) -> dict[str, Any]:
    """What makes two runs the same job."""
    return {
        "version": JOB_VERSION,
        "estimator": "ParKClassifier" if classify else "ParKRegressor",
        "parameters": {k: described(v) for k, v in params.items() if k not in FREE},
        "table": {
            "target": table.target,
            "features": table.features,
            "weight": table.weight,
            "filter": str(table.filter),
        },
        "files": fingerprint(table),
    }


def described(value: Any) -> str:
    """A parameter in words that differ when it does."""
    if isinstance(value, FeatureMap):
        total = hashlib.sha256()
        for tensor in vars(value).values():
            total.update(b"" if tensor is None else tensor.cpu().numpy().tobytes())
        return f"FeatureMap {total.hexdigest()}"
    if isinstance(value, np.random.RandomState):
        return f"RandomState {hashlib.sha256(repr(value.get_state()).encode()).hexdigest()}"
    return repr(value)


@contextmanager
def ledger_of(folder: str | Path | None, wanted: dict[str, Any]) -> Iterator[Checkpoint]:
    """The user's folder, or one that is gone afterwards."""
    if folder is not None:
        ledger = Checkpoint(str(folder))
        ledger.check(wanted)
        yield ledger
        return
    with tempfile.TemporaryDirectory(prefix="parkrr-") as own:
        yield Checkpoint(own)
