"""CSV and Arrow files as Parquet, and Parquet files as one file of another format.

Memory holds one row group, however large the files are.
"""

import csv
import glob
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq
from pyarrow import fs

from parkrr.data.parquet import locate, match_files, write_parquet
from parkrr.data.storage import atomic_write, is_url
from parkrr.errors import ParameterError, ParKError, SourceError
from parkrr.runtime import progress

GROUP_ROWS = 100_000  # of a row group, which a task reads at once
BLOCK_BYTES = 2**22  # of CSV at a time; the first block decides the types
PARQUET = (".parquet",)
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
ARROW = (".arrow", ".feather", ".ipc")


def is_csv(path: str) -> bool:
    """Whether a file is CSV, by its name."""
    return path.lower().endswith(CSV)


def is_convertible(path: str) -> bool:
    """Whether a file is CSV or Arrow, by its name."""
    return path.lower().endswith(CSV + ARROW)


def is_single_file(out: str) -> bool:
    """Whether predictions are written to one file, by its name, and not to a folder."""
    single = out.lower().endswith(PARQUET + CSV + ARROW)
    if single and is_url(out):
        raise ParameterError(
            f"output must be a folder, such as 's3://bucket/predictions', or a file of this "
            f"machine, got {out!r}"
        )
    return single


def find_files(path: str) -> tuple[Any, list[str]]:
    """The filesystem of a path, a glob or a URL, and the paths of its files there."""
    try:
        filesystem, inner = locate(path, None)
        files = match_files(inner, filesystem) if glob.has_magic(inner) else [inner]
    except SourceError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise SourceError(path, str(error)) from error
    filesystem = filesystem or fs.LocalFileSystem()
    if any(info.type != fs.FileType.File for info in filesystem.get_file_info(files)):
        raise SourceError(path, "there is no such file")
    return filesystem, files


def file_versions(path: str) -> dict[str, str]:
    """Size and time of each file, so that a change is noticed."""
    filesystem, files = find_files(path)
    local = isinstance(filesystem, fs.LocalFileSystem)
    return {
        os.path.abspath(info.path) if local else info.path: (
            f"{info.size} bytes of {info.mtime_ns or 0}"
        )
        for info in filesystem.get_file_info(files)
    }


def convert_to_parquet(
    path: str, types: Mapping[str, str], out: Path, shown: bool, block_bytes: int = BLOCK_BYTES
) -> Path:
    """Write the rows of CSV or Arrow files as one Parquet file.

    Parameters
    ----------
    path
        A file, a glob or a URL.
    types
        Names of Arrow types by column, for CSV; others are inferred from the first block.
    out
        The file to write.
    shown
        Whether to show progress.
    block_bytes
        Of CSV read at a time.
    """
    filesystem, files = find_files(path)
    with atomic_write(out) as temporary:
        tables = join_batches(read_files(filesystem, files, types, shown, block_bytes))
        first = next(tables, None)
        if first is None:
            raise SourceError(path, "there are no rows")
        write_parquet(str(temporary), chain([first], tables))
    return out


