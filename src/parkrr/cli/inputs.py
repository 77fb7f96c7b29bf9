"""Files of any kind as Parquet, for as long as a command needs them."""

import glob
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from parkrr.data import ARROW, CSV, atomic_write, converted, found, is_csv, is_url
from parkrr.errors import ParameterError, SourceError
from parkrr.out_of_core import JOB, Checkpoint


@contextmanager
def as_parquet(
    path: str, types: Mapping[str, str], keep: str | Path | None, shown: bool
) -> Iterator[str]:
    """What `scan_parquet` can read, as long as the context lasts.

    Parameters
    ----------
    path
        Files of any kind: a CSV or Arrow file, a glob or URL of such, or whatever holds Parquet.
    types
        Names of Arrow types by column, for CSV; others are inferred from its first rows.
    keep
        A folder in which rows.parquet stays and is used again while its source is the same; None
        for one that is gone afterwards.
    shown
        Whether to show how far reading has come.
    """
    if types and not is_csv(path):
        raise ParameterError(f"types must be of a CSV file, but {path!r} is none")
    if not path.lower().endswith(CSV + ARROW):
        if not is_url(path) and not glob.has_magic(path) and not Path(path).exists():
            raise SourceError(path, "there is no such file or folder")
        yield path
    elif keep is not None:
        if is_url(keep):
            raise ParameterError(
                f"{path!r} must be Parquet if what is finished goes to {str(keep)!r}, since other "
                f"files are converted in that folder; name one of this machine"
            )
        yield str(kept(path, types, Path(keep).absolute(), shown))
    else:
        with tempfile.TemporaryDirectory(prefix="parkrr-") as folder:
            yield str(converted(path, types, Path(folder, "rows.parquet"), shown))


def kept(path: str, types: Mapping[str, str], folder: Path, shown: bool) -> Path:
    """rows.parquet in a checkpoint, made unless it is there and its source has not changed."""
    ledger, marker, rows = Checkpoint(str(folder)), folder / "rows.json", folder / "rows.parquet"
    ledger.check({})  # that it is a folder we can use
    source = {"source": sizes(path), "types": dict(types)}
    there = json.loads(marker.read_text()) if marker.exists() and rows.exists() else None
    if there == source:
        return rows
    if there is not None and Path(folder, JOB).exists():
        for part, wanted in source.items():
            ledger.compare(part, there.get(part), wanted)
    marker.unlink(missing_ok=True)
    converted(path, types, rows, shown)
    # The age of its source, so that rows converted once more are the same file to a fit.
    age = max(int(told.rpartition(" ")[2]) for told in source["source"].values())
    os.utime(rows, ns=(age, age))
    with atomic_write(marker) as temporary:
        temporary.write_text(json.dumps(source, indent=1))
    return rows


def sizes(path: str) -> dict[str, str]:
    """Size and time of each file, so that a change is noticed."""
    place, files = found(path)
    here = isinstance(place, fs.LocalFileSystem)
    infos = {os.path.abspath(i.path) if here else i.path: i for i in place.get_file_info(files)}
    return {name: f"{info.size} bytes of {info.mtime_ns or 0}" for name, info in infos.items()}
