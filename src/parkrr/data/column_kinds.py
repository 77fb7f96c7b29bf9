"""What a column holds: numbers, booleans, dates, times, categories, free text, or text of these.

The kind of a column follows from its Arrow type, from the values of text, or from what the user
declares. Values are then read by kind, whatever type they come in; what cannot be read is refused
with the type of the fit and the type that came.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parkrr.errors import ParameterError

READABLE = 0.95  # of the values of text, from which it is read as numbers, booleans, dates or times
DECLARED_READABLE = 0.5  # the same where the user declares it: fewer, and it was a mistake
# From so many values on, and that share, a single word beside numbers or dates stands for a missing
# one. A column of numbers with 11 % "unknown" was a category, and had no information left.
WORD_VALUES = 20
SAMPLED_VALUES = 100_000  # of text, from which its kind is learned
# Text is no category if values of so many rows make up less than this share of them,
# and if a value has so many tokens with a letter on average.
REPEATED_ROWS, REPEATED_SHARE, TOKENS_PER_VALUE = 10, 0.5, 1.5
TOKEN_BREAK, LETTER = r"[^\pL\pN]+", r"\pL"  # anything but letters and digits; one letter
# Thousands are set apart by commas. A value such as 007 is a code.
NUMBER = r"^[+-]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$"
CODE = r"^[+-]?0\d"
TIME = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?P<fraction>\.\d+)?)?"
    r"(?: ?(?P<half>[AaPp][Mm]))?"
)
# What comes first in a date: the year as in ISO 8601, the day or the month.
DATES = {
    "year": r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "day": r"(?P<day>\d{1,2})[-/.](?P<month>\d{1,2})[-/.](?P<year>\d{4})",
    "month": r"(?P<month>\d{1,2})[-/.](?P<day>\d{1,2})[-/.](?P<year>\d{4})",
}
ZONE = r"(?: ?(?P<zone>Z|[+-]\d{2}:?\d{2}))?"
TRUE, FALSE = ("true", "t", "yes", "y", "on"), ("false", "f", "no", "n", "off")
# Spellings of a missing value, in text that is otherwise read.
MISSING = ("", "na", "n/a", "nan", "nat", "null", "none", "<na>", "-", "?", ".")
# What each kind can be read from; text is read value by value.
SOURCES = {
    "number": ("number", "boolean", "text"),
    "boolean": ("boolean", "number", "text"),
    "duration": ("duration",),
    "datetime": ("datetime", "text"),
    "time": ("time", "text"),
}
# What else than text and nulls may be declared to be so.
DECLARABLE = {"number": ("number", "boolean", "duration"), "datetime": ("datetime", "time")}
PLURALS = {
    "number": "numbers",
    "boolean": "booleans",
    "duration": "durations",
    "datetime": "dates",
    "time": "times of day",
    "category": "categories",
    "text": "text",
}

Array = NDArray[np.floating[Any]]


def family_of(kind: pa.DataType) -> str:
    """What values of that type are: a key of PLURALS, "missing" for nulls, or "" for others."""
    t = pa.types
    kind = kind.value_type if t.is_dictionary(kind) else kind
    tests = {
        "number": (t.is_integer, t.is_floating, t.is_decimal),
        "boolean": (t.is_boolean,),
        "text": (t.is_string, t.is_large_string, t.is_string_view),
        "datetime": (t.is_date, t.is_timestamp),
        "time": (t.is_time,),
        "duration": (t.is_duration,),
        "missing": (t.is_null,),
    }
    return next((name for name, each in tests.items() if any(test(kind) for test in each)), "")


def name_type(kind: pa.DataType) -> str:
    """The name of a type as users of pandas know it."""
    if pa.types.is_dictionary(kind):
        return f"category of {name_type(kind.value_type)}"
    names = {"double": "float64", "float": "float32", "halffloat": "float16"}
    text = str(kind).removeprefix("large_").removesuffix("_view")
    return names.get(text, text)


def find_kinds(sample: pa.Table, declared: Mapping[str, str]) -> dict[str, str]:
    """The kind of each column, from what is declared, its type, and the values of text."""
    unknown = [name for name in declared if name not in sample.schema.names]
    if unknown:
        raise ParameterError(
            f"columns must name columns of X, but {unknown} are not among {sample.schema.names}"
        )
    return {name: find_kind(name, sample[name], declared.get(name)) for name in sample.schema.names}


def find_kind(name: str, values: pa.ChunkedArray, declared: str | None) -> str:
    """The kind of one column."""
    family = family_of(values.type)
    if declared == "ignore":
        return "ignore"
    if not family:
        raise ParameterError(
            f"features must be numbers, booleans, strings, dates or times, but {name!r} is "
            f"{values.type}; leave it out, or declare "
            f"columns={{{name!r}: 'ignore'}}"
        )
    if declared == "category" or (declared == "text" and family in ("text", "missing")):
        return declared
    if family == "missing":
        return "datetime" if declared == "datetime" else "number"
    if family == "text":
        if declared is None and pa.types.is_dictionary(values.type):
            return "category"
        return recognize_text(name, values, declared)
    if declared is not None and family not in DECLARABLE.get(declared, ()):
        raise ParameterError(
            f"columns must declare a kind that a column can be read as, but {name!r} is "
            f"{name_type(values.type)}, not {declared!r}; convert it first"
        )
    return family


def recognize_text(name: str, values: pa.ChunkedArray, declared: str | None) -> str:
    """What text is: numbers, booleans, dates or times if nearly all values are, else categories."""
    text, rows = count_texts(values)
    if not len(text):
        return declared or "category"
    kinds = {None: ("number", "boolean", "datetime", "time"), "number": ("number", "boolean")}
    first = choose_date_order(text, rows)
    is_read = {
        kind: ~np.isnan(read_text(text, kind, first))
        for kind in kinds.get(declared, ("datetime", "time"))
    }
    shares = {kind: float(rows[each].sum() / rows.sum()) for kind, each in is_read.items()}
    best = max(shares, key=lambda kind: shares[kind])
    if declared is not None:
        if shares[best] < DECLARED_READABLE:
            example = text[int(np.flatnonzero(~is_read[best])[0])].as_py()
            raise ParameterError(
                f"columns must declare a kind that a column can be read as, but {name!r} holds "
                f"text such as {example!r}, not {declared!r}; convert it first (dates are written "
                f"as 2024-01-31 or 31/01/2024, where one value tells day from month)"
            )
        return best
    if best == "number" and pc.any(pc.match_substring_regex(text, CODE)).as_py():
        return "category"
    # Where "yes" stands beside "none" only, that is a category and not a missing value.
    if best == "boolean" and not {0.0, 1.0} <= {*read_text(text, best).tolist()}:
        return "category"
    read = int(is_read[best].sum())
    one_word = read == len(text) - 1 and read >= WORD_VALUES
    if shares[best] >= (DECLARED_READABLE if one_word else READABLE):
        return best
    repeated = rows[rows >= REPEATED_ROWS].sum() >= REPEATED_SHARE * rows.sum()
    tokens, row = split_tokens(text)
    row = row[pc.match_substring_regex(tokens, LETTER).to_numpy(zero_copy_only=False)]
    several = rows[row].sum() >= TOKENS_PER_VALUE * rows.sum()
    return "text" if several and not repeated else "category"


def find_date_order(values: pa.ChunkedArray) -> str:
    """What comes first in dates that are text: a key of DATES; "year" for other columns."""
    if family_of(values.type) != "text":
        return "year"
    return choose_date_order(*count_texts(values))


def choose_date_order(text: pa.Array, rows: NDArray[np.int64]) -> str:
    """The order of dates that most rows can be read in; "year" if day and month look the same."""
    read = {first: rows[~np.isnan(read_text(text, "datetime", first))].sum() for first in DATES}
    if read["day"] == read["month"]:
        return "year"
    return max(read, key=lambda first: read[first])


def count_texts(values: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """Trimmed texts of a column that are not missing, or of a sample of it, and their rows."""
    step = max(1, len(values) // SAMPLED_VALUES)
    counted = as_strings(values.take(np.arange(0, len(values), step))).value_counts()
    text, rows = trim(counted.field("values")), counted.field("counts").to_numpy()
    known = ~is_missing(text)
    return text.filter(pa.array(known)), rows[known]


def split_tokens(text: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The tokens of some texts in lower case, and the number of the text each is in, (tokens,).

    A token that is in a text twice is there once.
    """
    parts = pc.split_pattern_regex(pc.utf8_lower(text), TOKEN_BREAK)
    tokens, row = pc.list_flatten(parts), pc.list_parent_indices(parts).to_numpy()
    coded = tokens.dictionary_encode()
    pair = row * (len(coded.dictionary) + 1) + coded.indices.to_numpy()
    _, first = np.unique(pair, return_index=True)
    first = first[pc.not_equal(tokens.take(first), "").to_numpy(zero_copy_only=False)]
    return tokens.take(first), row[first]


