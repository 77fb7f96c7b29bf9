"""One cell: lines 8 and 9 of Algorithm 1, as a task that carries all it needs.

A cell also returns some of its rows with leave-one-out predictions, which measure uncertainty and
bound predictions: just outside of the data a kernel model follows the slope of the last rows it has
seen, and a small penalty lets it go far. Two houses of ames were predicted at four times any price
near them. No theory gives the width of a bound, so leave-one-out error chooses it.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import Block, CellRows, draw_indices, join_blocks
from parkrr.errors import CellError, NotFiniteError, ResultError
from parkrr.kernels import Kernel, Radial
from parkrr.park.model import Model, join_shares
from parkrr.partition import CellShares
from parkrr.solvers import Influence, LocalProblem, Solver, solve_reweighted, zero_fit

# Of the range of targets, on each side. A wider one needs a smaller error than all before. Not 0,
# because a fit from disk has the range of a sample.
FACTORS = (0.1, 0.25, 0.5, 1.0, math.inf)
FEWEST_ROWS = 30  # of a cell whose own range is used; others have that of all rows
LIMIT_CENTERS = 2**15  # about, whose predictions a range includes: 734,000 took 14 s
# Of the width of a blend, and leave-one-out rows that choose between them.
BLEND_SHARES, BLEND_ROWS = (1.0, 0.4, 0.0), 20_000
SMALLEST_GAIN = 1e-6  # of the squared error; where no row left out leaves the range, there is none


class CellReport(NamedTuple):
    """How one cell was fitted.

    A tuple, for a model has up to 10^5: to make that many frozen dataclasses took half the time
    of loading a file.
    """

    cell: int  # its number
    rows: int
    weight: float  # of its rows; weights are scaled to mean one over all rows
    centers: int  # Nystrom centres, m_q
    penalty: float  # lambda_q
    solver: str
    why: str  # what decided for the solver
    iterations: int  # of conjugate gradient; 0 for a direct solve
    residual: float  # of conjugate gradient; 0.0 for a direct solve
    converged: bool
    # What numerics needed: nothing, jitter or a spectral cut-off of K_mm, products in float64
    # after those in float32 led nowhere.
    fallback: str
    seconds: float  # wall time
    error: float | None = None  # root mean squared leave-one-out error, None without such rows
    outgrown: bool = False  # whether updates brought four times the rows its centres were drawn for

    @property
    def ridge(self) -> float:
        """lambda_q n_q = lambda n, the same for every cell."""
        return self.penalty * self.weight


def local_penalty(ridge: float, n_q: float) -> float:
    """lambda_q of a cell with rows of weight n_q: lambda n / n_q."""
    return ridge / max(n_q, 1e-300)


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
    n_left_out: int = 0  # rows at the end of the cell, for leave-one-out predictions
    keep_influence: bool = False  # of those rows on the predictions of all others
    left_out_groups: Tensor | None = None  # (n_left_out,)  rows that are left out together
    power: float | None = None  # of the variance of the target along its mean; None for squares
    centers: Tensor | None = None  # (m_q, e)  that are given; None draws them from the rows

    @property
    def name(self) -> str:
        """Of its result in a checkpoint."""
        return f"cell-{self.q:06d}"

    @property
    def size(self) -> int:
        return self.cell.n_rows

    @property
    def work(self) -> int:
        return self.cell.n_rows * self.m_q


class CellResult(NamedTuple):
    """A local estimator, eq. (13), how it was fitted, and rows with leave-one-out predictions."""

    centers: Tensor  # (m_q, e)
    weights: Tensor  # (m_q, t)
    report: CellReport
    rows: Block | None = None  # h of them
    change: Tensor | None = None  # (h, t)  prediction of each less its leave-one-out prediction
    influence: Influence | None = None  # of each on all predictions, if it was to be kept


def fit_cell(task: CellTask) -> CellResult:
    """Lines 8-9: draw the centres of a cell, eq. (11), and solve its local problem, eq. (8)."""
    try:
        return solve_cell(task)
    except ResultError:  # its rows on disk are damaged, and can be made again
        raise
    except Exception as error:
        raise CellError(task.q, task.cell.n_rows, str(error)) from error


def solve_cell(task: CellTask) -> CellResult:
    """As `fit_cell`, without the name of the cell in errors."""
    start = time.perf_counter()
    cell, h = task.cell.load(), task.n_left_out
    # Rows with leave-one-out predictions are centres only if the others are too few.
    others, w, drawn = cell.n_rows - h, None, None
    if task.centers is not None:
        Z = task.centers.to(cell.X)
    else:
        drawn = draw_indices(others if task.m_q <= others else cell.n_rows, task.m_q, task.seed)
        drawn = drawn.to(cell.X.device)
        Z = cell.X[drawn]  # (m_q, e)
        w = None if cell.w is None else cell.w[drawn].double()
    if float(task.kernel.diag(Z).max()) == 0:
        fit = zero_fit(Z, cell.n_outputs, h)
        nothing = fit.weights.new_zeros(len(Z), h)
        fit = fit._replace(influence=Influence(nothing, cell.Y[cell.n_rows - h :].double()))
    else:
        w = None if w is None else w / w.mean()
        ridge = task.lambda_q * cell.total_weight
        keep, groups = task.keep_influence, task.left_out_groups
        problem = LocalProblem(task.kernel, cell, Z, w, ridge, task.n_threads, h, keep, groups)
        if task.power is None:
            fit = task.solver.solve(problem)
        else:
            fit = solve_reweighted(task.solver, problem, task.power, drawn)
        if keep and h and fit.influence is None:
            raise NotFiniteError(
                f"guarantee='jackknife+' needs an exact solution, but rounding left none at "
                f"penalty {task.lambda_q:.1e} of this cell; raise the penalty"
            )
    if not bool(torch.isfinite(fit.weights).all()):
        raise NotFiniteError(
            f"weights must be finite, but overflowed at penalty {task.lambda_q:.1e} of this cell; "
            f"scale the features, or raise the penalty"
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
        fallback=fit.fallback,
        seconds=time.perf_counter() - start,
    )
    result = CellResult(Z.to(fit.dtype), fit.weights, report)
    if not h:
        return result
    last = cell.block(slice(-h, None))
    return result._replace(rows=last, change=fit.change, influence=fit.influence)


class ApartFit(NamedTuple):
    """A model that was fitted without some rows, and these rows as it maps them, (h, e)."""

    model: Model
    X: Tensor


@dataclass(frozen=True)
class LeaveOneOutRows:
    """Rows of the fit with what is needed for their leave-one-out predictions.

    Other cells, which may have a share in a prediction, were not fitted to the row, nor was the
    coarse level, unless there are so few rows that it was fitted to all.
    """

    X: Tensor  # (h, e)  mapped, rows of one cell together
    Y: Tensor  # (h, t)
    w: Tensor | None  # (h,)
    cell: Tensor  # (h,)  in ascending order
    change: Tensor  # (h, t)  prediction of their own cell less that of its fit without the row
    added: Tensor | None = None  # (h,)  rows beyond a random sample, of rare classes
    predicted: Tensor | None = None  # (h, t)  by another model that has not seen these rows
    groups: Tensor | None = None  # (h,)  rows of a group were left out together
    apart: "ApartFit | None" = None  # by which they were predicted

    @property
    def n_groups(self) -> float:
        """Groups that were left out, as many as if all had the same weight."""
        assert self.groups is not None
        _, number = self.groups.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        w = self.weights.new_zeros(int(number.max()) + 1).index_add_(0, number, self.weights)
        return float(w.sum() ** 2 / w.square().sum())

    @property
    def weights(self) -> Tensor:
        """Weights of mean one, shape (h,)."""
        w = self.Y.new_ones(len(self.Y)) if self.w is None else self.w.double()
        return w / w.mean()

    def assign_folds(self, n_folds: int, seed: int, place: Tensor) -> NDArray[np.int64]:
        """A fold for each row at random, (h,); a group is in one fold if there are several.

        Rows without groups have folds by their rank in an order (h,).
        """
        number = place.argsort().cpu().numpy()
        if self.groups is not None and len(self.groups.unique()) > 1:  # type: ignore[no-untyped-call]
            _, number = np.unique(self.groups.cpu().numpy(), return_inverse=True)
        folds: NDArray[np.int64]
        folds = np.random.default_rng(seed).permutation(number.max(initial=0) + 1)[number] % n_folds
        return folds

    def draw_positions(self, count: int, seed: int) -> Tensor:
        """Positions of at most so many rows, in order: a random sample of all rows."""
        if self.added is None:
            return draw_indices(len(self.Y), count, seed).sort().values.to(self.Y.device)
        sample = (~self.added).nonzero()[:, 0]
        kept = draw_indices(len(sample), count, seed).sort().values
        return sample[kept.to(sample.device)]

    def take(self, positions: Tensor) -> "LeaveOneOutRows":
        """The rows at these positions, in order."""
        optional = (self.w, self.added, self.predicted, self.groups)
        w, added, predicted, groups = (None if v is None else v[positions] for v in optional)
        X, Y, cell = self.X[positions], self.Y[positions], self.cell[positions]
        change = self.change[positions]
        return LeaveOneOutRows(X, Y, w, cell, change, added, predicted, groups, self.apart)

    def predictions(self, model: Model, n_threads: int) -> Tensor:
        """The leave-one-out prediction of each row, shape (h, t)."""
        shares = model.cell_shares(self.X)
        return model.bound(self.free_predictions(model, n_threads, shares), shares)

    def free_predictions(self, model: Model, n_threads: int, shares: CellShares) -> Tensor:
        """As `predictions`, without limits."""
        if self.predicted is not None:
            return self.predicted
        linear = model.replace_limits(None, link="identity").evaluate_pieces(self.X, n_threads)
        return model.apply_link(linear - self.own_shares(shares)[:, None] * self.change)

    def own_shares(self, shares: CellShares) -> Tensor:
        """The share of its own cell in the prediction of each row, shape (h,)."""
        row, cell, share = shares  # (p,) each
        own = cell == self.cell[row]
        own_share = self.change.new_zeros(len(self.X))
        return own_share.index_add_(0, row[own], share[own].double())


def join_left_out(model: Model, results: Sequence[CellResult], scale: float) -> LeaveOneOutRows:
    """The leave-one-out rows of all cells, with targets in the units of the user."""
    X, Y, w = join_blocks([cell.rows for cell in results if cell.rows is not None]).block(
        slice(None)
    )
    counts = [0 if cell.rows is None else len(cell.rows.X) for cell in results]
    changes = [cell.change for cell in results if cell.change is not None]
    if model.link == "log":
        Y = Y.double() * model.intercept.exp()
    else:
        Y = Y.double() * scale + model.intercept
    if model.coarse is not None:
        Y = Y + model.coarse(X)
    cell_of = torch.repeat_interleave(torch.tensor(counts, device=X.device))
    return LeaveOneOutRows(X, Y, w, cell_of, torch.cat(changes) * scale)


def add_cell_errors(
    report: list[CellReport], left_out: LeaveOneOutRows, predicted: Tensor
) -> list[CellReport]:
    """The report with the root mean squared error of the leave-one-out rows of each cell."""
    w, Q = left_out.weights, len(report)
    squares = (left_out.Y - predicted).square().mean(1) * w  # (h,)
    rows = w.new_zeros(Q).index_add_(0, left_out.cell, w)
    sums = w.new_zeros(Q).index_add_(0, left_out.cell, squares)
    errors = (sums / rows).sqrt().tolist()
    return [
        cell._replace(error=None if n == 0 else error)
        for cell, n, error in zip(report, rows.tolist(), errors, strict=True)
    ]


# The blend of cells.


def choose_blend(
    model: Model, left_out: LeaveOneOutRows, n_threads: int, seed: int
) -> tuple[Model, list[dict[str, Any]]]:
    """The model with its blend, a narrower one or none, by leave-one-out error; and what was tried.

    Cells do not depend on it. Fits of 8,000 to 50,000 rows of 14 data sets had the least error of
    other rows where leave-one-out error was least, or were within 0.4 % of it. With the width of
    the rule for all of them, satellite had 0.187 instead of 0.177, and four uneven cells of
    calhousing a leave-one-out error of 0.402 instead of 0.373. Wider blends gain 0.1 % at most.
    """
    tried, best, least = [], model, math.inf
    if model.blend.n_blended(len(model.centroids)) == 1 or left_out.predicted is not None:
        return model, []
    some = left_out.take(left_out.draw_positions(BLEND_ROWS, seed))
    w = some.weights[:, None]
    for share in BLEND_SHARES:
        blended = model.narrow_blend(share)
        shares = blended.cell_shares(some.X)
        predicted = some.free_predictions(blended, n_threads, shares)
        error = float((w * (predicted - some.Y).square()).mean())
        name = f"{share:g} of the width" if share else "the nearest cell alone"
        tried.append({"step": "blend", "name": name, "error": math.sqrt(error)})
        if error < least:
            best, least = blended, error
    return best, tried


# Bounds of predictions.


def choose_limits(
    model: Model,
    left_out: LeaveOneOutRows,
    shares: CellShares,
    predicted: Tensor,
    n_threads: int,
) -> tuple[Tensor | None, list[dict[str, Any]]]:
    """Limits (2, Q, t) of the predictions of each cell, None for none, and what was tried.

    The factor is chosen on leave-one-out rows, with their shares of cells and predictions (h, t)
    without limits, where the range of a row is that of the others. The range to which it is applied
    has the predictions at centres, too: they are more.
    """
    # A linear or polynomial kernel is chosen for its slope, beyond the data, too.
    if len(left_out.Y) < FEWEST_ROWS or not isinstance(model.kernel, Radial):
        return None, []
    cell, n_cells = left_out.cell, len(model.centroids)
    seen, others = target_ranges(left_out.Y, cell, n_cells)  # (2, Q, t), (2, h, t)
    own = left_out.own_shares(shares)[:, None]  # (h, 1)
    ranges = join_shares(seen, shares, len(cell)) + own * (others - seen[:, cell])  # (2, h, t)
    w = left_out.weights[:, None]
    tried, best, least = [], FACTORS[0], math.inf
    for factor in FACTORS:
        low, high = widen(ranges, factor)
        error = float((w * (predicted.clamp(low, high) - left_out.Y).square()).mean())
        name = "free" if math.isinf(factor) else f"range + {factor:g} of it on each side"
        tried.append({"step": "extrapolation", "name": name, "error": math.sqrt(error)})
        if error < (1 - SMALLEST_GAIN) * least:
            best, least = factor, error
    if math.isinf(best):
        return None, tried
    most = max(1, LIMIT_CENTERS // n_cells)
    some = [Z[:: max(1, math.ceil(len(Z) / most))].to(left_out.X) for Z in model.centers]
    centers, sizes = torch.cat(some), torch.tensor([len(Z) for Z in some], device=cell.device)
    fitted = model.replace_limits(None).evaluate_pieces(centers, n_threads)  # (m, t)
    Y, both = torch.cat([left_out.Y, fitted]), torch.cat([cell, torch.repeat_interleave(sizes)])
    return widen(target_ranges(Y, both, n_cells)[0], best), tried


def widen(ranges: Tensor, factor: float) -> Tensor:
    """Ranges (2, ..., t), longer by a multiple of their length on each side."""
    low, high = ranges
    # Also a range of length zero is without limits then.
    margin = factor * (high - low) if math.isfinite(factor) else torch.full_like(low, math.inf)
    return torch.stack([low - margin, high + margin])


def target_ranges(Y: Tensor, cell: Tensor, n_cells: int) -> tuple[Tensor, Tensor]:
    """The smallest and largest target of each cell (2, Q, t), and for each row of Y (h, t) those
    of the other rows of its cell (2, h, t).

    A cell with few rows has the range of all rows.
    """
    few = torch.bincount(cell, minlength=n_cells) < FEWEST_ROWS  # (Q,)
    everything = torch.zeros_like(cell)
    ends, others = [], []
    for sign in (-1.0, 1.0):
        own, own_others = largest(sign * Y, cell, n_cells)
        whole, whole_others = largest(sign * Y, everything, 1)
        ends.append(sign * torch.where(few[:, None], whole, own))
        others.append(sign * torch.where(few[cell, None], whole_others, own_others))
    return torch.stack(ends), torch.stack(others)


def largest(Y: Tensor, group: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """The largest of each column of Y (h, t) by group (Q, t), and without each row (h, t)."""
    index = group[:, None].expand_as(Y)
    none = Y.new_full((n_groups, Y.shape[1]), -math.inf)
    first = none.scatter_reduce(0, index, Y, "amax")
    is_first = first[group] == Y
    count = torch.zeros_like(first).scatter_reduce(0, index, is_first.to(Y), "sum")
    second = none.scatter_reduce(0, index, Y.masked_fill(is_first, -math.inf), "amax")
    second = torch.where(count > 1, first, second)
    return first, torch.where(is_first, second[group], first[group])


def include_targets(limits: Tensor, Y: Tensor, cell: Tensor) -> Tensor:
    """Limits (2, Q, t) that let the targets Y (n, t) of new rows through."""
    index = cell[:, None].expand_as(Y)
    low = limits[0].scatter_reduce(0, index, Y, "amin")
    return torch.stack([low, limits[1].scatter_reduce(0, index, Y, "amax")])
