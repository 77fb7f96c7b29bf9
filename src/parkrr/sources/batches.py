"""The rows of a source as Arrow tables, one after the other."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from parkrr.errors import ParameterError, ParKError, SourceError
from parkrr.sources.table_files import as_iceberg_scan, is_delta, is_iceberg

BATCH_ROWS = 10_000  # asked for at a time, where a library lets one choose


def library_of(source: Any) -> str:
    """The library of an object, by the module of its type."""
    module = type(source).__module__
    return "ray.data" if module.startswith("ray.data.") else module.partition(".")[0]


def is_source(source: Any) -> bool:
    """Whether :func:`iterate_tables` can read it."""
    return (
        isinstance(source, ds.Dataset | ds.Scanner)
        or is_delta(source)
        or is_iceberg(source)
        or (library_of(source) == "datasets" and hasattr(source, "with_format"))
        or (library_of(source) == "ray.data" and hasattr(source, "iter_batches"))
        or (library_of(source) == "polars" and type(source).__name__ == "LazyFrame")
        or hasattr(source, "__arrow_c_stream__")
        or callable(source)
    )


def iterate_tables(source: Any) -> Iterator[pa.Table]:
    """Read the rows of a source in order, in tables of any size."""
    try:
        for rows in iterate_batches(source):
            table = as_arrow(rows)
            if not len(table):
                continue
            # Offsets of strings that another library wrote are not trusted: invalid ones would
            # end the process.
            table.validate(full=True)
            yield table
    except ParKError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise SourceError(type(source).__name__, str(error)) from error


def iterate_batches(source: Any) -> Iterator[Any]:
    """The rows of a source in the batches that its library makes of them."""
    library = library_of(source)
    if isinstance(source, ds.Dataset):
        return iter(source.scanner().to_reader())
    if isinstance(source, ds.Scanner):
        return iter(source.to_reader())
    if is_delta(source):
        if not hasattr(source, "scan"):
            raise SourceError(
                type(source).__name__,
                "it has deletion vectors or renamed columns, which this version of deltalake "
                "cannot read as a stream; install a newer one",
            )
        return iter(pa.RecordBatchReader.from_stream(source.scan()))
    if is_iceberg(source):
        return iter(as_iceberg_scan(source).to_arrow_batch_reader())
    if library == "datasets":
        return iter(source.with_format("arrow").iter(batch_size=BATCH_ROWS))
    if library == "ray.data":
        return iterate_ray(source)
    if library == "polars" and type(source).__name__ == "LazyFrame":
        # Versions before 1.34 have no way to hand over one batch after the other.
        streams = hasattr(source, "collect_batches")
        return iter(source.collect_batches() if streams else [source.collect()])
    if library.endswith("duckdb") and hasattr(source, "to_arrow_reader"):  # from version 1.4 on
        return iter(source.to_arrow_reader(BATCH_ROWS))
    if hasattr(source, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(source))
    return iterate_returned(source)


def iterate_ray(source: Any) -> Iterator[pa.Table]:
    """The rows of a Ray dataset in their order, which Ray keeps only if it is asked to."""
    options = source.context.execution_options
    before = options.preserve_order
    options.preserve_order = True
    try:
        yield from source.iter_batches(batch_size=BATCH_ROWS, batch_format="pyarrow")
    finally:
        options.preserve_order = before


def iterate_returned(function: Any) -> Iterator[Any]:
    """The rows of what a callable returns: a source, or an iterator of batches."""
    returned = function()
    if is_source(returned) and not callable(returned):
        yield from iterate_batches(returned)
    elif isinstance(returned, Iterator):
        yield from returned
    else:
        raise ParameterError(
            f"source must be a callable that returns a RecordBatchReader, another source or an "
            f"iterator of Arrow batches, but it returned {type(returned).__name__}"
        )


def as_arrow(rows: Any) -> pa.Table:
    """One batch as a table, whichever library it comes from."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return pa.table(rows)
    raise ParameterError(
        f"source must return Arrow batches, tables or frames, got {type(rows).__name__}; convert "
        f"it with pyarrow.record_batch"
    )
