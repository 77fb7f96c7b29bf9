"""Maps in front of the kernel."""

import numpy as np
import pytest
import torch
from scipy.stats import norm, rankdata

from parkrr.kernels.feature_map import (
    add_normal_scores,
    bound_features,
    center_features,
    count_below,
    matrix_root,
    pull_back,
    score_knots,
    standardize_features,
)


def normal_rows(n, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


@pytest.mark.parametrize("scale", [1e-300, 1e-6, 1.0, 1e6, 1e300])
def test_a_standardised_feature_has_no_unit(scale):
    X = normal_rows(1000, 2)
    expected = standardize_features(X)(X, torch.float64)
    torch.testing.assert_close(standardize_features(X * scale)(X * scale, torch.float64), expected)


def test_one_wild_value_does_not_blank_a_feature_out():
    X = normal_rows(1000, 1)
    X[0] = 1e9
    assert 0.8 < standardize_features(X)(X[1:], torch.float64).std() < 1.2


WILD = [1e4, 1e12, 1e30, 1e300, -1e30]


@pytest.mark.parametrize("n", [60, 1000])
@pytest.mark.parametrize("wild", WILD)
def test_a_wild_value_of_any_size_leaves_centre_and_spread(n, wild):
    X = normal_rows(n, 1)
    usual = standardize_features(X)
    X[0] = wild
    found = standardize_features(X)
    torch.testing.assert_close(found.scale, usual.scale, rtol=0.1, atol=0)
    torch.testing.assert_close(found.origin, usual.origin, rtol=0, atol=0.1)
    torch.testing.assert_close(center_features(X).origin, usual.origin, rtol=0, atol=0.1)


@pytest.mark.parametrize("offset", [1e6, 1e12, 1e13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_offset_leaves_what_a_feature_tells(offset, dtype):
    X = normal_rows(1000, 1)
    expected = standardize_features(X)(X, dtype)
    found = standardize_features(X + offset)(X + offset, dtype)
    rounding = torch.finfo(torch.float64).eps * offset
    torch.testing.assert_close(found, expected, rtol=0, atol=2 * rounding + 1e-6)


def test_a_wild_value_leaves_the_spread_of_a_rare_flag():
    X = torch.zeros(1000, 1, dtype=torch.float64)
    X[:4] = 1
    usual = standardize_features(X)(X, torch.float64)
    X[4] = 1e30
    rare = standardize_features(X)(X[:4], torch.float64)
    assert (rare > 0.5).all()
    assert (usual[:4] > 0.5).all()


@pytest.mark.parametrize("value", [0.3, 1e13, 1e300])
def test_rounding_of_a_constant_does_not_count(value):
    X = torch.full((1000, 1), value, dtype=torch.float64)
    X[::2] *= 1 + torch.finfo(torch.float64).eps
    assert standardize_features(X).scale.item() == 0


def test_values_from_end_to_end_of_float64_have_a_spread():
    X = torch.linspace(-1, 1, 1000, dtype=torch.float64)[:, None] * 1.7e308
    F = standardize_features(X)(X, torch.float64)
    assert float(F.std()) == pytest.approx(1, abs=0.05)


def test_a_constant_feature_is_left_out():
    X = normal_rows(100, 2)
    X[:, 1] = 0.1
    assert (standardize_features(X)(X + 5, torch.float64)[:, 1] == 0).all()


def test_a_rare_flag_keeps_its_spread():
    X = torch.zeros(1000, 1, dtype=torch.float64)
    X[:3] = 1
    torch.testing.assert_close(standardize_features(X).scale, 1 / X.std(0, correction=0))


def test_bounds_move_values_to_one_range_outside_of_the_data():
    X = torch.tensor([[0.0], [10.0]]).double()
    bounded = bound_features(center_features(X), X[0], X[1])
    rows = torch.tensor([[-1e300], [-10.0], [-9.0], [3.0], [20.0], [21.0]]).double()
    expected = torch.tensor([[-15.0], [-15.0], [-14.0], [-2.0], [15.0], [15.0]]).double()
    assert torch.equal(bounded(rows, torch.float64), expected)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_bounds_leave_the_rows_of_the_data_as_they_are(size):
    X = size * normal_rows(1000, 3)
    free = standardize_features(X)
    bounded = bound_features(free, X.amin(0), X.amax(0))
    assert torch.equal(bounded(X, torch.float64), free(X, torch.float64))


def test_scores_are_those_of_the_ranks():
    X = normal_rows(200, 1).exp()
    expected = norm.ppf((rankdata(X[:, 0]) - 0.5) / 200)
    found = add_normal_scores(standardize_features(X), X).scores(X)[:, 0].numpy()
    np.testing.assert_allclose(found, expected / np.sqrt(np.mean(expected**2)), atol=1e-9)


def test_scores_between_knots_stay_between_their_levels():
    X = normal_rows(5000, 1)
    order = X[:, 0].sort().values[:, None]
    scores = add_normal_scores(standardize_features(X), X).scores(order)[:, 0]
    assert (scores.diff() >= 0).all()
    assert abs(float(scores.std()) - 1) < 0.02


def test_scores_of_a_constant_are_zero():
    knots, levels = score_knots(np.full(10, 3.0))
    assert (levels == 0).all()
    assert (knots == 3).all()


def test_the_root_squared_is_the_matrix_over_its_largest_eigenvalue():
    A = normal_rows(20, 4)
    M = A.T @ A
    torch.testing.assert_close(matrix_root(M) @ matrix_root(M), M / torch.linalg.eigvalsh(M)[-1])


def test_a_gradient_is_pulled_back_by_the_chain_rule():
    A, g = normal_rows(3, 3), normal_rows(1, 3, seed=1)
    back = pull_back(g.T @ g, A)
    torch.testing.assert_close(back, (A @ g.T) @ (A @ g.T).T)


KNOTS = {
    "normal": torch.randn(3, 256, generator=torch.Generator().manual_seed(0)).sort(1).values,
    "heavy tails": torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    .pow(9)
    .sort(1)[0],
    "equal": torch.full((2, 256), 7.0),
    "few": torch.tensor([[0.0] * 100 + [1.0] * 100 + [5.0] * 56]),
    "huge": torch.linspace(-3e38, 3e38, 256)[None],
    "time stamps": torch.linspace(1.6e9, 1.7e9, 256, dtype=torch.float64)[None],
}


@pytest.mark.parametrize("name", sorted(KNOTS))
def test_places_among_knots_are_those_of_a_plain_search(name):
    knots = KNOTS[name]
    rng = np.random.default_rng(0)
    drawn = torch.from_numpy(rng.uniform(-1.2, 1.2, (len(knots), 5000))).to(knots)
    spread = drawn * knots.abs().max() / 1.2
    close = knots[:, torch.from_numpy(rng.integers(256, size=5000))]
    values = torch.cat([spread, close, torch.nextafter(close, torch.tensor(0.0).to(close))], 1)
    values = values.clamp(knots[:, :1], knots[:, -1:])
    assert torch.equal(count_below(knots, values), torch.searchsorted(knots, values))
