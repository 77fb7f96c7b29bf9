"""Table columns as numbers: numbers, booleans, dates and times, categories, text, missing values.

How to encode a column is learned from a sample of rows, for categories from counts over all rows,
and kept as plain data.

Many categories are described by means of the target. The code of a training row must not know its
own target, so rows are divided into folds: a row gets means over the other folds, a validation row
means over all folds of training rows, and a new row means over all rows. So are numbers whose
single values matter, such as amounts that the law names: a kernel smooths over them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parkrr.data.column_kinds import (
    as_strings,
    decode_dictionary,
    family_of,
    find_date_order,
    find_kinds,
    name_type,
    read_values,
    split_tokens,
    wrong_type,
)
from parkrr.data.rows import mix_bits
from parkrr.errors import ParameterError
from parkrr.runtime import describe_count

ONE_HOT = 20  # categories up to which each has a column of its own
RARE = 10  # rows below which a category has none
SHRINK = 20.0  # rows with the overall mean that are added to those of a category
MOST_CATEGORIES = 100_000  # kept of one column, the most frequent; of tokens too
MOST_TOKENS = 20  # of one column that become columns
# A token must tell this much more of the target than the best of as many would by chance: the
# square of its deviation over its variance, beyond 2 log(tokens).
TOKEN_EVIDENCE = 4.0
MOST_MEANS = 10  # outputs whose means describe a category
FOLDS = 5  # of training rows; validation rows are one more
# Means at single values of a number stand beside it if they explain so much more of the target's
# variance than means at COARSE_KNOTS values. With means beside adult's capital gains and losses,
# 1 - AUC from 8,000 training rows fell from 0.087 to 0.074 (LightGBM 0.076).
SINGLE_GAIN = 0.01
COARSE_KNOTS = 12
SINGLE_VALUES = (3, 2000)  # fewest and most distinct values of such a number
SINGLE_ROWS = 5  # of a value that has a mean of its own
SINGLE_SHARE = 0.5  # of the rows, that hold such values
DAY = 86_400.0
MEDIAN_ROWS = 10_000  # of an array without missing values, whose medians wait for later ones
PRINTED = 200  # columns of a table that is printed
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}  # seconds

Array = NDArray[np.floating[Any]]


@final
@dataclass(frozen=True)
class Number:
    """A number, or a boolean as 0 and 1, or a duration in microseconds."""

    name: str  # of the column
    fill: float  # replaces a missing value
    flagged: bool  # whether a second column is 1 where that happened
    holds: str = "number"  # or "boolean", "duration"
    type: str = ""  # of Arrow, in fit
    missing: float = 0.0  # share of the rows in fit
    unused: str = ""  # why the column tells nothing
    knots: tuple[float, ...] = ()  # values at which means of the targets are known
    means: tuple[tuple[float, ...], ...] = ()  # of each target, (t, k); linear between knots

    @property
    def width(self) -> int:
        return 1 + self.flagged + len(self.means)

    @property
    def becomes(self) -> str:
        """What the column becomes."""
        text = {"boolean": "0 or 1", "duration": "microseconds"}.get(self.holds, "itself")
        text = f"{text}; whether it is missing" if self.flagged else text
        return f"{text}; means of the target at {len(self.knots)} values" if self.means else text

    def encode(self, values: pa.ChunkedArray) -> Array:
        return self.encode_numbers(read_values(self.name, self.holds, self.type, values))

    def encode_numbers(self, x: Array) -> Array:
        """The same of numbers (n,), NaN where one is missing."""
        if not self.flagged and not self.means and np.isfinite(x.sum()):  # a cheap test for all
            return x[:, None]
        missing = find_missing(x, self.name)
        x = np.where(missing, self.fill, x)
        means = (np.interp(x, self.knots, heights) for heights in self.means)
        return np.column_stack([x, missing, *means] if self.flagged else [x, *means])

    def encode_folds(self, x: Array, fold: NDArray[np.integer[Any]], heights: Array) -> Array:
        """Means of the targets for training rows with values x (n,), shape (n, t).

        Heights (folds + 1, k, t) are means at the knots for rows of each fold.
        """
        means = np.empty((len(x), len(self.means)))
        for number, own in enumerate(heights):
            chosen = fold == number
            for k, height in enumerate(own.T):
                means[chosen, k] = np.interp(x[chosen], self.knots, height)
        return means


@final
@dataclass(frozen=True)
class DateTime:
    """A date or time: seconds, and its position in the day, the week and the year."""

    name: str  # of the column
    fill: float  # seconds that replace a missing value
    flagged: bool  # whether a last column is 1 where that happened
    elapsed: bool  # whether seconds are a column
    turns: tuple[str, ...]  # the PERIODS whose sine and cosine are columns
    type: str = ""  # of Arrow, in fit
    missing: float = 0.0  # share of the rows in fit
    unused: str = ""  # why the column tells nothing
    first: str = "year"  # or "day", "month": what comes first in dates that are text

    @property
    def holds(self) -> str:
        """A date, or a time of day."""
        return "datetime" if self.elapsed else "time"

    @property
    def width(self) -> int:
        return self.elapsed + 2 * len(self.turns) + self.flagged

    @property
    def becomes(self) -> str:
        """What the column becomes."""
        turns = f"position in the {', '.join(self.turns)}"
        parts = ["seconds"] * self.elapsed + [turns] * bool(self.turns)
        parts += ["whether it is missing"] * self.flagged
        return "; ".join(parts) + ("" if self.first == "year" else f" ({self.first} first)")

    def encode(self, values: pa.ChunkedArray) -> Array:
        s = read_values(self.name, self.holds, self.type, values, self.first)
        return self.encode_seconds(s)

    def encode_seconds(self, s: Array) -> Array:
        """The same of seconds (n,), NaN where a date is missing."""
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
    type: str = ""  # of Arrow, in fit
    missing: float = 0.0  # share of the rows in fit
    unused: str = ""  # why the column tells nothing

    holds = "category"

    @property
    def width(self) -> int:
        return len(self.other)

    @property
    def becomes(self) -> str:
        """What the column becomes."""
        n = describe_count(len(self.values), "category", "categories")
        return (
            f"means of the target and sizes of {n}"
            if self.by_target
            else f"a column for each of {n}"
        )

    @property
    def by_target(self) -> bool:
        """Whether codes are means of targets and not a column for each category."""
        if len(self.values) != self.width:  # before the matrix of 10^5 categories, of 80 GB
            return bool(self.values)
        return not np.array_equal(self.codes, np.eye(self.width))

    def encode(self, values: pa.ChunkedArray) -> Array:
        family, index = family_of(values.type), self.indices(values)
        own = "text" if "string" in self.type else "number"
        if self.type and family not in (own, "missing"):
            # Numbers are known by their text. If none is, something such as 007 was read as 7.
            unseen = (index == len(self.values)) & values.is_valid().to_numpy()
            if unseen.any() and unseen.sum() == len(values) - values.null_count:
                raise wrong_type(self.name, "category", self.type, values.type)
        codes = np.array([*self.codes, self.other], dtype=np.float64)
        encoded: Array = codes[index]
        return encoded

    def indices(self, values: pa.ChunkedArray) -> NDArray[np.int64]:
        """The number of the category of each row, (n,); one more for all others."""
        index = pc.index_in(as_strings(values), value_set=pa.array(self.values, pa.string()))
        numbers: NDArray[np.int64] = index.fill_null(len(self.values)).to_numpy()
        return numbers


@final
@dataclass(frozen=True)
class FreeText:
    """Free text: how many different tokens it has, and which of some tokens that tell something."""

    name: str  # of the column
    tokens: tuple[str, ...]  # in lower case
    type: str = ""  # of Arrow, in fit
    missing: float = 0.0  # share of the rows in fit
    unused: str = ""  # why the column tells nothing

    holds = "text"

    @property
    def width(self) -> int:
        return 1 + len(self.tokens)

    @property
    def becomes(self) -> str:
        """What the column becomes."""
        n = describe_count(len(self.tokens), "token")
        return (
            f"number of tokens; whether it has each of {n}" if self.tokens else "number of tokens"
        )

    def encode(self, values: pa.ChunkedArray) -> Array:
        if family_of(values.type) not in ("text", "missing"):
            raise wrong_type(self.name, self.holds, self.type, values.type)
        tokens, row = split_tokens(as_strings(values).combine_chunks())
        index = pc.index_in(tokens, value_set=pa.array(self.tokens, pa.string()))
        known = index.is_valid().to_numpy(zero_copy_only=False)
        X = np.zeros((len(values), self.width))
        X[:, 0] = np.log1p(np.bincount(row, minlength=len(values)))
        X[row[known], 1 + index.drop_null().to_numpy()] = 1.0
        return X


@final
@dataclass(frozen=True)
class Ignored:
    """A column that was declared to be ignored."""

    name: str  # of the column
    type: str = ""  # of Arrow, in fit

    holds, becomes, missing, unused, width = "ignored", "nothing", 0.0, "", 0


ColumnEncoder = Number | DateTime | Category | FreeText | Ignored
# By their names in model files.
KINDS: dict[Any, Any] = {
    "Number": Number,
    "DateTime": DateTime,
    "Category": Category,
    "FreeText": FreeText,
    "Ignored": Ignored,
}


@dataclass(frozen=True, repr=False)
class TableEncoder:
    """Encodes the columns of a table, one after the other; printed, it is a table of them.

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

    def __repr__(self) -> str:
        names = ("column", "type", "kind", "becomes", "missing", "numbers")
        lines = [names, *(tuple(row.values()) for row in self.describe()[:PRINTED])]
        widths = [max(len(line[k]) for line in lines) for k in range(len(names))]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        more = len(self.columns) - PRINTED
        return "\n".join([*text, *([f"and {more:,} more columns"] if more > 0 else [])])

    def describe(self) -> list[dict[str, str]]:
        """The columns as texts: name, type in fit, kind, what it became, missing, numbers."""
        return [
            {
                "column": column.name,
                "type": column.type,
                "kind": column.holds,
                "becomes": f"no information: {column.unused}" if column.unused else column.becomes,
                "missing": f"{column.missing:.1%}" if column.missing else "",
                "numbers": str(column.width),
            }
            for column in self.columns
        ]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def read_names(self) -> list[str]:
        """Columns that are read."""
        return [column.name for column in self.columns if not isinstance(column, Ignored)]

    @cached_property
    def takes_numbers(self) -> bool:
        """Whether rows of finite numbers are encoded as they are."""
        kinds = ("number", "boolean")
        return all(
            isinstance(c, Number) and c.holds in kinds and c.width == 1 for c in self.columns
        )

    def rename(self, names: Sequence[str]) -> "TableEncoder":
        """The same for columns of other names."""
        pairs = zip(self.columns, names, strict=True)
        return TableEncoder(tuple(replace(column, name=name) for column, name in pairs))

    @property
    def by_target(self) -> list[str]:
        """Columns that are encoded by means of targets."""
        return [
            column.name
            for column in self.columns
            if (isinstance(column, Category) and column.by_target)
            or (isinstance(column, Number) and column.means)
        ]

    @property
    def owners(self) -> list[int]:
        """The column each number comes from, (width,)."""
        return [k for k, column in enumerate(self.columns) for _ in range(column.width)]

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    def encode(self, table: pa.Table) -> Array:
        """The rows as numbers, shape (n, width); float32 where that holds all of them."""
        fits = all(fits_float32(table[name].type) for name in self.read_names)
        X = np.empty((len(table), self.width), dtype=np.float32 if fits else np.float64)
        start = 0
        for column in self.columns:
            if isinstance(column, Ignored):
                continue
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
            for name in fields.keys() & {"codes", "means"}:
                fields[name] = tuple(map(tuple, fields[name]))
            columns.append(KINDS[fields.pop("kind")](**fields))
        return cls(tuple(columns))


