"""Copies of rows: the same file however the rows arrive, for as long as it is needed."""

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parkrr import scan
from parkrr.errors import SourceError, StorageError
from parkrr.sources import spool
from source_rows import made_up, read_all


@pytest.fixture(scope="module")
def rows():
    return made_up()


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(spool, "GROUP_ROWS", 400)
    monkeypatch.setattr(spool, "GROUP_BYTES", 10_000)


def file_of(table):
    return Path(table.row_groups[0].path)


@pytest.mark.parametrize("size", [1, 7, 399, 400, 401, 1500])
def test_a_copy_does_not_depend_on_the_batches_of_the_source(size, rows, small_groups):
    whole = scan(rows, target="y")
    table = scan(rows.to_reader(max_chunksize=size), target="y")
    assert table.content == whole.content
    assert file_of(table).read_bytes() == file_of(whole).read_bytes()


def test_row_groups_end_at_a_number_of_rows_or_bytes(small_groups):
    letters = pa.table({"x": np.arange(1000.0), "note": ["a"] * 900 + ["a" * 5000] * 100})
    sizes = [group.n_rows for group in scan(letters, target="x").row_groups]
    assert sizes == [400, 400, 102, *[2] * 49]


def test_categories_are_the_same_in_any_order_of_their_dictionary(rows):
    city = rows["city"].combine_chunks()
    other = pa.DictionaryArray.from_arrays(
        pa.compute.index_in(city, pa.array(["Rome", "Bonn", "none", "Oslo"])).cast(pa.int8()),
        ["Rome", "Bonn", "none", "Oslo"],
    )
    first = scan(pa.table({"city": city.dictionary_encode(), "y": rows["y"]}), target="y")
    second = scan(pa.table({"city": other, "y": rows["y"]}), target="y")
    assert first.content == second.content
    assert pa.types.is_dictionary(second.schema.field("city").type)


def test_a_copy_holds_one_row_group_in_memory(monkeypatch):
    monkeypatch.setattr(spool, "GROUP_BYTES", 2**20)
    before, most = pa.total_allocated_bytes(), []

    def batches():
        for k in range(40):
            most.append(pa.total_allocated_bytes() - before)
            yield pa.record_batch({"x": pa.array(np.arange(k, k + 2.0**17)), "y": [0.0] * 2**17})

    assert scan(batches, target="y").n_rows == 40 * 2**17
    assert max(most) < 20 * 2**20  # of 80 MB


def test_a_copy_of_known_state_is_not_made_again(rows, tmp_path):
    calls = []

    def read():
        calls.append(len(calls))
        return rows.to_reader()

    first = scan(read, target="y", spool=tmp_path, fingerprint="Monday")
    again = scan(read, target="y", spool=tmp_path, fingerprint="Monday")
    assert (calls, again.content) == ([0], first.content)
    scan(read, target="y", spool=tmp_path, fingerprint="Tuesday")
    scan(read, target="y", spool=tmp_path)
    assert calls == [0, 1, 2]
    assert len([*tmp_path.glob("*.parquet")]) == 1


def test_copies_of_different_rows_share_a_folder(rows, tmp_path):
    first = scan(rows[:100], target="y", spool=tmp_path)
    second = scan(rows[100:], target="y", spool=tmp_path)
    assert read_all(first)["x"] + read_all(second)["x"] == rows["x"].to_pylist()


def test_a_copy_that_is_damaged_is_made_again(rows, tmp_path):
    table = scan(rows, target="y", spool=tmp_path, fingerprint="1")
    os.truncate(file_of(table), 100)
    again = scan(rows, target="y", spool=tmp_path, fingerprint="1")
    assert read_all(again)["x"] == rows["x"].to_pylist()
    next(tmp_path.glob("source-*.json")).write_text("{")
    assert scan(rows, target="y", spool=tmp_path, fingerprint="1").content == table.content


