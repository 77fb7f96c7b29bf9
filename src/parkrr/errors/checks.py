"""Checks of parameters: each returns the value, or raises an error that names the rule."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from parkrr.errors.exceptions import ParameterError

COLUMN_KINDS = ("number", "category", "datetime", "text", "ignore")  # that can be declared
UNITS = {"": 1e0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def check_integer(name: str, value: Any, rule: str = "a whole number >= 1") -> int:
    """The value as an int of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ParameterError(f"{name} must be {rule}, got {value!r}")
    return int(value)


def check_integer_or(name: str, value: Any, exception: str | None) -> int | None:
    """The value as an int of at least 1, or None where it is the one exception."""
    if value is exception or (isinstance(value, str) and value == exception):
        return None
    return check_integer(name, value, f"a whole number >= 1 or {exception!r}")


def check_bool(name: str, value: Any) -> bool:
    """The value as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_positive(name: str, value: Any) -> float:
    """The value as a positive float."""
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ParameterError(f"{name} must be a positive finite number, got {value!r}")
    return float(value)


def check_share(name: str, value: Any) -> float:
    """The value as a float above 0 and at most 1."""
    if not isinstance(value, Real) or not 0 < float(value) <= 1:
        raise ParameterError(f"{name} must be a number above 0 and at most 1, got {value!r}")
    return float(value)


def check_positive_or(name: str, value: Any, exception: str | None) -> float | None:
    """The value as a positive float, or None where it is the one exception."""
    if value is exception or (isinstance(value, str) and value == exception):
        return None
    return check_positive(name, value)


def check_one_of(name: str, value: Any, allowed: Any) -> str:
    """The value, if it is one of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise ParameterError(
            f"{name} must be one of {sorted(allowed)}, got {value!r}{suggest(value, allowed)}"
        )
    return str(value)


def check_column_kinds(columns: Any) -> dict[str, str]:
    """The kinds that are declared, by the names of columns; a number k is that of x{k}."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise ParameterError(
            f"columns must be a dict such as {{'zip': 'category'}} or None, got {columns!r}"
        )
    for name, kind in columns.items():
        if kind not in COLUMN_KINDS:
            raise ParameterError(
                f"columns must declare one of {COLUMN_KINDS}, got {kind!r} for {name!r}"
                f"{suggest(kind, COLUMN_KINDS)}"
            )
    return {f"x{k}" if isinstance(k, Integral) else str(k): v for k, v in columns.items()}


def suggest(value: Any, allowed: Iterable[Any]) -> str:
    """The end of a message: the allowed name that is spelt most like the value, if one is."""
    by_letters = {str(name).lower(): name for name in allowed}
    close = difflib.get_close_matches(str(value).lower(), by_letters, n=1)
    return f"; did you mean {by_letters[close[0]]!r}?" if close else ""


def check_bytes(name: str, value: Any) -> float | None:
    """A number of bytes, which may be a string such as "4GB"; None is no limit."""
    if value is None:
        return None
    if not isinstance(value, str):
        return check_positive(name, value)
    parts = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGT]?)B?\s*", value, re.I)
    if parts is None:
        raise ParameterError(f"{name} must be bytes, such as 4e9 or '4GB', or None, got {value!r}")
    return check_positive(name, float(parts[1]) * UNITS[parts[2].upper()])
