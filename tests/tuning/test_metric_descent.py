"""The descent of the metric: its slopes are those of the formula it claims to follow."""

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource, Block
from parkrr.kernels import Gaussian, Matern
from parkrr.kernels.feature_map import apply_matrix
from parkrr.partition.centroids import rows_around
from parkrr.runtime.engine import LocalEngine
from parkrr.tuning.metric_descent import LocalBatch, MetricDescent

RIDGE = 0.3


def ball(weighted):
    rng = np.random.default_rng(0)
    F, Y = (torch.from_numpy(rng.normal(size=(30, k))) for k in (3, 2))
    w = torch.from_numpy(rng.uniform(0.5, 2, size=30)) if weighted else None
    return LocalBatch(Block(F, Y, w), torch.arange(30) % 4 == 0)


def held_out_error(ball, matrix, log_ridge):
    """The mean squared residual, by the book and in a form that autograd understands."""
    F, Y, w = ball.rows
    w = torch.ones(len(F), dtype=torch.float64) if w is None else w
    X = F * matrix if matrix.ndim == 1 else F @ matrix
    K = torch.exp(-(X[:, None] - X).square().sum(2) / 2)
    v, t = ball.is_validation, ~ball.is_validation
    alpha = torch.linalg.solve(K[t][:, t] + torch.diag(log_ridge.exp() / w[t]), Y[t])
    return (w[v] @ (K[v][:, t] @ alpha - Y[v]).square().sum(1)) / w[v].sum()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("matrix", [torch.full((3,), 0.7), torch.eye(3) + 0.1])
def test_slopes_are_those_of_autograd(weighted, matrix):
    matrix = matrix.double().requires_grad_()
    log_ridge = torch.tensor(RIDGE).double().log().requires_grad_()
    rows = ball(weighted)
    error = held_out_error(rows, matrix, log_ridge)
    by_matrix, by_ridge = torch.autograd.grad(error, [matrix, log_ridge])
    found = rows.slopes(Gaussian(1.0), matrix.detach(), RIDGE)
    torch.testing.assert_close(found.by_matrix, by_matrix)
    assert found.by_ridge == pytest.approx(by_ridge.item())
    assert found.squares / found.weight == pytest.approx(error.item())


def descent(matrix, ridge=1.0, fixed=False):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(600, 4)))
    Y = torch.sin(3 * X[:, :1]) + 0.01 * torch.from_numpy(rng.normal(size=(600, 1)))
    return MetricDescent(ArraySource(X, Y), Matern(2.0), matrix, ridge, fixed, LocalEngine(2), 0)


@pytest.mark.parametrize("matrix", [torch.ones(4), torch.eye(4)])
def test_a_descent_finds_the_one_column_that_matters(matrix):
    found = descent(matrix.double())
    found.advance(60, decreasing=True, deadline=np.inf)
    size = apply_matrix(torch.eye(4).double(), found.matrix).norm(dim=1)
    assert size[0] > 3 * size[1:].max()


def test_sharpening_finds_the_one_column_that_matters():
    found = descent(torch.ones(4).double())
    found.jump_to_gradient_products(deadline=np.inf)
    assert found.matrix[0] > 3 * found.matrix[1:].max()


def test_a_descent_repeats_itself():
    one, other = descent(torch.ones(4).double()), descent(torch.ones(4).double())
    one.advance(5, decreasing=False, deadline=np.inf)
    other.advance(5, decreasing=False, deadline=np.inf)
    torch.testing.assert_close(one.matrix, other.matrix, rtol=0, atol=0)


def test_no_step_is_taken_after_the_deadline():
    found = descent(torch.ones(4).double())
    found.advance(5, decreasing=False, deadline=-np.inf)
    found.jump_to_gradient_products(deadline=-np.inf)
    assert found.steps == []
    assert found.error == np.inf
    assert bool((found.matrix == 1).all())


@pytest.mark.parametrize("block", [7, 1000])
def test_rows_around_anchors_are_the_nearest(block, monkeypatch):
    monkeypatch.setattr("parkrr.partition.centroids.AROUND_ROWS", block)
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 2)))
    found = rows_around(ArraySource(X, X), X[:3], 6)
    expected = torch.cdist(X[:3], X).argsort(1)[:, :6]
    torch.testing.assert_close(found, expected)


def test_a_fixed_ridge_stays():
    found = descent(torch.ones(4).double(), ridge=1e-9, fixed=True)
    found.advance(3, decreasing=False, deadline=np.inf)
    assert found.ridge == 1e-9
