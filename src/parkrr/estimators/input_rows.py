"""X as a user passes it: arrays, lists and frames, for a fit and for predictions.

One rule for all of them. Columns of a frame go by their names, in any order; those of an array, and
of a frame whose labels are not strings, by their position. Missing values are accepted everywhere,
infinity nowhere. Numbers of an array without missing values are never copied.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from parkrr.data import (
    Number,
    TableEncoder,
    array_as_table,
    as_table,
    is_frame,
    is_pandas,
    is_plain,
    name_type,
    naming_parameter,
)
from parkrr.errors import ParameterError, suggest

NUMERIC = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
WARNED = 5  # columns that a warning names


class TrainingRows(NamedTuple):
    """Rows to fit: a table whose columns are to be encoded, or numbers (n, d) that are not."""

    table: Any  # of Arrow, or None
    numbers: NDArray[Any] | None
    names: list[str]
    types: list[str]  # of Arrow or numpy
    named: bool  # whether columns go by their names

    def __len__(self) -> int:
        rows: Any = self.numbers if self.table is None else self.table
        return len(rows)


def read_training_rows(X: Any, declared: Mapping[str, str]) -> TrainingRows:
    """Rows to fit, from an array or a frame, whose columns may be declared to be of some kind."""
    if is_table(X):
        named = has_names(X)
        floats = None if declared else read_floats(X)
        if floats is not None:
            names = list(map(str, X.columns)) if named else number_columns(X.shape[1])
            return TrainingRows(None, floats, names, list(map(str, X.dtypes)), named)
        ignored = [name for name, kind in declared.items() if kind == "ignore"]
        table = read_frame(X, ignored)
        names = table.schema.names if named else number_columns(len(table.schema.names))
        table, types = table.rename_columns(names), list(map(name_type, table.schema.types))
        if declared or not all(map(is_plain, table.columns)):
            return TrainingRows(table, None, names, types, named)
        return TrainingRows(None, as_numbers(table), names, types, named)
    with naming_parameter("X"):
        A = read_array(X, lambda rows: check_array(rows, input_name="X", **NUMERIC))
    names = number_columns(A.shape[1])
    if declared or A.dtype == object or has_missing(A):
        table = array_as_table(A, names)
        return TrainingRows(table, None, names, list(map(name_type, table.schema.types)), False)
    return TrainingRows(None, A, names, [str(A.dtype)] * len(names), False)


def encode_frame(encoder: TableEncoder, named: bool, X: Any) -> NDArray[Any]:
    """New rows of a frame as numbers, in whatever order its columns are if they have names."""
    if named and encoder.takes_numbers and is_pandas(X) and list(X.columns) == encoder.names:
        floats = read_floats(X)
        if floats is not None:
            return floats
    table = as_table(X if not named else select_columns(X, encoder.read_names))
    if not named:
        check_width(encoder, len(table.schema.names))
        return encoder.encode(table.rename_columns(encoder.names))
    missing = [name for name in encoder.read_names if name not in table.schema.names]
    if missing:
        given = list(map(str, X.columns)) if has_labels(X) else table.schema.names
        others = [name for name in given if name not in encoder.names]
        raise ParameterError(
            f"X must have the columns of fit, but {missing} are missing among {given}"
            f"{suggest(missing[0], others)}"
        )
    return encoder.encode(table)


def encode_array(encoder: TableEncoder, A: NDArray[Any]) -> NDArray[Any]:
    """New rows of an array as numbers; the array itself if there is nothing to do."""
    check_width(encoder, A.shape[1])
    if A.dtype != object and encoder.takes_numbers and not has_missing(A):
        return A
    return encoder.encode(array_as_table(A, encoder.names))


def read_array(X: Any, check: Callable[[Any], Any]) -> NDArray[Any]:
    """Rows that pass a check of scikit-learn for numbers, or else an array of objects, (n, d)."""
    try:
        array: NDArray[Any] = check(X)
    except (TypeError, ValueError):  # text, or the NA of pandas
        A = np.asarray(X) if isinstance(X, np.ndarray | list | tuple) else np.empty(0)
        if A.ndim == 2 and A.dtype.kind == "f":
            refuse_infinity(A)
        kinds = (dict, list, tuple, set, complex, np.ndarray)
        if A.ndim != 2 or A.dtype.kind not in "OU" or any(isinstance(v, kinds) for v in A.flat):
            raise
        return A.astype(object)
    return array


def refuse_infinity(A: NDArray[Any]) -> None:
    """Name the columns of an array (n, d) that contain infinity."""
    columns = np.flatnonzero(np.isinf(A).any(0)).tolist()
    if columns:
        raise ParameterError(
            f"X must hold finite or missing numbers, but contains infinity in column "
            f"{', '.join(map(str, columns[:5]))}{', …' if len(columns) > 5 else ''} (counted from "
            f"0); replace it, as with numpy.where(numpy.isinf(X), numpy.nan, X)"
        )


def select_columns(X: Any, names: Sequence[str]) -> Any:
    """A frame of pandas or polars without other columns, which may hold whatever they like."""
    if is_pandas(X):
        others = [label for label in X.columns if str(label) not in names]
        return X.drop(columns=others) if others else X
    return X.select([name for name in X.columns if name in names]) if has_labels(X) else X


def has_labels(X: Any) -> bool:
    """Whether X is a frame of pandas or polars, whose columns are their labels."""
    return is_pandas(X) or type(X).__module__.startswith("polars")


def read_floats(X: Any) -> NDArray[Any] | None:
    """A frame of pandas as an array if all of it is finite floats of one type, else None.

    A frame of 3 million rows and 10 columns takes 0.3 s, and 3 s through Arrow.
    """
    if not is_pandas(X) or not X.columns.is_unique or not X.size:
        return None
    [kind, *others] = set(X.dtypes)
    if others or kind not in (np.float64, np.float32):
        return None
    A = np.ascontiguousarray(X.to_numpy())
    with np.errstate(over="ignore", invalid="ignore"):
        return A if np.isfinite(A.sum()) else None


def read_frame(X: Any, ignored: Sequence[str]) -> Any:
    """A frame as a table of Arrow, which may not know what is in a column that is ignored."""
    try:
        return as_table(X)
    except ParameterError:
        if not ignored:
            raise
        return as_table(without_objects(X, ignored))


def without_objects(X: Any, names: Sequence[str]) -> Any:
    """A frame of pandas or polars in which columns of these names hold nothing."""
    there = [name for name in names if name in getattr(X, "columns", ())]
    if there and is_pandas(X):
        return X.assign(**dict.fromkeys(there))
    if there and type(X).__module__.startswith("polars"):
        return X.with_columns(**dict.fromkeys(there))
    return X


def check_width(encoder: TableEncoder, width: int) -> None:
    """Refuse rows of another width."""
    if width != len(encoder.names):
        raise ParameterError(
            f"X has {width} features, but the model is expecting {len(encoder.names)} features"
        )


def is_table(X: Any) -> bool:
    """Whether it is a frame and not one column of it."""
    return is_frame(X) and len(getattr(X, "shape", (0, 0))) == 2 and not isinstance(X, np.ndarray)


def has_names(X: Any) -> bool:
    """Whether columns of a frame have names: in pandas, labels that are strings."""
    return not is_pandas(X) or any(isinstance(label, str) for label in X.columns)


def has_missing(A: NDArray[Any]) -> bool:
    """Whether any number is missing; one sum tells nearly always, and takes no memory."""
    with np.errstate(over="ignore", invalid="ignore"):
        return not np.isfinite(A.sum()) and bool(np.isnan(A).any())


def number_columns(d: int) -> list[str]:
    """Names of columns that have none."""
    return [f"x{k}" for k in range(d)]


def as_numbers(table: Any) -> NDArray[Any]:
    """Columns of numbers without missing values, (n, d)."""
    columns = (Number(name, 0.0, False) for name in table.schema.names)
    return TableEncoder(tuple(columns)).encode(table)


def warn_unused(columns: TableEncoder) -> None:
    """Warn once of all columns that tell nothing."""
    unused = [f"{c.name!r} ({c.unused})" for c in columns.columns if c.unused]
    if unused:
        more = f" and {len(unused) - WARNED} more" if unused[WARNED:] else ""
        warnings.warn(
            f"columns of X tell nothing: {', '.join(unused[:WARNED])}{more}; leave them out, or "
            f"declare what they are, such as columns={{'when': 'datetime', 'note': 'ignore'}}",
            stacklevel=6,  # the caller of fit
        )
