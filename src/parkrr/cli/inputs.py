"""Files of any format as Parquet, for as long as a command needs them."""

import glob
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from parkrr.data import (
    convert_to_parquet,
    file_versions,
    is_convertible,
    is_csv,
    is_url,
)
from parkrr.errors import ParameterError, SourceError
from parkrr.out_of_core import JOB, Checkpoint, digest_of

ROWS, MARKER = "rows.parquet", "rows.json"


@contextmanager
def as_parquet(
    path: str, types: Mapping[str, str], keep: str | Path | None, shown: bool
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
    """
    if types and not is_csv(path):
        raise ParameterError(f"types must be given for CSV files only, got {path!r}")
    if not is_convertible(path):
        if not is_url(path) and not glob.has_magic(path) and not Path(path).exists():
            raise SourceError(path, "there is no such file or folder")
        yield path
    elif keep is None:
        with tempfile.TemporaryDirectory(prefix="parkrr-") as folder:
            yield str(convert_to_parquet(path, types, Path(folder, "rows.parquet"), shown))
    elif is_url(keep):
        raise ParameterError(
            f"{path!r} must be Parquet if {str(keep)!r} is a URL, since other formats are "
            f"converted in that folder; use a folder of this machine, or convert the file"
        )
    else:
        yield str(convert_once(path, types, Path(keep).absolute(), shown))


def convert_once(path: str, types: Mapping[str, str], folder: Path, shown: bool) -> Path:
    """rows.parquet in a checkpoint, converted again only if its source has changed."""
    checkpoint, rows = Checkpoint(str(folder)), folder / ROWS
    source = {"source": file_versions(path), "types": dict(types)}
    with checkpoint.hold():
        marker = checkpoint.read_marker(MARKER, ROWS)  # None if the file is damaged, too
        before = None if marker is None else marker["facts"]
        if before == source:
            return rows
        if before is not None and Path(folder, JOB).exists():
            for part, wanted in source.items():
                checkpoint.compare(part, before.get(part), wanted)
        convert_to_parquet(path, types, rows, shown)
        # The time of its source, so that rows converted once more are the same file to a fit.
        age = max(int(version.rpartition(" ")[2]) for version in source["source"].values())
        os.utime(rows, ns=(age, age))
        checkpoint.mark(MARKER, digest_of(checkpoint.place, ROWS), source)
    return rows
