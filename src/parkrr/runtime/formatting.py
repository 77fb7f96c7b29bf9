"""Bytes, seconds, counts and numbers as text."""

import re


def describe_bytes(count: float) -> str:
    """Bytes with a unit.

    Examples
    --------
    >>> from parkrr.runtime import describe_bytes
    >>> describe_bytes(4.1e9), describe_bytes(0)
    ('4.1 GB', 'nothing')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes" if count else "nothing"


def describe_seconds(seconds: float) -> str:
    """Seconds with a unit.

    Examples
    --------
    >>> from parkrr.runtime import describe_seconds
    >>> describe_seconds(0.2), describe_seconds(42.3), describe_seconds(9000)
    ('0.2 s', '42 s', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show_number(value: float) -> str:
    """A number with four digits, or whole with thousands separators.

    Zeros at the end show that it was rounded: 1.0003 is 1.000, and 1 is 1.
    """
    rounded = float(f"{value:.4g}")
    if 1e4 <= abs(rounded) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if rounded == value else f"{value:#,.4g}".rstrip(".")


def shorten_numbers(text: str) -> str:
    """A text, such as that of a kernel, with numbers of four digits."""
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.4g}", text)


def describe_count(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun in the singular or plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
