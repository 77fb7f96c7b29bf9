"""Filters as text: what they select, and what is refused with the way out."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from parkrr import scan_parquet
from parkrr.data.filters import make_filter
from parkrr.errors import ParameterError

YEARS = [2022, 2023, 2024, 2025, None]
TABLE = pa.table(
    {
        "year": pa.array(YEARS, "int32"),
        "x": [0.5, float("nan"), 2.5, 1e3, -1.0],
        "city": ["Oslo", "Rome", "O'Hare", None, "Rome"],
        "kind": pa.array(["a", "b", "a", "b", "a"]).dictionary_encode(),
        "open": [True, False, None, True, False],
        "day": pa.array([dt.date(2026, 1, k) for k in range(1, 6)]),
        "at": pa.array(
            [dt.datetime(2026, 1, k, 12) for k in range(1, 6)], pa.timestamp("us", "UTC")
        ),
        "two words": [1, 2, 3, 4, 5],
        "y": [0.0, 1.0, 2.0, 3.0, 4.0],
    }
)

SELECTED = [
    ("year > 2023", [2, 3]),
    ("2023 < year", [2, 3]),
    ("year >= 2023 and year <= 2024", [1, 2]),
    ("2023 <= year < 2025", [1, 2]),
    ("year = 2022 or year == 2025", [0, 3]),
    ("year != 2022", [1, 2, 3]),
    ("year <> 2022", [1, 2, 3]),
    ("year in (2022, 2024)", [0, 2]),
    ("year not in [2022, 2024]", [1, 3]),
    ("not year > 2023", [0, 1]),
    ("year is null", [4]),
    ("year IS NOT NULL AND x is null", [1]),
    ("x < 1e2", [0, 2, 4]),
    ("x > -2 and x < .75", [0, 4]),
    ("x < year", [0, 2, 3]),
    ("city == 'Rome'", [1, 4]),
    ('city == "O\'Hare"', [2]),
    (r"city == 'O\'Hare'", [2]),
    ("city in ('Oslo', 'Rome') and not (x < 0 or x is null)", [0]),
    ("city is null or year is null", [3, 4]),
    ("city == 'and' or city == 'Oslo'", [0]),
    ("kind == 'a' and year < 2024", [0]),
    ("kind in ('b')", [1, 3]),
    ("open", [0, 3]),
    ("not open", [1, 4]),
    ("open == false or year = 2025", [1, 3, 4]),
    ("day > '2026-01-03'", [3, 4]),
    ("day in ('2026-01-01', '2026-01-05')", [0, 4]),
    ("at >= '2026-01-04'", [3, 4]),
    ("at >= '2026-01-04T14:00:00+02:00'", [3, 4]),
    ("`two words` > 4", [4]),
    ("year > 2022 or year > 2022 and x < 0", [1, 2, 3]),
]


@pytest.mark.parametrize(("text", "rows"), SELECTED, ids=[text for text, _ in SELECTED])
def test_a_filter_selects_the_rows_it_describes(text, rows):
    expression = make_filter(text, TABLE.schema)
    assert ds.dataset(TABLE).filter(expression).to_table()["y"].to_pylist() == rows


REFUSED = [
    ("yaer > 2023", "'yaer' is not one of .*; did you mean 'year'"),
    ("city == Rome", "'Rome' is not one of .*; write text in quotes"),
    ("year > '2023'", "'year', which is int32, with a number without quotes, got '2023'"),
    ("city == 3", "'city', which is string, with text in quotes, got 3"),
    ("day > 2026", "with a date or time in quotes, such as '2026-01-31', got 2026"),
    ("day > 'soon'", "with a date or time in quotes, .*got 'soon'"),
    ("open == 1", "'open', which is bool, with true or false, got 1"),
    ("year >", "has its end where a column or a value is expected"),
    ("year", "has its end where a comparison, 'in' or 'is null' is expected"),
    ("", "has its end where a column or a value is expected"),
    ("year > 2023 year", "has 'year' at position 12 where 'and', 'or' or its end is expected"),
    ("(year > 2023", r"has its end where '\)' is expected"),
    ("year in 2023", r"has '2023' at position 8 where '\(' or '\[' is expected"),
    ("year in (x)", "has 'x' at position 9 where a number or text in quotes is expected"),
    ("year is 3", "has '3' at position 8 where 'null' is expected"),
    ("year > 2023; drop", "has ';' at position 11 where a column or a value is expected"),
    ("1 < 2", "has '1' at position 0 where a column is expected"),
    ("__import__('os')", "'__import__' is not one of"),
    ("city == 'Rome", 'has "\'Rome" at position 8'),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_a_filter_that_is_not_understood_is_refused_with_the_place(text, message):
    with pytest.raises(ParameterError, match=rf"filter must .*{message}"):
        make_filter(text, TABLE.schema)


@pytest.fixture
def folder(tmp_path):
    """Three years in three folders; the column x is only in the files of the last one."""
    for year in (2022, 2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        columns = {"y": np.arange(4.0), **({"x": np.arange(4.0)} if year == 2024 else {})}
        pq.write_table(pa.table(columns), tmp_path / f"year={year}" / "a.parquet")
    return tmp_path


@pytest.mark.filterwarnings("ignore:files have different columns")
@pytest.mark.parametrize(
    ("filter", "n_rows"),
    [
        ("year > 2022", 8),
        ("year > 2022 and y < 2", 4),
        ("x >= 3", 1),
        ([("year", ">", 2022), ("y", "<", 2)], 4),
        ([[("year", "==", 2022)], [("year", "==", 2024)]], 8),
        (ds.field("year") > 2022, 8),
        (None, 12),
    ],
    ids=str,
)
def test_files_are_filtered_by_text_by_conditions_and_by_expressions(folder, filter, n_rows):
    assert scan_parquet(folder, target="y", filter=filter).n_rows == n_rows


def test_a_filter_of_folders_leaves_files_out_unread(folder):
    (folder / "year=2023" / "a.parquet").write_text("damaged")
    assert scan_parquet(folder, target="y", filter="year == 2024").n_rows == 4


@pytest.mark.parametrize("filter", [3, [3], [("year", "like", 3)]], ids=str)
def test_what_is_no_filter_is_refused_with_what_is_one(folder, filter):
    with pytest.raises(ParameterError, match=r"filter must be text such as .*, or conditions such"):
        scan_parquet(folder / "year=2024", target="y", filter=filter)


def test_a_misspelt_column_is_answered_with_the_one_that_was_meant(folder):
    with pytest.raises(ParameterError, match=r"'Y' is not one of \['y', 'x'\]; did you mean 'y'\?"):
        scan_parquet(folder / "year=2024", target="Y")
