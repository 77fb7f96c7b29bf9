"""The plane in which the cells of a model differ most."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import draw_indices
from parkrr.inspection.diagnostics import FittedEstimator, check_fitted, feature_names
from parkrr.park import Model

CENTERS = 5000  # from which the directions are computed


class Plane(NamedTuple):
    """Two directions in the space of mapped rows."""

    origin: Tensor  # (e,)
    axes: Tensor  # (e, k), k <= 2
    shares: list[float]  # of the variance of the centres along each
    features: list[str]  # that count most in each

    def coordinates(self, model: Model, Z: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
        """Two coordinates of mapped rows Z (n, e); with one direction the second is the output."""
        along = ((Z.double() - self.origin) @ self.axes).cpu().numpy()  # (n, k)
        second = along[:, 1] if along.shape[1] == 2 else model.evaluate(Z)[:, 0].cpu().numpy()
        return along[:, 0], second


def leading_plane(model: FittedEstimator) -> Plane:
    """The first two principal components of the mapped centres.

    A learned map has scaled features by their effect on the target, so these directions show most.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor
    >>> from parkrr.inspection.projection import leading_plane
    >>> X = np.random.default_rng(0).normal(size=(400, 3)) * [1, 9, 3]
    >>> known = {"metric": "euclidean", "blend": 1, "coarse": 0}
    >>> leading_plane(ParKRegressor(Gaussian(), 1e-6, **known).fit(X, X[:, 0])).features
    ['x1', 'x2']
    """
    Z = torch.cat([centers.double() for centers in check_fitted(model).model_.centers])
    Z = Z[draw_indices(len(Z), CENTERS, 0)]  # (n, e)
    origin = Z.mean(0)
    _, values, V = torch.linalg.svd(Z - origin, full_matrices=False)
    axes = V[:2].T  # (e, k)
    axes = axes * torch.sign(axes.gather(0, axes.abs().argmax(0, keepdim=True)))  # one of two
    shares = (values.square() / values.square().sum().clamp_min(1e-300))[:2].tolist()
    features = [main_feature(model, Z.std(0, correction=0), axis) for axis in axes.T]
    return Plane(origin, axes, shares, features)


def main_feature(model: FittedEstimator, spread: Tensor, axis: Tensor) -> str:
    """The feature that moves rows most along an axis (e,) of mapped rows of that spread (e,)."""
    metric = model.model_.metric
    moves = axis * spread
    if metric.matrix is not None:  # which mixes columns of unit spread
        A = metric.matrix.to(axis)
        moves = A * axis if A.ndim == 1 else A @ axis
    d = len(moves) if metric.origin is None else len(metric.origin)
    weights = moves.square().reshape(-1, d).sum(0).cpu().numpy()  # (d,)  with normal scores
    weights = np.bincount(model.columns_.owners, weights)
    return feature_names(model)[int(weights.argmax())]