class TrainingEncoder(NamedTuple):
    """Encodes training and validation rows, whose codes do not know their own targets."""

    new_rows: TableEncoder
    # Of categories encoded by targets (folds + 1, k + 1, width), of numbers (folds + 1, k, t).
    fold_codes: dict[str, Array]

    def encode(self, table: pa.Table, fold: NDArray[np.integer[Any]]) -> Array:
        """Rows of folds (n,) as numbers, shape (n, width)."""
        X, start = self.new_rows.encode(table), 0
        for column in self.new_rows.columns:
            stop = start + column.width
            if column.name in self.fold_codes and isinstance(column, Category):
                codes = self.fold_codes[column.name]
                X[:, start:stop] = codes[fold, column.indices(table[column.name])]
            elif column.name in self.fold_codes and isinstance(column, Number):
                means = stop - len(column.means)
                heights = self.fold_codes[column.name]
                X[:, means:stop] = column.encode_folds(X[:, start], fold, heights)
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
    squares: Array  # sum of the squares of each target over training rows, (t,)

    def __add__(self, other: "CategoryCounts") -> "CategoryCounts":
        total: dict[str | None, Array] = dict(zip(self.values, self.sums, strict=True))
        for value, sums in zip(other.values, other.sums, strict=True):
            total[value] = total[value] + sums if value in total else sums
        frequent = sorted(total, key=lambda value: -total[value][:, 0].sum())[:MOST_CATEGORIES]
        frequent.sort(key=lambda value: (value is None, value))
        sums = np.stack([total[value] for value in frequent])
        return CategoryCounts(tuple(frequent), sums, self.squares + other.squares)


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
    training = fold < FOLDS
    squares = (w[training, None] * Y[training] ** 2).sum(0)
    return CategoryCounts(tuple(names[k] for k in order), sums[order], squares)


