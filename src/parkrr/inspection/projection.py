"""Where to look at a model from: the plane in which its cells differ most, and frames."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import draw_indices
from parkrr.inspection.diagnostics import Fitted, fitted
from parkrr.park import Model
from parkrr.uncertainty import DiagnosticRows

CENTERS = 5000  # from which the directions are found


class Plane(NamedTuple):
    """Where mapped rows are looked at from."""

    origin: Tensor  # (e,)
    axes: Tensor  # (e, k), k <= 2
    shares: list[float]  # of the spread of the centres along each
    features: list[str]  # that count most in each

    def coordinates(self, model: Model, Z: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
        """Two numbers for each mapped row of Z (n, e); of one direction, the value beside it."""
        found = ((Z.double() - self.origin) @ self.axes).cpu().numpy()  # (n, k)
        one = found.shape[1] == 1
        return found[:, 0], model.at(Z)[:, 0].cpu().numpy() if one else found[:, 1]


def leading_plane(model: Fitted) -> Plane:
    """The two directions of largest spread of the mapped centres.

    A learned map has scaled features by what matters to the target, so that these tell most.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> from parkrr.inspection.projection import leading_plane
    >>> X = np.random.default_rng(0).normal(size=(400, 3)) * [1, 9, 3]
    >>> known = {"metric": "euclidean", "blend": 1, "coarse": 0}
    >>> leading_plane(ParKRegressor("gaussian", 1e-6, **known).fit(X, X[:, 0])).features
    ['x1', 'x2']
    """
    Z = torch.cat([centers.double() for centers in fitted(model).model_.centers])
    Z = Z[draw_indices(len(Z), CENTERS, 0)]  # (n, e)
    origin = Z.mean(0)
    _, values, V = torch.linalg.svd(Z - origin, full_matrices=False)
    axes = V[:2].T  # (e, k)
    axes = axes * torch.sign(axes.gather(0, axes.abs().argmax(0, keepdim=True)))  # one of two
    shares = (values.square() / values.square().sum().clamp_min(1e-300))[:2].tolist()
    features = [main_feature(model, Z.std(0, correction=0), axis) for axis in axes.T]
    return Plane(origin, axes, shares, features)


def main_feature(model: Fitted, spread: Tensor, axis: Tensor) -> str:
    """The feature that moves rows most along an axis (e,) of mapped rows of that spread (e,)."""
    metric = model.model_.metric
    moves = axis * spread
    if metric.matrix is not None:  # which mixes columns of unit spread
        A = metric.matrix.to(axis)
        moves = A * axis if A.ndim == 1 else A @ axis
    d = len(moves) if metric.origin is None else len(metric.origin)
    weights = moves.square().reshape(-1, d).sum(0).cpu().numpy()  # (d,)  scores count as well
    columns = getattr(model, "columns_", None)
    if columns is not None:
        weights = np.bincount(columns.owners, weights)
    return feature_names(model)[int(weights.argmax())]


def feature_names(model: Fitted) -> list[str]:
    """The names of the features, x0, x1 and so on if they have none."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{k}" for k in range(model.n_features_in_)] if names is None else list(names)


def limits(values: NDArray[Any]) -> tuple[float, float]:
    """Limits of an axis that a few wild values do not stretch."""
    low, high = np.quantile(values, [0.003, 0.997]).tolist()
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def typical(seen: DiagnosticRows) -> tuple[list[float], list[float], list[float]]:
    """Medians of predictions and of the ends of their intervals, of rows with like predictions."""
    parts = np.array_split(np.argsort(seen["predicted"]), np.clip(len(seen["cell"]) // 20, 2, 40))
    middle = [[np.median(seen[k][at]) for at in parts] for k in ("predicted", "lower", "upper")]
    return middle[0], middle[1], middle[2]
