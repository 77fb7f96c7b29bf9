"""The sample search finds the lengthscale and penalty of least error on validation rows."""

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import FeatureMap, Gaussian, Linear
from parkrr.tuning.sample_search import SampleSearch, median_distance, search_lengthscale
from reference import kernel_matrix, leave_one_out_squares, refit_squares

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 2))
Y = np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(90, 1))
w = rng.uniform(0.5, 2, size=90)
PENALTY = 1e-3


def source(rows):
    return ArraySource(*(torch.from_numpy(a[rows]) for a in (X, Y, w)))


def search(validation=slice(60, None), n_centers=20, penalties=(PENALTY,)):
    return SampleSearch(
        source(slice(60)),
        validation and source(validation),
        n_centers,
        torch.float64,
        penalties=torch.tensor(penalties, dtype=torch.float64),
    )


def relative_error(lengthscale, penalty):
    """The error of a refit by the book over that of the constant zero."""
    ridge = penalty * w[:60].sum()
    squares = refit_squares(
        Gaussian(lengthscale), X[:60], Y[:60], w[:60], X[:20], ridge, X[60:], Y[60:], w[60:]
    )
    return squares / (w[60:] @ (Y[60:] ** 2).sum(1))


def test_the_error_is_that_of_a_refit_on_the_validation_rows():
    fitted = search().evaluate(Gaussian(0.8), FeatureMap(), "given", search=False)
    assert fitted.error == pytest.approx(relative_error(0.8, PENALTY), rel=1e-8)
    assert (fitted.kernel, fitted.penalty, fitted.map_name) == (Gaussian(0.8), PENALTY, "given")


def test_without_validation_rows_the_error_is_leave_one_out():
    fitted = search(None, n_centers=60).evaluate(Gaussian(0.8), FeatureMap(), "", search=False)
    K = kernel_matrix(Gaussian(0.8), X[:60], X[:60])
    squares = leave_one_out_squares(K, Y[:60], w[:60], PENALTY * w[:60].sum())
    assert fitted.error == pytest.approx(squares / (w[:60] @ (Y[:60] ** 2).sum(1)), rel=1e-6)


def test_the_best_lengthscale_is_as_good_as_a_grid():
    penalties = (1e-5, 1e-2)
    fitted = search(penalties=penalties).evaluate(Gaussian(), FeatureMap(), "", search=True)
    grid = median_distance(torch.from_numpy(X[:60])) * 2.0 ** np.arange(-4, 4)
    best = min(relative_error(length, penalty) for length in grid for penalty in penalties)
    assert fitted.error <= 1.01 * best


def test_the_penalty_is_the_one_of_least_error():
    penalties = (1e-8, 1e-2, 1.0)
    fitted = search(penalties=penalties).evaluate(Gaussian(0.8), FeatureMap(), "", search=False)
    errors = [relative_error(0.8, penalty) for penalty in penalties]
    assert fitted.penalty == penalties[int(np.argmin(errors))]


def test_a_kernel_without_lengthscale_stays_as_it_is():
    fitted = search().evaluate(Linear(), FeatureMap(), "given", search=True)
    assert fitted.kernel == Linear()


def test_the_model_predicts_what_the_error_was_computed_from():
    fitted = search().evaluate(Gaussian(0.8), FeatureMap(), "given", search=False)
    residuals = fitted.predict(torch.from_numpy(X[60:])).numpy() - Y[60:]
    error = w[60:] @ (residuals**2).sum(1) / (w[60:] @ (Y[60:] ** 2).sum(1))
    assert fitted.error == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("start", [1e-3, 1.0, 500.0])
def test_the_search_ends_near_the_least_error(start):
    best = search_lengthscale(
        lambda x: 1 + np.log(x / 7) ** 2, start, (4.0, 2.0, 2**0.5), (1e-9, 1e9)
    )
    assert 7 / 2**0.5 <= best <= 7 * 2**0.5


def test_the_search_does_not_leave_its_bounds():
    tried = []
    search_lengthscale(lambda x: tried.append(x) or 1 / x, 1.0, (4.0, 2.0), (0.5, 20.0))
    assert min(tried) >= 0.5
    assert max(tried) <= 20.0


def test_a_search_without_factors_stays_at_its_start():
    assert search_lengthscale(lambda x: 1 / x, 3.0, (), (0.1, 10.0)) == 3.0


def test_a_gain_below_a_thousandth_does_not_count():
    assert search_lengthscale(lambda x: 1 - 1e-4 * x, 1.0, (2.0,), (0.1, 10.0)) == 1.0


def test_the_median_distance_is_that_of_all_pairs():
    pairs = [np.linalg.norm(X[i] - X[j]) for i in range(20) for j in range(i)]
    expected = np.sort(pairs)[(len(pairs) - 1) // 2]
    assert median_distance(torch.from_numpy(X[:20])) == pytest.approx(expected)


def test_the_median_distance_of_copies_is_one():
    assert median_distance(torch.ones(5, 2)) == 1.0
