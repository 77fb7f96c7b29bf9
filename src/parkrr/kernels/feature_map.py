"""The feature map in front of the kernel: the units in which distances are measured.

Features are centred and scaled, their normal scores may stand beside them, and a matrix weighs or
mixes all columns. A map is part of the model, and made of tensors alone.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from parkrr.kernels.base import coordinate_limit, multiply

CLIPPED = 0.005  # share of values at each end that counts for a feature's spread as the next one
FEW_CLIPPED, FEW_ROWS = 3, 20  # so many values at least, if there are so many rows for each
WILD = 30.0  # times the median of those that differ, a rare value counts for no more
ROUNDING = 4 * torch.finfo(torch.float64).eps  # of a value: features that vary less are constant
KNOTS = 256  # of the normal scores: a step of 0.4 % of the rows
ROWS_IN_CACHE = 2**14  # mapped at a time, so that a dozen passes over them stay in cache
BINNED_ROWS, BINS = 1024, 1024  # rows from which the search for knots begins with a table
SMALLEST_WEIGHT = 1e-6  # of a direction in the learned metric, beside the largest
BEYOND = 1.0  # times its range, a feature may lie outside of it, with `bound_features`


@dataclass(frozen=True)
class FeatureMap:
    """x -> ((x - origin) scale, scores of x) matrix, in a dtype that may be shorter.

    Parameters
    ----------
    origin, scale : Tensor, default None
        Shape (d,). None leaves rows as they are.
    knots, levels : Tensor, default None
        Values of each feature and their normal scores, between which scores are linear,
        shape (d, k); None for no scores. An increasing function of a feature has the same
        scores, so that no outlier and no unit can matter.
    matrix : Tensor, default None
        Weights (e,) of the columns, or a matrix (e, k) that mixes them into k, or leaves some
        out; None leaves them.
    bounds : Tensor, default None
        The least and the largest (x - origin) scale of each feature, shape (2, d): values beyond
        count as these. None for none.

    Examples
    --------
    >>> import torch
    >>> from parkrr import FeatureMap
    >>> FeatureMap(torch.ones(2), torch.tensor([1.0, 10.0]))(torch.zeros(1, 2), torch.float32)
    tensor([[ -1., -10.]])
    """

    origin: Tensor | None = None
    scale: Tensor | None = None
    knots: Tensor | None = None
    levels: Tensor | None = None
    matrix: Tensor | None = None
    bounds: Tensor | None = None

    def __call__(self, X: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows X (n, d) as the kernel sees them, shape (n, e)."""
        if self.origin is None:
            return X.to(dtype)
        if self.knots is not None and len(X) > ROWS_IN_CACHE:
            return torch.cat([self(part, dtype) for part in torch.split(X, ROWS_IN_CACHE)])
        F = self.columns(X, dtype)
        if self.matrix is None:
            return F
        F = apply_matrix(F, self.matrix.to(F))
        limit = coordinate_limit(F.shape[1], F.dtype)  # so that |x|^2 is finite
        return F.clamp_(-limit, limit)

    def columns(self, X: Tensor, dtype: torch.dtype) -> Tensor:
        """What the matrix mixes, shape (n, d) or with scores (n, 2 d)."""
        assert self.origin is not None
        # Shifted before it is narrowed, so that 1.6e9 + 1 still differs from 1.6e9.
        F = X - self.origin.to(X)
        if self.scale is not None:
            largest = torch.finfo(F.dtype).max
            F = F.clamp_(-largest, largest).mul_(self.scale.to(F))
        limit = min(1e38, coordinate_limit(F.shape[1], dtype))
        F = F.clamp_(-limit, limit)
        if self.bounds is not None:
            F = F.clamp_(*self.bounds.to(F))
        F = F.to(dtype)
        return F if self.knots is None else torch.cat([F, self.scores(X).to(dtype)], 1)

    def describe(self) -> str:
        """In what units distances are measured."""
        text = "euclidean" if self.scale is None else "standard features"
        text += "" if self.knots is None else " and their normal scores"
        if self.matrix is None:
            return text
        return f"{text}, learned {'weights' if self.matrix.ndim == 1 else 'matrix'}"

    def width(self, d: int) -> int:
        """How many columns the matrix mixes, of d features."""
        return d if self.knots is None else 2 * d

    def scores(self, X: Tensor) -> Tensor:
        """The normal score of each value of X (n, d), shape (n, d)."""
        assert self.knots is not None
        assert self.levels is not None
        knots, levels = self.knots.to(X), self.levels.to(X)  # (d, k)
        values = X.T.contiguous().clamp(knots[:, :1], knots[:, -1:])  # (d, n)
        after = count_below(knots, values).clamp_(1, knots.shape[1] - 1)
        low, high = knots.gather(1, after - 1), knots.gather(1, after)
        width = (high / 2 - low / 2).clamp_min(torch.finfo(X.dtype).tiny)
        part = ((values / 2 - low / 2) / width).clamp_(0, 1)
        return torch.lerp(levels.gather(1, after - 1), levels.gather(1, after), part).T

    def with_matrix(self, matrix: Tensor | None) -> "FeatureMap":
        """The same columns, mixed by another matrix."""
        return replace(self, matrix=matrix)


