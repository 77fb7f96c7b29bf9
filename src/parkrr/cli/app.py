"""The command line: plan, fit, predict, score, inspect, explain, drift and their options.

What they do is in `commands`, which imports torch: 3 s that help and completion do not wait for.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import parkrr
from parkrr.cli import exit_codes, terminal
from parkrr.errors import ParKError

EPILOG = "\n".join(["Exit codes", *(f"{k:>3}  {text}" for k, text in exit_codes.MEANINGS.items())])


def option(help: str, metavar: str | None = None, *names: str, **settings: Any) -> Any:
    """An option, by default named as its parameter."""
    return typer.Option(*names, help=help, metavar=metavar, **settings)


# Options that several commands have, each written once.
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Parquet (a file, a folder, a glob, a URL), CSV (.csv, .tsv, .txt, with .gz, .bz2 or "
        ".zst) or Arrow (.arrow, .feather, .ipc).",
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model file of 'parkrr fit'.")]
Target = Annotated[str, option("Column to predict; several as a,b.", "NAME", "--target", "-t")]
Features = Annotated[str | None, option("Columns to predict from; default: all others.", "A,B")]
Weight = Annotated[str | None, option("Column of row weights.", "NAME")]
Groups = Annotated[
    str | None, option("Column of groups, which validation leaves out as a whole.", "NAME")
]
Time = Annotated[
    str | None, option("Column of times, of which validation takes the last fifth.", "NAME")
]
Filter = Annotated[
    str | None,
    option("Rows to take, such as \"year > 2023 and city in ('Oslo', 'Rome')\".", "TEXT"),
]


def csv_option(help: str, metavar: str) -> Any:
    """An option for CSV files, which help shows apart."""
    return option(help, metavar, rich_help_panel="CSV files")


Types = Annotated[
    str | None, csv_option("Types of columns, such as zip=string,price=float64.", "A=TYPE")
]
Delimiter = Annotated[
    str | None,
    csv_option("Between columns: a character, or tab; default: recognised.", "CHARACTER"),
]
Decimal = Annotated[str | None, csv_option("Decimal sign, . or ,; default: recognised.", "SIGN")]
Encoding = Annotated[
    str | None, csv_option("Such as utf-8, latin-1 or cp1252; default: recognised.", "NAME")
]
Quote = Annotated[str | None, csv_option("Around text; default: recognised.", "CHARACTER")]
Comment = Annotated[
    str | None, csv_option("At the start of lines to skip; default: recognised.", "CHARACTER")
]
Force = Annotated[bool, option("Replace output files that exist.", None, "--force", "-f")]
Columns = Annotated[
    str | None,
    option(
        "What columns hold: number, category, datetime, text or ignore, as in zip=category.",
        "A=KIND",
    ),
]
Classify = Annotated[
    bool | None,
    option(
        "Whether the target holds labels; default: if it is strings or booleans.",
        None,
        "--classify/--regress",
        show_default=False,
    ),
]
Memory = Annotated[str | None, option("Memory of the process, for files 4GB by default.", "SIZE")]
ModelSize = Annotated[str | None, option("Most bytes of the model, such as 500MB.", "SIZE")]
Effort = Annotated[str | None, option("How much is searched: fast, balanced or thorough.", "NAME")]
Seconds = Annotated[float | None, option("Seconds the fit should take.", "SECONDS")]
Checkpoint = Annotated[
    str | None, option("Folder or URL from which the same command resumes.", "FOLDER")
]
Cells = Annotated[int | None, option("Number of cells.", "N")]
Centers = Annotated[int | None, option("Number of centres of all cells.", "N")]
Kernel = Annotated[
    str | None, option("Family: gaussian, laplacian, matern, polynomial or linear.", "NAME")
]
Metric = Annotated[str | None, option("Feature map: learned, standard or euclidean.", "NAME")]
Penalty = Annotated[float | None, option("The ridge penalty, lambda.", "NUMBER")]
Blend = Annotated[int | None, option("Nearest cells to blend; 1 for no blend.", "N")]
Coarse = Annotated[int | None, option("Centres of a coarse level; 0 for none.", "N")]
Guarantee = Annotated[
    str | None,
    option("Theorem behind intervals: none, split, cell or jackknife+; not for labels.", "NAME"),
]
Extrapolation = Annotated[
    str | None, option("Predictions far from the data: bounded or free.", "NAME")
]
Loss = Annotated[
    str | None,
    option("squared_error, or poisson, gamma or tweedie for counts and amounts.", "NAME"),
]
Power = Annotated[float | None, option("Of the tweedie loss, from 1 to 3.", "NUMBER")]
Engine = Annotated[str, option("Where tasks run: local or ray.", "NAME")]
Report = Annotated[
    Path | None,
    option("HTML report to write; for a fit by default beside the model, as .html.", "FILE"),
]
Json = Annotated[bool, option("One JSON document on stdout, for errors too.", None, "--json")]
Quiet = Annotated[bool, option("No progress and no messages.", None, "--quiet", "-q")]
Debug = Annotated[bool, option("Show the traceback of an error.", None, "--debug")]


class Commands(TyperGroup):
    """Ends every run with an exit code of its own, and shows a traceback only if it helps."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            with exit_codes.interruptible():
                code = super().main(
                    arguments, prog_name, complete_var, False, windows_expand_args, **extra
                )
        except Exception as error:
            code = show_failure(error, arguments)
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        with exit_codes.reporting_interrupts(None):  # or typer would handle Ctrl-C itself
            return super().invoke(ctx)


