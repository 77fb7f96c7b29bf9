"""Kernel, penalty and metric as small cells like them.

Descents (:mod:`.metric_descent`) of several kernels and shapes of the matrix race; at last
cells vote (:mod:`.cell_comparison`) on those that came far and on what the scout found. Judges of
the votes are kept from the descents.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch

from parkrr.data import ArraySource
from parkrr.kernels import Kernel, Radial
from parkrr.park import FitSettings
from parkrr.tuning.cell_comparison import VOTER_ROWS, Best, Poll, Roll, roll
from parkrr.tuning.metric_descent import Descent
from parkrr.tuning.sample_search import Candidate, Note, best_lengthscale, error_of

SHARPENED = 2  # times, before the descent proper
WARM_STEPS = 8  # before each sharpening
HEAT = 16  # steps, after which the best kernel of each shape goes on
DOUBT = 1.15  # errors of descents less than this apart may be in either order
# Cells vote on those from 10,000 rows on: with fewer, rows that judge are too few, and log-loss of
# digits held out became 0.031 and 0.068 where the balls had 0.025 and 0.023. They do not above
# 200,000, for a vote divides all rows, and descents had too little time left.
VOTED_ROWS = (10_000, 200_000)
LAST_RUN = (40, 200)  # fewest and most steps of these, falling to zero
ROWS_A_STEP = 40  # so many rows for each of them, in between
MOST_VALUES = 20_000_000  # of columns to find neighbours among: 160 MB, twice with scores
FULL_COLUMNS = 100  # with more, only weights are learned
SMALLEST_RIDGE = 1e-3  # to start from: below, slopes say little
FIRST_STEPS, LAST_STEPS = (2.0,), (math.sqrt(2.0),)
LOST = 1.005  # an error this much larger in float32, and the fit is in float64
FARTHEST = 1e4  # from the lengthscale that a vote starts from


class DescentCandidate(NamedTuple):
    """A guess on its way."""

    guess: Candidate
    shape: str  # of the matrix, "full" or "diagonal"
    descent: Descent


@dataclass(frozen=True)
class MetricSearch:
    """Descents and votes.

    Parameters
    ----------
    park
        Settings of the cells.
    rows
        Raw rows, targets scaled.
    lengthscale, penalty, metric, precision
        Whether each is to be chosen.
    seed
        Of voters, judges and anchors.
    note
        Keeps what was tried.
    deadline
        After which descents stop; votes go on.
    """

    park: FitSettings
    rows: ArraySource
    lengthscale: bool
    penalty: bool
    metric: bool
    precision: bool
    seed: int
    note: Note
    deadline: float

    def run(self, guesses: list[Candidate]) -> tuple[Candidate, torch.dtype]:
        """The best of these and of what follows from them, and in what it should be fitted."""
        who = roll(self.rows, guesses[0].predict, self.seed, self.park.seed)
        found = [self.vote(guesses[0], who, () if self.metric else FIRST_STEPS)]
        if self.metric:
            found += [self.vote(guess, who, ()) for guess in self.raced(guesses, who)]
        best = self.vote(min(found, key=error_of), who, LAST_STEPS)
        if self.park.dtype == torch.float64 or not self.precision:
            return best, self.park.dtype
        kept = replace(self, lengthscale=False, penalty=False).vote(best, who, (), torch.float32)
        return best, torch.float32 if kept.error <= LOST * best.error else torch.float64

    def raced(self, guesses: list[Candidate], who: Roll) -> list[Candidate]:
        """What descents make of these."""
        runners = self.runners(guesses, who)
        for runner in runners:
            for _ in range(SHARPENED):
                runner.descent.advance(WARM_STEPS, falling=False, deadline=self.deadline)
                runner.descent.sharpen(deadline=self.deadline)
            runner.descent.advance(HEAT, falling=False, deadline=self.deadline)
            if runner.descent.steps:
                self.note_race(runner)
        best = self.leaders([runner for runner in runners if runner.descent.steps], who)
        steps = min(max(self.rows.n_rows // ROWS_A_STEP, LAST_RUN[0]), LAST_RUN[1])
        for runner in best:
            runner.descent.advance(steps, falling=True, deadline=self.deadline)
            self.note_race(runner)
        return [self.reached(runner) for runner in best]

    def leaders(self, runners: list[DescentCandidate], who: Roll) -> list[DescentCandidate]:
        """The best kernel of each shape, for diagonals start slowly.

        Descents have errors on balls of their own. Where these differ little, cells vote, which
        changed three of ten fits: HIGGS from 0.2045 to 0.2024, pol from 0.0552 to 0.0545 and
        elevators from 0.3332 to 0.3320, on rows held out of training rows.
        """
        found, ranked = [], sorted(runners, key=lambda runner: runner.descent.error)
        for shape in dict.fromkeys(runner.shape for runner in reversed(ranked)):  # slowest first
            own = [runner for runner in ranked if runner.shape == shape]
            least = own[0].descent.error
            close = [runner for runner in own if runner.descent.error <= DOUBT * least]
            if len(close) > 1 and VOTED_ROWS[0] <= self.rows.n_rows <= VOTED_ROWS[1]:
                close.sort(key=lambda runner: self.vote(self.reached(runner), who, ()).error)
            found.append(close[0])
        return found

    def runners(self, guesses: list[Candidate], who: Roll) -> list[DescentCandidate]:
        """Weights for all columns and scores, matrices for the columns alone."""
        kept = (~who.held_out).nonzero()[:, 0]
        if len(kept) < 2:  # one to fit, one to judge
            return []
        scores = any(guess.metric.knots is not None for guess in guesses)
        most = MOST_VALUES // max(guess.metric.width(self.rows.X.shape[1]) for guess in guesses)
        rows = replace(self.rows, index=kept).sample(most, self.seed)
        columns: dict[str, ArraySource] = {}
        found = []
        for guess in guesses:
            if guess.how not in columns:
                see = partial(guess.metric.columns, dtype=torch.float64)
                columns[guess.how] = rows.map(see).load()
            for shape in ("diagonal", "full"):
                if self.suits(guess, shape, scores):
                    found.append(self.runner(guess, shape, columns[guess.how]))
        return found

    def suits(self, guess: Candidate, shape: str, scores: bool) -> bool:
        """Whether that shape is tried on this guess's columns."""
        if shape == "diagonal":
            return guess.metric.knots is not None or not scores
        return guess.metric.knots is None and self.rows.X.shape[1] <= FULL_COLUMNS

    def runner(self, guess: Candidate, shape: str, rows: ArraySource) -> DescentCandidate:
        """The guess at the start."""
        assert isinstance(guess.kernel, Radial)
        matrix = torch.ones(rows.X.shape[1], dtype=torch.float64, device=rows.X.device)
        ridge = guess.penalty * self.rows.total_weight
        return DescentCandidate(
            guess,
            shape,
            Descent(
                rows,
                guess.kernel,
                torch.diag(matrix) if shape == "full" else matrix,
                max(ridge, SMALLEST_RIDGE) if self.penalty else ridge,
                not self.penalty,
                self.park.engine,
                self.seed,
            ),
        )

    def reached(self, runner: DescentCandidate) -> Candidate:
        """Where a descent is, to be voted on."""
        guess, descent = runner.guess, runner.descent
        return guess._replace(
            metric=guess.metric.with_matrix(descent.matrix),
            penalty=descent.ridge / self.rows.total_weight,
            how=f"{guess.how}, {runner.shape} matrix, step {len(descent.steps)}",
        )

    def note_race(self, runner: DescentCandidate) -> None:
        """Keep how far it is."""
        self.note("metric descent", runner.descent.error, **self.reached(runner).what)

    def vote(
        self,
        guess: Candidate,
        who: Roll,
        steps: tuple[float, ...],
        dtype: torch.dtype = torch.float64,
    ) -> Candidate:
        """The guess with the lengthscale and penalty of least error in cells."""
        rows = self.rows.map(partial(guess.metric, dtype=dtype))
        n = rows.total_weight
        park = replace(
            self.park,
            kernel=guess.kernel,
            n_cells=self.n_voters,
            centroids="uniform",
            n_candidates=1,
        )
        _, cells = park.divide(rows, park.place(rows, self.seed))
        voters = who.voters(cells, min(1.0, self.park.n_centers / n))
        if not voters:
            return guess
        poll = Poll(voters, self.park.engine, guess.penalty * n, not self.penalty)
        kernel, best = self.walked(poll, guess, steps)
        found = guess._replace(kernel=kernel, error=best.error)
        if self.penalty:
            found = found._replace(penalty=best.ridge / n)
        self.note("comparison on cells", found.error, **found.what, precision=str(dtype))
        return found

    @property
    def n_voters(self) -> int:
        """Cells of the size of a voter, or as many as there will be."""
        return max(self.park.n_cells, math.ceil(self.rows.n_rows / VOTER_ROWS))

    def walked(self, poll: Poll, guess: Candidate, steps: tuple[float, ...]) -> tuple[Kernel, Best]:
        """The kernel with the lengthscale that voters like best, and what they say of it."""
        kernel = guess.kernel
        if not self.lengthscale or not isinstance(kernel, Radial):
            return kernel, poll.best(kernel)
        start = kernel.lengthscale
        ends = (start / FARTHEST, start * FARTHEST)
        found, best = best_lengthscale(
            lambda at: poll.best(kernel.with_lengthscale(at)), start, steps, ends
        )
        return kernel.with_lengthscale(found), best
