"""Files of any format as Parquet, for as long as a command needs them."""

import glob
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from parkrr.data import (
    Dialect,
    convert_to_parquet,
    file_versions,
    is_convertible,
    is_csv,
    is_url,
    set_time,
)
from parkrr.errors import ParameterError, SourceError
from parkrr.out_of_core import JOB, Checkpoint, digest_of

ROWS, MARKER = "rows.parquet", "rows.json"


@contextmanager
def as_parquet(
    path: str,
    types: Mapping[str, str],
    keep: str | Path | None,
    shown: bool,
    dialect: Dialect,
) -> Iterator[str]:
    """A path that `scan_parquet` can read, while the context lasts.

    Parameters
    ----------
    path
        Files of any format: a CSV or Arrow file, a glob or URL of such, or Parquet.
    types
        Names of Arrow types by column, for CSV; others are inferred from its first rows.
    keep
        A folder in which rows.parquet stays and is used again while its source is unchanged; None
        for a temporary folder.
    shown
        Whether to show progress.
    dialect
        What is known about how CSV files are written.
    """
    known = {name: value for name, value in asdict(dialect).items() if value is not None}
    if (types or known) and not is_csv(path):
        name = "types" if types else next(iter(known))
        raise ParameterError(f"{name} must be given for CSV files only, got {path!r}")
    if not is_convertible(path):
        if not is_url(path) and not glob.has_magic(path) and not Path(path).exists():
            raise SourceError(path, "there is no such file or folder")
        yield path
    elif keep is None:
        with tempfile.TemporaryDirectory(prefix="parkrr-") as folder:
            rows = Path(folder, "rows.parquet")
            yield str(convert_to_parquet(path, types, rows, shown, dialect=dialect))
    elif is_url(keep):
        raise ParameterError(
            f"{path!r} must be Parquet if {str(keep)!r} is a URL, since other formats are "
            f"converted in that folder; use a folder of this machine, or convert the file"
        )
    else:
        yield str(convert_once(path, types, Path(keep).absolute(), shown, dialect))


def convert_once(
    path: str, types: Mapping[str, str], folder: Path, shown: bool, dialect: Dialect
) -> Path:
    """rows.parquet in a checkpoint, converted again only if its source has changed."""
    checkpoint, rows = Checkpoint(str(folder)), folder / ROWS
    known = {name: value for name, value in asdict(dialect).items() if value is not None}
    source = {"source": file_versions(path), "types": dict(types), "dialect": known}
    with checkpoint.hold():
        marker = checkpoint.read_marker(MARKER, ROWS)  # None if the file is damaged, too
        before = None if marker is None else marker["facts"]
        if before == source:
            return rows
        if before is not None and Path(folder, JOB).exists():
            for part, wanted in source.items():
                checkpoint.compare(part, before.get(part), wanted)
        convert_to_parquet(path, types, rows, shown, dialect=dialect)
        set_time(rows, source["source"])
        checkpoint.mark(MARKER, digest_of(checkpoint.place, ROWS), source)
    return rows
