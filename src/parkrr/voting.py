"""Lengthscale, penalty and metric at the size and density of a cell.

The rows nearest to some anchors vote, as cells would: fitted to most of their rows and judged
on the others. So what they choose suits cells and not the whole. Their gradients sharpen the
metric, and with it who is near: a round. Errors are divided by those of one model of a sample
on the same rows, because these differ a little from round to round.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.engine import LocalEngine
from parkrr.factors import plus
from parkrr.gradients import gradient_products
from parkrr.kernels import Kernel, Radial
from parkrr.lifting import InnerSection
from parkrr.path import penalty_path
from parkrr.solvers import LocalProblem, kernel_of_rows
from parkrr.sources import ArraySource, draw

HELD_OUT = 0.2  # share of a voter's rows by which it is judged
VOTERS = 12
VOTER_ROWS = 1500  # the final cells may be larger, but are as dense
BLOCK_ROWS = 2**16
GRADIENT_ROWS = 500  # of a voter
RIDGES = (1e-7, 1e7)  # beyond which nothing changes: K(x, x) is 1
WINDOW = (10**-0.5, 1.0, 10**0.5)  # ridges around the last best


@dataclass(frozen=True)
class Vote:
    """Squared errors under each ridge (p,), and for each coefficients (m, t)."""

    errors: Tensor
    weights: list[Tensor]


@dataclass(frozen=True)
class Voter:
    """Rows near an anchor, divided into those to fit and those to judge by.

    Parameters
    ----------
    train, held_out
        Mapped rows.
    centers
        Shape (m, e): all rows of `train`, or some of them.
    baseline
        Sum of squared errors of the baseline on the held-out rows.
    """

    train: ArraySource
    held_out: ArraySource
    centers: Tensor
    baseline: float

    def vote(self, kernel: Kernel, ridges: list[float]) -> Vote:
        """How the cell does under each ridge lambda n."""
        if len(self.centers) == self.train.n_rows:
            return self.exact(kernel, ridges)
        path = penalty_path(LocalProblem(kernel, self.train, self.centers, None, min(ridges)))
        lambdas = torch.tensor(ridges, dtype=torch.float64) / self.train.total_weight
        weights = [path.weights(float(penalty)) for penalty in lambdas]
        return Vote(path.errors(self.held_out, lambdas), weights)

    def exact(self, kernel: Kernel, ridges: list[float]) -> Vote:
        """eq. (10): a Cholesky factor takes a tenth of the time of all eigenvectors."""
        K_n = kernel_of_rows(kernel, self.train.X)
        K_v = kernel(self.held_out.X, self.train.X).double()
        Y, w = self.train.Y.double(), self.train.w
        weights, errors = [], []
        for ridge in ridges:
            L, info = torch.linalg.cholesky_ex(plus(K_n, ridge if w is None else ridge / w))
            alpha = torch.cholesky_solve(Y, L) if int(info) == 0 else torch.full_like(Y, math.nan)
            weights.append(alpha)
            errors.append(self.held_out.squares(K_v @ alpha).nan_to_num(math.inf))
        return Vote(torch.stack(errors), weights)

    def gradients(self, kernel: Radial, weights: Tensor) -> Tensor:
        """Gradient outer products (e, e) summed over the cell's rows, estimated on some."""
        X = self.train.X[:GRADIENT_ROWS]
        M = gradient_products(kernel, weights, self.centers, X)
        return M * (self.train.n_rows / len(X))


