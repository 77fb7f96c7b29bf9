"""ParKRegressor: numbers, their error bars and quantiles."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data
from torch import Tensor

from parkrr.data import (
    ArraySource,
    check_weights,
    collect,
    naming_parameter,
    read_numbers,
    return_like_input,
)
from parkrr.errors import ParameterError, check_share
from parkrr.estimators.base import ParKEstimator
from parkrr.estimators.validation_split import ValidationSplit
from parkrr.kernels import FeatureMap, Kernel
from parkrr.park import Coarse, FitResult, FitSettings
from parkrr.partition import Blend
from parkrr.planning import count_choices
from parkrr.runtime import Callback, Engine
from parkrr.tuning import Chosen
from parkrr.uncertainty import (
    Predictor,
    calibrate_intervals,
    keep_leave_one_out_fits,
    learn_intervals,
    regression_rows,
)


class ParKRegressor(RegressorMixin, ParKEstimator):  # type: ignore[misc]
    """Kernel ridge regression by feature-space partitions (ParK).

    Rows are assigned to the nearest of `n_cells` centroids in feature space. Each cell has a
    kernel ridge regression of its own, with all its rows or some of them as Nystrom centres. A
    prediction uses the nearest cell, or blends a few. Every parameter that is "auto" is chosen
    for your rows, on validation rows or by leave-one-out.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="auto"
        Similarity of two rows. "auto" chooses between Gaussian, Matern (nu 2.5 or 1.5) and
        Laplacian and sets the lengthscale. A name ("gaussian", "laplacian", "matern", "polynomial",
        "linear") is a family of which lengthscale and metric are still chosen. A kernel such
        as ``Gaussian(2.0)`` or ``Gaussian(2.0) + 0.1 * Linear()`` is taken as it is, and so is
        a function of two blocks of rows, tensors (n, d) and (m, d), that returns the matrix of
        their similarities (n, m).
    penalty : float or "auto", default="auto"
        The paper's lambda, > 0. A larger penalty gives a smoother model. Cell q, which
        has the share rho_q of the rows, is fitted with lambda / rho_q.
    metric : FeatureMap or str, default="auto"
        Units in which distances between rows are measured. "euclidean" takes features
        as they are, "standard" scales each to zero mean and unit spread, robust to
        outliers. "learned" fits weights of features and of their ranks, or a matrix that
        mixes features; it needs a radial kernel and sets its lengthscale. "auto"
        compares these on validation rows and learns from 300 rows, and 20 for each
        feature (5 if there are more than 100), upwards; for a kernel with a lengthscale of
        its own it is "euclidean".
    n_cells : int or "auto", default="auto"
        Number of cells Q, >= 1. More cells fit faster and use less memory; fewer cells
        are more accurate. "auto" is 1 up to 14,000 rows, then one for every 4,000 rows,
        or 2,000 above 100,000 rows, unless a budget requires otherwise. With `balance`
        the fitted number, `n_cells_`, can differ a little. 1 with ``solver="falkon"``
        is global FALKON.
    n_centers : int, array-like or "auto", default="auto"
        Nystrom centres of all cells together, >= 1; cell q gets the share rho_q. Lower
        it for a smaller and faster model. "auto" is every row, up to 3 million, or 3,000
        for each cell of more than 14,000 rows, unless a budget requires fewer. Of more
        than 3 million rows in files it is 400 for each cell; with a number given, these
        are read in a single pass. An array of shape (m, d) holds centres of yours.
    centroids : {"uniform", "greedy", "rpcholesky"} or array-like, default="uniform"
        How centroids of cells are chosen: at random (ParK-Uni in the paper), by the
        largest Schur complement (ParK in the paper), or at random with probability
        proportional to it. Try "greedy" if few rows lie far from all others. An array of
        shape (Q, d) holds centroids of yours in the units of X, which stay where they are.
    solver : {"auto", "direct", "falkon"}, default="auto"
        "direct" solves the Nystrom system exactly in one pass over the rows, "falkon" by
        preconditioned conjugate gradient. "auto" takes the faster one for each cell.
    n_candidates : int or None, default=5000
        Rows among which centroids are chosen, >= 1; at least four for each cell are
        used. None takes all rows, as in the paper, which needs 8 bytes for each row and
        cell unless `centroids` is "uniform".
    balance : bool, default=True
        Merge cells that are too small, split those that are too large, and move uniform
        centroids to the means of their cells. Set it to False for the cells of the paper.
    blend : Blend, 1 or "auto", default="auto"
        How many cells a prediction uses. 1 is the nearest cell, as in the paper;
        ``Blend(n_nearest, width)`` mixes several, which removes jumps between cells and
        makes predictions slower. "auto" blends the two nearest of three or more cells near
        the border between them.
    coarse : Coarse, int or "auto", default="auto"
        Centres of one model of all rows, >= 0, to whose residuals the cells are fitted;
        0 for none, a ``Coarse`` to give it a kernel of its own. It helps where the target
        has a trend across cells. "auto" has one if validation error falls.
    effort : {"fast", "balanced", "thorough"}, default="balanced"
        How much is searched before the fit: "fast" takes a quarter of the steps that learn the
        metric, and cells of about 2,800 rows, for a first look; "thorough" takes up to twice
        as many of the last steps, on larger batches. The same effort gives the same model on
        any machine, which `time_budget` does not.
    time_budget : float or "auto", default="auto"
        Seconds for the fit, > 0; at least half of them are for choosing. Automatic numbers of
        cells and centres follow from it by a short benchmark of your machine. "auto" sets no
        limit to the fit; steps that learn the metric are then counted from rows and columns.
        A limit in seconds can end them earlier on a slow machine, and the model then depends
        on the machine; ``chosen_.tried`` names the step.
    max_memory : float, str or None, default=None
        Bytes, > 0, or a string such as "4GB". For arrays it limits what the fit uses
        beyond what the process already holds, None for no limit; for files it limits the
        whole process, None for 4 GB. Automatic numbers of cells and centres follow from
        it, and a fit that needs more is refused before it starts; see :meth:`plan`.
    max_model_size : float, str or None, default=None
        Most bytes of centres and coefficients, > 0, or a string such as "500MB"; None for
        no limit. Where they would be more in float64, which any cell may need, fewer of the
        rows are Nystrom centres. A given `n_centers` takes precedence. A file has some
        0.1 MB more, and `keep_statistics` adds to it.
    fit_intercept : bool, default=True
        Subtract the mean of the target before the fit. Set it to False if the target is
        already centred, or if predictions far from all rows should go to zero.
    max_iter : int, default=100
        Most iterations of conjugate gradient in a cell, >= 1. Raise it after a
        ConvergenceWarning.
    tol : float, default=1e-4
        Relative residual at which conjugate gradient stops, > 0.
    precision : {"auto", "float32", "float64"}, default="auto"
        Of products over rows; factorisations are always in float64. "float32" is about
        twice as fast. "auto" is float64 up to 10,000 rows, and where float32 has a larger
        validation error in a fit that chooses something.
    columns : dict or None, default=None
        What columns hold, where that is not what it looks like: "number", "category",
        "datetime", "text" or "ignore" by the name of a column, such as ``{"zip": "category"}``;
        columns of an array go by their number. Other columns are recognised: text that is
        numbers, booleans, dates or times in 0.95 of its values is read as such, other text
        is categories or, if it hardly repeats, free text, and numbers are numbers.
        ``columns_`` shows what each column became.
    device : str or torch.device, default="cpu"
        Device of torch on which the fit runs. Only the CPU has been tested on hardware.
    engine : Engine or str, default="local"
        Where tasks run: "local" for threads of this process, ``LocalEngine(n_threads)``
        to limit them, "ray" or a ``RayEngine`` for a cluster, or any object with the
        methods of :class:`parkrr.runtime.Engine`.
    checkpoint : str, Path or None, default=None
        Folder, or URL such as "s3://bucket/fit-1", for intermediate results of a fit from
        files. Rerunning the same fit resumes from them. One fit at a time may use it. On a
        Ray cluster of several machines all of them must be able to reach it. Fits of
        arrays do not use it, and warn.
    keep_statistics : bool or "auto", default="auto"
        Keep what :meth:`partial_fit` and :meth:`forget` need: 8 m_q^2 bytes for each cell
        of m_q centres, and 24 bytes a row. True also limits an automatic number of centres
        to 500 for each cell. "auto" keeps statistics of up to 1 MB.
    progress : bool, default=True
        Show progress of long steps in a terminal or notebook; elsewhere the logger
        "parkrr" gets a line for each.
    callbacks : list of callables or None, default=None
        Called with a :class:`parkrr.FitEvent` for everything that is compared while the fit
        chooses: step, candidate, validation error, seconds, share of the work. One that
        returns True ends the search with the best so far.
    warm_start : bool or Chosen, default=False
        True has the next fit of this estimator keep what the last one chose of kernel, metric,
        penalty, blend, coarse level and precision, and not choose it again. ``chosen_`` of
        another estimator does the same from the first fit on, and survives `clone`, as in
        cross-validation. For about as many rows: the penalty stays.
    random_state : int, RandomState or None, default=None
        Seed of all random choices, >= 0. Pass an int for the same model in every fit.
    guarantee : {"none", "split", "cell", "jackknife+"}, default="none"
        The theorem behind :meth:`predict_interval`, for rows in memory. "none" uses all
        rows and has none: a locally scaled jackknife, close to its coverage in practice.
        "split" sets a fifth of the rows aside, which neither the fit nor any choice sees,
        and holds a coverage of 1 - alpha; "cell" holds it in each cell, or group of small
        cells. "jackknife+" fits all rows, makes choices on four fifths of them, and holds
        1 - 2 alpha however unstable the fit is.
    extrapolation : {"bounded", "free"}, default="bounded"
        What predictions far from the data may be. "bounded" keeps them inside of the range of
        targets that were seen in the cell, widened on both sides by as much as leave-one-out
        error calls for; ``chosen_.tried`` lists the widths. Unless metric="euclidean", a value
        that lies further outside of the range of its feature than the length of that range
        counts as that far outside. "free", and any kernel that is not radial, lets predictions
        follow the last slope, as does guarantee="jackknife+".
    loss : {"squared_error", "poisson", "gamma", "tweedie"}, default="squared_error"
        What the fit minimises besides the penalty. All but "squared_error" are the mean
        deviance of a target whose mean is the exponential of the model, so that predictions
        are positive: "poisson" for counts and rates, "gamma" for positive amounts whose spread
        grows with their size, "tweedie" for amounts of which many are zero. For counts y over
        an exposure e fit the rates y / e with ``sample_weight=e``. One target in memory.
    power : float, default=1.5
        Of ``loss="tweedie"``: the variance of the target is proportional to its mean to this
        power, from 1 (Poisson) over 2 (gamma) to 3; between 1 and 2 zeros have a probability.

    Attributes
    ----------
    model_ : Model
        Centroids, centres and weights, see :class:`parkrr.park.model.Model`.
    report_ : list of CellReport
        Rows, centres, penalty, solver, error and more of every cell, see
        :class:`parkrr.park.cells.CellReport`; ``pandas.DataFrame(report_)`` is a table.
    chosen_ : Chosen
        Every choice, what was tried with its validation error, and seconds, see
        :class:`parkrr.tuning.Chosen`. ``ParKRegressor(**chosen_.params)`` fits the same model
        with nothing left to choose.
    n_cells_ : int
        Number of cells.
    n_iter_ : int
        Most iterations in any cell; 1 for a direct solve.
    n_features_in_ : int
        Number of features d, which are columns if X was a frame or files.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features; only if X had names that are strings.
    target_names_ : list of str or None
        Names of the targets; None if y had none.
    feature_importances_ : ndarray of shape (d,)
        How much predictions change along each feature, in units of its spread; they add
        up to 1. Only for radial kernels.
    columns_ : TableEncoder
        How columns become numbers; print it for a table of the type, the kind and the share of
        missing values of each column, and what it became.
    intervals_ : Intervals
        What prediction intervals, quantiles and standard deviations are computed from.
    validation_rows_ : dict of str to ndarray
        Up to 2,000 training rows with their leave-one-out predictions: "cell", "truth",
        "predicted", and "lower" and "upper", the ends of their 0.9 intervals.
    one_output_ : bool
        Whether y had shape (n,); predictions have the shape that y had.
    statistics_ : CellStatistics or None
        What :meth:`partial_fit` and :meth:`forget` need of the training rows; None if it
        was not kept.
    seconds_ : dict of str to float
        Wall time in seconds of every step of the fit.

    See Also
    --------
    ParKClassifier : Labels and probabilities, with the same parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> X = np.linspace(0, 6, 250)[:, None]
    >>> model = ParKRegressor(n_cells=4, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.predict([[1.0], [2.0]]).round(3)
    array([0.841, 0.909])
    """

    _kind = "ParKRegressor"
    _outputs = ("prediction", "interval", "std", "novelty")

    def __init__(
        self,
        kernel: Kernel | str | Callable[[Tensor, Tensor], Any] = "auto",
        penalty: float | str = "auto",
        metric: FeatureMap | str = "auto",
        n_cells: int | str = "auto",
        n_centers: int | str | ArrayLike = "auto",
        centroids: str | ArrayLike = "uniform",
        solver: str = "auto",
        n_candidates: int | None = 5_000,
        balance: bool = True,
        blend: Blend | Literal[1, "auto"] = "auto",
        coarse: Coarse | int | str = "auto",
        effort: str = "balanced",
        time_budget: float | str = "auto",
        max_memory: float | str | None = None,
        max_model_size: float | str | None = None,
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        precision: str = "auto",
        columns: Mapping[Any, str] | None = None,
        device: str = "cpu",
        engine: Engine | str = "local",
        checkpoint: str | Path | None = None,
        keep_statistics: bool | str = "auto",
        progress: bool = True,
        callbacks: Sequence[Callback] | None = None,
        warm_start: bool | Chosen = False,
        random_state: int | np.random.RandomState | None = None,
        guarantee: str = "none",
        extrapolation: str = "bounded",
        loss: str = "squared_error",
        power: float = 1.5,
    ) -> None:
        super().__init__(
            kernel=kernel,
            penalty=penalty,
            metric=metric,
            n_cells=n_cells,
            n_centers=n_centers,
            centroids=centroids,
            solver=solver,
            n_candidates=n_candidates,
            balance=balance,
            blend=blend,
            coarse=coarse,
            effort=effort,
            time_budget=time_budget,
            max_memory=max_memory,
            max_model_size=max_model_size,
            fit_intercept=fit_intercept,
            max_iter=max_iter,
            tol=tol,
            precision=precision,
            columns=columns,
            device=device,
            engine=engine,
            checkpoint=checkpoint,
            keep_statistics=keep_statistics,
            progress=progress,
            callbacks=callbacks,
            warm_start=warm_start,
            random_state=random_state,
        )
        self.guarantee = guarantee
        self.extrapolation = extrapolation
        self.loss = loss
        self.power = power

    def _is_bounded(self) -> bool:
        # A fit without one row would have other limits, which the formula of jackknife+ leaves out.
        return self.extrapolation == "bounded" and self.guarantee != "jackknife+"

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        time: ArrayLike | None = None,
        cv: Any = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
    ) -> "ParKRegressor":
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n, d), a frame, or the result of :func:`parkrr.scan_parquet`
            Features. A frame of pandas, polars or Arrow may have columns of numbers, booleans,
            dates, times and categories, or text that is one of these. Values may be missing
            (NaN, None, NA) in arrays, frames and files; infinity is refused. Columns of a frame
            go by name in any order in all later calls, and more columns are ignored. Files hold
            target and weights as well; :func:`parkrr.scan` and :func:`parkrr.scan_csv` describe
            other sources.
        y : array-like of shape (n,) or (n, t), default=None
            Target, or t targets that are fitted together. It must be None for files.
        sample_weight : array-like of shape (n,), default=None
            Weight of each row, >= 0: 2 counts a row twice, 0 leaves it out. Only ratios matter.
            None gives all rows the same weight; it must be None for files.
        groups : array-like of shape (n,), default=None
            Group of each row, such as a patient or a block of a map. Choices, validation errors,
            intervals and calibration then come from whole groups that are left out. Use it when
            you will predict groups that the model has not seen.
        time : array-like of shape (n,), default=None
            When each row was seen, as numbers or dates. Validation rows are then the last fifth
            of the rows. The final model is fitted to all rows.
        cv : splitter of scikit-learn, default=None
            Validation rows are the test rows of its last split, such as of
            ``TimeSeriesSplit()``; it may use `groups`.
        X_val, y_val : array-like, default=None
            Validation rows of your own, as X and y. The model is not fitted to them.
        sample_weight_val : array-like, default=None
            Their weights.

        Returns
        -------
        ParKRegressor
            The fitted estimator.

        Raises
        ------
        ParameterError
            If a parameter, X, y or another argument is not valid.
        BudgetError
            If the fit cannot be done within `max_memory`.
        CellError
            If a cell cannot be solved.

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
        given = (groups, time, cv, X_val, y_val, sample_weight_val)
        split = None if all(each is None for each in given) else ValidationSplit(*given)
        return self._fit(X, y, sample_weight, split=split)

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        decay: float = 1.0,
    ) -> "ParKRegressor":
        """Add rows to the model without fitting the earlier rows again; the first call is a fit.

        Rows are added to the statistics of their cells, and only those cells are solved again:
        each becomes what a fit to all its rows with the same centres would give. Feature map,
        cells, centres, coarse level, intercept, lambda n and intervals stay those of the first
        call. ``report_[q].outgrown`` is True once cell q has four times the rows that its
        centres were drawn for; fit again then.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            New rows.
        y : array-like of shape (n,) or (n, t)
            Their targets.
        sample_weight : array-like of shape (n,), default=None
            Their weights, as for :meth:`fit`.
        decay : float, default=1.0
            Factor on the statistics of a cell before new rows are added to it, above 0 and at
            most 1. Choose less than 1 if the target drifts, so that old rows count less.

        Returns
        -------
        ParKRegressor
            The updated estimator.

        Raises
        ------
        ParameterError
            If the fit kept no statistics (see `keep_statistics`), or an argument is not valid.

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
            return self._fit(X, y, sample_weight, updates=True)
        self._update(X, y, sample_weight, decay=check_share("decay", decay))
        return self

    @return_like_input
    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.
        return_std : bool, default=False
            Whether to return a standard deviation as well.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, t)
            Predictions; of shape (n, t) if y had two dimensions in :meth:`fit`.
        std : ndarray of the same shape
            Standard deviation of a new target, only with `return_std`: the noise in the cell,
            and more where training rows are far away.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (250, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=250)
        >>> model = ParKRegressor(random_state=0).fit(X, y)
        >>> mean, std = model.predict([[1.0]], return_std=True)
        >>> std.round(1)
        array([0.1])
        """
        rows = self._rows(X)
        mean = self.model_.predict(rows, self._cores).cpu().numpy()  # (n, t)
        mean = mean[:, 0] if self.one_output_ else mean
        return (mean, self._predictor().std(rows, self._cores)) if return_std else mean

    @return_like_input
    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict intervals that contain the target with a given probability.

        Their width comes from residuals of rows that were left out of the fit, relative to a
        scale that is wide where errors are large. `guarantee` is the theorem that holds; with
        "none" the coverage is that of a locally scaled jackknife, close to the one you ask for
        but not guaranteed. All of it is for new rows that are like the training rows; use
        :meth:`novelty` to find rows that are not.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.
        coverage : float, default=0.9
            Share of targets to contain, above 0; the largest possible value is below 1 and
            depends on the number of training rows.

        Returns
        -------
        lower, upper : ndarray of shape (n,) or (n, t)
            Ends of the intervals.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If `coverage` is not valid, or needs more training rows.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (1250, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1250)
        >>> model = ParKRegressor(random_state=0).fit(X[:250], y[:250])
        >>> lower, upper = model.predict_interval(X[250:], coverage=0.9)
        >>> float(np.mean((lower <= y[250:]) & (y[250:] <= upper)).round(1))
        0.9
        """
        rows = self._rows(X)
        return self._predictor().interval(rows, coverage, self._cores)

    @return_like_input
    def predict_quantile(self, X: ArrayLike, levels: ArrayLike) -> NDArray[np.float64]:
        """Predict quantiles of the target.

        They come from the same residuals as :meth:`predict_interval`; a fit with
        ``guarantee="jackknife+"`` has none.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.
        levels : float or array-like of shape (l,)
            Levels of the quantiles, from 0.001 to 0.999.

        Returns
        -------
        ndarray of shape (n, l) or (n, t, l)
            Quantiles in the order of `levels`.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If a level is out of range, or the guarantee of the fit is "jackknife+".

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (250, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=250)
        >>> model = ParKRegressor(random_state=0).fit(X, y)
        >>> low, middle, high = model.predict_quantile([[1.0]], [0.1, 0.5, 0.9])[0]
        >>> bool(low < middle < high)
        True
        """
        rows = self._rows(X)
        return self._predictor().quantiles(rows, levels, self._cores)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Compute the coefficient of determination R^2 of predictions.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.
        y : array-like of shape (n,) or (n, t)
            Their targets.
        sample_weight : array-like of shape (n,), default=None
            Their weights.

        Returns
        -------
        float
            1 for exact predictions, 0 for those of a constant mean, below 0 for worse ones.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> ParKRegressor(random_state=0).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.99
        True
        """
        return float(super().score(collect(X), read_numbers(y), collect(sample_weight)))

    def _check_training_rows(
        self, X: Any, y: Any, sample_weight: Any, classes: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], ArrayLike | None]:
        y = None if y is None else read_numbers(y)
        with naming_parameter("X, y"):
            rows, target = validate_data(
                self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
            )
        self.one_output_ = target.ndim == 1
        return rows, target.reshape(len(target), -1), sample_weight

    def _check_new_rows(
        self, y: Any, sample_weight: Any, n: int, t: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        Y = np.asarray(read_numbers(y), dtype=np.float64)
        Y = Y.reshape(len(Y), -1) if Y.ndim else Y
        if Y.shape != (n, t) or not np.isfinite(Y).all():
            raise ParameterError(
                f"y must be {n} finite rows of {t} targets, as in fit, got shape {np.shape(y)}"
            )
        return Y, None if sample_weight is None else check_weights(sample_weight, n)

    def _code_targets(self, y: Any) -> NDArray[Any]:
        return read_numbers(y)

    def _predictor(self) -> Predictor:
        return Predictor(self.model_, self.one_output_, intervals=self.intervals_)

    def _learn_uncertainty(
        self,
        result: FitResult,
        settings: FitSettings,
        predicted: Tensor,
        set_aside: ArraySource | None,
    ) -> tuple[list[dict[str, Any]], str]:
        model, left_out = result.model, result.left_out
        ridge = settings.penalty * sum(cell.weight for cell in result.report)  # lambda n
        sizes = [cell.rows for cell in result.report]
        self.intervals_, scales, v = learn_intervals(
            model,
            left_out,
            predicted,
            ridge=ridge,
            sizes=sizes,
            n_threads=self._cores,
            seed=settings.seed,
            n_choices=count_choices(self.get_params(deep=False)),
        )
        if set_aside is not None:
            self.intervals_ = calibrate_intervals(
                self.intervals_, model, set_aside, sizes, self.guarantee, self._cores
            )
        elif result.influence is not None:
            jackknife = keep_leave_one_out_fits(result.influence, left_out.Y - predicted)
            self.intervals_ = replace(self.intervals_, jackknife=jackknife)
        rows = regression_rows(model, left_out, predicted, self.intervals_, v, settings.seed)
        self.validation_rows_ = {
            name: values[:, 0] if self.one_output_ and values.ndim == 2 else values
            for name, values in rows.items()
        }
        tried = [{"step": "intervals", **scale} for scale in scales]
        if self.guarantee != "none":
            held = self.intervals_.held_rows
            tried.append({"step": "guarantee", "by": self.guarantee, "rows": held})
        return tried, self.intervals_.scale_name

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
