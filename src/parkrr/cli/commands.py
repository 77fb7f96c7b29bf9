"""What the commands do: results go to stdout, with --json as one document, messages to stderr.

Options arrive by name, as :mod:`parkrr.cli.app` has parsed them.
"""

import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

from parkrr import inspection
from parkrr.cli import results, terminal
from parkrr.cli.exit_codes import reporting_interrupts
from parkrr.cli.inputs import as_parquet
from parkrr.cli.terminal import say, show
from parkrr.data import (
    Category,
    Dialect,
    FreeText,
    ParquetTable,
    family_of,
    is_csv,
    is_single_file,
    is_url,
    join_parts,
    locate_file,
    scan_parquet,
)
from parkrr.errors import ModelFileError, ParameterError, StorageError
from parkrr.estimators import ParKClassifier, ParKRegressor, load
from parkrr.inspection import cell_table, feature_values
from parkrr.report import summarize
from parkrr.runtime import describe_count

Estimator = ParKRegressor | ParKClassifier
CONVERTED = "_rows"  # a folder beside predictions that readers of all of them as one table skip
REPORT_ROWS = 1000  # of files, that a report of explanations uses
PLAN_INDENT = 9  # of the lines of a plan, behind their names
NO_PLOTS = "a report needs matplotlib; pip install 'parkrr[plot]'"


def plan(data: str, target: str, types: str | None, json: bool, quiet: bool, **given: Any) -> bool:
    """Show what a fit would take; returns whether it keeps its limits."""
    kinds, dialect = parse_types(types), read_dialect(given)
    with terminal.messages(quiet), as_parquet(data, kinds, None, not quiet, dialect) as path:
        table, model = prepare_fit(path, target, quiet, given)
        planned = model.plan(table)
    if json:
        terminal.show_json(planned.plain())
    else:
        show(str(planned), indent=PLAN_INDENT)
    return not planned.advice


