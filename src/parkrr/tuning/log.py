"""What was chosen, what it was compared with, and the seconds it took."""

import math
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from parkrr.kernels import FeatureMap, Kernel
from parkrr.park import NystromModel
from parkrr.runtime import ChoiceProgress, shorten_numbers, show_number

# Shares of the work of choosing at which the metric search begins and ends, on 5,000 to 200,000
# rows: before it is the sample search, behind it the coarse comparison.
METRIC_PART = (0.08, 0.92)
# Parameters that a fit chooses, in the order in which `Chosen` shows them.
SHOWN = ("kernel", "penalty", "metric", "n_cells", "n_centers", "blend", "coarse", "precision")


@dataclass(frozen=True)
class OpenChoices:
    """What is left open: for each choice whether it is."""

    families: tuple[Kernel, ...]  # kernels to choose from, or the one that is given
    lengthscale: bool
    penalty: bool
    metric: FeatureMap | str  # a map, or "euclidean", "standard", "learned" or "auto"
    learn_metric: bool  # whether a feature map is learned; the lengthscale is then open too
    blend: bool
    coarse: bool
    precision: bool
    bounded: bool = True  # whether a map of these has bounds of features


class Candidate(NamedTuple):
    """A kernel, a feature map and a penalty, with their error on validation rows."""

    kernel: Kernel
    metric: FeatureMap
    penalty: float
    error: float  # relative to that of a constant or of a baseline
    map_name: str  # such as "standard" or "scores, diagonal matrix, step 232"
    model: NystromModel  # one model of the sample, behind the map of the sample search

    def predict(self, X: Tensor) -> Tensor:
        """Predictions (n, t) of the model of the sample at raw rows X (n, d)."""
        return self.model(self.metric(X, self.model.centers.dtype))


class Chosen(NamedTuple):
    """What a fit decided.

    Parameters
    ----------
    params : dict
        Parameters of the estimator that fit the same model, with nothing left to choose.
    tried : list of dict
        What was compared: its "step", its "error" on validation rows, and what it was. An entry
        with the step "time budget", "Ctrl-C" or "callback" tells where that ended the search.
    seconds : dict of str to float
        Seconds that each step of the search took.
    uncertainty : str
        How the width of prediction intervals varies, "constant", "posterior" or "learned"; for a
        classifier how scores become probabilities, "temperature", "platt", "isotonic" or
        "base rate".
    """

    params: dict[str, Any]
    tried: list[dict[str, object]]
    seconds: dict[str, float]
    uncertainty: str

    def __repr__(self) -> str:
        """What was chosen and how much was compared; `tried` has hundreds of lines."""
        params, metric = self.params, self.params.get("metric")
        chosen = {name: params[name] for name in SHOWN if name in params}
        chosen["metric"] = metric.describe() if isinstance(metric, FeatureMap) else metric
        chosen["uncertainty"] = self.uncertainty
        lines = [f"{name:<20} {shorten_numbers(str(value))}" for name, value in chosen.items()]
        errors: dict[str, list[float]] = {}
        for one in self.tried:
            error = one.get("error")
            errors.setdefault(str(one["step"]), []).append(
                error if isinstance(error, float) else math.inf
            )
        if errors:
            lines += ["", "Errors compare within a step: between steps rows and baselines differ."]
            lines += [f"{'step':<20} {'compared':>8} {'least error':>12}"]
        for step, values in errors.items():
            least = min(values)
            shown = show_number(least) if math.isfinite(least) else ""
            lines.append(f"{step:<20} {len(values):>8} {shown:>12}".rstrip())
        return "\n".join(lines)


@dataclass
class TuningLog:
    """What has been compared so far, and the seconds of each finished step."""

    tried: list[dict[str, object]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    progress: ChoiceProgress = field(default_factory=ChoiceProgress)
    started: float = field(default_factory=time.perf_counter)
    variance: float = 1.0  # of the target, in the unit in which rows are compared

    def note(self, step: str, error: float, **what: object) -> None:
        """Record one comparison."""
        self.tried.append({"step": step, **what, "error": error})

    def note_stop(self, place: str, error: float) -> None:
        """Record where the search ended before its end, the first time that it does."""
        reason = self.progress.stopped_by
        if reason and not any(each["step"] == reason for each in self.tried):
            self.note(reason, error, stopped=place)

    def note_candidate(self, step: str, candidate: Candidate, **what: object) -> None:
        """Record the error of a candidate, and what it is."""
        kernel, _, penalty, error, map_name, _ = candidate
        self.note(step, error, kernel=repr(kernel), metric=map_name, penalty=penalty, **what)

    def report(self, step: str, candidate: Candidate, error: float, share: float) -> None:
        """Show a candidate, its error over the variance, and the share of the search so far."""
        self.progress.report(step, f"{candidate.kernel!r}, {candidate.map_name}", error, share)

    def finish_step(self, step: str) -> None:
        """Record the seconds since the step before."""
        now = time.perf_counter()
        self.seconds[step] = now - self.started
        self.started = now