# Values of text.


def trim(text: Any) -> Any:
    """Text without spaces around it."""
    return pc.utf8_trim_whitespace(text)


def is_missing(text: Any) -> NDArray[np.bool_]:
    """Whether each text is null or a spelling of a missing value, (n,)."""
    spelled = pc.is_in(pc.utf8_lower(text), value_set=pa.array(MISSING))
    missing: NDArray[np.bool_] = pc.or_(spelled, pc.is_null(text)).to_numpy(zero_copy_only=False)
    return missing


def read_text(text: pa.Array, kind: str, first: str = "year") -> NDArray[np.float64]:
    """Trimmed text as numbers, or seconds for dates and times, (n,); NaN where it is neither.

    In dates the year comes first, or the day or the month.
    """
    if kind == "number":
        plain = pc.replace_substring(text, ",", "")
        valid = pc.if_else(pc.match_substring_regex(text, NUMBER), plain, None)
        x = valid.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.where(np.isfinite(x), x, np.nan)  # of 1e999
    if kind == "boolean":
        index = pc.index_in(pc.utf8_lower(text), value_set=pa.array([*TRUE, *FALSE]))
        index = index.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.where(index < 0, np.nan, np.where(index < len(TRUE), 1.0, 0.0))
    pattern = f"^{TIME}$" if kind == "time" else f"^{DATES[first]}(?:[T ]{TIME}{ZONE})?$"
    parts = pc.extract_regex(text, pattern)
    valid = parts.is_valid().to_numpy(zero_copy_only=False)
    if not valid.any():
        return np.full(len(text), np.nan)

    def part(name: str) -> NDArray[np.float64]:
        """A part of each date or time as a number, 0 where it is left out."""
        digits = pc.if_else(pc.equal(parts.field(name), ""), "0", parts.field(name))
        number = digits.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.where(valid, number, 0.0)

    hour, minute, second = part("hour"), part("minute"), part("second")
    half = pc.utf8_lower(parts.field("half")).fill_null("").to_numpy(zero_copy_only=False)
    valid &= (half == "") | ((hour >= 1) & (hour <= 12))
    hour = np.where(half == "", hour, hour % 12 + 12 * (half == "pm"))
    valid &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = 3600 * hour + 60 * minute + second + part("fraction")
    if kind == "datetime":
        year, month, day = (part(name).astype(np.int64) for name in ("year", "month", "day"))
        months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
        days = months.astype("datetime64[D]") + (day - 1)
        valid &= (month >= 1) & (month <= 12) & (days.astype("datetime64[M]") == months)
        seconds += days.astype(np.int64) * 86_400.0 - read_offsets(parts.field("zone"))
    return np.where(valid, seconds, np.nan)


