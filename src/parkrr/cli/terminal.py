"""What a person sees: results on stdout, messages on stderr; home of rich."""

import json
import logging
import math
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# A path or a command is copied whole or not at all.
UNIT, TIE = re.compile(r"(\d) (s|min|h|bytes|kB|MB|GB|TB)\b"), "\xa0"
TIED = rf"\1{TIE}\2"
HANGING: Any = {"break_long_words": False, "break_on_hyphens": False}
WIDEST = 100  # columns: longer lines are hard to read, whatever the terminal
BAR = 30  # columns of the largest importance
MOST_FEATURES = 20  # shown
PLAIN: Any = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False}
PLAN_INDENT = 9  # of the lines of a plan, behind their names
MOST_CELLS = 10  # of the largest, and of the worst


def console(stream: TextIO) -> Console:
    """Where to print; markup is off, for messages hold brackets."""
    width = None if stream.isatty() else WIDEST
    made = Console(file=stream, markup=False, highlight=False, emoji=False, width=width)
    made.width = min(made.width, WIDEST)
    return made


def say(text: str, style: str = "", indent: int = 0) -> None:
    """A message on stderr, each line whole where nobody is looking."""
    print_lines(sys.stderr, text, style, indent)


def show(text: str = "", indent: int = 0) -> None:
    """Lines of results."""
    print_lines(sys.stdout, text, "", indent)


def print_lines(stream: TextIO, text: str, style: str, indent: int) -> None:
    """Lines whole, or in a terminal broken between words, with an indent of what follows."""
    out = console(stream)
    for line in text.split("\n"):
        told = line
        if stream.isatty():
            tied = UNIT.sub(TIED, line)  # a number is not parted from its unit
            told = fill(tied, out.width, **HANGING, subsequent_indent=" " * indent)
        out.print(Text(told.replace(TIE, " "), style=style), soft_wrap=True)


def show_table(table: Table) -> None:
    """A table without the spaces that fill up its lines."""
    out = console(sys.stdout)
    with out.capture() as drawn:
        out.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))


def show_json(data: Any) -> None:
    """One JSON document, and nothing else; what is not finite is null."""
    print(json.dumps(plain(data), indent=1))


def plain(value: Any) -> Any:
    """Data that JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


@contextmanager
def messages(quiet: bool) -> Iterator[None]:
    """Warnings and log lines of parkrr as lines on stderr; none of the latter if quiet."""
    handler = logging.StreamHandler(sys.stderr)
    log, before = logging.getLogger("parkrr"), logging.getLogger("parkrr").level
    log.addHandler(handler)
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning without the line of code that gave it."""
    say(f"warning: {message}", "yellow")


def show_error(kind: str, message: str, as_json: bool) -> None:
    """Why a run ended: for scripts on stdout, for people on stderr."""
    if as_json:
        show_json({"error": {"kind": kind, "message": message}})
    else:
        say(message if kind == "Interrupted" else f"error: {message}", "red")


def show_traceback(error: BaseException) -> None:
    """Where an error came from, on stderr."""
    traceback.print_exception(error, file=sys.stderr)


def number(value: float, digits: int = 3) -> str:
    """A number as a person would write it."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_words(n_bytes: float) -> str:
    """A size of a file."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.1f} {name}"
    return counted(int(n_bytes), "byte")


def show_fit(facts: Mapping[str, Any]) -> None:
    """What a fit chose and how well it does."""
    size = counted(facts["rows"], "row")
    show(f"{facts['model']}: fitted to {size} in {facts['total_seconds']:.1f} s")
    show()
    show_pairs(summary_pairs(facts) | ({"report": facts["report"]} if facts["report"] else {}))


def show_model(facts: Mapping[str, Any]) -> None:
    """What is in a model file."""
    show(f"{facts['model']}: {facts['estimator']}, {size_words(facts['bytes'])}")
    show()
    show_pairs(summary_pairs(facts))
    show()
    show_features(facts["features"])
    if "per_cell" in facts:
        show()
        show_cells(facts["per_cell"])


def show_pairs(pairs: Mapping[str, str]) -> None:
    """Names and what they are, beneath each other."""
    table = Table.grid(padding=(0, 2))
    for name, value in pairs.items():
        table.add_row(Text(name, style="bold"), Text(value))
    show_table(table)


def summary_pairs(facts: Mapping[str, Any]) -> dict[str, str]:
    """What :func:`parkrr.report.summary.summary` says, in words."""
    kernel = dict(facts["kernel"])
    settings = ", ".join(f"{k} {number(v)}" for k, v in kernel.items() if k != "name")
    told = {
        "rows": f"{facts['rows']:,}",
        "cells": cells_words(facts),
        "centres": f"{facts['centers']:,}",
        "kernel": f"{kernel['name']}, {settings}" if settings else kernel["name"],
        "penalty": number(facts["penalty"]),
        "metric": facts["metric"],
        "answers": answers_words(facts),
        "precision": facts["precision"],
        "held out": held_out_words(facts["held_out"]),
        "numerics": numerics_words(facts),
        "seconds": seconds_words(facts["seconds"]),
    }
    return {name: words for name, words in told.items() if words}


