"""What a fit would say of a row it had not seen, without fitting again.

A linear fit passes the share l_i of a row's own target on to its prediction, its leverage. With
r_i the row's residual, the fit without it has the residual r_i / (1 - l_i): its prediction of the
row changes by r_i l_i / (1 - l_i). Knows matrices, not rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

LEAST_FREE = 1e-6  # of 1 - l_i, which rounding could make zero


class LeaveOneOutBlock(NamedTuple):
    """Rows of a cell that are each left out in turn, as a Nystrom fit sees them."""

    K: Tensor  # (h, m)
    Y: Tensor  # (h, t)
    w: Tensor | None  # (h,)

    def change(self, weights: Tensor, half: Tensor) -> Tensor:
        """How much predictions change, (h, t).

        With A = K'WK + lambda n K_mm of all rows, l_i = w_i k_i' A^-1 k_i; `half` (r, h) holds
        columns whose squares add up to k_i' A^-1 k_i.
        """
        leverage = half.square().sum(0)  # (h,)
        if self.w is not None:
            leverage = leverage * self.w
        free = (1 - leverage).clamp_min(LEAST_FREE)
        return (self.Y - self.K @ weights) * ((1 - free) / free)[:, None]


def exact_change(L: Tensor, weights: Tensor, noise: Tensor, h: int) -> Tensor:
    """The same for the last h rows of a fit to all rows, eq. (10), shape (h, t).

    With C = (K + D)^-1 = (L L')^-1 the residual is d_i alpha_i and 1 - l_i = d_i c_ii. The last
    block of C is the inverse of that of L L', so a few rows at the end cost next to nothing.
    """
    C = torch.cholesky_inverse(L[-h:, -h:])  # (h, h)
    return weights[-h:] * (1 / C.diagonal() - noise[-h:])[:, None]
