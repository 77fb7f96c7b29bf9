"""Results of `fit`, `score`, `inspect`, `explain` and `drift` as text and tables."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from parkrr.cli.terminal import console, show, show_table
from parkrr.report import describe
from parkrr.runtime import describe_bytes, describe_count

SCORE_NAMES = {
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R2",
    "mean_width": "mean width of intervals",
    "error": "share of wrong labels",
    "log_loss": "log-loss",
    "auc": "area under the ROC curve",
    "unknown_labels": "share of labels that the fit has not seen",
}
BAR = 30  # columns of the largest importance
MOST_FEATURES = 20  # shown
NEIGHBOR_FEATURES = 4  # shown of a training row
MOST_CELLS = 10  # of the largest, and of the worst
PLAIN: Any = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False}


def show_fit(facts: Mapping[str, Any]) -> None:
    """Show what a fit chose and how well it predicts."""
    rows = describe_count(facts["rows"], "row")
    show(f"{facts['model']}: fitted to {rows} in {facts['total_seconds']:.1f} s")
    show_facts(describe(facts) | ({"report": facts["report"]} if facts["report"] else {}))
    show_warnings(facts["warnings"])


def show_model(facts: Mapping[str, Any]) -> None:
    """Show what is in a model file."""
    show(f"{facts['model']}: {facts['estimator']}, {describe_bytes(facts['bytes'])}")
    show_facts(describe(facts))
    show_warnings(facts["warnings"])
    show()
    show_features(facts["features"])
    if "per_cell" in facts:
        show()
        show_cells(facts["per_cell"])


def show_scores(model: str, scores: Mapping[str, float | None]) -> None:
    """Show how well a model predicts rows of files."""
    rows = int(scores["rows"] or 0)
    show(f"{model}: {describe_count(rows, 'row')}")
    show_facts(
        {
            SCORE_NAMES.get(name, name.replace("_", " ")): (
                "none, the target is constant" if value is None else f"{value:.4g}"
            )
            for name, value in scores.items()
            if name != "rows"
        }
    )


def show_explanations(facts: Mapping[str, Any]) -> None:
    """Show what moves the predictions of some rows, and training rows like them."""
    show(f"{facts['model']}: a typical row is predicted {format_number(facts['base'])}")
    for number, row in enumerate(facts["rows"]):
        show(f"\nrow {number}: predicted {format_number(row['prediction'])}")
        key = "shapley" if "shapley" in row["features"][0] else "contribution"
        ranked = sorted(row["features"], key=lambda feature: -abs(feature[key]))
        numbers = [name for name in ("contribution", "shapley", "slope") if name in ranked[0]]
        table = Table("feature", "value", "typical", **PLAIN)
        for name in numbers:
            table.add_column(name, justify="right")
        for feature in ranked[:MOST_FEATURES]:
            table.add_row(
                Text(feature["name"], overflow="ellipsis"),
                Text(format_value(feature["value"])),
                Text(format_value(feature["typical"])),
                *("" if math.isnan(feature[k]) else format_number(feature[k]) for k in numbers),
            )
        show_table(table)
        if row["neighbors"]:
            show_neighbors(row["neighbors"], [feature["name"] for feature in ranked])
    if facts["report"]:
        show(f"\nreport: {facts['report']}")


def show_neighbors(neighbors: Sequence[Mapping[str, Any]], features: Sequence[str]) -> None:
    """Show training rows like a row, with the features that count most for it."""
    names = features[:NEIGHBOR_FEATURES]
    show("\ntraining rows like it")
    table = Table(**PLAIN)
    for name in ("similarity", "predicted"):
        table.add_column(name, justify="right")
    for name in names:
        table.add_column(Text(name, overflow="ellipsis"))
    for one in neighbors:
        table.add_row(
            f"{one['similarity']:.3f}",
            format_number(one["prediction"]),
            *(Text(format_value(one["values"][name])) for name in names),
        )
    show_table(table)


def show_drift(facts: Mapping[str, Any]) -> None:
    """Show how unlike the rows of the fit some rows are, and the cells whose share differs most."""
    rows, rows_of_data = facts["rows"], facts["rows_of_data"]
    drawn = "" if rows == rows_of_data else f", drawn from {rows_of_data:,}"
    show(f"{facts['model']}: {describe_count(rows, 'row')}{drawn}")
    novel = (
        f"{facts['novel_share']:.1%} of rows, expected 1%, {format_pvalue(facts['novel_pvalue'])}"
    )
    moved = "there is one cell, so shares cannot be compared"
    if facts["degrees"]:
        moved = f"{facts['moved_share']:.1%} of rows, {format_pvalue(facts['cells_pvalue'])}"
    show_facts({"novel": novel, "in other cells": moved})
    cells = sorted(enumerate(facts["cell_shares"]), key=lambda cell: -abs(cell[1][1] - cell[1][0]))
    if facts["degrees"]:
        show()
        table = Table(**PLAIN)
        for name in ("cell", "of the fit", "of these rows", "difference"):
            table.add_column(name, justify="right")
        for number, (before, after) in cells[:MOST_CELLS]:
            table.add_row(
                str(number), f"{before:.1%}", f"{after:.1%}", f"{100 * (after - before):+.1f}"
            )
        show_table(table)
        if len(cells) > MOST_CELLS:
            show(f"and {len(cells) - MOST_CELLS:,} cells that differ less")
    show(f"\n{facts['verdict']}")


def format_pvalue(p: float) -> str:
    """A p-value; below 1e-10 rounding decides its digits."""
    return "p below 1e-10" if p < 1e-10 else f"p {p:.2g}"


def format_value(value: Any) -> str:
    """A value of a feature; a dash where it is missing or not known."""
    if value is None:
        return "-"
    return format_number(value) if isinstance(value, float) else str(value)


def show_facts(texts: Mapping[str, str]) -> None:
    """Show names and texts in two columns."""
    show()
    table = Table.grid(padding=(0, 2))
    for name, text in texts.items():
        table.add_row(Text(name, style="bold"), Text(text))
    show_table(table)


def show_warnings(warnings: Sequence[str]) -> None:
    """Show what to know before relying on the model."""
    for line in warnings:
        show(f"\nwarning: {line}")


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
    table.add_column("fallback")
    for cell in cells:
        table.add_row(
            *(f"{cell[name]:,}" for name in ("cell", "rows", "centers")),
            format_number(cell["penalty"]),
            cell["solver"],
            f"{cell['iterations']}{'' if cell['converged'] else ' (not enough)'}",
            "" if cell["error"] is None else format_number(cell["error"]),
            f"{cell['seconds']:.2f}",
            Text(cell["fallback"]),
        )
    show_table(table)


def format_number(value: float) -> str:
    """A number with three digits, or whole above 1,000."""
    return f"{value:,.0f}" if abs(value) >= 1000 and math.isfinite(value) else f"{value:.3g}"