ValueCounter = Callable[
    [pa.ChunkedArray, Array, NDArray[np.integer[Any]], Array | None], CategoryCounts
]


def count_tokens(
    values: pa.ChunkedArray, Y: Array, fold: NDArray[np.integer[Any]], w: Array | None = None
) -> CategoryCounts:
    """As `count_categories`, of tokens; missing values count all rows that have any."""
    tokens, row = split_tokens(as_strings(values).combine_chunks())
    rows = np.concatenate([row, np.flatnonzero(values.is_valid().to_numpy())])
    entries = pa.chunked_array([tokens, pa.nulls(len(rows) - len(row), tokens.type)])
    counts = count_categories(entries, Y[rows], fold[rows], None if w is None else w[rows])
    known, once = rows[len(row) :], np.ones(len(Y)) if w is None else w
    training = known[fold[known] < FOLDS]
    return replace(counts, squares=(once[training, None] * Y[training] ** 2).sum(0))


def find_counted(sample: pa.Table, kinds: Mapping[str, str]) -> dict[str, ValueCounter]:
    """Columns whose values are to be counted: categories, tokens, and beside them repeated numbers.

    Most rows must hold a number that is in at least `SINGLE_ROWS` rows of the sample.
    """
    of_kind: dict[str, ValueCounter] = {"category": count_categories, "text": count_tokens}
    counters = {name: of_kind[kind] for name, kind in kinds.items() if kind in of_kind}
    if not counters:  # a pass over the rows, which numbers alone do not need
        return {}
    for name, kind in kinds.items():
        values = sample[name]
        if kind != "number" or family_of(values.type) != "number":
            continue
        counts = pc.value_counts(decode_dictionary(values).drop_null()).field("counts").to_numpy()
        fewest, most = SINGLE_VALUES
        repeated = counts[counts >= SINGLE_ROWS].sum()
        if fewest <= len(counts) <= most and repeated >= SINGLE_SHARE * len(sample):
            counters[name] = count_categories
    return counters


