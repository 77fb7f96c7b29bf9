"""What the user leaves to us, chosen on held-out rows; every choice keeps what it tried.

First a sample of rows and few centres find a lengthscale for each kernel family
(:mod:`.sample_search`). From there metrics are learned at the density of the cells, and cells
vote on them (:mod:`.metric_search`). Last, a trial of neighbouring cells decides on blending
and on the coarse level (:mod:`.blend_trial`). Start at :meth:`TuningPipeline.run`.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from parkrr.data import FEW_ROWS, ArraySource, canonical_order, merge_copies
from parkrr.kernels import FeatureMap, Kernel, Radial, add_normal_scores
from parkrr.park import METRIC_ROWS, FitSettings, as_map, with_target_scaled
from parkrr.runtime import Tick
from parkrr.solvers import PENALTIES

from .blend_trial import choose_levels
from .metric_search import MetricSearch
from .sample_search import Candidate, SampleSearch, error_of

SCOUT_ROWS = 3000  # three in four to fit, the others to judge by
SCOUT_CENTERS = 250
SCORED_FEATURES = 100  # scores double the features; with more than this they are not tried
STEPS = 3  # scout, vote, trial


@dataclass(frozen=True)
class OpenChoices:
    """What is left open.

    Parameters
    ----------
    families
        Kernels to choose from; their lengthscales count only if `lengthscale` is settled.
    lengthscale, penalty, blend, coarse, precision
        Whether each is left open.
    metric
        A map, or "euclidean", "standard", "learned" or "auto".
    """

    families: tuple[Kernel, ...]
    lengthscale: bool
    penalty: bool
    metric: FeatureMap | str
    blend: bool
    coarse: bool
    precision: bool

    @property
    def anything(self) -> bool:
        """Whether there is something to choose."""
        return self.lengthscale or self.penalty or self.blend or self.coarse

    @property
    def learns(self) -> bool:
        """Whether the metric may be learned; its lengthscale is then open too."""
        return self.metric in ("learned", "auto")


class Chosen(NamedTuple):
    """What a fit decided.

    Parameters
    ----------
    params
        Parameters of the estimator that fit the same model, with nothing left to choose.
    tried
        What was compared, each with its error on held-out rows.
    seconds
        What each step of choosing took.
    uncertainty
        What says how wide errors are, "constant", "posterior" or "learned"; of a classifier
        what makes probabilities of scores, "temperature", "platt" or "isotonic".
    """

    params: dict[str, Any]
    tried: list[dict[str, object]]
    seconds: dict[str, float]
    uncertainty: str


@dataclass
class TuningLog:
    """What was tried, with its held-out error, and the seconds each step took."""

    tried: list[dict[str, object]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    tick: Tick = lambda steps: None
    started: float = field(default_factory=time.perf_counter)

    def note(self, step: str, error: float, **what: object) -> None:
        self.tried.append({"step": step, **what, "error": error})

    def guesses(self, step: str, guesses: list[Candidate]) -> list[Candidate]:
        """Note what each of them was."""
        for g in guesses:
            self.note(step, g.error, **g.what)
        return guesses

    def done(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step] = now - self.started
        self.started = now
        self.tick(1)


@dataclass(frozen=True)
class TuningPipeline:
    """Chooses what is left open.

    Parameters
    ----------
    park
        Settings; those left open hold something to start from.
    wish
        What is left open.
    seconds
        After which descents stop; votes and the trial still run.
    tick
        Is told after each of `STEPS` steps.
    """

    park: FitSettings
    wish: OpenChoices
    seconds: float
    tick: Tick

    def run(self, rows: ArraySource) -> tuple[FitSettings, TuningLog]:
        """The settings with every choice made."""
        diary, wish = TuningLog(tick=self.tick), self.wish
        seeds = np.random.SeedSequence([self.park.seed, 1]).generate_state(3).tolist()
        # Each of few rows is left out in turn: with all its copies, or it would predict itself.
        rows = merge_copies(rows) if rows.n_rows < FEW_ROWS else rows
        rows = ArraySource(*rows.block(canonical_order(rows)))
        rows, _, _ = with_target_scaled(rows, self.park.fit_intercept, self.park.dtype)
        best, dtype = self.best(rows, seeds, diary)
        park = replace(
            self.park,
            kernel=best.kernel,
            metric=best.metric,
            penalty=best.penalty,
            dtype=dtype,
        )
        diary.done("metric search")
        park = choose_levels(park, rows, wish.blend, wish.coarse, diary.note)
        diary.done("blend trial")
        return park, diary

    def best(
        self, rows: ArraySource, seeds: list[int], diary: TuningLog
    ) -> tuple[Candidate, torch.dtype]:
        """Kernel, metric, penalty and precision: scouted, then voted on by cells."""
        deadline, wish = time.perf_counter() + self.seconds, self.wish
        scout = self.scout(rows, seeds[0])
        finalists = self.scouted(scout, self.maps(rows, seeds[1]), diary)
        diary.done("sample search")
        if wish.penalty:  # what stays the same as rows are added is lambda n
            share = scout.train.total_weight / rows.total_weight
            finalists = [guess._replace(penalty=guess.penalty * share) for guess in finalists]
        if rows.n_rows < FEW_ROWS and not self.learning(rows):
            return finalists[0], self.park.dtype  # the scout has seen it all
        opens = (wish.lengthscale, wish.penalty, self.learning(rows), wish.precision)
        refining = MetricSearch(self.park, rows, *opens, seeds[2], diary.note, deadline)
        return refining.run(finalists)

    def scout(self, rows: ArraySource, seed: int) -> SampleSearch:
        """A sample of the rows, divided."""
        order = np.random.default_rng(seed).permutation(rows.n_rows)[:SCOUT_ROWS]
        at = torch.from_numpy(order).to(rows.X.device)
        few = rows.n_rows < FEW_ROWS
        cut = 0 if few else len(at) // 4
        return SampleSearch(
            ArraySource(*rows.block(at[cut:])),
            None if few else ArraySource(*rows.block(at[:cut])),
            SCOUT_CENTERS if not few else FEW_ROWS,
            self.park.dtype,
            1 if few else self.park.engine.cores,
            PENALTIES
            if self.wish.penalty
            else torch.tensor([self.park.penalty], dtype=torch.float64),
        )

    def scouted(
        self, scout: SampleSearch, maps: list[tuple[FeatureMap, str]], diary: TuningLog
    ) -> list[Candidate]:
        """The best kernels and maps on the sample, the best one first."""
        kernels = self.wish.families
        if not self.wish.lengthscale:
            return diary.guesses("sample search", [scout.weigh(kernels[0], *maps[0])])
        radial = [kernel for kernel in kernels if isinstance(kernel, Radial)]
        found = [scout.search(k, metric, how) for k in radial for metric, how in maps]
        return sorted(diary.guesses("sample search", found), key=error_of)

    def learning(self, rows: ArraySource) -> bool:
        """Whether a metric is learned: there must be rows for each feature."""
        enough = rows.n_rows >= max(FEW_ROWS, 10 * rows.X.shape[1])
        return self.wish.metric == "learned" or (self.wish.learns and enough)

    def maps(self, rows: ArraySource, seed: int) -> list[tuple[FeatureMap, str]]:
        """The maps to start from."""
        wish = self.wish.metric
        if isinstance(wish, FeatureMap):
            return [(wish, "given")]
        name = "standard" if wish in ("learned", "auto") else wish
        first = as_map(name, self.wish.families[0], rows, seed)
        if not self.learning(rows) or rows.X.shape[1] > SCORED_FEATURES:
            return [(first, name)]
        return [
            (first, name),
            (add_normal_scores(first, rows.sample(METRIC_ROWS, seed).X), "scores"),
        ]
