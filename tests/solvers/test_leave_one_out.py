"""Leave-one-out by a formula: the oracle fits again."""

import numpy as np
import pytest
import torch

import reference
from ondisk import frame, on_disk, write
from ondisk import rows as made
from parkrr import Laplacian, scan_parquet
from parkrr.data.rows import ArraySource
from parkrr.kernels import Gaussian
from parkrr.park import fit_park
from parkrr.solvers import Direct, Falkon
from parkrr.solvers.problem import LocalProblem
from plain import fit_settings, plain

N, MANY, LEFT_OUT, RIDGE = 60, 400, 12, 0.05
KERNEL = Gaussian(1.5)


def problem(m, weighted, n_left_out=LEFT_OUT, n=N):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(n, 3)))
    Y = torch.sin(X[:, :2]) + 0.1 * torch.from_numpy(rng.normal(size=(n, 2)))
    w = torch.from_numpy(rng.uniform(0.5, 2, n)) if weighted else None
    return LocalProblem(KERNEL, ArraySource(X, Y, w), X[:m], None, RIDGE, 1, n_left_out)


def expected(given, groups):
    X, Z = given.cell.X.numpy(), given.centers.numpy()
    K_nm, K_mm = (reference.kernel_matrix(KERNEL, A, Z) for A in (X, Z))
    w = np.ones(len(X)) if given.cell.w is None else given.cell.w.numpy()
    return reference.left_out_changes(K_nm, K_mm, given.cell.Y.numpy(), w, RIDGE, groups)


ONE_BY_ONE = [[i] for i in range(N - LEFT_OUT, N)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [N, 20])
def test_a_direct_solve_predicts_as_a_fit_without_each_row_would(m, weighted):
    given = problem(m, weighted)
    change = Direct().solve(given).change
    np.testing.assert_allclose(change.numpy(), expected(given, ONE_BY_ONE), rtol=1e-6, atol=1e-8)


def test_every_row_can_be_left_out_in_turn():
    given = problem(N, weighted=False, n_left_out=N)
    change = Direct().solve(given).change
    groups = [[i] for i in range(N)]
    np.testing.assert_allclose(change.numpy(), expected(given, groups), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_falkon_predicts_as_a_fit_without_all_of_them_would(weighted):
    given = problem(20, weighted, n=MANY)
    change = Falkon(100, 1e-10).solve(given).change
    together = expected(given, [list(range(MANY - LEFT_OUT, MANY))])
    np.testing.assert_allclose(change.numpy(), together, atol=0.05 * np.abs(together).max())


def test_falkon_predicts_few_rows_as_a_fit_without_each_would():
    given = problem(20, weighted=True)
    change = Falkon(100, 1e-10).solve(given).change
    np.testing.assert_allclose(change.numpy(), expected(given, ONE_BY_ONE), rtol=1e-6, atol=1e-8)


def rows(n):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def left_out_of(model, *data):
    """What an estimator's fit left out, and its model."""
    found = {}
    learn = type(model)._learn_uncertainty

    class Spy(type(model)):
        def _learn_uncertainty(self, result, *others):
            found["left_out"] = result.left_out
            return learn(self, result, *others)

    model.__class__ = Spy
    model.fit(*data)
    return found["left_out"], model.model_


def test_left_out_rows_are_rows_of_the_fit_with_their_targets():
    X, y = rows(500)
    left_out, model = left_out_of(plain(n_cells=5, random_state=0), X, y)
    mapped = model.metric(torch.from_numpy(X), torch.float64)
    at = torch.cdist(left_out.X, mapped).argmin(1).numpy()
    np.testing.assert_allclose(left_out.Y[:, 0].numpy(), y[at], atol=1e-12)
    assert 70 < len(set(at)) == len(at) < 130  # a fifth, none twice


def test_predictions_of_left_out_rows_are_worse_than_of_rows_seen():
    X, y = rows(2000)
    left_out, model = left_out_of(plain(Laplacian(), n_cells=5, random_state=0), X, y)
    seen = model.apply_in_chunks(model.evaluate, left_out.X, 1)
    unseen = left_out.predictions(model, 1)
    assert (left_out.Y - unseen).square().mean() > 2 * (left_out.Y - seen).square().mean()


def test_left_out_rows_of_a_fit_from_disk_are_in_the_table(tmp_path):
    table = scan_parquet(write(tmp_path / "rows"), target="y")
    left_out, _ = left_out_of(on_disk(tmp_path / "c"), table)
    y = np.sort(np.concatenate([np.array(part["y"]) for part in table.blocks(10**6, ["y"])]))
    found = left_out.Y[:, 0].numpy()
    nearest = y[np.searchsorted(y, found - 1e-9).clip(0, len(y) - 1)]
    np.testing.assert_allclose(found, nearest, atol=1e-8)


@pytest.mark.parametrize("solver", ["direct", "falkon"])
def test_a_fit_from_disk_is_off_by_as_much_as_on_new_rows(solver, tmp_path):
    table = scan_parquet(write(tmp_path / "rows"), target="y")
    model = on_disk(tmp_path / "c", solver=solver)
    left_out, fitted = left_out_of(model, table)
    error = (left_out.Y - left_out.predictions(fitted, 1)).square().mean().sqrt()
    new = model.predict(frame(3000, seed=7)) - made(3000, seed=7)[1]
    assert float(error) == pytest.approx(np.sqrt(np.mean(new**2)), rel=0.2)


def test_a_cell_in_which_no_row_is_left_out_is_fitted_too(tmp_path):
    """Of 300 cells that are not balanced some hold none of the rows drawn to be left out."""
    table = scan_parquet(write(tmp_path / "rows", n=1200), target="y")
    settings = {"n_cells": 300, "n_centers": 1200, "balance": False}
    left_out, fitted = left_out_of(on_disk(tmp_path / "c", **settings), table)
    assert len(left_out.cell.unique()) < len(fitted.centroids)
    assert len(left_out.Y) == len(left_out.predictions(fitted, 1)) == 240


def test_left_out_rows_stand_for_all_when_they_are_capped():
    """Rows sorted by a feature: those left out are not the last of them."""
    X = torch.rand(3000, 1, generator=torch.manual_seed(0), dtype=torch.float64).sort(0).values
    settings = fit_settings(n_cells=1, n_centers=100, left_out_values=50 * 100)
    left_out = fit_park(settings, ArraySource(X, X)).left_out
    assert len(left_out.Y) == 50
    assert float(left_out.Y.mean()) == pytest.approx(0.5, abs=0.1)
