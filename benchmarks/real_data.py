"""The real datasets, from the folder in the environment variable PARKRR_DATA.

Features and target come standardised with training statistics, as float32.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq


class Dataset(NamedTuple):
    """Training and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def folder():
    """Where the Parquet files are, or None."""
    path = os.environ.get("PARKRR_DATA")
    return Path(path) if path and Path(path).is_dir() else None


def load(name, target="target", split="split", test_value="test", by="deviation"):
    """One dataset; rows whose `split` column equals test_value are the test rows.

    Features are divided by their standard deviation or, `by="variance"`, as FALKON's authors
    do with HIGGS, by their variance.
    """
    if folder() is None:
        raise SystemExit("set PARKRR_DATA to the folder of the benchmark datasets")
    table = pq.read_table(folder() / f"{name}.parquet")
    features = json.loads(table.schema.metadata[b"park"])["features"]
    test = table[split].to_numpy() == test_value
    X = np.column_stack([table[column].to_numpy().astype(np.float64) for column in features])
    y = table[target].to_numpy().astype(np.float64)
    mean, scale = X[~test].mean(0), X[~test].std(0, ddof=1)
    if by == "variance":
        scale = scale**2
    X = ((X - mean) / np.where(scale == 0, 1, scale)).astype(np.float32)
    if target == "target" and name != "higgs51k":
        y = (y - y[~test].mean()) / y[~test].std()
    y = y.astype(np.float32)
    return Dataset(X[~test], y[~test], X[test], y[test])
