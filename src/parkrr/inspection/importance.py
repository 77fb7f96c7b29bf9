"""Feature importance: how much predictions change along each feature."""

import torch
from torch import Tensor

from parkrr.kernels import Radial, apply_matrix, gradients, measure_features
from parkrr.park import Model
from parkrr.partition import assign

ROWS = 2000  # at which gradients are taken
FAR = 1e3  # spreads of a feature


def importances(model: Model, X: Tensor) -> Tensor:
    """The mean squared slope along each feature times its variance, (d,), with sum one.

    Slopes are those of the nearest cell and the coarse level at raw rows X (n, d), of a model
    with a radial kernel. A feature and its normal scores count together. Rows far from all others,
    where a slope is zero up to the rounding of their coordinates, do not count.
    """
    assert isinstance(model.kernel, Radial)
    Z, coarse = model.map_rows(X), model.coarse
    G = Z.new_zeros(len(model.intercept), *Z.shape)  # (t, n, e)
    if coarse is not None and isinstance(coarse.kernel, Radial):
        G += gradients(coarse.kernel, coarse.weights, coarse.centers, Z)
    cell_of = assign(model.kernel, Z, model.centroids)
    for q in sorted(set(cell_of.tolist())):
        rows = cell_of == q
        G[:, rows] += gradients(model.kernel, model.weights[q], model.centers[q], Z[rows]).to(G)
    G = G.double()
    if model.metric.matrix is not None:
        G = apply_matrix(G, model.metric.matrix.to(G).t())  # by columns, before the matrix
    columns = model.metric.columns(X, torch.float64) if model.metric.origin is not None else X
    columns = columns.double()
    origin, scale = measure_features(columns)  # (e,) each
    near = ((columns - origin).abs() * scale <= FAR).all(1)
    changes = G[:, near].square().sum((0, 1)) * columns[near].var(0, correction=0)  # (e,)
    scores = changes.reshape(-1, X.shape[1]).sum(0)
    return scores / scores.sum().clamp_min(1e-300)
