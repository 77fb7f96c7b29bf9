"""Checkpoints and predictions in folders of an object store, over S3 on loopback."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import fs

from ondisk import frame, on_disk, predict_in_parts, write
from parkrr import load, scan_parquet
from parkrr.data.storage import open_folder
from parkrr.errors import CheckpointError, ParameterError, StorageError
from parkrr.out_of_core.checkpoint import Checkpoint, checksums


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return scan_parquet(write(tmp_path_factory.mktemp("rows")), target="y")


@pytest.fixture(scope="module")
def fitted(table, s3):
    """A checkpoint in a bucket and the model that came with it."""
    return s3("fit"), on_disk(s3("fit")).fit(table)


def assert_same(one, other):
    for a, b in zip([*one.weights, *one.centers], [*other.weights, *other.centers], strict=True):
        assert torch.equal(a, b)


def ages(url):
    """When each marker was written."""
    folder = open_folder(url)
    infos = folder.filesystem.get_file_info(fs.FileSelector(folder.path))
    return {info.base_name: info.mtime_ns for info in infos if info.extension == "json"}


def test_a_fit_with_its_checkpoint_in_a_bucket_is_the_local_one(fitted, table, tmp_path):
    assert_same(fitted[1].model_, on_disk(tmp_path).fit(table).model_)


def test_rows_sorted_into_a_bucket_give_the_local_fit(table, s3, tmp_path):
    settings = {"solver": "falkon", "n_centers": 400}
    there = on_disk(s3("sorted"), **settings).fit(table)
    assert_same(there.model_, on_disk(tmp_path, **settings).fit(table).model_)
    assert_same(there.model_, on_disk(s3("sorted"), **settings).fit(table).model_)


def test_tasks_without_a_marker_in_the_bucket_alone_run_again(fitted, table):
    url, estimator = fitted
    folder, before = open_folder(url), ages(url)
    folder.filesystem.delete_file(f"{folder.path}/statistics-0-00003.json")
    again = on_disk(url).fit(table)
    assert_same(estimator.model_, again.model_)
    assert {n for n, when in ages(url).items() if before[n] != when} == {"statistics-0-00003.json"}


def test_a_damaged_object_is_named_and_its_task_run_again(fitted, table):
    url, estimator = fitted
    with open_folder(url).atomic_write("statistics-0-00001.numbers") as file:
        file.write(b"other")
    with pytest.warns(UserWarning, match=r"'s3://rows/fit/statistics-0-00001.json' or what it"):
        again = on_disk(url).fit(table)
    assert_same(estimator.model_, again.model_)


def test_a_changed_parameter_is_named_beside_the_bucket_without_its_keys(fitted, table):
    with pytest.raises(CheckpointError, match=r"'s3://rows/fit/' belongs .*penalty was") as refused:
        on_disk(fitted[0], penalty=1e-3).fit(table)
    assert "hush" not in str(refused.value)


def test_predictions_in_a_bucket_are_those_on_disk(fitted, table, s3, tmp_path):
    _, model = fitted
    there = open_folder(s3("predictions"))
    assert predict_in_parts(model, table, s3("predictions"), 3000) == 12_000
    predict_in_parts(model, table, tmp_path, 3000)
    assert pq.read_table(there.path, filesystem=there.filesystem) == pq.read_table(tmp_path)
    there.filesystem.delete_file(f"{there.path}/part-00001.parquet")
    assert 0 < predict_in_parts(model, table, s3("predictions"), 3000) < 6000
    assert {"part-00000.parquet", "part-00001.parquet"} < there.names()


def test_a_model_saved_to_a_bucket_is_loaded_from_it(fitted, s3):
    model = fitted[1]
    model.save(s3("models/m.park"))
    again = load(s3("models/m.park"))
    np.testing.assert_array_equal(again.predict(frame()), model.predict(frame()))
    assert open_folder(s3("models")).names() == {"m.park"}


def test_a_model_that_is_not_in_the_bucket_is_not_found(s3):
    with pytest.raises(FileNotFoundError, match=r"models/none.park"):
        load(s3("models/none.park"))


def fail_in_between(folder):
    with folder.atomic_write("half") as file:
        file.write(b"1")
        raise ZeroDivisionError


def test_what_was_cut_off_is_never_there_under_its_name(s3):
    folder = open_folder(s3("cut"))
    folder.make()
    with pytest.raises(ZeroDivisionError):
        fail_in_between(folder)
    assert folder.names() == set()


def test_what_a_killed_task_left_in_a_bucket_is_swept(s3):
    folder = open_folder(s3("swept"))
    with folder.filesystem.open_output_stream(f"{folder.path}/.unfinished-x.1.a") as file:
        file.write(b"half")
    folder.sweep()
    assert folder.names() == set()


def test_a_bucket_that_is_not_there_is_named_without_its_keys(s3):
    url = s3("fit").replace("@rows", "@nowhere")
    with (
        pytest.raises(StorageError, match=r"'s3://nowhere/fit/' cannot be written") as refused,
        Checkpoint(url).hold(),
    ):
        pass
    assert "hush" not in str(refused.value)


def test_a_url_that_pyarrow_does_not_know_is_refused_with_an_example():
    with pytest.raises(ParameterError, match=r"such as 's3://bucket/fit-1', got 'ftp://x/y'"):
        open_folder("ftp://x/y")


def test_part_of_an_object_is_read_from_its_place(s3):
    checkpoint = Checkpoint(s3("parts"))
    checks = checksums(np.arange(10.0), [3, 3, 4])
    checkpoint.publish("a", np.arange(10.0), {"checks": checks})
    assert checkpoint.read("a", 3, [3], checks[1:2]).tolist() == [3, 4, 5]
    assert [checkpoint.facts(name) for name in "ab"] == [{"checks": checks}, None]
