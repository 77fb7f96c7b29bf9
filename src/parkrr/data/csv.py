"""CSV and Arrow files as Parquet, and Parquet files as one file of another kind.

Knows files and record batches, no model. Memory holds one row group, whatever the files hold.
"""

import csv
import glob
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from parkrr.errors import ParameterError, SourceError, StorageError
from parkrr.runtime import progress

GROUP_ROWS = 100_000  # of a row group: what a task reads at once
BLOCK_BYTES = 2**22  # of CSV at a time; the first of them decides the types
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
ARROW = (".arrow", ".feather", ".ipc")
PARQUET = (".parquet",)
# What pyarrow says of a value that is not of the type its column began with.
COLUMN = re.compile(r"In CSV column #(\d+):")
MISFIT = re.compile(r"conversion error to (\S+): invalid value '(.*)'", re.S)
NUMBER = re.compile(r"\s*[-+]?\d*\.?\d+([eE][-+]?\d+)?\s*")


def converted(path: str, types: Mapping[str, str], out: Path, shown: bool) -> Path:
    """CSV or Arrow files as one Parquet file, there at once or not at all."""
    place, files = found(path)
    with atomic_write(out) as temporary:
        blocks = join_batches(batches_of(place, files, types, shown))
        first = next(blocks, None)
        if first is None:
            raise SourceError(path, "there are no rows")
        write_parquet(str(temporary), chain([first], blocks))
    return out


def found(path: str) -> tuple[Any, list[str]]:
    """Where the files of a path, a glob or a URL lie, and their paths there."""
    try:
        place, inner = locate(path, None)
        files = match_files(inner, place) if glob.has_magic(inner) else [inner]
    except (OSError, pa.ArrowException) as error:
        raise error if isinstance(error, SourceError) else SourceError(path, str(error)) from error
    place = place or fs.LocalFileSystem()
    for info in place.get_file_info(files):
        if info.type != fs.FileType.File:
            raise SourceError(path, "there is no such file")
    return place, files


