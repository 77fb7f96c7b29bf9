"""Rows of a table as blocks of numbers: files, columns and target together."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from numpy.typing import NDArray

from parkrr.data.encoders import (
    CategoryCounts,
    Columns,
    categories,
    learn_columns,
    merged_tallies,
    numbers,
    tally,
)
from parkrr.data.parquet import Draw, ParquetTable, block_rows
from parkrr.data.rows import ArraySource, Block, joined
from parkrr.data.validation import as_tensor
from parkrr.errors import ParameterError
from parkrr.runtime import Engine, progress

BLOCK_BYTES = 2**25  # of one block's features in float64: 466,000 rows of 9
SLICES = 64  # tasks that look at a whole table
MOST_CLASSES = 1000
NO_TARGET = "target must have values, but is missing in all rows looked at"


@dataclass(frozen=True)
class Target:
    """How target columns become numbers.

    Parameters
    ----------
    names
        Of the columns.
    classes
        Labels of a classification, in order; None for numbers.
    class_weights
        What rows of each class count, shape (k,); None if all count one.
    """

    names: tuple[str, ...]
    classes: NDArray[Any] | None = None
    class_weights: NDArray[np.float64] | None = None

    def weighted(self, Y: NDArray[Any], w: NDArray[Any] | None) -> NDArray[Any] | None:
        """Weights of rows (n,), times what their classes count, from codes Y (n, t)."""
        if self.class_weights is None or self.classes is None:
            return w
        found: NDArray[Any] = self.class_weights[class_numbers(Y, len(self.classes))]
        return found if w is None else w * found

    def encode(self, table: pa.Table) -> NDArray[np.float64]:
        """Targets (n, t), NaN where there is none; classes as codes of +1 and -1."""
        if self.classes is None:
            return np.stack([numbers(table[name], name) for name in self.names], 1)
        labels = plain_labels(table[self.names[0]])
        at = pa.compute.index_in(labels, value_set=pa.array(self.classes, labels.type))
        at = at.fill_null(-1).to_numpy(zero_copy_only=False)
        Y = codes(at, len(self.classes)).astype(np.float64)
        Y[at < 0] = np.nan
        return Y


def codes(at: NDArray[Any], n_classes: int) -> NDArray[np.float32]:
    """Classes (n,) by number as +1 and -1, shape (n, k), or (n, 1) for two of them."""
    columns = [1] if n_classes == 2 else range(n_classes)
    coded: NDArray[np.float32] = np.equal.outer(at, columns).astype(np.float32) * 2 - 1
    return coded


def class_numbers(values: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """The classes that values (n, k) or, of two, (n, 1) speak for, by number, shape (n,)."""
    at: NDArray[np.int64]
    at = (values[:, 0] > 0).astype(np.int64) if n_classes == 2 else values.argmax(1)
    return at


def decoded(values: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The labels that values (n, k) or, of two classes, (n, 1) speak for, shape (n,)."""
    labels: NDArray[Any] = classes[class_numbers(values, len(classes))]
    return labels


@dataclass(frozen=True)
class RowTable:
    """The rows of a table as numbers, a block at a time.

    Parameters
    ----------
    table
        The files.
    columns, target
        How they become numbers.
    """

    table: ParquetTable
    columns: Columns
    target: Target

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def slices(self, count: int) -> "list[RowTable]":
        """The rows in at most `count` runs."""
        return [replace(self, table=part) for part in self.table.slices(count)]

    def blocks(self) -> Iterator[Block]:
        """All rows that have a target and a weight, in order."""
        rows = block_rows(self.columns.width, BLOCK_BYTES)
        for table in self.table.blocks(rows, self.table.columns):
            yield self.encode(table)

    def encode(self, table: pa.Table) -> Block:
        """Rows of the table that have a target and a weight, as numbers."""
        Y = self.target.encode(table)
        kept = np.isfinite(Y).all(1)
        w = None
        if self.table.weight is not None:
            w = numbers(table[self.table.weight], self.table.weight)
            if not ((w >= 0) & np.isfinite(w)).all():
                raise ParameterError(
                    f"weight must be finite and >= 0, but column {self.table.weight!r} has "
                    f"{w[~((w >= 0) & np.isfinite(w))][0]}; filter such rows out"
                )
            kept &= w > 0
        w = self.target.weighted(Y, w)
        X = self.columns.encode(table)
        if not kept.all():
            X, Y, w = X[kept], Y[kept], None if w is None else w[kept]
        return Block(as_tensor(X), as_tensor(Y), None if w is None else as_tensor(w))

    def load(self, engine: Engine) -> ArraySource:
        """All rows in memory."""
        return known(engine.map(all_of, self.slices(SLICES)))

    def sample(self, size: int, seed: int, engine: Engine) -> "tuple[ArraySource, float]":
        """About `size` rows in random order, each as likely; what share of those drawn count."""
        draws = self.table.sample(size, seed)
        bare = replace(self, table=replace(self.table, pieces=()))
        rows = known(engine.map(DrawReader(bare), draws))
        order = np.random.default_rng(seed).permutation(rows.n_rows)
        drawn = sum(draw.count for draw in draws)
        return ArraySource(*rows.block(torch.from_numpy(order))), rows.n_rows / drawn


