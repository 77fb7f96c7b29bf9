"""Why a model predicts what it does for a row: slopes, and what each feature contributes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import Number
from parkrr.errors import ParameterError
from parkrr.inspection.column_values import (
    Value,
    column_slices,
    decode_column,
    find_missing,
    typical_row,
)
from parkrr.inspection.diagnostics import FittedEstimator, check_fitted, feature_names
from parkrr.kernels import Kernel, Radial, gradients
from parkrr.park import Model
from parkrr.partition import Blend

Array = NDArray[np.float64]
Local = Callable[[int, Tensor], tuple[Tensor, Tensor]]


class Explanation(NamedTuple):
    """Slopes and contributions of d features at n rows; see :func:`explain`.

    Parameters
    ----------
    features
        Their names.
    predictions
        Of the rows, shape (n,).
    base
        The prediction of a typical row.
    typical
        The value of each feature in a typical row.
    slopes
        Shape (n, d), in units of the target per unit of the feature. NaN for categories, text,
        booleans, dates, numbers that stand beside means of the target, and missing values, and
        everywhere for kernels without a gradient.
    contributions
        Shape (n, d), in units of the target.
    """

    features: list[str]
    predictions: Array
    base: float
    typical: list[Value]
    slopes: Array
    contributions: Array


def explain(model: FittedEstimator, X: Any, *, target: int = 0) -> Explanation:
    """How each feature moves the prediction of each row.

    A slope is the derivative of the prediction. It is 0 where the prediction is held at the limit
    of `extrapolation`. A contribution is the prediction less the one with that feature at its
    typical value: the median of the training rows, or their most frequent category. Contributions
    of features that interact do not add up to the prediction less `base`;
    :func:`shapley_values` do.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame of shape (n, d)
        Rows to explain.
    target : int, default=0
        The number of a target, if there are several. For a classifier with more than two classes
        the number of a class in `classes_`; what is explained is its score before calibration,
        with two classes that of ``classes_[1]``.

    Returns
    -------
    Explanation
        Predictions, slopes and contributions.

    Raises
    ------
    ParameterError
        If `target` is not the number of a target.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> known = {"n_cells": 1, "blend": 1, "coarse": 0}
    >>> model = ParKRegressor(Gaussian(4.0), 1e-9, **known).fit(X, 3 * X[:, 0] + X[:, 1])
    >>> inspection.explain(model, [[1.0, 0.5]]).slopes.round(2)
    array([[3., 1.]])
    """
    inner, rows = check_fitted(model).model_, model._rows(X)
    target = check_target_number(inner, target)
    typical = typical_row(model)  # (d,)  of numbers

    def predict(numbers: Tensor) -> Array:
        values: Array = inner.predict(numbers, model._cores)[:, target].cpu().numpy()
        return values

    columns, parts = model.columns_.columns, column_slices(model.columns_)
    predictions, base = predict(rows), float(predict(typical[None].to(rows))[0])
    contributions = np.zeros((len(rows), len(columns)))
    slopes = np.full_like(contributions, np.nan)
    by_number = number_slopes(inner, rows, target)  # (n, numbers of a row)
    for k, (column, part) in enumerate(zip(columns, parts, strict=True)):
        if not column.width:
            continue
        changed = rows.clone()
        changed[:, part] = typical[part].to(rows)
        contributions[:, k] = predictions - predict(changed)
        if isinstance(column, Number) and column.holds != "boolean" and not column.means:
            missing = find_missing(column, rows[:, part].double().cpu().numpy())
            slopes[:, k] = np.where(missing, np.nan, by_number[:, part.start])
    values = [
        decode_column(column, typical[part].numpy()[None])[0]
        for column, part in zip(columns, parts, strict=True)
    ]
    return Explanation(feature_names(model), predictions, base, values, slopes, contributions)


def check_target_number(inner: Model, target: int) -> int:
    """The number of an output of the model."""
    t = len(inner.intercept)
    if not 0 <= target < t:
        raise ParameterError(f"target must be a number from 0 to {t - 1}, got {target!r}")
    return int(target)


def number_slopes(inner: Model, rows: Tensor, target: int) -> Array:
    """Derivatives of one output by the numbers of rows (n, d), shape (n, d); NaN without any."""
    coarse, kernel = inner.coarse, inner.kernel
    if not isinstance(kernel, Radial) or not (coarse is None or isinstance(coarse.kernel, Radial)):
        return np.full(rows.shape, np.nan)
    X = rows.to(inner.centroids.device).double().detach().requires_grad_()
    mapped = inner.metric(X, torch.float64)  # (n, e)
    Z = mapped.detach()

    def local(q: int, members: Tensor) -> tuple[Tensor, Tensor]:
        return evaluate_centers(
            kernel, inner.centers[q].double(), inner.weights[q][:, target].double(), members
        )

    values, slopes = blend_regions(inner, local, Z)
    if coarse is not None:
        more = evaluate_centers(
            coarse.kernel, coarse.centers.double(), coarse.weights[:, target].double(), Z
        )
        values, slopes = values + more[0], slopes + more[1]
    if inner.link == "log":
        slopes = slopes * (inner.intercept[target] + values).exp()[:, None]
    if inner.limits is not None:
        free = inner.intercept.double().repeat(len(Z), 1)
        free[:, target] += values
        mapped_rows = inner.map_rows(rows)
        free = inner.apply_link(free)
        held = inner.bound(free, inner.cell_shares(mapped_rows)) != free
        slopes[held[:, target]] = 0.0
    [by_number] = torch.autograd.grad(mapped, X, slopes)
    return by_number.cpu().numpy()


def evaluate_centers(
    kernel: Kernel, centers: Tensor, weights: Tensor, Z: Tensor
) -> tuple[Tensor, Tensor]:
    """Values (n,) and gradients (n, e) at rows Z (n, e), from weights (m,) of centres (m, e)."""
    assert isinstance(kernel, Radial)
    slopes = gradients(kernel, weights[:, None], centers, Z)[0]
    return kernel(Z, centers) @ weights, slopes


def blend_regions(inner: Model, local: Local, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Values (n,) and gradients (n, e) of all cells at rows Z (n, e), without the coarse level."""
    centroids, regions = inner.centroids.double(), inner.regions
    if regions is None:
        return blend_cells(inner.blend, inner.kernel, centroids, local, Z)
    parts = torch.split(centroids, regions.sizes.tolist())
    starts = np.cumsum([0, *regions.sizes.tolist()])

    def within(r: int, members: Tensor) -> tuple[Tensor, Tensor]:
        blend = Blend(inner.blend.n_nearest, float(regions.widths[r]))

        def own(q: int, Z: Tensor) -> tuple[Tensor, Tensor]:
            return local(int(starts[r]) + q, Z)

        return blend_cells(blend, inner.kernel, parts[r], own, members)

    return blend_cells(inner.blend, inner.kernel, regions.centroids.double(), within, Z)


