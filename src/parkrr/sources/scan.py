"""Any source of rows as a table: its Parquet files where it has some, else a copy of its rows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parkrr.data import ParquetTable, describe_dataset, is_csv, make_filter, scan_parquet
from parkrr.errors import ParameterError
from parkrr.sources.batches import is_source, iterate_tables
from parkrr.sources.spool import copy_rows
from parkrr.sources.table_files import find_parquet_files, version_of


def scan(
    source: Any,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    weight: str | None = None,
    filter: Any = None,
    groups: str | None = None,
    time: str | None = None,
    spool: str | Path | None = None,
    fingerprint: str | None = None,
) -> ParquetTable:
    """Describe the rows of another library for `fit`, `plan`, `predict_to` and `score_files`.

    Parquet files of a pyarrow dataset, a Delta Lake table or an Iceberg table are read where they
    are. Rows of any other source are copied once to a Parquet file, a row group at a time. The
    model is the one of the same rows as Parquet, to the last bit.

    Parameters
    ----------
    source : object
        A dataset or scanner of pyarrow, a Delta Lake table, an Iceberg table or scan, a DuckDB
        relation, a polars LazyFrame, a dataset of Hugging Face or of Ray Data, any object with
        ``__arrow_c_stream__`` such as a pyarrow RecordBatchReader, or a callable without
        parameters that returns one of these or an iterator of Arrow batches.
    target, features, weight, filter, groups, time
        As for :func:`parkrr.scan_parquet`.
    spool : str or Path, default=None
        Folder or URL for the copy, which stays there; it may be in the folder of a checkpoint.
        None takes a temporary folder, which is removed with the table. Sources whose Parquet
        files are read need none.
    fingerprint : str, default=None
        What identifies the state of the source, such as a date or a version. A copy in `spool`
        with the same fingerprint is used again, and the source is not read. Tables of Delta Lake
        and Iceberg have one. None copies the rows again; a checkpoint of equal rows is resumed
        all the same.

    Returns
    -------
    ParquetTable
        The row groups, schema and roles of columns.

    Raises
    ------
    ParameterError
        If `source` is none of the above, or a column does not exist or is named twice.
    SourceError
        If there are no rows, or they cannot be read or kept as Parquet.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from parkrr import scan
    >>> rows = pa.table({"x": [1.0, 2.0, 3.0], "y": [3.0, 4.0, 5.0]})
    >>> scan(rows.to_reader(), target="y").n_rows
    3
    >>> scan(lambda: rows.to_reader(max_chunksize=1), target="y", filter="x > 1").n_rows
    2
    """
    check_scannable(source)
    roles: dict[str, Any] = {
        "target": target,
        "features": features,
        "weight": weight,
        "groups": groups,
        "time": time,
    }
    name = type(source).__name__
    files = find_parquet_files(source, name)
    if files is not None:
        rows = make_filter(filter, files.schema)
        return describe_dataset(files, name, filter=rows, promotions={}, conflicts={}, **roles)
    if fingerprint is None:
        fingerprint = version_of(source)
    copy = copy_rows(lambda: iterate_tables(source), name, spool, fingerprint)
    table = scan_parquet([copy.path], filter=filter, filesystem=copy.filesystem, **roles)
    return replace(table, content=copy.content, lifetime=copy.lifetime)


def check_scannable(source: Any) -> None:
    """Refuse what is no source of rows, with the way out."""
    if isinstance(source, str | Path):
        own = "scan_csv" if is_csv(str(source)) else "scan_parquet"
        raise ParameterError(
            f"source must be an object that holds rows, got {str(source)!r}; for files write "
            f"{own}({str(source)!r}, ...)"
        )
    if isinstance(source, ParquetTable):
        raise ParameterError(
            "source must be an object of another library, got a table that was scanned already; "
            "pass it to fit, plan, predict_to or score_files"
        )
    if type(source).__module__.startswith("datasets.") and isinstance(source, dict):
        raise ParameterError(
            f"source must be one split of a Hugging Face dataset, got {list(source)}; choose one "
            f"as in scan(source[{next(iter(source), 'train')!r}], ...)"
        )
    if not is_source(source):
        raise ParameterError(
            f"source must be a dataset of pyarrow, Hugging Face or Ray Data, a Delta Lake or "
            f"Iceberg table, a DuckDB relation, a polars LazyFrame, an object with "
            f"__arrow_c_stream__ or a callable that returns a RecordBatchReader, got "
            f"{type(source).__name__}; write a callable that returns one"
        )
