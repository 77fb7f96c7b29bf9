"""Training rows that carry a prediction."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parkrr.errors import check_integer, check_one_of
from parkrr.inspection.column_values import column_slices, decode_column, unmap_rows
from parkrr.inspection.diagnostics import FittedEstimator, check_fitted, feature_names
from parkrr.inspection.explanation import check_target_number
from parkrr.kernels import Kernel
from parkrr.park import Model
from parkrr.partition import CellShares


def neighbors(
    model: FittedEstimator,
    X: Any,
    n_neighbors: int = 5,
    *,
    sort_by: str = "similarity",
    target: int = 0,
) -> list[dict[str, Any]]:
    """The centres, which are training rows, that carry the prediction of each row.

    They read as "rows like this one, and what the model predicts for them". A prediction is the
    intercept plus the weights of all centres of the cells that predict the row, and of the coarse
    level. A weight is the coefficient of the centre times the kernel of centre and row, times the
    share of its cell; with a `loss` other than squared errors they add up to the logarithm of the
    prediction. With a small penalty, weights of similar centres have opposite signs and
    largely cancel, and each may be many times the prediction: weights explain a model with a large
    penalty or a short lengthscale, similarities explain any.
    ``pandas.DataFrame(neighbors(model, X))`` is a table.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame of shape (n, d)
        Rows to explain.
    n_neighbors : int, default=5
        How many centres to list for each row.
    sort_by : {"similarity", "weight"}, default="similarity"
        List the most similar ones, or those with the largest weight, whatever its sign.
    target : int, default=0
        The number of a target, if there are several. For a classifier with more than two classes
        the number of a class in `classes_`; weights are those of its score before calibration,
        with two classes that of ``classes_[1]``.

    Returns
    -------
    list of dict
        For each row and centre: "row", its number in X; "cell", None for the coarse level;
        "center", the number among the centres of that cell; "weight", in units of the target;
        "similarity", the cosine of both in the space of the kernel, which is 1 for equal rows and
        0 for rows that have nothing in common; "prediction" for the centre; and "values", its
        features by name. A value is None where it is missing, or where it cannot be recovered:
        text, categories that are encoded by targets, and what a learned metric leaves out or mixes.

    Raises
    ------
    ParameterError
        If a parameter is not valid.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(0.1), 1e-3, n_cells=1, blend=1, coarse=0).fit(X, X[:, 0])
    >>> [nearest] = inspection.neighbors(model, X[100:101], 1)
    >>> round(nearest["values"]["x0"], 4), round(nearest["similarity"], 4)
    (0.2506, 1.0)
    """
    inner = check_fitted(model).model_
    target = check_target_number(inner, target)
    count = check_integer("n_neighbors", n_neighbors)
    check_one_of("sort_by", sort_by, ("weight", "similarity"))
    Z = inner.map_rows(model._rows(X))  # (n, e)
    shares = inner.cell_shares(Z)
    listed: list[Neighbor] = []
    for i in range(len(Z)):
        own = []
        for q, kernel, centers, coefficients in list_estimators(inner, shares, i, target):
            K, similarity = compare_rows(kernel, Z[i : i + 1].double(), centers.double())
            weight = coefficients * K
            size = weight.abs() if sort_by == "weight" else similarity  # (m,)
            own += [
                Neighbor(i, q, j, float(weight[j]), float(similarity[j]), float(size[j]))
                for j in size.topk(min(count, len(size))).indices.tolist()
            ]
        listed += sorted(own, key=lambda one: -one.size)[:count]
    return describe_neighbors(model, listed, target)


class Neighbor(NamedTuple):
    """A centre and its part in the prediction of a row."""

    row: int
    cell: int | None  # None for the coarse level
    center: int
    weight: float
    similarity: float
    size: float  # by which they are sorted


def list_estimators(
    inner: Model, shares: CellShares, i: int, target: int
) -> Iterator[tuple[int | None, Kernel, Tensor, Tensor]]:
    """Cell, kernel, centres (m, e) and coefficients (m,) of all that predicts row i."""
    members = (shares.row == i).nonzero()[:, 0]
    for q, share in zip(shares.cell[members].tolist(), shares.share[members], strict=True):
        yield q, inner.kernel, inner.centers[q], inner.weights[q][:, target].double() * share
    if inner.coarse is not None:
        coarse = inner.coarse
        yield None, coarse.kernel, coarse.centers, coarse.weights[:, target].double()


def compare_rows(kernel: Kernel, x: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """K(x, z) of one row x (1, e) and rows Z (m, e), and the cosine of both, shape (m,) each."""
    K = kernel(x, Z)[0]
    norms = (kernel.diag(x) * kernel.diag(Z)).sqrt()
    return K, (K / norms.clamp_min(1e-300)).clamp(-1, 1)


def describe_neighbors(
    model: FittedEstimator, listed: list[Neighbor], target: int
) -> list[dict[str, Any]]:
    """Neighbours as dicts, with predictions and values of the centres."""
    inner = model.model_
    levels: dict[int | None, Tensor] = dict(enumerate(inner.centers))
    if inner.coarse is not None:
        levels[None] = inner.coarse.centers
    Z = torch.stack([levels[one.cell][one.center] for one in listed])  # (k, e)
    predictions = inner.evaluate(Z.to(inner.centroids.dtype))[:, target].tolist()
    numbers = unmap_rows(inner.metric, Z).cpu().numpy()  # (k, numbers of a row)
    columns = [
        decode_column(column, numbers[:, part])
        for column, part in zip(model.columns_.columns, column_slices(model.columns_), strict=True)
    ]
    names = feature_names(model)
    return [
        {
            "row": one.row,
            "cell": one.cell,
            "center": one.center,
            "weight": one.weight,
            "similarity": one.similarity,
            "prediction": prediction,
            "values": dict(zip(names, values, strict=True)),
        }
        for one, prediction, values in zip(
            listed, predictions, zip(*columns, strict=True), strict=True
        )
    ]
