"""The command line: plan, fit, predict, inspect; home of typer.

Results go to stdout, with --json as one document; messages and progress go to stderr.
"""

import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import parkrr
from parkrr import asking, exits, terminal
from parkrr.conversion import as_parquet, is_file
from parkrr.errors import ParKError
from parkrr.options import (
    Answers,
    AnswersPlace,
    BlendCells,
    Cells,
    Centers,
    Checkpoint,
    Classify,
    CoarseCenters,
    Coverage,
    Data,
    Debug,
    Engine,
    Features,
    Json,
    Kernel,
    Keys,
    Memory,
    Metric,
    Model,
    ModelFile,
    NoReport,
    Penalty,
    Quiet,
    Report,
    Seconds,
    Seed,
    Target,
    Types,
    Weight,
    WithCells,
)
from parkrr.regressor import ParKRegressor
from parkrr.summary import Estimator, cells, summary
from parkrr.tables import ParquetTable
from parkrr.terminal import counted, say, show

CONVERTED = "_rows"  # a folder beside answers that whatever reads them as one table skips
EXITS = "\n".join(["Exit codes", *(f"{k:>3}  {told}" for k, told in exits.MEANINGS.items())])


class Commands(TyperGroup):
    """Ends every run with a code that means something, and shows a traceback only if it helps."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        rest = (prog_name, complete_var, False, windows_expand_args)
        try:
            with exits.interruptible():
                code = super().main(words, *rest, **extra)
        except Exception as error:
            code = failed(error, words)
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        with exits.kept_in(None):  # typer would take a bare interrupt for its own
            return super().invoke(ctx)


def failed(error: Exception, words: Sequence[str]) -> int:
    """Say why a run ended; the exit code for it."""
    as_json, code = "--json" in words, exits.code_of(error)
    if hasattr(error, "format_message"):  # typer's own: an option that is not there
        code, message = exits.USAGE, str(error.format_message())
        if not as_json:
            error.show()  # type: ignore[attr-defined]
            return code
    elif isinstance(error, exits.Interrupted):
        message = interrupted(error, words)
    else:
        message = str(error) or type(error).__name__
    terminal.show_error(type(error).__name__, message, as_json)
    if "--debug" in words or (code == exits.UNEXPECTED and not isinstance(error, ParKError)):
        terminal.show_traceback(error)
    return code


def interrupted(error: exits.Interrupted, words: Sequence[str]) -> str:
    """Where finished work is, and the command that goes on with it."""
    if error.folder is None:
        hint = "; with --checkpoint a fit goes on where it was" if "fit" in words[:1] else ""
        return f"interrupted; nothing was kept{hint}"
    module = Path(sys.argv[0]).name == "__main__.py"
    command = shlex.join([*(["python", "-m"] if module else []), "parkrr", *words])
    kept = f"interrupted; what is finished is in {str(error.folder)!r}"
    return f"{kept}. This goes on from there:\n{command}"


app = typer.Typer(
    cls=Commands,
    name="parkrr",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=EXITS,
    help="Kernel ridge regression by feature-space partitions, from files to files.",
)


def version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        show(f"parkrr {parkrr.__version__}")
        raise typer.Exit


@app.callback()
def entry(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Kernel ridge regression by feature-space partitions (ParK), from files to files."""


def training(
    path: str, columns: tuple[str, str | None, str | None], given: dict[str, Any]
) -> tuple[ParquetTable, Estimator]:
    """The rows to fit and an estimator for them; says what was decided about the target.

    `given` holds options by name; those that are parameters of an estimator are called the same.
    """
    table = asking.training_rows(path, *columns)
    labels, quiet = given["classify"], given["quiet"]
    if labels is None:
        labels = asking.classifies(table)
        if not quiet:
            say(asking.decision(table, labels))
    params = {name: given[name] for name in ParKRegressor().get_params() if name in given}
    return table, asking.estimator_of(labels, progress=not quiet, **params)


