"""Errors by penalty, from one eigendecomposition, and errors by iteration of FALKON."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parkrr.data import ArraySource
from parkrr.errors import ParameterError, check_integer
from parkrr.inspection.diagnostics import FittedEstimator
from parkrr.inspection.gaussian_process import assign_rows
from parkrr.kernels import Kernel
from parkrr.solvers import PENALTIES, LocalProblem, kernel_of_rows
from parkrr.solvers.factors import Preconditioner
from parkrr.solvers.falkon import Shard, conjugate_gradient, gradient_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PenaltyPath:
    """Errors under each penalty; see :func:`penalty_path`.

    Parameters
    ----------
    penalties : ndarray of shape (p,)
        The penalties lambda, in ascending order.
    leave_one_out, training : ndarray of shape (p,)
        Root mean squared errors of the rows, each predicted by the fit without it, and by the fit.
    validation : ndarray of shape (p,) or None
        That of rows beside them, if there are any.
    effective_dimension : ndarray of shape (p,)
        The sum of N_q(lambda_q) over cells.
    """

    penalties: Array
    leave_one_out: Array
    training: Array
    validation: Array | None
    effective_dimension: Array

    @property
    def best(self) -> float:
        """The penalty of least validation error, or else of least leave-one-out error."""
        errors = self.leave_one_out if self.validation is None else self.validation
        return float(self.penalties[errors.argmin()])


@dataclass(frozen=True)
class IterationCurve:
    """Errors after each iteration; see :func:`iteration_curve`.

    Parameters
    ----------
    iterations : ndarray of shape (k + 1,)
        From 0, where the model is its intercept and its coarse level, to k.
    training : ndarray of shape (k + 1,)
        Root mean squared error of the rows.
    validation : ndarray of shape (k + 1,) or None
        That of rows beside them, if there are any.
    """

    iterations: NDArray[np.int64]
    training: Array
    validation: Array | None


class CellRows(NamedTuple):
    """The rows of one cell, and rows beside them, with what is left of their targets."""

    kernel: Kernel
    X: Tensor  # (n_q, e)
    Y: Tensor  # (n_q, t)
    X_val: Tensor  # (v, e)
    Y_val: Tensor  # (v, t)
    number: int


def penalty_path(
    model: FittedEstimator | Kernel,
    X: Any,
    y: ArrayLike,
    penalties: ArrayLike | None = None,
    *,
    X_val: Any = None,
    y_val: ArrayLike | None = None,
) -> PenaltyPath:
    """Errors of kernel ridge regression under many penalties, from one eigendecomposition a cell.

    Every row is a centre. With K_q = V h V' of a cell, all quantities under a penalty are products
    with 1 / (h + lambda n), so a hundred penalties take little longer than one. It takes n_q^2
    numbers and some 10 n_q^3 operations for each cell of n_q rows.

    Parameters
    ----------
    model : ParKRegressor or Kernel
        A fitted regressor, whose kernel, feature map, cells, intercept and coarse level are used;
        or a kernel such as ``Gaussian(2.0)``, for one model of X as it is, without an intercept.
    X : array-like of shape (n, d), or a frame for a regressor
        Rows.
    y : array-like of shape (n,) or (n, t)
        Their targets.
    penalties : array-like of shape (p,), default=None
        Penalties lambda > 0. None takes 34 of them from 1e-11 to 1.
    X_val : array-like or frame of shape (v, d), default=None
        Rows beside X to validate on.
    y_val : array-like of shape (v,) or (v, t), default=None
        Their targets.

    Returns
    -------
    PenaltyPath
        Leave-one-out, training and validation errors, and effective dimensions.

    Raises
    ------
    ParameterError
        If the model is a classifier, or rows and targets do not fit together, or a penalty is not
        positive.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, inspection
    >>> X = np.linspace(0, 6, 100)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> path = inspection.penalty_path(Gaussian(0.2), X, y, [1e-6, 1e-3, 1.0])
    >>> path.leave_one_out.round(2), path.best
    (array([0.12, 0.1 , 0.67]), 0.001)
    """
    lambdas = PENALTIES.numpy() if penalties is None else np.sort(np.ravel(np.asarray(penalties)))
    if not len(lambdas) or not (np.isfinite(lambdas) & (lambdas > 0)).all():
        raise ParameterError(f"penalties must be positive finite numbers, got {penalties!r}")
    cells = collect_cells(model, X, y, X_val, y_val)
    n, t = sum(len(cell.Y) for cell in cells), cells[0].Y.shape[1]
    left_out, training, validation, dimension = np.zeros((4, len(lambdas)))
    for cell in cells:
        if not len(cell.Y):  # no row, no estimator
            validation += float(cell.Y_val.square().sum())
            continue
        h, V = torch.linalg.eigh(kernel_of_rows(cell.kernel, cell.X))
        h, b, squared = h.clamp_min(0), V.T @ cell.Y, V.square()  # (r,), (r, t), (n_q, r)
        directions = cell.kernel(cell.X_val, cell.X) @ V  # (v, r)
        for k, penalty in enumerate(lambdas.tolist()):
            ridge = penalty * n
            shrunk = 1 / (h + ridge)  # (r,)
            alpha = V @ (shrunk[:, None] * b)  # (n_q, t)
            left_out[k] += float((alpha / (squared @ shrunk)[:, None]).square().sum())
            training[k] += float((ridge * alpha).square().sum())
            dimension[k] += float((h * shrunk).sum())
            off = directions @ (shrunk[:, None] * b) - cell.Y_val
            validation[k] += float(off.square().sum())
    v = sum(len(cell.Y_val) for cell in cells)
    return PenaltyPath(
        lambdas,
        np.sqrt(left_out / (n * t)),
        np.sqrt(training / (n * t)),
        np.sqrt(validation / (v * t)) if v else None,
        dimension,
    )


def iteration_curve(
    model: FittedEstimator,
    X: Any,
    y: ArrayLike,
    max_iter: int = 20,
    *,
    X_val: Any = None,
    y_val: ArrayLike | None = None,
) -> IterationCurve:
    """Errors after each iteration of FALKON in the cells of a fitted regressor.

    Each cell is solved again by conjugate gradient, from zero, with the centres, the penalty and
    the preconditioner of :class:`parkrr.ParKRegressor` with ``solver="falkon"``, in float64. It
    shows how many iterations are enough.

    Parameters
    ----------
    model : ParKRegressor
        A fitted regressor, by whatever solver.
    X : array-like or frame of shape (n, d)
        The rows of the fit.
    y : array-like of shape (n,) or (n, t)
        Their targets.
    max_iter : int, default=20
        Iterations k, at least 1.
    X_val : array-like or frame of shape (v, d), default=None
        Rows beside X to validate on.
    y_val : array-like of shape (v,) or (v, t), default=None
        Their targets.

    Returns
    -------
    IterationCurve
        Training and validation errors after 0 to k iterations.

    Raises
    ------
    ParameterError
        If the model is a classifier, or rows and targets do not fit together, or `max_iter` is not
        valid.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 6, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(1.0), 1e-6, n_cells=1, n_centers=50, random_state=0)
    >>> model = model.fit(X, np.sin(X[:, 0]))
    >>> curve = inspection.iteration_curve(model, X, np.sin(X[:, 0]), max_iter=5)
    >>> curve.training.round(2)
    array([0.72, 0.42, 0.16, 0.05, 0.02, 0.01])
    """
    max_iter = check_integer("max_iter", max_iter)
    if isinstance(model, Kernel):
        raise ParameterError(f"model must be a fitted regressor, got the kernel {model!r}")
    cells = collect_cells(model, X, y, X_val, y_val)
    n, t = sum(len(cell.Y) for cell in cells), cells[0].Y.shape[1]
    ridge = float(model.chosen_.params["penalty"]) * n
    training, validation = np.zeros((2, max_iter + 1))
    for cell in cells:
        if not len(cell.Y):  # no row, no estimator
            validation += float(cell.Y_val.square().sum())
            continue
        Z = model.model_.centers[cell.number].double()
        weights = iterate_weights(cell, Z, ridge, max_iter)  # (m, k + 1, t)
        training += sum_squares(cell.kernel, Z, weights, cell.X, cell.Y)
        if len(cell.Y_val):
            validation += sum_squares(cell.kernel, Z, weights, cell.X_val, cell.Y_val)
    v = sum(len(cell.Y_val) for cell in cells)
    return IterationCurve(
        np.arange(max_iter + 1),
        np.sqrt(training / (n * t)),
        np.sqrt(validation / (v * t)) if v else None,
    )


def iterate_weights(cell: CellRows, Z: Tensor, ridge: float, max_iter: int) -> Tensor:
    """The weights of centres Z (m, e) after 0, 1, ... iterations, shape (m, k + 1, t)."""
    problem = LocalProblem(cell.kernel, ArraySource(cell.X, cell.Y), Z, None, ridge)
    B = Preconditioner(problem.K_mm(), None, ridge, len(cell.Y))
    shards = problem.shards()
    b = B.apply_t(problem.sum_shards(shards, Shard.right_side))
    steps = [torch.zeros_like(B.apply(b))]
    smallest = torch.finfo(torch.float64).eps
    conjugate_gradient(
        gradient_of(problem, shards, B),
        b,
        max_iter,
        smallest,
        observe=lambda x: steps.append(B.apply(x)),
    )
    steps += [steps[-1]] * (max_iter + 1 - len(steps))  # of a cell that has converged
    return torch.stack(steps, 1)


def sum_squares(kernel: Kernel, Z: Tensor, weights: Tensor, X: Tensor, Y: Tensor) -> Array:
    """Squared errors of weights (m, k, t) at rows X (n, e) with targets Y (n, t), shape (k,)."""
    K = kernel.against(Z)
    total = Y.new_zeros(weights.shape[1])
    rows = K.block_rows(len(X))
    for x, y in zip(torch.split(X, rows), torch.split(Y, rows), strict=True):
        predicted = torch.einsum("nm,mkt->nkt", K(x), weights)
        total += (predicted - y[:, None]).square().sum((0, 2))
    return total.cpu().numpy()


def collect_cells(
    model: FittedEstimator | Kernel, X: Any, y: ArrayLike, X_val: Any, y_val: ArrayLike | None
) -> list[CellRows]:
    """The rows of each cell, with their targets less what comes before the cells."""
    if (X_val is None) != (y_val is None):
        raise ParameterError("X_val and y_val must be given together, or neither of them")
    if isinstance(model, Kernel):
        rows, values = read_rows("X", X), read_targets("y", y)
        beside = rows[:0] if X_val is None else read_rows("X_val", X_val)
        beside_values = values[:0] if y_val is None else read_targets("y_val", y_val)
        check_lengths("y", rows, values)
        check_lengths("y_val", beside, beside_values)
        return [CellRows(model, rows, values, beside, beside_values, 0)]
    if hasattr(model, "classes_"):
        raise ParameterError(f"model must be a regressor or a kernel, got {model!r}")
    inner, Z, own = assign_rows(model, X)
    Y = leave_residual(model, Z, read_targets("y", y), "y")
    Z_val, Y_val, beside_of = Z[:0], Y[:0], dict[int, Tensor]()
    if X_val is not None and y_val is not None:
        _, Z_val, beside_of = assign_rows(model, X_val)
        Y_val = leave_residual(model, Z_val, read_targets("y_val", y_val), "y_val")
    none = torch.zeros(0, dtype=torch.int64, device=Z.device)
    cells = []
    for q in sorted({*own, *beside_of}):
        a, b = own.get(q, none), beside_of.get(q, none)
        cells.append(CellRows(inner.kernel, Z[a], Y[a], Z_val[b], Y_val[b], q))
    return cells


def leave_residual(model: FittedEstimator, Z: Tensor, Y: Tensor, name: str) -> Tensor:
    """What the intercept and the coarse level of a model leave of targets Y, shape (n, t)."""
    inner = model.model_
    check_lengths(name, Z, Y, len(inner.intercept))
    R = Y.to(Z.device) - inner.intercept.double()
    return R if inner.coarse is None else R - inner.coarse(Z.to(inner.centroids.dtype)).double()


def read_rows(name: str, X: Any) -> Tensor:
    """Rows as numbers, shape (n, d)."""
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise ParameterError(f"{name} must be finite numbers of shape (n, d), got {rows.shape}")
    return torch.from_numpy(rows)


def read_targets(name: str, y: Any) -> Tensor:
    """Targets as numbers, shape (n, t)."""
    values = np.asarray(y, dtype=np.float64)
    if values.ndim not in (1, 2) or not values.size or not np.isfinite(values).all():
        raise ParameterError(f"{name} must be finite numbers (n,) or (n, t), got {values.shape}")
    return torch.from_numpy(values.reshape(len(values), -1))


def check_lengths(name: str, X: Tensor, Y: Tensor, t: int | None = None) -> None:
    """Refuse targets that do not belong to these rows."""
    expected = (len(X), Y.shape[1] if t is None else t)
    if tuple(Y.shape) != expected:
        raise ParameterError(
            f"{name} must have a target for each row, {expected}, got {tuple(Y.shape)}"
        )
