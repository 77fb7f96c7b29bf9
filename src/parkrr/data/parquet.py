"""Rows of Parquet files, wherever they are: their row groups, read a block at a time.

This module handles files and Arrow tables; :mod:`parkrr.data.encoders` makes numbers of them.
Memory holds a row group or a block of rows, however large the files are.
"""

import glob
import hashlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from parkrr.data.filters import make_filter, needs_only
from parkrr.data.rows import cut_evenly
from parkrr.data.schemas import unify_schemas
from parkrr.data.storage import is_url
from parkrr.errors import ParameterError, SourceError, suggest

BLOCK_BYTES = 2**25  # of one block's features in float64: 466,000 rows of 9
SLICES = 64  # tasks that read a whole table
FOOTERS = 16  # read at once: each is a round trip on an object store
# Row groups from which a sample is drawn: all of them up to this number, so that files sorted by
# time are seen at 200 places and a sample of 10^11 rows does not read them all.
SAMPLED_GROUPS = 200
SAMPLED_SHARE = 4  # more row groups if those hold fewer than four times the rows of the sample
WARNED = 5  # columns that a warning names
ROW_NUMBER = "__row_number"  # a column that every row group can be read with
PANDAS_INDEX = "__index_level_"  # how pandas names a column that is only its row numbers


@dataclass(frozen=True)
class RowGroup:
    """A row group of one file."""

    path: str
    group: int
    n_rows: int
    n_bytes: int  # decoded
    fragment: Any = field(repr=False, compare=False)
    first: int = 0  # number of its first row among all rows of the table


