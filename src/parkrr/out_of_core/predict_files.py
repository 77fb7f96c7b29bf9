"""Predictions from files to files, in constant memory."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from parkrr.data import (
    BLOCK_BYTES,
    DigestingFile,
    ParquetTable,
    TableEncoder,
    fingerprint,
    rows_per_block,
    write_parquet,
)
from parkrr.errors import ParameterError, suggest
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.runtime import Engine, run_tasks
from parkrr.uncertainty import Predictor

FILE_ROWS = 2_000_000  # of a file that is written
VERSION = 4
ENDS = ("lower", "upper")  # columns of an interval


class Part(NamedTuple):
    """Rows to predict, and the name of the file for them."""

    name: str
    table: ParquetTable

    @property
    def marker(self) -> str:
        """The file that marks it; readers of folders of Parquet files skip names that begin so."""
        return f"_{self.name}.json"


@dataclass(frozen=True)
class FilePredictor:
    """Predicts parts of a table, each to a file."""

    predictor: Predictor
    columns: TableEncoder  # how columns of the table become the numbers of a row
    keys: tuple[str, ...]  # columns to write beside the outputs
    outputs: tuple[str, ...]  # "prediction", "std", "novelty", "probability" or "interval"
    coverage: float  # of intervals
    folder: str  # a path or a URL
    file_rows: int = FILE_ROWS

    def blocks(self, table: ParquetTable) -> Iterator[pa.Table]:
        """Keys and outputs of all rows, a block at a time."""
        names = list(dict.fromkeys([*self.columns.read_names, *self.keys]))
        for block in table.blocks(rows_per_block(self.columns.width, BLOCK_BYTES), names):
            X = torch.from_numpy(self.columns.encode(block))  # (n, d)
            written = block.select(self.keys)
            outputs = self.predictor.compute(X, self.outputs, self.coverage)
            for name, values in outputs.items():
                written = written.append_column(name, as_column(values))
            yield written

    def digest(self) -> str:
        """Of all that predictions depend on, to tell whether files came from the same model."""
        predictor, model, coarse = self.predictor, self.predictor.model, self.predictor.model.coarse
        tensors = [model.centroids, *model.centers, *model.weights, model.intercept]
        tensors += [] if coarse is None else [coarse.centers, coarse.weights]
        tensors += [] if model.limits is None else [model.limits]
        tensors += [tensor for tensor in vars(model.metric).values() if tensor is not None]
        bars = predictor.intervals
        if bars is not None:
            tensors += [bars.quantiles, bars.factors, bars.posterior.noise, bars.posterior.ridge]
            tensors += [] if bars.learned is None else [bars.learned.centers, bars.learned.weights]
            tensors += [] if bars.scores is None else [bars.scores.values, bars.scores.w]
            tensors += [] if bars.jackknife is None else [bars.jackknife.residuals]
        facts = (
            *(model.kernel, model.blend, coarse and coarse.kernel, self.columns.plain()),
            model.link,
            None if predictor.classes is None else predictor.classes.tolist(),
            predictor.calibration and predictor.calibration.to_dict(),
            bars and (bars.scale_name, bars.n, bars.power, bars.equal_tails, bars.guarantee),
        )
        digest = hashlib.sha256(repr(facts).encode())
        for tensor in tensors:
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
        return digest.hexdigest()


def as_column(values: NDArray[Any]) -> pa.Array:
    """Values (n,), or (n, k) as lists of k."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def write_predictions(
    predictor: FilePredictor, table: ParquetTable, engine: Engine, shown: bool
) -> int:
    """Predict the parts that have no file yet; returns how many rows these have."""
    check_columns(predictor, table)
    job = {
        "version": VERSION,
        "parameters": {
            "model": predictor.digest(),
            "keys": predictor.keys,
            "outputs": predictor.outputs,
            "coverage": predictor.coverage,
        },
        "table": {"filter": str(table.filter)},
        "files": fingerprint(table),
    }
    slices = table.slices(-(-table.n_rows // predictor.file_rows))
    parts = [Part(f"part-{k:05d}.parquet", rows) for k, rows in enumerate(slices)]
    with Checkpoint(predictor.folder).open_for(job) as checkpoint:
        checkpoint.begin(job)
        there = checkpoint.place.names()
        missing = [
            part
            for part in parts
            if part.name not in there or checkpoint.read_marker(part.marker, part.name) is None
        ]
        rows_written = run_tasks(
            engine,
            partial(write_part, predictor, checkpoint),
            missing,
            label="predicting",
            unit="rows",
            size_of=lambda part: part.table.n_rows,
            shown=shown,
        )
    return sum(rows_written)


def write_part(predictor: FilePredictor, checkpoint: Checkpoint, part: Part) -> int:
    """Write one file and mark it; returns its number of rows."""
    with checkpoint.place.atomic_write(part.name) as file:
        digesting = DigestingFile(file)
        n_rows = write_parquet(digesting, predictor.blocks(part.table))
    checkpoint.mark(part.marker, digesting.digest.hexdigest(), {"rows": n_rows})
    return n_rows


def check_columns(predictor: FilePredictor, table: ParquetTable) -> None:
    """Refuse columns that are not there, or would be there twice."""
    check_source_columns(table, (*predictor.columns.read_names, *predictor.keys))
    written = {*predictor.outputs, *(ENDS if "interval" in predictor.outputs else ())}
    for name in sorted(written & set(predictor.keys)):
        raise ParameterError(f"keys must not hold {name!r}, which is a column of outputs")


def check_source_columns(table: ParquetTable, names: tuple[str, ...]) -> None:
    """Refuse a table that lacks a column, or has it in types that none can hold."""
    for name in names:
        if name in table.conflicts:
            raise ParameterError(
                f"source must have one type for a column of fit or of keys, but {name!r} is "
                f"{table.conflicts[name]}, and no type holds all of these"
            )
        if name not in table.schema.names:
            raise ParameterError(
                f"source must have the columns of fit and of keys, but {name!r} is not one of "
                f"{table.schema.names}{suggest(name, table.schema.names)}"
            )