def show_failure(error: Exception, arguments: Sequence[str]) -> int:
    """Show why a run failed; returns its exit code."""
    as_json, code = "--json" in arguments, exit_codes.code_of(error)
    message = str(error) or type(error).__name__
    if hasattr(error, "format_message"):  # typer's own: an option that does not exist
        code, message = exit_codes.USAGE, str(error.format_message())
        if not as_json:
            error.show()  # type: ignore[attr-defined]
            return code
    elif isinstance(error, exit_codes.Interrupted):
        message = describe_interrupt(error, arguments)
    terminal.show_error(type(error).__name__, message, as_json)
    if "--debug" in arguments or (
        code == exit_codes.UNEXPECTED and not isinstance(error, ParKError)
    ):
        terminal.show_traceback(error)
    return code


def describe_interrupt(error: exit_codes.Interrupted, arguments: Sequence[str]) -> str:
    """Where finished work is, and the command that resumes."""
    if error.folder is None:
        hint = "; with --checkpoint FOLDER a fit can be resumed" if arguments[:1] == ["fit"] else ""
        return f"interrupted; nothing was saved{hint}"
    module = Path(sys.argv[0]).name == "__main__.py"
    command = shlex.join([*(["python", "-m"] if module else []), "parkrr", *arguments])
    return f"interrupted; finished work is in {str(error.folder)!r}. To resume, run:\n{command}"


app = typer.Typer(
    cls=Commands,
    name="parkrr",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=EPILOG,
    help="Kernel ridge regression on partitions of the data (ParK), from files to files.",
)


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        terminal.show(f"parkrr {parkrr.__version__}")
        raise typer.Exit


