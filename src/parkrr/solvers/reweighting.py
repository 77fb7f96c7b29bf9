"""Losses of targets whose mean is positive, by ridge regression with other weights at each step.

The family of Tweedie: the mean of the target is mu = exp(eta), its variance a multiple of mu^p. The
power p is 1 for counts (Poisson), 2 for amounts whose spread grows with their size (gamma), and
between them for sums of a random number of amounts. A cell minimises

    sum_i s_i d(y_i, mu_i) + lambda n |f|^2,   eta = f(x),

with the unit deviance d and the weights s of the rows. A step of Fisher's scoring, which for p = 1
is one of Newton's method, is the ridge regression of the working response
z = eta + (y - mu) / mu with the weights s mu^(2 - p).
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from parkrr.data import ArraySource
from parkrr.solvers.factors import join_fallbacks
from parkrr.solvers.problem import LocalFit, LocalProblem, Solver

MOST_STEPS = 50
SHORTEST_STEP = 2**-8  # of the way to the next solution
# Of the mean deviance, at which steps end: the last one has then changed eta by 3e-5, root mean
# square, and for counts the next would by the square of that.
SMALLEST_GAIN = 1e-9
FARTHEST = 30.0  # of eta from zero, where targets have mean one: exp(-30) is 1e-13


class Estimate(NamedTuple):
    """The estimator of a cell on the way to the least deviance."""

    weights: Tensor  # (m, 1)
    eta: Tensor  # (n,)  at the rows
    at_centers: Tensor  # (m,)  the same at the centres
    change: Tensor | None  # (h, 1)  of eta at the last rows, when each is left out

    def move(self, goal: "Estimate", share: float) -> "Estimate":
        """Some share of the way to another estimate."""
        return Estimate(
            self.weights.lerp(goal.weights, share),
            self.eta.lerp(goal.eta, share),
            self.at_centers.lerp(goal.at_centers, share),
            goal.change,
        )


def stabilize(rows: ArraySource, power: float) -> ArraySource:
    """The rows with targets whose noise is about the same everywhere: y^(1 - p / 2), or log y.

    What is chosen for them by squared errors suits the loss as well. Of a penalty that holds where
    targets are not small: the slope of the transformed mean along eta is (1 - p / 2) mu^(1 - p / 2)
    and its noise has the factor (1 - p / 2)^2, so that noise over signal is what it is for eta with
    weights mu^(2 - p) of mean one.
    """
    Y = rows.Y.double() / mean_target(rows)
    return replace(rows, Y=Y.log() if power == 2 else Y.pow(1 - power / 2))


def mean_target(rows: ArraySource) -> float:
    """The weighted mean of one target."""
    _, Y, w = rows.block(slice(None))
    y = Y[:, 0].double()
    if w is None:
        return float(y.mean())
    w = w.double() / w.max()
    return float(w @ y / w.sum())


def half_deviance(y: Tensor, eta: Tensor, power: float) -> Tensor:
    """Half of the unit deviance of each row, less what depends on y alone."""
    if power == 1:
        return eta.exp() - y * eta
    if power == 2:
        return y * (-eta).exp() + eta
    return ((2 - power) * eta).exp() / (2 - power) + y * ((1 - power) * eta).exp() / (power - 1)


def solve_reweighted(
    solver: Solver, problem: LocalProblem, power: float, drawn: Tensor | None
) -> LocalFit:
    """The local problem with the deviance of that power instead of squares.

    Its centres are the rows at the positions `drawn` (m,), None if they are no rows. Leave-one-out
    changes of eta are those of the last ridge regression, whose working response would hardly
    change without the row.
    """
    cell, ridge = problem.cell, problem.ridge
    y = cell.Y[:, 0].double()  # (n,)
    s = torch.ones_like(y) if cell.w is None else cell.w.double()

    def objective(estimate: Estimate) -> float:
        norm = estimate.weights[:, 0] @ estimate.at_centers  # |f|^2
        return float(2 * s @ half_deviance(y, estimate.eta, power) + ridge * norm) / float(s.sum())

    # Between each target and their mean: where targets are large, that is above the solution, from
    # where steps are short. From below the first could be as long as y / mu.
    eta = ((y + (float(s @ y / s.sum()) or 1.0)) / 2).log()
    estimate, least, gain = None, math.inf, math.inf
    for _ in range(MOST_STEPS):
        mu = eta.clamp(-FARTHEST, FARTHEST).exp()
        w = s * mu.pow(2 - power)
        z = eta + (y - mu) / mu
        rows = replace(cell, Y=z[:, None].to(cell.Y.dtype), w=w.to(cell.Y.dtype))
        of_centers = None if drawn is None else w[drawn] / w[drawn].mean()
        fit = solver.solve(replace(problem, cell=rows, center_weights=of_centers))
        there = problem.evaluate(fit.weights)[:, 0]  # (n,)
        if drawn is None:
            at_centers = problem.evaluate(fit.weights, problem.centers)[:, 0]
        else:
            at_centers = there[drawn]
        goal = Estimate(fit.weights, there, at_centers, fit.change)
        share, value, following = 1.0, objective(goal), goal
        while estimate is not None and value > least + SMALLEST_GAIN and share > SHORTEST_STEP:
            share /= 2
            following = estimate.move(goal, share)
            value = objective(following)
        gain, estimate, eta, least = least - value, following, following.eta, value
        if abs(gain) <= SMALLEST_GAIN:
            break
    assert estimate is not None
    ended = "" if abs(gain) <= SMALLEST_GAIN else f"{MOST_STEPS} reweighted fits"
    fallback = join_fallbacks(fit.fallback, ended)
    return fit._replace(weights=estimate.weights, change=estimate.change, fallback=fallback)
