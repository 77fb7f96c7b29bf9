"""A fitted regressor as a Gaussian process: covariance, samples, likelihood, effective dimension.

Kernel ridge regression predicts the posterior mean of a Gaussian process with prior covariance
s^2 K and noise of variance s^2 lambda n. The cells of a partition are independent processes, whose
noise is the same: lambda_q n_q = lambda n.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parkrr.data import check_weights
from parkrr.errors import NotFiniteError, ParameterError, check_integer, check_positive
from parkrr.inspection.diagnostics import FittedEstimator, check_fitted
from parkrr.kernels import Kernel
from parkrr.park import Model
from parkrr.solvers import kernel_of_rows
from parkrr.theory.bounds import local_dimension

JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)  # of the largest variance, for samples


class CellProcess(NamedTuple):
    """The process of one cell, for s = 1."""

    kernel: Kernel
    X: Tensor  # (n_q, e)
    R: Tensor  # (n_q, t)  targets less intercept and coarse level
    L: Tensor  # (n_q, n_q)  Cholesky factor of K + lambda n W^-1
    alpha: Tensor  # (n_q, t)

    def mean(self, Z: Tensor) -> Tensor:
        """The posterior mean at mapped rows Z (n, e), shape (n, t)."""
        return self.kernel(Z, self.X) @ self.alpha

    def covariance(self, Z: Tensor) -> Tensor:
        """The posterior covariance between mapped rows Z (n, e), shape (n, n)."""
        half: Tensor = torch.linalg.solve_triangular(self.L, self.kernel(self.X, Z), upper=False)
        return kernel_of_rows(self.kernel, Z) - half.T @ half


@dataclass(frozen=True)
class GaussianProcess:
    """The Gaussian processes of all cells, given the rows of the fit; see :func:`posterior`.

    Parameters
    ----------
    estimator : ParKRegressor
        The fitted estimator.
    cells : dict
        From the number of a cell to its process.
    variance : ndarray of shape (t,)
        The prior variance s^2 of each target.
    noise : float
        The variance of the noise over s^2, for a row of mean weight: lambda n.
    """

    estimator: FittedEstimator
    cells: dict[int, CellProcess]
    variance: NDArray[np.float64]
    noise: float

    @property
    def log_marginal_likelihood(self) -> float:
        """Log-density of the targets of the fit, summed over targets.

        Those of the intercept and of a coarse level are taken as known.
        """
        total = 0.0
        for cell in self.cells.values():
            n, squares = len(cell.R), (cell.R * cell.alpha).sum(0).cpu().numpy()  # (t,)
            log_determinant = 2 * float(cell.L.diagonal().log().sum()) + n * np.log(self.variance)
            constant = n * math.log(2 * math.pi)
            total -= 0.5 * float((squares / self.variance + log_determinant + constant).sum())
        return total

    def mean(self, X: Any) -> NDArray[np.float64]:
        """The posterior mean at rows X (n, d), of the nearest cell, shape (n,) or (n, t)."""
        inner, Z, own = self._assign(X)
        mean = inner.intercept.double() + Z.new_zeros(len(Z), 1)
        if inner.coarse is not None:
            mean = mean + inner.coarse(Z.to(inner.centroids.dtype)).double()
        for q, rows in own.items():
            if q in self.cells:
                mean[rows] += self.cells[q].mean(Z[rows])
        return self.estimator._predictor().flatten(mean.cpu().numpy())

    def covariance(self, X: Any) -> NDArray[np.float64]:
        """The posterior covariance of the function at rows X (n, d), without the noise.

        Shape (n, n), or (n, n, t) for several targets. Rows of different cells are independent.
        """
        _, Z, own = self._assign(X)
        total = Z.new_zeros(len(Z), len(Z))
        for q, rows in own.items():
            total[rows[:, None], rows] = self._covariance_in(q, Z[rows])
        scaled = total.cpu().numpy()[:, :, None] * self.variance
        return scaled[:, :, 0] if self.estimator._predictor().one_output else scaled

    def sample(
        self, X: Any, n_samples: int = 1, random_state: int | None = 0
    ) -> NDArray[np.float64]:
        """Functions drawn from the posterior, at rows X (n, d), without the noise.

        Shape (n, n_samples), or (n, t, n_samples) for several targets.
        """
        n_samples = check_integer("n_samples", n_samples)
        _, Z, own = self._assign(X)
        draws = np.random.default_rng(random_state).normal(
            size=(len(Z), len(self.variance) * n_samples)
        )
        normal = torch.from_numpy(draws).to(Z)
        changes = torch.zeros_like(normal)
        for q, rows in own.items():
            changes[rows] = factor_covariance(self._covariance_in(q, Z[rows])) @ normal[rows]
        shaped = changes.cpu().numpy().reshape(len(Z), len(self.variance), n_samples)
        mean = self.mean(X).reshape(len(Z), -1, 1)
        return self.estimator._predictor().flatten(mean + shaped * np.sqrt(self.variance)[:, None])

    def _covariance_in(self, q: int, Z: Tensor) -> Tensor:
        """The covariance of mapped rows of one cell, that of the prior if it has no row."""
        if q in self.cells:
            return self.cells[q].covariance(Z)
        return kernel_of_rows(self.estimator.model_.kernel, Z)

    def _assign(self, X: Any) -> tuple[Model, Tensor, dict[int, Tensor]]:
        """The model, mapped rows in float64 (n, e), and the numbers of the rows of each cell."""
        return assign_rows(self.estimator, X)


def posterior(
    model: FittedEstimator,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    variance: float | str = 1.0,
) -> GaussianProcess:
    """The Gaussian process whose posterior mean a fitted regressor predicts.

    Its kernel is that of the model behind its feature map, its noise has the variance s^2 lambda n,
    and rows of different cells are independent. Every row of the fit is used, so with fewer Nystrom
    centres than rows the mean is the one that the model approximates. A blend and limits of
    `extrapolation` have no part in it. It takes the memory of n_q^2 numbers, and n_q^3 operations,
    for each cell of n_q rows.

    Parameters
    ----------
    model : ParKRegressor
        A fitted regressor.
    X : array-like or frame of shape (n, d)
        The rows of the fit.
    y : array-like of shape (n,) or (n, t)
        Their targets.
    sample_weight : array-like of shape (n,), default=None
        Their weights. A row of twice the mean weight has half of the noise.
    variance : float or "likelihood", default=1.0
        The prior variance s^2, in squared units of y. The mean does not depend on it. With
        "likelihood" it maximises the marginal likelihood of each target.

    Returns
    -------
    GaussianProcess
        With `mean`, `covariance` and `sample` of new rows, and `log_marginal_likelihood`.

    Raises
    ------
    ParameterError
        If the model is a classifier, or rows and targets do not fit together, or `variance` is
        not valid.
    NotFiniteError
        If the penalty is so small that a covariance matrix is singular.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = ParKRegressor(Gaussian(1.0), 1e-3, n_cells=1).fit(X, np.sin(X[:, 0]))
    >>> process = inspection.posterior(model, X, np.sin(X[:, 0]))
    >>> process.covariance([[3.0], [60.0]]).round(2)
    array([[0.01, 0.  ],
           [0.  , 1.  ]])
    >>> process.sample([[3.0], [60.0]], n_samples=5).shape
    (2, 5)
    """
    if hasattr(model, "classes_"):
        raise ParameterError(
            f"model must be a regressor, whose targets have Gaussian noise, got {model!r}; use "
            f"predict_proba and novelty of a classifier"
        )
    inner, Z, own = assign_rows(model, X)
    Y = np.asarray(y, dtype=np.float64)
    t = len(inner.intercept)
    if Y.shape[:1] != (len(Z),) or Y.size != len(Z) * t:
        raise ParameterError(f"y must have {t} targets for each of {len(Z)} rows, got {Y.shape}")
    R = torch.from_numpy(Y.reshape(len(Z), t)).to(Z) - inner.intercept.double()  # (n, t)
    if inner.coarse is not None:
        R = R - inner.coarse(Z.to(inner.centroids.dtype)).double()
    noise = row_noise(model, sample_weight, len(Z)).to(Z)  # (n,)
    cells = {}
    for q, rows in own.items():
        rows = rows[noise[rows].isfinite()]  # noqa: PLW2901 - rows of weight zero tell nothing
        if not len(rows):
            continue
        K = kernel_of_rows(inner.kernel, Z[rows])
        K.diagonal().add_(noise[rows])
        L, failed = torch.linalg.cholesky_ex(K)
        if int(failed):
            raise NotFiniteError(
                f"the covariance of the {len(rows)} rows of cell {q} must be positive definite, "
                f"but rounding left it singular at penalty {model.chosen_.params['penalty']:.1e}; "
                f"fit with a larger penalty"
            )
        alpha = torch.cholesky_solve(R[rows], L)
        cells[q] = CellProcess(inner.kernel, Z[rows], R[rows], L, alpha)
    level = float(model.chosen_.params["penalty"]) * len(Z)
    return GaussianProcess(model, cells, prior_variance(variance, cells, t), level)


def effective_dimension(
    model: FittedEstimator, X: Any, sample_weight: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The paper's effective dimension of each cell, N_q(lambda_q) = Tr (K_q + lambda n)^-1 K_q.

    It counts the directions that the penalty leaves free: 0 of all for a large one, the number of
    rows for none. Their sum is at least the effective dimension of one cell (Proposition 3 bounds
    how much larger it is). It takes n_q^3 operations for each cell.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame of shape (n, d)
        The rows of the fit.
    sample_weight : array-like of shape (n,), default=None
        Their weights.

    Returns
    -------
    ndarray of shape (Q,)
        Of each cell; 0 where it has none of the rows.

    Raises
    ------
    ParameterError
        If the model is not fitted, or weights do not fit rows.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = ParKRegressor(Gaussian(1.0), 1e-3, n_cells=1).fit(X, np.sin(X[:, 0]))
    >>> inspection.effective_dimension(model, X).round(1)
    array([7.9])
    """
    inner, Z, own = assign_rows(model, X)
    noise = row_noise(model, sample_weight, len(Z)).to(Z)
    dimensions = np.zeros(len(inner.centroids))
    for q, rows in own.items():
        root = noise[rows].rsqrt()  # 0 for a row of weight zero
        K = kernel_of_rows(inner.kernel, Z[rows])
        dimensions[q] = local_dimension(root[:, None] * K * root, 1.0)
    return dimensions


