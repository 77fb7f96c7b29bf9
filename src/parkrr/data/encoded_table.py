"""Rows of a table as blocks of numbers: files, columns and target together."""

import datetime
import decimal
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from parkrr.data.column_kinds import (
    as_numbers,
    as_strings,
    decode_dictionary,
    family_of,
    find_kinds,
)
from parkrr.data.encoders import (
    FOLDS,
    CategoryCounts,
    TableEncoder,
    TrainingEncoder,
    ValueCounter,
    add_counts,
    assign_folds,
    find_counted,
    learn_columns,
)
from parkrr.data.parquet import BLOCK_BYTES, ROW_NUMBER, SLICES, Draw, ParquetTable, rows_per_block
from parkrr.data.rows import (
    VALIDATION_SHARE,
    ArraySource,
    Block,
    as_tensor,
    hash_rows,
    is_pandas,
    join_blocks,
)
from parkrr.data.targets import NO_TARGET, Target
from parkrr.errors import ParameterError
from parkrr.runtime import Engine, run_tasks


@dataclass(frozen=True)
class EncodedTable:
    """The rows of a table as numbers, a block at a time."""

    table: ParquetTable
    columns: TableEncoder  # of the features of new rows
    target: Target
    fold_codes: dict[str, NDArray[Any]] = field(default_factory=dict)  # of training rows
    seed: int = 0  # of the folds

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def slices(self, count: int) -> "list[EncodedTable]":
        """The rows in at most `count` runs."""
        return [replace(self, table=part) for part in self.table.slices(count)]

    def blocks(self) -> Iterator[Block]:
        """All rows with a target and a positive weight, in order."""
        for block, _ in self.folded_blocks():
            yield block

    def folded_blocks(self) -> "Iterator[FoldedBlock]":
        """As `blocks`, with the fold of each row."""
        rows = rows_per_block(self.columns.width, BLOCK_BYTES)
        for table in self.table.blocks(rows, self.names):
            yield self.encode(table)

    @property
    def names(self) -> list[str]:
        """Columns that are read."""
        return [*self.table.columns, *([ROW_NUMBER] if self.fold_codes else [])]

    def encode(self, table: pa.Table) -> "FoldedBlock":
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
        fold = None
        if self.fold_codes:
            fold = assign_folds(table[ROW_NUMBER].to_numpy(), self.seed, VALIDATION_SHARE)
            X = TrainingEncoder(self.columns, self.fold_codes).encode(table, fold)
        else:
            X = self.columns.encode(table)
        if not chosen.all():
            X, Y, w = X[chosen], Y[chosen], None if w is None else w[chosen]
            fold = None if fold is None else fold[chosen]
        block = Block(as_tensor(X), as_tensor(Y), None if w is None else as_tensor(w))
        return FoldedBlock(block, fold)

    def load(self, engine: Engine) -> "FoldedRows":
        """All rows in memory."""
        loaded = join_folded(engine.map(read_slice, self.slices(SLICES)))
        self.warn_left_out(loaded.rows.n_rows, self.n_rows)
        return loaded

    def sample(self, size: int, seed: int, engine: Engine) -> "tuple[FoldedRows, float]":
        """About `size` rows in random order, and the share of rows drawn that had a target."""
        draws = self.table.sample(size, seed)
        bare = replace(self, table=replace(self.table, row_groups=()))
        rows, is_validation = join_folded(engine.map(partial(read_draw, bare), draws))
        order = torch.from_numpy(np.random.default_rng(seed).permutation(rows.n_rows))
        n_drawn = sum(draw.count for draw in draws)
        self.warn_left_out(rows.n_rows, n_drawn)
        share = rows.n_rows / n_drawn
        shuffled = ArraySource(*rows.block(order))
        return FoldedRows(shuffled, None if is_validation is None else is_validation[order]), share

    def warn_left_out(self, n_kept: int, n_read: int) -> None:
        """Warn of rows that have no target; with weights, some may be left out on purpose."""
        if n_kept < n_read and self.table.weight is None:
            names = " or ".join(map(repr, self.target.names))
            warnings.warn(
                f"target {names} is missing in {n_read - n_kept:,} of {n_read:,} rows that were "
                f"read, and these rows are left out",
                stacklevel=2,
            )


class FoldedBlock(NamedTuple):
    """A block of rows, and the fold of each where columns are encoded by targets, (b,)."""

    block: Block
    fold: NDArray[np.int8] | None


