"""Bytes, seconds and counts as a person says them."""


def told_bytes(count: float) -> str:
    """Bytes in words.

    Examples
    --------
    >>> from parkrr.runtime.formatting import told_bytes
    >>> told_bytes(4.1e9), told_bytes(0)
    ('4.1 GB', 'nothing')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes" if count else "nothing"


def told_seconds(seconds: float) -> str:
    """Seconds in words.

    Examples
    --------
    >>> from parkrr.runtime.formatting import told_seconds
    >>> told_seconds(0.2), told_seconds(42.3), told_seconds(600), told_seconds(9000)
    ('0.2 s', '42 s', '10 min', '2.5 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its word."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
