"""Table columns as numbers: numbers, booleans, dates and times, categories, missing values.

How to encode a column is learned from a sample of rows, for categories from counts over all rows,
and kept as plain data.

Many categories are described by means of the target. The code of a training row must not know its
own target, so rows are divided into folds: a row gets means over the other folds, a validation row
means over all folds of training rows, and a new row means over all rows.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parkrr.data.rows import mix_bits
from parkrr.errors import ParameterError

ONE_HOT = 20  # categories up to which each has a column of its own
RARE = 10  # rows below which a category has none
SHRINK = 20.0  # rows with the overall mean that are added to those of a category
MOST_CATEGORIES = 100_000  # kept of one column, the most frequent
MOST_MEANS = 10  # outputs whose means describe a category
FOLDS = 5  # of training rows; validation rows are one more
DAY = 86_400.0
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}  # seconds

Array = NDArray[np.floating[Any]]


@final
@dataclass(frozen=True)
class Number:
    """A number, or a boolean as 0 and 1."""

    name: str  # of the column
    fill: float  # replaces a value that is missing or not finite
    flagged: bool  # whether a second column is 1 where that happened

    @property
    def width(self) -> int:
        return 1 + self.flagged

    def encode(self, values: pa.ChunkedArray) -> Array:
        x = as_numbers(values, self.name)
        if not self.flagged and np.isfinite(x.sum()):  # one cheap test for all of them
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
    """A date or time: seconds, and its position in the day, the week and the year."""

    name: str  # of the column
    fill: float  # seconds that replace a missing value
    flagged: bool  # whether a last column is 1 where that happened
    elapsed: bool  # whether seconds are a column
    turns: tuple[str, ...]  # the PERIODS whose sine and cosine are columns

    @property
    def width(self) -> int:
        return self.elapsed + 2 * len(self.turns) + self.flagged

    def encode(self, values: pa.ChunkedArray) -> Array:
        s = as_seconds(values)
        missing = ~np.isfinite(s)
        s = np.where(missing, self.fill, s)
        parts = [s] if self.elapsed else []
        for period in self.turns:
            angle = 2 * np.pi * s / PERIODS[period]
            parts += [np.sin(angle), np.cos(angle)]
        return np.stack([*parts, missing] if self.flagged else parts, 1)


@final
@dataclass(frozen=True)
class Category:
    """A category: each value has a row of numbers, all other values share one.

    Few categories have a column each. Many are described by the mean of each target, shrunk
    towards that of all rows, (sum + k mean) / (count + k), and by how frequent they are.
    """

    name: str  # of the column
    values: tuple[str | None, ...]  # the categories; None is a missing value
    codes: tuple[tuple[float, ...], ...]  # the numbers of each category
    other: tuple[float, ...]  # the numbers of a category that is rare or new

    @property
    def width(self) -> int:
        return len(self.other)

    @property
    def by_target(self) -> bool:
        """Whether codes are means of targets and not a column for each category."""
        if len(self.values) != self.width:  # before the matrix of 10^5 categories, of 80 GB
            return bool(self.values)
        return not np.array_equal(self.codes, np.eye(self.width))

    def encode(self, values: pa.ChunkedArray) -> Array:
        codes = np.array([*self.codes, self.other], dtype=np.float64)
        encoded: Array = codes[self.indices(values)]
        return encoded

    def indices(self, values: pa.ChunkedArray) -> NDArray[np.int64]:
        """The number of the category of each row, (n,); one more for all others."""
        index = pc.index_in(as_strings(values), value_set=pa.array(self.values, pa.string()))
        numbers: NDArray[np.int64] = index.fill_null(len(self.values)).to_numpy()
        return numbers


ColumnEncoder = Number | DateTime | Category
# By their names in model files.
KINDS: dict[Any, Any] = {"Number": Number, "Moment": DateTime, "Category": Category}


@dataclass(frozen=True)
class TableEncoder:
    """Encodes the columns of a table, one after the other.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from parkrr.data.encoders import learn_columns
    >>> table = pa.table({"x": [1.0, None], "open": [True, False]})
    >>> learn_columns(table, {}).new_rows.encode(table)
    array([[1., 0., 1.],
           [1., 1., 0.]])
    """

    columns: tuple[ColumnEncoder, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def by_target(self) -> list[str]:
        """Columns that are encoded by means of targets."""
        return [c.name for c in self.columns if isinstance(c, Category) and c.by_target]

    @property
    def owners(self) -> list[int]:
        """The column each number comes from, (width,)."""
        return [k for k, column in enumerate(self.columns) for _ in range(column.width)]

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    def encode(self, table: pa.Table) -> Array:
        """The rows as numbers, shape (n, width); float32 where that holds all of them."""
        fits = all(fits_float32(table[name].type) for name in self.names)
        X = np.empty((len(table), self.width), dtype=np.float32 if fits else np.float64)
        start = 0
        for column in self.columns:
            stop = start + column.width
            try:
                X[:, start:stop] = column.encode(table[column.name])
            except pa.ArrowException as error:
                raise ParameterError(
                    f"column {column.name!r} must be of the type it had in fit: {error}"
                ) from error
            start = stop
        return X

    def plain(self) -> list[dict[str, Any]]:
        """As plain data."""
        names = {kind: name for name, kind in KINDS.items()}
        return [{"kind": names[type(column)], **asdict(column)} for column in self.columns]

    @classmethod
    def from_plain(cls, data: Iterable[dict[str, Any]]) -> "TableEncoder":
        """The encoder that plain data describe."""
        columns = []
        for column in data:
            fields = {k: tuple(v) if isinstance(v, list) else v for k, v in column.items()}
            if "codes" in fields:
                fields["codes"] = tuple(map(tuple, fields["codes"]))
            columns.append(KINDS[fields.pop("kind")](**fields))
        return cls(tuple(columns))


class TrainingEncoder(NamedTuple):
    """Encodes training and validation rows, whose codes do not know their own targets."""

    new_rows: TableEncoder
    fold_codes: dict[str, Array]  # of columns encoded by targets, (folds + 1, k + 1, width)

    def encode(self, table: pa.Table, fold: NDArray[np.integer[Any]]) -> Array:
        """Rows of folds (n,) as numbers, shape (n, width)."""
        X, start = self.new_rows.encode(table), 0
        for column in self.new_rows.columns:
            stop = start + column.width
            if column.name in self.fold_codes and isinstance(column, Category):
                codes = self.fold_codes[column.name]
                X[:, start:stop] = codes[fold, column.indices(table[column.name])]
            start = stop
        return X


def assign_folds(
    numbers: NDArray[np.integer[Any]], seed: int, validation_share: float
) -> NDArray[np.int8]:
    """The fold of each row from its number, (n,): `FOLDS` of training rows, then validation rows.

    Rows with the same number, such as that of their group, are in the same fold.
    """
    mixed = mix_bits(numbers.astype(np.uint64) + mix_bits(np.array([seed], dtype=np.uint64)))
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    folds = (mixed % np.uint64(FOLDS)).astype(np.int8)
    return np.where(share < validation_share, FOLDS, folds).astype(np.int8)


@dataclass(frozen=True)
class CategoryCounts:
    """Rows and sums of targets of every category of one column, which tasks add up."""

    values: tuple[str | None, ...]  # the categories, sorted, None last
    sums: Array  # rows and the sum of each target, of each fold, (k, folds + 1, 1 + t)

    def __add__(self, other: "CategoryCounts") -> "CategoryCounts":
        total: dict[str | None, Array] = dict(zip(self.values, self.sums, strict=True))
        for value, sums in zip(other.values, other.sums, strict=True):
            total[value] = total[value] + sums if value in total else sums
        frequent = sorted(total, key=lambda value: -total[value][:, 0].sum())[:MOST_CATEGORIES]
        frequent.sort(key=lambda value: (value is None, value))
        return CategoryCounts(tuple(frequent), np.stack([total[value] for value in frequent]))


def count_categories(
    values: pa.ChunkedArray, Y: Array, fold: NDArray[np.integer[Any]], w: Array | None = None
) -> CategoryCounts:
    """The categories of some rows, with targets Y (n, t), folds (n,) and weights (n,)."""
    w = np.ones(len(Y)) if w is None else w
    coded = pc.dictionary_encode(as_strings(values), null_encoding="encode").combine_chunks()
    names = coded.dictionary.to_pylist()
    index = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64) * (FOLDS + 1) + fold
    size = len(names) * (FOLDS + 1)
    columns = [np.bincount(index, weights=y, minlength=size) for y in (w, *(w * Y.T))]
    order = sorted(range(len(names)), key=lambda k: (names[k] is None, names[k]))
    sums = np.stack(columns, 1).astype(np.float64).reshape(len(names), FOLDS + 1, -1)
    return CategoryCounts(tuple(names[k] for k in order), sums[order])


def add_counts(parts: Iterable[dict[str, CategoryCounts]]) -> dict[str, CategoryCounts]:
    """The counts of several runs of rows as one, added in order; parts without rows are skipped."""
    total: dict[str, CategoryCounts] = {}
    for part in parts:
        for name, counts in part.items():
            if counts.values:
                total[name] = total[name] + counts if name in total else counts
    return total


def learn_columns(sample: pa.Table, counts: dict[str, CategoryCounts]) -> TrainingEncoder:
    """How to encode the columns of a sample, categories by their counts over all rows."""
    columns: list[ColumnEncoder] = []
    fold_codes = {}
    for name, values in zip(sample.schema.names, sample.columns, strict=True):
        if name in counts:
            category, codes = learn_category(name, counts[name])
            columns.append(category)
            if codes is not None:
                fold_codes[name] = codes
        elif is_datetime(values.type):
            columns.append(learn_datetime(name, values))
        else:
            x = as_numbers(values, name)
            known = np.isfinite(x)
            fill = float(np.median(x[known])) if known.any() else 0.0
            columns.append(Number(name, fill, bool(known.any() and not known.all())))
    return TrainingEncoder(TableEncoder(tuple(columns)), fold_codes)


def learn_datetime(name: str, values: pa.ChunkedArray) -> DateTime:
    """Only what varies becomes a column: dates have no time of day."""
    time_only, s = pa.types.is_time(values.type), as_seconds(values)
    finite = np.isfinite(s)
    known = s[finite] if finite.any() else np.zeros(1)
    shortest = {"day": 0.0, "week": DAY, "year": 14 * DAY}  # spans seconds describe as well
    periods = [period for period, span in shortest.items() if np.ptp(known) > span]
    if not (known % DAY).any():
        periods = [period for period in periods if period != "day"]
    if time_only:
        periods = ["day"]
    flagged = bool(finite.any() and not finite.all())
    return DateTime(name, float(np.median(known)), flagged, not time_only, tuple(periods))


def learn_category(name: str, counts: CategoryCounts) -> tuple[Category, Array | None]:
    """A column each for few categories, means of the targets for many.

    Also returns the codes by fold, (folds + 1, k + 1, width), if there are means.
    """
    rows = counts.sums[:, :, 0].sum(1)  # (k,)
    few, t = len(rows) <= ONE_HOT, counts.sums.shape[2] - 1
    frequent = rows >= (min(RARE, rows.max()) if few else RARE)
    values = tuple(value for value, keep in zip(counts.values, frequent, strict=True) if keep)
    if few:
        one_hot, none = np.eye(len(values)), (0.0,) * len(values)
        return Category(name, values, tuple(map(tuple, one_hot.tolist())), none), None
    rare = 0.0 if frequent.all() else rows[~frequent].mean()
    sizes = np.log1p([*rows[frequent], rare])  # (k + 1,)  of no target, so of all rows

    def with_means(sums: Array) -> Array:
        """Codes (k + 1, width) from rows and sums of targets (k, 1 + t)."""
        if t > MOST_MEANS:
            return sizes[:, None]
        mean = sums[:, 1:].sum(0) / max(sums[:, 0].sum(), 1e-300)  # (t,)
        means = (sums[:, 1:] + SHRINK * mean) / (sums[:, :1] + SHRINK)
        return np.column_stack([np.vstack([means[frequent], mean]), sizes])

    *codes, other = with_means(counts.sums.sum(1)).tolist()
    category = Category(name, values, tuple(map(tuple, codes)), tuple(other))
    training = counts.sums[:, :FOLDS]
    others = [training.sum(1) - training[:, k] for k in range(FOLDS)]
    return category, np.stack([*map(with_means, others), with_means(training.sum(1))])


def is_category(kind: pa.DataType) -> bool:
    """Whether columns of that type hold categories."""
    t = pa.types
    tests = (t.is_dictionary, t.is_string, t.is_large_string, t.is_string_view)
    return any(test(kind) for test in tests)


def is_datetime(kind: pa.DataType) -> bool:
    """Whether columns of that type are dates or times."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def fits_float32(kind: pa.DataType) -> bool:
    """Whether float32 holds every number of that type."""
    narrow = (pa.float16(), pa.float32(), pa.bool_(), pa.int8(), pa.uint8(), pa.int16())
    return kind in (*narrow, pa.uint16())


