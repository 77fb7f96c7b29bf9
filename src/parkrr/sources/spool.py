"""A copy of rows as one Parquet file, known by its content.

Row groups end where the rows themselves say, so that the copy is the same file however the
source cuts its rows into batches. Memory holds one row group.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parkrr.data import (
    GROUP_ROWS,
    DigestingFile,
    Folder,
    decode_dictionary,
    open_folder,
    temporary_name,
    without_views,
)
from parkrr.errors import SourceError

GROUP_BYTES = 2**27  # of the values of a row group, unless one row has more
MANY = 1024  # batches that are joined in memory: a batch of one row takes kilobytes


class TemporaryFolder:
    """A folder that is removed with the last object that holds this one, or when Python ends."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="parkrr-")
        weakref.finalize(self, remove_folder, self.path, os.getpid())


def remove_folder(path: str, owner: int) -> None:
    """Delete a folder, but not in a process that was forked from its owner."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class RowCopy:
    """Where a copy of rows is, and the SHA-256 digest of its file."""

    path: str
    filesystem: Any
    content: str
    lifetime: TemporaryFolder | None


def copy_rows(
    open_tables: Callable[[], Iterator[pa.Table]],
    name: str,
    spool: str | Path | None,
    fingerprint: str | None,
) -> RowCopy:
    """Copy rows into a folder, unless a copy with that fingerprint is there.

    Parameters
    ----------
    open_tables
        Starts to read the source.
    name
        Of the source in errors.
    spool
        A folder or URL, or None for a temporary folder.
    fingerprint
        Of the source, or None if nothing tells whether it has changed.
    """
    lifetime = None
    if spool is None:
        lifetime = TemporaryFolder()
        spool = lifetime.path
    folder = open_folder(spool)
    folder.make()
    key = hashlib.sha256(str(fingerprint).encode()).hexdigest()[:16]
    marker = f"source-{key}.json"
    content = None if fingerprint is None else find_copy(folder, marker)
    if content is None:
        content = write_copy(folder, open_tables(), name)
        if fingerprint is not None:
            file = f"{folder.path}/{name_copy(content)}"
            size = folder.filesystem.get_file_info(file).size
            facts = {"fingerprint": fingerprint, "content": content, "bytes": size}
            with folder.atomic_write(marker) as out:
                out.write(json.dumps(facts).encode())
    path = f"{folder.path}/{name_copy(content)}"
    return RowCopy(path, folder.filesystem, content, lifetime)


def name_copy(content: str) -> str:
    """The file of a copy: copies of other rows in the same folder have other names."""
    return f"rows-{content[:32]}.parquet"


def find_copy(folder: Folder, marker: str) -> str | None:
    """The content of the copy that a marker names, if all of its file is there."""
    try:
        facts = json.loads(folder.read(marker))
        content, size = str(facts["content"]), facts["bytes"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    there = folder.filesystem.get_file_info(f"{folder.path}/{name_copy(content)}")
    return content if there.size == size else None


def write_copy(folder: Folder, tables: Iterator[pa.Table], name: str) -> str:
    """Write rows as one file that is named by its content; returns the digest."""
    groups = cut_row_groups(unify_tables(tables, name))
    first = next(groups, None)
    if first is None:
        raise SourceError(name, "there are no rows")
    unnamed = temporary_name("rows.parquet")
    with folder.atomic_write(unnamed) as file:
        digesting = DigestingFile(file)
        try:
            with pq.ParquetWriter(digesting, first.schema, write_page_checksum=True) as writer:
                writer.write_table(first, row_group_size=len(first))
                for group in groups:
                    writer.write_table(group, row_group_size=len(group))
        except pa.ArrowNotImplementedError as error:
            raise SourceError(name, explain_type(first.schema, error)) from error
    content = digesting.digest.hexdigest()
    folder.rename(unnamed, name_copy(content))
    return content


def explain_type(schema: pa.Schema, error: Exception) -> str:
    """Which column Parquet cannot hold, and the way out."""
    for column in schema:
        try:
            pq.write_table(pa.schema([column]).empty_table(), io.BytesIO())
        except pa.ArrowNotImplementedError:
            return (
                f"column {column.name!r} is {column.type}, which Parquet does not hold; cast it "
                f"or leave it out in the source"
            )
    return str(error)


def unify_tables(tables: Iterator[pa.Table], name: str) -> Iterator[pa.Table]:
    """Tables with the columns of the first, in types that Parquet has."""
    schema: pa.Schema | None = None
    for table in tables:
        columns = [as_plain_type(column) for column in table.columns]
        plain = pa.Table.from_arrays(columns, table.schema.names)
        if schema is None:
            schema = plain.schema
            twice = [key for key, count in Counter(schema.names).items() if count > 1]
            if twice:
                raise SourceError(
                    name, f"it has column {twice[0]!r} more than once; rename one of them"
                )
        if plain.schema != schema:
            plain = cast_table(plain, schema, name)
        yield plain


def cast_table(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """A later table with the types of the first, if these hold its values."""
    if sorted(table.schema.names) != sorted(schema.names):
        raise SourceError(
            name,
            f"its batches have different columns: {schema.names} and later {table.schema.names}; "
            f"select the same columns of all of them",
        )
    columns = []
    for field in schema:
        own = table[field.name]
        try:
            columns.append(own.cast(field.type))
        except pa.ArrowException as error:
            raise SourceError(
                name,
                f"column {field.name!r} is {field.type} in its first rows and {own.type} later; "
                f"cast it to one type in the source ({error})",
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def as_plain_type(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without views, extension types and dictionaries whose order may vary."""
    if isinstance(values.type, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in values.chunks]
        values = pa.chunked_array(storage, values.type.storage_type)
    values = without_views(values)
    if pa.types.is_binary_view(values.type):
        return values.cast(pa.large_binary())
    if pa.types.is_dictionary(values.type):
        common = pa.dictionary(pa.int32(), values.type.value_type)
        return encode_again(values, common)
    return values