def blend_cells(
    blend: Blend, kernel: Kernel, centroids: Tensor, local: Local, Z: Tensor
) -> tuple[Tensor, Tensor]:
    """Values (n,) and gradients (n, e) at rows Z (n, e) of what local(q, rows) gives for cell q.

    With shares s_q the gradient of sum s_q f_q is sum s_q grad f_q + f_q grad s_q.
    """
    k = blend.n_blended(len(centroids))
    cells, _ = kernel.distance(centroids).nearest(Z, k + (k > 1))  # (n, k + 1)
    Z = Z.detach().requires_grad_()
    shares = Z.new_ones(len(Z), 1)
    if k > 1:
        distances = (Z[:, None] - centroids[cells]).square().sum(2)
        shares = blend.weigh(distances - distances[:, :1])  # (n, k)
    fixed, cells = shares.detach(), cells[:, :k]
    values, slopes = torch.zeros_like(fixed), torch.zeros_like(Z)
    for q in sorted(set(cells[fixed > 0].tolist())):
        row, rank = ((cells == q) & (fixed > 0)).nonzero(as_tuple=True)
        values[row, rank], gradient = local(q, Z.detach()[row])
        slopes[row] += fixed[row, rank][:, None] * gradient
    if k > 1:
        slopes += torch.autograd.grad((shares * values).sum(), Z)[0]
    return (fixed * values).sum(1), slopes
