"""Predictions from files to files, in constant memory."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from parkrr.data import (
    BLOCK_BYTES,
    Number,
    ParquetTable,
    TableEncoder,
    fingerprint,
    open_folder,
    rows_per_block,
    write_parquet,
)
from parkrr.errors import ParameterError
from parkrr.out_of_core.checkpoint import Checkpoint
from parkrr.runtime import Engine, run_tasks
from parkrr.uncertainty import Predictor

SLICE_ROWS = 2_000_000  # of a file that is written
VERSION = 1
ENDS = ("lower", "upper")  # columns of an interval


class Part(NamedTuple):
    """Rows to predict, and the name of the file for them."""

    name: str
    table: ParquetTable


@dataclass(frozen=True)
class FilePredictor:
    """Predicts parts of a table.

    Parameters
    ----------
    answering, columns
        What answers, and how columns become its numbers.
    keys
        Columns to write beside the answers.
    answers
        What to write: names of :class:`Predictor`'s answers, and "interval" for both ends.
    coverage
        Of intervals.
    folder
        Where files go, a path or a URL.
    """

    answering: Predictor
    columns: TableEncoder
    keys: tuple[str, ...]
    answers: tuple[str, ...]
    coverage: float
    folder: str

    def __call__(self, part: Part) -> int:
        """Write one file; how many rows it has."""
        with open_folder(self.folder).atomic_write(part.name) as file:
            return write_parquet(file, self.blocks(part.table))

    def blocks(self, table: ParquetTable) -> Iterator[pa.Table]:
        """Keys and answers of all rows, a block at a time."""
        names = list(dict.fromkeys([*self.columns.names, *self.keys]))
        for block in table.blocks(rows_per_block(self.columns.width, BLOCK_BYTES), names):
            X = torch.from_numpy(self.columns.encode(block))
            found = block.select(self.keys)
            for name in self.answers:
                for column, values in self.answer(name, X).items():
                    found = found.append_column(column, as_column(values))
            yield found

    def answer(self, name: str, X: torch.Tensor) -> dict[str, NDArray[Any]]:
        """One kind of answer to rows X (n, d), by the names of its columns."""
        if name == "interval":
            return dict(zip(ENDS, self.answering.interval(X, self.coverage), strict=True))
        ask: dict[str, Callable[[torch.Tensor], NDArray[Any]]] = {
            "prediction": self.answering.predict,
            "std": self.answering.std,
            "novelty": self.answering.novelty,
            "probability": self.answering.probabilities,
        }
        return {name: ask[name](X)}

    def digest(self) -> str:
        """Of all that predictions depend on, to tell whether files came from the same model."""
        answering = self.answering
        model, coarse, bars = answering.model, answering.model.coarse, answering.intervals
        parts = [model.centroids, *model.centers, *model.weights, model.intercept]
        parts += [] if coarse is None else [coarse.centers, coarse.weights]
        parts += [tensor for tensor in vars(model.metric).values() if tensor is not None]
        if bars is not None:
            parts += [bars.quantiles, bars.factors, bars.posterior.noise, bars.posterior.ridge]
            learned = bars.learned
            parts += [] if learned is None else [learned.centers, learned.weights]
        words = (
            *(model.kernel, model.blend, coarse and coarse.kernel, self.columns),
            None if answering.classes is None else answering.classes.tolist(),
            answering.calibration and answering.calibration.to_dict(),
            bars and (bars.scale_name, bars.n),
        )
        total = hashlib.sha256(repr(words).encode())
        for tensor in parts:
            total.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
        return total.hexdigest()


def as_column(values: NDArray[Any]) -> pa.Array:
    """Answers (n,), or (n, k) as lists of k."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def write_predictions(
    predicting: FilePredictor, table: ParquetTable, engine: Engine, shown: bool
) -> int:
    """Predict the parts that have no file yet; how many rows these had."""
    check_columns(predicting, table)
    ledger = Checkpoint(predicting.folder)
    job = {
        "version": VERSION,
        "parameters": {
            "model": predicting.digest(),
            "keys": predicting.keys,
            "answers": predicting.answers,
            "coverage": predicting.coverage,
        },
        "table": {"filter": str(table.filter)},
        "files": fingerprint(table),
    }
    ledger.check(job)
    ledger.begin(job)
    slices = table.slices(-(-table.n_rows // SLICE_ROWS))
    parts = [Part(f"part-{k:05d}.parquet", rows) for k, rows in enumerate(slices)]
    there = ledger.place.names()
    todo = [part for part in parts if part.name not in there]
    rows = run_tasks(
        engine,
        predicting,
        todo,
        label="predicting",
        unit="rows",
        size_of=lambda part: part.table.n_rows,
        shown=shown,
    )
    return sum(rows)


def check_columns(predicting: FilePredictor, table: ParquetTable) -> None:
    """Refuse columns that are not there, or would be there twice."""
    for name in (*predicting.columns.names, *predicting.keys):
        if name not in table.schema.names:
            raise ParameterError(
                f"source must have the columns of fit and of keys, but {name!r} is not one of "
                f"{table.schema.names}"
            )
    written = {*predicting.answers, *(ENDS if "interval" in predicting.answers else ())}
    for name in sorted(written & set(predicting.keys)):
        raise ParameterError(f"keys must not hold {name!r}, which is a column of answers")


def numbers_only(table: ParquetTable, n_features: int) -> TableEncoder:
    """The columns of a table for a model that was fitted to an array."""
    if len(table.features) != n_features:
        raise ParameterError(
            f"source must have the {n_features} features of fit in their order, but has "
            f"{list(table.features)}; name them in scan_parquet(features=...)"
        )
    return TableEncoder(tuple(Number(name, float("nan"), False) for name in table.features))
