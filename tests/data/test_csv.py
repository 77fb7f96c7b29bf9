"""CSV and Arrow files as Parquet, and back: types, errors, and what is streamed."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

from parkrr.data.csv import (
    Dialect,
    convert_to_parquet,
    file_versions,
    find_files,
    is_convertible,
    is_single_file,
    join_parts,
)
from parkrr.errors import ParameterError, SourceError


def converted(tmp_path, text, types=None, name="r.csv", block_bytes=1000):
    (tmp_path / name).write_text(text)
    out = tmp_path / "rows.parquet"
    return pq.read_table(
        convert_to_parquet(str(tmp_path / name), types or {}, out, False, block_bytes)
    )


LATE = "y,a\n" + "1,2\n" * 2000 + "1,{}\n"


@pytest.mark.parametrize(
    ("late", "advice"), [("1.5", "--types a=float64"), ("x", "--types a=string")]
)
def test_a_late_value_of_another_type_is_named_with_the_way_out(tmp_path, late, advice):
    with pytest.raises(SourceError) as refused:
        converted(tmp_path, LATE.format(late))
    for part in ("r.csv", "column 'a' is int64 in its first rows", repr(late), advice):
        assert part in str(refused.value)
    assert not (tmp_path / "rows.parquet").exists()


def test_a_type_that_is_given_is_kept(tmp_path):
    table = converted(tmp_path, LATE.format("1.5"), {"a": "float64"})
    assert table.schema.types == [pa.int64(), pa.float64()]
    assert table["a"][-1].as_py() == 1.5


def test_an_empty_field_is_missing_and_an_empty_string_is_not(tmp_path):
    assert converted(tmp_path, 'a,b\n1,\n2,""\n')["b"].to_pylist() == [None, ""]


def test_tabs_separate_the_columns_of_tsv(tmp_path):
    assert converted(tmp_path, "a\tb\n1\tx,y\n", name="r.tsv")["b"].to_pylist() == ["x,y"]


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"a": "nonsense"}, "types must be names such as string"),
        ({"z": "string"}, "'z' is not one of"),
    ],
)
def test_types_that_make_no_sense_are_refused(tmp_path, types, message):
    with pytest.raises(ParameterError, match=message):
        converted(tmp_path, "a,y\n1,2\n", types)


def test_text_that_is_not_utf8_is_refused_with_its_column(tmp_path):
    (tmp_path / "r.csv").write_bytes(b"y,a\n1,\xff\n")
    path, out, dialect = (
        str(tmp_path / "r.csv"),
        tmp_path / "out.parquet",
        Dialect(encoding="utf-8"),
    )
    with pytest.raises(SourceError, match=r"column 'a': .*; text must be UTF-8, or name its enc"):
        convert_to_parquet(path, {"a": "string"}, out, False, dialect=dialect)


def test_files_of_a_glob_must_have_the_same_columns(tmp_path):
    (tmp_path / "r1.csv").write_text("a,y\n1,2\n")
    (tmp_path / "r2.csv").write_text("b,y\n1,2\n")
    with pytest.raises(SourceError, match=r"r2.csv.*its columns are not those of .*r1.csv.*'b: "):
        convert_to_parquet(str(tmp_path / "r*.csv"), {}, tmp_path / "rows.parquet", False)


def test_the_types_of_the_first_file_are_those_of_all(tmp_path):
    (tmp_path / "r1.csv").write_text("a,y\n1.5,2\n")
    (tmp_path / "r2.csv").write_text("a,y\n1,2\n")
    out = convert_to_parquet(str(tmp_path / "r*.csv"), {}, tmp_path / "rows.parquet", False)
    assert pq.read_table(out)["a"].to_pylist() == [1.5, 1.0]


def test_files_are_found_by_path_glob_and_url(tmp_path):
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_text("x\n1\n")
    both = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert find_files(str(tmp_path / "*.csv"))[1] == both
    assert find_files(f"file://{tmp_path}/*.csv")[1] == both
    with pytest.raises(SourceError, match=r"none\*.csv' cannot be read: no file matches$"):
        find_files(str(tmp_path / "none*.csv"))
    with pytest.raises(SourceError, match="there is no such file"):
        find_files(str(tmp_path / "none.csv"))


def test_a_file_that_changes_has_another_version(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n")
    before = file_versions(str(path))
    path.write_text("x\n12\n")
    assert list(before) == [str(path)]
    assert file_versions(str(path)) != before


@pytest.fixture
def parts(tmp_path):
    """Two Parquet files with lists of two."""
    folder = tmp_path / "parts"
    folder.mkdir()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 2)
    table = pa.table({"id": [1, 2, 3], "p": lists})
    pq.write_table(table[:2], folder / "part-00000.parquet")
    pq.write_table(table[2:], folder / "part-00001.parquet")
    return folder, table


def test_parts_are_joined_as_parquet_and_arrow(parts, tmp_path):
    folder, table = parts
    join_parts(folder, tmp_path / "out.parquet", {})
    join_parts(folder, tmp_path / "out.arrow", {})
    assert pq.read_table(tmp_path / "out.parquet").equals(table)
    assert pa.ipc.open_file(tmp_path / "out.arrow").read_all().equals(table)


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz"])
def test_lists_have_a_column_for_each_entry_in_csv(parts, tmp_path, name):
    join_parts(parts[0], tmp_path / name, {"p": ["no", "yes"]})
    data = (tmp_path / name).read_bytes()
    options = pv.ParseOptions(delimiter="\t" if ".tsv" in name else ",")
    plain = gzip.decompress(data) if name.endswith(".gz") else data
    table = pv.read_csv(pa.BufferReader(plain), parse_options=options)
    assert table.to_pydict() == {"id": [1, 2, 3], "p_no": [0, 2, 4], "p_yes": [1, 3, 5]}


def test_names_tell_the_format():
    assert is_convertible("a.CSV.GZ")
    assert is_convertible("a.feather")
    assert not is_convertible("a.parquet")
    assert is_single_file("a.parquet")
    assert not is_single_file("folder")
    with pytest.raises(ParameterError, match="output must be a folder"):
        is_single_file("s3://bucket/a.csv")
