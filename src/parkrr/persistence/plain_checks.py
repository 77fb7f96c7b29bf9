"""Rules for plain data out of a file: what a field may be, and which fields there must be.

Knows text, numbers, lists and objects, not what they mean. Tests say yes or no; checks raise
ValueError with the name of what is wrong.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import Any, get_type_hints

Test = Callable[[Any], bool]
NOT_FINITE = {"nan", "inf", "-inf"}  # how a file has numbers that JSON has not


def is_word(value: Any) -> bool:
    """Whether that is text."""
    return isinstance(value, str)


def is_truth(value: Any) -> bool:
    """Whether that is true or false."""
    return isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Whether that is a whole number >= 0."""
    return type(value) is int and value >= 0


def is_number(value: Any) -> bool:
    """Whether that is a number; whatever a file holds is finite."""
    return type(value) in (int, float)


def is_positive(value: Any) -> bool:
    """Whether that is a number > 0."""
    return is_number(value) and value > 0


def is_any_number(value: Any) -> bool:
    """Whether that is a number or the name of one that is not finite."""
    return is_number(value) or (is_word(value) and value in NOT_FINITE)


def is_scalar(value: Any) -> bool:
    """Whether that has no parts."""
    return value is None or isinstance(value, str | int | float)


def is_object(value: Any) -> bool:
    """Whether that has named parts."""
    return isinstance(value, dict)


def is_labels(value: Any) -> bool:
    """Whether that is one label or more of one kind, in order, none of them twice."""
    if not isinstance(value, list) or not value:
        return False
    [*kinds] = {type(label) for label in value}
    return kinds in ([str], [int], [float], [bool]) and is_increasing(value)


def is_increasing(values: list[Any]) -> bool:
    """Whether each is larger than the one before."""
    return all(a < b for a, b in pairwise(values))


def is_one_of(names: Iterable[str]) -> Test:
    """Whether a value is one of these words."""
    return lambda value: is_word(value) and value in names


def maybe(test: Test) -> Test:
    """Whether a value is null or passes."""
    return lambda value: value is None or test(value)


def list_of(test: Test) -> Test:
    """Whether a value is a list of what passes."""
    return lambda value: isinstance(value, list | tuple) and all(map(test, value))


def object_of(test: Test) -> Test:
    """Whether a value is an object of what passes."""
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


TYPES: dict[Any, Test] = {str: is_word, bool: is_truth, int: is_whole, float: is_number}
LOOSE = {**TYPES, float: is_any_number, float | None: maybe(is_any_number)}


def check_record(
    where: str, data: Any, kind: type, tests: Mapping[Any, Test] = TYPES, defaults: bool = False
) -> None:
    """Refuse data that are not the fields of a dataclass, each of its type.

    With `defaults` those that have one may be missing, as in files from before they were there.
    """
    hints = get_type_hints(kind)
    own = fields(kind)
    if defaults and isinstance(data, dict):
        own = tuple(field for field in own if field.name in data or field.default is MISSING)
    check_fields(where, data, {field.name: tests[hints[field.name]] for field in own})


def check_fields(where: str, data: Any, tests: Mapping[str, Test]) -> None:
    """Refuse anything but an object with exactly these fields, each passing its test."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be an object")
    check_names(where, data, tests)
    for name, test in tests.items():
        if not test(data[name]):
            raise ValueError(f"{name!r} of {where} cannot be {repr(data[name])[:50]}")


def check_names(where: str, found: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that are missing, and such that are not known."""
    missing, unknown = sorted(set(known) - set(found)), sorted(set(found) - set(known))
    if missing:
        raise ValueError(f"{where} must have {missing[0]!r}")
    if unknown:
        raise ValueError(f"{where} cannot have {unknown[0][:50]!r}")


def check(holds: bool, rule: str) -> None:
    """Refuse what does not hold."""
    if not holds:
        raise ValueError(rule)