@dataclass(frozen=True)
class ParquetTable:
    """Rows of Parquet files, not yet read; see :func:`scan_parquet`.

    Parameters
    ----------
    row_groups
        All of them, in the order of files.
    schema
        Of all columns in any of the files and in the names of their folders.
    target, features, weight
        Names of columns; no target for rows to predict.
    filter
        Selects rows, or None.
    filesystem
        Of the files.
    promotions
        For each column whose type differs between files, or that some files lack: where it has
        which type, and as what it is read.
    conflicts
        The same for columns that no type holds. They are not in the schema.
    groups, time
        Names of columns that say which rows are validation rows.
    content
        SHA-256 of the file, if it is a copy of rows from elsewhere.
    lifetime
        Of a temporary folder: its files are there while any part of the table exists.
    """

    row_groups: tuple[RowGroup, ...] = field(repr=False)
    schema: pa.Schema = field(repr=False)
    target: tuple[str, ...]
    features: tuple[str, ...]
    weight: str | None
    filter: Any = field(repr=False)
    filesystem: Any = field(repr=False)
    promotions: Mapping[str, str] = field(default_factory=dict, repr=False)
    conflicts: Mapping[str, str] = field(default_factory=dict, repr=False)
    groups: str | None = None
    time: str | None = None
    content: str | None = field(default=None, repr=False)
    lifetime: Any = field(default=None, repr=False, compare=False)

    @property
    def n_rows(self) -> int:
        return sum(group.n_rows for group in self.row_groups)

    @property
    def columns(self) -> list[str]:
        """Every column a fit reads."""
        return [*self.features, *self.target, *([self.weight] if self.weight else [])]

    def slices(self, count: int) -> "list[ParquetTable]":
        """The row groups in at most `count` runs of about as many rows each."""
        runs = cut_evenly([group.n_rows for group in self.row_groups], count)
        return [replace(self, row_groups=self.row_groups[first:last]) for first, last in runs]

    def blocks(self, rows: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of all rows in order, in blocks of `rows` and a shorter last one."""
        waiting: list[pa.Table] = []
        for group in self.row_groups:
            waiting.append(self.read(group, columns))
            while sum(map(len, waiting)) >= rows:
                table = pa.concat_tables(waiting)
                yield table[:rows]
                waiting = [table[rows:]]
        if sum(map(len, waiting)):
            yield pa.concat_tables(waiting)

    def read(self, group: RowGroup, columns: Sequence[str]) -> pa.Table:
        """These columns of one row group."""
        note = "; ".join(f"{k!r} is {self.promotions[k]}" for k in columns if k in self.promotions)
        with naming_file(group.path, note and f"; {note}. Write the files with one schema."):
            names = [name for name in columns if name != ROW_NUMBER]
            table = group.fragment.to_table(
                schema=self.schema, columns=names, filter=self.filter, use_threads=False
            )
            for column in table.columns:
                if not pa.types.is_primitive(column.type):
                    column.validate(full=True)  # strings that are not UTF-8
            if ROW_NUMBER in columns:
                numbers = np.arange(group.first, group.first + len(table))
                table = table.append_column(ROW_NUMBER, pa.array(numbers))
            return table

    def sample(self, size: int, seed: int) -> "list[Draw]":
        """How many rows to draw from which row groups, so that all rows are equally likely."""
        rng = np.random.default_rng(seed)
        groups = self.row_groups
        most = math.ceil(count_sampled_groups(size, len(groups), self.n_rows))
        if len(groups) > most:  # one of each run of neighbours
            ends = np.linspace(0, len(groups), most + 1)
            groups = tuple(groups[int(rng.uniform(a, b))] for a, b in pairwise(ends))
        # In proportion to their rows; the remainder goes to groups drawn in proportion to what
        # rounding took from them.
        rows = np.array([group.n_rows for group in groups])
        share = min(1.0, size / rows.sum()) * rows
        counts = np.floor(share).astype(int)
        remainder, missed = min(size, int(rows.sum())) - int(counts.sum()), share - counts
        if remainder > 0 and missed.sum() > 0:
            extra = min(remainder, int((missed > 0).sum()))
            counts[rng.choice(len(rows), extra, False, missed / missed.sum())] += 1
        counts = np.minimum(counts, rows)
        seeds = rng.integers(2**31, size=len(groups))
        table = replace(self, row_groups=())  # a draw is sent to a worker with its own group only
        draws = zip(groups, counts.tolist(), seeds.tolist(), strict=True)
        return [Draw(table, group, count, seed) for group, count, seed in draws if count]

    def read_sample(self, size: int, seed: int, columns: Sequence[str]) -> pa.Table:
        """These columns of at most `size` rows, drawn so that all rows are equally likely."""
        return pa.concat_tables(draw.read(columns) for draw in self.sample(size, seed))


def count_sampled_groups(size: int, n_groups: int, n_rows: int) -> float:
    """Row groups from which `size` of `n_rows` rows are drawn, if there are as many."""
    return max(SAMPLED_GROUPS, SAMPLED_SHARE * size * n_groups / n_rows)


@dataclass(frozen=True)
class Draw:
    """Some rows of one row group, drawn without replacement."""

    table: ParquetTable
    group: RowGroup
    count: int
    seed: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """These columns of the rows drawn."""
        rows = self.table.read(self.group, columns)
        rng = np.random.default_rng(self.seed)
        return rows.take(np.sort(rng.choice(len(rows), min(self.count, len(rows)), False)))


def scan_parquet(
    path: Any,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    weight: str | None = None,
    filter: Any = None,
    filesystem: Any = None,
    groups: str | None = None,
    time: str | None = None,
) -> ParquetTable:
    """Describe the rows of Parquet files for `fit` and `predict_to`; reads only footers.

    Files may have different columns. The table has all of them, each in a type that holds the
    values of every file: integers become wider or floats, dates become time stamps. A column that
    a file lacks is missing in its rows. A warning names what differs, and the attribute
    `promotions` lists it.

    Parameters
    ----------
    path : str, Path or list of str
        A file, a folder (with hive partitions or without), a glob, a URL such as
        "s3://bucket/trips/", or a list of files.
    target : str or list of str, default=None
        Column to predict, or several of them. Rows without a target are skipped. None for rows
        to predict.
    features : str or list of str, default=None
        Columns to predict from; None takes all others, except an index that pandas wrote.
    weight : str, default=None
        Column of row weights.
    filter : str, pyarrow.dataset.Expression or list, default=None
        Rows where it is not true are skipped. Text may have comparisons, ``and``, ``or``, ``not``,
        brackets, ``in`` and ``is null``, such as ``"year > 2023 and city in ('Oslo', 'Rome')"``;
        names with spaces stand in backticks, dates in quotes. A list of conditions such as
        ``[("year", ">", 2023)]`` is read as by pyarrow.
    filesystem : pyarrow.fs.FileSystem, default=None
        For stores that need more than a URL.
    groups, time : str, default=None
        Column of groups, or of times, that `fit` leaves out to validate; see `groups` and `time`
        of :meth:`parkrr.ParKRegressor.fit`. It is a feature only if `features` names it. The
        rows must fit in memory.

    Returns
    -------
    ParquetTable
        The row groups, schema and roles of columns.

    Raises
    ------
    ParameterError
        If a column does not exist or is named twice.
    SourceError
        If there are no files or rows, a file cannot be read, or no type holds a column in all
        files, such as strings in one and numbers in another.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from parkrr import scan_parquet
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0]}), f"{folder}/a.parquet")
    >>> scan_parquet(folder, target="y").n_rows
    2
    >>> scan_parquet(folder, target="y", filter="x > 1").n_rows
    1
    """
    try:
        filesystem, paths = list_paths(path, filesystem)
        # Checksums of pages cost nothing measurable, and without them a flipped bit is a number.
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        form = ds.ParquetFileFormat(default_fragment_scan_options=options)
        dataset = ds.dataset(paths, format=form, partitioning="hive", filesystem=filesystem)
    except SourceError:
        raise
    except FileNotFoundError as error:
        raise SourceError(str(path), "there is no such file or folder") from error
    except (OSError, pa.ArrowException) as error:
        hint = "; scan_csv reads CSV files" if re.search(r"\.[ct]sv\b", str(path).lower()) else ""
        raise SourceError(str(path), f"{error}{hint}") from error
    # Files that the filter excludes need not be read: it is made of the columns of the first file,
    # if these suffice, and again of those of all files, whose types may differ.
    known = needs_only(filter, dataset.schema.names)
    early = make_filter(filter, dataset.schema) if known else None
    dataset, promotions, conflicts = unify_files(dataset, early)
    table = describe_dataset(
        dataset,
        str(path),
        target,
        features,
        weight,
        make_filter(filter, dataset.schema),
        groups,
        time,
        promotions,
        conflicts,
    )
    differing = [f"{name!r} is {promotions[name]}" for name in table.columns if name in promotions]
    if differing:
        more = f"; {len(differing) - WARNED} more in .promotions" if differing[WARNED:] else ""
        warnings.warn(
            f"files have different columns: {'; '.join(differing[:WARNED])}{more}", stacklevel=2
        )
    return table


def describe_dataset(
    dataset: Any,
    name: str,
    target: str | Sequence[str] | None,
    features: str | Sequence[str] | None,
    weight: str | None,
    filter: Any,
    groups: str | None,
    time: str | None,
    promotions: Mapping[str, str],
    conflicts: Mapping[str, str],
) -> ParquetTable:
    """A dataset of Parquet files with the roles of its columns, which are checked.

    Parameters
    ----------
    dataset
        A pyarrow.dataset.FileSystemDataset.
    name
        Of the dataset in errors.
    target, features, weight, groups, time
        As for :func:`scan_parquet`.
    filter
        A pyarrow expression, or None.
    promotions, conflicts
        As in :class:`ParquetTable`.
    """
    names = [*dataset.schema.names, *conflicts]
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    weights = () if weight is None else (weight,)
    own = {*targets, *weights}
    left = {*own, groups, time}
    others = [name for name in names if name not in left and not name.startswith(PANDAS_INDEX)]
    chosen = (features,) if isinstance(features, str) else tuple(features or others)
    for column in (groups, time):
        if column is not None and (column not in names or column in own):
            raise ParameterError(
                f"groups and time must be columns beside target and weight, but {column!r} is not "
                f"one of {[each for each in names if each not in own]}{suggest(column, names)}"
            )
    for column, count in Counter([*targets, *chosen, *weights]).items():
        if column not in names:
            raise ParameterError(
                f"target, features and weight must be columns, but {column!r} is not one of "
                f"{names}{suggest(column, names)}"
            )
        if column in conflicts:
            raise SourceError(
                name,
                f"column {column!r} is {conflicts[column]}, and no type holds all of these; write "
                f"the files with one type, or name other columns in features=",
            )
        if column in own and column in chosen:
            raise ParameterError(f"features must not hold the target or weight, got {chosen!r}")
        if count > 1:
            raise ParameterError(
                f"target, features and weight must name a column once, got {column!r} twice"
            )
    return ParquetTable(
        list_row_groups(dataset, filter),
        dataset.schema,
        targets,
        chosen,
        weight,
        filter,
        dataset.filesystem,
        promotions,
        conflicts,
        groups,
        time,
    )


def list_paths(path: Any, filesystem: Any) -> tuple[Any, Any]:
    """The filesystem of a path, a glob, a URL or a list of them, and the path or paths there."""
    if not isinstance(path, str | Path):
        places = [locate(str(one), filesystem) for one in path]
        return places[0][0], [inner for _, inner in places]
    filesystem, inner = locate(str(path), filesystem)
    return filesystem, match_files(inner, filesystem) if glob.has_magic(inner) else inner


def locate(path: str, filesystem: Any) -> tuple[Any, str]:
    """The filesystem of a path or URL, None for this machine's, and the path there."""
    if filesystem is not None or not is_url(path):
        return filesystem, path
    own, inner = fs.FileSystem.from_uri(path)
    return own, inner


