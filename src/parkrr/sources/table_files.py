"""Parquet files of pyarrow datasets, Delta Lake and Iceberg, which are read where they are.

Libraries are recognised by the module of an object's type, so that none of them is imported.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from parkrr.data import is_url
from parkrr.errors import SourceError

FOOTERS = 16  # read at once: each is a round trip on an object store
# Features of Delta Lake with which files still hold the rows of the table and nothing else.
PLAIN_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck"})


def find_parquet_files(source: Any, name: str) -> ds.FileSystemDataset | None:
    """The files of a source if they hold its rows and no others; None if not."""
    if is_delta(source):
        return find_delta_files(source, name)
    if is_iceberg(source):
        return find_iceberg_files(source, name)
    return find_dataset_files(source, name) if isinstance(source, ds.Dataset) else None


def version_of(source: Any) -> str | None:
    """What identifies the rows of a Delta Lake or Iceberg table; None for other sources."""
    if is_delta(source):
        return f"Delta Lake {source.metadata().id} version {source.version()}"
    if not is_iceberg(source):
        return None
    scan = as_iceberg_scan(source)
    if type(scan).__name__ != "DataScan":  # a scan of changes has no snapshot of its own
        return None
    snapshot = scan.snapshot()
    return (
        f"Iceberg {scan.table_metadata.table_uuid} snapshot "
        f"{None if snapshot is None else snapshot.snapshot_id} columns {scan.selected_fields} "
        f"filter {scan.row_filter} limit {scan.limit}"
    )


def is_delta(source: Any) -> bool:
    """Whether it is a table of deltalake."""
    return type(source).__module__.startswith("deltalake.") and hasattr(source, "file_uris")


def is_iceberg(source: Any) -> bool:
    """Whether it is a table of pyiceberg, or a scan of one."""
    known = type(source).__module__.startswith("pyiceberg.")
    return known and (hasattr(source, "plan_files") or hasattr(source, "scan"))


def find_dataset_files(dataset: Any, name: str) -> ds.FileSystemDataset | None:
    """The files of a pyarrow dataset, or of several in one filesystem."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # of Dataset.filter, whose condition pyarrow does not tell
        return None
    if not fragments:
        raise SourceError(name, "there are no rows")
    if not all(isinstance(fragment, ds.ParquetFileFragment) for fragment in fragments):
        return None
    filesystem = fragments[0].filesystem
    if isinstance(dataset, ds.FileSystemDataset):
        filesystem = dataset.filesystem
    elif any(fragment.filesystem != filesystem for fragment in fragments):
        return None
    return ds.FileSystemDataset(fragments, dataset.schema, fragments[0].format, filesystem)


def find_delta_files(table: Any, name: str) -> ds.FileSystemDataset | None:
    """The files of one version of a Delta Lake table, in the order of their names.

    With deletion vectors or renamed columns, files hold more or other than the rows of the table.
    """
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version == 2 or features - PLAIN_FEATURES:  # 2 renames columns
        return None
    # The log does not order files, and a checkpoint of the log may change their order.
    dataset = table.to_pyarrow_dataset(filesystem=local_filesystem(table.table_uri))
    fragments = sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)
    if not fragments:
        raise SourceError(name, "there are no rows")
    schema = dataset.schema.remove_metadata()
    return ds.FileSystemDataset(fragments, schema, dataset.format, dataset.filesystem)


def local_filesystem(uri: str) -> Any:
    """A folder of this machine as a filesystem, which pyarrow reads faster than deltalake's."""
    if is_url(uri) and not uri.startswith("file://"):
        return None
    filesystem, path = fs.FileSystem.from_uri(uri) if is_url(uri) else (fs.LocalFileSystem(), uri)
    return fs.SubTreeFileSystem(path, filesystem)


def as_iceberg_scan(source: Any) -> Any:
    """A scan of an Iceberg table; scans as they are."""
    return source if hasattr(source, "plan_files") else source.scan()


def find_iceberg_files(source: Any, name: str) -> ds.FileSystemDataset | None:
    """The files of an Iceberg table or scan, in the order of their names.

    None if rows are deleted or filtered, if files are not in a filesystem of pyarrow, or if their
    columns are not those of the table: Iceberg has numbers for columns, and files keep old names
    and types.
    """
    scan = as_iceberg_scan(source)
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    if not tasks:
        raise SourceError(name, "there are no rows")
    whole = all(
        task.file.file_format == "PARQUET"
        and not task.delete_files
        and type(task.residual).__name__ == "AlwaysTrue"
        for task in tasks
    )
    if not whole or getattr(scan, "limit", None) is not None:
        return None
    if not hasattr(scan.io, "fs_by_scheme"):
        return None
    places = [scan.io.parse_location(task.file.file_path) for task in tasks]
    if len({place[:2] for place in places}) > 1:
        return None
    scheme, host, _ = places[0]
    filesystem = fs.LocalFileSystem() if scheme == "file" else scan.io.fs_by_scheme(scheme, host)
    # Checksums of pages cost nothing measurable, and without them a flipped bit is a number.
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=options)
    fragments = [form.make_fragment(path, filesystem) for *_, path in places]
    with ThreadPoolExecutor(FOOTERS) as pool:
        schemas = list(pool.map(lambda fragment: fragment.physical_schema, fragments))
    wanted = [(str(column.field_id), column.name) for column in scan.projection().fields]
    columns = {tuple(select_numbered(schema, wanted)) for schema in schemas}
    if len(columns) > 1 or len(first := next(iter(columns))) < len(wanted):
        return None
    return ds.FileSystemDataset(fragments, pa.schema(first), form, filesystem)


def select_numbered(
    schema: pa.Schema, wanted: list[tuple[str, str]]
) -> list[tuple[str, pa.DataType]]:
    """Names and types of the wanted columns that a file has under their number and name."""
    types = {
        ((column.metadata or {}).get(b"PARQUET:field_id", b"").decode(), column.name): column.type
        for column in schema
    }
    return [(key[1], types[key]) for key in wanted if key in types]
