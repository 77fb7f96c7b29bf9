"""Solve a cell from its statistics K'W[K, Y] alone, when its rows are no longer at hand.

A pass over rows on disk and an update of a fitted model both end here. Where rounding of the
statistics leaves no solution, they add jitter, then ridge, which always ends with one.
"""

from itertools import product

import torch
from torch import Tensor

from parkrr.kernels import Kernel
from parkrr.solvers.direct import solve_gram, statistics_jitter
from parkrr.solvers.factors import join_fallbacks
from parkrr.solvers.problem import LeaveOneOutBlock, LocalFit, kernel_of_rows, zero_fit

JITTER_FACTORS = (1.0, 1e2, 1e4, 1e6)
# Where the target has no noise and the penalty is next to zero, rounding leaves nothing, and a
# larger ridge is what the numbers can bear.
RIDGE_FACTOR = 100.0
SAFE_PENALTY = 1e-3  # lambda_q of the last attempt: 1e10 times the rounding of 10^6 rows
LARGEST_JITTER = 0.1
RAISED = "ridge raised"  # how a fallback by a larger ridge begins


def solve_statistics(
    kernel: Kernel,
    Z: Tensor,
    gram: Tensor,
    ridge: float,
    weight: float,
    *,
    left_out: LeaveOneOutBlock | None = None,
    raise_ridge: bool = False,
) -> LocalFit | None:
    """The estimator with centres Z (m, d) from K'W[K, Y] (m, m + t) of rows of total weight n_q.

    `left_out` are rows to predict without themselves; `raise_ridge` tries a larger ridge, lambda n,
    after all jitters. None if rounding left no solution, with `raise_ridge` only if the statistics
    are not finite.
    """
    K_mm = kernel_of_rows(kernel, Z)
    if float(K_mm.diagonal().max()) == 0:
        return zero_fit(Z, gram.shape[1] - len(Z), 0 if left_out is None else len(left_out.Y))
    factors = [1.0]
    while raise_ridge and factors[-1] * ridge < SAFE_PENALTY * weight:
        factors.append(factors[-1] * RIDGE_FACTOR)
    for factor, boost in product(factors, JITTER_FACTORS):
        jitter = boost * statistics_jitter(len(Z), factor * ridge / weight)
        fit = solve_gram(K_mm, gram, factor * ridge, min(LARGEST_JITTER, jitter), left_out)
        if fit is not None and bool(torch.isfinite(fit.weights).all()):
            raised = f"{RAISED} {factor:.0e} times" if factor > 1 else ""
            return fit._replace(dtype=Z.dtype, fallback=join_fallbacks(fit.fallback, raised))
    return None
