"""Rounds of votes: lengthscale, penalty and metric as cells of the final size like them."""

import math
import time
from dataclasses import dataclass
from functools import partial

from parkrr.fit import Park
from parkrr.kernels import Kernel, Radial
from parkrr.scouting import Guess, Note, Scout, error_of, walk
from parkrr.sources import ArraySource
from parkrr.voting import VOTER_ROWS, Poll, Roll, roll

ROUNDS = 4  # until a line of guesses is given up
FIRST_STEPS, LAST_STEPS = (2.0,), (math.sqrt(2.0),)
WORSE = 1.01  # the last two rounds this much above the best, and there will be no better one
FARTHEST = 1e4  # from the lengthscale that a vote starts from


@dataclass(frozen=True)
class Refining:
    """Rounds of votes.

    Parameters
    ----------
    park
        Settings of the cells.
    rows
        Raw rows, targets scaled.
    scout
        The sample.
    lengthscale, penalty, metric
        Whether each is to be chosen.
    seed
        Of voters and judges.
    note
        Keeps what was tried.
    """

    park: Park
    rows: ArraySource
    scout: Scout
    lengthscale: bool
    penalty: bool
    metric: bool
    seed: int
    note: Note

    def run(self, guesses: list[Guess], deadline: float) -> Guess:
        """The best of these and of what follows from them; no round begins past the deadline.

        After every few rounds the worst line of guesses is given up.
        """
        who = roll(self.rows.n_rows, guesses[0].predict, self.seed)
        lines = [[self.vote(guess, who, FIRST_STEPS)] for guess in guesses]
        best = [min(line, key=error_of) for line in lines]
        while lines:
            for line in lines:
                self.extend(line, who, deadline)
            lines = sorted(lines, key=lambda line: min(line, key=error_of).error)
            best += [min(line, key=error_of) for line in lines]
            lines = [line for line in lines[:-1] if not exhausted(line)]
        return self.vote(min(best, key=error_of), who, LAST_STEPS)

    def extend(self, line: list[Guess], who: Roll, deadline: float) -> None:
        """Some rounds more, unless they lead nowhere."""
        for _ in range(ROUNDS):
            if exhausted(line) or not self.may_sharpen(line[-1]) or time.perf_counter() > deadline:
                break
            guess = line[-1]
            guess = self.scout.sharpened(guess, "diagonal" in guess.how)
            line.append(self.vote(guess, who, ()))

    def may_sharpen(self, guess: Guess) -> bool:
        """Whether the scout found that a learned metric helps, and there is more to learn."""
        return self.metric and "matrix" in guess.how and guess.can_sharpen

    def vote(self, guess: Guess, who: Roll, steps: tuple[float, ...]) -> Guess:
        """The guess with the lengthscale and penalty of least error near the anchors."""
        rows = self.rows.map(partial(guess.metric, dtype=self.park.dtype))
        n = rows.total_weight
        size = min(VOTER_ROWS, math.ceil(rows.n_rows / self.park.n_cells))
        share = min(1.0, self.park.n_centers / n)
        voters = who.voters(rows, size, share)
        if not voters:
            return guess
        poll = Poll(voters, self.park.engine, guess.penalty * n, not self.penalty)
        kernel = self.walked(poll, guess, steps)
        gradients = None
        if isinstance(kernel, Radial):
            gradients = guess.metric.pulled_back(poll.gradients(kernel))
        found = guess._replace(
            kernel=kernel,
            error=poll.best.error,
            penalty=poll.best.ridge / n,
            gradients=gradients,
        )
        self.note("vote", found.error, kernel=repr(kernel), metric=guess.how, penalty=found.penalty)
        return found

    def walked(self, poll: Poll, guess: Guess, steps: tuple[float, ...]) -> Kernel:
        """The kernel with the lengthscale that voters like best."""
        kernel = guess.kernel
        if not self.lengthscale or not isinstance(kernel, Radial):
            poll.error(kernel)
            return kernel
        seen: dict[float, float] = {}

        def error(lengthscale: float) -> float:
            if lengthscale not in seen:
                seen[lengthscale] = poll.error(kernel.at(lengthscale))
            return seen[lengthscale]

        start = kernel.lengthscale
        return kernel.at(walk(error, start, steps, (start / FARTHEST, start * FARTHEST)))


def exhausted(line: list[Guess]) -> bool:
    """Whether the last two guesses are clearly worse than the best before them."""
    return len(line) > 2 and min(g.error for g in line[-2:]) > WORSE * min(map(error_of, line))
