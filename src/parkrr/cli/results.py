"""Results of `fit` and `inspect` as text and tables."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from parkrr.cli.terminal import console, show, show_table
from parkrr.runtime import describe_bytes, describe_count

BAR = 30  # columns of the largest importance
MOST_FEATURES = 20  # shown
MOST_CELLS = 10  # of the largest, and of the worst
PLAIN: Any = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False}


def show_fit(facts: Mapping[str, Any]) -> None:
    """Show what a fit chose and how well it predicts."""
    rows = describe_count(facts["rows"], "row")
    show(f"{facts['model']}: fitted to {rows} in {facts['total_seconds']:.1f} s")
    show_facts(summary_pairs(facts) | ({"report": facts["report"]} if facts["report"] else {}))


def show_model(facts: Mapping[str, Any]) -> None:
    """Show what is in a model file."""
    show(f"{facts['model']}: {facts['estimator']}, {describe_bytes(facts['bytes'])}")
    show_facts(summary_pairs(facts))
    show()
    show_features(facts["features"])
    if "per_cell" in facts:
        show()
        show_cells(facts["per_cell"])


def show_facts(texts: Mapping[str, str]) -> None:
    """Show names and texts in two columns."""
    show()
    table = Table.grid(padding=(0, 2))
    for name, text in texts.items():
        table.add_row(Text(name, style="bold"), Text(text))
    show_table(table)


def show_features(features: Sequence[Mapping[str, Any]]) -> None:
    """Show columns, their kinds, and their importances as bars, the largest first."""
    ranked = sorted(features, key=lambda feature: -(feature["importance"] or 0.0))
    most = max((feature["importance"] or 0.0) for feature in ranked) or 1.0
    block = "█" if console(sys.stdout).encoding.startswith("utf") else "#"
    table = Table("feature", "kind", "importance", "", **PLAIN)
    for feature in ranked[:MOST_FEATURES]:
        share = feature["importance"]
        table.add_row(
            Text(feature["name"], overflow="ellipsis"),
            feature["kind"],
            Text("" if share is None else block * round(BAR * share / most), style="cyan"),
            "" if share is None else f"{share:.3f}",
        )
    show_table(table)
    if len(ranked) > MOST_FEATURES:
        show(f"and {len(ranked) - MOST_FEATURES} more of less importance")


def show_cells(cells: Sequence[Mapping[str, Any]]) -> None:
    """Show the largest cells and those with the largest error."""
    largest = sorted(cells, key=lambda cell: -cell["rows"])[:MOST_CELLS]
    if len(cells) <= MOST_CELLS:
        show_cell_table("cells, the largest first", largest)
        return
    show_cell_table(f"the {MOST_CELLS} largest of {len(cells):,} cells", largest)
    measured = [cell for cell in cells if cell["error"] is not None]
    worst = sorted(measured, key=lambda cell: -cell["error"])[:MOST_CELLS]
    if worst:
        show()
        show_cell_table(f"the {len(worst)} cells with the largest error", worst)


def show_cell_table(title: str, cells: Sequence[Mapping[str, Any]]) -> None:
    """Show some cells, one a line."""
    show(title)
    table = Table(**PLAIN)
    columns = ("cell", "rows", "centres", "penalty", "solver", "steps", "error", "seconds")
    for name in columns:
        table.add_column(name, justify="left" if name == "solver" else "right")
    table.add_column("rescue")
    for cell in cells:
        table.add_row(
            *(f"{cell[name]:,}" for name in ("cell", "rows", "centers")),
            format_number(cell["penalty"]),
            cell["solver"],
            f"{cell['iterations']}{'' if cell['converged'] else ' (not enough)'}",
            "" if cell["error"] is None else format_number(cell["error"]),
            f"{cell['seconds']:.2f}",
            Text(cell["rescue"]),
        )
    show_table(table)


def format_number(value: float) -> str:
    """A number with three digits, or whole above 1,000."""
    return f"{value:,.0f}" if abs(value) >= 1000 and math.isfinite(value) else f"{value:.3g}"


def summary_pairs(facts: Mapping[str, Any]) -> dict[str, str]:
    """What :func:`parkrr.report.summary.summary` says, in words."""
    kernel = dict(facts["kernel"])
    settings = ", ".join(f"{k} {format_number(v)}" for k, v in kernel.items() if k != "name")
    told = {
        "rows": f"{facts['rows']:,}",
        "cells": cells_words(facts),
        "centres": f"{facts['centers']:,}",
        "kernel": f"{kernel['name']}, {settings}" if settings else kernel["name"],
        "penalty": format_number(facts["penalty"]),
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
    of = describe_count(int(known["rows"]), "row")
    if "error" in known:
        return f"{known['error']:.1%} of {of} get the wrong label"
    told = f"root mean squared error {format_number(known['rmse'])}, R2 {known['r2']:.3f}, of {of}"
    if "share_in_0.9_interval" in known:
        told += f"; 0.9 intervals hold {known['share_in_0.9_interval']:.3f}"
    return told


def numerics_words(facts: Mapping[str, Any]) -> str:
    """What went less than well."""
    told = []
    if facts["unconverged_cells"]:
        told.append(f"{describe_count(facts['unconverged_cells'], 'cell')} did not converge")
    if facts["rescued_cells"]:
        told.append(f"{describe_count(facts['rescued_cells'], 'cell')} needed a rescue")
    return ", ".join(told)


def seconds_words(seconds: Mapping[str, float]) -> str:
    """The total, and the steps that took a tenth of a second."""
    steps = [f"{name} {value:.1f}" for name, value in seconds.items() if value >= 0.1]
    total = f"{sum(seconds.values()):.1f}"
    return f"{total} ({', '.join(steps)})" if steps else total
