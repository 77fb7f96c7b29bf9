"""Jackknife+: intervals from the predictions of every leave-one-out fit.

With R_i the residual of row i in the fit f_-i without it, the interval at x reaches from the
floor(alpha (h + 1))-th smallest f_-i(x) - |R_i| to the ceil((1 - alpha)(h + 1))-th smallest
f_-i(x) + |R_i|, and holds a new target with probability 1 - 2 alpha or more, whatever the
distribution and however unstable the fit (Barber, Candes, Ramdas and Tibshirani 2021, Theorem 1).
A linear fit needs no refits: f_-i(x) = f(x) - h_i(x) r_i / (1 - l_i).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parkrr.park import Model
from parkrr.solvers import Influence
from parkrr.uncertainty.conformal import ROUNDING

VALUES = 2**22  # predictions of leave-one-out fits in memory at a time


@dataclass(frozen=True)
class JackknifePlus:
    """The leave-one-out fits of a model.

    Parameters
    ----------
    columns
        Of each cell the coefficients h_i(x) = K(x, centres) B, shape (m_q, h_q).
    changes
        r_i / (1 - l_i) of each row in its own cell, shape (h, t), rows of one cell together.
    residuals
        |R_i| of the model, which may blend several cells, shape (h, t).
    """

    columns: list[Tensor]
    changes: Tensor
    residuals: Tensor

    @property
    def n(self) -> int:
        """Number of leave-one-out fits."""
        return len(self.residuals)

    @property
    def largest_coverage(self) -> float:
        """The largest 1 - alpha at which intervals are finite."""
        return 1 - 1 / (self.n + 1)

    def end_offsets(self, model: Model, X: Tensor, coverage: float, leave_out: bool) -> Tensor:
        """The ends of intervals less the predictions, at mapped rows X (n, e), (n, t, 2).

        With `leave_out`, of a fit without the row, whose other leave-one-out fits are not known:
        those of the plain jackknife.
        """
        if leave_out:
            size = self.residuals.kthvalue(self.upper_rank(coverage), 0).values  # (t,)
            return torch.stack([-size, size], 1).expand(len(X), -1, -1)
        rows = max(1, VALUES // max(1, self.n * self.residuals.shape[1]))
        return torch.cat(
            [self.block_offsets(model, part, coverage) for part in torch.split(X, rows)]
        )

    def upper_rank(self, coverage: float) -> int:
        """ceil((1 - alpha)(h + 1))."""
        return math.ceil(coverage * (1 - ROUNDING) * (self.n + 1))

    def block_offsets(self, model: Model, X: Tensor, coverage: float) -> Tensor:
        """As `end_offsets`, of all rows at once."""
        upper_rank = self.upper_rank(coverage)
        lower_rank = self.n + 1 - upper_rank  # floor(alpha (h + 1))
        moved = self.influence(model, X)[:, :, None] * self.changes  # (n, h, t)
        lower = (-moved - self.residuals).kthvalue(lower_rank, 1).values
        upper = (-moved + self.residuals).kthvalue(upper_rank, 1).values
        return torch.stack([lower, upper], 2)

    def influence(self, model: Model, X: Tensor) -> Tensor:
        """h_i(x) at mapped rows X (n, e), shape (n, h): zero for rows of other cells."""
        H = X.new_zeros(len(X), self.n, dtype=torch.float64)
        row, cell, share = model.cell_shares(X)  # (p,) each
        ends = torch.tensor([B.shape[1] for B in self.columns]).cumsum(0).tolist()
        for q in set(cell.tolist()):
            B, mine = self.columns[q], cell == q
            K = model.kernel(X[row[mine]].double(), model.centers[q].double())  # (b, m_q)
            own = slice(ends[q] - B.shape[1], ends[q])
            H[row[mine], own] = share[mine].double()[:, None] * (K @ B.double())
        return H


def keep_leave_one_out_fits(influence: Sequence[Influence], R: Tensor) -> JackknifePlus:
    """The fits without each row, from the influence of rows in each cell and residuals R (h, t)."""
    columns = [own.columns.double().contiguous() for own in influence]  # as in a model file
    return JackknifePlus(columns, torch.cat([own.changes for own in influence]), R.abs())
