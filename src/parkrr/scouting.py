"""Kernel, lengthscale and metric from a sample of the rows and few centres.

What is tried is compared on held-out rows of the sample, all penalties at once. The scale
comes from the data: the first lengthscale is the median distance. Knows no cells.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from parkrr.gradients import gradient_products
from parkrr.kernels import Kernel, Radial
from parkrr.metrics import FeatureMap, root
from parkrr.model import CoarseModel
from parkrr.path import PENALTIES, PenaltyPath, penalty_path
from parkrr.solvers import LocalProblem
from parkrr.sources import ArraySource

STEPS = (4.0, 2.0, math.sqrt(2.0))  # of the lengthscale, coarse to fine
FARTHEST = 2.0**12  # from the median distance; the Laplacian likes to be some 100 times it
GAIN = 0.999  # a step must cut the error by more, or smooth data would walk to the end
GRADIENT_ROWS = 2000
WORSE = 1.05  # a round this much above the first, and no further one
MEDIAN_ROWS = 1000
FEWEST = 400  # rows below which a smaller sample would only be noisier


Note = Callable[..., None]  # keeps what was tried: a step, its error, what it was
error_of = attrgetter("error")


class Guess(NamedTuple):
    """A kernel behind a map, and how well it did."""

    kernel: Kernel
    metric: FeatureMap
    error: float  # on held-out rows, over that of a constant or of a baseline
    penalty: float
    how: str  # of the map: "standard", "scores, full matrix, round 2"
    gradients: Tensor | None  # (e, e)  average gradient outer product before the matrix
    model: CoarseModel

    @property
    def number(self) -> int:
        """Rounds that led here."""
        return int(self.how.rsplit(" ", 1)[1]) if "matrix" in self.how else 0

    @property
    def can_sharpen(self) -> bool:
        """Whether there is a gradient to learn from."""
        M = self.gradients
        return M is not None and bool(M.any()) and bool(torch.isfinite(M).all())

    def predict(self, X: Tensor) -> Tensor:
        """The model's values at raw rows X (n, d), shape (n, t)."""
        return self.model(self.metric(X, self.model.centers.dtype))


@dataclass(frozen=True)
class Scout:
    """A sample of rows to learn from and others to judge by.

    Parameters
    ----------
    train, held_out
        Raw rows, targets centred.
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
    held_out: ArraySource
    n_centers: int
    dtype: torch.dtype
    n_threads: int
    penalties: Tensor = PENALTIES

    def smaller(self, part: int) -> "Scout":
        """The same on one in `part` of the rows and centres, but not on too few."""
        return replace(
            self,
            train=self.train.rows(slice(0, max(FEWEST, self.train.n_rows // part))),
            held_out=self.held_out.rows(slice(0, max(FEWEST, self.held_out.n_rows // part))),
            n_centers=max(FEWEST // 4, self.n_centers // part),
        )

    def search(self, kernel: Radial, metric: FeatureMap, how: str, start: float | None) -> Guess:
        """The best lengthscale of a kernel behind a map, walking from `start` medians."""
        train, held_out = self.mapped(metric)
        median = median_distance(train.X)
        seen: dict[float, Judgement] = {}

        def error(lengthscale: float) -> float:
            if lengthscale not in seen:
                seen[lengthscale] = self.judge(kernel.at(lengthscale), train, held_out)
            return seen[lengthscale].error

        steps = STEPS if start is None else STEPS[1:]
        best = walk(error, median * (start or 1.0), steps, (median / FARTHEST, median * FARTHEST))
        return self.guess(kernel.at(best), metric, how, seen[best])

    def weigh(self, kernel: Kernel, metric: FeatureMap, how: str) -> Guess:
        """A kernel as it is, behind a map."""
        return self.guess(kernel, metric, how, self.judge(kernel, *self.mapped(metric)))

    def mapped(self, metric: FeatureMap) -> tuple[ArraySource, ArraySource]:
        """The rows as a kernel behind that map sees them."""
        see = partial(metric, dtype=self.dtype)
        return self.train.map(see).load(), self.held_out.map(see).load()

    def guess(self, kernel: Kernel, metric: FeatureMap, how: str, found: "Judgement") -> Guess:
        """The guess that was judged, with its gradients if the kernel has any."""
        weights, Z = found.path.weights(found.penalty), found.path.problem.centers
        model = CoarseModel(kernel, Z, weights)
        gradients = None
        if isinstance(kernel, Radial):
            X = found.path.problem.cell.X[:GRADIENT_ROWS]
            gradients = metric.pulled_back(gradient_products(kernel, weights, Z, X) / len(X))
        return Guess(kernel, metric, found.error, found.penalty, how, gradients, model)

    def judge(self, kernel: Kernel, train: ArraySource, held_out: ArraySource) -> "Judgement":
        """The least held-out error over penalties."""
        ridge = float(self.penalties.min()) * train.total_weight
        Z = train.X[: self.n_centers]
        path = penalty_path(LocalProblem(kernel, train, Z, None, ridge, self.n_threads))
        errors = path.errors(held_out, self.penalties)
        at = int(errors.argmin())
        spread = max(float(held_out.squares()), 1e-300)
        return Judgement(float(errors[at]) / spread, float(self.penalties[at]), path)

    def again(self, guess: Guess) -> Guess:
        """The same kernel and map, its lengthscale searched again on these rows."""
        assert isinstance(guess.kernel, Radial)
        start = guess.kernel.lengthscale / self.median(guess.metric)
        return self.search(guess.kernel, guess.metric, guess.how, start)

    def median(self, metric: FeatureMap) -> float:
        """The median distance of mapped rows."""
        return median_distance(metric(self.train.X[:MEDIAN_ROWS], self.dtype))

    def sharpened(self, guess: Guess, diagonal: bool) -> Guess:
        """The guess behind the root of its average gradient outer product, not yet judged.

        Distances along which the model changes count for more; the lengthscale follows, so
        that it stays the same part of the median distance.
        """
        assert isinstance(guess.kernel, Radial)
        assert guess.gradients is not None
        M = guess.gradients.diagonal() if diagonal else guess.gradients
        metric = guess.metric.with_matrix(root(M))
        shape = "diagonal" if diagonal else "full"
        how = f"{guess.how.split(',')[0]}, {shape} matrix, round {guess.number + 1}"
        scale = self.median(metric) / self.median(guess.metric)
        kernel = guess.kernel.at(guess.kernel.lengthscale * scale)
        return guess._replace(kernel=kernel, metric=metric, how=how)

    def rounds(self, guess: Guess, diagonal: bool, count: int) -> list[Guess]:
        """The guess, and what follows from it; until one is clearly worse."""
        found = [guess]
        while len(found) <= count and found[-1].can_sharpen:
            found.append(self.again(self.sharpened(found[-1], diagonal)))
            if found[-1].error > WORSE * guess.error:
                break
        return found


class Judgement(NamedTuple):
    """The least held-out error over penalties, that penalty, and all of them."""

    error: float
    penalty: float
    path: PenaltyPath


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
    error(best)
    return best


def median_distance(X: Tensor) -> float:
    """Of all pairs of the first rows of X (n, e); 1 where all are the same."""
    distances = torch.pdist(X[:MEDIAN_ROWS].double())
    positive = distances[distances > 0]
    return float(positive.median()) if len(positive) else 1.0
