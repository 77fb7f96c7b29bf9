"""What a fitted model answers: values, labels, probabilities, intervals, novelty.

Knows rows as numbers, whether they come from a user's array or from files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import decoded
from parkrr.errors import ParameterError
from parkrr.park import Model
from parkrr.uncertainty.calibration import Calibration
from parkrr.uncertainty.intervals import LEVELS, Intervals
from parkrr.uncertainty.novelty import novelty

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Predictor:
    """A model with all that its answers need.

    Parameters
    ----------
    model
        The model.
    one_output
        Whether answers have shape (n,) and not (n, t).
    intervals
        Of a regression.
    classes, calibration
        Of a classification: labels, and how scores become probabilities, None for one class.
    """

    model: Model
    one_output: bool
    intervals: Intervals | None = None
    classes: NDArray[Any] | None = None
    calibration: Calibration | None = None

    def flat(self, values: Array) -> Array:
        """Values (n, t, ...) without their second axis, if there is one output."""
        return values[:, 0] if self.one_output else values

    def values(self, X: Tensor, n_threads: int = 1) -> Array:
        """The model at rows X (n, d), shape (n, t)."""
        out: Array = self.model.predict(X, n_threads).cpu().numpy()
        return out

    def predictions(self, X: Tensor, n_threads: int = 1) -> NDArray[Any]:
        """Values of a regression, labels of a classification."""
        if self.classes is None:
            return self.flat(self.values(X, n_threads))
        return decoded(self.decisions(X, n_threads), self.classes)

    def decisions(self, X: Tensor, n_threads: int = 1) -> Array:
        """Scores (n, t) whose sign, or largest entry, is the class."""
        F = self.values(X, n_threads)
        return F if self.calibration is None else self.calibration.decisions(F)

    def probabilities(self, X: Tensor, n_threads: int = 1) -> Array:
        """Of each class, shape (n, k)."""
        F = self.values(X, n_threads)
        return (
            np.ones((len(F), 1)) if self.calibration is None else self.calibration.probabilities(F)
        )

    def mapped(self, work: Callable[[Tensor], Tensor], X: Tensor, n_threads: int) -> Array:
        """work(mapped rows) of rows X (n, d)."""
        found = self.model.in_runs(lambda run: work(self.model.narrowed(run)), X, n_threads)
        out: Array = found.cpu().numpy()
        return out

    def std(self, X: Tensor, n_threads: int = 1) -> Array:
        """Standard deviation of a new target, shape (n,) or (n, t)."""
        model, std = self.model, self.bars().posterior.std
        return self.flat(self.mapped(lambda Z: std(model, Z, model.cell_of(Z)), X, n_threads))

    def novelty(self, X: Tensor, n_threads: int = 1) -> Array:
        """How much of each row its cell has not seen, from 0 to 1, shape (n,)."""
        return self.mapped(lambda Z: novelty(self.model, Z), X, n_threads)

    def quantiles(self, X: Tensor, levels: tuple[float, ...], n_threads: int = 1) -> Array:
        """Quantiles of a new target, shape (n, l) or (n, t, l)."""
        bars = self.bars()
        off = self.mapped(lambda Z: bars.quantile(self.model, Z, levels), X, n_threads)
        return self.flat(self.values(X, n_threads)[:, :, None] + off)

    def interval(self, X: Tensor, coverage: float, n_threads: int = 1) -> tuple[Array, Array]:
        """The ends of intervals that hold a new target with that probability."""
        ends = self.quantiles(
            X, self.bars().tails(checked_coverage(coverage, self.bars())), n_threads
        )
        return ends[..., 0], ends[..., 1]

    def bars(self) -> Intervals:
        """The intervals of a regression."""
        assert self.intervals is not None
        return self.intervals


def checked_coverage(coverage: float, intervals: Intervals) -> float:
    """The coverage, if there were rows enough to know where its ends are."""
    most = 1 - 2 * intervals.least_tail
    if not 0 < coverage <= most:
        raise ParameterError(
            f"coverage must be above 0 and at most {most:.3f} after a fit that left out "
            f"{int(intervals.n):,} rows, got {coverage!r}; fit more rows for a higher one"
        )
    return float(coverage)


def checked_levels(levels: Any) -> tuple[float, ...]:
    """Levels of quantiles, if they are."""
    found = tuple(np.atleast_1d(np.asarray(levels, dtype=np.float64)).tolist())
    if not all(LEVELS[0] <= level <= LEVELS[-1] for level in found):
        raise ParameterError(f"levels must be between {LEVELS[0]} and {LEVELS[-1]}, got {levels!r}")
    return found
