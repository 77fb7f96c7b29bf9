"""Comparison cells: their errors are those of refits, their ridge the one of least error."""

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import Gaussian
from parkrr.runtime.engine import LocalEngine
from parkrr.tuning.cell_comparison import (
    MOST_CELLS,
    MOST_ROWS,
    CellComparison,
    ComparisonCell,
    draw_comparison_cells,
    keep_nearest,
)
from reference import refit_squares

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
Y = np.sin(2 * X[:, :1]) + 0.3 * rng.normal(size=(80, 1))
w = rng.uniform(0.5, 2, size=80)
KERNEL = Gaussian(0.9)
RIDGES = [0.1, 1.0, 10.0]


def source(rows, weighted=True):
    tensors = [torch.from_numpy(a[rows]) for a in (X, Y, w)]
    return ArraySource(*tensors[: 2 + weighted])


def cell(m, weighted=True):
    return ComparisonCell(
        train=source(slice(60), weighted),
        validation=source(slice(60, None), weighted),
        centers=torch.from_numpy(X[:m]),
        baseline=2.0,
    )


def refits(m, weight):
    return [
        refit_squares(
            KERNEL, X[:60], Y[:60], weight[:60], X[:m], ridge, X[60:], Y[60:], weight[60:]
        )
        for ridge in RIDGES
    ]


@pytest.mark.parametrize("m", [15, 60])
def test_errors_of_a_cell_are_those_of_refits(m):
    np.testing.assert_allclose(cell(m).errors(KERNEL, RIDGES), refits(m, w), rtol=1e-7)


@pytest.mark.parametrize("m", [15, 60])
def test_rows_without_weights_count_once(m):
    expected = refits(m, np.ones(80))
    np.testing.assert_allclose(cell(m, False).errors(KERNEL, RIDGES), expected, rtol=1e-7)


def test_a_system_that_cannot_be_solved_has_an_infinite_error():
    copies = torch.zeros(4, 2, dtype=torch.float64)
    train = ArraySource(copies, torch.ones(4, 1, dtype=torch.float64))
    broken = ComparisonCell(train, source(slice(60, None)), copies, 1.0)
    assert broken.errors(KERNEL, [-1.0]).tolist() == [np.inf]


def compare(ridge, fixed=False):
    return CellComparison([cell(60), cell(15)], LocalEngine(1), ridge, fixed)


def test_the_ridge_is_the_one_of_least_error_on_a_grid():
    start = 1e-5
    grid = [start * 10 ** (k / 2) for k in range(15)]
    errors = compare(1.0).cells[0].errors(KERNEL, grid) + compare(1.0).cells[1].errors(KERNEL, grid)
    best = compare(start).find_ridge(KERNEL)
    assert best.ridge == pytest.approx(grid[int(errors.argmin())])
    assert best.error == pytest.approx(float(errors.min()) / (2.0 + 2.0))


def test_the_next_search_starts_at_the_best_ridge():
    comparison = compare(1e-5)
    assert comparison.find_ridge(KERNEL).ridge == comparison.ridge


def test_a_fixed_ridge_stays():
    comparison = compare(1e-9, fixed=True)
    assert comparison.find_ridge(KERNEL).ridge == 1e-9


def test_a_ridge_to_start_from_is_clipped():
    assert compare(1e-30).ridge == 1e-7


def draw(cells, is_validation, share=1.0):
    rows = source(slice(None))
    sources = [ArraySource(rows.X, rows.Y, rows.w, torch.tensor(index)) for index in cells]
    return draw_comparison_cells(
        sources, is_validation, lambda X: X[:, :1], center_share=share, seed=0
    )


EVEN = torch.arange(80) % 4 == 0


def test_rows_of_a_cell_are_divided_as_told():
    [drawn] = draw([list(range(20))], EVEN)
    torch.testing.assert_close(drawn.validation.X, torch.from_numpy(X[0:20:4]))
    assert drawn.train.n_rows == 15
    assert drawn.train.Y[:, 0].tolist() == Y[:20][np.arange(20) % 4 > 0, 0].tolist()


def test_the_baseline_error_is_that_of_its_predictions():
    [drawn] = draw([list(range(20))], EVEN)
    residuals = X[0:20:4, :1] - Y[0:20:4]
    assert drawn.baseline == pytest.approx(w[0:20:4] @ (residuals**2).sum(1))


def test_a_cell_without_validation_or_training_rows_is_left_out():
    assert draw([[1, 2, 3], [0, 4, 8]], EVEN) == []


def test_a_share_of_the_training_rows_are_centres():
    [drawn] = draw([list(range(20))], EVEN, share=0.3)
    assert len(drawn.centers) == 5
    assert {tuple(z) for z in drawn.centers.tolist()} <= {tuple(x) for x in drawn.train.X.tolist()}


def test_at_most_so_many_cells_and_rows_are_compared():
    assert len(draw([[0, 1]] * (MOST_CELLS + 5), EVEN)) == MOST_CELLS
    [drawn] = draw([list(range(80)) * (MOST_ROWS // 40)], EVEN)
    assert drawn.train.n_rows + drawn.validation.n_rows == MOST_ROWS


def test_of_a_large_cell_the_rows_nearest_to_its_median_are_compared():
    rows = source(slice(None))
    cell = ArraySource(rows.X, rows.Y, rows.w, torch.arange(79))
    distances = np.linalg.norm(X[:79] - np.median(X[:79], axis=0), axis=1)
    assert keep_nearest(cell, 5).index.tolist() == sorted(np.argsort(distances)[:5].tolist())


def test_a_kernel_that_was_compared_is_not_compared_again():
    comparison = compare(1e-3)
    first = comparison.find_ridge(KERNEL)
    comparison.cells = []  # with which nothing can be compared
    assert comparison.find_ridge(KERNEL) is first