def add_counts(parts: Iterable[dict[str, CategoryCounts]]) -> dict[str, CategoryCounts]:
    """The counts of several runs of rows as one, added in order; parts without rows are skipped."""
    total: dict[str, CategoryCounts] = {}
    for part in parts:
        for name, counts in part.items():
            if counts.values:
                total[name] = total[name] + counts if name in total else counts
    return total


def learn_columns(
    sample: pa.Table, counts: dict[str, CategoryCounts], kinds: Mapping[str, str] | None = None
) -> TrainingEncoder:
    """How to encode the columns of a sample, categories by their counts over all rows.

    Columns are of these kinds, which are found in the sample unless they are given.
    """
    kinds = find_kinds(sample, {}) if kinds is None else kinds
    columns: list[ColumnEncoder] = []
    fold_codes = {}
    for name, values in zip(sample.schema.names, sample.columns, strict=True):
        kind, fitted = kinds[name], name_type(values.type)
        if kind == "category":
            category, codes = learn_category(name, counts[name])
            columns.append(describe_category(category, counts[name], fitted))
            if codes is not None:
                fold_codes[name] = codes
        elif kind == "text":
            missing = values.is_null().to_numpy()
            columns.append(learn_free_text(name, counts[name], fitted, share_of(missing)))
        elif kind == "ignore":
            columns.append(Ignored(name, fitted))
        elif kind in ("datetime", "time"):
            first = find_date_order(values)
            s = read_values(name, kind, fitted, values, first)
            columns.append(learn_datetime(name, s, kind, fitted, first))
        else:
            number = learn_number(name, read_values(name, kind, fitted, values), kind, fitted)
            if name in counts:
                number, heights = add_means(number, counts[name])
                if heights is not None:
                    fold_codes[name] = heights
            columns.append(number)
    return TrainingEncoder(TableEncoder(tuple(columns)), fold_codes)


