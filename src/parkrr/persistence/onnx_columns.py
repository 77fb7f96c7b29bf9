"""Columns of a frame as numbers, in a graph: what :class:`parkrr.data.TableEncoder` does.

A tensor of ONNX has one dtype and no missing values. So a frame is one input for each column, a
missing number is NaN, and a missing category is an empty string. Dates come as seconds, because
ONNX has no type for them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from parkrr.data import (
    PERIODS,
    Category,
    DateTime,
    FreeText,
    Ignored,
    Number,
    TableEncoder,
)
from parkrr.errors import ParameterError
from parkrr.persistence.onnx_graph import ML, Graph, Value, interpolate

INPUTS = {
    "number": "float64",
    "boolean": "float64, 0 or 1",
    "duration": "float64, microseconds",
    "datetime": "float64, seconds since 1970-01-01 UTC",
    "time": "float64, seconds since midnight",
    "category": "string",
}


def takes_matrix(columns: TableEncoder) -> bool:
    """Whether rows are one matrix of numbers, each of which is a feature by itself."""
    return all(isinstance(column, Number) and not column.means for column in columns.columns)


def fill_missing(X: Value, columns: TableEncoder) -> Value:
    """Columns of numbers (n, c), missing values filled and flagged, (n, d): TableEncoder.encode."""
    numbers = [column for column in columns.columns if isinstance(column, Number)]
    graph, missing = X.graph, find_missing(X)
    fills = np.array([column.fill for column in numbers])
    filled = graph.node("Where", missing, fills, X, dtype=X.dtype)
    both = graph.concatenate([filled, missing.cast(X.dtype)], axis=1)  # (n, 2 c)
    pairs = [[k, len(numbers) + k] if c.flagged else [k] for k, c in enumerate(numbers)]
    return both.gather(np.array([k for pair in pairs for k in pair]), axis=1)


def find_missing(X: Value) -> Value:
    """Whether each number is missing."""
    return X.graph.node("Or", *(X.graph.node(kind, X, dtype=bool) for kind in ("IsNaN", "IsInf")))


def describe_inputs(columns: TableEncoder) -> dict[str, str]:
    """What each input holds, by name."""
    read = [column for column in columns.columns if not isinstance(column, Ignored)]
    return {column.name: INPUTS[column.holds] for column in read}


def encode_columns(graph: Graph, columns: TableEncoder) -> tuple[dict[Value, Sequence[Any]], Value]:
    """An input (n,) for each column, and all of them as numbers (n, d): TableEncoder.encode."""
    texts = [column.name for column in columns.columns if isinstance(column, FreeText)]
    if texts:
        raise ParameterError(
            f"to_onnx needs numbers, categories, dates or times, but {texts} are free text; "
            f"make them numbers before the fit, declare them as columns={{{texts[0]!r}: "
            f"'ignore'}}, or serve the file of save(), which encodes them"
        )
    inputs: dict[Value, Sequence[Any]] = {}
    parts = []
    for column in columns.columns:
        if isinstance(column, Category):
            given = Value(graph, column.name, object)
            parts.append(encode_category(column, given))
        elif isinstance(column, Number | DateTime):
            given = Value(graph, column.name, np.float64)
            encode = encode_number if isinstance(column, Number) else encode_datetime
            parts.append(encode(column, given.reshape(-1, 1)))  # type: ignore[arg-type]
        else:
            continue
        inputs[given] = ["n"]
    return inputs, graph.concatenate(parts, axis=1)


def encode_category(column: Category, x: Value) -> Value:
    """The numbers of categories x (n,), shape (n, width): Category.encode."""
    graph, other = x.graph, len(column.values)
    index = {value: k for k, value in enumerate(column.values) if value is not None}
    # An empty string is a missing value, unless the fit had empty strings.
    missing = column.values.index(None) if None in column.values else other
    index.setdefault("", missing)
    number = graph.node(
        "LabelEncoder",
        x,
        dtype=np.int64,
        domain=ML,
        keys_strings=list(index),
        values_int64s=list(index.values()),
        default_int64=other,
    )
    return graph.constant(np.array([*column.codes, column.other], dtype=np.float64)).gather(number)


def encode_number(column: Number, x: Value) -> Value:
    """Numbers x (n, 1) with flags and means of targets, shape (n, width): Number.encode."""
    graph, missing = x.graph, find_missing(x)
    filled = graph.node("Where", missing, np.array(column.fill), x, dtype=x.dtype)
    parts = [filled, *([missing.cast(x.dtype)] if column.flagged else [])]
    knots = np.array([column.knots])
    parts += [interpolate(filled, knots, np.array([heights])) for heights in column.means]
    return parts[0] if len(parts) == 1 else graph.concatenate(parts, axis=1)


def encode_datetime(column: DateTime, s: Value) -> Value:
    """Seconds s (n, 1) with positions in periods, shape (n, width): DateTime.encode."""
    graph, missing = s.graph, find_missing(s)
    filled = graph.node("Where", missing, np.array(column.fill), s, dtype=s.dtype)
    parts = [filled] if column.elapsed else []
    for period in column.turns:
        angle = filled * (2 * np.pi) / PERIODS[period]
        parts += [graph.node("Sin", angle), graph.node("Cos", angle)]
    parts += [missing.cast(s.dtype)] if column.flagged else []
    return parts[0] if len(parts) == 1 else graph.concatenate(parts, axis=1)
