"""Lengthscales, penalties and metrics compared at the size and density of a cell.

Small cells vote: fitted to most of their rows and judged on the others. So what they choose
suits cells and not the whole. They are cells and not balls around anchors, for a row is in
one cell whatever the map: balls of one map held other rows than those of another, and flights
chose the worse of two maps by 0.75 to 0.87. Errors are divided by those of one model of a
sample on the same rows, which matters where not all cells vote.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import ArraySource, draw_indices, validation_positions
from parkrr.kernels import Kernel
from parkrr.runtime import Engine
from parkrr.solvers import (
    LocalProblem,
    add_to_diagonal,
    cholesky_or_nan,
    kernel_of_rows,
    penalty_path,
)

VOTERS = 64
VOTER_ROWS = 800  # on average; the final cells may be larger, but are as dense
MOST_ROWS = 4 * VOTER_ROWS  # of a cell that cannot be split, such as copies of one row
RIDGES = (1e-7, 1e7)  # beyond which nothing changes: K(x, x) is 1
WINDOW = (10**-0.5, 1.0, 10**0.5)  # ridges around the last best


@dataclass(frozen=True)
class ComparisonCell:
    """A small cell, its rows divided into those to fit and those to judge by.

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

    def vote(self, kernel: Kernel, ridges: list[float]) -> Tensor:
        """Squared errors under each ridge lambda n, shape (p,)."""
        if len(self.centers) == self.train.n_rows:
            return self.exact(kernel, ridges)
        path = penalty_path(LocalProblem(kernel, self.train, self.centers, None, min(ridges)))
        lambdas = torch.tensor(ridges, dtype=torch.float64) / self.train.total_weight
        return path.errors(self.held_out, lambdas)

    def exact(self, kernel: Kernel, ridges: list[float]) -> Tensor:
        """eq. (10): a Cholesky factor takes a tenth of the time of all eigenvectors."""
        K_n = kernel_of_rows(kernel, self.train.X)
        K_v = kernel(self.held_out.X, self.train.X).double()
        Y, w = self.train.Y.double(), self.train.w
        w = None if w is None else w.double()
        errors = []
        for ridge in ridges:
            L = cholesky_or_nan(add_to_diagonal(K_n, ridge if w is None else ridge / w))
            alpha = torch.cholesky_solve(Y, L)
            errors.append(self.held_out.squared_error(K_v @ alpha).nan_to_num(math.inf))
        return torch.stack(errors)


@dataclass(frozen=True)
class Roll:
    """Who judges, whatever the metric, and what errors are compared with.

    Parameters
    ----------
    held_out
        Whether a row judges, shape (n,).
    baseline
        From raw rows (n, d) to predictions (n, t).
    seed
        Of the cells that vote.
    """

    held_out: Tensor
    baseline: Callable[[Tensor], Tensor]
    seed: int

    def voters(self, cells: list[ArraySource], center_share: float) -> list[ComparisonCell]:
        """Some of these cells, or all."""
        chosen = np.random.default_rng(self.seed).permutation(len(cells))[:VOTERS]
        found = [self.voter(cells[q], center_share) for q in sorted(chosen)]
        return [voter for voter in found if voter is not None]

    def voter(self, cell: ArraySource, center_share: float) -> ComparisonCell | None:
        """The cell as a voter, if there are some rows to fit and some to judge by."""
        assert cell.index is not None
        at = cell.index[draw_indices(cell.n_rows, MOST_ROWS, self.seed).to(cell.index.device)]
        cell, judges = replace(cell, index=at), self.held_out[at]
        if bool(judges.all()) or not bool(judges.any()):
            return None
        held_out, train = ArraySource(*cell.block(judges)), ArraySource(*cell.block(~judges))
        m = max(1, math.ceil(center_share * train.n_rows))
        Z = train.X if m >= train.n_rows else train.X[draw_indices(train.n_rows, m, m)]
        predicted = self.baseline(cell.X[at[judges]])
        return ComparisonCell(train, held_out, Z, float(held_out.squared_error(predicted)))


def roll(rows: ArraySource, baseline: Callable[[Tensor], Tensor], seed: int, judging: int) -> Roll:
    """The judges among rows in canonical order, by a seed of their own."""
    return Roll(validation_positions(rows.n_rows, judging).to(rows.X.device), baseline, seed)


class Best(NamedTuple):
    """The least error and its ridge lambda n."""

    error: float
    ridge: float


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

    def __init__(
        self, voters: list[ComparisonCell], engine: Engine, ridge: float, fixed: bool
    ) -> None:
        self.voters, self.engine, self.fixed = voters, engine, fixed
        self.ridge = ridge if fixed else min(max(ridge, RIDGES[0]), RIDGES[1])
        self.baseline = max(sum(voter.baseline for voter in voters), 1e-300)

    def best(self, kernel: Kernel) -> Best:
        """The least error over ridges around the last best one, which follows."""
        if self.fixed:
            return self.count(kernel, [self.ridge])
        found = self.count(kernel, [self.ridge * factor for factor in WINDOW])
        step = found.ridge / self.ridge
        while not 0.5 < step < 2 and RIDGES[0] < found.ridge < RIDGES[1]:  # it lies at an end
            there = self.count(kernel, [found.ridge * step])
            if there.error >= found.error:
                break
            found = there
        self.ridge = found.ridge
        return found

    def count(self, kernel: Kernel, ridges: list[float]) -> Best:
        """Everybody's vote: the least error over these ridges."""
        vote = partial(ComparisonCell.vote, kernel=kernel, ridges=ridges)
        errors = reduce(torch.add, self.engine.map(vote, self.voters)) / self.baseline
        at = int(errors.argmin())
        return Best(float(errors[at]), ridges[at])
