"""ParKRegressor: numbers, their error bars and quantiles."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data
from torch import Tensor

from parkrr.data import ParquetTable, naming
from parkrr.errors import ParameterError, check_share
from parkrr.estimators.base import ParKEstimator
from parkrr.park import FitResult, FitSettings
from parkrr.uncertainty import Predictor, learn_intervals, regression_rows


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
        :class:`parkrr.kernels.feature_map.FeatureMap`.
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
        :class:`parkrr.partition.centroids.Blend`.
    coarse
        Centres of one model of all rows whose residual the cells are fitted to, 0 for none;
        a :class:`parkrr.park.algorithm.Coarse`; or "auto", which has one if held-out error falls.
    time_budget
        Seconds for the fit, from which automatic numbers of cells and centres follow through
        a short benchmark of this machine; half of them are for choosing. "auto" sets no limit
        to the fit and stops learning the metric after 40 s.
    max_memory
        Bytes, or a string such as "4GB". For arrays what the fit may use beyond what the process
        holds when it begins, from which automatic numbers follow; None for no limit. For files
        what the whole process may use, 4 GB unless set. A fit that would take more is refused
        before it starts; :meth:`plan` says what it takes.
    fit_intercept
        Fit the target's deviation from its mean.
    max_iter, tol
        Of conjugate gradient: most iterations, and the relative residual at which to stop.
    precision
        Of the products over rows: "float32", "float64", or "auto", which is float64 for up to
        10,000 rows and where, in a fit with choices, float32 has a larger held-out error.
        Factorisations are always float64.
    device
        A torch device. Only the CPU has been tested, and that no tensor is left on it.
    engine
        Where tasks run: "local", ``LocalEngine(n_threads)``, "ray" or a
        :class:`parkrr.runtime.ray_engine.RayEngine`.
    checkpoint
        A folder, or a URL such as "s3://bucket/fit-1", for the results of tasks of a fit from
        files: the same fit, started again, goes on where it was interrupted. With Ray on several
        machines it must be one that all of them see.
    keep_statistics
        Keep what :meth:`partial_fit` and :meth:`forget` need, 8 m_q^2 bytes a cell of m_q centres;
        if True, an automatic number of centres is at most 500 a cell. "auto" keeps up to 1 MB.
    progress
        Show how far long steps have come, in a terminal or notebook; elsewhere the logger
        "parkrr" has a line for each.
    random_state
        Seed of all random choices.

    Attributes
    ----------
    model_
        Centroids, centres and weights: a :class:`parkrr.park.model.Model`.
    report_
        A :class:`parkrr.park.cells.CellReport` per cell; ``pandas.DataFrame(report_)`` is a table.
    n_cells_
        Number of cells.
    n_iter_
        Most iterations in any cell; 1 for a direct solve.
    seconds_
        Wall time spent choosing, placing cells and fitting them.
    validation_rows_
        Up to 2,000 rows that were each left out: arrays by the names "cell", "truth", "predicted",
        and "lower" and "upper", the ends of their 0.9 intervals.
    feature_importances_
        How much predictions change along each feature, in units of its spread, shape (d,), of
        sum one; for radial kernels.
    chosen_
        A :class:`parkrr.tuning.pipeline.Chosen`: every choice, what was tried with its held-out
        error, and seconds; ``ParKRegressor(**chosen_.params)`` fits the same model.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> X = np.linspace(0, 6, 500)[:, None]
    >>> model = ParKRegressor(n_cells=4, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.predict([[1.0], [2.0]]).round(3)
    array([0.841, 0.909])
    """

    _kind = "ParKRegressor"
    _answers = ("prediction", "interval", "std", "novelty")

    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> "ParKRegressor":
        """Fit the model.

        Parameters
        ----------
        X
            Features, shape (n, d): an array, or a frame of pandas, polars or Arrow whose
            columns may be words, dates and times, with gaps; or the files of
            :func:`parkrr.scan_parquet`, which hold target and weights as well.
        y
            Target, shape (n,), or several of them, shape (n, t).
        sample_weight
            Weight of each row, shape (n,): 2 counts a row twice, 0 leaves it out. Only
            their ratios matter.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> from parkrr import ParKRegressor
        >>> days = pd.DataFrame({"sky": ["sun", "rain"] * 50, "hour": np.arange(100) % 24})
        >>> visitors = np.where(days["sky"] == "sun", 80.0, 20.0)
        >>> model = ParKRegressor(random_state=0).fit(days, visitors)
        >>> model.predict(days[:2]).round()
        array([80., 20.])
        """
        if isinstance(X, ParquetTable):
            self._fit_table(X, y, sample_weight, classify=False)
            return self
        X = self._numbers(X, y, sample_weight)
        with naming("X, y"):
            rows, target = validate_data(
                self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
            )
        if not isinstance(target, np.ndarray) or target.dtype.kind not in "fiub":
            kind = getattr(target, "dtype", None)
            raise ParameterError(f"y must be an array of numbers, got {type(target)} of {kind}")
        if not np.isfinite(target).all():  # None among objects passes scikit-learn's check
            raise ParameterError("y must be finite, but contains NaN or infinity")
        self._one_output = target.ndim == 1
        self._fit(rows, target.reshape(len(target), -1), sample_weight)
        return self

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        decay: float = 1.0,
    ) -> "ParKRegressor":
        """Learn more rows without those learned before; the first call is a fit.

        Rows go to their cells, whose statistics grow, and only those cells are solved again: each
        is then what a fit to all its rows with the same centres would make of it. Map, cells,
        centres, coarse level, intercept, lambda n and intervals stay those of the first fit;
        ``report_[q].outgrown`` says when a cell has four times the rows that its centres were
        drawn for, and a new fit is due.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`, arrays or frames.
        decay
            What a cell knew before counts this much when new rows reach it: 1 for all the same,
            less for a stream that drifts.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (600, 1))
        >>> y = np.sin(X[:, 0]) + 0.01 * rng.normal(size=600)
        >>> model = ParKRegressor(random_state=0)
        >>> for part in np.array_split(np.arange(600), 3):
        ...     model = model.partial_fit(X[part], y[part])
        >>> model.predict([[1.0]]).round(1)
        array([0.8])
        """
        if not hasattr(self, "model_"):
            with self._first_rows():
                return self.fit(X, y, sample_weight)
        self._update(X, y, sample_weight, 1.0, check_share("decay", decay))
        return self

    def _targets(self, y: Any, n: int) -> NDArray[np.float64]:
        Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        t = len(self.model_.intercept)
        if Y.shape != (n, t) or not np.isfinite(Y).all():
            raise ParameterError(
                f"y must be {n} finite rows of {t} targets, as in fit, got shape {np.shape(y)}"
            )
        return Y

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """The target at X (n, d): shape (n,), or (n, t) after a fit with several.

        With `return_std` also the standard deviation of a new target there, of the same shape:
        that of the noise in the cell, and more where the nearest centres know little.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (500, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
        >>> model = ParKRegressor(random_state=0).fit(X, y)
        >>> mean, std = model.predict([[1.0]], return_std=True)
        >>> std.round(1)
        array([0.1])
        """
        rows = self._rows(X)
        values: NDArray[np.float64] = self.model_.predict(rows, self._cores).cpu().numpy()
        mean = values[:, 0] if self._one_output else values
        return (mean, self._answering().std(rows, self._cores)) if return_std else mean

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The ends of an interval that holds the target at X (n, d) with that probability.

        Rows of the fit, each left out in turn, say how far off predictions are (split conformal
        prediction): their residuals over a scale that is wide where errors are large, in the
        cell of the row. It holds for rows like those of the fit, not for new kinds of rows; see
        :meth:`novelty`.

        Returns
        -------
        lower, upper
            Of the shape of predictions.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (2000, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2000)
        >>> model = ParKRegressor(random_state=0).fit(X[:1000], y[:1000])
        >>> lower, upper = model.predict_interval(X[1000:], coverage=0.9)
        >>> float(np.mean((lower <= y[1000:]) & (y[1000:] <= upper)).round(1))
        0.9
        """
        return self._answering().interval(self._rows(X), coverage, self._cores)

    def predict_quantile(self, X: ArrayLike, levels: ArrayLike) -> NDArray[np.float64]:
        """Quantiles of the target at X (n, d), shape (n, l), or (n, t, l) with several targets.

        From the same residuals as :meth:`predict_interval`; levels between 0.001 and 0.999.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (1000, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1000)
        >>> model = ParKRegressor(random_state=0).fit(X, y)
        >>> low, middle, high = model.predict_quantile([[1.0]], [0.1, 0.5, 0.9])[0]
        >>> bool(low < middle < high)
        True
        """
        return self._answering().quantiles(self._rows(X), levels, self._cores)

    def _answering(self) -> Predictor:
        self._check_fitted()
        return Predictor(self.model_, self._one_output, intervals=self.intervals_)

    def _learn_uncertainty(
        self, result: FitResult, park: FitSettings, predicted: Tensor
    ) -> tuple[list[dict[str, Any]], str]:
        sizes, n = [c.rows for c in result.report], sum(c.weight for c in result.report)
        model, left_out = result.model, result.left_out
        self.intervals_, widths = learn_intervals(
            model,
            left_out,
            predicted,
            ridge=park.penalty * n,
            sizes=sizes,
            n_threads=self._cores,
            seed=park.seed,
        )
        held_out = regression_rows(model, left_out, predicted, self.intervals_, park.seed)
        self.validation_rows_ = {
            name: values[:, 0] if self._one_output and values.ndim == 2 else values
            for name, values in held_out.items()
        }
        tried = [{"step": "intervals", "scale": k, "width": v} for k, v in widths.items()]
        return tried, self.intervals_.scale_name

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
