"""FALKON: conjugate gradient on the preconditioned local problem, eqs. (12) and (13)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from parkrr.data import FEW_ROWS, join_blocks
from parkrr.solvers.direct import solve_exactly
from parkrr.solvers.factors import Preconditioner, join_fallbacks
from parkrr.solvers.problem import (
    LocalFit,
    LocalProblem,
    Shard,
    leave_one_out_block,
)

# Share of the rows that are left out together, and the tolerance of what then changes.
TOGETHER, CHANGE_TOL = 0.2, 1e-2


class Solution(NamedTuple):
    """What conjugate gradient returns."""

    x: Tensor  # (r, t)
    n_iter: int
    residual: float  # measured, relative, worst column
    finished: bool  # the recurrence reached the tolerance
    lost: bool  # rounding dominates: no descent direction, or steps on noise


def conjugate_gradient(
    system: Callable[[Tensor], Tensor],
    b: Tensor,
    max_iter: int,
    tol: float,
    observe: Callable[[Tensor], object] | None = None,
) -> Solution:
    """Solve system(x) = b for each column of b (r, t); `observe` is called with x at each step.

    Columns share the products and stop counting once they have converged: their step
    becomes zero, so that rounding cannot undo them.
    """
    x = torch.zeros_like(b)
    residual, direction = b.clone(), b.clone()
    norm2 = b.square().sum(0)  # (t,)
    size, goal = norm2.clamp_min(torch.finfo(b.dtype).tiny), tol**2 * norm2
    n_iter, lost = 0, not bool(torch.isfinite(b).all())
    while n_iter < max_iter and bool((active := norm2 > goal).any()):
        image = system(direction)
        n_iter += 1
        curvature = (direction * image).sum(0)  # (t,)
        lost = lost or bool((active & ~(curvature > 0)).any())
        active &= curvature > 0
        if not bool(active.any()):
            break
        step = torch.where(active, norm2 / curvature, 0.0)
        x += step * direction
        if observe is not None:
            observe(x)
        residual -= step * image
        before, norm2 = norm2, residual.square().sum(0)
        direction = residual + torch.where(active, norm2 / before, 0.0) * direction
    expected = float((norm2 / size).max().sqrt())
    measured = float(((b - system(x)).square().sum(0) / size).max().sqrt())
    # Twenty steps that end above the start, or far above what the recurrence promises, were
    # steps on noise. Merely not having arrived is not.
    adrift = not measured <= 10 * max(expected, tol) or (n_iter >= 20 and measured > 1)
    return Solution(x, n_iter, measured, expected <= tol, lost or adrift)


@final
@dataclass(frozen=True)
class Falkon:
    """Conjugate gradient on the preconditioned problem, eqs. (12) and (13)."""

    max_iter: int = 100
    tol: float = 1e-4  # stop when the residual has fallen to this part of the right-hand side

    def solve(self, problem: LocalProblem) -> LocalFit:
        n = problem.cell.total_weight
        weights, threads = problem.center_weights, problem.n_threads
        B = Preconditioner(problem.K_mm(), weights, problem.ridge, n, threads)
        fit, lost = self.iterate(problem, B)
        fallback = fit.fallback
        if fit.dtype != torch.float64 and (lost or problem.is_noisy(fit)):
            # Duplicates make B large, and products in float32 become noise: so nine of ten
            # cells of KEGG at penalty 1e-6, where float64 takes 13 to 38 iterations.
            problem = problem.to(torch.float64)
            fit, _ = self.iterate(problem, B)
            fallback = join_fallbacks(fit.fallback, "float64 products")
        change = self.leave_out(problem, B, fit) if problem.n_left_out else None
        return fit._replace(fallback=fallback, change=change)

    def iterate(self, problem: LocalProblem, B: Preconditioner) -> tuple[LocalFit, bool]:
        """Minimise eq. (12); the fit, and whether rounding got in the way."""
        shards, dtype = problem.shards(), problem.centers.dtype
        b = B.apply_t(problem.sum_shards(shards, Shard.right_side))  # (r, t)
        gradient = gradient_of(problem, shards, B)
        solution = conjugate_gradient(gradient, b, self.max_iter, self.tol)
        # The residual is measured, not that of the recurrence, which may go on falling when
        # products cannot. What rounding leaves of it is not held against the solution.
        least = max(10 * self.tol, float(torch.finfo(dtype).eps) ** 0.5)
        converged = solution.finished and solution.residual <= least
        weights = B.apply(solution.x)
        fit = LocalFit(weights, solution.n_iter, solution.residual, converged, B.fallback, dtype)
        return fit, solution.lost and not converged

    def most_left_out(self, n: int) -> int:
        """Rows that can be left out together in one more solve, or of few each in turn."""
        return n if n < FEW_ROWS else int(n * TOGETHER)

    def leave_out(self, problem: LocalProblem, B: Preconditioner, fit: LocalFit) -> Tensor:
        """The change of predictions of the last h rows when the fit has not seen them, (h, t).

        All of them are left out at once, or some at a time. Without them alpha changes by d, where
        (A - K_H'WK_H) d = K_H'W(Y_H - K_H alpha). The preconditioner is good enough for this.
        """
        cell, n = problem.cell, problem.cell.n_rows
        exact = solve_exactly(problem) if n < FEW_ROWS else None
        if exact is not None and exact.change is not None:
            return exact.change
        h = problem.n_left_out
        ends = np.linspace(n - h, n, math.ceil(h / n / TOGETHER) + 1).round().astype(int)
        changes = []
        for a, b in pairwise(ends.tolist()):
            out = leave_one_out_block(problem.kernel, cell.block(slice(a, b)), problem.centers)
            if b - a == n:
                changes.append(out.K @ fit.weights)  # a fit without rows predicts zero
                continue
            others = join_blocks([cell.block(slice(0, a)), cell.block(slice(b, None))])
            rest = replace(problem, cell=others)
            gradient = gradient_of(rest, rest.shards(), B)
            R = out.Y - out.K @ fit.weights
            right = B.apply_t(out.K.T @ (R if out.w is None else R * out.w[:, None]))
            solution = conjugate_gradient(gradient, right, self.max_iter, CHANGE_TOL)
            changes.append(out.K @ B.apply(solution.x))  # (b - a, t)
        return torch.cat(changes)


def gradient_of(
    problem: LocalProblem, shards: list[Shard], B: Preconditioner
) -> Callable[[Tensor], Tensor]:
    """The gradient of eq. (12) as a function of beta (r, t), up to n."""

    def gradient(beta: Tensor) -> Tensor:
        v = B.apply(beta)
        products = problem.sum_shards(shards, lambda shard: shard.normal(v))
        return B.apply_t(products) + B.ridge(beta)

    return gradient