def learn_number(name: str, x: Array, kind: str, fitted: str) -> Number:
    """How to encode numbers (n,) of a kind, which came in that type."""
    missing = find_missing(x, name)
    known = x[~missing]
    fill = float(np.median(known)) if len(known) else 0.0
    flagged = 0 < len(known) < len(x)
    return Number(name, fill, flagged, kind, fitted, share_of(missing), find_unused(known, len(x)))


def add_means(number: Number, counts: CategoryCounts) -> tuple[Number, Array | None]:
    """The number with means of the targets at single values, if they explain enough of them.

    Also returns the means by fold, (folds + 1, k, t). Values of few rows, and new ones, lie
    between others.
    """
    known = sorted((float(v), k) for k, v in enumerate(counts.values) if v is not None)
    x = np.array([value for value, _ in known])
    sums = counts.sums[[k for _, k in known]]  # (values, folds + 1, 1 + t)
    rows, t = sums[:, :, 0].sum(1), sums.shape[2] - 1
    frequent = rows >= SINGLE_ROWS
    if frequent.sum() < SINGLE_VALUES[0] or t > MOST_MEANS:
        return number, None
    # Groups of neighbouring values with about the same number of rows each.
    groups = np.floor((np.cumsum(rows) - rows / 2) / rows.sum() * COARSE_KNOTS)
    starts = np.flatnonzero(np.diff(groups, prepend=-1.0))
    middle = np.add.reduceat(rows * x, starts) / np.add.reduceat(rows, starts)
    training = sums[:, :FOLDS]
    total = training.sum((0, 1))  # (1 + t,)
    mean = total[1:] / total[0]

    def explain(knots: Array, heights: Array, own: Array) -> Array:
        """By how much (t,) means at knots lower the squared error of rows with these sums."""
        code = np.stack([np.interp(x, knots, height) for height in heights.T], 1) - mean
        gained: Array = (code * (2 * (own[:, 1:] - own[:, :1] * mean) - own[:, :1] * code)).sum(0)
        return gained

    gain, heights = np.zeros(t), []
    for k in range(FOLDS):
        others, own = training.sum(1) - training[:, k], training[:, k]
        heights.append(shrink_means(others)[frequent])
        coarse = shrink_means(np.add.reduceat(others, starts))
        gain += explain(x[frequent], heights[-1], own) - explain(middle, coarse, own)
    variance = counts.squares - total[0] * mean**2  # times the rows
    if not (gain / np.maximum(variance, 1e-300)).mean() > SINGLE_GAIN:
        return number, None
    heights.append(shrink_means(training.sum(1))[frequent])
    means = shrink_means(sums.sum(1))[frequent].T
    knots = tuple(x[frequent].tolist())
    return replace(number, knots=knots, means=tuple(map(tuple, means.tolist()))), np.stack(heights)


