"""Rows in memory: blocks, samples, cells, and choices that do not depend on the order of rows."""

import pickle

import numpy as np
import pytest
import torch

from parkrr.data.rows import (
    VALIDATION_SHARE,
    ArraySource,
    Block,
    as_real,
    as_source,
    as_tensor,
    canonical_order,
    check_weights,
    cut_evenly,
    draw_indices,
    group_by_cell,
    is_repeated,
    join_blocks,
    merge_copies,
    naming_parameter,
    select_validation_rows,
)
from parkrr.errors import ParameterError


def source(n=10, weights=True):
    X = torch.arange(2.0 * n).reshape(n, 2)
    return ArraySource(X, -X[:, :1], torch.arange(1.0, n + 1) if weights else None)


def test_blocks_are_all_rows_in_order():
    blocks = list(source().blocks(4))
    assert [len(block.X) for block in blocks] == [4, 4, 2]
    assert torch.equal(torch.cat([block.X for block in blocks]), source().X)


def test_a_cell_is_a_source_of_its_own_rows():
    cell_of = torch.tensor([1, 0, 1, 1, 0, 2, 2, 1, 0, 2])
    cells = source().split(cell_of, 4)
    assert [cell.n_rows for cell in cells] == [3, 4, 3, 0]
    assert cells[0].load().X[:, 0].tolist() == [2, 8, 16]
    assert cells[0].total_weight == 2 + 5 + 9


def test_a_cell_is_pickled_without_the_other_rows():
    cell = source(1000).split(torch.arange(1000) % 500, 500)[7]
    again = pickle.loads(pickle.dumps(cell))
    assert torch.equal(again.X, cell.load().X)
    assert again.index is None


def test_views_are_applied_one_after_the_other():
    rows = source().map(lambda X: X + 1).map(lambda X: 10 * X)
    assert rows.block(slice(0, 1)).X.tolist() == [[10, 20]]


def test_shards_are_runs_of_nearly_equal_length():
    assert [shard.n_rows for shard in source().shards(3)] == [3, 4, 3]


def test_squared_errors_are_weighted():
    rows = source(3)
    assert float(rows.squared_error()) == 1 * 0 + 2 * 4 + 3 * 16
    assert float(source(3, weights=False).squared_error(rows.Y.double())) == 0


def test_chosen_rows_move_to_the_end():
    chosen = torch.arange(10) % 3 == 0
    moved = source().move_last(chosen).load().X[:, 0] / 2
    assert moved[:6].tolist() == [1, 2, 4, 5, 7, 8]
    assert sorted(moved[6:].tolist()) == [0, 3, 6, 9]


def test_rows_of_weight_zero_are_dropped():
    X = np.arange(6.0).reshape(3, 2)
    rows = as_source(X, X[:, :1], [1.0, 0.0, 2.0])
    assert rows.X.tolist() == [[0, 1], [4, 5]]
    assert rows.w.tolist() == [1, 2]


def test_huge_weights_are_scaled():
    rows = as_source(np.ones((2, 1)), np.ones((2, 1)), [1e300, 5e299])
    assert rows.w.tolist() == [1, 0.5]


def test_arrays_become_tensors_without_a_copy_where_possible():
    array = np.arange(4.0)
    assert as_tensor(array).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    assert as_tensor(array).tolist() == as_tensor(array[::-1])[[3, 2, 1, 0]].tolist()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], "one entry a row"),
        ([1, -1, 1], ">= 0"),
        ([0, 0, 0], "not all zero"),
        ([1, np.nan, 1], "finite"),
        (["a", "b", "c"], "sample_weight: "),
    ],
)
def test_invalid_weights_are_refused(weights, message):
    with pytest.raises(ParameterError, match=message):
        check_weights(weights, 3)


def test_one_weight_is_that_of_all_rows():
    assert check_weights(2, 3).tolist() == [2, 2, 2]


def test_complex_numbers_are_refused():
    with pytest.raises(ValueError, match="must be real"):
        as_real([1j])


def fail(message, kind):
    with naming_parameter("X, y"):
        raise kind(message)


