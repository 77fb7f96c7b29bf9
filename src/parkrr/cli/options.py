"""The options of the command line, each said once; with `cli` the home of typer."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Parquet (a file, a folder, a glob, a URL), CSV (.csv, .tsv, .gz) or Arrow "
        "(.arrow, .feather, .ipc).",
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="What 'parkrr fit' has written.")]
Target = Annotated[
    str, typer.Option("--target", "-t", help="Column to predict; several as a,b.", metavar="NAME")
]
Features = Annotated[
    str | None,
    typer.Option(help="Columns to predict from; all others unless given.", metavar="A,B"),
]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.", metavar="NAME")]
Types = Annotated[
    str | None,
    typer.Option(help="Types of CSV columns, such as zip=string,price=float64.", metavar="A=TYPE"),
]
Classify = Annotated[
    bool | None,
    typer.Option(
        "--classify/--regress",
        help="Whether the target is labels; if not given, words and truth values are.",
        show_default=False,
    ),
]
Memory = Annotated[
    str | None, typer.Option(help="What the process may take; 4GB for files.", metavar="SIZE")
]
Seconds = Annotated[
    float | None, typer.Option(help="Seconds the fit should take.", metavar="SECONDS")
]
Cells = Annotated[int | None, typer.Option(help="Number of cells.", metavar="N")]
Centers = Annotated[int | None, typer.Option(help="Centres of all cells.", metavar="N")]
Kernel = Annotated[
    str | None,
    typer.Option(help="gaussian, laplacian, matern, polynomial or linear.", metavar="NAME"),
]
Metric = Annotated[
    str | None,
    typer.Option(help="Units of distances: learned, standard or euclidean.", metavar="NAME"),
]
Penalty = Annotated[float | None, typer.Option(help="The ridge, lambda.", metavar="NUMBER")]
Checkpoint = Annotated[
    str | None,
    typer.Option(help="Folder or URL from which the same command goes on.", metavar="FOLDER"),
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="HTML report to write; of a fit the model's name with .html, but for URLs.",
        metavar="FILE",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", metavar="N")]
Engine = Annotated[str, typer.Option(help="Where tasks run: local or ray.", metavar="NAME")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, errors as well.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]
ModelFile = Annotated[
    str, typer.Option("--output", "-o", help="The model file or URL to write.", metavar="FILE")
]
AnswersPlace = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="A file (.parquet, .csv, .arrow), or a folder or URL for Parquet files, from which "
        "the same command goes on.",
        metavar="OUT",
    ),
]
Keys = Annotated[
    str | None, typer.Option(help="Columns to write beside the answers.", metavar="A,B")
]
CellShares = Annotated[
    str,
    typer.Option(
        help="prediction, interval, std, novelty; of labels prediction, probability, novelty.",
        metavar="A,B",
    ),
]
Coverage = Annotated[float, typer.Option(help="Of intervals.", metavar="SHARE")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.")]
WithCells = Annotated[
    bool, typer.Option("--cells", help="The largest and worst cells; in JSON all of them.")
]
BlendCells = Annotated[
    int | None, typer.Option("--blend", help="1: only the nearest cell answers.", metavar="N")
]
CoarseCenters = Annotated[
    int | None, typer.Option("--coarse", help="Centres of a coarse level; 0 for none.", metavar="N")
]
