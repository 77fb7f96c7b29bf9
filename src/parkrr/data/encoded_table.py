"""Rows of a table as blocks of numbers: files, columns and target together."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from parkrr.data.encoders import (
    CategoryCounts,
    TableEncoder,
    add_counts,
    as_numbers,
    category_columns,
    count_categories,
    learn_columns,
)
from parkrr.data.parquet import BLOCK_BYTES, SLICES, Draw, ParquetTable, rows_per_block
from parkrr.data.rows import ArraySource, Block, as_tensor, is_frame, join_blocks
from parkrr.data.targets import NO_TARGET, Target
from parkrr.errors import ParameterError
from parkrr.runtime import Engine, run_tasks


@dataclass(frozen=True)
class EncodedTable:
    """The rows of a table as numbers, a block at a time."""

    table: ParquetTable
    columns: TableEncoder  # of the features
    target: Target

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def slices(self, count: int) -> "list[EncodedTable]":
        """The rows in at most `count` runs."""
        return [replace(self, table=part) for part in self.table.slices(count)]

    def blocks(self) -> Iterator[Block]:
        """All rows with a target and a positive weight, in order."""
        rows = rows_per_block(self.columns.width, BLOCK_BYTES)
        for table in self.table.blocks(rows, self.table.columns):
            yield self.encode(table)

    def encode(self, table: pa.Table) -> Block:
        """Rows of the table with a target and a positive weight, as numbers."""
        Y = self.target.encode(table)
        chosen = np.isfinite(Y).all(1)
        w, name = None, self.table.weight
        if name is not None:
            w = as_numbers(table[name], name)
            valid = (w >= 0) & np.isfinite(w)
            if not valid.all():
                raise ParameterError(
                    f"weight must be finite and >= 0, but column {name!r} has {w[~valid][0]}; "
                    f"filter such rows out"
                )
            chosen &= w > 0
        w = self.target.weigh(Y, w)
        X = self.columns.encode(table)
        if not chosen.all():
            X, Y, w = X[chosen], Y[chosen], None if w is None else w[chosen]
        return Block(as_tensor(X), as_tensor(Y), None if w is None else as_tensor(w))

    def load(self, engine: Engine) -> ArraySource:
        """All rows in memory."""
        return join_nonempty(engine.map(read_slice, self.slices(SLICES)))

    def sample(self, size: int, seed: int, engine: Engine) -> "tuple[ArraySource, float]":
        """About `size` rows in random order, and the share of rows drawn that had a target."""
        draws = self.table.sample(size, seed)
        bare = replace(self, table=replace(self.table, row_groups=()))
        rows = join_nonempty(engine.map(partial(read_draw, bare), draws))
        order = np.random.default_rng(seed).permutation(rows.n_rows)
        share = rows.n_rows / sum(draw.count for draw in draws)
        return ArraySource(*rows.block(torch.from_numpy(order))), share


def read_slice(rows: EncodedTable) -> Block:
    """The rows of a slice as one block."""
    return join_blocks(list(rows.blocks())).block(slice(None))


def read_draw(rows: EncodedTable, draw: Draw) -> Block:
    """The rows of a draw as numbers."""
    return rows.encode(draw.read(rows.table.columns))


def join_nonempty(blocks: Sequence[Block]) -> ArraySource:
    """Blocks as one source, which must have rows."""
    rows = join_blocks(blocks)
    if not rows.n_rows:
        raise ParameterError(NO_TARGET)
    return rows


def learn_encoded_table(
    table: ParquetTable, target: Target, sample: int, seed: int, engine: Engine, shown: bool
) -> EncodedTable:
    """How to encode the columns of a table: from a sample, and a pass if there are categories."""
    rows = engine.map(partial(read_features, table.features), table.sample(sample, seed))
    names = category_columns(table.schema, table.features)
    counts: dict[str, CategoryCounts] = {}
    if names:
        parts = run_tasks(
            engine,
            partial(count_slice, names, target),
            table.slices(SLICES),
            label="counting categories",
            unit="rows",
            size_of=lambda part: part.n_rows,
            shown=shown,
        )
        counts = add_counts(parts)
        if not counts:
            raise ParameterError(NO_TARGET)
    return EncodedTable(table, learn_columns(pa.concat_tables(rows), counts), target)


def read_features(names: Sequence[str], draw: Draw) -> pa.Table:
    """Features of a draw as they are."""
    return draw.read(names)


def count_slice(
    names: Sequence[str], target: Target, table: ParquetTable
) -> dict[str, CategoryCounts]:
    """The categories of a slice and the sums of their targets, over rows of positive weight."""

    def count(block: pa.Table) -> dict[str, CategoryCounts]:
        Y = target.encode(block)
        w = target.weigh(Y, None if table.weight is None else as_numbers(block[table.weight]))
        w = np.ones(len(Y)) if w is None else w
        chosen = np.isfinite(Y).all(1) & (w > 0)
        rows = block.filter(pa.array(chosen))
        return {name: count_categories(rows[name], Y[chosen], w[chosen]) for name in names}

    read = list(dict.fromkeys([*names, *target.names])) + ([table.weight] if table.weight else [])
    return add_counts(map(count, table.blocks(rows_per_block(len(read) + 8, BLOCK_BYTES), read)))


def table_to_encode(X: Any) -> pa.Table | None:
    """A frame as a table if it has columns that are not plain numbers, or missing values."""
    if not is_frame(X) or isinstance(X, pa.ChunkedArray):
        return None
    if len(getattr(X, "shape", (0, 0))) != 2:  # one column without a name
        return None
    table = as_table(X)
    return None if all(map(is_plain, table.columns)) else table


def as_table(X: Any) -> pa.Table:
    """A frame of pandas, polars or Arrow as a table; the index of pandas is not a column."""
    try:
        pandas = type(X).__module__.startswith("pandas")
        table = pa.Table.from_pandas(X, preserve_index=False) if pandas else pa.table(X)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise ParameterError(f"X must be a frame that Arrow can read: {error}") from error
    twice = [name for name, count in Counter(table.schema.names).items() if count > 1]
    if twice:
        raise ParameterError(f"X must have columns of different names, got {twice[0]!r} twice")
    return table


def is_plain(values: pa.ChunkedArray) -> bool:
    """Whether a column is numbers without missing values."""
    kind = values.type
    if pa.types.is_floating(kind):
        return not values.null_count and not pc.any(pc.is_nan(values)).as_py()
    return not values.null_count and (pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def learn_frame_encoder(table: pa.Table, Y: NDArray[Any], w: NDArray[Any] | None) -> TableEncoder:
    """How to encode the columns of a frame, with targets Y (n, t) and weights (n,)."""
    names = category_columns(table.schema, table.schema.names)
    return learn_columns(table, {name: count_categories(table[name], Y, w) for name in names})


def encode_frame(encoder: TableEncoder, X: Any) -> NDArray[Any]:
    """A frame as numbers, in whatever order its columns are."""
    if not is_frame(X):
        raise ParameterError(
            f"X must be a frame of pandas, polars or Arrow with the columns {encoder.names}, "
            f"as in fit, got {type(X).__name__}"
        )
    table = as_table(X)
    missing = [name for name in encoder.names if name not in table.schema.names]
    if missing:
        raise ParameterError(f"X must have the columns of fit, but {missing} are missing")
    return encoder.encode(table)
