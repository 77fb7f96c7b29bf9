"""ParKRegressor and ParKClassifier: the scikit-learn face of the library."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from parkrr import importance
from parkrr.checks import check_device
from parkrr.engine import LocalEngine
from parkrr.errors import ParameterError
from parkrr.fit import CellReport, Coarse, Park
from parkrr.kernels import Kernel, Radial
from parkrr.metrics import FeatureMap
from parkrr.model import Model
from parkrr.partition import Blend
from parkrr.settings import as_engine, park_of, patience, wish_of
from parkrr.sources import ArraySource
from parkrr.tuning import Chosen, Diary, Tuning


class ParKEstimator(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share: parameters, their rules, and a multi-output fit."""

    def __init__(
        self,
        kernel: Kernel | str = "auto",
        penalty: float | str = "auto",
        metric: FeatureMap | str = "auto",
        n_cells: int | str = "auto",
        n_centers: int | str = "auto",
        centroids: str = "uniform",
        solver: str = "auto",
        n_candidates: int | None = 5_000,
        balance: bool = True,
        blend: Blend | int | str = "auto",
        coarse: Coarse | int | str = "auto",
        time_budget: float | str = "auto",
        max_memory: float | None = None,
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        precision: str = "auto",
        device: str = "cpu",
        engine: LocalEngine | str = "local",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.penalty = penalty
        self.metric = metric
        self.n_cells = n_cells
        self.n_centers = n_centers
        self.centroids = centroids
        self.solver = solver
        self.n_candidates = n_candidates
        self.balance = balance
        self.blend = blend
        self.coarse = coarse
        self.time_budget = time_budget
        self.max_memory = max_memory
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.precision = precision
        self.device = device
        self.engine = engine
        self.random_state = random_state

    def _fit(self, X: NDArray[Any], Y: NDArray[Any], sample_weight: ArrayLike | None) -> None:
        """Fit all columns of Y (n, t) at once."""
        rows = as_source(X, Y, sample_weight, check_device(self.device))
        params = self.get_params(deep=False)
        wish, diary = wish_of(params), Diary()
        park = park_of(params, wish, rows, as_seed(self.random_state))
        if wish.anything:
            park, diary = Tuning(park, wish, patience(params)).run(rows)
        result = park.fit(rows)
        self.model_ = result.model
        self.report_: list[CellReport] = result.report
        self.n_cells_ = len(result.report)
        self.n_iter_ = max(max(cell.iterations, 1) for cell in result.report)
        seconds = {"place": result.place_seconds, "cells": result.cells_seconds}
        self.seconds_ = diary.seconds | seconds
        self.chosen_ = Chosen(self._settled(park, result.model), diary.tried, diary.seconds)
        self.__dict__.pop("feature_importances_", None)  # of an earlier fit
        if isinstance(park.kernel, Radial):
            sample = rows.sample(importance.ROWS, park.seed).X
            self.feature_importances_ = importance.importances(result.model, sample).cpu().numpy()
        warn_unconverged(result.report, self.max_iter, self.tol)

    def _settled(self, park: Park, model: Model) -> dict[str, Any]:
        """Parameters that fit the same model with nothing left to choose."""
        names = ("kernel", "penalty", "n_cells", "n_centers", "blend")
        settled = {name: getattr(park, name) for name in names}
        settled |= {"metric": model.metric, "coarse": park.coarse or 0}
        settled["precision"] = str(park.dtype).removeprefix("torch.")
        return {**self.get_params(deep=False), **settled, "random_state": park.seed}

    def _predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The model at X, shape (n, t)."""
        check_is_fitted(self)
        rows = as_tensor(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))
        out = self.model_.predict(rows, as_engine(self.engine).cores)
        values: NDArray[np.float64] = out.numpy()
        return values


class ParKRegressor(RegressorMixin, ParKEstimator):  # type: ignore[misc]
    """Kernel ridge regression by feature-space partitions (ParK).

    Rows go to the nearest of `n_cells` centroids in feature space; each cell gets its own
    kernel ridge regression, on all its rows or on some of them as Nystrom centres; a
    prediction asks the nearest cell or a few. Whatever is "auto" is chosen on held-out rows.

    Parameters
    ----------
    kernel
        "auto" (Gaussian, Matern or Laplacian, and its lengthscale), a kernel from
        :mod:`parkrr.kernels`, or the name of one to take its defaults.
    penalty
        The paper's lambda; cell q is fitted with lambda / rho_q, rho_q its share of rows.
    metric
        In what units distances are measured: "auto" (what wins on held-out rows, learned
        from 300 rows and 10 a feature on; for a kernel with a lengthscale of its own
        "euclidean"), "euclidean" (those of the
        features), "standard" (features of zero mean and unit spread, whatever outliers say),
        "learned" (weights of features and their ranks, or a matrix that mixes features, that
        lower held-out error; needs a radial kernel and chooses its lengthscale), or a
        :class:`parkrr.metrics.FeatureMap`.
    n_cells
        Number of cells Q. 1 with `solver="falkon"` is global FALKON. With `balance` the
        number kept is near it.
        "auto" is 1 up to 14,000 rows, then a cell per 4,000 or, above 100,000, per 2,000,
        unless the budgets say otherwise.
    n_centers
        Nystrom centres of all cells together; cell q gets the share rho_q. "auto" is all
        rows, at most 3 million, unless the budgets say otherwise, and 3,000 a cell where
        `n_cells` makes cells of more than 14,000 rows.
    centroids
        "uniform" (the paper's ParK-Uni), "greedy" (the paper's ParK: the largest Schur
        complement) or "rpcholesky" (drawn with probability proportional to the complement).
    solver
        "falkon" (preconditioned conjugate gradient), "direct" (exact Nystrom, one pass) or
        "auto", the one estimated to be faster in each cell.
    n_candidates
        Rows among which centroids are chosen, at least four a cell; None takes all of them,
        as the paper does, and for anything but "uniform" 8 bytes of memory a row and cell.
    balance
        Merge cells that are too small and split those that are too large.
    blend
        How many cells answer: "auto"; 1, the nearest, as in the paper; or a
        :class:`parkrr.partition.Blend`.
    coarse
        Centres of one model of all rows whose residual the cells are fitted to, 0 for none;
        a :class:`parkrr.fit.Coarse`; or "auto", which has one if held-out error falls.
    time_budget
        Seconds for the fit, from which automatic numbers of cells and centres follow through
        a short benchmark of this machine; half of them are for choosing. "auto" sets no limit
        to the fit and stops learning the metric after 40 s.
    max_memory
        Bytes the fit may use beyond its rows, from which automatic numbers follow; None for
        no limit. Choosing takes some 500 MB that are not counted.
    fit_intercept
        Fit the target's deviation from its mean.
    max_iter, tol
        Of conjugate gradient: most iterations, and the relative residual at which to stop.
    precision
        Of the products over rows: "float32", "float64", or "auto", which is float64 for up to
        10,000 rows and where, in a fit with choices, float32 has a larger held-out error.
        Factorisations are always float64.
    device
        A torch device. Only the CPU has been tested.
    engine
        "local", or ``LocalEngine(n_threads)``.
    random_state
        Seed of all random choices.

    Attributes
    ----------
    model_
        Centroids, centres and weights: a :class:`parkrr.model.Model`.
    report_
        A :class:`parkrr.fit.CellReport` per cell; ``pandas.DataFrame(report_)`` is a table.
    n_cells_
        Number of cells.
    n_iter_
        Most iterations in any cell; 1 for a direct solve.
    seconds_
        Wall time spent choosing, placing cells and fitting them.
    feature_importances_
        How much predictions change along each feature, in units of its spread, shape (d,), of
        sum one; for radial kernels.
    chosen_
        A :class:`parkrr.tuning.Chosen`: every choice, what was tried with its held-out error,
        and seconds; ``ParKRegressor(**chosen_.params)`` fits the same model.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> X = np.linspace(0, 6, 500)[:, None]
    >>> model = ParKRegressor(n_cells=4, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.predict([[1.0], [2.0]]).round(3)
    array([0.841, 0.909])
    """

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "ParKRegressor":
        """Fit the model.

        Parameters
        ----------
        X
            Features, shape (n, d).
        y
            Target, shape (n,), or several of them, shape (n, t).
        sample_weight
            Weight of each row, shape (n,): 2 counts a row twice, 0 leaves it out. Only
            their ratios matter.
        """
        rows, target = validate_data(
            self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
        )
        self._one_output = target.ndim == 1
        self._fit(rows, target.reshape(len(target), -1), sample_weight)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The target at X (n, d): shape (n,), or (n, t) after a fit with several."""
        out = self._predict(X)
        return out[:, 0] if self._one_output else out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ParKClassifier(ClassifierMixin, ParKEstimator):  # type: ignore[misc]
    """Classification by kernel ridge regression on feature-space partitions (ParK).

    Classes become +1 / -1 codes that are fitted in one solve with several outputs. The
    parameters and attributes are those of :class:`ParKRegressor`, and `classes_`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from parkrr import ParKClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> ParKClassifier(random_state=0).fit(X, y).predict(X[:3])
    array([0, 0, 0])
    """

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "ParKClassifier":
        """Fit the model to labels y (n,) of any kind; the rest as for the regressor."""
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        columns = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        is_class = np.equal.outer(codes, columns)  # (n, k), or (n, 1) for two classes
        self._fit(rows, is_class.astype(np.float32) * 2 - 1, sample_weight)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores at X (n, d): (n,) for two classes, positive for the second; else (n, k)."""
        out = self._predict(X)
        return out[:, 0] if len(self.classes_) == 2 else out

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each row of X (n, d), shape (n,)."""
        scores = self.decision_function(X)
        chosen = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen.astype(int)]
        return labels


def as_source(
    X: NDArray[Any], Y: NDArray[Any], sample_weight: ArrayLike | None, device: torch.device
) -> ArraySource:
    """The rows that count, as tensors: those of weight zero are left out."""
    w = None
    if sample_weight is not None:
        w = check_weights(sample_weight, len(X))
        if (w == 0).any():
            X, Y, w = X[w > 0], Y[w > 0], w[w > 0]
    weights = None if w is None else as_tensor(w).to(device)
    return ArraySource(as_tensor(X).to(device), as_tensor(Y).to(device), weights)


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    """The array as a tensor, without a copy if torch can. It is never written to."""
    if min(array.strides, default=0) < 0:
        array = array.copy()
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def check_weights(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """The weights as an array (n,), if they are weights."""
    w = np.asarray(sample_weight, dtype=np.float64)
    w = np.full(n, w) if w.ndim == 0 else column_or_1d(w)
    if len(w) != n:
        raise ParameterError(f"sample_weight must have one entry a row ({n}), got {len(w)}")
    if not (np.isfinite(w).all() and (w >= 0).all() and (w > 0).any()):
        raise ParameterError(
            f"sample_weight must be finite and >= 0 and not all zero, got values from "
            f"{w.min()} to {w.max()}"
        )
    return w


def as_seed(random_state: int | np.random.RandomState | None) -> int:
    """A whole number is the seed itself, so that a fit can be repeated from its seed."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def warn_unconverged(report: list[CellReport], max_iter: int, tol: float) -> None:
    """Say once how many cells did not converge, and what to do."""
    stuck = [cell for cell in report if not cell.converged]
    if stuck:
        worst = max(cell.residual for cell in stuck)
        warnings.warn(
            f"{len(stuck)} of {len(report)} cells stopped after at most max_iter={max_iter} "
            f"iterations (worst residual {worst:.1e}, tol={tol:.0e}). Raise max_iter, or "
            f"penalty if the kernel is ill-conditioned.",
            ConvergenceWarning,
            stacklevel=4,
        )
