"""Rows like those of the fit are told from others."""

import numpy as np
import pytest
from scipy import stats

import reference
from parkrr import ParKClassifier, ParKRegressor, load
from parkrr.errors import ParameterError
from parkrr.inspection import Drift, drift
from parkrr.inspection.drift import compare_novelty, compare_shares
from parkrr.kernels import Gaussian
from parkrr.uncertainty import novelty_of_centers
from plain import PLAIN

SETTLED = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-4, "n_cells": 5, "random_state": 0}
SEEDS = range(5)


def draw(n, seed):
    return np.random.default_rng(seed).normal(size=(n, 3))


def fit(seed, kind=ParKRegressor, **changes):
    X = draw(800, seed)
    return kind(**SETTLED | changes).fit(X, X[:, 0] > 0)


@pytest.fixture(scope="module")
def model():
    return fit(0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fresh_sample_of_the_same_law_is_no_drift(seed):
    assert not drift(fit(seed), draw(1000, 100 + seed)).has_drifted


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shifted_feature_is_a_drift(seed):
    result = drift(fit(seed), draw(1000, 100 + seed) + np.array([1.5, 0.0, 0.0]))
    assert result.is_novel
    assert result.has_moved
    assert "Drift: rows are novel and shares of cells differ." in str(result)


def test_rows_of_one_part_of_the_space_have_moved_but_are_not_novel(model):
    X = draw(3000, 7)
    result = drift(model, X[(X[:, 0] > 0) & (np.abs(X) < 2).all(1)])
    assert (result.is_novel, result.has_moved, result.has_drifted) == (False, True, True)


def test_a_difference_that_is_certain_but_small_is_no_drift():
    certain = {"novel_pvalue": 1e-9, "cells_pvalue": 1e-9, "statistic": 60.0, "degrees": 4}
    small = Drift(rows=10**6, novel_share=0.015, moved_share=0.03, alpha=0.01, **certain)
    assert not small.has_drifted
    assert str(small).endswith("No drift.")


def test_a_model_of_one_cell_compares_novelty_alone():
    one = fit(0, n_cells=1)
    near, far = drift(one, draw(500, 1)), drift(one, draw(500, 1) + 3)
    assert (near.degrees, near.cells_pvalue, near.moved_share) == (0, 1.0, 0.0)
    assert "cannot be compared" in str(near)
    assert (near.has_drifted, far.has_drifted) == (False, True)


def test_a_classifier_and_a_loaded_model_find_the_same_drift(tmp_path):
    model = fit(0, ParKClassifier)
    model.save(tmp_path / "model.park")
    assert drift(load(tmp_path / "model.park"), draw(300, 1)) == drift(model, draw(300, 1))


@pytest.mark.parametrize("alpha", [0, 1, -0.1, float("nan")])
def test_a_level_that_is_none_is_refused(model, alpha):
    with pytest.raises(ParameterError, match="alpha must be above 0 and below 1"):
        drift(model, draw(10, 1), alpha)


def test_the_novelty_of_a_centre_is_that_to_the_others(model):
    inner = model.model_
    Z = inner.centers[2].numpy()
    nearest = np.argsort(((Z[:, None] - Z) ** 2).sum(2), axis=1)[:, :33]  # itself first
    K = np.stack([reference.kernel_matrix(inner.kernel, Z[i], Z[i]) for i in nearest])
    first = sum(len(centers) for centers in inner.centers[:2])
    found = novelty_of_centers(inner, 10_000)[first : first + len(Z)]
    np.testing.assert_allclose(found, reference.last_pivots(K, 1e-8), atol=1e-9)


def test_the_p_value_of_novelty_is_the_share_of_draws_with_as_many_novel_rows():
    rng = np.random.default_rng(0)
    known, novelty = rng.uniform(size=199), rng.uniform(size=50)
    novelty[:3] = 2.0
    share, pvalue = compare_novelty(novelty, known)
    ranks = rng.permuted(np.tile(np.arange(249), (20_000, 1)), axis=1)  # 199 known, then 50 new
    threshold = np.sort(ranks[:, :199], axis=1)[:, -2:-1]
    counts = (ranks[:, 199:] > threshold).sum(1)
    assert share == (novelty > np.sort(known)[-2]).mean()
    assert pvalue == pytest.approx((counts >= 50 * share).mean(), abs=0.01)


def test_the_statistic_of_shares_is_that_of_a_contingency_table():
    before, after = np.array([300, 200, 500]), np.array([20, 40, 40])
    expected = stats.chi2_contingency([before, after], correction=False)
    statistic, degrees = compare_shares(before, after)
    assert statistic == pytest.approx(expected.statistic)
    assert degrees == expected.dof


def test_cells_that_expect_few_rows_count_as_one():
    before, after = np.array([10, 500, 20, 470]), np.array([3, 60, 1, 36])
    expected = stats.chi2_contingency([[500, 500], [60, 40]], correction=False)
    statistic, degrees = compare_shares(before, after)
    assert statistic == pytest.approx(expected.statistic)
    assert degrees == expected.dof