@dataclass(frozen=True)
class Roll:
    """Who votes and who judges, whatever the metric: so that rounds can be compared.

    Parameters
    ----------
    anchors
        Rows around which others vote, shape (a,).
    held_out
        Whether a row judges, shape (n,).
    baseline
        From raw rows (n, d) to the predictions (n, t) that errors are compared with.
    """

    anchors: Tensor
    held_out: Tensor
    baseline: Callable[[Tensor], Tensor]

    def voters(self, rows: ArraySource, size: int, center_share: float) -> list[Voter]:
        """The `size` rows nearest to each of the anchors, as dense as a cell's."""
        section = InnerSection(rows.block(self.anchors).X, norms=True)
        blocks = rows.blocks(BLOCK_ROWS)
        D = torch.cat([section(section.lift(block.X)) for block in blocks])  # (n, a)
        near = D.topk(min(size, rows.n_rows), dim=0, largest=False).indices  # (size, a)
        found = [self.voter(rows, index, center_share) for index in near.T]
        return [voter for voter in found if voter is not None]

    def voter(self, rows: ArraySource, index: Tensor, center_share: float) -> Voter | None:
        """Those rows as a voter, if there are some to fit and some to judge by."""
        judges = self.held_out[index]
        if bool(judges.all()) or not bool(judges.any()):
            return None
        judged, kept = index[judges], index[~judges]
        held_out, train = ArraySource(*rows.block(judged)), ArraySource(*rows.block(kept))
        m = max(1, math.ceil(center_share * train.n_rows))
        Z = train.X if m >= train.n_rows else train.X[draw(train.n_rows, m, m)]
        return Voter(train, held_out, Z, float(held_out.squares(self.baseline(rows.X[judged]))))


def roll(n: int, baseline: Callable[[Tensor], Tensor], seed: int) -> Roll:
    """The voters and judges among n rows."""
    rng = np.random.default_rng(seed)
    count = min(VOTERS, max(1, n // VOTER_ROWS))
    anchors = torch.from_numpy(rng.permutation(n)[:count])
    return Roll(anchors, torch.from_numpy(rng.random(n) < HELD_OUT), baseline)


class Best(NamedTuple):
    """The least error so far, its ridge lambda n, and every voter's coefficients (m, t)."""

    error: float
    ridge: float
    weights: list[Tensor]


class Poll:
    """Voters behind one map, and what they have said.

    Parameters
    ----------
    voters
        Who votes.
    engine
        Runs them.
    ridge
        lambda n to start from.
    fixed
        Whether that is the only one allowed.
    """

    def __init__(self, voters: list[Voter], engine: LocalEngine, ridge: float, fixed: bool) -> None:
        self.voters, self.engine, self.fixed = voters, engine, fixed
        self.ridge = ridge if fixed else min(max(ridge, RIDGES[0]), RIDGES[1])
        self.baseline = max(sum(voter.baseline for voter in voters), 1e-300)
        self.best = Best(math.inf, ridge, [])

    def error(self, kernel: Kernel) -> float:
        """The least error over ridges around the last best one, which follows."""
        if self.fixed:
            return self.count(kernel, [self.ridge])[0]
        error, ridge = self.count(kernel, [self.ridge * factor for factor in WINDOW])
        step = ridge / self.ridge
        while not 0.5 < step < 2 and RIDGES[0] < ridge < RIDGES[1]:  # the least lies at an end
            there, at = self.count(kernel, [ridge * step])
            if there >= error:
                break
            error, ridge = there, at
        self.ridge = ridge
        return error

    def count(self, kernel: Kernel, ridges: list[float]) -> tuple[float, float]:
        """Everybody's vote: the least error over these ridges, and that ridge."""
        vote = partial(Voter.vote, kernel=kernel, ridges=ridges)
        votes = dict(self.engine.run(vote, self.voters))
        errors = reduce(torch.add, [votes[k].errors for k in range(len(votes))]) / self.baseline
        at = int(errors.argmin())
        if float(errors[at]) < self.best.error or not self.best.weights:
            weights = [votes[k].weights[at] for k in range(len(votes))]
            self.best = Best(float(errors[at]), ridges[at], weights)
        return float(errors[at]), ridges[at]

    def gradients(self, kernel: Radial) -> Tensor:
        """The average gradient outer product of the best fits of all voters, (e, e)."""
        tasks = list(zip(self.voters, self.best.weights, strict=True))
        sums = dict(self.engine.run(partial(slopes, kernel), tasks))
        n = sum(voter.train.n_rows for voter in self.voters)
        return reduce(torch.add, [sums[k] for k in range(len(sums))]) / n


def slopes(kernel: Radial, task: tuple[Voter, Tensor]) -> Tensor:
    """One voter's gradient outer products."""
    return task[0].gradients(kernel, task[1])
