"""What the user leaves to us, chosen on held-out rows; every choice keeps what it tried.

First a sample of rows and few centres find the kernel family, the lengthscale and a first
metric (:mod:`parkrr.scouting`). Then cells of the final size vote on lengthscale and penalty
and sharpen the metric (:mod:`parkrr.refining`). Last, a trial of neighbouring cells decides
on blending and on the coarse level (:mod:`parkrr.trial`). Start at :meth:`Tuning.run`.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from parkrr.fit import Park, as_map, with_target_scaled
from parkrr.kernels import Kernel, Radial
from parkrr.metrics import FeatureMap, with_scores
from parkrr.path import PENALTIES
from parkrr.refining import Refining
from parkrr.scouting import FEWEST, Guess, Scout, error_of
from parkrr.sources import ArraySource
from parkrr.trial import choose_levels
from parkrr.voting import VOTER_ROWS

SCOUT_ROWS = 12_000  # three in four to learn from, the others to judge by
SCOUT_CENTERS = 1000
FIRST_PART = 4  # the first scout sees one in four of these, and finds who is worth more
SCORED_FEATURES = 100  # scores double the features; with more than this they are not tried
LEARNING_ROWS = 300  # rows below which a metric is learned only if asked for
ROUNDS = 2  # on the sample; cells go on


@dataclass(frozen=True)
class Wish:
    """What is left open.

    Parameters
    ----------
    families
        Kernels to choose from; their lengthscales count only if `lengthscale` is settled.
    lengthscale, penalty, blend, coarse
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

    @property
    def anything(self) -> bool:
        """Whether there is something to choose."""
        open_metric = self.metric in ("learned", "auto")
        return self.lengthscale or self.penalty or self.blend or self.coarse or open_metric

    @property
    def learns(self) -> bool:
        """Whether the metric may be learned."""
        return self.metric in ("learned", "auto") and self.lengthscale


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
    """

    params: dict[str, Any]
    tried: list[dict[str, object]]
    seconds: dict[str, float]


@dataclass
class Diary:
    """What was tried, with its held-out error, and the seconds each step took."""

    tried: list[dict[str, object]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def note(self, step: str, error: float, **what: object) -> None:
        self.tried.append({"step": step, **what, "error": error})

    def guesses(self, step: str, guesses: list[Guess]) -> list[Guess]:
        """Note what each of them was."""
        for g in guesses:
            self.note(step, g.error, kernel=repr(g.kernel), metric=g.how, penalty=g.penalty)
        return guesses

    def done(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step] = now - self.started
        self.started = now


@dataclass(frozen=True)
class Tuning:
    """Chooses what is left open.

    Parameters
    ----------
    park
        Settings; those left open hold something to start from.
    wish
        What is left open.
    seconds
        After which no further round begins.
    """

    park: Park
    wish: Wish
    seconds: float

    def run(self, rows: ArraySource) -> tuple[Park, Diary]:
        """The settings with every choice made."""
        deadline, diary, wish = time.perf_counter() + self.seconds, Diary(), self.wish
        seeds = np.random.SeedSequence([self.park.seed, 1]).generate_state(3).tolist()
        rows, _, _ = with_target_scaled(rows, self.park.fit_intercept, self.park.dtype)
        scout = self.scout(rows, seeds[0])
        finalists = self.scouted(scout, seeds[1], diary)
        diary.done("scout")
        if wish.penalty:  # what stays the same as rows are added is lambda n
            share = scout.train.total_weight / rows.total_weight
            finalists = [guess._replace(penalty=guess.penalty * share) for guess in finalists]
        best = finalists[0]
        if rows.n_rows > VOTER_ROWS or self.park.n_cells > 1:  # else the scout has seen it all
            opens = (wish.lengthscale, wish.penalty, wish.learns)
            refining = Refining(self.park, rows, scout, *opens, seeds[2], diary.note)
            best = refining.run(finalists, deadline)
        park = replace(self.park, kernel=best.kernel, metric=best.metric, penalty=best.penalty)
        diary.done("vote")
        park = choose_levels(park, rows, wish.blend, wish.coarse, diary.note)
        diary.done("trial")
        return park, diary

    def scout(self, rows: ArraySource, seed: int) -> Scout:
        """A sample of the rows, divided."""
        size = min(SCOUT_ROWS, rows.n_rows)
        chosen = np.random.default_rng(seed).permutation(rows.n_rows)[:size]
        at = torch.from_numpy(chosen).to(rows.X.device)
        cut = size // 4
        judged, kept = (at[:cut], at[cut:]) if cut else (at, at)
        return Scout(
            ArraySource(*rows.block(kept)),
            ArraySource(*rows.block(judged)),
            min(SCOUT_CENTERS, max(FEWEST, (size - cut) // 4)),
            self.park.dtype,
            self.park.engine.cores if size > SCOUT_ROWS // 2 else 1,
            PENALTIES if self.wish.penalty else torch.tensor([self.park.penalty]).double(),
        )

    def scouted(self, scout: Scout, seed: int, diary: Diary) -> list[Guess]:
        """The best kernels and maps on the sample, the best one first."""
        maps, kernels = self.maps(scout.train, seed), self.wish.families
        if not self.wish.lengthscale:
            return diary.guesses("scout", [scout.weigh(kernels[0], *maps[0])])
        small = scout.smaller(FIRST_PART)
        radial = [kernel for kernel in kernels if isinstance(kernel, Radial)]
        entries = [small.search(k, metric, how, None) for k in radial for metric, how in maps]
        learns = self.wish.metric == "learned" or (self.wish.learns and enough(scout.train))
        if learns:
            shapes = [(g, diagonal) for g in entries for diagonal in (False, True)]
            found = [small.rounds(*shape, ROUNDS) for shape in shapes]
            learned = [min(guesses[1:] or guesses, key=error_of) for guesses in found]
            entries = learned if self.wish.metric == "learned" else entries + learned
        entries = sorted(diary.guesses("scout", entries), key=error_of)
        first = {type(guess.kernel): guess for guess in reversed(entries)}  # of each family
        count = 1 if learns else 0
        lines = [scout.rounds(scout.again(g), "diagonal" in g.how, count) for g in first.values()]
        last = [min(diary.guesses("scout again", line), key=error_of) for line in lines]
        return sorted(last, key=error_of)

    def maps(self, train: ArraySource, seed: int) -> list[tuple[FeatureMap, str]]:
        """The maps to start from."""
        wish = self.wish.metric
        if isinstance(wish, FeatureMap):
            return [(wish, "given")]
        name = "standard" if wish in ("learned", "auto") else wish
        first = as_map(name, self.wish.families[0], train, seed)
        if not self.wish.learns or train.X.shape[1] > SCORED_FEATURES:
            return [(first, name)]
        return [(first, name), (with_scores(first, train.X), "scores")]


def enough(rows: ArraySource) -> bool:
    """Whether gradients can be told from noise: so many rows, and some for each feature."""
    return rows.n_rows >= max(LEARNING_ROWS, 10 * rows.X.shape[1])