def match_files(pattern: str, filesystem: Any) -> list[str]:
    """The files of a glob, in order; in an object store only its last part may have wildcards."""
    if filesystem is None:
        paths = sorted(glob.glob(pattern, recursive=True))
    else:
        folder, _, name = pattern.rpartition("/")
        infos = filesystem.get_file_info(fs.FileSelector(folder))
        paths = sorted(info.path for info in infos if fnmatch(info.base_name, name))
    if not paths:
        raise SourceError(pattern, "no file matches")
    return paths


def unify_files(dataset: Any, filter: Any) -> tuple[Any, Mapping[str, str], Mapping[str, str]]:
    """The dataset with the columns of all files that can hold rows; what differs between them."""
    try:
        fragments = list(dataset.get_fragments(filter))
    except pa.ArrowException:  # the filter may name a column that the first file does not have
        fragments = list(dataset.get_fragments())

    def read_schema(fragment: Any) -> pa.Schema:
        with naming_file(fragment.path):
            return fragment.physical_schema

    with ThreadPoolExecutor(FOOTERS) as pool:
        schemas = list(pool.map(read_schema, fragments))
    folders = dataset.partitioning.schema if dataset.partitioning else pa.schema([])
    paths = [fragment.path for fragment in fragments]
    common = unify_schemas(dataset.schema.names, folders, paths, schemas)
    united = ds.FileSystemDataset(fragments, common.schema, dataset.format, dataset.filesystem)
    return united, common.promotions, common.conflicts