@dataclass(frozen=True)
class DrawReader:
    """Reads draws of a table."""

    rows: RowTable

    def __call__(self, draw: Draw) -> Block:
        return self.rows.encode(draw.read(self.rows.table.columns))


def all_of(rows: RowTable) -> Block:
    """The rows of a slice as one block."""
    return joined(list(rows.blocks())).block(slice(None))


def known(blocks: Sequence[Block]) -> ArraySource:
    """Blocks as one source; refuses to go on without rows."""
    rows = joined(blocks)
    if not rows.n_rows:
        raise ParameterError(NO_TARGET)
    return rows


@dataclass(frozen=True)
class CategoryCounter:
    """Counts the categories of a slice, and adds up their targets."""

    names: tuple[str, ...]
    target: Target

    def __call__(self, table: ParquetTable) -> dict[str, CategoryCounts]:
        names = list(dict.fromkeys([*self.names, *self.target.names]))
        names += [table.weight] if table.weight else []
        rows = block_rows(len(names) + 8, BLOCK_BYTES)
        return merged_tallies(self.tally(table, block) for block in table.blocks(rows, names))

    def tally(self, table: ParquetTable, block: pa.Table) -> dict[str, CategoryCounts]:
        """Of the rows of a block that have a target and a weight."""
        Y = self.target.encode(block)
        w = None if table.weight is None else numbers(block[table.weight])
        w = self.target.weighted(Y, w)
        w = np.ones(len(Y)) if w is None else w
        kept = np.isfinite(Y).all(1) & (w > 0)
        rows = block.filter(pa.array(kept))
        return {name: tally(rows[name], Y[kept], w[kept]) for name in self.names}


