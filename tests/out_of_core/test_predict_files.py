"""Predictions from files to files, on a disk and over S3."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ondisk import frame, on_disk, predict_in_parts, rows, write
from parkrr import Gaussian, ParKClassifier, scan_parquet
from parkrr.data.storage import open_folder
from parkrr.errors import CheckpointError, ParameterError
from parkrr.partition import Blend
from plain import plain


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("fit") / "rows", key=np.arange(12_000))
    table = scan_parquet(folder, target="y", features=["a", "b", "c"])
    return table, on_disk(folder.parent / "c").fit(table)


def read(folder):
    return pq.read_table(sorted(str(path) for path in folder.glob("part-*.parquet")))


def test_every_row_has_its_prediction_beside_its_key(fitted, tmp_path):
    table, model = fitted
    assert model.predict_to(table, tmp_path, keys=["key"]) == 12_000
    found = read(tmp_path)
    assert found["key"].to_pylist() == [*range(12_000)]
    wanted = model.predict(next(table.blocks(10**6, ["a", "b", "c"])))
    np.testing.assert_allclose(np.array(found["prediction"]), wanted, rtol=1e-12)


def test_only_missing_parts_are_predicted_again(fitted, tmp_path):
    table, model = fitted
    predict_in_parts(model, table, tmp_path, 3000)
    (tmp_path / "part-00002.parquet").unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    assert 0 < predict_in_parts(model, table, tmp_path, 3000) < 6000
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    assert kept.items() <= after.items()
    assert len(read(tmp_path)) == 12_000


def test_a_damaged_file_is_named_and_predicted_again(fitted, tmp_path):
    table, model = fitted
    predict_in_parts(model, table, tmp_path, 3000)
    whole, path = read(tmp_path), tmp_path / "part-00001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="_part-00001.parquet.json' or what it marks is damaged"):
        assert 0 < predict_in_parts(model, table, tmp_path, 3000) < 6000
    assert read(tmp_path) == whole


def test_without_the_job_file_files_of_another_model_are_written_again(fitted, tmp_path):
    table, model = fitted
    model.predict_to(table, tmp_path / "out")
    (tmp_path / "out" / "_job.json").unlink()
    other = on_disk(tmp_path / "c", penalty=1e-1).fit(table)
    assert other.predict_to(table, tmp_path / "out") == 12_000
    wanted = other.predict(next(table.blocks(10**6, ["a", "b", "c"])))
    np.testing.assert_allclose(np.array(read(tmp_path / "out")["prediction"]), wanted, rtol=1e-9)


def test_files_of_another_model_are_not_taken_for_its_own(fitted, tmp_path):
    table, model = fitted
    model.predict_to(table, tmp_path / "out")
    other = on_disk(tmp_path / "c", penalty=1e-3).fit(table)
    with pytest.raises(CheckpointError, match="model was"):
        other.predict_to(table, tmp_path / "out")


def test_another_blend_is_another_model(fitted, tmp_path):
    table, model = fitted
    model.predict_to(table, tmp_path / "out")
    blended = on_disk(tmp_path / "c", blend=Blend(2, 0.5)).fit(table)
    with pytest.raises(CheckpointError, match="model was"):
        blended.predict_to(table, tmp_path / "out")


def test_a_key_that_is_not_there_is_named_before_anything_is_written(fitted, tmp_path):
    table, model = fitted
    with pytest.raises(ParameterError, match="'kez' is not one of"):
        model.predict_to(table, tmp_path / "out", keys=["kez"])
    assert not (tmp_path / "out").exists()


def test_a_missing_value_is_filled_for_a_model_of_an_array(tmp_path):
    gaps = np.where(np.arange(12_000) == 5, np.nan, 1.0)
    table = scan_parquet(write(tmp_path / "rows", gap=gaps), features=["a", "gap"])
    model = plain(random_state=0).fit(rows(100)[0][:, :2], rows(100)[1])
    model.predict_to(table, tmp_path / "out")
    X = np.column_stack([rows(12_000)[0][:, 0], gaps])
    written = pq.read_table(tmp_path / "out")["prediction"].to_numpy()
    np.testing.assert_allclose(written, model.predict(X), rtol=1e-9)


def test_labels_are_predicted_as_labels(tmp_path):
    folder = write(tmp_path / "rows", label=np.where(rows(12_000)[1] > 0, "up", "down"))
    table = scan_parquet(folder, target="label", features=["a", "b", "c"])
    model = ParKClassifier(
        kernel=Gaussian(),
        metric="standard",
        penalty=1e-6,
        n_cells=4,
        n_centers=400,
        blend=1,
        coarse=0,
        random_state=0,
    ).fit(table)
    model.predict_to(table, tmp_path / "out", keys=["label"])
    found = read(tmp_path / "out")
    assert np.mean(np.array(found["label"]) == np.array(found["prediction"])) > 0.9


def test_several_outputs_are_lists(tmp_path):
    table = scan_parquet(write(tmp_path / "rows"), target=["y", "a"], features=["b", "c"])
    on_disk(tmp_path / "c").fit(table).predict_to(table, tmp_path / "out")
    assert len(read(tmp_path / "out")["prediction"][0]) == 2


def test_a_model_of_an_array_takes_features_in_their_order(fitted, tmp_path):
    table, _ = fitted
    X, y = rows(12_000)
    model = plain(n_cells=4, n_centers=100, precision="float64", random_state=0).fit(X, y)
    model.predict_to(table, tmp_path / "out")
    np.testing.assert_allclose(np.array(read(tmp_path / "out")["prediction"]), model.predict(X))
    with pytest.raises(ParameterError, match="must have the 3 features"):
        model.predict_to(scan_parquet([p.path for p in table.row_groups[:1]]), tmp_path / "more")


# Over S3: a server on loopback that speaks the protocol.


@pytest.fixture(scope="module")
def bucket(s3):
    there = open_folder(s3("days")).filesystem
    X, y = rows(12_000)
    for k, part in enumerate(np.array_split(np.arange(12_000), 3)):
        columns = {name: X[part, j] for j, name in enumerate("abc")}
        pq.write_table(
            pa.table({**columns, "y": y[part]}), f"rows/days/day={k}/x.parquet", filesystem=there
        )
    return there


def test_a_fit_over_s3_is_the_fit_of_the_same_files(bucket, fitted, tmp_path):
    features = ["a", "b", "c"]
    table = scan_parquet("rows/days", target="y", features=features, filesystem=bucket)
    assert table.schema.names[-1] == "day"
    model = on_disk(tmp_path / "c").fit(table)
    _, local = fitted
    # Row groups are not the same, so samples and centres differ.
    assert model.predict(frame()) == pytest.approx(local.predict(frame()), abs=0.5)
    assert model.predict_to(table, tmp_path / "out", keys=["day"]) == 12_000
    found = read(tmp_path / "out")
    assert sorted(set(found["day"].to_pylist())) == [0, 1, 2]


def test_a_glob_over_s3_names_files(bucket):
    table = scan_parquet("rows/days/day=1/*.parquet", target="y", filesystem=bucket)
    assert table.n_rows == 4000