def read_offsets(zones: pa.Array) -> NDArray[np.float64]:
    """Seconds that clocks are ahead of UTC in zones such as +01:00, (n,); 0 for Z and none."""
    digits = pc.replace_substring(zones, ":", "")  # +0100
    digits = pc.if_else(pc.is_in(digits, value_set=pa.array(["", "Z"])), "+0000", digits)
    number = digits.fill_null("+0000").cast(pa.float64()).to_numpy(zero_copy_only=False)
    hours, minutes = np.divmod(np.abs(number), 100)
    offsets: NDArray[np.float64] = np.sign(number) * (3600 * hours + 60 * minutes)
    return offsets


# Values of any type.


def read_values(
    name: str, kind: str, fitted: str, values: pa.ChunkedArray, first: str = "year"
) -> Array:
    """A column as numbers, or seconds for dates and times, (n,); NaN where a value is missing.

    Text that cannot be read is missing if the column was text when it was fitted, of the type
    `fitted`; otherwise it is refused. `first` is what comes first in dates.
    """
    family = family_of(values.type)
    if family == "missing":
        return np.full(len(values), np.nan)
    if family not in SOURCES[kind]:
        raise wrong_type(name, kind, fitted, values.type)
    values = decode_dictionary(values)
    if family != "text":
        return as_seconds(values) if kind in ("datetime", "time") else as_numbers(values, name)
    text = trim(as_strings(values)).combine_chunks()
    x = read_text(text, kind, first)
    if fitted and "string" not in fitted:
        wrong = np.flatnonzero(np.isnan(x) & ~is_missing(text))
        if len(wrong):
            example = f", such as {text[int(wrong[0])].as_py()!r}"
            raise wrong_type(name, kind, fitted, values.type, example)
    return x


