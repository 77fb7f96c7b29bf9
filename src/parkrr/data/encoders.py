"""Table columns as numbers: categories, dates and times, what is missing.

Learned from a sample of rows and from tallies of categories over all rows, kept as plain data.
Knows Arrow columns, not files or kernels.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parkrr.errors import ParameterError

ONE_HOT = 20  # categories up to which each has a column of its own
RARE = 10  # rows below which a category has none
SHRINK = 20.0  # rows of the overall mean that are added to those of a category
MOST_CATEGORIES = 100_000  # kept of one column, the most frequent
MOST_MEANS = 10  # outputs whose means describe a category
DAY = 86_400.0
TURNS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}  # seconds

Array = NDArray[np.floating[Any]]


@final
@dataclass(frozen=True)
class Number:
    """A number, or a truth value as 0 and 1.

    Parameters
    ----------
    name
        Of the column.
    fill
        What stands for a value that is missing or not finite.
    flagged
        Whether a second column says where that happened.
    """

    name: str
    fill: float
    flagged: bool

    @property
    def width(self) -> int:
        return 1 + self.flagged

    def encode(self, values: pa.ChunkedArray) -> Array:
        x = numbers(values, self.name)
        if not self.flagged and np.isfinite(x.sum()):  # one cheap look at all of them
            return x[:, None]
        missing = ~np.isfinite(x)
        if np.isnan(self.fill) and missing.any():
            raise ParameterError(
                f"column {self.name!r} must have a finite number in every row, since the model "
                f"was fitted to an array of such; it is missing in {missing.sum()} rows here"
            )
        x = np.where(missing, self.fill, x)
        return np.stack([x, missing], 1) if self.flagged else x[:, None]


@final
@dataclass(frozen=True)
class DateTime:
    """A date or time: seconds, and where it lies in the day, the week and the year.

    Parameters
    ----------
    name
        Of the column.
    fill
        Seconds that stand for a missing value.
    flagged
        Whether a last column says where that happened.
    elapsed
        Whether seconds are a column.
    turns
        The periods whose sine and cosine are columns: "day", "week", "year".
    """

    name: str
    fill: float
    flagged: bool
    elapsed: bool
    turns: tuple[str, ...]

    @property
    def width(self) -> int:
        return self.elapsed + 2 * len(self.turns) + self.flagged

    def encode(self, values: pa.ChunkedArray) -> Array:
        s = seconds(values)
        missing = ~np.isfinite(s)
        s = np.where(missing, self.fill, s)
        parts = [s] if self.elapsed else []
        for turn in self.turns:
            angle = 2 * np.pi * s / TURNS[turn]
            parts += [np.sin(angle), np.cos(angle)]
        return np.stack([*parts, missing] if self.flagged else parts, 1)


@final
@dataclass(frozen=True)
class Category:
    """A word: each value has a row of numbers, all others share one.

    Few categories have a column each. Many are described by the mean of each target, shrunk
    towards that of all rows: (sum + k mean) / (count + k), and by how frequent they are.

    Parameters
    ----------
    name
        Of the column.
    values
        The categories; None is a missing value.
    codes
        Their numbers, len(values) rows.
    other
        The numbers of a category that is rare or was never seen.
    """

    name: str
    values: tuple[str | None, ...]
    codes: tuple[tuple[float, ...], ...]
    other: tuple[float, ...]

    @property
    def width(self) -> int:
        return len(self.other)

    def encode(self, values: pa.ChunkedArray) -> Array:
        at = pc.index_in(words(values), value_set=pa.array(self.values, pa.string()))
        at = at.fill_null(len(self.values)).to_numpy()
        codes = np.array([*self.codes, self.other], dtype=np.float64)
        encoded: Array = codes[at]
        return encoded


Column = Number | DateTime | Category


@dataclass(frozen=True)
class Columns:
    """The columns of a table in the order in which they become numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from parkrr.data.encoders import learn_columns
    >>> table = pa.table({"x": [1.0, None], "open": [True, False]})
    >>> learn_columns(table, {}).encode(table)
    array([[1., 0., 1.],
           [1., 1., 0.]])
    """

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def owners(self) -> list[int]:
        """The column each number comes from."""
        return [k for k, column in enumerate(self.columns) for _ in range(column.width)]

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    def encode(self, table: pa.Table) -> Array:
        """The rows as numbers, shape (n, width); float32 where that holds all of them."""
        short = all(is_short(table[name].type) for name in self.names)
        X = np.empty((len(table), self.width), dtype=np.float32 if short else np.float64)
        start = 0
        for column in self.columns:
            stop = start + column.width
            try:
                X[:, start:stop] = column.encode(table[column.name])
            except pa.ArrowException as error:
                raise ParameterError(
                    f"column {column.name!r} must be of the kind it had in fit: {error}"
                ) from error
            start = stop
        return X

    def plain(self) -> list[dict[str, Any]]:
        """As plain data."""
        names = {kind: name for name, kind in KINDS.items()}
        return [{"kind": names[type(column)], **asdict(column)} for column in self.columns]


# As model files name them.
KINDS: dict[str, Callable[..., Column]] = {
    "Number": Number,
    "Moment": DateTime,
    "Category": Category,
}


def from_plain(data: list[dict[str, Any]]) -> Columns:
    """The columns that plain data describe."""
    return Columns(tuple(column_of(dict(one)) for one in data))


def column_of(data: dict[str, Any]) -> Column:
    """The column that plain data describe."""
    kind = KINDS[data.pop("kind")]
    if kind is Category:
        data["codes"] = tuple(map(tuple, data["codes"]))
    tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return kind(**tuples)


@dataclass(frozen=True)
class CategoryCounts:
    """Rows and sums of targets of every category of one column: what tasks add up.

    Parameters
    ----------
    values
        The categories, sorted, None last.
    sums
        Rows and the sum of each target, shape (k, 1 + t).
    """

    values: tuple[str | None, ...]
    sums: Array

    def __add__(self, other: "CategoryCounts") -> "CategoryCounts":
        total: dict[str | None, Array] = dict(zip(self.values, self.sums, strict=True))
        for value, sums in zip(other.values, other.sums, strict=True):
            total[value] = total[value] + sums if value in total else sums
        kept = sorted(total, key=lambda value: -total[value][0])[:MOST_CATEGORIES]
        kept.sort(key=lambda value: (value is None, value))
        return CategoryCounts(tuple(kept), np.stack([total[value] for value in kept]))


def tally(values: pa.ChunkedArray, Y: Array, w: Array | None = None) -> CategoryCounts:
    """The categories of some rows, with targets Y (n, t) and weights (n,)."""
    w = np.ones(len(Y)) if w is None else w
    coded = pc.dictionary_encode(words(values), null_encoding="encode").combine_chunks()
    at = coded.indices.to_numpy(zero_copy_only=False)
    there = coded.dictionary.to_pylist()
    columns = [np.bincount(at, weights=y, minlength=len(there)) for y in (w, *(w * Y.T))]
    order = sorted(range(len(there)), key=lambda k: (there[k] is None, there[k]))
    sums = np.stack(columns, 1).astype(np.float64)
    return CategoryCounts(tuple(there[k] for k in order), sums[order])


def is_category(kind: pa.DataType) -> bool:
    """Whether columns of that type are words."""
    return bool(
        pa.types.is_dictionary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    )


def is_short(kind: pa.DataType) -> bool:
    """Whether float32 holds every number of that type."""
    return bool(
        pa.types.is_float32(kind)
        or pa.types.is_float16(kind)
        or pa.types.is_boolean(kind)
        or kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16())
    )


def is_moment(kind: pa.DataType) -> bool:
    """Whether columns of that type are dates or times."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def width_guess(schema: pa.Schema, names: Iterable[str]) -> int:
    """Numbers that columns of these types may become, at most."""
    kinds = [schema.field(name).type for name in names]
    return sum(ONE_HOT if is_category(k) else 8 if is_moment(k) else 2 for k in kinds)