def count_below(knots: Tensor, values: Tensor) -> Tensor:
    """How many knots (d, k) lie below each of the values (d, n), shape (d, n).

    What searchsorted does, in half of its time for many values: a table of even bins tells where
    to begin, and few steps of bisection without a branch are left. With 9 features and 256 knots
    searchsorted took 0.5 of the 3.6 microseconds per row of a pass over files.
    """
    if values.shape[1] < BINNED_ROWS:
        return torch.searchsorted(knots, values)
    k, low, high = knots.shape[1], knots[:, :1], knots[:, -1:]
    width = (high - low) / BINS  # (d, 1)
    # No value lies above the last knot, so its copies, which fill up few knots, are out of the way.
    copies = torch.nn.functional.pad(knots[:, :-1] == high, (1, 0))
    knots = knots.masked_fill(copies, torch.inf)
    width = torch.where((width > 0) & width.isfinite(), width, torch.inf)
    # A value near the end of a bin may be put in the next one, so a bin covers three.
    edges = torch.arange(-1, BINS + 2, device=knots.device).to(knots)
    below = torch.searchsorted(knots, low + (edges * width).nan_to_num(0.0))  # (d, bins + 3)
    begin, most = below[:, :-3], int((below[:, 3:] - below[:, :-3]).max())
    bins = ((values - low) / width).nan_to_num_(0.0).clamp_(0, BINS - 1).long()
    count = begin.contiguous().gather(1, bins)  # (d, n)
    padded = torch.cat([knots, torch.full_like(low, torch.inf)], 1)
    for step in (2**power for power in reversed(range(most.bit_length()))):
        probe = (count + step - 1).clamp_max_(k)
        count += step * (padded.gather(1, probe) < values)
    return count


def pull_back(M: Tensor, matrix: Tensor) -> Tensor:
    """An average gradient outer product (e, e) in the columns before the matrix: A M A'."""
    A = matrix.to(M)
    return A[:, None] * M * A if A.ndim == 1 else A @ M @ A.T


def apply_matrix(F: Tensor, matrix: Tensor) -> Tensor:
    """Columns F (n, e) weighed by weights (e,), or mixed by a matrix (e, k)."""
    return F * matrix if matrix.ndim == 1 else multiply(F, matrix)


def center_features(X: Tensor) -> FeatureMap:
    """The map that only shifts rows, from a sample X (n, d)."""
    origin, _ = measure_features(X)
    return FeatureMap(origin)


def standardize_features(X: Tensor) -> FeatureMap:
    """The map to zero mean and unit spread, from a sample X (n, d).

    A constant feature is left out: it is multiplied by zero.
    """
    return FeatureMap(*measure_features(X))


