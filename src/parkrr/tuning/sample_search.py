"""Kernel and lengthscale from a sample of the rows and few centres.

What is tried is compared on held-out rows of the sample, all penalties at once. The scale
comes from the data: the first lengthscale is the median distance. Knows no cells.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from parkrr.data import ArraySource
from parkrr.kernels import FeatureMap, Kernel, Radial
from parkrr.park import CoarseModel
from parkrr.solvers import PENALTIES, LocalProblem, PenaltyPath, leave_one_out_errors, penalty_path

STEPS = (4.0, 2.0, math.sqrt(2.0))  # of the lengthscale, coarse to fine
# From the median distance. Further up a kernel is a spline whatever its lengthscale, and
# slopes by it vanish; further down rows have no neighbours.
FARTHEST = (2.0**-12, 2.0**3)
GAIN = 0.999  # a step must cut the error by more, or smooth data would walk to the end
MEDIAN_ROWS = 1000


Note = Callable[..., None]  # keeps what was tried: a step, its error, what it was
error_of = attrgetter("error")


class Candidate(NamedTuple):
    """A kernel behind a map, and how well it did."""

    kernel: Kernel
    metric: FeatureMap
    error: float  # on held-out rows, over that of a constant or of a baseline
    penalty: float
    how: str  # of the map: "standard", "scores, diagonal matrix, step 232"
    model: CoarseModel

    @property
    def what(self) -> dict[str, object]:
        """What it is, for the notes."""
        return {"kernel": repr(self.kernel), "metric": self.how, "penalty": self.penalty}

    def predict(self, X: Tensor) -> Tensor:
        """The model's values at raw rows X (n, d), shape (n, t)."""
        return self.model(self.metric(X, self.model.centers.dtype))


@dataclass(frozen=True)
class SampleSearch:
    """A sample of rows to learn from and others to judge by.

    Parameters
    ----------
    train, held_out
        Raw rows, targets centred. Without rows to judge by, each is left out in turn.
    n_centers
        Nystrom centres.
    dtype
        In which kernel values are computed.
    n_threads
        Cores to use.
    penalties
        To choose from.
    """

    train: ArraySource
    held_out: ArraySource | None
    n_centers: int
    dtype: torch.dtype
    n_threads: int
    penalties: Tensor = PENALTIES

    def search(self, kernel: Radial, metric: FeatureMap, how: str) -> Candidate:
        """The best lengthscale of a kernel behind a map, walking from the median distance."""
        train, held_out = self.mapped(metric)
        median = median_distance(train.X)
        ends = (median * FARTHEST[0], median * FARTHEST[1])

        def judge(lengthscale: float) -> Judgement:
            return self.judge(kernel.with_lengthscale(lengthscale), train, held_out)

        best, found = best_lengthscale(judge, median, STEPS, ends)
        return self.guess(kernel.with_lengthscale(best), metric, how, found)

    def weigh(self, kernel: Kernel, metric: FeatureMap, how: str) -> Candidate:
        """A kernel as it is, behind a map."""
        return self.guess(kernel, metric, how, self.judge(kernel, *self.mapped(metric)))

    def mapped(self, metric: FeatureMap) -> tuple[ArraySource, ArraySource | None]:
        """The rows as a kernel behind that map sees them."""
        see = partial(metric, dtype=self.dtype)
        return self.train.map(see).load(), self.held_out and self.held_out.map(see).load()

    def guess(self, kernel: Kernel, metric: FeatureMap, how: str, found: "Judgement") -> Candidate:
        """The guess that was judged."""
        weights, Z = found.path.weights(found.penalty), found.path.problem.centers
        model = CoarseModel(kernel, Z, weights)
        return Candidate(kernel, metric, found.error, found.penalty, how, model)

    def judge(
        self, kernel: Kernel, train: ArraySource, held_out: ArraySource | None
    ) -> "Judgement":
        """The least error over penalties, as part of that of a constant."""
        ridge = float(self.penalties.min()) * train.total_weight
        Z = train.X[: self.n_centers]
        path = penalty_path(LocalProblem(kernel, train, Z, None, ridge, self.n_threads))
        if held_out is None:
            errors, spread = leave_one_out_errors(kernel, train, self.penalties), path.yy
        else:
            errors, spread = path.errors(held_out, self.penalties), float(held_out.squared_error())
        at = int(errors.argmin())
        return Judgement(float(errors[at]) / max(spread, 1e-300), float(self.penalties[at]), path)


class Judgement(NamedTuple):
    """The least held-out error over penalties, that penalty, and all of them."""

    error: float
    penalty: float
    path: PenaltyPath


class Scored(Protocol):
    """What has been compared on held-out rows."""

    @property
    def error(self) -> float: ...


ScoreT = TypeVar("ScoreT", bound=Scored)


def best_lengthscale(
    judge: Callable[[float], ScoreT],
    start: float,
    steps: tuple[float, ...],
    ends: tuple[float, float],
) -> tuple[float, ScoreT]:
    """Where the walk ends and what was found there; no place is judged twice."""
    seen = cache(judge)
    best = walk(lambda lengthscale: seen(lengthscale).error, start, steps, ends)
    return best, seen(best)


def walk(
    error: Callable[[float], float],
    start: float,
    steps: tuple[float, ...],
    ends: tuple[float, float],
) -> float:
    """The place of least error, by steps up or down that shrink when neither helps."""
    best = start
    for step in steps:
        for factor in (step, 1 / step):
            there = best * factor
            moved = False
            while ends[0] <= there <= ends[1] and error(there) < GAIN * error(best):
                best, there, moved = there, there * factor, True
            if moved:
                break
    return best


def median_distance(X: Tensor) -> float:
    """Of all pairs of the first rows of X (n, e); 1 where all are the same."""
    distances = torch.pdist(X[:MEDIAN_ROWS].double())
    positive = distances[distances > 0]
    return float(positive.median()) if len(positive) else 1.0
