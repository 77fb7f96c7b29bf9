"""Mean predictions along one feature or two."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import ColumnEncoder, FreeText, Ignored, draw_indices
from parkrr.errors import ParameterError, check_integer
from parkrr.inspection.column_values import (
    Value,
    column_slices,
    decode_column,
    find_feature,
    read_numbers,
)
from parkrr.inspection.diagnostics import FittedEstimator, check_fitted, feature_names
from parkrr.inspection.explanation import check_target_number

Array = NDArray[np.float64]
GRID_RESOLUTION = 30  # values of a feature
MOST_CATEGORIES = 12  # the most frequent ones
PERCENTILES = (0.05, 0.95)  # of its values in X, between which they lie


class Grid(NamedTuple):
    """Values of one feature, as they occur in rows."""

    feature: str
    values: list[Value]  # dates and times as text
    positions: Array  # (g,)  on an axis: numbers, seconds, or 0, 1, ... for categories
    ordered: bool  # whether positions are those of numbers, dates or times
    numbers: Tensor  # (g, width)  what the model takes


class PartialDependence(NamedTuple):
    """Predictions when features are set to values of a grid; see :func:`partial_dependence`.

    Parameters
    ----------
    grids
        For each feature its name, values and positions on an axis.
    average
        Mean predictions, shape (g,), or (g, h) for two features.
    individual
        Predictions of each row, shape (n, g) or (n, g, h).
    """

    grids: list[Grid]
    average: Array
    individual: Array

    @property
    def interaction(self) -> float:
        """Of two features, the share of the variance of `average` that is no sum of two functions.

        0 if each feature acts in the same way whatever the other is.
        """
        centred = self.average - self.average.mean()
        rest = centred - centred.mean(0) - centred.mean(1, keepdims=True)
        return float(np.square(rest).sum() / max(np.square(centred).sum(), 1e-300))


def partial_dependence(
    model: FittedEstimator,
    features: str | int | tuple[str | int, str | int],
    X: Any,
    *,
    grid_resolution: int = GRID_RESOLUTION,
    n_rows: int = 500,
    target: int = 0,
) -> PartialDependence:
    """Mean predictions of rows X when one feature, or two, are set to other values.

    Values are those in X that are nearest to evenly spaced ones between the 5th and the 95th
    percentile, so that no value is used that does not occur; or the 12 most frequent categories.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    features : str, int or a pair of them
        Names or positions of features that are numbers, dates or categories.
    X : array-like or frame of shape (n, d)
        Rows over which predictions are averaged, such as training or test rows.
    grid_resolution : int, default=30
        The most values of a feature.
    n_rows : int, default=500
        The most rows to average over; of more rows so many are drawn.
    target : int, default=0
        The number of a target, if there are several. For a classifier with more than two classes
        the number of a class in `classes_`; predictions are its scores before calibration, with two
        classes those of ``classes_[1]``.

    Returns
    -------
    PartialDependence
        Values of the features, and predictions there.

    Raises
    ------
    ParameterError
        If there is no such feature, or it holds text or is ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> known = {"n_cells": 1, "blend": 1, "coarse": 0}
    >>> model = ParKRegressor(Gaussian(4.0), 1e-9, **known).fit(X, X[:, 0] * X[:, 1])
    >>> inspection.partial_dependence(model, (0, 1), X, grid_resolution=5).interaction > 0.9
    True
    """
    inner, rows = check_fitted(model).model_, model._rows(X)
    target = check_target_number(inner, target)
    most, count = check_integer("grid_resolution", grid_resolution), check_integer("n_rows", n_rows)
    wanted = features if isinstance(features, tuple) else (features,)
    positions = [find_feature(model, feature) for feature in wanted]
    slices = column_slices(model.columns_)
    grids = []
    for k in positions:
        block = rows[:, slices[k]].double().cpu().numpy()
        grids.append(make_grid(feature_names(model)[k], model.columns_.columns[k], block, most))
    some = rows[draw_indices(len(rows), count, 0)]  # (n, d)
    shape = [len(grid.values) for grid in grids]
    individual = np.empty((len(some), *shape))
    for place in np.ndindex(*shape):
        changed = some.clone()
        for k, grid, number in zip(positions, grids, place, strict=True):
            changed[:, slices[k]] = grid.numbers[number].to(changed)
        values = inner.predict(changed, model._cores)[:, target]
        individual[(slice(None), *place)] = values.cpu().numpy()
    return PartialDependence(grids, individual.mean(0), individual)


def make_grid(name: str, column: ColumnEncoder, block: Array, most: int) -> Grid:
    """Values of a column among its numbers (n, width) in rows."""
    if isinstance(column, FreeText | Ignored):
        raise ParameterError(
            f"feature must hold numbers, dates or categories, but {name!r} is {column.holds}; "
            f"choose another one"
        )
    x = read_numbers(column, block)
    if x is None:
        codes, counts = np.unique(block, axis=0, return_counts=True)
        numbers = codes[np.argsort(-counts, kind="stable")[: min(most, MOST_CATEGORIES)]]
        numbers = numbers[np.argsort([str(name) for name in decode_column(column, numbers)])]
        places, ordered = np.arange(len(numbers), dtype=np.float64), False
    else:
        known = ~np.isnan(x)
        if not known.any():
            raise ParameterError(
                f"feature must have values in X, but {name!r} is missing in every row; choose "
                f"other rows"
            )
        places, first = np.unique(x[known], return_index=True)
        numbers, ordered = block[known][first], column.holds != "boolean"
        if len(places) > most:
            low, high = np.quantile(x[known], PERCENTILES)
            nearest = np.abs(places[:, None] - np.linspace(low, high, most)).argmin(0)
            kept = np.unique(nearest)
            places, numbers = places[kept], numbers[kept]
    values = decode_column(column, numbers)
    return Grid(name, values, places, ordered, torch.from_numpy(np.ascontiguousarray(numbers)))
