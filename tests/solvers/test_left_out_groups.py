"""Leaving out whole groups by formula, (I - H_BB)^-1 r_B, against fits without them."""

import numpy as np
import pytest
import torch

from parkrr.data.rows import ArraySource
from parkrr.kernels import Gaussian
from parkrr.solvers.direct import Direct
from parkrr.solvers.problem import LocalProblem, group_runs

N, H, RIDGE = 90, 30, 0.05
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(N, 3)))
Y = torch.sin(X[:, :2]) + 0.1 * torch.from_numpy(rng.normal(size=(N, 2)))
W = torch.from_numpy(rng.uniform(0.5, 2.0, N))
GROUPS = torch.from_numpy(np.repeat([4, 0, 2, 7], [9, 1, 12, 8]))  # of the last H rows
KERNEL = Gaussian(1.5)


def refit(centers, w, group):
    """Predictions of the rows of a group by a fit to all other rows."""
    left_out = torch.zeros(N, dtype=torch.bool)
    left_out[-H:] = group == GROUPS
    kept = ~left_out
    K, K_mm = KERNEL(X[kept], centers), KERNEL(centers, centers)
    A = K.T @ (w[kept, None] * K) + RIDGE * K_mm
    alpha = torch.linalg.lstsq(A, K.T @ (w[kept, None] * Y[kept]), driver="gelsd").solution
    return KERNEL(X[left_out], centers) @ alpha


@pytest.mark.parametrize("n_centers", [25, N])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_without_their_group_are_predicted_as_by_a_refit(n_centers, weighted):
    w, centers = W if weighted else torch.ones(N).double(), X[:n_centers]
    cell = ArraySource(X, Y, W if weighted else None)
    left_out = {"n_left_out": H, "left_out_groups": GROUPS}
    problem = LocalProblem(KERNEL, cell, centers, None, RIDGE, **left_out)
    fit = Direct().solve(problem)
    predicted = KERNEL(X[-H:], centers) @ fit.weights - fit.change
    expected = torch.cat([refit(centers, w, group) for group in (4, 0, 2, 7)])
    torch.testing.assert_close(predicted, expected, rtol=1e-6, atol=1e-8)


def test_runs_are_the_positions_of_equal_numbers():
    assert group_runs(torch.tensor([3, 3, 1, 2, 2])) == [slice(0, 2), slice(2, 3), slice(3, 5)]
