"""Features of a model and the numbers they become, in both directions.

A feature is a column of X. It becomes one number or several: a category has a number for each of
its values. The feature map then makes mapped columns of them, and centres are kept as such.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import (
    PERIODS,
    Category,
    ColumnEncoder,
    DateTime,
    FreeText,
    Number,
    TableEncoder,
)
from parkrr.errors import ParameterError, suggest
from parkrr.inspection.diagnostics import FittedEstimator, feature_names
from parkrr.kernels import FeatureMap

Value = float | bool | str | None  # None is missing, or not known
Array = NDArray[np.float64]

OTHER = "other"  # a category that was rare in the fit, or not in it
NAMED = 3  # categories with the same numbers that are named
LARGEST_NOISE = 0.01  # of a recovered value, in spreads of its feature


def column_slices(encoder: TableEncoder) -> list[slice]:
    """Which numbers of a row belong to each feature."""
    ends = np.cumsum([0, *(column.width for column in encoder.columns)]).tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


def find_feature(model: FittedEstimator, feature: str | int) -> int:
    """The position of a feature that is given by name or position."""
    names = feature_names(model)
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if not isinstance(feature, str) and 0 <= feature < len(names):
        return int(feature)
    raise ParameterError(
        f"feature must be a position below {len(names)} or one of {names}, got "
        f"{feature!r}{suggest(feature, names)}"
    )


def typical_row(model: FittedEstimator) -> Tensor:
    """The numbers of a typical row of the fit, (d,): medians and the most frequent categories."""
    inner = model.model_
    means = inner.metric.origin
    if means is None:  # centres are not mapped
        means = torch.cat([centers.double().mean(0, keepdim=True) for centers in inner.centers])
        means = means.mean(0)
    shares, columns = means.double().cpu().numpy(), model.columns_.columns
    pairs = zip(columns, column_slices(model.columns_), strict=True)
    return torch.from_numpy(
        np.concatenate([typical_numbers(column, shares[part]) for column, part in pairs])
    )


def typical_numbers(column: ColumnEncoder, means: Array) -> Array:
    """The numbers (width,) of a column in a typical row, given their means over rows (width,)."""
    if isinstance(column, Number):
        median = means[0] if np.isnan(column.fill) else column.fill
        median = round(median) if column.holds == "boolean" else median
        return np.array(column.encode_numbers(np.array([median], dtype=np.float64))[0])
    if isinstance(column, DateTime):
        return np.array(column.encode_seconds(np.array([column.fill]))[0])
    if isinstance(column, FreeText):
        return np.where(np.arange(len(means)) == 0, means, means > 0.5)
    if isinstance(column, Category) and column.values:
        codes = np.array(column.codes)
        # The last number of a category that is encoded by targets grows with its rows.
        return np.array(codes[codes[:, -1].argmax() if column.by_target else means.argmax()])
    return np.zeros(column.width)


def read_numbers(column: ColumnEncoder, block: Array) -> Array | None:
    """A column of ordered values as one number a row, (n,), from all of its numbers (n, width).

    Seconds for dates and times, NaN where a value is missing; None if values have no order.
    """
    if isinstance(column, Number):
        return np.where(find_missing(column, block), np.nan, block[:, 0])
    if isinstance(column, DateTime):
        seconds = block[:, 0]
        if not column.elapsed:  # a time of day has its sine and cosine alone
            turns = np.arctan2(block[:, 0], block[:, 1]) / (2 * np.pi)
            seconds = np.round(turns % 1 * PERIODS["day"], 6)
        return np.where(find_missing(column, block), np.nan, seconds)
    return None


def find_missing(column: Number | DateTime, block: Array) -> NDArray[np.bool_]:
    """Where a value was missing, (n,), from all numbers of its column (n, width)."""
    flag = 1 if isinstance(column, Number) else -1
    return block[:, flag] > 0.5 if column.flagged else np.zeros(len(block), dtype=np.bool_)


def decode_column(column: ColumnEncoder, block: Array) -> list[Value]:
    """Values of a column from its numbers (n, width); None for text, and where it is not known.

    Categories with the same numbers are the same to the model, and are named together.
    """
    numbers = read_numbers(column, block)
    if numbers is not None:
        return [None if np.isnan(x) else show_number(column, float(x)) for x in numbers]
    if not isinstance(column, Category) or not column.values:
        return [None] * len(block)
    if not column.by_target:
        return [
            None
            if np.isnan(row).any()
            else column.values[row.argmax()]
            if row.max() > 0.5
            else OTHER
            for row in block
        ]
    names: dict[tuple[float, ...], list[str]] = {column.other: [OTHER]}
    for value, code in zip(column.values, column.codes, strict=True):
        names.setdefault(code, []).append("missing" if value is None else value)
    return [join_names(names.get(tuple(row), [])) for row in block.tolist()]


def feature_values(model: FittedEstimator, X: Any) -> list[list[Value]]:
    """The values of all features in each of the rows X (n, d), as the model sees them."""
    rows = model._rows(X).double().cpu().numpy()
    pairs = zip(model.columns_.columns, column_slices(model.columns_), strict=True)
    columns = [decode_column(column, rows[:, part]) for column, part in pairs]
    return [list(row) for row in zip(*columns, strict=True)]


def join_names(names: list[str]) -> str | None:
    """Names of categories that share their numbers."""
    if len(names) > NAMED:
        return f"one of {len(names)} categories"
    return " or ".join(names) or None


def show_number(column: ColumnEncoder, x: float) -> Value:
    """A number, a boolean, or a date and time as ISO text."""
    if isinstance(column, DateTime):
        text = str(np.datetime64(round(x), "s"))
        return text if column.elapsed else text.partition("T")[2]
    return x > 0.5 if column.holds == "boolean" else x


def unmap_rows(metric: FeatureMap, Z: Tensor) -> Tensor:
    """Numbers (n, d) of mapped rows Z (n, e); NaN where the map does not let them be recovered.

    A matrix that mixes columns into fewer loses them, and one that nearly leaves a column out
    leaves its rounding.
    """
    if metric.origin is None:
        return Z.double()
    d, F = len(metric.origin), Z.double()
    if metric.matrix is not None:
        F = F @ invert_matrix(metric.matrix.double(), F, torch.finfo(Z.dtype).eps)
    scale = torch.ones_like(metric.origin) if metric.scale is None else metric.scale.to(F)
    origin = metric.origin.to(F)
    # A constant feature is multiplied by zero.
    X = torch.where(scale > 0, F[:, :d] / scale.clamp_min(1e-300) + origin, origin)
    if metric.knots is None or metric.levels is None:
        return X
    for k in torch.isnan(X).any(0).nonzero()[:, 0].tolist():
        scores, knots, levels = (
            A.cpu().numpy() for A in (F[:, d + k], metric.knots, metric.levels)
        )
        if not np.isnan(scores).any():
            X[:, k] = torch.from_numpy(np.interp(scores, levels[k], knots[k]))
    return X


def invert_matrix(matrix: Tensor, Z: Tensor, precision: float) -> Tensor:
    """The matrix (k, e) that takes mapped rows Z (n, k) back to columns; NaN for lost columns."""
    if matrix.ndim == 1:
        inverse = torch.diag(torch.where(matrix > 0, 1 / matrix.clamp_min(1e-300), torch.nan))
        inverse = torch.where(torch.eye(len(matrix)).to(inverse) > 0, inverse, 0.0)
    else:
        inverse = torch.linalg.pinv(matrix)
        kept = matrix @ inverse - torch.eye(len(matrix)).to(matrix)
        inverse[:, kept.abs().amax(0) > 1e-6] = torch.nan
    noise = precision * Z.abs().max() * torch.linalg.vector_norm(inverse, dim=0)  # (e,)
    inverse[:, noise > LARGEST_NOISE] = torch.nan
    return inverse
