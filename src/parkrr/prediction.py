"""Predictions from files to files, in constant memory."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from parkrr.columns import Columns, Number
from parkrr.diskplan import BLOCK_BYTES
from parkrr.engine import Engine
from parkrr.errors import ParameterError
from parkrr.ledger import Ledger, publishing
from parkrr.model import Model
from parkrr.progress import progress
from parkrr.rowtable import decoded
from parkrr.tables import ParquetTable, block_rows, fingerprint, write_parquet

SLICE_ROWS = 2_000_000  # of a file that is written
VERSION = 1


class Part(NamedTuple):
    """Rows to predict, and the name of the file for them."""

    name: str
    table: ParquetTable


@dataclass(frozen=True)
class Predicting:
    """Predicts parts of a table.

    Parameters
    ----------
    model, columns
        The model, and how columns become its numbers.
    classes
        Labels of a classification.
    keys
        Columns to write beside the predictions.
    folder
        Where files go.
    """

    model: Model
    columns: Columns
    classes: NDArray[Any] | None
    keys: tuple[str, ...]
    folder: str

    def __call__(self, part: Part) -> int:
        """Write one file; how many rows it has."""
        with publishing(Path(self.folder, part.name)) as temporary:
            return write_parquet(str(temporary), self.blocks(part.table))

    def blocks(self, table: ParquetTable) -> Iterator[pa.Table]:
        """Keys and predictions of all rows, a block at a time."""
        names = list(dict.fromkeys([*self.columns.names, *self.keys]))
        for block in table.blocks(block_rows(self.columns.width, BLOCK_BYTES), names):
            X = torch.from_numpy(self.columns.encode(block))
            yield block.select(self.keys).append_column(*self.answers(self.model.predict(X)))

    def answers(self, values: torch.Tensor) -> tuple[str, pa.Array]:
        """What the model's values (n, t) mean."""
        V = values.numpy()
        if self.classes is not None:
            return "prediction", pa.array(decoded(V, self.classes))
        if V.shape[1] == 1:
            return "prediction", pa.array(V[:, 0])
        return "prediction", pa.FixedSizeListArray.from_arrays(pa.array(V.ravel()), V.shape[1])

    def digest(self) -> str:
        """Of all that predictions depend on, to tell whether files came from the same model."""
        model, coarse = self.model, self.model.coarse
        parts = [model.centroids, *model.centers, *model.weights, model.intercept]
        parts += [] if coarse is None else [coarse.centers, coarse.weights]
        parts += [tensor for tensor in vars(model.metric).values() if tensor is not None]
        words = (model.kernel, model.blend, coarse and coarse.kernel, self.columns, self.classes)
        total = hashlib.sha256(repr(words).encode())
        for tensor in parts:
            total.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
        return total.hexdigest()


def predict_files(predicting: Predicting, table: ParquetTable, engine: Engine, shown: bool) -> int:
    """Predict the parts that have no file yet; how many rows these had."""
    check_columns(predicting, table)
    ledger = Ledger(predicting.folder)
    job = {
        "version": VERSION,
        "parameters": {"model": predicting.digest(), "keys": predicting.keys},
        "table": {"filter": str(table.filter)},
        "files": fingerprint(table),
    }
    ledger.check(job)
    ledger.begin(job)
    slices = table.slices(-(-table.n_rows // SLICE_ROWS))
    parts = [Part(f"part-{k:05d}.parquet", rows) for k, rows in enumerate(slices)]
    todo = [part for part in parts if not Path(predicting.folder, part.name).exists()]
    total = sum(part.table.n_rows for part in todo)
    done = 0
    with progress("predicting", total, "rows", shown) as tick:
        for _, rows in engine.run(predicting, todo):
            done += rows
            tick(rows)
    return done


def check_columns(predicting: Predicting, table: ParquetTable) -> None:
    """Refuse columns that are not there, or would be there twice."""
    for name in (*predicting.columns.names, *predicting.keys):
        if name not in table.schema.names:
            raise ParameterError(
                f"source must have the columns of fit and of keys, but {name!r} is not one of "
                f"{table.schema.names}"
            )
    if "prediction" in predicting.keys:
        raise ParameterError("keys must not hold 'prediction', which is the column of answers")


def numbers_only(table: ParquetTable, n_features: int) -> Columns:
    """The columns of a table for a model that was fitted to an array."""
    if len(table.features) != n_features:
        raise ParameterError(
            f"source must have the {n_features} features of fit in their order, but has "
            f"{list(table.features)}; name them in scan_parquet(features=...)"
        )
    return Columns(tuple(Number(name, float("nan"), False) for name in table.features))
