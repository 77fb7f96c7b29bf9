"""Rows of Parquet files, wherever they lie: what is there, and a block of it at a time.

Knows files and Arrow tables, neither numbers nor kernels. Nothing here holds more than a row
group or a block of rows, whatever the files hold.
"""

import glob
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from parkrr.data.rows import cuts
from parkrr.data.storage import is_url
from parkrr.errors import ParameterError, SourceError

FOOTERS = 16  # read at once: each is a round trip on an object store
# Row groups a sample is drawn from: all of them up to here, so that files sorted by time are
# seen at 200 places and a sample of 10^11 rows does not read them all.
LOOKED_AT = 200
PANDAS_INDEX = "__index_level_"  # what pandas calls a column that is only its row numbers
LOOKED_SHARE = 4  # and more of them if these hold fewer than four times the sample


@dataclass(frozen=True)
class Piece:
    """A row group of one file."""

    path: str
    group: int
    n_rows: int
    n_bytes: int  # decoded
    fragment: Any = field(repr=False, compare=False)


@dataclass(frozen=True)
class ParquetTable:
    """Rows of Parquet files, not yet read; see :func:`scan_parquet`.

    Parameters
    ----------
    pieces
        Its row groups, in the order of files.
    schema
        Of all columns in the files and their folders.
    target, features, weight
        Names of columns; no target for rows to predict.
    filter
        Rows that count, or None.
    filesystem
        Where the files lie.
    """

    pieces: tuple[Piece, ...] = field(repr=False)
    schema: pa.Schema = field(repr=False)
    target: tuple[str, ...]
    features: tuple[str, ...]
    weight: str | None
    filter: Any = field(repr=False)
    filesystem: Any = field(repr=False)

    @property
    def n_rows(self) -> int:
        return sum(piece.n_rows for piece in self.pieces)

    @property
    def columns(self) -> list[str]:
        """Every column a fit reads."""
        return [*self.features, *self.target, *([self.weight] if self.weight else [])]

    def slices(self, count: int) -> "list[ParquetTable]":
        """The row groups in at most `count` runs of about as many rows each."""
        runs = cuts([piece.n_rows for piece in self.pieces], count)
        return [replace(self, pieces=self.pieces[first:last]) for first, last in runs]

    def blocks(self, rows: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of all rows in order, in blocks of `rows` and a shorter last one."""
        waiting: list[pa.Table] = []
        for piece in self.pieces:
            waiting.append(self.read(piece, columns))
            while sum(map(len, waiting)) >= rows:
                table = pa.concat_tables(waiting)
                yield table[:rows]
                waiting = [table[rows:]]
        if sum(map(len, waiting)):
            yield pa.concat_tables(waiting)

    def read(self, piece: Piece, columns: Sequence[str]) -> pa.Table:
        """These columns of one row group."""
        with naming(piece.path):
            table = piece.fragment.to_table(
                schema=self.schema, columns=list(columns), filter=self.filter, use_threads=False
            )
            for column in table.columns:
                if not pa.types.is_primitive(column.type):
                    column.validate(full=True)  # words that are no text
            return table

    def sample(self, size: int, seed: int) -> "list[Draw]":
        """How many rows to draw from which row groups, so that every row is as likely."""
        rng = np.random.default_rng(seed)
        pieces = self.pieces
        most = max(LOOKED_AT, math.ceil(LOOKED_SHARE * size * len(pieces) / self.n_rows))
        if len(pieces) > most:  # one of each run of neighbours
            ends = np.linspace(0, len(pieces), most + 1)
            pieces = tuple(pieces[int(rng.uniform(a, b))] for a, b in pairwise(ends))
        taken = quotas(np.array([piece.n_rows for piece in pieces]), size, rng)
        seeds = rng.integers(2**31, size=len(pieces))
        found = zip(pieces, taken.tolist(), seeds.tolist(), strict=True)
        bare = replace(self, pieces=())  # a draw travels alone
        return [Draw(bare, piece, count, seed) for piece, count, seed in found if count]


def quotas(there: Any, size: int, rng: np.random.Generator) -> Any:
    """How many of `size` rows to take from groups with so many, in proportion, (g,).

    What does not come out even goes to groups drawn in proportion to what they miss.
    """
    share = min(1.0, size / there.sum()) * there
    taken = np.floor(share).astype(int)
    left = min(size, int(there.sum())) - int(taken.sum())
    missed = share - taken
    if left > 0 and missed.sum() > 0:
        drawn = rng.choice(
            len(there), min(left, int((missed > 0).sum())), False, missed / missed.sum()
        )
        taken[drawn] += 1
    return np.minimum(taken, there)


@dataclass(frozen=True)
class Draw:
    """Some rows of one row group, drawn without replacement."""

    table: ParquetTable
    piece: Piece
    count: int
    seed: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """These columns of the rows drawn."""
        rows = self.table.read(self.piece, columns)
        taken = np.random.default_rng(self.seed).choice(
            len(rows), min(self.count, len(rows)), False
        )
        return rows.take(np.sort(taken))


def scan_parquet(
    path: Any,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    filter: Any = None,
    filesystem: Any = None,
) -> ParquetTable:
    """Rows of Parquet files for `fit` and `predict_to`; nothing but footers is read.

    Parameters
    ----------
    path
        A file, a folder (with hive partitions or without), a glob, a URL such as
        "s3://bucket/trips/", or a list of files.
    target
        Column to predict, or several of them. Rows without a target are left out.
    features
        Columns to predict from; None takes all others, but for an index that pandas wrote.
    weight
        Column of row weights.
    filter
        A pyarrow.dataset expression; rows where it is not true are left out.
    filesystem
        A pyarrow filesystem, for stores that need more than a URL.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from parkrr import scan_parquet
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0]}), f"{folder}/a.parquet")
    >>> scan_parquet(folder, target="y").n_rows
    2
    """
    dataset = open_dataset(path, filesystem)
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    own = {*targets, weight}
    others = [name for name in dataset.schema.names if not name.startswith(PANDAS_INDEX)]
    chosen = tuple(features or [name for name in others if name not in own])
    weights = [] if weight is None else [weight]
    for name in [*targets, *chosen, *weights]:
        if name not in dataset.schema.names:
            raise ParameterError(
                f"target, features and weight must be columns, but {name!r} is not one of "
                f"{dataset.schema.names}"
            )
    if own & set(chosen):
        raise ParameterError(f"features must not hold the target or weight, got {chosen!r}")
    twice = [name for name, count in Counter([*targets, *chosen, *weights]).items() if count > 1]
    if twice:
        raise ParameterError(
            f"target, features and weight must name a column once, got {twice[0]!r} twice"
        )
    pieces = row_groups(dataset, filter)
    return ParquetTable(pieces, dataset.schema, targets, chosen, weight, filter, dataset.filesystem)


def open_dataset(path: Any, filesystem: Any) -> Any:
    """The dataset at a path, a glob, a URL or a list of them."""
    try:
        if isinstance(path, str | Path):
            filesystem, path = located(str(path), filesystem)
            path = matching(path, filesystem) if glob.has_magic(path) else path
        else:
            places = [located(str(one), filesystem) for one in path]
            filesystem, path = places[0][0], [inner for _, inner in places]
        return ds.dataset(path, format="parquet", partitioning="hive", filesystem=filesystem)
    except FileNotFoundError as error:
        raise SourceError(str(path), "there is no such file or folder") from error
    except (OSError, pa.ArrowException) as error:
        raise SourceError(str(path), str(error)) from error


def located(path: str, filesystem: Any) -> tuple[Any, str]:
    """Where a path or URL lies, and its path there."""
    if filesystem is not None or not is_url(path):
        return filesystem, path
    place, inner = fs.FileSystem.from_uri(path)
    return place, inner


def matching(pattern: str, filesystem: Any) -> list[str]:
    """The files of a glob, in order; away from this machine its last part has the wildcards."""
    if filesystem is None:
        found = sorted(glob.glob(pattern, recursive=True))
    else:
        folder, _, name = pattern.rpartition("/")
        there = filesystem.get_file_info(fs.FileSelector(folder))
        found = sorted(info.path for info in there if fnmatch(info.base_name, name))
    if not found:
        raise SourceError(pattern, "no file matches")
    return found


def row_groups(dataset: Any, filter: Any) -> tuple[Piece, ...]:
    """Every row group that can hold rows."""

    def pieces(fragment: Any) -> list[Piece]:
        with naming(fragment.path):
            parts = fragment.split_by_row_group(filter, schema=dataset.schema)
            return [piece_of(part, dataset.schema, filter) for part in parts]

    with ThreadPoolExecutor(FOOTERS) as pool:
        found = [p for part in pool.map(pieces, dataset.get_fragments(filter)) for p in part]
    found = [piece for piece in found if piece.n_rows]
    if not found:
        raise SourceError(str(dataset.files[:1]), "there are no rows")
    return tuple(found)


def piece_of(part: Any, schema: Any, filter: Any) -> Piece:
    """A row group and its rows, from its footer unless there is a filter."""
    group = part.row_groups[0]
    n_rows = group.num_rows
    if filter is not None:
        n_rows = part.scanner(schema=schema, filter=filter, use_threads=False).count_rows()
    return Piece(part.path, group.id, int(n_rows), int(group.total_byte_size), part)


def fingerprint(table: ParquetTable) -> dict[str, str]:
    """Size and time of every file, and the order of row groups, so that a change is noticed."""
    paths = sorted({piece.path for piece in table.pieces})
    infos = table.filesystem.get_file_info(paths)
    order = repr([(piece.path, piece.group, piece.n_rows) for piece in table.pieces])
    files = {info.path: f"{info.size} bytes of {info.mtime_ns}" for info in infos}
    return {**files, "order of files": hashlib.sha256(order.encode()).hexdigest()}


@contextmanager
def naming(path: str) -> Iterator[None]:
    """What goes wrong inside names the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SourceError(path, str(error)) from error


def write_parquet(where: Any, blocks: Iterator[pa.Table]) -> int:
    """Blocks of rows as one file, at a path or into an open file; how many rows."""
    first = next(blocks)
    rows = len(first)
    # Predictions hardly repeat: without a dictionary a float column takes two thirds.
    plain = [name for name in first.schema.names if not pa.types.is_string(first[name].type)]
    words = [name for name in first.schema.names if name not in plain]
    with pq.ParquetWriter(where, first.schema, use_dictionary=words) as writer:
        writer.write_table(first)
        for block in blocks:
            writer.write_table(block)
            rows += len(block)
    return rows


def block_rows(width: int, bytes_: int) -> int:
    """Rows of so many float64 columns that take those bytes, in whole thousands."""
    return max(1, math.floor(bytes_ / (8 * max(1, width)) / 1024)) * 1024
