"""Propositions 2 and 3 and Theorem 4, both sides computed."""

import numpy as np
import pytest
import torch

from parkrr.kernels import Gaussian, Laplacian, Linear
from parkrr.partition.centroids import assign
from parkrr.theory.bounds import theory


def orthogonal(n_cells=3, n=20):
    """Rows of each cell in coordinates of their own: with a linear kernel, orthogonal cells."""
    rng = np.random.default_rng(0)
    X = np.zeros((n_cells * n, 2 * n_cells))
    cell_of = np.arange(n_cells).repeat(n)
    for q in range(n_cells):
        X[cell_of == q, 2 * q : 2 * q + 2] = rng.normal(size=(n, 2))
    weights = torch.from_numpy(rng.normal(size=n_cells * n))
    return torch.from_numpy(X), torch.from_numpy(cell_of), weights


def test_orthogonal_cells_have_cosine_zero_and_equality_in_propositions_2_and_3():
    X, cell_of, weights = orthogonal()
    found = theory(Linear(), X, cell_of, weights, penalty=0.01)
    assert found.cosine == pytest.approx(0, abs=1e-9)
    assert found.projections == pytest.approx(found.norm, rel=1e-9)
    assert found.local_dimension == pytest.approx(found.dimension, rel=1e-9)
    assert found.bias_factor == found.variance_factor == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplacian(0.3)], ids=repr)
def test_both_propositions_hold_on_random_sets(kernel, seed):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.normal(size=(150, 2)) * 2)
    cell_of = assign(kernel, X, X[:5])
    weights = torch.from_numpy(rng.normal(size=150))
    found = theory(kernel, X, cell_of, weights, penalty=1e-3)
    assert 0 < found.cosine <= 1
    assert found.projections <= found.bias_factor * found.norm
    assert found.local_dimension <= found.variance_factor * found.dimension


def test_sums_are_those_of_projections_in_the_space_itself():
    """A linear kernel's feature space is that of the rows: cells span planes of R^6."""
    rng = np.random.default_rng(0)
    X, alpha = rng.normal(size=(6, 6)), rng.normal(size=6)
    cells, weights = torch.tensor([0, 0, 1, 1, 2, 2]), torch.from_numpy(alpha)
    found = theory(Linear(), torch.from_numpy(X), cells, weights, 0.1)
    f = X.T @ alpha
    planes = [np.linalg.qr(X[2 * q : 2 * q + 2].T)[0] for q in range(3)]
    cosines = [np.linalg.norm(a.T @ b, 2) for a in planes for b in planes if a is not b]
    dimensions = [np.linalg.eigvalsh(x.T @ x) for x in np.split(X, 3)]
    assert found.norm == pytest.approx(f @ f)
    assert found.projections == pytest.approx(sum(np.sum((p.T @ f) ** 2) for p in planes))
    assert found.cosine == pytest.approx(max(cosines))
    assert found.local_dimension == pytest.approx(
        sum(np.sum(values / (values + 0.6)) for values in dimensions)
    )


def test_the_angle_is_that_between_two_vectors():
    X = torch.tensor([[1.0, 0.0], [np.cos(0.7), np.sin(0.7)]], dtype=torch.float64)
    found = theory(Linear(), X, torch.tensor([0, 1]), torch.ones(2), penalty=0.1)
    assert found.cosine == pytest.approx(np.cos(0.7))


def test_the_risk_of_theorem_4_covers_what_happens():
    """Fixed design: the risk of the local estimators, averaged over noise, is below the bound."""
    rng = np.random.default_rng(0)
    kernel, noise, penalty = Laplacian(0.3), 0.1, 1e-3
    X = torch.from_numpy(rng.normal(size=(120, 2)))
    weights = torch.from_numpy(rng.normal(size=120))
    cell_of = assign(kernel, X, X[:3])
    f = kernel(X, X) @ weights
    y = f + noise * torch.from_numpy(rng.normal(size=120))
    risks = []
    for q in range(3):
        at = cell_of == q
        K_q = kernel(X[at], X[at])
        ridge = penalty * 120 * torch.eye(int(at.sum()), dtype=torch.float64)
        risks.append((K_q @ torch.linalg.solve(K_q + ridge, y[at]) - f[at]).square())
    bound = theory(kernel, X, cell_of, weights, penalty).excess_risk(noise)
    assert float(torch.cat(risks).mean()) <= bound


def test_the_text_tells_whether_the_bounds_are_informative():
    X, cell_of, weights = orthogonal()
    assert "the bounds are informative:" in str(theory(Linear(), X, cell_of, weights, 0.01))
    close = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 1)))
    halves = (torch.arange(60) % 2).long()
    assert "say little" in str(theory(Gaussian(), close, halves, torch.ones(60), 1e-3))