class FoldedRows(NamedTuple):
    """Rows in memory, and which are validation rows where columns are encoded by targets, (n,)."""

    rows: ArraySource
    is_validation: torch.Tensor | None


def read_slice(rows: EncodedTable) -> FoldedBlock:
    """The rows of a slice as one block."""
    blocks = list(rows.folded_blocks())
    folds = [fold for _, fold in blocks if fold is not None]
    block = join_blocks([block for block, _ in blocks]).block(slice(None))
    return FoldedBlock(block, np.concatenate(folds) if folds else None)


def read_draw(rows: EncodedTable, draw: Draw) -> FoldedBlock:
    """The rows of a draw as numbers."""
    return rows.encode(draw.read(rows.names))


def join_folded(blocks: Sequence[FoldedBlock]) -> FoldedRows:
    """Blocks as one source, which must have rows."""
    rows = join_blocks([block for block, _ in blocks])
    if not rows.n_rows:
        raise ParameterError(NO_TARGET)
    folds = [fold for _, fold in blocks if fold is not None]
    if not folds:
        return FoldedRows(rows, None)
    return FoldedRows(rows, torch.from_numpy(np.concatenate(folds) == FOLDS))


def learn_encoded_table(
    table: ParquetTable,
    target: Target,
    declared: Mapping[str, str],
    sample: int,
    seed: int,
    engine: Engine,
    shown: bool,
) -> EncodedTable:
    """How to encode the columns of a table: from a sample, and a pass if there are categories."""
    draws = engine.map(partial(read_features, table.features), table.sample(sample, seed))
    rows = pa.concat_tables(draws)
    kinds = find_kinds(rows, declared)
    counters = find_counted(rows, kinds)
    counts: dict[str, CategoryCounts] = {}
    if counters:
        parts = run_tasks(
            engine,
            partial(count_slice, counters, target, seed),
            table.slices(SLICES),
            label="counting categories",
            unit="rows",
            size_of=lambda part: part.n_rows,
            shown=shown,
        )
        counts = add_counts(parts)
        if not counts:
            raise ParameterError(NO_TARGET)
    columns, fold_codes = learn_columns(rows, counts, kinds)
    return EncodedTable(table, columns, target, fold_codes, seed)


def read_features(names: Sequence[str], draw: Draw) -> pa.Table:
    """Features of a draw as they are."""
    return draw.read(names)


def count_slice(
    counters: Mapping[str, ValueCounter], target: Target, seed: int, table: ParquetTable
) -> dict[str, CategoryCounts]:
    """The categories of a slice and the sums of their targets, over rows of positive weight."""

    def count_block(block: pa.Table) -> dict[str, CategoryCounts]:
        Y = target.encode(block)
        w = target.weigh(Y, None if table.weight is None else as_numbers(block[table.weight]))
        w = np.ones(len(Y)) if w is None else w
        chosen = np.isfinite(Y).all(1) & (w > 0)
        rows = block.filter(pa.array(chosen))
        fold = assign_folds(rows[ROW_NUMBER].to_numpy(), seed, VALIDATION_SHARE)
        return {
            name: count(rows[name], Y[chosen], fold, w[chosen]) for name, count in counters.items()
        }

    read = list(dict.fromkeys([*counters, *target.names, ROW_NUMBER]))
    read += [table.weight] if table.weight else []
    return add_counts(
        map(count_block, table.blocks(rows_per_block(len(read) + 8, BLOCK_BYTES), read))
    )


def as_table(X: Any) -> pa.Table:
    """A frame of pandas, polars or Arrow as a table; the index of pandas is not a column."""
    try:
        table = read_pandas(X) if is_pandas(X) else pa.table(X)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise ParameterError(f"X must be a frame that Arrow can read: {error}") from error
    columns = [without_views(column) for column in table.columns]
    table = pa.Table.from_arrays(columns, table.schema.names) if columns else table
    twice = [name for name, count in Counter(table.schema.names).items() if count > 1]
    if twice:
        raise ParameterError(f"X must have columns of different names, got {twice[0]!r} twice")
    return table