def cells_words(facts: Mapping[str, Any]) -> str:
    """How many cells there are, and how large."""
    sizes = facts["rows_of_cells"]
    if facts["cells"] == 1:
        return "1"
    return f"{facts['cells']:,}, of {sizes['least']:,} to {sizes['most']:,} rows"


def answers_words(facts: Mapping[str, Any]) -> str:
    """Who answers for a row."""
    if facts["cells"] == 1:
        by = "one cell"
    else:
        near = facts["nearest_cells"]
        by = "the nearest cell" if near == 1 else f"up to {near} nearest cells"
    coarse = facts["coarse_centers"]
    return f"{by} over a coarse level of {coarse:,} centres" if coarse else by


def held_out_words(known: Mapping[str, float] | None) -> str:
    """How well a model does on rows left out."""
    if not known:
        return ""
    of = counted(int(known["rows"]), "row")
    if "error" in known:
        return f"{known['error']:.1%} of {of} get the wrong label"
    told = f"root mean squared error {number(known['rmse'])}, R2 {known['r2']:.3f}, of {of}"
    if "share_in_0.9_interval" in known:
        told += f"; 0.9 intervals hold {known['share_in_0.9_interval']:.3f}"
    return told


def numerics_words(facts: Mapping[str, Any]) -> str:
    """What went less than well."""
    told = []
    if facts["unconverged_cells"]:
        told.append(f"{counted(facts['unconverged_cells'], 'cell')} did not converge")
    if facts["rescued_cells"]:
        told.append(f"{counted(facts['rescued_cells'], 'cell')} needed a rescue")
    return ", ".join(told)


def seconds_words(seconds: Mapping[str, float]) -> str:
    """The total, and the steps that took a tenth of a second."""
    steps = [f"{name} {value:.1f}" for name, value in seconds.items() if value >= 0.1]
    total = f"{sum(seconds.values()):.1f}"
    return f"{total} ({', '.join(steps)})" if steps else total


def show_features(features: Sequence[Mapping[str, Any]]) -> None:
    """Columns, their kinds, and their importances as bars, the largest first."""
    ranked = sorted(features, key=lambda one: -(one["importance"] or 0.0))
    most = max((one["importance"] or 0.0) for one in ranked) or 1.0
    block = "█" if console(sys.stdout).encoding.startswith("utf") else "#"
    table = Table("feature", "kind", "importance", "", **PLAIN)
    for one in ranked[:MOST_FEATURES]:
        share = one["importance"]
        bar = "" if share is None else block * round(BAR * share / most)
        table.add_row(
            Text(one["name"], overflow="ellipsis"),
            one["kind"],
            Text(bar, style="cyan"),
            "" if share is None else f"{share:.3f}",
        )
    show_table(table)
    if len(ranked) > MOST_FEATURES:
        show(f"and {len(ranked) - MOST_FEATURES} more that matter less")


def show_cells(cells: Sequence[Mapping[str, Any]]) -> None:
    """The largest cells and those with the largest error."""
    largest = sorted(cells, key=lambda cell: -cell["rows"])[:MOST_CELLS]
    judged = [cell for cell in cells if cell["error"] is not None]
    worst = sorted(judged, key=lambda cell: -cell["error"])[:MOST_CELLS]
    if len(cells) <= MOST_CELLS:
        cells_table("cells, the largest first", largest)
        return
    cells_table(f"the {MOST_CELLS} largest of {len(cells):,} cells", largest)
    if worst:
        show()
        cells_table(f"the {len(worst)} with the largest held-out error", worst)


def cells_table(title: str, cells: Sequence[Mapping[str, Any]]) -> None:
    """Some cells."""
    show(title)
    table = Table(**PLAIN)
    for name in ("cell", "rows", "centres", "penalty"):
        table.add_column(name, justify="right")
    table.add_column("solver")
    for name in ("steps", "error", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("rescue")
    for cell in cells:
        table.add_row(
            *(f"{cell[name]:,}" for name in ("cell", "rows", "centers")),
            number(cell["penalty"]),
            cell["solver"],
            str(cell["iterations"]) if cell["converged"] else f"{cell['iterations']} (not enough)",
            "" if cell["error"] is None else number(cell["error"]),
            f"{cell['seconds']:.2f}",
            Text(cell["rescue"]),
        )
    show_table(table)