def shrink_means(sums: Array) -> Array:
    """(sum + k mean) / (count + k) of each target, (v, t), from rows and sums (v, 1 + t)."""
    mean = sums[:, 1:].sum(0) / max(sums[:, 0].sum(), 1e-300)
    shrunk: Array = (sums[:, 1:] + SHRINK * mean) / (sums[:, :1] + SHRINK)
    return shrunk


def learn_numbers(X: Array, names: Sequence[str], types: Sequence[str]) -> TableEncoder:
    """How to encode columns of finite numbers (n, d), once values are missing in other rows."""
    some = X[:: max(1, len(X) // MEDIAN_ROWS)]
    fills, spread = np.median(some, axis=0), np.ptp(some, axis=0)
    constant = [s == 0 and bool((X[:, k] == X[0, k]).all()) for k, s in enumerate(spread)]
    columns = [
        Number(
            name,
            float(fill),
            False,
            "boolean" if fitted == "bool" else "number",
            fitted,
            unused="constant" if same else "",
        )
        for name, fill, fitted, same in zip(names, fills, types, constant, strict=True)
    ]
    return TableEncoder(tuple(columns))


def learn_free_text(name: str, counts: CategoryCounts, fitted: str, missing: float) -> FreeText:
    """Which tokens tell something of the target, from training rows alone.

    A token of n of N rows whose targets sum to s tells (s - n mean)^2 / (n variance (1 - n / N)),
    which is a square of a normal number if the token has nothing to do with the target.
    """
    sums = counts.sums[:, :FOLDS].sum(1)  # (tokens, 1 + t)
    is_total = np.array([value is None for value in counts.values], dtype=bool)
    total = sums[is_total].sum(0)  # (1 + t,)
    N = max(total[0], 1e-300)
    mean = total[1:] / N
    variance = np.maximum(counts.squares / N - mean**2, 1e-300)  # (t,)
    n = sums[:, 0]
    frequent = ~is_total & (n >= RARE) & (n <= N - RARE)
    rows, names = n[frequent], [counts.values[k] for k in np.flatnonzero(frequent)]
    deviation = sums[frequent, 1:] - rows[:, None] * mean
    evidence = (deviation**2 / (rows * (1 - rows / N))[:, None] / variance).max(1, initial=0.0)
    enough = 2 * np.log(max(1, len(names))) + TOKEN_EVIDENCE
    order = [k for k in np.argsort(-evidence, kind="stable") if evidence[k] > enough]
    tokens = tuple(sorted(token for k in order[:MOST_TOKENS] if (token := names[k]) is not None))
    unused = "" if tokens else "no token of 10 rows or more tells of the target"
    return FreeText(name, tokens, fitted, missing, unused)


def learn_datetime(name: str, s: Array, kind: str, fitted: str, first: str) -> DateTime:
    """Only what varies in seconds (n,) becomes a column: dates have no time of day."""
    missing = np.isnan(s)
    known = np.zeros(1) if missing.all() else s[~missing]
    shortest = {"day": 0.0, "week": DAY, "year": 14 * DAY}  # spans seconds describe as well
    periods = [period for period, span in shortest.items() if np.ptp(known) > span]
    if not (known % DAY).any():
        periods = [period for period in periods if period != "day"]
    if kind == "time":
        periods = ["day"]
    return DateTime(
        name,
        float(np.median(known)),
        bool(missing.any() and not missing.all()),
        kind != "time",
        tuple(periods),
        fitted,
        share_of(missing),
        find_unused(s[~missing], len(s)),
        first,
    )


def describe_category(category: Category, counts: CategoryCounts, fitted: str) -> Category:
    """The category with the type it came in, its share of missing values and whether it is used."""
    rows = dict(zip(counts.values, counts.sums[:, :, 0].sum(1), strict=True))
    missing = float(rows.get(None, 0.0) / max(sum(rows.values()), 1e-300))
    unused = "" if category.values else "no value is in 10 rows or more"
    if len(rows) == 1:
        unused = "missing in every row" if None in rows else "constant"
    return replace(category, type=fitted, missing=missing, unused=unused)


def find_missing(x: Array, name: str) -> NDArray[np.bool_]:
    """Whether each number (n,) is missing; infinity is refused."""
    infinite = np.isinf(x)
    if infinite.any():
        raise ParameterError(
            f"column {name!r} of X must hold finite or missing numbers, but contains infinity in "
            f"{infinite.sum()} rows; replace it, as with frame.replace([numpy.inf, -numpy.inf], "
            f"numpy.nan)"
        )
    missing: NDArray[np.bool_] = np.isnan(x)
    return missing


def share_of(chosen: NDArray[np.bool_]) -> float:
    """The share of rows (n,) that are chosen."""
    return float(chosen.mean()) if len(chosen) else 0.0


def find_unused(known: Array, n: int) -> str:
    """Why values that are known in some of n rows tell nothing; empty if they do."""
    if not len(known):
        return "missing in every row"
    return "constant" if len(known) == n and np.ptp(known) == 0 else ""


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
    if not values:  # means of all other rows would differ from fold to fold
        return Category(name, (), (), (0.0,)), None
    rare = 0.0 if frequent.all() else rows[~frequent].mean()
    sizes = np.log1p([*rows[frequent], rare])  # (k + 1,)  of no target, so of all rows

    def with_means(sums: Array) -> Array:
        """Codes (k + 1, width) from rows and sums of targets (k, 1 + t)."""
        if t > MOST_MEANS:
            return sizes[:, None]
        mean = sums[:, 1:].sum(0) / max(sums[:, 0].sum(), 1e-300)  # (t,)
        return np.column_stack([np.vstack([shrink_means(sums)[frequent], mean]), sizes])

    *codes, other = with_means(counts.sums.sum(1)).tolist()
    category = Category(name, values, tuple(map(tuple, codes)), tuple(other))
    training = counts.sums[:, :FOLDS]
    others = [training.sum(1) - training[:, k] for k in range(FOLDS)]
    return category, np.stack([*map(with_means, others), with_means(training.sum(1))])


def largest_width(schema: pa.Schema, names: Iterable[str], declared: Mapping[str, str]) -> int:
    """Numbers that columns of these types may become, at most."""
    widths = {"text": 1 + MOST_TOKENS, "category": ONE_HOT, "datetime": 8, "time": 8, "ignore": 0}
    kinds = [declared.get(name, family_of(schema.field(name).type)) for name in names]
    return sum(widths.get(kind, 2) for kind in kinds)


def fits_float32(kind: pa.DataType) -> bool:
    """Whether float32 holds every number of that type."""
    narrow = (pa.float16(), pa.float32(), pa.bool_(), pa.int8(), pa.uint8(), pa.int16())
    return kind in (*narrow, pa.uint16())