def test_an_iceberg_scan_is_copied_once_for_each_state(rows, tmp_path):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = sql.SqlCatalog(
        "local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
    )
    catalog.create_namespace("trips")
    table = catalog.create_table("trips.rows", schema=rows.schema)
    table.append(rows[:1000])
    place = tmp_path / "spool"
    first = scan(table.scan(row_filter="x > 0"), target="y", spool=place)
    written = file_of(first).stat().st_mtime_ns
    scan(table.scan(row_filter="x > 0"), target="y", spool=place)
    assert file_of(first).stat().st_mtime_ns == written
    table.append(rows[1000:])
    assert scan(table.scan(row_filter="x > 0"), target="y", spool=place).n_rows > first.n_rows


def test_a_temporary_copy_is_there_while_a_part_of_its_table_is(rows, small_groups):
    table = scan(rows, target="y")
    path, part = file_of(table), table.slices(2)[0]
    del table
    gc.collect()
    assert path.exists()
    del part
    gc.collect()
    assert not path.parent.exists()


def test_a_table_sent_to_another_process_does_not_remove_the_copy(rows):
    table = scan(rows, target="y")
    sent = pickle.loads(pickle.dumps(table))
    assert sent.n_rows == table.n_rows
    del sent
    gc.collect()
    assert file_of(table).exists()


def test_a_temporary_copy_is_removed_when_python_ends():
    script = (
        "import pyarrow as pa, parkrr; "
        "table = parkrr.scan(pa.table({'x': [1.0], 'y': [2.0]}), target='y'); "
        "print(table.row_groups[0].path)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert not Path(ended.stdout.strip()).parent.exists()


def test_a_copy_may_be_in_an_object_store(rows, s3):
    table = scan(rows, target="y", spool=s3("spool"))
    assert read_all(table)["city"] == rows["city"].to_pylist()
    assert table.content == scan(rows, target="y").content


def test_an_interrupted_copy_leaves_nothing(rows, tmp_path):
    def batches():
        yield rows
        raise OSError("the line went dead")

    with pytest.raises(SourceError, match="'function' cannot be read: the line went dead"):
        scan(batches, target="y", spool=tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_written_is_named(rows, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        scan(rows, target="y", spool=tmp_path / "file" / "spool")


def test_later_batches_are_read_in_the_types_of_the_first(rows, tmp_path):
    whole = pa.record_batch({"x": [1.0], "y": [1.0]})
    table = scan(lambda: iter([whole, pa.record_batch({"y": [2], "x": [3]})]), target="y")
    assert read_all(table) == {"x": [1.0, 3.0], "y": [1.0, 2.0]}
    with pytest.raises(SourceError, match="'x' is double in its first rows and string later; cast"):
        scan(lambda: iter([whole, pa.record_batch({"y": [2], "x": ["a"]})]), target="y")
    with pytest.raises(SourceError, match=r"different columns: \['x', 'y'\] and later \['y'\]"):
        scan(lambda: iter([whole, pa.record_batch({"y": [2]})]), target="y")


def test_columns_that_no_copy_can_hold_are_named():
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x", "x"])
    with pytest.raises(SourceError, match="it has column 'x' more than once; rename one"):
        scan(twice, target="x")
    interval = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    with pytest.raises(SourceError, match="column 'span' is month_day_nano_interval, which Par"):
        scan(pa.table({"span": interval, "y": [1.0]}), target="y")


def test_views_of_strings_are_copied_as_strings():
    given = pa.table({"note": pa.array(["a", None], pa.string_view()), "y": [1.0, 2.0]})
    table = scan(given, target="y")
    assert table.schema.field("note").type == pa.large_string()
    assert read_all(table)["note"] == ["a", None]


def test_copies_have_checksums_of_their_pages(rows):
    table = scan(rows, target="y")
    content = bytearray(file_of(table).read_bytes())
    page = pq.ParquetFile(file_of(table)).metadata.row_group(0).column(0).data_page_offset
    content[page + 200] ^= 1
    file_of(table).write_bytes(content)
    with pytest.raises(SourceError, match="cannot be read"):
        read_all(table)