def fit(
    data: str,
    target: str,
    output: str,
    types: str | None,
    report: Path | None,
    no_report: bool,
    force: bool,
    json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Fit, save and report; show the result."""
    kinds, dialect, start = parse_types(types), read_dialect(given), time.perf_counter()
    check_writable(output, force)
    report = None if no_report else report_path(report, output, force)
    with reporting_interrupts(given["checkpoint"]), terminal.messages(quiet):
        with as_parquet(data, kinds, given["checkpoint"], not quiet, dialect) as path:
            table, model = prepare_fit(path, target, quiet, given)
            if not quiet:
                say(f"{model.plan(table)}\n", indent=PLAN_INDENT)
            model.fit(table)
        model.save(output)
        if report is not None:
            model.show_report(report)
        elif not (no_report or quiet or can_plot()):
            say(f"no report: {NO_PLOTS}")
    facts = {"model": output, "report": report and str(report), **summarize(model)}
    facts["total_seconds"] = time.perf_counter() - start
    if json:
        terminal.show_json(facts)
    else:
        results.show_fit(facts)


def predict(
    model: str,
    data: str,
    output: str,
    keys: str | None,
    keep_columns: bool,
    outputs: str,
    coverage: float,
    force: bool,
    json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Predict the rows of files into files; show how many."""
    start = time.perf_counter()
    folder = None if is_single_file(output) else output
    if folder is None:
        check_writable(output, force)
    fitted = load_model(model).set_params(engine=given["engine"], progress=not quiet)
    converted = folder and f"{folder}/{CONVERTED}"
    with reporting_interrupts(folder), terminal.messages(quiet):
        with open_rows(fitted, data, converted, quiet, given) as table:
            names = list(table.schema.names) if keep_columns else split_names(keys)
            wanted = (names, split_names(outputs), coverage)
            if folder is None:
                rows = predict_to_file(fitted, table, Path(output), *wanted)
            else:
                rows = fitted.predict_to(table, folder, *wanted)
        if converted is not None:
            rmtree(converted, ignore_errors=True)
    seconds = time.perf_counter() - start
    if json:
        terminal.show_json({"output": output, "rows": rows, "seconds": seconds})
    else:
        show(f"{output}: {describe_count(rows, 'row')} in {seconds:.1f} s")


def score(
    model: str,
    data: str,
    target: str | None,
    weight: str | None,
    json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Show how well a model predicts rows whose target is known."""
    start = time.perf_counter()
    fitted = load_model(model).set_params(engine=given["engine"], progress=not quiet)
    names = split_names(target) or fitted.target_names_
    if not names:
        raise ParameterError(
            f"target must name a column, for {model!r} was fitted to a target without a name; use "
            f"--target"
        )
    with (
        terminal.messages(quiet),
        open_rows(fitted, data, None, quiet, given, names, weight) as table,
    ):
        scores = fitted.score_files(table)
    if json:
        terminal.show_json({"model": model, **scores, "seconds": time.perf_counter() - start})
    else:
        results.show_scores(model, scores)


@contextmanager
def open_rows(
    fitted: Estimator,
    data: str,
    converted: str | None,
    quiet: bool,
    given: dict[str, Any],
    target: Sequence[str] = (),
    weight: str | None = None,
) -> Iterator[ParquetTable]:
    """The rows of files for a model, while the context lasts.

    In CSV, columns of categories and of labels that are text are read as text, or categories such
    as 007 would be numbers.
    """
    kinds: dict[str, str] = {}
    if is_csv(data):
        columns = fitted.columns_.columns
        text = [column.name for column in columns if isinstance(column, Category | FreeText)]
        classes = getattr(fitted, "classes_", None)
        text += target if classes is not None and classes.dtype.kind in "UO" else []
        kinds = dict.fromkeys(text, "string")
    kinds |= parse_types(given["types"])
    names = split_names(given["features"])
    with as_parquet(data, kinds, converted, not quiet, read_dialect(given)) as path:
        yield scan_parquet(path, target, names or None, weight, given["filter"])


def inspect(
    model: str, with_cells: bool, report: Path | None, force: bool, json: bool, **_: Any
) -> None:
    """Show what is in a model file."""
    fitted = load_model(model)
    folder, name = locate_file(model)
    with folder.file(name) as file:
        facts = {"model": model, "bytes": file.size(), **summarize(fitted)}
    if with_cells:
        facts["per_cell"] = cell_table(fitted)
    path = report and report_path(report, model, force)
    if path is not None:
        fitted.show_report(path)
    if json:
        terminal.show_json(facts)
    else:
        results.show_model(facts)


def explain(
    model: str,
    data: str,
    rows: int,
    target: int,
    shapley: bool,
    neighbors: int,
    report: Path | None,
    force: bool,
    json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Show what moves the predictions of the first rows of files."""
    if rows < 1:
        raise ParameterError(f"rows must be a whole number >= 1, got {rows}")
    fitted = load_model(model).set_params(progress=not quiet)
    path = report and report_path(report, model, force)
    count = max(rows, REPORT_ROWS) if path else rows
    with terminal.messages(quiet), open_rows(fitted, data, None, quiet, given) as table:
        X = read_first_rows(fitted, table, count)
        facts = explain_rows(fitted, X[:rows], target, shapley, neighbors)
        if path is not None:
            fitted.show_report(path, X)
    facts = {"model": model, "report": path and str(path), **facts}
    if json:
        terminal.show_json(facts)
    else:
        results.show_explanations(facts)


def drift(
    model: str, data: str, rows: int, alpha: float, json: bool, quiet: bool, **given: Any
) -> bool:
    """Show whether rows of files are like those of the fit; returns whether they have drifted."""
    if rows < 1:
        raise ParameterError(f"rows must be a whole number >= 1, got {rows}")
    fitted = load_model(model).set_params(progress=not quiet)
    with terminal.messages(quiet), open_rows(fitted, data, None, quiet, given) as table:
        drawn = table.read_sample(rows, seed=0, columns=read_names(fitted, table))
        result = inspection.drift(fitted, as_input(fitted, drawn), alpha)
        facts = {"model": model, "rows_of_data": table.n_rows, **asdict(result)}
    for name in ("is_novel", "has_moved", "has_drifted", "verdict"):
        facts[name] = getattr(result, name)
    if json:
        terminal.show_json(facts)
    else:
        results.show_drift(facts)
    return result.has_drifted


def read_first_rows(fitted: Estimator, table: ParquetTable, count: int) -> Any:
    """The first rows of files as the model takes them."""
    return as_input(fitted, next(table.blocks(count, read_names(fitted, table))))


def read_names(fitted: Estimator, table: ParquetTable) -> list[str]:
    """The columns of files that the model reads."""
    columns = fitted._columns_of(table)
    return [name for name in columns.read_names if name in table.schema.names]


def as_input(fitted: Estimator, rows: Any) -> Any:
    """Rows of an Arrow table as they are, or as an array for a model that was fitted to one."""
    if hasattr(fitted, "feature_names_in_"):
        return rows
    return np.array([list(row.values()) for row in rows.to_pylist()], dtype=object)


def explain_rows(
    fitted: Estimator, X: Any, target: int, shapley: bool, n_neighbors: int
) -> dict[str, Any]:
    """Explanations of rows as data that JSON can hold."""
    explanation, values = inspection.explain(fitted, X, target=target), feature_values(fitted, X)
    columns = {"contribution": explanation.contributions, "slope": explanation.slopes}
    if shapley:
        columns["shapley"] = inspection.shapley_values(fitted, X, target=target).values
    listed: list[dict[str, Any]] = []
    if n_neighbors:
        listed = inspection.neighbors(fitted, X, n_neighbors, target=target)
    facts = []
    for i, prediction in enumerate(explanation.predictions.tolist()):
        features = [
            {
                "name": name,
                "value": values[i][k],
                "typical": explanation.typical[k],
                **{column: float(numbers[i, k]) for column, numbers in columns.items()},
            }
            for k, name in enumerate(explanation.features)
        ]
        near = [
            {name: value for name, value in one.items() if name != "row"}
            for one in listed
            if one["row"] == i
        ]
        facts.append({"prediction": prediction, "features": features, "neighbors": near})
    return {"base": explanation.base, "rows": facts}


def split_names(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def parse_types(text: str | None) -> dict[str, str]:
    """Types of columns, written as a=string,b=float64."""
    return parse_pairs("types", text, "a=string,b=float64")


def parse_pairs(option: str, text: str | None, example: str) -> dict[str, str]:
    """Values of an option by column, written as the example is."""
    pairs = [name.partition("=") for name in split_names(text)]
    if not all(name and kind for name, _, kind in pairs):
        raise ParameterError(f"{option} must be written as {example}, got {text!r}")
    return {name: kind for name, _, kind in pairs}


def read_dialect(given: dict[str, Any]) -> Dialect:
    """How CSV files are written, as far as options name it."""
    return Dialect(**{field.name: given[field.name] for field in fields(Dialect)})


def prepare_fit(
    path: str, target: str, quiet: bool, given: dict[str, Any]
) -> tuple[ParquetTable, Estimator]:
    """The rows to fit and an estimator; a message names the task if it follows from the target.

    Options that are parameters of an estimator have the same name; None keeps the default.
    """
    if not split_names(target):
        raise ParameterError(f"target must name a column, got {target!r}")
    features = split_names(given["features"]) or None
    roles = {name: given.get(name) for name in ("weight", "groups", "time", "filter")}
    table = scan_parquet(path, split_names(target), features, **roles)
    classify = given["classify"]
    if classify is None:
        kinds = {name: table.schema.field(name).type for name in table.target}
        classify = all(family_of(kind) in ("text", "boolean") for kind in kinds.values())
        columns = " and ".join(f"{name!r} is {kind}" for name, kind in kinds.items())
        if not quiet and classify:
            say(f"{columns}, so this is a classification; use --regress if it holds numbers")
        elif not quiet:
            say(f"{columns}, so this is a regression; use --classify if it holds labels")
    names = ParKRegressor().get_params()
    params: Any = {name: given[name] for name in names if given.get(name) is not None}
    if "columns" in params:
        params["columns"] = parse_pairs("columns", params["columns"], "zip=category,note=ignore")
    if classify and params.pop("guarantee", "none") != "none":
        raise ParameterError("guarantee must not be given for labels, which have no intervals")
    if classify and "extrapolation" in params:
        raise ParameterError(
            f"extrapolation must be left out of a classification, whose scores have no bound, got "
            f"{params['extrapolation']!r}"
        )
    if classify and not params.keys().isdisjoint(("loss", "power")):
        raise ParameterError(
            "loss and power must be left out of a classification; use --regress if the target "
            "holds numbers"
        )
    kind = ParKClassifier if classify else ParKRegressor
    return table, kind(progress=not quiet, **params)


def load_model(path: str) -> Estimator:
    """The model of a file."""
    try:
        return load(path)
    except OSError as error:
        raise ModelFileError(f"{path!r} cannot be read: {error.strerror or error}") from error


def predict_to_file(
    model: Estimator,
    table: ParquetTable,
    path: Path,
    keys: list[str],
    outputs: list[str],
    coverage: float,
) -> int:
    """Write predictions to one file; returns how many rows it has."""
    labels = {"probability": [str(label) for label in getattr(model, "classes_", ())]}
    # Beside the file, on a disk that must have space for it anyway.
    with tempfile.TemporaryDirectory(prefix=".parkrr-", dir=path.absolute().parent) as folder:
        rows = model.predict_to(table, folder, keys, outputs, coverage)
        join_parts(Path(folder), path, labels)
    return rows


def check_writable(place: str | Path, force: bool) -> None:
    """Fail before a long fit if its result cannot be written, or would replace a file."""
    if is_url(place):
        folder, name = locate_file(place)
        folder.make()
        exists = name in folder.names()
    else:
        exists = Path(place).is_file()
    if exists and not force:
        raise StorageError(str(place), "it exists; use --force to replace it, or another name")
    if is_url(place):
        return
    path = Path(place)
    parent = path.absolute().parent
    if not parent.is_dir():
        raise StorageError(
            str(path), f"there is no folder {str(parent)!r}; create it or choose another one"
        )
    if path.is_dir():
        raise StorageError(str(path), "it is a folder; name a file in it")
    if not os.access(parent, os.W_OK):
        raise StorageError(str(path), "permission denied; choose a folder that you may write into")


def can_plot() -> bool:
    """Whether matplotlib is installed, which reports need."""
    return importlib.util.find_spec("matplotlib") is not None


def report_path(report: Path | None, model: str, force: bool) -> Path | None:
    """Where to write a report: beside a model of this machine by default; None for nowhere."""
    if report is not None and not can_plot():
        raise ModuleNotFoundError(NO_PLOTS)
    if report is None and is_url(model):
        return None
    path = report or Path(model).with_suffix(".html")
    if path.absolute() == Path(model).absolute():
        raise ParameterError(f"output and report must be two files, got {str(path)!r} for both")
    check_writable(path, force or not can_plot())
    return path if can_plot() else None
