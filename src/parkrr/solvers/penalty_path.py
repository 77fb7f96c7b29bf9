"""Every penalty at once, from the statistics of a cell and one eigendecomposition.

With K_mm = U U' and U^-1 K'WK U^-T = V diag(h) V', the exact Nystrom estimator of any
penalty is alpha = U^-T V (b / (h + lambda n)), b = V' U^-1 K'WY. So are its training error,
effective dimension and generalised cross-validation score, in O(m) each; and held-out rows
give their errors under all penalties in one product.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from parkrr.data import ArraySource, Source
from parkrr.kernels import Kernel
from parkrr.solvers.factors import Factor
from parkrr.solvers.problem import LocalProblem, Shard, kernel_of_rows, summed
from parkrr.solvers.solvers import statistics_jitter, whitened

PENALTIES = torch.logspace(-11, 0, 34, dtype=torch.float64)  # three a decade


@dataclass(frozen=True)
class PenaltyPath:
    """The exact Nystrom estimators of a cell for all penalties.

    Parameters
    ----------
    problem
        The problem whose penalty is left open.
    basis
        U^-T V: coefficients of the centres for each direction, shape (m, r).
    h
        Weight of the rows along each direction, shape (r,).
    b
        What the target says along it, shape (r, t).
    yy
        Y'WY summed over outputs.
    n
        Total weight of the rows.
    """

    problem: LocalProblem
    basis: Tensor
    h: Tensor
    b: Tensor
    yy: float
    n: float

    def weights(self, penalty: float) -> Tensor:
        """alpha, shape (m, t)."""
        return self.basis @ (self.b / (self.h + penalty * self.n)[:, None])

    def training_error(self, penalties: Tensor) -> Tensor:
        """Weighted mean squared error on the rows of the cell, of all outputs, shape (p,)."""
        ridge = penalties.to(self.h) * self.n
        kept = (self.h[:, None] + 2 * ridge) / (self.h[:, None] + ridge).square()  # (r, p)
        return (self.yy - self.b.square().sum(1) @ kept).clamp_min(0) / self.n

    def effective_dimension(self, penalties: Tensor) -> Tensor:
        """N_q(lambda) of the sketched problem, shape (p,)."""
        return (self.h[:, None] / (self.h[:, None] + penalties.to(self.h) * self.n)).sum(0)

    def gcv(self, penalties: Tensor) -> Tensor:
        """Generalised cross-validation: training error over (1 - N_q / n)^2, shape (p,)."""
        free = (1 - self.effective_dimension(penalties) / self.n).clamp_min(1e-12)
        return self.training_error(penalties) / free.square()

    def errors(self, rows: Source, penalties: Tensor) -> Tensor:
        """Weighted sum of squared errors on other rows under each penalty, shape (p,)."""
        penalties = penalties.to(self.h)
        shrunk = self.b[:, None] / (self.h[:, None] + penalties * self.n)[:, :, None]  # (r, p, t)
        section = self.problem.kernel.against(self.problem.centers)
        total = torch.zeros_like(penalties)
        for X, Y, w in rows.blocks(section.block_rows(rows.n_rows)):
            directions = section(section.lift(X)).double() @ self.basis  # (b, r)
            predicted = torch.einsum("br,rpt->bpt", directions, shrunk)
            squares = (predicted - Y.double()[:, None]).square().sum(2)  # (b, p)
            total += squares.sum(0) if w is None else w.double() @ squares
        return total


def penalty_path(problem: LocalProblem) -> PenaltyPath:
    """The path of a problem, for penalties of at least its own."""
    cell = problem.cell
    stats = summed(problem.shards(), Shard.gram)  # (m, m + t)
    factor = Factor(problem.K_mm(), statistics_jitter(len(problem.centers), problem.penalty))
    H, right = whitened(factor, stats)
    h, V = torch.linalg.eigh(H)
    basis, yy = factor.solve_t(V), float(cell.squares())
    return PenaltyPath(problem, basis, h.clamp_min(0), V.T @ right, yy, cell.total_weight)


def leave_one_out(kernel: Kernel, rows: ArraySource, penalties: Tensor) -> Tensor:
    """Weighted sum of squared errors of each row, left out, under each penalty, shape (p,).

    With C = (W^1/2 K W^1/2 + lambda n)^-1 of all rows, the row's error is (C W^1/2 y) / diag C
    over the root of its weight. One eigendecomposition serves all penalties; for few rows.
    """
    w = torch.ones_like(rows.Y[:, 0]) if rows.w is None else rows.w
    root = w.double().sqrt()[:, None]  # (n, 1)
    h, V = torch.linalg.eigh(root * kernel_of_rows(kernel, rows.X) * root.T)
    shrunk = 1 / (h.clamp_min(0)[:, None] + penalties.to(h) * rows.total_weight)  # (n, p)
    diagonal = V.square() @ shrunk  # (n, p)
    b = V.T @ (root * rows.Y.double())  # (n, t)
    residuals = torch.einsum("nr,rp,rt->npt", V, shrunk, b) / diagonal[:, :, None]
    errors: Tensor = residuals.square().sum((0, 2))
    return errors