def bound_features(base: FeatureMap, low: Tensor, high: Tensor) -> FeatureMap:
    """The map for rows from `low` to `high`, shape (d,) each, and once that range on both sides.

    A model has small slopes along features that do not matter, such as a row number, and far away
    they add up: with numbers 30 times the range away, the error was 3.1 standard deviations
    instead of 0.15, and is 0.16 with bounds. Of random rows of KEGG, whose features have heavy
    tails, it is 0.0911 instead of 0.0959. Bounds at half of the range give 0.0898 there, and take
    more from features with a trend: rows of bike above all others 0.39, instead of 0.26 with once
    the range and 0.09 without bounds.
    """
    ends = base.columns(torch.stack([low, high]).double(), torch.float64)[:, : len(low)]  # (2, d)
    margin = BEYOND * (ends[1] - ends[0])
    return replace(base, bounds=torch.stack([ends[0] - margin, ends[1] + margin]))


def measure_features(X: Tensor) -> tuple[Tensor, Tensor]:
    """The centre of each feature and one over its spread, shape (d,) each, from a sample X (n, d).

    They are the mean and the standard deviation of values clipped at their 0.5 and 99.5 %
    quantiles, or the three values at each end of 60 or more, so that a few wild values do not blank
    a feature out. Where nearly all values are the same, those that differ are clipped at 30 times
    their median. Values are measured from their median: squares of 1e13 leave no digit of a spread.
    """
    # Halves, because the difference of values near 1e308 would overflow.
    ordered = X.double().sort(0).values / 2
    last = len(X) - 1
    middle = ordered[last // 2]  # (d,)
    D = ordered - middle
    D = torch.where(D.abs() <= ROUNDING * middle.abs(), 0.0, D)
    clipped = max(round(CLIPPED * last), min(FEW_CLIPPED, len(X) // FEW_ROWS))
    low, high = D[clipped], D[last - clipped]
    # The median of values that differ; NaN for a constant feature, which has no unit.
    rare = WILD * torch.where(D == 0, torch.nan, D.abs()).nanmedian(0).values
    mostly_same = (low == 0) & (high == 0)
    low, high = torch.where(mostly_same, -rare, low), torch.where(mostly_same, rare, high)
    unit = torch.maximum(low.abs(), high.abs()).nan_to_num(0.0)
    varies = unit > 0
    unit = torch.where(varies, unit, 1.0)
    inner = D.clamp(low, high).nan_to_num(0.0) / unit  # in [-1, 1], so that squares stay finite
    spread = unit * inner.std(0, correction=0)
    scale = torch.where(varies, 0.5 / spread.clamp_min(1e-307), 0.0)
    return 2 * (middle + unit * inner.mean(0)), scale


def add_normal_scores(base: FeatureMap, X: Tensor) -> FeatureMap:
    """The map with normal scores beside the features, from a sample X (n, d)."""
    pairs = [score_knots(column) for column in X.double().cpu().numpy().T]
    parts = (np.stack(part) for part in zip(*pairs, strict=True))
    knots, levels = (torch.from_numpy(part).to(X.device) for part in parts)  # (d, k) each
    return replace(base, knots=knots, levels=levels)


def score_knots(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of one feature and their normal scores, of unit spread; KNOTS each."""
    knots, counts = np.unique(values, return_counts=True)
    below = (np.cumsum(counts) - counts / 2) / len(values)  # half of its own kind
    levels = torch.special.ndtri(torch.from_numpy(below)).numpy()
    levels = levels / max(1e-12, np.sqrt(counts @ levels**2 / len(values)))
    if len(knots) == 1:
        levels = np.zeros(1)
    numbers = np.arange(len(knots))
    if len(knots) > KNOTS:
        even = np.linspace(below[0], below[-1], KNOTS)
        numbers = np.searchsorted(below, even).clip(0, numbers[-1])
    numbers = np.pad(numbers, (0, KNOTS - len(numbers)), mode="edge")  # the same length for all
    return knots[numbers], levels[numbers]


def matrix_root(M: Tensor) -> Tensor:
    """M^(1/2) with largest eigenvalue one, of a positive matrix (e, e) or its diagonal (e,)."""
    values, V = (M, None) if M.ndim == 1 else torch.linalg.eigh(M)
    weights: Tensor = (values / values.max()).clamp_min(SMALLEST_WEIGHT**2).sqrt()  # (e,)
    return weights if V is None else (V * weights) @ V.T
