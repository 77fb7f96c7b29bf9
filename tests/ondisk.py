"""Rows in Parquet files, for tests of fits from disk."""

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parkrr import LocalEngine
from parkrr.out_of_core import FilePredictor, write_predictions
from plain import plain

SETTINGS = {
    "metric": "standard",
    "n_cells": 8,
    "n_centers": 240,
    "centroids": "uniform",
    "precision": "float64",
    "random_state": 0,
}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.05 * rng.normal(size=n)


def write(folder, n=12_000, n_files=3, **more):
    """Files with columns a, b, c and y, and more columns if given."""
    X, y = rows(n)
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y, **more}
    folder.mkdir(parents=True, exist_ok=True)
    for k, part in enumerate(np.array_split(np.arange(n), n_files)):
        table = pa.table({name: np.asarray(values)[part] for name, values in columns.items()})
        pq.write_table(table, folder / f"{k}.parquet", row_group_size=n // (3 * n_files))
    return folder


@contextmanager
def full_disk(most_bytes):
    """What a full disk does to a larger file: the system refuses the rest of it."""
    resource = pytest.importorskip("resource")  # Windows has no such limits
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def on_disk(checkpoint, **changes):
    return plain(**{**SETTINGS, "checkpoint": checkpoint, **changes})


def predict_in_parts(model, table, folder, file_rows):
    """Predictions as `predict_to` writes them, in files of so many rows."""
    files = FilePredictor(
        model._predictor(), model.columns_, (), ("prediction",), 0.9, str(folder), file_rows
    )
    return write_predictions(files, table, LocalEngine(), shown=False)


def frame(n=500, seed=1):
    X, _ = rows(n, seed)
    return pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
