"""Which rows become centroids, and which rows belong to them."""

import numpy as np
import pytest
import torch

import reference
from parkrr.data import ArraySource
from parkrr.kernels import Gaussian, Linear
from parkrr.partition import (
    CENTROIDS,
    assign,
    balance_cells,
    choose_centroids,
    move_to_means,
    rows_around,
)
from parkrr.partition.centroids import AROUND_SHARE, HEAVY, split_cell

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(80, 2)))
KERNEL = Gaussian(1.0)


def test_greedy_centroids_are_those_of_the_largest_schur_complement():
    K = reference.kernel_matrix(KERNEL, X.numpy(), X.numpy())
    chosen = CENTROIDS["greedy"](KERNEL, X, 9, 0)
    assert chosen.tolist() == reference.greedy(K, 9)


@pytest.mark.parametrize("rule", sorted(CENTROIDS))
def test_a_rule_chooses_different_rows_and_repeats_itself(rule):
    first, again = (CENTROIDS[rule](KERNEL, X, 20, 7) for _ in range(2))
    assert len(set(first.tolist())) == 20
    assert torch.equal(first, again)


@pytest.mark.parametrize("rule", ["greedy", "rpcholesky"])
def test_a_rule_stops_when_no_row_is_outside_the_span(rule):
    assert len(CENTROIDS[rule](Linear(), X, 10, 0)) == 2
    assert CENTROIDS[rule](Linear(), torch.zeros(5, 2), 3, 0).tolist() == [0]


def test_centroids_are_chosen_among_so_many_candidates():
    C = choose_centroids(KERNEL, X, "greedy", 5, n_candidates=10, seed=0)
    whole = choose_centroids(KERNEL, X, "greedy", 5, n_candidates=80, seed=0)
    assert C.shape == whole.shape == (5, 2)
    assert not torch.equal(C, whole)
    assert bool((C[:, None] == X).all(2).any(1).all())  # rows of X


def test_a_row_belongs_to_the_nearest_centroid():
    expected = reference.rkhs_distances(KERNEL, X.numpy(), X[:6].numpy()).argmin(1)
    np.testing.assert_array_equal(assign(KERNEL, X, X[:6]).numpy(), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_balanced_cells_are_of_like_weight(weighted):
    rows = torch.from_numpy(RNG.standard_t(2, size=(4000, 2)))  # heavy tails
    w = torch.from_numpy(RNG.uniform(0.5, 2, 4000)) if weighted else None
    C = choose_centroids(KERNEL, rows, "greedy", 20, n_candidates=4000, seed=0)
    settings = {"rule": "greedy", "lightest": 1.0, "seed": 0}
    weights = torch.ones(4000).double() if w is None else w

    def largest(centroids):
        cells = torch.bincount(assign(KERNEL, rows, centroids), weights)
        return float(cells.max() / (weights.sum() / 20))

    assert largest(C) > HEAVY
    assert largest(balance_cells(KERNEL, rows, w, C, **settings)) <= HEAVY


def test_centroids_move_to_the_weighted_means_of_their_rows(monkeypatch):
    monkeypatch.setattr("parkrr.partition.centroids.MEAN_ROUNDS", 1)
    w = torch.from_numpy(RNG.uniform(0.5, 2, 80))
    cell_of = assign(KERNEL, X, X[:6])
    means = [np.average(X[cell_of == q], axis=0, weights=w[cell_of == q]) for q in range(6)]
    moved = move_to_means(KERNEL, X, w, X[:6])
    np.testing.assert_allclose(moved.numpy(), means, rtol=1e-12)


def test_a_centroid_without_rows_stays():
    far = torch.cat([X[:3], torch.full((1, 2), 50.0)])
    moved = move_to_means(KERNEL, X, None, far)
    assert torch.equal(moved[3], far[3])


def test_cells_of_means_are_more_even_than_those_of_random_rows():
    rows = torch.from_numpy(RNG.uniform(size=(4000, 3)))
    C = choose_centroids(KERNEL, rows, "uniform", 20, n_candidates=4000, seed=0)
    cells = [C, move_to_means(KERNEL, rows, None, C)]
    counts = [torch.bincount(assign(KERNEL, rows, each)).double() for each in cells]
    random_cubes, even_cubes = (float(n.pow(3).mean() / n.mean() ** 3) for n in counts)
    assert even_cubes < 0.8 * random_cubes


def test_a_cell_of_one_row_many_times_cannot_be_split():
    assert split_cell(KERNEL, torch.ones(50, 2), "greedy", 3, seed=0).shape == (0, 2)


@pytest.mark.parametrize("n", [300, 5000])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_rows_around_points_are_the_nearest_ones_in_their_order(monkeypatch, n, n_threads):
    monkeypatch.setattr("parkrr.partition.centroids.AROUND_ROWS", 170)
    rows = torch.from_numpy(RNG.normal(size=(n, 3)))
    numbers = rows_around(ArraySource(rows, rows), rows[:40], 60, n_threads)
    assert torch.equal(numbers, torch.cdist(rows[:40], rows).argsort(1)[:, :60])


def test_rows_around_a_point_are_all_rows_if_there_are_no_more():
    assert (
        rows_around(ArraySource(X, X), X[:2], 10**6).sort(1).values.tolist()
        == [list(range(len(X)))] * 2
    )


def test_rows_around_a_point_are_the_nearest_ones_where_rows_in_a_regular_order_are_near():
    rows = torch.from_numpy(RNG.normal(size=(6400, 3)))
    rows[::AROUND_SHARE] /= 100
    point = torch.zeros(1, 3, dtype=rows.dtype)
    numbers = rows_around(ArraySource(rows, rows), point, 300)
    assert torch.equal(numbers[0], rows.norm(dim=1).argsort()[:300])


def test_copies_of_a_row_are_found_as_often_as_asked():
    rows = torch.ones(500, 2, dtype=torch.float64)
    [numbers] = rows_around(ArraySource(rows, rows), rows[:1], 5)
    assert len(set(numbers.tolist())) == 5
