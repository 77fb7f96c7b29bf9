"""Rows of other libraries: every one of them gives the model of the same rows as Parquet."""

import pickle

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from ondisk import on_disk
from parkrr import ParKRegressor, scan, scan_parquet
from parkrr.errors import CheckpointError, ParameterError, SourceError
from source_rows import fit, made_up, predict, read_all


@pytest.fixture(scope="module")
def rows():
    return made_up()


@pytest.fixture(scope="module")
def expected(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(rows, path)
    return predict(scan_parquet(path, target="y"))


def parquet_dataset(rows, folder):
    pq.write_table(rows, folder / "rows.parquet")
    return ds.dataset(folder / "rows.parquet")


def filtered_dataset(rows, folder):
    return parquet_dataset(rows, folder).filter(ds.field("x") > -100)


def scanner(rows, folder):
    return parquet_dataset(rows, folder).scanner(batch_size=77)


def feather_dataset(rows, folder):
    feather.write_feather(rows, folder / "rows.feather")
    return ds.dataset(folder / "rows.feather", format="feather")


def csv_dataset(rows, folder):
    pv.write_csv(rows, folder / "rows.csv")
    return ds.dataset(folder / "rows.csv", format="csv", schema=rows.schema)


def dataset_in_memory(rows, folder):
    return ds.dataset(rows)


def delta_table(rows, folder):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(folder / "delta", rows)
    return deltalake.DeltaTable(folder / "delta")


def delta_table_of_renamed_columns(rows, folder):
    """Its files hold columns under names of their own."""
    deltalake = pytest.importorskip("deltalake")
    mapped = {"delta.columnMapping.mode": "name"}
    deltalake.write_deltalake(folder / "delta", rows, configuration=mapped)
    return deltalake.DeltaTable(folder / "delta")


def delta_table_with_deletion_vectors(rows, folder):
    deltalake = pytest.importorskip("deltalake")
    vectors = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(folder / "delta", rows, configuration=vectors)
    return deltalake.DeltaTable(folder / "delta")


def iceberg_table(rows, folder):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = sql.SqlCatalog(
        "local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
    )
    catalog.create_namespace("trips")
    table = catalog.create_table("trips.rows", schema=rows.schema)
    table.append(rows)
    return table


def iceberg_scan(rows, folder):
    return iceberg_table(rows, folder).scan(row_filter="x > -100")


def duckdb_relation(rows, folder):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(folder / "rows.duckdb")
    connection.register("given", rows)
    connection.execute("create table rows as select * from given")
    return connection.table("rows")


def polars_lazy_frame(rows, folder):
    polars = pytest.importorskip("polars")
    pq.write_table(rows, folder / "rows.parquet")
    return polars.scan_parquet(folder / "rows.parquet")


def polars_frame(rows, folder):
    return pytest.importorskip("polars").from_arrow(rows)


def pandas_frame(rows, folder):
    return rows.to_pandas()


def hugging_face_dataset(rows, folder):
    return pytest.importorskip("datasets").Dataset(rows)


def hugging_face_stream(rows, folder):
    return hugging_face_dataset(rows, folder).to_iterable_dataset(num_shards=3)


def reader(rows, folder):
    return rows.to_reader(max_chunksize=77)


def function_that_returns_a_reader(rows, folder):
    return lambda: rows.to_reader(max_chunksize=77)


def function_that_returns_batches(rows, folder):
    return lambda: iter(rows.to_batches(max_chunksize=77))


SOURCES = [
    parquet_dataset,
    filtered_dataset,
    scanner,
    feather_dataset,
    csv_dataset,
    dataset_in_memory,
    delta_table,
    delta_table_of_renamed_columns,
    delta_table_with_deletion_vectors,
    iceberg_table,
    iceberg_scan,
    duckdb_relation,
    polars_lazy_frame,
    polars_frame,
    pandas_frame,
    hugging_face_dataset,
    hugging_face_stream,
    reader,
    function_that_returns_a_reader,
    function_that_returns_batches,
]


@pytest.mark.parametrize("source", SOURCES)
def test_the_model_is_that_of_the_same_rows_as_parquet(source, rows, expected, tmp_path):
    assert predict(scan(source(rows, tmp_path), target="y")) == expected


@pytest.mark.parametrize("source", [parquet_dataset, delta_table, iceberg_table])
def test_parquet_files_are_read_where_they_are(source, rows, tmp_path):
    table = scan(source(rows, tmp_path), target="y")
    assert table.content is None
    assert [info.is_file for info in table.filesystem.get_file_info([table.row_groups[0].path])]
    assert [*tmp_path.rglob(table.row_groups[0].path.rpartition("/")[2])] != []


def test_files_of_several_datasets_are_read_where_they_are(rows, tmp_path):
    both = ds.dataset([parquet_dataset(rows, tmp_path), parquet_dataset(rows, tmp_path)])
    table = scan(both, target="y")
    assert (table.n_rows, table.content) == (2 * len(rows), None)


def test_a_dataset_keeps_the_partitions_of_its_folders(rows, tmp_path):
    ds.write_dataset(rows, tmp_path, format="parquet", partitioning=["city"])
    schema = pa.schema([("city", pa.string())])
    table = scan(ds.dataset(tmp_path, partitioning=ds.partitioning(schema)), target="y")
    assert set(read_all(table)["city"]) == {"Oslo", "Rome", "Bonn"}
    assert table.content is None


def test_filters_of_a_dataset_and_of_the_scan_both_hold(rows, tmp_path):
    dataset = parquet_dataset(rows, tmp_path).filter(ds.field("x") > 0)
    table = scan(dataset, target="y", filter="y < 1")
    kept = rows.filter((ds.field("x") > 0) & (ds.field("y") < 1))
    assert read_all(table)["x"] == kept["x"].to_pylist()


def test_roles_of_columns_are_those_of_scan_parquet(rows, tmp_path):
    table = scan(rows, "y", ["x"], weight="tip", filter="tip > 0", groups="city", time="start")
    assert (table.target, table.features, table.weight) == (("y",), ("x",), "tip")
    assert (table.groups, table.time) == ("city", "start")
    assert table.n_rows == len(rows.filter(ds.field("tip") > 0))
    with pytest.raises(ParameterError, match=r"'cty' is not one of .*did you mean 'city'"):
        scan(rows, target="y", features=["cty"])


def test_a_delta_table_has_the_rows_of_its_version(rows, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    folder = tmp_path / "delta"
    deltalake.write_deltalake(folder, rows[:600], partition_by=["city"])
    deltalake.write_deltalake(folder, rows[600:], mode="append")
    deltalake.DeltaTable(folder).delete("x > 1")
    first, last = deltalake.DeltaTable(folder, version=0), deltalake.DeltaTable(folder)
    assert sorted(read_all(scan(first, target="y"))["x"]) == sorted(rows["x"].to_pylist()[:600])
    kept = rows.filter(ds.field("x") <= 1)
    assert sorted(read_all(scan(last, target="y"))["x"]) == sorted(kept["x"].to_pylist())
    oslo = scan(last, target="y", filter="city = 'Oslo'")
    assert oslo.n_rows == len(kept.filter(ds.field("city") == "Oslo"))


def test_names_of_folders_with_other_letters_are_found_by_workers(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    city = ["New York", "a/b", "\u00fc=1", None]
    folder = tmp_path / "my table \u00e9"
    given = pa.table({"city": city, "y": [1.0, 2.0, 3.0, 4.0]})
    deltalake.write_deltalake(folder, given, partition_by=["city"])
    sent = pickle.loads(pickle.dumps(scan(deltalake.DeltaTable(folder), target="y")))
    found = read_all(sent)
    assert dict(zip(found["city"], found["y"], strict=True)) == dict(
        zip(city, [1.0, 2.0, 3.0, 4.0], strict=True)
    )


def test_an_iceberg_table_has_its_columns_under_their_new_names(rows, tmp_path):
    table = iceberg_table(rows, tmp_path)
    with table.update_schema() as update:
        update.rename_column("tip", "extra")
    found = scan(table, target="y")
    assert read_all(found)["extra"] == rows["tip"].to_pylist()
    assert found.features == ("x", "city", "start", "extra")


def test_an_iceberg_scan_has_the_columns_and_rows_it_selects(rows, tmp_path):
    table = iceberg_table(rows, tmp_path)
    some = scan(table.scan(selected_fields=("x", "y")), target="y")
    assert (some.features, some.content) == (("x",), None)
    assert scan(table.scan(limit=10), target="y").n_rows == 10
    assert scan(table.scan(row_filter="x > 0"), target="y").n_rows == len(
        rows.filter(ds.field("x") > 0)
    )


def test_a_hugging_face_dataset_has_the_rows_that_were_selected(rows, tmp_path):
    chosen = hugging_face_dataset(rows, tmp_path).select([5, 3, 900])
    assert read_all(scan(chosen, target="y"))["x"] == rows["x"].take([5, 3, 900]).to_pylist()


def test_a_scanned_stream_can_be_planned_predicted_and_scored(rows, tmp_path):
    table = scan(rows.to_reader(), target="y")
    model = fit(table)
    assert model.plan(table).plain()["rows"] == len(rows)
    assert model.score_files(table)["rows"] == len(rows)
    assert model.predict_to(table, tmp_path / "out", keys=["city"]) == len(rows)
    written = pq.read_table(tmp_path / "out")
    assert written["city"].to_pylist() == rows["city"].to_pylist()


def test_a_fit_of_a_stream_resumes_when_the_stream_has_the_same_rows(rows, tmp_path):
    first = on_disk(tmp_path / "fit").fit(scan(rows.to_reader(), target="y"))
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "fit").glob("*.json")}
    second = on_disk(tmp_path / "fit").fit(scan(rows.to_reader(max_chunksize=7), target="y"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "fit").glob("*.json")} == there
    assert first.predict(rows).tolist() == second.predict(rows).tolist()
    with pytest.raises(CheckpointError, match="content of the source was"):
        on_disk(tmp_path / "fit").fit(scan(rows[1:], target="y"))


def test_rows_can_be_copied_into_the_folder_of_the_checkpoint(rows, tmp_path):
    table = scan(rows.to_reader(), target="y", spool=tmp_path / "fit" / "rows")
    model = on_disk(tmp_path / "fit").fit(table)
    assert [path.suffix for path in (tmp_path / "fit" / "rows").iterdir()] == [".parquet"]
    assert on_disk(tmp_path / "fit").fit(table).predict(rows).tolist() == (
        model.predict(rows).tolist()
    )


def test_what_is_no_source_is_refused_with_the_way_out(rows, tmp_path):
    with pytest.raises(ParameterError, match=r"for files write scan_parquet\('trips/', ...\)"):
        scan("trips/", target="y")
    with pytest.raises(ParameterError, match=r"for files write scan_csv\('rows.csv', ...\)"):
        scan("rows.csv", target="y")
    with pytest.raises(ParameterError, match=r"source must be a dataset .* got list; write a call"):
        scan([1, 2], target="y")
    with pytest.raises(ParameterError, match="scanned already; pass it to fit"):
        scan(scan(rows, target="y"), target="y")
    with pytest.raises(ParameterError, match=r"another source or an iterator .* returned int"):
        scan(lambda: 3, target="y")
    with pytest.raises(ParameterError, match=r"source must return Arrow batches.* got int"):
        scan(lambda: iter([3]), target="y")


def test_splits_of_hugging_face_are_named(rows):
    datasets = pytest.importorskip("datasets")
    splits = datasets.DatasetDict(train=datasets.Dataset(rows))
    with pytest.raises(ParameterError, match=r"got \['train'\]; choose one as in scan\(source\['t"):
        scan(splits, target="y")


def test_a_source_without_rows_is_refused(rows, tmp_path):
    with pytest.raises(SourceError, match="'RecordBatchReader' cannot be read: there are no rows"):
        scan(rows[:0].to_reader(), target="y")
    with pytest.raises(SourceError, match="'FileSystemDataset' cannot be read: there are no rows"):
        scan(ds.dataset(tmp_path), target="y")


@pytest.mark.parametrize(
    "source", [parquet_dataset, delta_table, iceberg_table, hugging_face_dataset, scanner]
)
def test_estimators_name_scan_for_sources_they_do_not_read(source, rows, tmp_path):
    given, model = source(rows, tmp_path), ParKRegressor()
    with pytest.raises(ParameterError, match=r"the result of scan, got .*parkrr.scan\(source"):
        model.fit(given)
    with pytest.raises(ParameterError, match=r"the result of scan, got .*parkrr.scan\(source"):
        model.plan(given)


def test_estimators_name_scan_for_frames_with_their_target(rows):
    with pytest.raises(ParameterError, match=r"fit\(parkrr.scan\(X, target=...\)\)"):
        ParKRegressor().fit(rows)
    model = fit(scan(rows, target="y"))
    with pytest.raises(ParameterError, match=r"got Table; write scan\(source, ...\)"):
        model.predict_to(rows, "out")
    with pytest.raises(ParameterError, match=r"got Table; write scan\(source, ...\)"):
        model.score_files(rows)
