"""Conjugate gradient for several right-hand sides, which says when rounding took over."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Solution(NamedTuple):
    """What conjugate gradient found."""

    x: Tensor  # (r, t)
    n_iter: int
    residual: float  # measured, relative, worst column
    finished: bool  # the recurrence reached the tolerance
    lost: bool  # rounding took over: no way down, or steps on noise


def conjugate_gradient(
    system: Callable[[Tensor], Tensor], b: Tensor, max_iter: int, tol: float
) -> Solution:
    """Solve system(x) = b for each column of b (r, t).

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
        residual -= step * image
        before, norm2 = norm2, residual.square().sum(0)
        direction = residual + torch.where(active, norm2 / before, 0.0) * direction
    expected = float((norm2 / size).max().sqrt())
    measured = float(((b - system(x)).square().sum(0) / size).max().sqrt())
    # Twenty steps that end above the start, or far above what the recurrence promises, were
    # steps on noise. Merely not having arrived is not.
    adrift = not measured <= 10 * max(expected, tol) or (n_iter >= 20 and measured > 1)
    return Solution(x, n_iter, measured, expected <= tol, lost or adrift)
