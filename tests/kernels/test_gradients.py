"""Gradient outer products of a kernel model."""

import numpy as np
import torch

from parkrr.kernels import Matern, gradient_products


def test_gradient_products_are_those_of_autograd():
    rng = np.random.default_rng(0)
    X, Z = (torch.from_numpy(rng.normal(size=(n, 3))) for n in (7, 5))
    alpha = torch.from_numpy(rng.normal(size=(5, 1)))
    X.requires_grad_()
    a = np.sqrt(3) / 1.3 * (X[:, None] - Z).norm(dim=2)
    (G,) = torch.autograd.grad((((1 + a) * (-a).exp()) @ alpha).sum(), X)
    found = gradient_products(Matern(1.3), alpha, Z, X.detach())
    torch.testing.assert_close(found, G.T @ G)
