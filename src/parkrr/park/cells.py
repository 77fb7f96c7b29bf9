"""One cell: lines 8 and 9 of Algorithm 1, as a task that carries all it needs."""

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from parkrr.data import ArraySource, Block, CellRows, draw_indices
from parkrr.errors import CellError, NotFiniteError
from parkrr.kernels import Kernel
from parkrr.solvers import LocalFit, LocalProblem, Solver, zero_fit


@dataclass(frozen=True)
class CellReport:
    """How one cell was fitted.

    Parameters
    ----------
    cell
        Its number.
    rows, weight
        Rows, and the sum of their weights, which are scaled to mean one over all rows.
    centers
        Nystrom centres, m_q.
    penalty
        lambda_q.
    solver, why
        The solver, and what decided for it.
    iterations, residual, converged
        Of conjugate gradient; 0 and 0.0 for a direct solve.
    rescue
        What numerics needed: nothing, jitter or a spectral cut-off of K_mm, products in
        float64 after those in float32 led nowhere.
    seconds
        Wall time of the cell.
    error
        Root mean squared error of its rows that were each left out, None if there were none.
    outgrown
        Whether updates have brought it four times the rows that its centres were drawn for.
    """

    cell: int
    rows: int
    weight: float
    centers: int
    penalty: float
    solver: str
    why: str
    iterations: int
    residual: float
    converged: bool
    rescue: str
    seconds: float
    error: float | None = None
    outgrown: bool = False

    def judged(self, error: float | None) -> "CellReport":
        """The same with that error."""
        return replace(self, error=error)


@dataclass(frozen=True)
class CellTask:
    """Everything the fit of one cell needs; nothing is read from anywhere else."""

    q: int
    cell: CellRows
    kernel: Kernel
    solver: Solver
    why: str
    m_q: int
    lambda_q: float
    seed: int
    n_threads: int
    n_left_out: int = 0

    @property
    def work(self) -> int:
        return self.cell.n_rows * self.m_q


class CellResult(NamedTuple):
    """A local estimator, eq. (13), how it was found, and rows that it was asked to leave out."""

    centers: Tensor  # (m_q, d)
    weights: Tensor  # (m_q, t)
    report: CellReport
    rows: Block | None = None  # h of them
    change: Tensor | None = None  # (h, t)  of predictions of each, left out


def fit_cell(task: CellTask) -> CellResult:
    """Lines 8-9: draw the centres of a cell, eq. (11), and solve its local problem, eq. (8)."""
    try:
        return fit_loaded_cell(task)
    except Exception as error:
        raise CellError(task.q, task.cell.n_rows, str(error)) from error


def fit_loaded_cell(task: CellTask) -> CellResult:
    """As `fit_cell`, without naming the cell when something fails."""
    start = time.perf_counter()
    cell = task.cell.load()
    fit, centers = solved(task, cell)
    if not bool(torch.isfinite(fit.weights).all()):
        raise NotFiniteError(
            f"weights must be finite, but overflowed at penalty {task.lambda_q:.1e} of this "
            f"cell; scale the features, or raise the penalty"
        )
    report = CellReport(
        cell=task.q,
        rows=cell.n_rows,
        weight=cell.total_weight,
        centers=task.m_q,
        penalty=task.lambda_q,
        solver=type(task.solver).__name__.lower(),
        why=task.why,
        iterations=fit.n_iter,
        residual=fit.residual,
        converged=fit.converged,
        rescue=fit.rescue,
        seconds=time.perf_counter() - start,
    )
    found = CellResult(centers.to(fit.dtype), fit.weights, report)
    if not task.n_left_out:
        return found
    return found._replace(rows=cell.block(slice(-task.n_left_out, None)), change=fit.change)


def solved(task: CellTask, cell: ArraySource) -> tuple[LocalFit, Tensor]:
    """The local estimator, and its centres (m_q, d), which rows left out are not if others do."""
    others = cell.n_rows - task.n_left_out
    drawn = draw_indices(others if task.m_q <= others else cell.n_rows, task.m_q, task.seed)
    drawn = drawn.to(cell.X.device)
    centers = cell.X[drawn]  # (m_q, d)
    if float(task.kernel.diag(centers).max()) == 0:
        return zero_fit(centers, cell.n_outputs, task.n_left_out), centers
    w = None if cell.w is None else cell.w[drawn].double()
    w = None if w is None else w / w.mean()
    ridge = task.lambda_q * cell.total_weight
    threads, left_out = task.n_threads, task.n_left_out
    problem = LocalProblem(task.kernel, cell, centers, w, ridge, threads, left_out)
    return task.solver.solve(problem), centers