def encode_again(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of categories whose dictionary has the values that occur, the first ones first."""
    whole = pa.chunked_array([decode_dictionary(values).combine_chunks()])
    return whole.dictionary_encode().cast(kind)


def cut_row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows in row groups, which end at a number of rows or of bytes, as one chunk each."""
    waiting: list[pa.Table] = []
    rows, n_bytes = 0, 0
    for table in tables:
        ends = np.concatenate([[0], np.cumsum(measure_rows(table))])
        start = 0
        while start < len(table):
            full = int(np.searchsorted(ends, ends[start] + GROUP_BYTES - n_bytes))
            stop = min(len(table), start + GROUP_ROWS - rows, max(full, start + 1))
            waiting.append(table[start:stop])
            rows, n_bytes = rows + stop - start, n_bytes + int(ends[stop] - ends[start])
            start = stop
            if rows == GROUP_ROWS or n_bytes >= GROUP_BYTES:
                yield join_rows(waiting)
                waiting, rows, n_bytes = [], 0, 0
        if len(waiting) >= MANY:
            waiting = [join_rows(waiting)]
    if waiting:
        yield join_rows(waiting)


def join_rows(tables: list[pa.Table]) -> pa.Table:
    """Tables as one chunk: where chunks end would decide where pages of a file end."""
    joined = pa.concat_tables(tables)
    columns = [
        encode_again(column, column.type) if pa.types.is_dictionary(column.type) else column
        for column in joined.columns
    ]
    return pa.Table.from_arrays(columns, schema=joined.schema).combine_chunks()


def measure_rows(table: pa.Table) -> NDArray[np.int64]:
    """Bytes of the values of each row, shape (n,): the same however rows are cut into batches."""
    total = np.zeros(len(table), dtype=np.int64)
    for column in table.columns:
        kind, t = column.type, pa.types
        texts = (t.is_string, t.is_large_string, t.is_binary, t.is_large_binary)
        if any(holds(kind) for holds in texts):
            total += as_lengths(pc.binary_length(column))
        elif t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
            total += 8 * as_lengths(pc.list_value_length(column))
        else:
            total += 8
    return total


def as_lengths(lengths: pa.ChunkedArray) -> NDArray[np.int64]:
    """Lengths as numbers, 0 where a value is missing."""
    numbers: NDArray[np.int64] = lengths.fill_null(0).cast(pa.int64()).to_numpy()
    return numbers