@app.callback()
def entry(
    version: Annotated[
        bool, option("Show the version.", None, "--version", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Options that need no command."""


def run(command: str, **arguments: Any) -> Any:
    """Run a command; its module imports torch, so it is imported here and not before."""
    from parkrr.cli import commands  # noqa: PLC0415

    return getattr(commands, command)(**arguments)


@app.command()
def plan(
    data: Data,
    target: Target,
    features: Features = None,
    weight: Weight = None,
    filter: Filter = None,
    types: Types = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    quote: Quote = None,
    comment: Comment = None,
    columns: Columns = None,
    classify: Classify = None,
    max_memory: Memory = None,
    max_model_size: ModelSize = None,
    effort: Effort = None,
    time_budget: Seconds = None,
    checkpoint: Checkpoint = None,
    n_cells: Cells = None,
    n_centers: Centers = None,
    kernel: Kernel = None,
    metric: Metric = None,
    penalty: Penalty = None,
    blend: Blend = None,
    coarse: Coarse = None,
    guarantee: Guarantee = None,
    extrapolation: Extrapolation = None,
    loss: Loss = None,
    power: Power = None,
    engine: Engine = "local",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show what a fit with the same options would take, without fitting.

    The exit code is 4 if the fit would exceed its memory or time.

    [bold]parkrr plan trips.parquet --target minutes --max-memory 4GB[/bold]
    """
    if not run("plan", **locals()):
        raise typer.Exit(exit_codes.BUDGET)


@app.command()
def fit(
    data: Data,
    target: Target,
    output: Annotated[str, option("Model file or URL to write.", "FILE", "--output", "-o")],
    features: Features = None,
    weight: Weight = None,
    groups: Groups = None,
    time: Time = None,
    filter: Filter = None,
    types: Types = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    quote: Quote = None,
    comment: Comment = None,
    columns: Columns = None,
    classify: Classify = None,
    max_memory: Memory = None,
    max_model_size: ModelSize = None,
    effort: Effort = None,
    time_budget: Seconds = None,
    checkpoint: Checkpoint = None,
    n_cells: Cells = None,
    n_centers: Centers = None,
    kernel: Kernel = None,
    metric: Metric = None,
    penalty: Penalty = None,
    blend: Blend = None,
    coarse: Coarse = None,
    guarantee: Guarantee = None,
    extrapolation: Extrapolation = None,
    loss: Loss = None,
    power: Power = None,
    engine: Engine = "local",
    random_state: Annotated[int, option("Seed of all random choices.", "N")] = 0,
    report: Report = None,
    no_report: Annotated[bool, option("Write no report.", None, "--no-report")] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit a model to the rows of files, and write it with a report.

    [bold]parkrr fit trips.parquet --target minutes -o minutes.park[/bold]

    [bold]parkrr fit s3://bucket/trips/ -t minutes -o minutes.park --checkpoint fit-1[/bold]
    """
    run("fit", **locals())


@app.command()
def predict(
    model: Model,
    data: Data,
    output: Annotated[
        str,
        option(
            "A file (.parquet, .csv, .tsv, .arrow), or a folder/ or URL for Parquet files, from "
            "which the same command resumes.",
            "OUT",
            "--output",
            "-o",
        ),
    ],
    keys: Annotated[str | None, option("Columns to write beside predictions.", "A,B")] = None,
    keep_columns: Annotated[
        bool, option("Write all columns of DATA beside predictions.", None, "--keep-columns")
    ] = False,
    outputs: Annotated[
        str,
        option(
            "prediction, interval, std, novelty; for labels prediction, probability, novelty.",
            "A,B",
        ),
    ] = "prediction",
    coverage: Annotated[float, option("Share of targets inside intervals.", "SHARE")] = 0.9,
    features: Features = None,
    filter: Filter = None,
    types: Types = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    quote: Quote = None,
    comment: Comment = None,
    force: Force = False,
    engine: Engine = "local",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict the rows of files into files.

    [bold]parkrr predict minutes.park new.parquet -o predictions.csv --keys trip_id[/bold]
    """
    run("predict", **locals())


@app.command()
def score(
    model: Model,
    data: Data,
    target: Annotated[
        str | None,
        option("Column to compare with; default: that of the fit.", "NAME", "--target", "-t"),
    ] = None,
    weight: Weight = None,
    features: Features = None,
    filter: Filter = None,
    types: Types = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    quote: Quote = None,
    comment: Comment = None,
    engine: Engine = "local",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show how well a model predicts rows of files whose target is known.

    [bold]parkrr score minutes.park new.parquet[/bold]
    """
    run("score", **locals())


@app.command()
def inspect(
    model: Model,
    with_cells: Annotated[
        bool, option("Show the largest and worst cells; in JSON all cells.", None, "--cells")
    ] = False,
    report: Report = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what is in a model file.

    [bold]parkrr inspect minutes.park --cells[/bold]
    """
    run("inspect", **locals())


@app.command()
def explain(
    model: Model,
    data: Data,
    rows: Annotated[int, option("Explain so many of the first rows.", "N", "--rows", "-n")] = 3,
    target: Annotated[
        int, option("Number of a target, or of a class in the order of labels, from 0.", "N")
    ] = 0,
    shapley: Annotated[
        bool,
        option(
            "Add Shapley values; for a Gaussian kernel whose metric does not mix features.",
            None,
            "--shapley",
        ),
    ] = False,
    neighbors: Annotated[
        int, option("Training rows to show beside each row; 0 for none.", "N")
    ] = 3,
    features: Features = None,
    filter: Filter = None,
    types: Types = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    quote: Quote = None,
    comment: Comment = None,
    report: Annotated[
        Path | None,
        option("HTML report to write, with partial dependence on the first 1,000 rows.", "FILE"),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show what moves the predictions of the first rows of files.

    [bold]parkrr explain minutes.park new.parquet --rows 2[/bold]
    """
    run("explain", **locals())


@app.command()
def drift(
    model: Model,
    data: Data,
    rows: Annotated[
        int, option("Draw at most so many rows at random.", "N", "--rows", "-n")
    ] = 100_000,
    alpha: Annotated[
        float, option("Probability of a drift in rows that are like those of the fit.", "NUMBER")
    ] = 0.01,
    features: Features = None,
    filter: Filter = None,
    types: Types = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    quote: Quote = None,
    comment: Comment = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show whether rows of files are like those of the fit; needs no target.

    The exit code is 0 if they are, and 9 if not.

    [bold]parkrr drift minutes.park july.parquet || mail -s 'fit again' me@example.org[/bold]
    """
    if run("drift", **locals()):
        raise typer.Exit(exit_codes.DRIFT)
