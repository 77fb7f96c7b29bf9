"""The command line: plan, fit, predict, inspect and their options; home of typer.

What they do is in `commands`, which brings torch: 3 s that help and completion do not wait for.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import parkrr
from parkrr.cli import exit_codes as exits
from parkrr.cli import terminal
from parkrr.cli.options import (
    AnswersPlace,
    BlendCells,
    Cells,
    CellShares,
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
from parkrr.cli.terminal import show
from parkrr.errors import ParKError

EXITS = "\n".join(["Exit codes", *(f"{k:>3}  {told}" for k, told in exits.MEANINGS.items())])


def run(command: str, **arguments: Any) -> Any:
    """Run a command; its module imports torch, so it is imported here and not before."""
    from parkrr.cli import commands  # noqa: PLC0415

    return getattr(commands, command)(**arguments)


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
    if not run("plan", **locals()):  # what a script asks for
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
    run("fit", **locals())


@app.command()
def predict(
    model: Model,
    data: Data,
    output: AnswersPlace,
    keys: Keys = None,
    answers: CellShares = "prediction",
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
    run("predict", **locals())


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
    run("inspect", **locals())