def read_files(
    filesystem: Any, files: Sequence[str], types: Mapping[str, str], shown: bool, block_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of all files, whose columns must be those of the first."""
    kinds: dict[str, pa.DataType] = {}
    for name, kind in types.items():
        try:
            kinds[name] = pa.type_for_alias(kind)
        except ValueError:
            raise ParameterError(
                f"types must be names such as string, float64, int64, bool, date32 or "
                f"timestamp[s], got {name}={kind}"
            ) from None
    schema: pa.Schema | None = None
    for file in files:
        if is_csv(file):
            batches = read_csv(filesystem, file, kinds, shown, block_bytes)
        else:
            batches = read_arrow(filesystem, file)
        try:
            for batch in batches:
                if schema is None:
                    schema = batch.schema
                    check_names(file, schema.names, types)
                    kinds = dict(zip(schema.names, schema.types, strict=True))
                if batch.schema != schema:
                    own, first = (
                        {f"{column.name}: {column.type}" for column in one}
                        for one in (batch.schema, schema)
                    )
                    raise SourceError(
                        file,
                        f"its columns are not those of {files[0]!r}: {sorted(own - first)[:3]} "
                        f"and {sorted(first - own)[:3]}",
                    )
                yield batch
        except ParKError:
            raise
        except (OSError, pa.ArrowException, UnicodeError) as error:
            raise SourceError(file, explain_error(str(error), filesystem, file)) from error


def check_names(file: str, names: Sequence[str], types: Mapping[str, str]) -> None:
    """Reject columns of the same name, and types of columns that do not exist."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(file, f"it has column {twice[0]!r} more than once; rename one of them")
    if len(names) == 1 and ";" in names[0]:
        raise SourceError(
            file, "its columns are separated by semicolons; use commas, or tabs in a .tsv file"
        )
    for name in types:
        if name not in names:
            raise ParameterError(f"types must be of columns, but {name!r} is not one of {names}")


def read_csv(
    filesystem: Any, file: str, types: Mapping[str, pa.DataType], shown: bool, block_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, a block at a time."""
    size, done = filesystem.get_file_info(file).size or 0, 0
    with (
        progress(f"reading {Path(file).name}", size, "bytes", shown) as tick,
        filesystem.open_input_file(file) as raw,
    ):
        reader = pv.open_csv(
            pa.CompressedInputStream(raw, "gzip") if file.lower().endswith(".gz") else raw,
            pv.ReadOptions(block_size=block_bytes),
            pv.ParseOptions(delimiter=delimiter(file)),
            # A missing value is an empty field; "" in quotes is an empty string.
            pv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
        _ = reader.schema.names  # decodes them, which fails here if they are not UTF-8
        for batch in reader:
            tick(raw.tell() - done)
            done = raw.tell()
            yield batch


def delimiter(name: str) -> str:
    """Between the columns of a file of that name."""
    return "\t" if name.lower().endswith((".tsv", ".tsv.gz")) else ","


def read_arrow(filesystem: Any, file: str) -> Iterator[pa.RecordBatch]:
    """The rows of an Arrow file or stream, at most a row group at a time."""
    with filesystem.open_input_file(file) as raw:
        try:
            reader = pa.ipc.open_file(raw)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        except pa.ArrowInvalid:  # a stream, which has no footer
            raw.seek(0)
            batches = iter(pa.ipc.open_stream(raw))
        for batch in batches:
            batch.validate(full=True)  # invalid offsets of strings would end the process
            _ = batch.schema.names
            for start in range(0, len(batch), GROUP_ROWS):
                yield batch[start : start + GROUP_ROWS]


def explain_error(message: str, filesystem: Any, file: str) -> str:
    """An error of pyarrow; for a column of CSV with its name and the option that helps."""
    column = re.search(r"In CSV column #(\d+):", message)
    if column is None:
        return message
    with filesystem.open_input_stream(file, compression="detect") as stream:
        lines = io.TextIOWrapper(stream, "utf-8", errors="replace")
        name = next(csv.reader(lines, delimiter=delimiter(file)))[int(column[1])]
    misfit = re.search(r"conversion error to (\S+): invalid value '(.*)'", message, re.DOTALL)
    if misfit is None:
        return f"column {name!r}: {message.rpartition('error ')[2]}; text must be UTF-8"
    kind, value = misfit.groups()
    number = re.fullmatch(r"\s*[-+]?\d*\.?\d+([eE][-+]?\d+)?\s*", value)
    return (
        f"column {name!r} is {'empty' if kind == 'null' else kind} in its first rows, but has "
        f"{value!r} further down; give its type, such as --types "
        f"{name}={'float64' if number else 'string'}"
    )


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined until they have the rows of a row group."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= GROUP_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if sum(map(len, waiting)):
        yield pa.Table.from_batches(waiting)


def join_parts(folder: Path, out: Path, labels: Mapping[str, Sequence[str]]) -> None:
    """Write the Parquet files of a folder as one file, in the format that its name has.

    Parameters
    ----------
    labels
        For columns of lists, the names of their entries: CSV has a column for each.
    """
    files = sorted(folder.glob("part-*.parquet"))
    batches = (batch for file in files for batch in pq.ParquetFile(file).iter_batches(GROUP_ROWS))
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    name = out.name.lower()
    with atomic_write(out) as temporary:
        if name.endswith(PARQUET):
            write_parquet(str(temporary), tables)
            return
        if is_csv(name):
            tables = (flatten_lists(table, labels) for table in tables)
        first = next(tables)
        compression = "gzip" if name.endswith(".gz") else None
        with pa.output_stream(str(temporary), compression=compression) as stream:
            if is_csv(name):
                options = pv.WriteOptions(delimiter=delimiter(name))
                writer = pv.CSVWriter(stream, first.schema, write_options=options)
            else:
                writer = pa.ipc.new_file(stream, first.schema)
            with writer:
                for table in chain([first], tables):
                    writer.write_table(table)


def flatten_lists(table: pa.Table, labels: Mapping[str, Sequence[str]]) -> pa.Table:
    """Columns of lists as a column for each of their entries."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name, values in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_fixed_size_list(values.type):
            for k, label in enumerate(labels.get(name, map(str, range(values.type.list_size)))):
                columns[f"{name}_{label}"] = pc.list_element(values, k)
        else:
            columns[name] = values
    return pa.table(columns)
