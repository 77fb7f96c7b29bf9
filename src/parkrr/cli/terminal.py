"""Text, tables and JSON on stdout; messages, warnings and errors on stderr."""

import json
import logging
import math
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from textwrap import fill
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 100  # columns: longer lines are hard to read, whatever the terminal
WHOLE: Any = {"break_long_words": False, "break_on_hyphens": False}
UNIT = re.compile(r"(\d) (s|min|h|bytes|kB|MB|GB|TB)\b")


def console(stream: TextIO) -> Console:
    """Where to print; markup is off, because messages contain brackets."""
    width = None if stream.isatty() else WIDEST
    out = Console(file=stream, markup=False, highlight=False, emoji=False, width=width)
    out.width = min(out.width, WIDEST)
    return out


def show(text: str = "", indent: int = 0) -> None:
    """Print lines of results on stdout."""
    print_lines(sys.stdout, text, "", indent)


def say(text: str, style: str = "", indent: int = 0) -> None:
    """Print a message on stderr."""
    print_lines(sys.stderr, text, style, indent)


def print_lines(stream: TextIO, text: str, style: str, indent: int) -> None:
    """Print lines, in a terminal wrapped at spaces, with an indent from the second line on.

    A path or a command stays whole so that it can be copied, as does a number with its unit.
    """
    out = console(stream)
    for line in text.split("\n"):
        if stream.isatty():
            line = UNIT.sub("\\1\xa0\\2", line)  # noqa: PLW2901
            line = fill(line, out.width, subsequent_indent=" " * indent, **WHOLE)  # noqa: PLW2901
        out.print(Text(line.replace("\xa0", " "), style=style), soft_wrap=True)


def show_table(table: Table) -> None:
    """Print a table without the spaces that fill its lines."""
    out = console(sys.stdout)
    with out.capture() as lines:
        out.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines.get().splitlines()))


def show_json(data: Any) -> None:
    """Print one JSON document; numbers that are not finite are null."""
    print(json.dumps(as_plain(data), indent=1))


def as_plain(value: Any) -> Any:
    """Data that JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): as_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


@contextmanager
def messages(quiet: bool) -> Iterator[None]:
    """Show warnings of parkrr as lines on stderr, and its log unless quiet."""

    def show_warning(message: Warning | str, *_: Any) -> None:
        say(f"warning: {message}", "yellow")

    handler, log = logging.StreamHandler(sys.stderr), logging.getLogger("parkrr")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning  # type: ignore[assignment]
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def show_error(kind: str, message: str, as_json: bool) -> None:
    """Show why a run failed: with --json on stdout, else on stderr."""
    if as_json:
        show_json({"error": {"kind": kind, "message": message}})
    else:
        say(message if kind == "Interrupted" else f"error: {message}", "red")


def show_traceback(error: BaseException) -> None:
    """Show where an error was raised, on stderr."""
    traceback.print_exception(error, file=sys.stderr)
