"""Files of rows: what is found, and what is said when something is wrong."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from parkrr import Gaussian, ParKRegressor, scan_parquet
from parkrr.errors import ParameterError, SourceError


def written(path, start, rows=10, group=4):
    numbers = np.arange(start, start + rows, dtype=np.float64)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": numbers, "y": -numbers}), path, row_group_size=group)
    return path


@pytest.fixture
def folder(tmp_path):
    for year in (1, 2, 3):
        written(tmp_path / f"year={year}" / "a.parquet", 10 * year)
    return tmp_path


def all_of(table, columns, rows=1000):
    blocks = list(table.blocks(rows, columns))
    return pa.concat_tables(blocks).to_pydict(), [len(block) for block in blocks]


def test_a_folder_is_read_with_its_partitions(folder):
    table = scan_parquet(folder, target="y")
    assert table.features == ("x", "year")
    found, _ = all_of(table, ["x", "year"])
    assert found == {"x": [*range(10, 40)], "year": [1] * 10 + [2] * 10 + [3] * 10}


def test_an_index_that_pandas_wrote_is_no_feature(tmp_path):
    pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}, index=[7, 3]).to_parquet(
        tmp_path / "a.parquet"
    )
    assert scan_parquet(tmp_path, target="y").features == ("x",)


def test_blocks_have_the_size_asked_for_across_files(folder):
    table = scan_parquet(folder, target="y")
    assert all_of(table, ["x"], rows=7) == ({"x": [*range(10, 40)]}, [7, 7, 7, 7, 2])


def test_a_glob_a_list_and_a_file_name_the_files(folder):
    first = str(folder / "year=1" / "a.parquet")
    assert scan_parquet(str(folder / "year=[12]" / "*.parquet"), target="y").n_rows == 20
    assert scan_parquet([first, first, first], target="y").n_rows == 30
    assert scan_parquet(first, target="y").n_rows == 10


def test_a_filter_leaves_rows_out_and_they_do_not_count(folder):
    table = scan_parquet(folder, target="y", filter=ds.field("x") > 24.5)
    assert table.n_rows == 15
    assert all_of(table, ["x"])[0] == {"x": [*range(25, 40)]}


def test_a_filter_may_name_a_partition(folder):
    table = scan_parquet(folder, target="y", filter=ds.field("year") == 2)
    assert all_of(table, ["x"])[0] == {"x": [*range(20, 30)]}


def test_urls_of_files_folders_and_globs_are_found(folder):
    url = f"file://{folder}"
    assert scan_parquet(url, target="y").n_rows == 30
    assert scan_parquet(f"{url}/year=2/*.parquet", target="y").n_rows == 10
    assert scan_parquet([f"{url}/year=2/a.parquet"] * 2, target="y").n_rows == 20


def test_a_sample_looks_at_more_row_groups_if_these_are_small(tmp_path):
    written(tmp_path / "a.parquet", 0, rows=3000, group=5)
    draws = scan_parquet(tmp_path, target="y").sample(1500, seed=0)
    assert sum(draw.count for draw in draws) == 1500


def test_slices_are_the_table_in_order(folder):
    table = scan_parquet(folder, target="y")
    parts = [all_of(part, ["x"])[0]["x"] for part in table.slices(4)]
    assert [x for part in parts for x in part] == [*range(10, 40)]
    assert [len(part) for part in parts] == [8, 6, 6, 10]


def test_a_sample_of_all_rows_is_all_rows_and_each_comes_once(folder):
    table = scan_parquet(folder, target="y")
    draws = table.sample(30, seed=0)
    assert sorted(x for draw in draws for x in draw.read(["x"])["x"].to_pylist()) == [
        *range(10, 40)
    ]
    few = [x for draw in table.sample(12, seed=1) for x in draw.read(["x"])["x"].to_pylist()]
    assert len(few) == len(set(few)) == 12


def test_every_row_is_as_likely_to_be_drawn(folder):
    table = scan_parquet(folder, target="y")
    counts = np.zeros(30)
    for seed in range(300):
        for draw in table.sample(10, seed):
            counts[np.array(draw.read(["x"])["x"]).astype(int) - 10] += 1
    # 300 draws with probability 1/3: 100 +- 8.2, so 5 standard deviations are 41.
    assert np.abs(counts - 100).max() < 41


def test_a_column_that_is_not_there_is_named(folder):
    with pytest.raises(ParameterError, match="'z' is not one of"):
        scan_parquet(folder, target="z")


def test_the_target_is_not_a_feature(folder):
    with pytest.raises(ParameterError, match="must not hold the target"):
        scan_parquet(folder, target="y", features=["x", "y"])


def test_no_file_is_named_by_its_pattern(tmp_path):
    with pytest.raises(SourceError, match="no file matches"):
        scan_parquet(str(tmp_path / "*.parquet"), target="y")


def test_a_truncated_file_is_named(folder):
    path = folder / "year=2" / "a.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"year=2/a.parquet"):
        scan_parquet(folder, target="y")


def test_a_flipped_bit_is_noticed_where_pages_have_checksums(tmp_path):
    path, options = tmp_path / "a.parquet", {"compression": "none", "use_dictionary": False}
    rows = pa.table({"x": np.arange(1000.0), "y": np.arange(1000.0)})
    pq.write_table(rows, path, write_page_checksum=True, **options)
    content = bytearray(path.read_bytes())
    content[4000] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a.parquet' cannot be read.*CRC checksum"):
        all_of(scan_parquet(path, target="y"), ["x"])


def test_a_file_that_breaks_after_it_was_found_is_named(folder):
    table = scan_parquet(folder, target="y")
    path = folder / "year=3" / "a.parquet"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(SourceError, match=r"year=3/a.parquet"):
        all_of(table, ["x"])


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_rows_without_a_target_are_left_out_with_a_warning(on_disk, tmp_path):
    a = np.arange(400.0)
    table = pa.table({"a": a, "y": pa.array(2 * a, mask=a % 10 == 0)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
    checkpoint = tmp_path / "fit" if on_disk else None
    model = ParKRegressor(Gaussian(), 1e-3, checkpoint=checkpoint, random_state=0, progress=False)
    with pytest.warns(UserWarning, match="target 'y' is missing in 40 of 400 rows"):
        model.fit(scan_parquet(tmp_path / "rows.parquet", target="y"))
    assert sum(cell.rows for cell in model.report_) == 360