def wrong_type(
    name: str, kind: str, fitted: str, came: pa.DataType, example: str = ""
) -> ParameterError:
    """The error for a column that holds something else than in fit."""
    before = f" ({fitted} in fit)" if fitted else ", as in fit"
    holds = f"{PLURALS.get(family_of(came), 'something else')} ({name_type(came)})"
    ways = {
        "number": "convert it, as with pandas.to_numeric",
        "boolean": "convert it to booleans",
        "duration": "convert it, as with pandas.to_timedelta",
        "datetime": "convert it, as with pandas.to_datetime",
        "time": "convert it to times",
        "category": "read it as text, as with dtype=str of pandas.read_csv",
        "text": "convert it to text",
    }
    return ParameterError(
        f"column {name!r} must hold {PLURALS[kind]}{before}, but holds {holds} "
        f"here{example}; {ways[kind]}"
    )


def as_numbers(values: pa.ChunkedArray, name: str = "") -> Array:
    """Numbers, booleans or durations as floats, missing values as NaN, shape (n,)."""
    kind = values.type
    if pa.types.is_duration(kind):
        values = values.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        if not (pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
            raise ParameterError(f"column {name!r} must hold numbers, but is {kind}")
        values = values.cast(pa.int8() if pa.types.is_boolean(kind) else pa.float64())
    x: Array = values.to_numpy()
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def as_seconds(values: pa.ChunkedArray) -> Array:
    """Dates as seconds since 1970, times as seconds since midnight; missing values as NaN."""
    time_only, zone = pa.types.is_time(values.type), getattr(values.type, "tz", None)
    kind = pa.time64("us") if time_only else pa.timestamp("us", zone)
    return as_numbers(values.cast(kind, safe=False).cast(pa.int64())) / 1e6


def as_strings(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """As plain strings; 1.0 is "1" as 1 is, and NaN is missing."""
    values = decode_dictionary(values)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    elif pa.types.is_duration(values.type):
        values = values.cast(pa.int64())
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def decode_dictionary(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a dictionary; other columns as they are."""
    kind = values.type
    return values.cast(kind.value_type) if pa.types.is_dictionary(kind) else values
