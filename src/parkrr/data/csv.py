"""CSV and Arrow files as Parquet, and Parquet files as one file of another format.

How a CSV file is written (delimiter, decimal sign, encoding, quotes, comments, compression) is
recognised from its beginning. Memory holds one row group, however large the files are.
"""

import atexit
import csv
import glob
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq
from pyarrow import fs

from parkrr.data.column_kinds import CODE
from parkrr.data.parquet import ParquetTable, locate, match_files, scan_parquet, write_parquet
from parkrr.data.storage import atomic_write, is_url
from parkrr.errors import ParameterError, ParKError, SourceError, suggest
from parkrr.runtime import progress

GROUP_ROWS = 100_000  # of a row group, which a task reads at once
BLOCK_BYTES = 2**22  # of CSV at a time; the first block decides the types
HEAD_BYTES = 2**18  # at the beginning of a file, from which its dialect is recognised
HEAD_LINES = 200  # of them at most
PARQUET = (".parquet",)
COMPRESSIONS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # by the end of a name
TEXT = (".csv", ".tsv")
CSV = tuple(f"{kind}{packed}" for kind in TEXT for packed in COMPRESSIONS)
PLAIN_TEXT = tuple(f".txt{packed}" for packed in COMPRESSIONS)  # is read as CSV, too
ARROW = (".arrow", ".feather", ".ipc")
SUFFIX = re.compile(r"\.[a-z][a-z0-9]{1,5}$")  # that a file has rather than a folder
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}  # compressed files
MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
DELIMITERS = (",", "\t", ";", "|")  # that are recognised; others can be given
DELIMITER_NAMES = {
    "comma": ",",
    "tab": "\t",
    "\\t": "\t",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
}
ENCODING_OPTION = "; text must be UTF-8, or name its encoding in encoding= (--encoding)"
COMMENT = "#"  # that is recognised


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; None is recognised from its beginning."""

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    quote: str | None = None
    comment: str | None = None  # "" for no comments

    def __post_init__(self) -> None:
        named = DELIMITER_NAMES.get(str(self.delimiter).lower(), self.delimiter)
        object.__setattr__(self, "delimiter", named)
        for name in ("delimiter", "decimal", "quote"):
            value = getattr(self, name)
            if value is not None and (len(value) != 1 or value in "\r\n" or not value.isascii()):
                raise ParameterError(f"{name} must be one ASCII character, got {value!r}")
        if self.comment is not None and (len(self.comment) > 1 or self.comment in ("\r", "\n")):
            raise ParameterError(f"comment must be at most one character, got {self.comment!r}")
        if self.decimal not in (None, ".", ","):
            raise ParameterError(f"decimal must be '.' or ',', got {self.decimal!r}")
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            names = ["utf-8", "latin-1", "cp1252", "utf-16"]
            raise ParameterError(
                f"encoding must be one of Python, such as {names}, got {self.encoding!r}"
                f"{suggest(self.encoding, names)}"
            ) from None


def is_csv(path: str) -> bool:
    """Whether a file is CSV, by its name."""
    return path.lower().endswith(CSV + PLAIN_TEXT)


def is_convertible(path: str) -> bool:
    """Whether a file is CSV or Arrow, by its name."""
    return is_csv(path) or path.lower().endswith(ARROW)


def is_single_file(out: str) -> bool:
    """Whether predictions are written to one file, by its name, and not to a folder."""
    single = out.lower().endswith(PARQUET + CSV + ARROW)
    other = SUFFIX.search(out.lower().split("?")[0])  # a URL may have options
    if not single and other and not Path(out).is_dir():
        raise ParameterError(
            f"output must end in {', '.join(PARQUET + ARROW + TEXT)} (.csv and .tsv also with .gz, "
            f".bz2 or .zst), or in / for a folder of Parquet files, got {out!r}"
        )
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


def scan_csv(
    path: str | Path,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    weight: str | None = None,
    filter: Any = None,
    groups: str | None = None,
    time: str | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    quote: str | None = None,
    comment: str | None = None,
    folder: str | Path | None = None,
) -> ParquetTable:
    """Describe the rows of CSV files for `fit` and `predict_to`.

    The files are converted to one Parquet file, a block at a time, and read from there. How they
    are written is recognised from their beginning, also if they are compressed by gzip, bzip2 or
    Zstandard.

    Parameters
    ----------
    path : str or Path
        A file, a glob, or a URL such as "s3://bucket/trips/*.csv".
    target, features, weight, filter, groups, time
        As for :func:`parkrr.scan_parquet`.
    types : dict of str to str, default=None
        Names of Arrow types by column, such as ``{"zip": "string", "price": "float64"}``; those of
        other columns are inferred from the first 4 MB.
    delimiter : str, default=None
        Character between columns. None recognises commas, tabs, semicolons and ``|``.
    decimal : {".", ","} or None, default=None
        Decimal sign of numbers. None recognises it.
    encoding : str, default=None
        Such as "utf-8", "latin-1", "cp1252" or "utf-16". None recognises these.
    quote : str, default=None
        Character around text. None recognises ``"`` and ``'``.
    comment : str, default=None
        Character with which lines begin that are skipped; "" for none. None recognises ``#``
        where these lines have another number of columns.
    folder : str or Path, default=None
        Where the Parquet file stays, and is used again while the CSV files are the same. None
        takes a temporary folder, which is removed when Python ends.

    Returns
    -------
    ParquetTable
        The row groups, schema and roles of columns.

    Raises
    ------
    ParameterError
        If a column does not exist, or a parameter is not valid.
    SourceError
        If there are no files or rows, or a file cannot be read; the message names the column.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from parkrr import scan_csv
    >>> path = Path(tempfile.mkdtemp(), "rows.csv")
    >>> _ = path.write_text("x;y\\n1,5;3\\n2,5;4\\n")
    >>> scan_csv(path, target="y").schema.types
    [DataType(double), DataType(int64)]
    """
    if not isinstance(path, str | Path):
        raise ParameterError(
            f"path must be a str or Path, such as 'rows.csv' or a glob of several files, got "
            f"{path!r}"
        )
    if folder is None:
        folder = tempfile.mkdtemp(prefix="parkrr-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    dialect, types = Dialect(delimiter, decimal, encoding, quote, comment), dict(types or {})
    source = {"source": file_versions(str(path)), "types": types, "dialect": asdict(dialect)}
    rows, marker = Path(folder, "rows.parquet").absolute(), Path(folder, "rows.json")
    rows.parent.mkdir(parents=True, exist_ok=True)
    if not (rows.exists() and marker.exists() and json.loads(marker.read_text()) == source):
        convert_to_parquet(str(path), types, rows, shown=False, dialect=dialect)
        set_time(rows, source["source"])
        marker.write_text(json.dumps(source))
    return scan_parquet(
        rows, target, features, weight=weight, filter=filter, groups=groups, time=time
    )


def set_time(rows: Path, versions: Mapping[str, str]) -> None:
    """Give rows the time of their files, so that rows converted once more are the same to a fit."""
    age = max(int(version.rpartition(" ")[2]) for version in versions.values())
    os.utime(rows, ns=(age, age))


def convert_to_parquet(
    path: str,
    types: Mapping[str, str],
    out: Path,
    shown: bool,
    block_bytes: int = BLOCK_BYTES,
    dialect: Dialect = Dialect(),
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
    dialect
        What is known about how CSV files are written.
    """
    filesystem, files = find_files(path)
    with atomic_write(out) as temporary:
        tables = join_batches(read_files(filesystem, files, types, shown, block_bytes, dialect))
        first = next(tables, None)
        if first is None:
            raise SourceError(path, "there are no rows")
        write_parquet(str(temporary), chain([first], tables))
    return out


