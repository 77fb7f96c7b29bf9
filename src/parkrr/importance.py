"""Which features a model listens to: how much its values change along each of them."""

import torch
from torch import Tensor

from parkrr.gradients import gradients
from parkrr.kernels import Radial
from parkrr.metrics import FeatureMap
from parkrr.model import Model

ROWS = 2000  # at which gradients are taken


def importances(model: Model, X: Tensor) -> Tensor:
    """The mean squared slope along each feature times its variance, (d,), of sum one.

    Slopes are those of the nearest cell and the coarse level at raw rows X (n, d), of a model
    with a radial kernel. A feature and its normal scores count together.
    """
    assert isinstance(model.kernel, Radial)
    Z, cell_of = model.narrowed(X), model.route(X)
    total = Z.new_zeros(model.metric.width(X.shape[1]), dtype=torch.float64)  # (e,)
    for q in sorted(set(cell_of.tolist())):
        rows = Z[cell_of == q]
        G = gradients(model.kernel, model.weights[q], model.centers[q], rows)  # (t, b, e)
        coarse = model.coarse
        if coarse is not None and isinstance(coarse.kernel, Radial):
            G = G + gradients(coarse.kernel, coarse.weights, coarse.centers, rows)
        total += before_matrix(model.metric, G).square().sum((0, 1))
    columns = model.metric.columns(X, torch.float64) if model.metric.origin is not None else X
    scores = (total * columns.double().var(0, correction=0)).reshape(-1, X.shape[1]).sum(0)
    return scores / scores.sum().clamp_min(1e-300)


def before_matrix(metric: FeatureMap, G: Tensor) -> Tensor:
    """Gradients (t, b, e) by mapped rows as gradients by columns."""
    if metric.matrix is None:
        return G.double()
    A = metric.matrix.to(G.device).double()
    return G.double() * A if A.ndim == 1 else G.double() @ A.T