def assign_rows(model: FittedEstimator, X: Any) -> tuple[Model, Tensor, dict[int, Tensor]]:
    """The model, mapped rows in float64 (n, e), and the numbers of the rows of each cell."""
    inner, rows = check_fitted(model).model_, model._rows(X)
    Z = inner.metric(rows.to(inner.centroids.device), torch.float64)
    cell_of = inner.route(rows)
    return inner, Z, {q: (cell_of == q).nonzero()[:, 0] for q in sorted(set(cell_of.tolist()))}


def row_noise(model: FittedEstimator, sample_weight: ArrayLike | None, n: int) -> Tensor:
    """lambda n of each row over its weight, of mean one, shape (n,)."""
    w = np.ones(n) if sample_weight is None else check_weights(sample_weight, n)
    penalty = float(model.chosen_.params["penalty"])
    return penalty * n / torch.from_numpy(w / w.mean())


def prior_variance(
    variance: float | str, cells: dict[int, CellProcess], t: int
) -> NDArray[np.float64]:
    """The variance s^2 of each target, given or of the largest likelihood: r' (K + D)^-1 r / n."""
    if not isinstance(variance, str):
        return np.full(t, check_positive("variance", variance))
    if variance != "likelihood":
        raise ParameterError(f"variance must be 'likelihood' or a number > 0, got {variance!r}")
    squares = sum((cell.R * cell.alpha).sum(0).cpu().numpy() for cell in cells.values())  # (t,)
    n = sum(len(cell.R) for cell in cells.values())
    return np.maximum(squares / n, np.finfo(np.float64).tiny)


def factor_covariance(covariance: Tensor) -> Tensor:
    """A factor F with F F' = covariance (n, n), which rounding may leave not quite positive."""
    largest = float(covariance.diagonal().max().clamp_min(torch.finfo(covariance.dtype).tiny))
    for jitter in JITTERS:
        raised = covariance + jitter * largest * torch.eye(len(covariance)).to(covariance)
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(raised)
        if not int(failed):
            return factor
    values, vectors = torch.linalg.eigh(covariance)
    factor = vectors * values.clamp_min(0).sqrt()
    return factor