def list_row_groups(dataset: Any, filter: Any) -> tuple[RowGroup, ...]:
    """Every row group that can hold rows; they are counted in the footer unless filtered."""

    def row_groups(fragment: Any) -> list[RowGroup]:
        with naming_file(fragment.path):
            groups = []
            for part in fragment.split_by_row_group(filter, schema=dataset.schema):
                group = part.row_groups[0]
                n_rows = group.num_rows
                if filter is not None:
                    options = {"schema": dataset.schema, "filter": filter, "use_threads": False}
                    n_rows = part.scanner(**options).count_rows()
                n_bytes = int(group.total_byte_size)
                groups.append(RowGroup(part.path, group.id, int(n_rows), n_bytes, part))
            return groups

    try:
        fragments = list(dataset.get_fragments(filter))
    except pa.ArrowException as error:
        raise ParameterError(f"filter must be an expression of columns: {error}") from error
    with ThreadPoolExecutor(FOOTERS) as pool:
        files = list(pool.map(row_groups, fragments))
    groups = [group for file in files for group in file if group.n_rows]
    firsts = accumulate([0, *(group.n_rows for group in groups)])
    if not groups:
        raise SourceError(str(dataset.files[:1]), "there are no rows")
    return tuple(replace(group, first=k) for group, k in zip(groups, firsts, strict=False))


def fingerprint(table: ParquetTable) -> dict[str, str]:
    """Size and time of every file, and the order of row groups, so that a change is noticed.

    A copy of rows from elsewhere is known by its content: it may be in another folder next time.
    """
    if table.content is not None:
        sizes = repr([(group.group, group.n_rows) for group in table.row_groups])
        rows = hashlib.sha256(sizes.encode()).hexdigest()
        return {"content of the source": table.content, "rows of the source": rows}
    infos = table.filesystem.get_file_info(sorted({group.path for group in table.row_groups}))
    order = repr([(group.path, group.group, group.n_rows) for group in table.row_groups])
    files = {info.path: f"{info.size} bytes of {info.mtime_ns}" for info in infos}
    return {**files, "order of files": hashlib.sha256(order.encode()).hexdigest()}


@contextmanager
def naming_file(path: str, note: str = "") -> Iterator[None]:
    """Name the file in errors, with a note at their end."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SourceError(path, f"{error}{note}") from error


def write_parquet(where: Any, blocks: Iterator[pa.Table]) -> int:
    """Write blocks of rows as one file, at a path or into an open file; returns how many rows."""
    first = next(blocks)
    rows = len(first)
    # Predictions hardly repeat: without a dictionary a float column takes two thirds.
    strings = [name for name in first.schema.names if pa.types.is_string(first[name].type)]
    options = {"use_dictionary": strings, "write_page_checksum": True}
    with pq.ParquetWriter(where, first.schema, **options) as writer:
        writer.write_table(first)
        for block in blocks:
            writer.write_table(block)
            rows += len(block)
    return rows


def rows_per_block(width: int, n_bytes: int) -> int:
    """Rows of so many float64 columns that take those bytes, in whole thousands."""
    return max(1, math.floor(n_bytes / (8 * max(1, width)) / 1024)) * 1024