def category_columns(schema: pa.Schema, names: Iterable[str]) -> list[str]:
    """The columns whose categories must be counted."""
    return [name for name in names if is_category(schema.field(name).type)]


def largest_width(schema: pa.Schema, names: Iterable[str]) -> int:
    """Numbers that columns of these types may become, at most."""
    kinds = [schema.field(name).type for name in names]
    return sum(ONE_HOT if is_category(k) else 8 if is_datetime(k) else 2 for k in kinds)


def as_numbers(values: pa.ChunkedArray, name: str = "") -> Array:
    """As floats, missing values as NaN, shape (n,)."""
    kind = values.type
    if pa.types.is_duration(kind):
        values = values.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        if not (pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
            raise ParameterError(
                f"features must be numbers, booleans, strings, dates or times, but {name!r} is "
                f"{kind}; name the other columns in features="
            )
        values = values.cast(pa.int8() if pa.types.is_boolean(kind) else pa.float64())
    x: Array = values.to_numpy()
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def as_seconds(values: pa.ChunkedArray) -> Array:
    """Dates as seconds since 1970, times as seconds since midnight; missing values as NaN."""
    time_only, zone = pa.types.is_time(values.type), getattr(values.type, "tz", None)
    kind = pa.time64("us") if time_only else pa.timestamp("us", zone)
    return as_numbers(values.cast(kind, safe=False).cast(pa.int64())) / 1e6


def as_strings(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """As plain strings."""
    values = decode_dictionary(values)
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def decode_dictionary(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a dictionary; other columns as they are."""
    kind = values.type
    return values.cast(kind.value_type) if pa.types.is_dictionary(kind) else values
