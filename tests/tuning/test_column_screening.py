"""Column screening: it finds the columns that matter, and leaves a model no worse."""

import numpy as np
import pytest
import torch

from parkrr.data.rows import Block
from parkrr.kernels import Gaussian, Matern
from parkrr.runtime.engine import LocalEngine
from parkrr.tuning.column_screening import ColumnScreening
from reference import finite_differences, kernel_matrix, refit_squares

rng = np.random.default_rng(0)
N, T, E = 400, 300, 120
X = rng.normal(size=(N, E))
Y = np.stack([np.sin(2 * X[:, 3]) + X[:, 70] ** 2, X[:, 3] * X[:, 70]], 1)


def screening(X=X, Y=Y, w=None, kernel=None, threads=1):
    w = np.ones(len(X)) if w is None else w
    rows = Block(*(torch.from_numpy(part) for part in (X, Y, w)))
    return ColumnScreening(rows, T, kernel or Matern(5.0), LocalEngine(threads))


def never():
    return False


def test_the_columns_that_matter_are_found_among_120():
    columns, weights, _ = screening().run(never)
    largest = columns[weights.argsort(descending=True)[:2]]
    assert sorted(largest.tolist()) == [3, 70]
    assert len(columns) <= 8


def test_columns_do_not_depend_on_the_number_of_cores():
    one, two = (screening(threads=threads).run(never) for threads in (1, 2))
    assert one.columns.tolist() == two.columns.tolist()
    torch.testing.assert_close(one.weights, two.weights, rtol=0, atol=0)


def test_the_error_of_a_fit_is_that_of_a_refit():
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=N)
    fitted = screening(w=w).fit_ridges(torch.from_numpy(X), (0.1,), 9.0)
    squares = refit_squares(Matern(9.0), X[:T], Y[:T], w[:T], X[:T], 0.1, X[T:], Y[T:], w[T:])
    assert fitted.error == pytest.approx(squares / w[T:].sum())


def test_the_best_ridge_is_taken():
    Z = torch.from_numpy(X)
    errors = [screening().fit_ridges(Z, (ridge,), 9.0).error for ridge in (1e-3, 1.0)]
    assert screening().fit_ridges(Z, (1e-3, 1.0), 9.0).error == min(errors)


def test_weights_are_fourth_roots_of_mean_squared_slopes():
    few = screening(X[:, :4], Y[:, :1], kernel=Gaussian(2.0))
    weights = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)
    fitted = few.fit_ridges(few.rows.X * weights, (0.1,), 2.0)

    def predict(x):
        Z = X[:T, :4] * weights.numpy()
        return (
            kernel_matrix(Gaussian(2.0), (x * weights.numpy())[None], Z)[0]
            @ fitted.alpha[:, 0].numpy()
        )

    slopes = np.stack([finite_differences(predict, x) for x in X[:, :4]])  # (n, 4)
    root = (slopes**2).sum(0) ** 0.25
    expected = 2 * root / np.linalg.norm(root)
    found = few.weigh(torch.arange(4), weights, fitted)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_weights_belong_before_the_kernel_as_it_is():
    of = {length: screening(kernel=Matern(length)).run(never) for length in (5.0, 50.0)}
    torch.testing.assert_close(10 * of[5.0].weights, of[50.0].weights)


def test_nothing_is_screened_where_it_is_over_at_once():
    assert screening().run(lambda: True) is None


def test_nothing_is_screened_where_no_system_can_be_solved():
    assert screening(w=np.full(N, np.nan)).run(never) is None


def test_nothing_is_screened_where_no_column_matters():
    noise = np.random.default_rng(1).normal(size=(N, 1))
    assert screening(Y=noise).run(never) is None


def test_columns_that_only_matter_in_pairs_are_found():
    rng = np.random.default_rng(2)
    pair = X[:, 10] * X[:, 90] + 0.1 * rng.normal(size=N)
    columns, _, _ = screening(Y=pair[:, None]).run(never)
    assert columns.tolist() == [10, 90]


def test_dependence_on_a_column_a_square_and_a_pair_is_found_and_no_other():
    R = torch.from_numpy(X[:, [5]] + X[:, [20]] ** 2 + X[:, [60]] * X[:, [61]])[:T]
    assert screening().find_dependence(R).tolist() == [5, 20, 60, 61]


def test_columns_of_small_effect_are_found_in_the_residuals_of_large_ones():
    y = torch.from_numpy(4 * X[:, [5]] + 0.3 * X[:, [60]])
    few = screening(Y=y.numpy())
    assert few.find_dependence(y[:T]).tolist() == [5]
    assert few.select_forward(never)[0].tolist() == [5, 60]


@pytest.mark.parametrize("row", [0, 150, T - 1])
def test_residuals_of_rows_left_out_are_those_of_refits(row):
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=N)
    few = screening(w=w)
    columns = torch.tensor([3, 70])
    Z = X[:, [3, 70]]
    fitted = few.fit_ridges(torch.from_numpy(Z), (0.1,), 2.0)
    R = few.leave_rows_out(columns, fitted)
    kept = np.delete(np.arange(T), row)
    K = kernel_matrix(Matern(2.0), Z[kept], Z[kept]) + np.diag(0.1 / w[kept])
    alpha = np.linalg.solve(K, Y[kept])
    expected = Y[row] - kernel_matrix(Matern(2.0), Z[[row]], Z[kept])[0] @ alpha
    np.testing.assert_allclose(R[row], expected, rtol=1e-6)
