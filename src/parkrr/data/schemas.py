"""One schema for many files: every column of any of them, in a type that holds all its values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

UNITS = ("s", "ms", "us", "ns")  # of time, the finest last
PLACES = 4  # named of a column whose type differs


@dataclass(frozen=True)
class CommonSchema:
    """The schema of many files, and in which columns these differ."""

    schema: pa.Schema
    promotions: Mapping[str, str]  # by column: where it has which type, and as what it is read
    conflicts: Mapping[str, str]  # where it has which type, if no type holds all of these


def unify_schemas(
    order: Sequence[str], folders: pa.Schema, paths: Sequence[str], schemas: Sequence[pa.Schema]
) -> CommonSchema:
    """The union of the columns of all files, each in a type that holds all its values.

    Parameters
    ----------
    order
        Names of columns, some of which may be in no file; others follow.
    folders
        Columns that names of folders hold.
    paths, schemas
        Of each file.
    """
    # Files with the same columns are treated as one: there may be 10^5 of them.
    alike: dict[tuple[tuple[str, pa.DataType], ...], list[str]] = {}
    last: pa.Schema | None = None
    columns: tuple[tuple[str, pa.DataType], ...] = ()
    for path, schema in zip(paths, schemas, strict=True):
        if last is None or not schema.equals(last):
            last, columns = schema, tuple((column.name, column.type) for column in schema)
        alike.setdefault(columns, []).append(path)
    where: dict[str, dict[pa.DataType, str]] = {}  # the first file in which a column has a type
    for columns, files in alike.items():
        for name, kind in columns:
            where.setdefault(name, {}).setdefault(kind, repr(files[0]))
    for column in folders:
        where.setdefault(column.name, {}).setdefault(column.type, "the names of folders")
    fields, promotions, conflicts = list[pa.Field](), dict[str, str](), dict[str, str]()
    for name in dict.fromkeys([*(name for name in order if name in where), *where]):
        places = [f"{kind} in {place}" for kind, place in where[name].items()]
        common = reduce(promote, where[name])
        if common is None:
            conflicts[name] = ", ".join(places[:PLACES])
            continue
        fields.append(pa.field(name, common))
        lacking = [files for columns, files in alike.items() if name not in dict(columns)]
        if lacking and name not in folders.names:
            count = sum(map(len, lacking))
            places.append(f"missing in {count} of {len(paths)} files such as {lacking[0][0]!r}")
        if len(places) > 1:
            promotions[name] = f"{', '.join(places[:PLACES])}; read as {common}"
    return CommonSchema(pa.schema(fields), promotions, conflicts)


def promote(a: pa.DataType | None, b: pa.DataType | None) -> pa.DataType | None:
    """A type that holds the values of both; None if there is none.

    Numbers follow numpy. Reading is checked: an integer that float64 would round is refused with
    its file.
    """
    if a is None or b is None or a == b:
        return None if a is None or b is None else a
    t = pa.types
    if t.is_null(a) or t.is_null(b):
        return b if t.is_null(a) else a
    if is_number(a) and is_number(b):
        return pa.from_numpy_dtype(np.promote_types(a.to_pandas_dtype(), b.to_pandas_dtype()))
    if (is_number(a) and t.is_decimal(b)) or (t.is_decimal(a) and is_number(b)):
        return pa.float64()
    if is_text(a) and is_text(b):
        wide = any(t.is_large_string(getattr(kind, "value_type", kind)) for kind in (a, b))
        return pa.large_string() if wide else pa.string()
    if is_date(a) and is_date(b):
        return promote_dates(a, b)
    if is_text(a) or is_text(b):  # Arrow would take strings for bytes
        return None
    pair = [pa.schema([("", kind)]) for kind in (a, b)]
    try:  # units of times, precisions of decimals, lists
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def promote_dates(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """For dates and time stamps: the finer unit, and UTC if zones differ; none without a zone."""
    stamps = [kind for kind in (a, b) if pa.types.is_timestamp(kind)]
    if not stamps:
        return pa.date64()
    zones = {kind.tz for kind in stamps}
    if len(stamps) == 1 and zones != {None}:  # a day begins elsewhere in each zone
        return None
    if None in zones and len(zones) > 1:
        return None
    units = [kind.unit if pa.types.is_timestamp(kind) else "ms" for kind in (a, b)]
    return pa.timestamp(max(units, key=UNITS.index), zones.pop() if len(zones) == 1 else "UTC")


def is_number(kind: pa.DataType) -> bool:
    """Whether numpy has that type of numbers or booleans."""
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether it is a type of strings, or of a dictionary of strings."""
    t = pa.types
    kind = kind.value_type if t.is_dictionary(kind) else kind
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def is_date(kind: pa.DataType) -> bool:
    """Whether it is a type of days or of time stamps."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))
