"""Everything a fitted model predicts: values, labels, probabilities, intervals, novelty.

Rows are tensors of numbers here, whether they come from an array or from files.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import decode_classes
from parkrr.errors import ParameterError
from parkrr.park import Model
from parkrr.uncertainty.calibration import Calibration
from parkrr.uncertainty.intervals import (
    LEVELS,
    Intervals,
    novelty,
    novelty_and_complements,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Predictor:
    """A model with all that its predictions need.

    Parameters
    ----------
    model
        The model.
    one_output
        Whether predictions have shape (n,) and not (n, t).
    intervals
        Of a regression.
    classes, calibration
        Of a classification: labels, and the map from scores to probabilities, None for one class.
    """

    model: Model
    one_output: bool
    intervals: Intervals | None = None
    classes: NDArray[Any] | None = None
    calibration: Calibration | None = None

    def flatten(self, values: Array) -> Array:
        """Values (n, t, ...) without their second axis, if there is one output."""
        return values[:, 0] if self.one_output else values

    def outputs(self, X: Tensor, n_threads: int = 1) -> Array:
        """The model at rows X (n, d), shape (n, t)."""
        values: Array = self.model.predict(X, n_threads).cpu().numpy()
        return values

    def predict(self, X: Tensor, n_threads: int = 1) -> NDArray[Any]:
        """Values of a regression, labels of a classification."""
        return self._as_predictions(self.outputs(X, n_threads))

    def decide(self, X: Tensor, n_threads: int = 1) -> Array:
        """Scores (n, t) whose sign, or largest entry, is the class."""
        return self._as_scores(self.outputs(X, n_threads))

    def probabilities(self, X: Tensor, n_threads: int = 1) -> Array:
        """The probability of each class, shape (n, k)."""
        return self._as_probabilities(self.outputs(X, n_threads))

    def compute(
        self, X: Tensor, names: Sequence[str], coverage: float, n_threads: int = 1
    ) -> dict[str, NDArray[Any]]:
        """Several outputs of rows X (n, d) by name; an interval is "lower" and "upper".

        The model is evaluated once for all of them.
        """
        columns: dict[str, NDArray[Any]] = {}
        needs_model = {"prediction", "probability", "interval"} & set(names)
        F = self.outputs(X, n_threads) if needs_model else np.empty((0, 0))
        offsets = left = None
        if {"interval", "novelty"} <= set(names) and self.known_intervals.needs_complements:
            offsets, left = self._offsets_and_novelty(X, coverage, n_threads)
        for name in names:
            if name == "prediction":
                columns[name] = self._as_predictions(F)
            elif name == "probability":
                columns[name] = self._as_probabilities(F)
            elif name == "interval":
                ends = self._add_ends(F, X, coverage, n_threads, offsets)
                columns["lower"], columns["upper"] = ends
            elif name == "novelty":
                columns[name] = self.novelty(X, n_threads) if left is None else left
            else:
                columns[name] = self.std(X, n_threads)
        return columns

    def std(self, X: Tensor, n_threads: int = 1) -> Array:
        """Standard deviation of a new target, shape (n,) or (n, t)."""
        model, std = self.model, self.known_intervals.posterior.std
        return self.flatten(self._map(lambda Z: std(model, Z, model.assign(Z)), X, n_threads))

    def quantiles(self, X: Tensor, levels: Any, n_threads: int = 1) -> Array:
        """Quantiles of a new target, shape (n, l) or (n, t, l)."""
        intervals, levels = self.known_intervals, check_levels(levels)
        if intervals.jackknife is not None:
            raise ParameterError(
                "guarantee must be 'none', 'split' or 'cell' to predict quantiles, got "
                "'jackknife+', whose theorem is about both ends of an interval; use "
                "predict_interval, or fit with another guarantee"
            )
        off = self._map(lambda Z: intervals.quantile_offsets(self.model, Z, levels), X, n_threads)
        return self.flatten(self.bound(self.outputs(X, n_threads)[:, :, None] + off))

    def interval(self, X: Tensor, coverage: float, n_threads: int = 1) -> tuple[Array, Array]:
        """The ends of intervals that hold a new target with that probability."""
        self.check_coverage(coverage)
        return self._add_ends(self.outputs(X, n_threads), X, coverage, n_threads)

    def bound(self, ends: Array) -> Array:
        """Ends of intervals, not below zero where no target is."""
        return ends if self.model.link == "identity" else np.maximum(ends, 0.0)

    def novelty(self, X: Tensor, n_threads: int = 1) -> Array:
        """How unlike the centres of its cell each row is, from 0 to 1, shape (n,)."""
        return self._map(lambda Z: novelty(self.model, Z), X, n_threads)

    @property
    def known_intervals(self) -> Intervals:
        """The intervals of a regression."""
        assert self.intervals is not None
        return self.intervals

    def check_coverage(self, coverage: float) -> None:
        """Refuse a coverage whose ends cannot be estimated."""
        most = self.known_intervals.largest_coverage
        if isinstance(coverage, Real) and 0 < coverage <= most:
            return
        rounded = math.floor(1000 * most) / 1000  # one that is not refused
        higher = isinstance(coverage, Real) and most < coverage < 1
        way_out = "fit more rows for a higher one" if higher else "it is a share, such as 0.9"
        raise ParameterError(
            f"coverage must be above 0 and at most {rounded:.3f} after a fit with "
            f"{self.known_intervals.source}, got {coverage!r}; {way_out}"
        )

    def _as_predictions(self, F: Array) -> NDArray[Any]:
        """Outputs of the model (n, t) as values or labels."""
        if self.classes is None:
            return self.flatten(F)
        return decode_classes(self._as_scores(F), self.classes)

    def _as_scores(self, F: Array) -> Array:
        """Outputs of the model (n, t) as scores (n, t)."""
        return F if self.calibration is None else self.calibration.decide(F)

    def _as_probabilities(self, F: Array) -> Array:
        """Outputs of the model (n, t) as probabilities (n, k)."""
        if self.calibration is None:
            return np.ones((len(F), 1))
        return self.calibration.probabilities(F)

    def _offsets_and_novelty(
        self, X: Tensor, coverage: float, n_threads: int
    ) -> tuple[Array, Array]:
        """Ends of intervals less predictions (n, t, 2), and novelty (n,), of rows X (n, d)."""
        model, intervals, share = self.model, self.known_intervals, float(coverage)

        def both(Z: Tensor) -> Tensor:
            left, v = novelty_and_complements(model, Z, intervals.posterior.ridge)
            off = intervals.end_offsets(model, Z, share, v)  # (n, t, 2)
            return torch.cat([off.flatten(1), left[:, None].to(off)], 1)

        values = self._map(both, X, n_threads)  # (n, 2 t + 1)
        return values[:, :-1].reshape(len(values), -1, 2), values[:, -1]

    def _add_ends(
        self, F: Array, X: Tensor, coverage: float, n_threads: int, off: Array | None = None
    ) -> tuple[Array, Array]:
        """Ends of intervals around outputs of the model (n, t) at rows X (n, d)."""
        model, intervals, share = self.model, self.known_intervals, float(coverage)
        if off is None:
            off = self._map(lambda Z: intervals.end_offsets(model, Z, share), X, n_threads)
        ends = self.flatten(self.bound(F[:, :, None] + off))
        return ends[..., 0], ends[..., 1]

    def _map(self, function: Callable[[Tensor], Tensor], X: Tensor, n_threads: int) -> Array:
        """function(mapped rows) of rows X (n, d), in blocks.

        Where they are, however far: with the bounds of predictions, a row ten ranges outside of the
        data had a novelty of 0.13.
        """
        model = self.model
        work = lambda rows: function(model.map_rows(rows, bounded=False))  # noqa: E731
        values = model.apply_in_chunks(work, X, n_threads)
        out: Array = values.cpu().numpy()
        return out


def check_levels(levels: Any) -> tuple[float, ...]:
    """Levels of quantiles as a tuple."""
    checked = tuple(np.atleast_1d(np.asarray(levels, dtype=np.float64)).tolist())
    low, high = LEVELS[0], LEVELS[-1]
    if not checked:
        raise ParameterError(f"levels must hold a number between {low} and {high}, got {levels!r}")
    if not all(low - 1e-9 <= level <= high + 1e-9 for level in checked):
        raise ParameterError(f"levels must be between {low} and {high}, got {levels!r}")
    return checked