def plain_labels(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Labels, decoded if they are a dictionary."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values


def labels_of(table: ParquetTable) -> "Counter[Any]":
    """The labels in a slice, and how many rows have each."""
    [name] = table.target
    found: Counter[Any] = Counter()
    for block in table.blocks(block_rows(1, BLOCK_BYTES), [name]):
        counts = plain_labels(block[name]).value_counts()
        labels, rows = counts.field("values").to_pylist(), counts.field("counts").to_pylist()
        found.update(dict(zip(labels, rows, strict=True)))
        if len(found) > MOST_CLASSES:
            raise ParameterError(
                f"target must have at most {MOST_CLASSES} labels to be classified, but {name!r} "
                f"has more; fit numbers with ParKRegressor"
            )
    missing = [label for label in found if isinstance(label, float) and math.isnan(label)]
    for label in (*missing, None):
        found.pop(label, None)
    return found


def learn_target(table: ParquetTable, classify: bool, class_weight: Any, engine: Engine) -> Target:
    """How the target becomes numbers; classes are found in a pass over its column."""
    if not classify:
        return Target(table.target)
    if len(table.target) != 1:
        raise ParameterError(f"target must be one column of labels, got {table.target!r}")
    found = sum(engine.map(labels_of, table.slices(SLICES)), Counter())
    if not found:
        raise ParameterError(NO_TARGET)
    labels = sorted(found)
    if not isinstance(labels[0], str | bool | int | float):  # a model file holds no others
        raise ParameterError(
            f"target must be words, numbers or truth values to be classified, but "
            f"{table.target[0]!r} is {table.schema.field(table.target[0]).type}; write it as words"
        )
    weights = class_weights(class_weight, labels, np.array([found[label] for label in labels]))
    return Target(table.target, np.array(labels), weights)


def class_weights(
    class_weight: Any, labels: Sequence[Any], counts: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """What rows of each class count, (k,): "balanced" gives all classes the same weight."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        balanced: NDArray[np.float64] = counts.sum() / (len(counts) * counts)
        return balanced
    weights = np.array([float(dict(class_weight).get(label, 1.0)) for label in labels])
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ParameterError(f"class_weight must hold weights > 0, got {class_weight!r}")
    return weights


def learn_rows(
    table: ParquetTable, target: Target, sample: int, seed: int, engine: Engine, shown: bool
) -> RowTable:
    """How the columns of a table become numbers: a sample, and a pass if there are words."""
    looked = engine.map(FeatureReader(table.features), table.sample(sample, seed))
    names = categories(table.schema, table.features)
    tallies: dict[str, CategoryCounts] = {}
    if names:
        slices = table.slices(SLICES)
        parts = {}
        with progress("counting categories", table.n_rows, "rows", shown) as tick:
            for k, part in engine.run(CategoryCounter(tuple(names), target), slices):
                parts[k] = part
                tick(slices[k].n_rows)
        tallies = merged_tallies(parts[k] for k in range(len(slices)))
        if not tallies:
            raise ParameterError(NO_TARGET)
    return RowTable(table, learn_columns(pa.concat_tables(looked), tallies), target)


@dataclass(frozen=True)
class FeatureReader:
    """Reads features of a draw as they are."""

    names: tuple[str, ...]

    def __call__(self, draw: Draw) -> pa.Table:
        return draw.read(self.names)


def frame_table(X: Any) -> pa.Table | None:
    """A frame with columns that are not plain numbers, or have gaps, as a table; else None."""
    if not hasattr(X, "__arrow_c_stream__") or isinstance(X, pa.ChunkedArray):
        return None
    if len(getattr(X, "shape", (0, 0))) != 2:  # one column without a name
        return None
    table = arrow_table(X)
    plain = all(is_plain(table[name]) for name in table.schema.names)
    return None if plain else table


def arrow_table(X: Any) -> pa.Table:
    """A frame of pandas, polars or Arrow; the index of pandas is no column."""
    try:
        pandas = type(X).__module__.startswith("pandas")
        table = pa.Table.from_pandas(X, preserve_index=False) if pandas else pa.table(X)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise ParameterError(f"X must be a frame that Arrow can read: {error}") from error
    twice = [name for name, rows in Counter(table.schema.names).items() if rows > 1]
    if twice:
        raise ParameterError(
            f"X must have columns of different names, but {twice[0]!r} is there twice"
        )
    return table


def is_plain(values: pa.ChunkedArray) -> bool:
    """Whether a column is numbers without gaps."""
    kind = values.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return False
    return not values.null_count and not (
        pa.types.is_floating(kind) and pa.compute.any(pa.compute.is_nan(values)).as_py()
    )


def learn_frame(table: pa.Table, Y: NDArray[Any], w: NDArray[Any] | None) -> Columns:
    """How the columns of a frame become numbers, with targets Y (n, t) and weights (n,)."""
    names = categories(table.schema, table.schema.names)
    return learn_columns(table, {name: tally(table[name], Y, w) for name in names})


def encode_frame(columns: Columns, X: Any) -> NDArray[Any]:
    """A frame as numbers, by columns learned before, in whatever order its columns are."""
    if not hasattr(X, "__arrow_c_stream__"):
        raise ParameterError(
            f"X must be a frame of pandas, polars or Arrow with the columns {list(columns.names)}, "
            f"as in fit, got {type(X).__name__}"
        )
    table = arrow_table(X)
    missing = [name for name in columns.names if name not in table.schema.names]
    if missing:
        raise ParameterError(f"X must have the columns of fit, but {missing} are missing")
    return columns.encode(table)