def without_views(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Strings of polars in a type with which Arrow can compute; other columns as they are."""
    kind, text = values.type, pa.large_string()
    if pa.types.is_string_view(kind):
        return values.cast(text)
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        pairs = [(chunk.indices, chunk.dictionary.cast(text)) for chunk in values.chunks]
        chunks = [pa.DictionaryArray.from_arrays(*pair) for pair in pairs]
        return pa.chunked_array(chunks, pa.dictionary(kind.index_type, text))
    return values


def read_pandas(X: Any) -> pa.Table:
    """A frame of pandas as a table, also where Arrow needs help."""
    try:
        return pa.Table.from_pandas(X, preserve_index=False)
    except (pa.ArrowException, TypeError):  # of some column
        columns = [read_series(X.iloc[:, k]) for k in range(X.shape[1])]
        return pa.Table.from_arrays(columns, [str(name) for name in X.columns])


def read_series(values: Any) -> pa.Array:
    """A column of pandas; sparse numbers as all of them."""
    if hasattr(values, "sparse"):
        return pa.array(np.asarray(values), from_pandas=True)
    return read_objects(values.to_numpy()) if values.dtype == object else pa.array(values)


def read_objects(values: NDArray[Any]) -> pa.Array:
    """Objects (n,) as the type that holds them, or as text if they are of several types."""
    try:
        return pa.array(values, from_pandas=True)
    except pa.ArrowException:
        plain = (str, bool, int, float, np.generic, decimal.Decimal, datetime.date, datetime.time)
        known = [value for value in values if not is_missing_object(value)]
        if not all(isinstance(value, plain) for value in known):
            raise
        texts = [None if is_missing_object(value) else str(value) for value in values]
        return pa.array(texts, pa.string())


def is_missing_object(value: Any) -> bool:
    """Whether it is None, NaN, or the NA or NaT of pandas, which need not be installed."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def array_as_table(X: NDArray[Any], names: Sequence[str]) -> pa.Table:
    """The columns of an array (n, d) by names."""
    read = read_objects if X.dtype == object else pa.array
    return pa.table({name: read(X[:, k]) for k, name in enumerate(names)})


def is_plain(values: pa.ChunkedArray) -> bool:
    """Whether a column is numbers without missing values."""
    kind = values.type
    if pa.types.is_floating(kind):
        return not values.null_count and not pc.any(pc.is_nan(values)).as_py()
    return not values.null_count and (pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def learn_frame_encoder(
    table: pa.Table,
    Y: NDArray[Any],
    fold: NDArray[np.int8],
    w: NDArray[Any] | None,
    declared: Mapping[str, str],
) -> TrainingEncoder:
    """How to encode the columns of a frame, with targets Y (n, t), folds and weights (n,)."""
    kinds = find_kinds(table, declared)
    counters = find_counted(table, kinds)
    counts = {name: count(table[name], Y, fold, w) for name, count in counters.items()}
    return learn_columns(table, counts, kinds)


def hash_table(table: pa.Table, Y: NDArray[Any]) -> NDArray[np.uint64]:
    """64 bits of each row of a table with targets Y (n, t), shape (n,)."""
    columns = [np.zeros(len(table))]
    for values in table.columns:
        if not family_of(values.type):  # of a column that is ignored
            continue
        coded = as_strings(values).combine_chunks().dictionary_encode()
        codes = [crc32(value.encode()) for value in coded.dictionary.to_pylist()]
        missing = len(codes)
        index = coded.indices.fill_null(missing).to_numpy(zero_copy_only=False)
        columns.append(np.array([*codes, -1.0])[index])
    return hash_rows(torch.from_numpy(np.stack(columns, 1)), as_tensor(Y))


class FileRows(NamedTuple):
    """Rows of files in memory, with the columns that decide which are validation rows."""

    features: pa.Table
    y: NDArray[Any]  # (n,) or (n, t)
    w: NDArray[Any] | None
    groups: NDArray[Any] | None
    time: NDArray[Any] | None


def read_file_rows(table: ParquetTable) -> FileRows:
    """All rows of files whose target is known, with the columns of their groups or times."""
    more = [name for name in (table.groups, table.time) if name is not None]
    names = list(dict.fromkeys([*table.columns, *more]))
    rows = pa.concat_tables(table.blocks(max(1, table.n_rows), names))
    for name in table.target:
        rows = rows.filter(pc.is_valid(rows[name]))
        if pa.types.is_floating(rows[name].type):
            rows = rows.filter(pc.is_finite(rows[name]))
    targets = [decode_dictionary(rows[name]).to_numpy() for name in table.target]

    def column(name: str | None) -> NDArray[Any] | None:
        return None if name is None else decode_dictionary(rows[name]).to_numpy()

    return FileRows(
        rows.select(list(table.features)),
        targets[0] if len(targets) == 1 else np.stack(targets, 1),
        column(table.weight),
        column(table.groups),
        column(table.time),
    )