def test_errors_name_the_parameter_once():
    with pytest.raises(ParameterError, match=r"^X, y: odd$"):
        fail("odd", ValueError)
    with pytest.raises(ValueError, match=r"^y is odd$"):
        fail("y is odd", ValueError)
    with pytest.raises(TypeError, match=r"^X, y: odd$"):
        fail("odd", TypeError)


def test_blocks_without_weights_weigh_one_beside_others():
    X, Y = torch.ones(2, 1), torch.ones(2, 1)
    joined = join_blocks([Block(X, Y, None), Block(X, Y, torch.tensor([3.0, 4.0]))])
    assert joined.w.tolist() == [1, 1, 3, 4]
    assert join_blocks([Block(X, Y, None)]).w is None


def test_runs_have_about_the_same_length():
    assert cut_evenly([5, 5, 5, 5, 20], 2) == [(0, 4), (4, 5)]
    assert cut_evenly([1, 1], 10) == [(0, 1), (1, 2)]


def test_rows_are_grouped_by_cell_in_order():
    order, counts = group_by_cell(torch.tensor([2, 0, 2, 1]), 4)
    assert order.tolist() == [1, 3, 0, 2]
    assert counts == [1, 1, 2, 0]


def test_indices_are_drawn_without_replacement():
    assert len(set(draw_indices(100, 30, 0).tolist())) == 30
    assert draw_indices(3, 5, 0).tolist() == [0, 1, 2]


def random_rows(n=400):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, 3)), rng.normal(size=(n, 1))
    return X, Y


def test_the_canonical_order_ignores_the_order_and_units_of_the_rows():
    X, Y = random_rows()
    shuffled = np.random.default_rng(1).permutation(len(X))
    one = ArraySource(torch.from_numpy(X), torch.from_numpy(Y))
    other = X[shuffled][:, [2, 0, 1]] * [1000, 1, 0.01]
    two = ArraySource(torch.from_numpy(other), torch.from_numpy(Y[shuffled]))
    assert canonical_order(one).tolist() == shuffled[canonical_order(two)].tolist()


@pytest.mark.parametrize(
    ("wild", "offset"), [(1e12, 0), (1e30, 0), (0, 1e13)], ids=["1e12", "1e30", "offset"]
)
def test_the_canonical_order_withstands_outliers_and_offsets(wild, offset):
    X, _ = random_rows()
    X[0] += wild
    X, Y = X + offset, (X[:, :1] > 0).astype(float)
    shuffled = np.random.default_rng(1).permutation(len(X))
    one = ArraySource(torch.from_numpy(X), torch.from_numpy(Y))
    two = ArraySource(torch.from_numpy(X[shuffled]), torch.from_numpy(Y[shuffled]))
    assert canonical_order(one).tolist() == shuffled[canonical_order(two)].tolist()


def test_the_same_rows_are_validation_rows_in_whatever_order():
    X, Y = random_rows()
    shuffled = np.random.default_rng(1).permutation(len(X))
    one = select_validation_rows(ArraySource(torch.from_numpy(X), torch.from_numpy(Y)), 0)
    rows = ArraySource(torch.from_numpy(X[shuffled]), torch.from_numpy(Y[shuffled]))
    assert torch.equal(select_validation_rows(rows, 0), one[shuffled])
    assert abs(float(one.double().mean()) - VALIDATION_SHARE) < 0.08


@pytest.mark.parametrize(
    ("counts", "repeated"), [([1, 1], False), ([2, 2], True), ([1, 2], False), ([3, 3], True)]
)
def test_a_table_is_repeated_if_every_row_is_there_as_often(counts, repeated):
    X = torch.arange(2.0).repeat_interleave(torch.tensor(counts))[:, None]
    assert is_repeated(ArraySource(X, X)) is repeated


def test_copies_are_one_row_with_their_total_weight():
    X = torch.tensor([[1.0], [0.0], [1.0], [-0.0]])
    merged = merge_copies(ArraySource(X, torch.zeros(4, 1), torch.tensor([1.0, 2.0, 3.0, 4.0])))
    assert merged.X.tolist() == [[1], [0]]
    assert merged.w.tolist() == [4, 6]
