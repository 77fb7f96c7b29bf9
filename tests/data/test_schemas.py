"""Files whose columns differ: what becomes of them, what is said, and what is refused."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ondisk import on_disk, write
from parkrr import scan_parquet
from parkrr.data.schemas import promote
from parkrr.errors import ParameterError, SourceError


def write_all(folder, *tables):
    folder.mkdir(parents=True, exist_ok=True)
    for k, table in enumerate(tables):
        pq.write_table(pa.table(table), folder / f"{k}.parquet")
    return folder


def scan_warned(folder, match, **more):
    with pytest.warns(UserWarning, match=match) as warned:
        table = scan_parquet(folder, **{"target": "y", **more})
    assert len(warned) == 1
    return table


def read(table, *columns):
    return pa.concat_tables(table.blocks(1000, columns))


Y = [0.0, 1.0]
DAY, NOON = dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 12)
UTC = dt.timezone.utc


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (pa.array([1, 2]), pa.array([0.5, None]), pa.float64()),
        (pa.array([0.5, 1.5]), pa.array([1, 2]), pa.float64()),
        (pa.array([1, 2], pa.int32()), pa.array([2**40, 2]), pa.int64()),
        (pa.array([1, 2], pa.uint8()), pa.array([-1, 2], pa.int8()), pa.int16()),
        (pa.array([2**53, 2], pa.uint64()), pa.array([-1, 2]), pa.float64()),
        (pa.array([2**31 - 1, 2], pa.int32()), pa.array([0.5, 2], pa.float32()), pa.float64()),
        (pa.array([1, 2], pa.int16()), pa.array([0.5, 2], pa.float32()), pa.float32()),
        (pa.array([0.1, 2], pa.float32()), pa.array([0.1, 2]), pa.float64()),
        (pa.array([True, None]), pa.array([3, 2]), pa.int64()),
        (pa.nulls(2), pa.array(["a", "b"]), pa.string()),
        (pa.array(["a", "b"]), pa.array(["a", None], pa.large_string()), pa.large_string()),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", None]), pa.string()),
        (pa.array([decimal.Decimal("1.5"), None]), pa.array([0.25, 2]), pa.float64()),
        (pa.array([decimal.Decimal("1.5"), None]), pa.array([1, 2]), pa.float64()),
        (pa.array([DAY, None]), pa.array([NOON, NOON], pa.timestamp("us")), pa.timestamp("us")),
        (
            pa.array([NOON, None], pa.timestamp("ms")),
            pa.array([NOON, NOON], pa.timestamp("ns")),
            pa.timestamp("ns"),
        ),
        (
            pa.array([NOON, None], pa.timestamp("ms", "Europe/Paris")),
            pa.array([NOON, NOON], pa.timestamp("us", "Asia/Tokyo")),
            pa.timestamp("us", "UTC"),
        ),
        (
            pa.array([dt.time(1), None], pa.time32("s")),
            pa.array([dt.time(2), None], pa.time64("us")),
            pa.time64("us"),
        ),
    ],
    ids=str,
)
def test_types_are_promoted_without_changing_a_value(tmp_path, first, second, wanted):
    folder = write_all(tmp_path, {"x": first, "y": Y}, {"x": second, "y": Y})
    table = scan_warned(folder, "'x' is .* in .*0.parquet', .* in .*1.parquet'; read as")
    assert table.schema.field("x").type == wanted
    values = read(table, "x")["x"].to_pylist()
    assert values == pa.concat_arrays([first.cast(wanted), second.cast(wanted)]).to_pylist()
    assert f"read as {wanted}" in table.promotions["x"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1, 2]), pa.array(["a", "b"])),
        (pa.array([True, False]), pa.array(["a", "b"])),
        (pa.array([NOON, None]), pa.array([0.5, 1.0])),
        (
            pa.array([NOON, None], pa.timestamp("us")),
            pa.array([NOON, None], pa.timestamp("us", "UTC")),
        ),
        (pa.array([DAY, None]), pa.array([NOON, None], pa.timestamp("us", "UTC"))),
        (pa.array(["a", "b"]), pa.array([b"a", b"b"])),
        (pa.array([[1], [2]]), pa.array([1, 2])),
    ],
    ids=str,
)
def test_types_that_nothing_holds_are_refused_with_both_files_and_the_way_out(
    tmp_path, first, second
):
    folder = write_all(tmp_path, {"x": first, "y": Y}, {"x": second, "y": Y})
    message = r"column 'x' is .* in .*0.parquet', .* in .*1.parquet', and no type.*features="
    with pytest.raises(SourceError, match=message):
        scan_parquet(folder, target="y")


def test_a_column_that_only_later_files_have_is_missing_in_the_others(tmp_path):
    folder = write_all(tmp_path, {"x": Y, "y": Y}, {"x": Y, "y": Y, "z": [5, 6]})
    table = scan_warned(folder, "'z' is int64 in .*1.parquet', missing in 1 of 2 files such as .*0")
    assert table.features == ("x", "z")
    assert read(table, "z")["z"].to_pylist() == [None, None, 5, 6]


def test_a_target_that_some_files_lack_is_named(tmp_path):
    folder = write_all(tmp_path, {"x": Y}, {"x": Y, "y": Y})
    assert scan_warned(folder, "'y' is .* missing in 1 of 2 files").target == ("y",)


def test_columns_keep_the_order_of_the_first_file_and_new_ones_follow(tmp_path):
    folder = write_all(tmp_path, {"b": Y, "a": Y, "y": Y}, {"c": Y, "a": Y, "b": Y, "y": Y})
    assert scan_warned(folder, "'c' is").features == ("b", "a", "c")


def test_files_of_one_schema_say_nothing(tmp_path):
    folder = write_all(tmp_path, {"x": Y, "y": Y}, {"y": Y, "x": Y})
    assert scan_parquet(folder, target="y").promotions == {}


def test_columns_that_are_not_used_neither_warn_nor_refuse(tmp_path):
    more = {"x": Y, "y": Y}
    first, second = {**more, "note": [1, 2], "n": [1, 2]}, {**more, "note": ["a", "b"], "n": Y}
    table = scan_parquet(write_all(tmp_path, first, second), target="y", features=["x"])
    assert list(table.promotions) == ["n"]
    assert list(table.conflicts) == ["note"]


def test_an_integer_that_a_float_would_round_is_refused_with_its_file(tmp_path):
    folder = write_all(tmp_path, {"x": [2**60 + 1, 2], "y": Y}, {"x": Y, "y": Y})
    table = scan_warned(folder, "read as double")
    with pytest.raises(SourceError, match=r"0.parquet' cannot be read: .* with one schema"):
        read(table, "x")


def test_a_filter_may_name_a_column_of_later_files(tmp_path):
    folder = write_all(tmp_path, {"x": Y, "y": Y}, {"x": Y, "y": Y, "z": [5, 6]})
    table = scan_warned(folder, "'z' is", filter=ds.field("z") > 5)
    assert table.n_rows == 1
    assert read(table, "z")["z"].to_pylist() == [6]


def test_a_filter_is_applied_to_promoted_values(tmp_path):
    folder = write_all(tmp_path, {"x": [0, 1], "y": Y}, {"x": [0.5, 2.5], "y": Y})
    table = scan_warned(folder, "'x' is", filter=ds.field("x") > 0.75)
    assert read(table, "x")["x"].to_pylist() == [1.0, 2.5]


def test_a_filter_of_no_column_is_refused(tmp_path):
    folder = write_all(tmp_path, {"x": Y, "y": Y})
    with pytest.raises(ParameterError, match="filter must be an expression of columns"):
        scan_parquet(folder, target="y", filter=ds.field("none") > 0)


def test_files_that_a_filter_of_folders_leaves_out_do_not_matter(tmp_path):
    write_all(tmp_path / "year=1", {"x": ["a", "b"], "y": Y})
    write_all(tmp_path / "year=2", {"x": Y, "y": Y})
    table = scan_parquet(tmp_path, target="y", filter=ds.field("year") == 2)
    assert table.features == ("x", "year")
    assert read(table, "x")["x"].to_pylist() == Y


def test_partitions_stay_columns_of_files_that_differ(tmp_path):
    write_all(tmp_path / "year=1", {"x": [1, 2], "y": Y})
    write_all(tmp_path / "year=2", {"x": Y, "y": Y, "z": Y})
    table = scan_warned(tmp_path, "'x' is .*'z' is")
    assert table.features == ("x", "year", "z")
    assert read(table, "year")["year"].to_pylist() == [1, 1, 2, 2]


def test_ten_files_that_differ_in_many_columns_give_one_short_warning(tmp_path):
    tables = [{"y": Y, **{f"x{j}": Y for j in range(k + 1)}} for k in range(10)]
    table = scan_warned(write_all(tmp_path, *tables), "4 more in .promotions")
    assert len(table.promotions) == 9


def test_promotion_does_not_depend_on_which_comes_first():
    kinds = [
        *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.null(), pa.string()),
        *(pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.date32(), pa.date64()),
        *(pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.decimal128(5, 2), pa.binary()),
        *(pa.time32("s"), pa.time64("ns"), pa.duration("s"), pa.list_(pa.int8())),
    ]
    for a in kinds:
        assert [promote(a, b) for b in kinds] == [promote(b, a) for b in kinds]


def test_a_fit_of_files_that_differ_is_that_of_the_same_rows_in_one_schema(tmp_path):
    tables = [
        pq.read_table(path) for path in sorted(write(tmp_path / "rows", n=1500).glob("*.parquet"))
    ]
    whole, mixed = tmp_path / "whole", tmp_path / "mixed"
    rounded = [table.set_column(0, "a", pc.round(table["a"])) for table in tables]
    rounded[0] = rounded[0].drop_columns("b")
    wanted = [table.append_column("b", pa.nulls(len(table), pa.float64()))
              if "b" not in table.schema.names else table for table in rounded]  # fmt: skip
    write_all(whole, *(table.select(["a", "c", "y", "b"]) for table in wanted))
    first = rounded[0].set_column(0, "a", rounded[0]["a"].cast(pa.int32()))
    write_all(mixed, first, *rounded[1:])
    table = scan_warned(mixed, "'a' is int32 .*'b' is double")
    small = {"n_cells": 2, "n_centers": 60}
    one = on_disk(tmp_path / "c", **small).fit(table)
    other = on_disk(tmp_path / "d", **small).fit(scan_parquet(whole, target="y"))
    rows = read(table, "a", "b", "c")
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows))


def test_a_key_that_no_type_holds_is_refused_with_its_files(tmp_path):
    more = {"x": Y, "y": Y}
    folder = write_all(tmp_path / "r", {**more, "key": [1, 2]}, {**more, "key": ["a", "b"]})
    table = scan_parquet(folder, target="y", features=["x"])
    model = on_disk(None, n_cells=1, n_centers=2).fit(table)
    with pytest.raises(ParameterError, match=r"'key' is int64 in .*0.parquet', string in .*1.par"):
        model.predict_to(table, tmp_path / "out", keys=["key"])
