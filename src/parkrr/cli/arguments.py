"""What is asked for on the command line, as estimators, tables and files.

Knows words a person typed, not how they are parsed or what is shown.
"""

import importlib.util
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parkrr.data import (
    Category,
    ParquetTable,
    is_category,
    is_csv,
    is_url,
    join_parts,
    locate_file,
    scan_parquet,
)
from parkrr.errors import ModelFileError, ParameterError, StorageError
from parkrr.estimators.classifier import ParKClassifier
from parkrr.estimators.load import load
from parkrr.estimators.regressor import ParKRegressor
from parkrr.kernels import Radial, as_kernel

Estimator = ParKRegressor | ParKClassifier


def names_of(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def types_of(text: str | None) -> dict[str, str]:
    """Types of columns, written as a=string,b=float64."""
    pairs = [name.partition("=") for name in names_of(text)]
    for name, _, kind in pairs:
        if not name or not kind:
            raise ParameterError(f"types must be written as a=string,b=float64, got {text!r}")
    return {name: kind for name, _, kind in pairs}


def training_rows(path: str, target: str, features: str | None, weight: str | None) -> ParquetTable:
    """The rows of Parquet files to fit."""
    if not names_of(target):
        raise ParameterError(f"target must name a column, got {target!r}")
    return scan_parquet(path, names_of(target), names_of(features) or None, weight)


def classifies(table: ParquetTable) -> bool:
    """Whether the target is of a type that only labels have: words and truth values."""
    kinds = [table.schema.field(name).type for name in table.target]
    return all(is_category(kind) or str(kind) == "bool" for kind in kinds)


def decision(table: ParquetTable, classify: bool) -> str:
    """What was decided about the target, and how to decide otherwise."""
    kinds = " and ".join(f"{name!r} is {table.schema.field(name).type}" for name in table.target)
    if classify:
        return f"{kinds}, so this is a classification; --regress if it holds numbers"
    return f"{kinds}, so this is a regression; --classify if it holds labels"


def estimator_of(classify: bool, **wanted: Any) -> Estimator:
    """The estimator with these parameters; None leaves one as it is.

    A kernel by name is a family here, for nobody can say its lengthscale: without a metric that
    is given one is learned, which finds the lengthscale as well.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    if given.get("kernel", "auto") != "auto" and "metric" not in given:
        radial = isinstance(as_kernel(given["kernel"]), Radial)
        given["metric"] = "learned" if radial else "standard"
    kind = ParKClassifier if classify else ParKRegressor
    made: Estimator = kind(**given)
    return made


def check_place(place: str | Path) -> None:
    """Refuse before a long fit what could only fail after it."""
    if is_url(place):
        locate_file(place)[0].make()
        return
    path = Path(place)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StorageError(str(path), f"there is no folder {str(folder)!r}")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise StorageError(str(path), "it is a folder" if path.is_dir() else "permission denied")


def can_draw() -> bool:
    """Whether what reports need is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def report_place(report: Path | None, model: str) -> Path | None:
    """Where a report goes, beside a model of this machine unless said; None if nowhere."""
    if report is not None and not can_draw():
        raise ModuleNotFoundError("a report needs matplotlib; pip install 'parkrr[plot]'")
    if report is None and is_url(model):
        return None
    place = report or Path(model).with_suffix(".html")
    if place.absolute() == Path(model).absolute():
        raise ParameterError(f"the model and its report must not be one file, {str(place)!r}")
    check_place(place)
    return place if can_draw() else None


def opened(path: str) -> Estimator:
    """The model of a file."""
    try:
        return load(path)
    except OSError as error:
        raise ModelFileError(f"{path!r} cannot be read: {error.strerror or error}") from error


def size_of(path: str) -> int:
    """Bytes of a file."""
    folder, name = locate_file(path)
    with folder.file(name) as file:
        size: int = file.size()
    return size


def word_types(model: Estimator, path: str) -> dict[str, str]:
    """Columns that are words for a model, so that CSV does not take codes like 007 for numbers."""
    columns = model.columns_.columns if model.columns_ is not None and is_csv(path) else ()
    return {column.name: "string" for column in columns if isinstance(column, Category)}


def rows_to_predict(path: str, model: Estimator, features: str | None) -> ParquetTable:
    """The rows of Parquet files to predict; a model of an array takes columns by their order."""
    named = getattr(model, "feature_names_in_", ()) if model.columns_ is None else ()
    return scan_parquet(path, features=names_of(features) or list(named) or None)


def predict_to_file(
    model: Estimator,
    table: ParquetTable,
    path: str,
    keys: Sequence[str],
    answers: Sequence[str],
    coverage: float,
) -> int:
    """Answers as one file; how many rows it has."""
    out = Path(path)
    check_place(out)
    labels = {"probability": [str(label) for label in getattr(model, "classes_", ())]}
    # Beside the file, where there must be room for it anyhow.
    with tempfile.TemporaryDirectory(prefix=".parkrr-", dir=out.absolute().parent) as folder:
        rows = model.predict_to(table, folder, keys, answers, coverage)
        join_parts(Path(folder), out, labels)
    return rows