def batches_of(
    place: Any, files: Sequence[str], types: Mapping[str, str], shown: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of all files; those of the first say what columns there are."""
    first: pa.Schema | None = None
    wanted = {name: as_type(name, kind) for name, kind in types.items()}
    for file in files:
        csv_file = is_csv(file)
        rows = csv_batches(place, file, wanted, shown) if csv_file else arrow_batches(place, file)
        for batch in rows:
            if first is None:
                first = batch.schema
                check_names(file, first.names, types)
                wanted = dict(zip(first.names, first.types, strict=True))
            if batch.schema != first:
                raise SourceError(
                    file, f"its columns are not those of {files[0]!r}: {difference(batch, first)}"
                )
            yield batch


def as_type(name: str, kind: str) -> pa.DataType:
    """The Arrow type of that name."""
    try:
        return pa.type_for_alias(kind)
    except ValueError:
        raise ParameterError(
            f"types must be names such as string, float64, int64, bool, date32 or timestamp[s], "
            f"got {name}={kind}"
        ) from None


def check_names(file: str, names: Sequence[str], types: Mapping[str, str]) -> None:
    """Refuse columns that could not be told apart, and types of columns that are not there."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(file, f"column {twice[0]!r} is there more than once; rename it")
    if len(names) == 1 and ";" in names[0]:
        raise SourceError(
            file, "its columns are separated by semicolons, and must be by commas, in .tsv by tabs"
        )
    for name in types:
        if name not in names:
            raise ParameterError(f"types must be of columns, but {name!r} is not one of {names}")


def difference(batch: pa.RecordBatch, first: pa.Schema) -> str:
    """The first columns in which two schemas differ."""
    here = {f"{field.name}: {field.type}" for field in batch.schema}
    there = {f"{field.name}: {field.type}" for field in first}
    return f"{sorted(here - there)[:3]} and {sorted(there - here)[:3]}"


def csv_batches(
    place: Any, file: str, types: Mapping[str, pa.DataType], shown: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, a block at a time."""
    size, done = place.get_file_info(file).size or 0, 0
    with (
        reading(place, file),
        progress(f"reading {Path(file).name}", size, "bytes", shown) as tick,
        place.open_input_file(file) as raw,
    ):
        packed = file.lower().endswith(".gz")
        reader = pv.open_csv(
            pa.CompressedInputStream(raw, "gzip") if packed else raw,
            pv.ReadOptions(block_size=BLOCK_BYTES),
            pv.ParseOptions(delimiter=separator(file)),
            # A gap is an empty field; "" in quotes is a word.
            pv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
        _ = reader.schema.names  # which are decoded now, and may be no text
        for batch in reader:
            tick(raw.tell() - done)
            done = raw.tell()
            yield batch


def separator(name: str) -> str:
    """What separates columns in a file of that name."""
    return "\t" if name.lower().endswith((".tsv", ".tsv.gz")) else ","


def arrow_batches(place: Any, file: str) -> Iterator[pa.RecordBatch]:
    """The rows of an Arrow file, of either format, in pieces of at most a row group."""
    with reading(place, file), place.open_input_file(file) as raw:
        try:
            reader = pa.ipc.open_file(raw)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        except pa.ArrowInvalid:  # no footer: what is written to a stream has none
            raw.seek(0)
            batches = iter(pa.ipc.open_stream(raw))
        for batch in batches:
            batch.validate(full=True)  # offsets of words that lead nowhere end a process
            _ = batch.schema.names
            for start in range(0, len(batch), GROUP_ROWS):
                yield batch[start : start + GROUP_ROWS]


@contextmanager
def reading(place: Any, file: str) -> Iterator[None]:
    """What goes wrong inside names the file, and of CSV the column and the way out."""
    try:
        yield
    except (SourceError, StorageError, ParameterError):
        raise
    except (OSError, pa.ArrowException, UnicodeError) as error:
        at = COLUMN.search(str(error))
        told = csv_reason(str(error), header(place, file)[int(at[1])]) if at else str(error)
        raise SourceError(file, told) from error


def header(place: Any, file: str) -> list[str]:
    """The names in the first line of a CSV file."""
    with place.open_input_stream(file, compression="detect") as stream:
        lines = io.TextIOWrapper(stream, "utf-8", errors="replace")
        return next(csv.reader(lines, delimiter=separator(file)))


def csv_reason(told: str, name: str) -> str:
    """Why a value of that column could not be read, and what to do."""
    misfit = MISFIT.search(told)
    if misfit is None:
        return f"column {name!r}: {told.rpartition('error ')[2]}; text must be UTF-8"
    kind, value = misfit.groups()
    taken = "empty" if kind == "null" else kind
    fits = "float64" if NUMBER.fullmatch(value) else "string"
    return (
        f"column {name!r} was taken for {taken} by its first rows, but has {value!r} further on; "
        f"say what it is, such as --types {name}={fits}"
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


def is_csv(path: str) -> bool:
    """Whether that is CSV, by its name."""
    return path.lower().endswith(CSV)


def is_file(out: str) -> bool:
    """Whether answers go to one file, by its name, and not to a folder."""
    found = out.lower().endswith(PARQUET + CSV + ARROW)
    if found and is_url(out):
        raise ParameterError(
            f"output must be a folder, such as 's3://bucket/answers', or a file of this machine, "
            f"got {out!r}"
        )
    return found


def join_parts(folder: Path, out: Path, labels: Mapping[str, Sequence[str]]) -> None:
    """The Parquet files of a folder as one file, its kind by its name; published at once.

    Parameters
    ----------
    labels
        For columns that hold lists, what to call each of their entries in CSV, which has none.
    """
    files = sorted(folder.glob("part-*.parquet"))
    batches = (batch for file in files for batch in pq.ParquetFile(file).iter_batches(GROUP_ROWS))
    name = out.name.lower()
    with atomic_write(out) as temporary:
        if name.endswith(PARQUET):
            write_parquet(str(temporary), map(as_table, batches))
        elif name.endswith(ARROW):
            write_arrow(temporary, batches)
        else:
            write_csv(temporary, name, (flat(as_table(batch), labels) for batch in batches))


def as_table(batch: pa.RecordBatch) -> pa.Table:
    """A batch as a table."""
    return pa.Table.from_batches([batch])


def write_arrow(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Batches as one Arrow file."""
    first = next(batches)
    with pa.ipc.new_file(str(path), first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)


def write_csv(path: Path, name: str, tables: Iterator[pa.Table]) -> None:
    """Tables as one CSV file; the name it will have says how."""
    first = next(tables)
    options = pv.WriteOptions(delimiter=separator(name))
    packed = "gzip" if name.endswith(".gz") else None
    with (
        pa.output_stream(str(path), compression=packed) as stream,
        pv.CSVWriter(stream, first.schema, write_options=options) as writer,
    ):
        for table in chain([first], tables):
            writer.write_table(table)


def flat(table: pa.Table, labels: Mapping[str, Sequence[str]]) -> pa.Table:
    """Columns of lists as a column for each of their entries."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name, values in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_fixed_size_list(values.type):
            width = values.type.list_size
            for k, label in enumerate(labels.get(name, map(str, range(width)))):
                columns[f"{name}_{label}"] = pc.list_element(values, k)
        else:
            columns[name] = values
    return pa.table(columns)
