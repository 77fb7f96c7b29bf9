"""What the commands do: files in, answers out, and what a person or a script hears of it.

Results go to stdout, with --json as one document; messages and progress go to stderr. Options come
by name, as `cli` has read them.
"""

import time
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from parkrr.cli import arguments as asking
from parkrr.cli import exit_codes as exits
from parkrr.cli import terminal
from parkrr.cli.inputs import as_parquet
from parkrr.cli.terminal import counted, say, show
from parkrr.data import ParquetTable, is_file
from parkrr.estimators.regressor import ParKRegressor
from parkrr.report.summary import Estimator, cells, summary

CONVERTED = "_rows"  # a folder beside answers that whatever reads them as one table skips


def training(
    path: str, target: str, quiet: bool, given: dict[str, Any]
) -> tuple[ParquetTable, Estimator]:
    """The rows to fit and an estimator for them; says what was decided about the target.

    Of what is given, parameters of an estimator are called the same.
    """
    table = asking.training_rows(path, target, given["features"], given["weight"])
    labels = given["classify"]
    if labels is None:
        labels = asking.classifies(table)
        if not quiet:
            say(asking.decision(table, labels))
    params = {name: given[name] for name in ParKRegressor().get_params() if name in given}
    return table, asking.estimator_of(labels, progress=not quiet, **params)


def plan(data: str, target: str, types: str | None, json: bool, quiet: bool, **given: Any) -> bool:
    """Show what a fit would take; whether it keeps its limits."""
    kinds = asking.types_of(types)
    with terminal.messages(quiet), as_parquet(data, kinds, None, not quiet) as path:
        table, model = training(path, target, quiet, given)
        planned = model.plan(table)
    if json:
        terminal.show_json(planned.plain())
    else:
        show(str(planned), indent=terminal.PLAN_INDENT)
    return not planned.advice


def fit(
    data: str,
    target: str,
    output: str,
    types: str | None,
    report: Path | None,
    no_report: bool,
    json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Fit, save and draw; show what came of it."""
    kinds, start = asking.types_of(types), time.perf_counter()
    asking.check_place(output)
    drawn = None if no_report else asking.report_place(report, output)
    with exits.kept_in(given["checkpoint"]), terminal.messages(quiet):
        with as_parquet(data, kinds, given["checkpoint"], not quiet) as path:
            table, model = training(path, target, quiet, given)
            if not quiet:
                say(f"{model.plan(table)}\n", indent=terminal.PLAN_INDENT)
            model.fit(table)
        model.save(output)
        if drawn is not None:
            model.show_report(drawn)
        elif not (no_report or quiet or asking.can_draw()):
            say("no report, which needs matplotlib; pip install 'parkrr[plot]'")
    facts = {"model": output, "report": drawn and str(drawn), **summary(model)}
    facts["total_seconds"] = time.perf_counter() - start
    if json:
        terminal.show_json(facts)
    else:
        terminal.show_fit(facts)


def predict(
    model: str,
    data: str,
    output: str,
    keys: str | None,
    answers: str,
    coverage: float,
    features: str | None,
    types: str | None,
    engine: str,
    json: bool,
    quiet: bool,
    **_: Any,
) -> None:
    """Predict the rows of files into files; show how many."""
    start = time.perf_counter()
    fitted = asking.opened(model).set_params(engine=engine, progress=not quiet)
    kinds = {**asking.word_types(fitted, data), **asking.types_of(types)}
    folder = None if is_file(output) else output
    keep = folder and f"{folder}/{CONVERTED}"
    wanted = (asking.names_of(keys), asking.names_of(answers), coverage)
    with exits.kept_in(folder), terminal.messages(quiet):
        with as_parquet(data, kinds, keep, not quiet) as path:
            table = asking.rows_to_predict(path, fitted, features)
            into = partial(asking.predict_to_file, fitted) if folder is None else fitted.predict_to
            rows = into(table, output, *wanted)
        if keep is not None:
            rmtree(keep, ignore_errors=True)
    facts = {"output": output, "rows": rows, "seconds": time.perf_counter() - start}
    if json:
        terminal.show_json(facts)
    else:
        show(f"{output}: {counted(rows, 'row')} in {facts['seconds']:.1f} s")


def inspect(model: str, with_cells: bool, report: Path | None, json: bool, **_: Any) -> None:
    """Show what is in a model file."""
    fitted = asking.opened(model)
    facts = {"model": model, "bytes": asking.size_of(model), **summary(fitted)}
    if with_cells:
        facts["per_cell"] = cells(fitted)
    drawn = report and asking.report_place(report, model)
    if drawn is not None:
        fitted.show_report(drawn)
    if json:
        terminal.show_json(facts)
    else:
        terminal.show_model(facts)