def read_files(
    filesystem: Any,
    files: Sequence[str],
    types: Mapping[str, str],
    shown: bool,
    block_bytes: int,
    dialect: Dialect,
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
        try:
            if is_csv(file):
                head = read_head(filesystem, file)
                known = recognise_dialect(head, dialect, file)
                codes = dict.fromkeys(find_codes(head, known), pa.string())
                batches = read_csv(filesystem, file, codes | kinds, shown, block_bytes, known)
            else:
                batches = read_arrow(filesystem, file)
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
            raise SourceError(file, explain_error(str(error), filesystem, file, dialect)) from error


def check_names(file: str, names: Sequence[str], types: Mapping[str, str]) -> None:
    """Reject columns of the same name, and types of columns that do not exist."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(file, f"it has column {twice[0]!r} more than once; rename one of them")
    for name in types:
        if name not in names:
            raise ParameterError(
                f"types must be of columns, but {name!r} is not one of {names}"
                f"{suggest(name, names)}"
            )


def read_csv(
    filesystem: Any,
    file: str,
    types: Mapping[str, pa.DataType],
    shown: bool,
    block_bytes: int,
    dialect: Dialect,
) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file in a known dialect, a block at a time."""
    size, done = filesystem.get_file_info(file).size or 0, 0
    with (
        progress(f"reading {Path(file).name}", size, "bytes", shown) as tick,
        filesystem.open_input_file(file) as raw,
    ):
        stream = decompress(raw)
        if dialect.comment:
            stream = pa.PythonFile(WithoutComments(stream, dialect), mode="r")
        utf8 = dialect.encoding == "utf-8" or bool(dialect.comment)
        reader = pv.open_csv(
            stream,
            pv.ReadOptions(
                block_size=block_bytes, encoding="utf8" if utf8 else str(dialect.encoding)
            ),
            pv.ParseOptions(
                delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True
            ),
            # A missing value is an empty field; "" in quotes is an empty string.
            pv.ConvertOptions(
                column_types=types,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                decimal_point=dialect.decimal,
            ),
        )
        _ = reader.schema.names  # decodes them, which fails here if they are not UTF-8
        for column in reader.schema:
            if pa.types.is_binary(column.type) and column.name not in types:
                raise SourceError(file, f"column {column.name!r} is not UTF-8{ENCODING_OPTION}")
        for batch in reader:
            tick(raw.tell() - done)
            done = raw.tell()
            yield batch


def decompress(raw: Any) -> Any:
    """A file to read from its beginning, decompressed if it is compressed."""
    start = raw.read(4)
    raw.seek(0)
    packed = [kind for magic, kind in MAGIC.items() if start.startswith(magic)]
    return pa.CompressedInputStream(raw, packed[0]) if packed else raw


class WithoutComments(io.RawIOBase):
    """A file in UTF-8 without lines that begin with a sign for comments; pyarrow keeps those.

    A line of text in quotes that begins so is a comment, too.
    """

    def __init__(self, stream: Any, dialect: Dialect) -> None:
        encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
        self.text = io.TextIOWrapper(stream, encoding, newline="")
        self.lines = (line for line in self.text if not line.startswith(str(dialect.comment)))
        self.left = b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.text.detach()  # or it would close the stream, which its owner still reads
        super().close()

    def read(self, size: int = -1) -> bytes:
        parts, length = [self.left], len(self.left)
        for line in self.lines:
            parts.append(line.encode())
            length += len(parts[-1])
            if 0 <= size <= length:
                break
        content = b"".join(parts)
        size = len(content) if size < 0 else size
        self.left = content[size:]
        return content[:size]


def read_head(filesystem: Any, file: str) -> bytes:
    """The beginning of a file, decompressed."""
    with filesystem.open_input_file(file) as raw:
        head: bytes = decompress(raw).read(HEAD_BYTES)
        return head


def recognise_dialect(head: bytes, given: Dialect, file: str) -> Dialect:
    """The dialect of a file that begins with these bytes; what is given stays.

    Examples
    --------
    >>> from parkrr.data.csv import Dialect, recognise_dialect
    >>> recognise_dialect(b"a;b\\n1,5;Oslo\\n", Dialect(), "rows.csv")
    Dialect(delimiter=';', decimal=',', encoding='utf-8', quote='"', comment='')
    """
    encoding = given.encoding or recognise_encoding(head, len(head) == HEAD_BYTES)
    lines = split_head(head, encoding)
    text = "\n".join(lines)
    sign = COMMENT if given.comment is None else given.comment
    marked = [line for line in lines if sign and line.startswith(sign)]
    plain = [line for line in lines if line and line not in marked] or [""]
    quote = given.quote
    if quote is None:  # single ones only where all names have them, for text has apostrophes
        names = re.split("|".join(map(re.escape, DELIMITERS)), plain[0])
        single = all(re.fullmatch(r"\s*'[^']*'\s*", name) for name in names)
        quote = "'" if single and '"' not in text else '"'
    delimiter = given.delimiter
    if delimiter is None:
        first = ("\t", *DELIMITERS) if ".tsv" in file.lower() else DELIMITERS
        delimiter = max(first, key=lambda each: count_columns(plain, each, quote))
    # A line of as many columns as the others is no comment, but names such as #id or values.
    width = len(plain[0].split(delimiter))
    comments = [line for line in marked if len(line.split(delimiter)) != width]
    comment = given.comment if given.comment is not None else COMMENT if comments else ""
    decimal = given.decimal or recognise_decimal(plain[1:], delimiter, quote)
    return Dialect(delimiter, decimal, encoding, quote, comment)


def split_head(head: bytes, encoding: str) -> list[str]:
    """The first lines of a file that begins with these bytes."""
    text = head.decode(encoding, errors="replace").removeprefix("\ufeff")
    lines = text.splitlines()[: HEAD_LINES + 1]
    if len(lines) > 1 and (len(head) == HEAD_BYTES or len(lines) > HEAD_LINES):
        lines = lines[:-1]  # which may be cut off
    return lines


def find_codes(head: bytes, dialect: Dialect) -> list[str]:
    """Columns of digits of which some begin with a zero, such as 00501, at the top of a file.

    Arrow would read them as integers, and 00501 is not 501.

    Examples
    --------
    >>> from parkrr.data.csv import Dialect, find_codes, recognise_dialect
    >>> head = b"zip,size\\n00501,7\\n10001,0\\n"
    >>> find_codes(head, recognise_dialect(head, Dialect(), "rows.csv"))
    ['zip']
    """
    lines = split_head(head, str(dialect.encoding))
    plain = [line for line in lines if not (dialect.comment and line.startswith(dialect.comment))]
    rows = split_lines(plain, str(dialect.delimiter), str(dialect.quote))
    if not rows:
        return []
    names, *values = rows
    columns = zip(*(row for row in values if len(row) == len(names)), strict=True)
    codes = []
    for name, column in zip(names, columns, strict=False):
        texts = [value for value in column if value]
        if all(map(str.isdecimal, texts)) and any(re.match(CODE, value) for value in texts):
            codes.append(name)
    return codes


def recognise_encoding(head: bytes, cut: bool) -> str:
    """The encoding of bytes, which may be cut off inside of a character."""
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            return encoding
    try:
        (head[:-4] if cut else head).decode()
    except UnicodeDecodeError as error:
        if not (cut and error.start >= len(head) - 8):
            # The same in both but for curly quotes, dashes and the euro of Windows.
            return "cp1252" if re.search(rb"[\x80-\x9f]", head) else "latin-1"
    return "utf-8"


def count_columns(lines: Sequence[str], delimiter: str, quote: str) -> int:
    """How many columns lines have with that delimiter; 1 if not most have as many as the first."""
    widths = [len(row) for row in split_lines(lines, delimiter, quote) if row]
    if not widths or widths.count(widths[0]) < 0.9 * len(widths):
        return 1
    return widths[0]


def split_lines(lines: Iterable[str], delimiter: str, quote: str) -> list[list[str]]:
    """The fields of lines; none if one of them is longer than the csv module allows."""
    try:
        return list(csv.reader(lines, delimiter=delimiter, quotechar=quote))
    except csv.Error:
        return []


def recognise_decimal(lines: Sequence[str], delimiter: str, quote: str) -> str:
    """The decimal sign of numbers: a comma if numbers have one, and not to group thousands."""
    values = chain.from_iterable(split_lines(lines, delimiter, quote))
    numbers = [value.strip() for value in values if re.fullmatch(r"\s*[-+]?\d*[.,]\d+\s*", value)]
    with_comma = [value for value in numbers if "," in value]
    grouped = all(re.fullmatch(r"[-+]?[1-9]\d{,2},\d{3}", value) for value in with_comma)
    return "," if not grouped and len(with_comma) > len(numbers) / 2 else "."


def delimiter(name: str) -> str:
    """Between the columns of a file of that name that is written."""
    return "\t" if ".tsv" in name.lower() else ","


def compression(name: str) -> str | None:
    """Of a file of that name that is written."""
    return COMPRESSIONS.get(Path(name.lower()).suffix)


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


def explain_error(message: str, filesystem: Any, file: str, given: Dialect) -> str:
    """An error of pyarrow; for a column of CSV with its name and the option that helps."""
    if not is_csv(file):
        return message
    if "In CSV column" not in message and ("UTF" in message or "codec can't" in message):
        return f"{message}{ENCODING_OPTION}"
    if re.search(r"Expected \d+ columns, got \d+", message):
        return (
            f"{message}; delimiter=, quote= and comment= (--delimiter and so on) set how it is read"
        )
    column = re.search(r"In CSV column #(\d+):", message)
    if column is None:
        return message
    head = read_head(filesystem, file)
    dialect = recognise_dialect(head, given, file)
    lines = head.decode(str(dialect.encoding), errors="replace").removeprefix("\ufeff").splitlines()
    names = (line for line in lines if not (dialect.comment and line.startswith(dialect.comment)))
    options: Any = {"delimiter": dialect.delimiter, "quotechar": dialect.quote}
    name = next(csv.reader(names, **options))[int(column[1])]
    misfit = re.search(r"conversion error to (\S+): invalid value '(.*)'", message, re.DOTALL)
    if misfit is None:
        return f"column {name!r}: {message.rpartition('error ')[2]}{ENCODING_OPTION}"
    kind, value = misfit.groups()
    number = re.fullmatch(r"\s*[-+]?\d*[.,]?\d+([eE][-+]?\d+)?\s*", value)
    wanted = "float64" if number else "string"
    return (
        f"column {name!r} is {'empty' if kind == 'null' else kind} in its first rows, but has "
        f"{value!r} further down; give its type, as types={{{name!r}: {wanted!r}}} or "
        f"--types {name}={wanted}"
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
        with pa.output_stream(str(temporary), compression=compression(name)) as stream:
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
