"""The plane in which cells differ most."""

import numpy as np
import pandas as pd
import torch

from parkrr import ParKRegressor
from parkrr.inspection import leading_plane
from parkrr.kernels import FeatureMap, Gaussian
from plain import PLAIN

SETTLED = {**PLAIN, "kernel": Gaussian(1.0), "penalty": 1e-4, "n_cells": 5, "random_state": 0}


def waves(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + 0.1 * rng.normal(size=n)


def test_the_plane_is_that_of_the_largest_singular_values():
    X, y = waves(300, 0)
    stretched = X * [1, 5]
    model = ParKRegressor(**{**SETTLED, "n_cells": 1}).fit(stretched, y)
    plane = leading_plane(model)
    Z = model.model_.centers[0].numpy()
    U, S, _ = np.linalg.svd(Z - Z.mean(0), full_matrices=False)
    x, _ = plane.coordinates(model.model_, model.model_.centers[0])
    np.testing.assert_allclose(np.abs(x), np.abs(U[:, 0] * S[0]), atol=1e-9)
    np.testing.assert_allclose(plane.shares, S**2 / np.sum(S**2))
    assert plane.features == ["x1", "x0"]


def test_a_direction_has_the_name_of_the_column_that_the_map_weighs_most():
    X, y = waves(300, 0)
    frame = pd.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    weights = torch.tensor([9.0, 1.0], dtype=torch.float64)
    metric = FeatureMap(torch.zeros(2), torch.ones(2), matrix=weights)
    model = ParKRegressor(**{**SETTLED, "metric": metric}).fit(frame, y)
    assert leading_plane(model).features == ["left", "right"]