def categories(schema: pa.Schema, names: Iterable[str]) -> list[str]:
    """The columns whose categories must be counted."""
    return [name for name in names if is_category(schema.field(name).type)]


def learn_columns(sample: pa.Table, tallies: dict[str, CategoryCounts]) -> Columns:
    """How to encode the columns of a sample, words by their tallies over all rows."""
    return Columns(
        tuple(learn(name, sample[name], tallies.get(name)) for name in sample.schema.names)
    )


def learn(name: str, values: pa.ChunkedArray, found: CategoryCounts | None) -> Column:
    """How to encode one column."""
    if found is not None:
        return learn_category(name, found)
    if is_moment(values.type):
        return learn_moment(name, seconds(values), pa.types.is_time(values.type))
    x = numbers(values, name)
    there = np.isfinite(x)
    fill = float(np.median(x[there])) if there.any() else 0.0
    return Number(name, fill, bool(there.any() and not there.all()))


def learn_moment(name: str, s: Array, time_only: bool) -> DateTime:
    """Only what varies becomes a column: dates have no time of day."""
    there = np.isfinite(s)
    known = s[there] if there.any() else np.zeros(1)
    spans = {"day": 0.0, "week": DAY, "year": 14 * DAY}  # shorter, they say what seconds say
    turns = [turn for turn, least in spans.items() if np.ptp(known) > least]
    if not (known % DAY).any():
        turns = [turn for turn in turns if turn != "day"]
    if time_only:
        turns = ["day"]
    flagged = bool(there.any() and not there.all())
    return DateTime(name, float(np.median(known)), flagged, not time_only, tuple(turns))


