"""Targets as numbers: codes of classes, class weights, and labels found in files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.utils.class_weight import compute_class_weight

from parkrr import scan_parquet
from parkrr.data.targets import (
    MOST_CLASSES,
    Target,
    class_indices,
    compute_class_weights,
    decode_classes,
    encode_classes,
    learn_target,
)
from parkrr.errors import ParameterError
from parkrr.runtime import LocalEngine


def learned(tmp_path, values, class_weight=None, kind=None):
    table = pa.table({"x": np.arange(float(len(values))), "y": pa.array(values, kind)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    scanned = scan_parquet(tmp_path, target="y")
    return table, learn_target(scanned, True, class_weight, LocalEngine())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_codes_are_decoded(n_classes):
    index = np.array([0, 1, n_classes - 1])
    codes = encode_classes(index, n_classes)
    assert codes.shape == (3, 1 if n_classes == 2 else n_classes)
    assert set(codes.ravel()) == {-1, 1}
    assert class_indices(codes, n_classes).tolist() == index.tolist()
    classes = np.array(["a", "b", "c"])[:n_classes]
    assert decode_classes(codes, classes).tolist() == classes[index].tolist()


def test_numbers_are_targets_as_they_are():
    table = pa.table({"a": [1.0, None], "b": [3, 4]})
    np.testing.assert_array_equal(Target(("a", "b")).encode(table), [[1, 3], [np.nan, 4]])


def test_labels_of_files_are_sorted_and_missing_ones_have_no_code(tmp_path):
    table, target = learned(tmp_path, ["b", None, "a", "c", "b"])
    assert target.classes.tolist() == ["a", "b", "c"]
    codes = target.encode(table)
    assert np.isnan(codes[1]).all()
    assert class_indices(codes[[0, 2, 3, 4]], 3).tolist() == [1, 0, 2, 1]


def test_labels_may_be_a_dictionary_or_numbers(tmp_path):
    kind = pa.dictionary(pa.int32(), pa.string())
    assert learned(tmp_path, ["b", "a"], kind=kind)[1].classes.tolist() == ["a", "b"]
    assert learned(tmp_path, [2.0, float("nan"), 1.0])[1].classes.tolist() == [1, 2]


def test_balanced_weights_are_those_of_scikit_learn(tmp_path):
    labels = ["b", "a", "b", "b"]
    table, target = learned(tmp_path, labels, "balanced")
    expected = compute_class_weight("balanced", classes=np.array(["a", "b"]), y=labels)
    np.testing.assert_allclose(target.class_weights, expected)
    weights = target.weigh(target.encode(table), np.array([1.0, 2.0, 1.0, 1.0]))
    np.testing.assert_allclose(weights, expected[[1, 0, 1, 1]] * [1, 2, 1, 1])


def test_weights_of_some_classes_are_given():
    weights = compute_class_weights({"b": 3}, ["a", "b"], np.array([1, 1]))
    assert weights.tolist() == [1, 3]
    assert compute_class_weights(None, ["a", "b"], np.array([1, 1])) is None
    with pytest.raises(ParameterError, match="class_weight must hold weights > 0"):
        compute_class_weights({"b": -1}, ["a", "b"], np.array([1, 1]))


def test_a_target_without_labels_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="missing in every row"):
        learned(tmp_path, [None, None], kind=pa.string())


def test_too_many_labels_are_refused(tmp_path):
    values = [str(k) for k in range(MOST_CLASSES + 1)]
    table = pa.table({"x": np.arange(float(len(values))), "y": values})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ParameterError, match="at most 1000 labels"):
        learn_target(scan_parquet(tmp_path, target="y"), True, None, LocalEngine())


def test_labels_that_a_model_file_cannot_hold_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="write it as strings"):
        learned(tmp_path, [1, 2], kind=pa.date32())
