"""Sample search: kernel, lengthscale and penalty from a sample of the rows.

A Nystrom model with few centres is fitted to the sample for each lengthscale and compared on its
validation rows, under all penalties at once. The scale comes from the data: the search starts at
the median distance between rows. Cells play no part here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from parkrr.data import ArraySource
from parkrr.kernels import FeatureMap, Kernel, Radial
from parkrr.park import NystromModel
from parkrr.solvers import PENALTIES, LocalProblem, PenaltyPath, leave_one_out_errors, penalty_path
from parkrr.tuning.log import Candidate

SAMPLE_ROWS = 3000  # three in four are training rows, the others validation rows
SAMPLE_CENTERS = 250
FACTORS = (4.0, 2.0, math.sqrt(2.0))  # between lengthscales that are compared, coarse to fine
# Bounds of the lengthscale over the median distance. Further up a kernel is a spline whatever its
# lengthscale, and slopes by it vanish; further down rows have no neighbours.
BOUNDS = (2.0**-12, 2.0**3)
GAIN = 0.999  # a factor must cut the error by more, or smooth data would lead to the bound
MEDIAN_ROWS = 1000


class PenaltyFit(NamedTuple):
    """The least validation error over penalties, its penalty, and the models of all of them."""

    error: float
    penalty: float
    path: PenaltyPath


@dataclass(frozen=True)
class SampleSearch:
    """A sample of raw rows, targets centred, and what is to be fitted to it."""

    train: ArraySource  # the first rows are the Nystrom centres
    validation: ArraySource | None  # None takes the leave-one-out error of `train` instead
    n_centers: int
    dtype: torch.dtype  # of mapped features
    penalties: Tensor = PENALTIES  # to choose from, (p,)

    def evaluate(
        self, kernel: Kernel, metric: FeatureMap, map_name: str, search: bool
    ) -> Candidate:
        """A kernel behind a feature map: as it is, or with the best lengthscale."""
        mapping = partial(metric, dtype=self.dtype)
        train = self.train.map(mapping).load()
        validation = self.validation and self.validation.map(mapping).load()
        if search and isinstance(kernel, Radial):
            median = median_distance(train.X)
            with_length = kernel.with_lengthscale
            fit = cache(lambda x: self.fit_penalties(with_length(x), train, validation))
            bounds = (median * BOUNDS[0], median * BOUNDS[1])
            best = search_lengthscale(lambda x: fit(x).error, median, FACTORS, bounds)
            kernel, fitted = kernel.with_lengthscale(best), fit(best)
        else:
            fitted = self.fit_penalties(kernel, train, validation)
        centers, weights = fitted.path.problem.centers, fitted.path.weights(fitted.penalty)
        model = NystromModel(kernel, centers, weights)
        return Candidate(kernel, metric, fitted.penalty, fitted.error, map_name, model)

    def fit_penalties(
        self, kernel: Kernel, train: ArraySource, validation: ArraySource | None
    ) -> PenaltyFit:
        """The best penalty for mapped rows; its error is relative to that of a constant."""
        ridge = float(self.penalties.min()) * train.total_weight
        centers = train.X[: self.n_centers]
        path = penalty_path(LocalProblem(kernel, train, centers, None, ridge))
        if validation is None:
            errors, constant = leave_one_out_errors(kernel, train, self.penalties), path.yy
        else:
            errors = path.errors(validation, self.penalties)  # (p,)
            constant = float(validation.squared_error())
        best = int(errors.argmin())
        error = float(errors[best]) / max(constant, 1e-300)
        return PenaltyFit(error, float(self.penalties[best]), path)


def search_lengthscale(
    error: Callable[[float], float],
    start: float,
    factors: tuple[float, ...],
    bounds: tuple[float, float],
) -> float:
    """The lengthscale of least error, by multiplying or dividing by each factor while it helps."""
    best = start
    for step in factors:
        for factor in (step, 1 / step):
            tried = best * factor
            improved = False
            while bounds[0] <= tried <= bounds[1] and error(tried) < GAIN * error(best):
                best, tried, improved = tried, tried * factor, True
            if improved:
                break
    return best


def median_distance(X: Tensor) -> float:
    """Median distance of all pairs of the first rows of X (n, e); 1 where all are the same."""
    distances = torch.pdist(X[:MEDIAN_ROWS].double())
    positive = distances[distances > 0]
    return float(positive.median()) if len(positive) else 1.0
