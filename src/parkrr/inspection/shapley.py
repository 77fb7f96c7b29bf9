"""Exact Shapley values of models whose kernel is a product over features.

A Gaussian kernel with a diagonal metric is a product of one factor for each feature, so for a
centre z, a row x and a background row b a coalition S of features has the value

    v(S) = prod_{k in S} p_k prod_{k not in S} q_k,   p_k = K_k(x_k, z_k), q_k = K_k(b_k, z_k).

The Shapley value of feature k is its mean marginal contribution when features enter in random
order. With independent uniform times of entry that is

    phi_k = (p_k - q_k) int_0^1 prod_{l != k} (q_l + t (p_l - q_l)) dt,

a polynomial of degree d - 1 in t, which ceil(d / 2) nodes of Gauss and Legendre integrate exactly.
Shapley values are linear, so those of a model are sums over centres, cells and background rows.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import DateTime, Number, TableEncoder
from parkrr.errors import ParameterError
from parkrr.inspection.diagnostics import FittedEstimator, check_fitted, feature_names
from parkrr.inspection.explanation import check_target_number
from parkrr.kernels import Gaussian
from parkrr.park import Model
from parkrr.runtime import map_on_threads

Array = NDArray[np.float64]
BLOCK_NUMBERS = 2**16  # factors of a block, 512 kB: half of it took 1.2 times as long
# Of a factor: smaller ones are positive this way, and so can be divided by. A product in which one
# of them stands is zero to 260 digits.
SMALLEST_EXPONENT = -600.0
TASK_ROWS = 32  # that share the factors of their background rows
WAY_OUT = (
    "fit with kernel='gaussian' and metric='standard', use inspection.explain, or the package shap "
    "as in the documentation of explanations"
)


class ShapleyValues(NamedTuple):
    """Shapley values of d features at n rows; see :func:`shapley_values`.

    Parameters
    ----------
    features
        Their names.
    predictions
        Of the rows, without the limits of `extrapolation`, shape (n,); their logarithms with a
        `loss` other than squared errors.
    base
        Mean predictions of the background rows, by the cells of each row, shape (n,).
    values
        Shape (n, d); ``base + values.sum(1)`` are the predictions.
    """

    features: list[str]
    predictions: Array
    base: Array
    values: Array


def shapley_values(
    model: FittedEstimator,
    X: Any,
    *,
    background: Any = None,
    target: int = 0,
) -> ShapleyValues:
    """Exact Shapley values of each feature at each row, for product kernels.

    Let f be what predicts the row: the estimators of its cell, or of its cells with their shares
    held as they are at the row, and the coarse level, without the limits of `extrapolation`. A set
    S of features has the value v(S) = mean over background rows b of f(x_S, b_rest), the mean
    prediction when only the features in S are those of the row. The Shapley value of a feature
    is its mean marginal contribution v(S + k) - v(S) over all orders in which features can enter.
    They add up to the prediction less the mean prediction of the background. With a `loss` other
    than squared errors all of this is about the logarithm of the prediction.

    Time grows with rows, centres of a cell, background rows and the square of the number of
    features: 1,000 rows of 20 features beside 2,000 centres and one background row take some
    seconds on two cores.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator with a Gaussian kernel and a metric that does not mix features.
    X : array-like or frame of shape (n, d)
        Rows to explain.
    background : array-like or frame of shape (b, d), default=None
        Rows with which all rows are compared, such as 20 training rows. None compares each row
        with one typical row of its own cell: medians and the most frequent categories of its
        centres. Cells elsewhere have little to say about rows of this one.
    target : int, default=0
        The number of a target, if there are several. For a classifier with more than two classes
        the number of a class in `classes_`; what is explained is its score before calibration,
        with two classes that of ``classes_[1]``.

    Returns
    -------
    ShapleyValues
        Predictions, mean predictions of the background, and Shapley values.

    Raises
    ------
    ParameterError
        If the kernel is not Gaussian, or the metric mixes features, or `target` is not valid.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> known = {"metric": "standard", "n_cells": 1, "blend": 1, "coarse": 0}
    >>> model = ParKRegressor(Gaussian(4.0), 1e-9, **known).fit(X, 3 * X[:, 0] + X[:, 1])
    >>> shapley = inspection.shapley_values(model, [[1.0, 0.5]], background=[[0.0, 0.0]])
    >>> shapley.values.round(2)
    array([[3. , 0.5]])
    """
    inner, owner_of = check_fitted(model).model_, find_owners(model)
    target = check_target_number(inner, target)
    Z = inner.map_rows(model._rows(X))  # (n, e)
    given = None if background is None else inner.map_rows(model._rows(background)).double()

    @cache
    def background_of(q: int) -> Tensor:
        if given is not None:
            return given
        return typical_center(inner.centers[q], owner_of, model.columns_)

    comparisons = list_comparisons(inner, Z, background_of, target)
    d, wide = len(model.columns_.columns), Z.double()
    parts = map_on_threads(
        lambda one: one.explain(wide[one.rows], owner_of, d), comparisons, model._cores
    )
    totals = torch.zeros(len(Z), 1 + d, dtype=torch.float64, device=Z.device)
    for one, part in zip(comparisons, parts, strict=True):
        totals.index_add_(0, one.rows, part)
    totals[:, 0] += inner.intercept[target].double()
    base_and_values = totals.cpu().numpy()
    return ShapleyValues(
        feature_names(model),
        base_and_values.sum(1),
        base_and_values[:, 0],
        base_and_values[:, 1:],
    )


def find_owners(model: FittedEstimator) -> Tensor:
    """The feature that each mapped column depends on, (e,), if the kernel is a product of them."""
    inner = model.model_
    coarse = [] if inner.coarse is None else [inner.coarse.kernel]
    for kernel in (inner.kernel, *coarse):
        if not isinstance(kernel, Gaussian):
            raise ParameterError(
                f"shapley_values need a Gaussian kernel, which is a product over features, but the "
                f"model has {kernel!r}; {WAY_OUT}"
            )
    owners = torch.tensor(model.columns_.owners)
    if inner.metric.knots is not None:  # a feature and its normal score count together
        owners = owners.repeat(2)
    matrix = inner.metric.matrix
    if inner.metric.origin is None or matrix is None or matrix.ndim == 1:
        return owners.to(inner.centroids.device)
    used = matrix.cpu() != 0  # (columns, e)
    first = owners[used.double().argmax(0)]  # (e,)
    mixed = int((used & (owners[:, None] != first)).any(0).sum())
    if mixed:
        raise ParameterError(
            f"shapley_values need a metric that does not mix features, but the learned matrix "
            f"mixes several into {mixed} of {len(first)} columns; {WAY_OUT}"
        )
    return first.to(inner.centroids.device)


class Comparison(NamedTuple):
    """Rows beside background rows and the centres that predict both."""

    kernel: Gaussian
    centers: Tensor  # (m, e)
    weights: Tensor  # (m,)
    background: Tensor  # (b, e)
    rows: Tensor  # (r,)  their numbers
    shares: Tensor  # (r,)  of the centres in their predictions

    def explain(self, X: Tensor, owner_of: Tensor, d: int) -> Tensor:
        """The base value and the d Shapley values of mapped rows X (r, e), shape (r, 1 + d)."""
        out = X.new_zeros(len(X), 1 + d)
        m = max(1, BLOCK_NUMBERS // d)  # centres in a block
        r = max(1, BLOCK_NUMBERS // (d * min(m, len(self.centers))))  # rows in a block
        for Z, a in zip(torch.split(self.centers, m), torch.split(self.weights, m), strict=True):
            z, alpha = Z.double(), a.double() / len(self.background)
            Q = self.factors(self.background, z, owner_of, d)  # (b, d, m)
            out[:, 0] += Q.prod(1).sum(0) @ alpha
            for start in range(0, len(X), r):
                part = slice(start, start + r)
                P = self.factors(X[part], z, owner_of, d)  # (r, d, m)
                for q in Q:
                    out[part, 1:] += integrate_products(P, q) @ alpha
        return out * self.shares[:, None]

    def factors(self, X: Tensor, Z: Tensor, owner_of: Tensor, d: int) -> Tensor:
        """The factor of each feature in K(x, z) of rows X (r, e) and Z (m, e), shape (r, d, m)."""
        kernel, weights = self.kernel.split_lengthscales(X.shape[1])
        squares = (X[:, :, None] - Z.T).square_()  # (r, e, m)
        if weights is not None:
            squares.mul_(weights.square().to(squares)[:, None])
        exponents = squares.new_zeros(len(X), d, len(Z)).index_add_(1, owner_of, squares)
        return exponents.mul_(kernel.coefficient).clamp_min_(SMALLEST_EXPONENT).exp_()


def integrate_products(P: Tensor, q: Tensor) -> Tensor:
    """Shapley values (r, d, m) of products of factors P (r, d, m) and background ones q (d, m).

    All factors on the way are positive, so that to divide their product by one of them loses no
    digit, however small it is.
    """
    change, factors, total = P - q, torch.empty_like(P), torch.zeros_like(P)
    for t, weight in find_nodes(P.shape[1]):
        torch.add(q, change, alpha=t, out=factors)
        total.addcdiv_(factors.prod(1, keepdim=True), factors, value=weight)
    return total.mul_(change)


@cache
def find_nodes(d: int) -> list[tuple[float, float]]:
    """Nodes in [0, 1] and weights that integrate polynomials of degree d - 1 exactly."""
    nodes, weights = np.polynomial.legendre.leggauss((d + 1) // 2)  # on [-1, 1]
    return list(zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True))


def typical_center(centers: Tensor, owner_of: Tensor, columns: TableEncoder) -> Tensor:
    """A mapped row (1, e) whose features are typical of centres (m, e).

    Each feature has the value of the centre that is nearest to the median, or the most frequent
    one if its values have no order.
    """
    row = centers.new_empty(1, centers.shape[1], dtype=torch.float64)
    for k in sorted(set(owner_of.tolist())):
        own = owner_of == k
        block = centers[:, own].double()
        if isinstance(columns.columns[k], Number | DateTime):
            number = (block - block.median(0).values).square().sum(1).argmin()
            row[0, own] = block[number]
        else:
            values, counts = torch.unique(block, dim=0, return_counts=True)
            row[0, own] = values[counts.argmax()]
    return row


def list_comparisons(
    inner: Model, Z: Tensor, background_of: Callable[[int], Tensor], target: int
) -> list[Comparison]:
    """What to compare at mapped rows Z (n, e), in tasks of some rows.

    Each is compared with the background (b, e) of the cell that has the largest share in it.
    """
    row, cell, share = inner.cell_shares(Z)  # (p,) each
    order = share.argsort(stable=True)
    own = cell.new_empty(len(Z))  # the cell with the largest share
    own[row[order]] = cell[order]
    comparisons: list[Comparison] = []

    def compare(first: int, kernel: Any, Z: Tensor, w: Tensor, rows: Tensor, s: Tensor) -> None:
        background = background_of(first)
        parts = zip(*(torch.split(A, TASK_ROWS) for A in (rows, s.double())), strict=True)
        comparisons.extend(Comparison(kernel, Z, w[:, target], background, *part) for part in parts)

    for first, q in sorted(set(zip(own[row].tolist(), cell.tolist(), strict=True))):
        members = (own[row] == first) & (cell == q)
        inside = (inner.kernel, inner.centers[q], inner.weights[q])
        compare(first, *inside, row[members], share[members])
    if inner.coarse is not None:
        coarse = (inner.coarse.kernel, inner.coarse.centers, inner.coarse.weights)
        for first in sorted(set(own.tolist())):
            rows = (own == first).nonzero()[:, 0]
            compare(first, *coarse, rows, torch.ones_like(rows))
    return comparisons
