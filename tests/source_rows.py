"""Rows that every library can hold, and a fit of them that takes part of a second."""

import numpy as np
import pyarrow as pa

from ondisk import SETTINGS
from plain import plain

N = 1500


def made_up():
    """Numbers, categories, time stamps and missing values."""
    rng = np.random.default_rng(0)
    x, city = rng.normal(size=N), rng.choice(["Oslo", "Rome", "Bonn"], N)
    start = rng.integers(1.6e9, 1.7e9, N) * 1_000_000
    gaps = np.where(rng.random(N) < 0.05, None, rng.normal(size=N).round(3))
    y = np.sin(2 * x) + (city == "Oslo") + 0.1 * rng.normal(size=N)
    return pa.table(
        {
            "x": x,
            "city": city,
            "start": pa.array(start).cast(pa.timestamp("us")),
            "tip": pa.array(gaps.tolist(), pa.float64()),
            "y": y,
        }
    )


def read_all(table):
    return pa.concat_tables(table.blocks(10**6, table.schema.names)).to_pydict()


def fit(table):
    return plain(**{**SETTINGS, "n_cells": 3, "n_centers": 120, "progress": False}).fit(table)


def predict(table):
    """Predictions of the rows that the model is fitted to."""
    rows = pa.concat_tables(table.blocks(10**6, list(table.features)))
    return fit(table).predict(rows).tolist()