@app.command()
def plan(
    data: Data,
    target: Target,
    features: Features = None,
    weight: Weight = None,
    types: Types = None,
    classify: Classify = None,
    max_memory: Memory = None,
    time_budget: Seconds = None,
    checkpoint: Checkpoint = None,
    n_cells: Cells = None,
    n_centers: Centers = None,
    kernel: Kernel = None,
    metric: Metric = None,
    penalty: Penalty = None,
    blend: BlendCells = None,
    coarse: CoarseCenters = None,
    engine: Engine = "local",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say what a fit with the same options would take, without fitting.

    It ends with exit code 4 if a limit would not be kept.

    [bold]parkrr plan trips.parquet --target minutes --max-memory 4GB[/bold]
    """
    given, kinds = locals(), asking.types_of(types)
    with terminal.messages(quiet), as_parquet(data, kinds, None, not quiet) as path:
        table, model = training(path, (target, features, weight), given)
        planned = model.plan(table)
    if json:
        terminal.show_json(planned.plain())
    else:
        show(str(planned), indent=terminal.PLAN_INDENT)
    if planned.advice:  # a limit is not kept: what a script asks for
        raise typer.Exit(exits.BUDGET)


@app.command()
def fit(
    data: Data,
    target: Target,
    output: ModelFile,
    features: Features = None,
    weight: Weight = None,
    types: Types = None,
    classify: Classify = None,
    max_memory: Memory = None,
    time_budget: Seconds = None,
    checkpoint: Checkpoint = None,
    n_cells: Cells = None,
    n_centers: Centers = None,
    kernel: Kernel = None,
    metric: Metric = None,
    penalty: Penalty = None,
    blend: BlendCells = None,
    coarse: CoarseCenters = None,
    engine: Engine = "local",
    random_state: Seed = 0,
    report: Report = None,
    no_report: NoReport = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit a model to the rows of files, and write it down with a report.

    [bold]parkrr fit trips.parquet --target minutes -o minutes.park[/bold]

    [bold]parkrr fit s3://bucket/trips/ -t minutes -o minutes.park --checkpoint fit-1[/bold]
    """
    given, kinds, start = locals(), asking.types_of(types), time.perf_counter()
    asking.check_place(output)
    drawn = None if no_report else asking.report_place(report, output)
    with exits.kept_in(checkpoint), terminal.messages(quiet):
        with as_parquet(data, kinds, checkpoint, not quiet) as path:
            table, model = training(path, (target, features, weight), given)
            if not quiet:
                say(f"{model.plan(table)}\n", indent=terminal.PLAN_INDENT)
            model.fit(table)
        model.save(output)
        if drawn is not None:
            model.show_report(drawn)
        elif not no_report and not quiet:
            say("no report, which needs matplotlib; pip install 'parkrr[plot]'")
    facts = {"model": str(output), "report": drawn and str(drawn), **summary(model)}
    facts["total_seconds"] = time.perf_counter() - start
    if json:
        terminal.show_json(facts)
    else:
        terminal.show_fit(facts)


@app.command()
def predict(
    model: Model,
    data: Data,
    output: AnswersPlace,
    keys: Keys = None,
    answers: Answers = "prediction",
    coverage: Coverage = 0.9,
    features: Features = None,
    types: Types = None,
    engine: Engine = "local",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict the rows of files into files.

    [bold]parkrr predict minutes.park new.parquet -o answers.csv --keys trip_id[/bold]
    """
    start = time.perf_counter()
    fitted = asking.opened(model).set_params(engine=engine, progress=not quiet)
    kinds = {**asking.word_types(fitted, data), **asking.types_of(types)}
    folder = None if is_file(output) else output
    wanted = (asking.names_of(keys), asking.names_of(answers), coverage)
    with exits.kept_in(folder), terminal.messages(quiet):
        with as_parquet(data, kinds, folder and folder / CONVERTED, not quiet) as path:
            table = asking.rows_to_predict(path, fitted, features)
            into = partial(asking.predict_to_file, fitted) if folder is None else fitted.predict_to
            rows = into(table, output, *wanted)
        if folder is not None:
            rmtree(folder / CONVERTED, ignore_errors=True)
    facts = {"output": str(output), "rows": rows, "seconds": time.perf_counter() - start}
    if json:
        terminal.show_json(facts)
    else:
        show(f"{output}: {counted(rows, 'row')} in {facts['seconds']:.1f} s")


@app.command()
def inspect(
    model: Model,
    with_cells: WithCells = False,
    report: Report = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what is in a model file.

    [bold]parkrr inspect minutes.park --cells[/bold]
    """
    fitted = asking.opened(model)
    facts = {"model": str(model), "bytes": model.stat().st_size, **summary(fitted)}
    if with_cells:
        facts["per_cell"] = cells(fitted)
    drawn = report and asking.report_place(report, model)
    if drawn is not None:
        fitted.show_report(drawn)
    if json:
        terminal.show_json(facts)
    else:
        terminal.show_model(facts)
