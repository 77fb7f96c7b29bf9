"""Plain data out of a file: text, numbers, lists and objects, parsed from JSON and checked.

Parsing is limited in memory. Schemas say which fields an object must have, and of which types.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, get_type_hints

import msgspec

# Python objects take more memory than their text: "[[],[]]" takes 64 bytes for every 3. A text may
# need this much more than the size of its file; a model of 10^5 cells in a file of 35 MB needs 80.
ALLOWANCE = 2**26
COSTS = {"[": 64, "{": 240, ",": 40}  # bytes
WORDING = (
    (r"^Object missing required field `(.*)`", r"must have '\1'"),
    (r"^Object contains unknown field `(.{,50}).*`", r"cannot have '\1'"),
    (r"^Invalid (?:enum )?value (.{,50}).*", r"cannot be \1"),
    (r"^Expected ", "must be "),
    (r"^Number out of range", "must fit 64 bits"),
    (r"`", ""),
)


def parse_json(text: str, file_size: int) -> dict[str, Any]:
    """The object that a text in a file of that many bytes describes."""
    check_memory(text, file_size)
    data = json.loads(text, object_pairs_hook=reject_duplicates)
    if not isinstance(data, dict):
        raise ValueError("its header must be an object of JSON")
    check_portable(data)
    return data


def check_memory(text: str, file_size: int) -> None:
    """Refuse a text whose data would take far more memory than its file."""
    needed = sum(cost * text.count(mark) for mark, cost in COSTS.items())
    if needed > file_size + ALLOWANCE:
        raise ValueError(f"its header would take {(len(text) + needed) / 1e6:,.0f} MB of memory")


def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, unless it has a name twice."""
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:50]!r} is there twice")
    return data


def check_portable(value: Any) -> None:
    """Refuse what is not plain data, or what another language could not read."""
    if isinstance(value, dict):
        check_portable([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        if not is_portable_column(value):
            for inner in value:
                check_portable(inner)
    elif isinstance(value, str):
        value.encode()  # fails for half of a surrogate pair
    elif isinstance(value, int | float):
        if not (-(2**63) <= value < 2**63 if isinstance(value, int) else math.isfinite(value)):
            raise ValueError(f"numbers must be finite and fit 64 bits, got {repr(value)[:40]}")
    elif value is not None:
        raise TypeError(f"plain data must be text, numbers, lists and objects, got {value!r}")


def is_portable_column(values: Sequence[Any]) -> bool:
    """Whether a list has values of one type, all portable, as columns of `report_` have.

    To check 1.4 million values of 10^5 cells one by one took 4 s, most of loading a model.
    """
    types = set(map(type, values))
    if types == {float}:
        return all(map(math.isfinite, values))
    if types == {int}:
        return bool(min(values) >= -(2**63) and max(values) < 2**63)
    if types == {str}:
        "".join(values).encode()  # fails for half of a surrogate pair
        return True
    return types <= {bool} or types == {type(None)}


def define(name: str, /, **types: Any) -> Any:
    """The schema of an object with exactly these fields."""
    return msgspec.defstruct(name, types.items(), forbid_unknown_fields=True, kw_only=True)


def define_like(kind: type, types: Mapping[Any, Any], columns: bool = False, **tag: str) -> Any:
    """The schema of an object with the fields of a dataclass or a named tuple.

    Some of their types are replaced. With `columns` it has a list of values for each field, of many
    such objects.
    """
    hints = get_type_hints(kind)
    rows: list[Any] = []
    for name in signature(kind).parameters:
        value: Any = types.get(hints[name], hints[name])
        rows.append((name, list[value] if columns else value))
    return msgspec.defstruct(kind.__name__, rows, forbid_unknown_fields=True, **tag)  # type: ignore[arg-type]


def check_schema(where: str, data: Any, schema: Any) -> None:
    """Refuse plain data that break a schema, such as "kernel.nu must be float, got 'a'"."""
    try:
        msgspec.convert(data, schema)
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at `$")
        for pattern, wording in WORDING:
            rule = re.sub(pattern, wording, rule, flags=re.DOTALL)
        if rule.startswith("must be") and "[...]" not in path:
            for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
                data = data[name or int(index)]
            rule = f"{rule.partition(', got')[0]}, got {repr(data)[:50]}"
        raise ValueError(f"{where}{path.rstrip('`')} {rule}") from error


def require(holds: bool, rule: str) -> None:
    """Raise the rule as a ValueError unless it holds."""
    if not holds:
        raise ValueError(rule)