def learn_category(name: str, found: CategoryCounts) -> Category:
    """A column each for few categories, means of the targets for many."""
    rows, sums = found.sums[:, 0], found.sums[:, 1:]
    if len(rows) <= ONE_HOT:
        common = np.flatnonzero(rows >= min(RARE, rows.max()))
        codes = np.eye(len(common))
        values = tuple(found.values[k] for k in common)
        return Category(name, values, tuple(map(tuple, codes.tolist())), (0.0,) * len(common))
    total = rows.sum()
    mean = sums.sum(0) / total  # (t,)
    means = (sums + SHRINK * mean) / (rows[:, None] + SHRINK)
    if sums.shape[1] > MOST_MEANS:
        means, mean = means[:, :0], mean[:0]
    table = np.column_stack([means, np.log1p(rows)])
    kept = rows >= RARE
    rare = rows[~kept].mean() if (~kept).any() else 0.0
    other = (*mean.tolist(), float(np.log1p(rare)))
    values = tuple(value for value, keep in zip(found.values, kept, strict=True) if keep)
    return Category(name, values, tuple(map(tuple, table[kept].tolist())), other)


def numbers(values: pa.ChunkedArray, name: str = "") -> Array:
    """As floats, missing ones as NaN, shape (n,)."""
    kind = values.type
    if pa.types.is_duration(kind):
        values = values.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        if not (pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
            raise ParameterError(
                f"features must be numbers, truth values, words, dates or times, but {name!r} "
                f"is {kind}; name the others in features="
            )
        values = values.cast(pa.int8() if pa.types.is_boolean(kind) else pa.float64())
    x: Array = values.to_numpy()
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def seconds(values: pa.ChunkedArray) -> Array:
    """Dates as seconds since 1970, times as seconds since midnight; missing ones as NaN."""
    if pa.types.is_time(values.type):
        whole = values.cast(pa.time64("us"), safe=False).cast(pa.int64())
    else:
        kind = pa.timestamp("us", getattr(values.type, "tz", None))
        whole = values.cast(kind, safe=False).cast(pa.int64())
    return numbers(whole) / 1e6


def words(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """As plain strings."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def merged_tallies(parts: Iterable[dict[str, CategoryCounts]]) -> dict[str, CategoryCounts]:
    """The tallies of several runs of rows as one, added in order; those of no rows do not count."""
    total: dict[str, CategoryCounts] = {}
    for part in parts:
        for name, one in part.items():
            if one.values:
                total[name] = total[name] + one if name in total else one
    return total
