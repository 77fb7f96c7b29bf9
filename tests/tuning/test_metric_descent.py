"""Metric descent: its slopes are those of the formula, and it finds the column that matters."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource, Block
from parkrr.kernels import Gaussian, Matern
from parkrr.kernels.feature_map import apply_matrix
from parkrr.runtime.engine import LocalEngine
from parkrr.tuning.metric_descent import (
    RATE,
    Adam,
    LocalBatch,
    MetricDescent,
    combine_batches,
    compute_slopes,
)
from parkrr.tuning.metric_search import decreasing_rates
from reference import finite_differences, kernel_matrix, leave_groups_out_squares

RIDGE = 0.3


def batch(weighted, groups=None, n_parts=None):
    rng = np.random.default_rng(0)
    F, Y = (torch.from_numpy(rng.normal(size=(30, k))) for k in (3, 2))
    w = torch.from_numpy(rng.uniform(0.5, 2, size=30)) if weighted else None
    return LocalBatch(Block(F, Y, w), groups, n_parts)


def error_by_refits(batch, matrix, ridge, groups):
    """The mean squared residual of rows or groups that are left out, by the book."""
    F, Y, w = (None if a is None else a.numpy() for a in batch.rows)
    w = np.ones(len(F)) if w is None else w
    X = F * matrix if matrix.ndim == 1 else F @ matrix
    K = kernel_matrix(Gaussian(1.0), X, X)
    return leave_groups_out_squares(K, Y, w, ridge, groups) / w.sum()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("groups", "n_parts", "left_out"),
    [
        (None, None, np.arange(30)),
        (torch.arange(30) % 7, None, np.arange(30) % 7),
        (None, 5, np.arange(30) % 5),
    ],
    ids=["rows", "groups", "parts"],
)
@pytest.mark.parametrize("matrix", [np.full(3, 0.7), np.eye(3) + 0.1])
def test_slopes_are_those_of_finite_differences(weighted, groups, n_parts, left_out, matrix):
    rows = batch(weighted, groups, n_parts)
    slopes = compute_slopes([rows, rows], Gaussian(1.0), torch.from_numpy(matrix), RIDGE)
    by_matrix = finite_differences(lambda A: error_by_refits(rows, A, RIDGE, left_out), matrix)
    np.testing.assert_allclose(slopes.by_matrix, [by_matrix] * 2, rtol=1e-5, atol=1e-7)
    by_ridge = finite_differences(
        lambda log: error_by_refits(rows, matrix, np.exp(log[0]), left_out), np.log([RIDGE])
    )
    np.testing.assert_allclose(slopes.by_ridge, [by_ridge[0]] * 2, rtol=1e-5)
    error = error_by_refits(rows, matrix, RIDGE, left_out)
    np.testing.assert_allclose(slopes.squares / slopes.weight, [error] * 2)


def test_slopes_of_a_system_that_cannot_be_solved_are_not_finite():
    slopes = compute_slopes([batch(False)], Gaussian(1.0), torch.ones(3).double(), -1e3)
    assert slopes.is_finite.tolist() == [False]


def test_gradient_products_are_those_of_finite_differences():
    rows = batch(False)
    F, Y, _ = (None if a is None else a.numpy() for a in rows.rows)
    K = kernel_matrix(Gaussian(1.0), F, F)
    alpha = np.linalg.solve(K + RIDGE * np.eye(30), Y)

    def predict(x, t):
        return kernel_matrix(Gaussian(1.0), x[None], F)[0] @ alpha[:, t]

    gradients = [finite_differences(partial(predict, t=t), x) for x in F[:15] for t in (0, 1)]
    products = rows.gradient_products(Gaussian(1.0), torch.ones(3).double(), RIDGE)
    expected = np.stack(gradients).T @ np.stack(gradients)
    np.testing.assert_allclose(products, expected, rtol=1e-5, atol=1e-7)


def test_the_first_direction_of_adam_is_the_sign_of_the_slope():
    direction = Adam()(torch.tensor([2.0, -2.0], dtype=torch.float64))
    np.testing.assert_allclose(direction, [1.0, -1.0], rtol=2e-3)


def test_adam_scales_all_entries_of_a_matrix_alike():
    slope = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    direction = Adam()(slope)
    assert float(direction[0, 0] / direction[1, 1]) == pytest.approx(3.0)


def descent(matrix, ridge=1.0, fixed=False, seed=0):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(200, 4)))
    Y = torch.sin(3 * X[:, :1]) + 0.01 * torch.from_numpy(rng.normal(size=(200, 1)))
    rows = ArraySource(X, Y)
    return MetricDescent(rows, Matern(2.0), matrix.double(), ridge, fixed, LocalEngine(1), seed)


@pytest.mark.parametrize("matrix", [torch.ones(4), torch.eye(4)])
def test_a_descent_finds_the_one_column_that_matters(matrix):
    learned = descent(matrix)
    learned.advance(decreasing_rates(40))
    size = apply_matrix(torch.eye(4).double(), learned.matrix).norm(dim=1)
    assert size[0] > 2 * size[1:].max()


def test_a_descent_lowers_the_error():
    learned = descent(torch.ones(4))
    learned.advance([RATE] * 16)
    before = learned.error
    learned.advance(decreasing_rates(24))
    assert learned.error < before


def test_gradient_products_find_the_one_column_that_matters():
    learned = descent(torch.ones(4))
    learned.jump_to_gradient_products()
    learned.jump_to_gradient_products()  # as often as a search does
    assert learned.matrix[0] > 3 * learned.matrix[1:].max()
    assert float(learned.matrix.norm()) == pytest.approx(2.0)


def test_gradient_products_leave_a_weight_to_a_category_that_is_the_same_in_every_batch():
    learned = descent(torch.ones(4))
    rows = learned.rows
    far = torch.cat([rows.X, torch.full((200, 1), 1e3)], 1)
    near = torch.cat([rows.X, torch.zeros(200, 1)], 1)
    both = ArraySource(torch.cat([near, far]), torch.cat([rows.Y, -rows.Y]))
    learned = replace(learned, rows=both, matrix=torch.ones(5).double())
    learned.jump_to_gradient_products()
    assert learned.matrix[4] >= 0.2


def test_the_same_seed_gives_the_same_descent():
    one, other = descent(torch.ones(4)), descent(torch.ones(4))
    one.advance([RATE] * 3)
    other.advance([RATE] * 3)
    torch.testing.assert_close(one.matrix, other.matrix, rtol=0, atol=0)


def test_another_kernel_starts_from_the_matrix_and_the_ridge_of_the_first():
    learned = descent(torch.ones(4))
    learned.advance([RATE] * 3)
    other = learned.restart(Gaussian(1.0))
    assert other.kernel == Gaussian(1.0)
    assert other.ridge == learned.ridge
    assert other.steps == []
    torch.testing.assert_close(other.matrix, learned.matrix, rtol=0, atol=0)


def test_a_fixed_ridge_stays():
    fixed = descent(torch.ones(4), ridge=1e-9, fixed=True)
    fixed.advance([RATE] * 3)
    assert fixed.ridge == 1e-9


def test_the_error_is_the_mean_over_the_last_sixteen_steps():
    learned = descent(torch.ones(4))
    learned.steps = [(100.0, 1.0)] * 5 + [(2.0, 1.0)] * 8 + [(3.0, 4.0)] * 8
    assert learned.error == (8 * 2.0 + 8 * 3.0) / (8 * 1.0 + 8 * 4.0)


def test_the_error_on_batches_is_the_mean_squared_residual_of_rows_left_out():
    learned = descent(torch.ones(4))
    one, other = batch(False), batch(True, torch.arange(30) % 7)
    parts = [compute_slopes([b], learned.kernel, torch.ones(3).double(), 1.0) for b in (one, other)]
    learned.matrix = torch.ones(3).double()
    squares, weight = (sum(float(part[k]) for part in parts) for k in (0, 1))
    assert learned.measure_error([one, other]) == pytest.approx(squares / weight)


def test_the_error_on_batches_that_cannot_be_solved_is_infinite():
    learned = descent(torch.ones(4), ridge=-1e3, fixed=True)
    assert learned.measure_error(learned.draw_batches(2, 100)) == math.inf


def test_a_batch_holds_the_rows_nearest_to_its_centre_behind_the_matrix():
    weights = torch.tensor([3.0, 0.1, 0.1, 0.1])
    [drawn] = descent(weights).draw_batches(1, 800)
    F = descent(weights).rows.X * weights
    mapped = drawn.rows.X * weights
    expected = (F - mapped[0]).norm(dim=1).sort().values[:100]
    torch.testing.assert_close((mapped - mapped[0]).norm(dim=1), expected)


def test_rows_of_a_group_are_left_out_together_and_rows_of_one_group_by_themselves():
    learned = replace(descent(torch.ones(4)), groups=torch.arange(200) // 100)
    several, one = (learned.make_batch(torch.arange(*ends)) for ends in ((90, 110), (0, 20)))
    assert several.groups.tolist() == [0] * 10 + [1] * 10
    assert one.groups.tolist() == list(range(20))


def test_parts_of_a_batch_are_of_equal_size():
    learned = replace(descent(torch.ones(4)), in_parts=True)
    some, few = (learned.make_batch(torch.arange(n)) for n in (22, 3))
    assert (len(some.rows.X), some.n_parts, some.block_rows) == (20, 4, 5)
    assert (len(few.rows.X), few.n_parts, few.block_rows) == (3, None, 1)


def test_small_batches_are_computed_together_and_large_ones_one_by_one():
    learned = descent(torch.ones(4))
    small = learned.make_batch(torch.arange(20))
    large = learned.make_batch(torch.arange(400) % 200)
    assert [len(part) for part in combine_batches([small, small])] == [2]
    assert [len(part) for part in combine_batches([large, large])] == [1, 1]
