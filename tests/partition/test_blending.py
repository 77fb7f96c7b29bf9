"""Cells and regions of rows, blending and the coarse level."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from parkrr.kernels import Gaussian
from parkrr.park.algorithm import Coarse
from parkrr.park.model import NystromModel, VoronoiPartition
from parkrr.partition import HARD, Blend, Regions, median_margin
from plain import plain

GAUSSIAN = Gaussian(1.0)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(600, 2))
    return X, np.sin(X[:, 0]) * X[:, 1]


def shares(blend, X, C):
    """Share of every cell at every row, (n, Q), by the formula of the docstring."""
    out = np.zeros((len(X), len(C)))
    for i, x in enumerate(X):
        squares = ((x - C) ** 2).sum(1)
        order = np.argsort(squares)
        farther = squares[order] - squares[order[0]]
        reach = min(blend.width, farther[blend.n_nearest])
        weights = np.maximum(0, 1 - farther[: blend.n_nearest] / reach) ** 2
        out[i, order[: blend.n_nearest]] = weights / weights.sum()
    return out


@pytest.mark.parametrize("blend", [Blend(2, 0.5), Blend(3, 5.0), Blend(4, 100.0)], ids=repr)
def test_shares_are_those_of_the_formula(blend):
    rng = np.random.default_rng(0)
    X, C = rng.normal(size=(50, 2)), rng.normal(size=(7, 2))
    shared = blend.cell_shares(GAUSSIAN.distance(torch.from_numpy(C)), torch.from_numpy(X))
    found = np.zeros((50, 7))
    found[shared.row, shared.cell] = shared.share
    np.testing.assert_allclose(found, shares(blend, X, C), atol=1e-12)


@pytest.fixture
def two_levels():
    """Seven cells in three regions of 2, 1 and 4, and 200 rows."""
    rng = np.random.default_rng(0)
    C, upper, X = (torch.from_numpy(rng.normal(size=(n, 2))) for n in (7, 3, 200))
    regions = Regions(upper, torch.tensor([2, 1, 4]), torch.tensor([0.5, 1.0, 2.0]).double())
    return VoronoiPartition(GAUSSIAN, C, regions), C, regions, X


def test_a_row_belongs_to_the_nearest_cell_of_the_nearest_region(two_levels):
    partition, C, regions, X = two_levels
    nearest = partition.assign(X).tolist()
    starts = [0, 2, 3, 7]
    for x, cell in zip(X, nearest, strict=True):
        r = int((regions.centroids - x).square().sum(1).argmin())
        own = C[starts[r] : starts[r + 1]]
        assert cell == starts[r] + int((own - x).square().sum(1).argmin())
        assert partition.shares_of_one(HARD, x.expand(4, -1)) == [(cell, 1.0)]


@pytest.mark.parametrize("blend", [HARD, Blend(2, 0.5), Blend(2, 5.0)], ids=repr)
def test_shares_of_one_row_are_those_of_the_row_among_others(blend, two_levels):
    partition, _, _, X = two_levels
    row, cell, share = partition.cell_shares(blend, X)
    for i, x in enumerate(X):
        own = sorted(zip(cell[row == i].tolist(), share[row == i].tolist(), strict=True))
        assert sorted(partition.shares_of_one(blend, x.expand(4, -1))) == own


@pytest.mark.parametrize("blend", [Blend(2, 0.5), Blend(2, 5.0)], ids=repr)
def test_shares_of_two_levels_are_those_of_the_region_times_those_inside_of_it(blend, two_levels):
    partition, C, regions, X = two_levels
    shared = partition.cell_shares(blend, X)
    found = np.zeros((200, 7))
    found[shared.row, shared.cell] = shared.share
    of_region = shares(blend, X.numpy(), regions.centroids.numpy())  # (n, 3)
    expected = np.zeros((200, 7))
    expected[:, 2] = of_region[:, 1]
    single = blend.cell_shares(GAUSSIAN.distance(C[:2]), X)  # of two cells the nearest alone
    expected[single.row, single.cell] = of_region[single.row, 0]
    expected[:, 3:] = of_region[:, 2:] * shares(Blend(2, 2.0), X.numpy(), C[3:].numpy())
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1)


def test_shares_of_two_levels_are_continuous_across_borders_of_regions(two_levels):
    partition, *_ = two_levels
    path = torch.linspace(-3, 3, 20_001).double()[:, None] * torch.tensor([[1.0, 0.7]])
    shared = partition.cell_shares(Blend(2, 2.0), path)
    found = np.zeros((20_001, 7))
    found[shared.row, shared.cell] = shared.share
    inside = found[:, [2, 3, 4, 5, 6]]  # the region of two cells has no blend inside
    assert np.abs(np.diff(inside, axis=0)).max() < 5e-3
    assert len(np.unique(partition.assign(path))) > 3


def test_no_rows_have_no_shares(two_levels):
    partition, _, _, X = two_levels
    assert [len(part) for part in partition.cell_shares(Blend(2, 1.0), X[:0])] == [0, 0, 0]
    assert len(partition.assign(X[:0])) == 0


def test_the_median_margin_is_that_of_squared_distances(two_levels):
    _, C, _, X = two_levels
    squares = np.sort(((X.numpy()[:, None] - C.numpy()) ** 2).sum(2), 1)
    expected = np.sort(squares[:, 1] - squares[:, 0])[99]  # torch takes the lower of two medians
    assert median_margin(GAUSSIAN, C, X) == pytest.approx(expected)
    assert median_margin(GAUSSIAN, C[:1], X) == 0


def test_blended_predictions_do_not_jump(rows):
    path = np.linspace(-3, 3, 20_001)[:, None] * [[1.0, 0.7]]

    def largest_step(blend):
        model = plain(n_cells=8, blend=blend, random_state=0).fit(*rows)
        return np.abs(np.diff(model.predict(path))).max()

    assert largest_step(HARD) > 5e-3
    assert largest_step(Blend(3, 1.0)) < 2e-3  # the target itself moves by up to 1.3e-3


def test_no_width_is_the_nearest_cell(rows):
    hard = plain(n_cells=8, blend=1, random_state=0).fit(*rows).predict(rows[0])
    narrow = plain(n_cells=8, blend=Blend(3, 0.0), random_state=0).fit(*rows)
    np.testing.assert_array_equal(narrow.predict(rows[0]), hard)


def test_cells_and_coarse_level_add_up(rows):
    X, y = rows
    fitted = plain(n_cells=4, coarse=Coarse(20, Gaussian(3.0)), random_state=0).fit(X, y)
    model = fitted.model_
    assert isinstance(model.coarse, NystromModel)
    mapped = model.map_rows(torch.from_numpy(X))
    K = model.coarse.kernel(mapped, model.coarse.centers)
    cells = [
        model.kernel(mapped[i : i + 1], model.centers[q]) @ model.weights[q]
        for i, q in enumerate(model.route(torch.from_numpy(X)).tolist())
    ]
    expected = torch.cat(cells) + K @ model.coarse.weights + model.intercept
    np.testing.assert_allclose(fitted.predict(X), expected[:, 0], atol=1e-8)


def test_a_coarse_level_that_explains_all_leaves_nothing_to_the_cells(rows):
    X, y = rows
    model = plain(n_cells=4, coarse=Coarse(600, Gaussian(2.0)), random_state=0).fit(X, y)
    cells = replace(model.model_, coarse=None, intercept=torch.zeros(1))
    assert np.abs(model.predict(X) - y).max() < 1e-2  # of targets up to 3
    # It is not fitted to a fifth of the rows: 0.031 of one of them is left to its cell.
    assert cells.predict(torch.from_numpy(X)).abs().max() < 0.05
