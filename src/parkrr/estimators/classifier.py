"""ParKClassifier: labels and their probabilities."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from parkrr.data import (
    ArraySource,
    check_weights,
    class_indices,
    collect,
    compute_class_weights,
    encode_classes,
    naming_parameter,
    read_labels,
    return_like_input,
)
from parkrr.errors import ParameterError, check_share
from parkrr.estimators.base import ParKEstimator
from parkrr.estimators.validation_split import ValidationSplit
from parkrr.kernels import FeatureMap, Kernel
from parkrr.park import Coarse, FitResult, FitSettings
from parkrr.partition import Blend
from parkrr.runtime import Callback, Engine
from parkrr.tuning import Chosen
from parkrr.uncertainty import (
    Calibration,
    Predictor,
    classification_rows,
    learn_calibration,
)


class ParKClassifier(ClassifierMixin, ParKEstimator):  # type: ignore[misc]
    """Classification by kernel ridge regression on feature-space partitions (ParK).

    Classes become codes of +1 and -1, which are fitted as several targets of one kernel ridge
    regression; see :class:`ParKRegressor`. Probabilities are calibrated on leave-one-out
    predictions. Every parameter that is "auto" is chosen for your rows, on validation rows or
    by leave-one-out.

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
    class_weight : dict, "balanced" or None, default=None
        Weight > 0 of each label; labels that the dict lacks have weight 1. "balanced" gives
        all classes the same total weight, for classes of very different sizes. None gives
        all rows the same weight.

    Attributes
    ----------
    model_ : Model
        Centroids, centres and weights, see :class:`parkrr.park.model.Model`.
    report_ : list of CellReport
        Rows, centres, penalty, solver, error and more of every cell, see
        :class:`parkrr.park.cells.CellReport`; ``pandas.DataFrame(report_)`` is a table.
    chosen_ : Chosen
        Every choice, what was tried with its validation error, and seconds, see
        :class:`parkrr.tuning.Chosen`. ``ParKClassifier(**chosen_.params)`` fits the same model
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
    classes_ : ndarray of shape (k,)
        Labels in order.
    calibration_ : Calibration or None
        How scores become probabilities, see :mod:`parkrr.uncertainty.calibration`; None if
        there is one class.
    validation_rows_ : dict of str to ndarray
        Up to 2,000 training rows with their leave-one-out predictions: "cell", "truth",
        "predicted", and "confidence", the probability of the predicted label.
    statistics_ : CellStatistics or None
        What :meth:`partial_fit` and :meth:`forget` need of the training rows; None if it
        was not kept.
    seconds_ : dict of str to float
        Wall time in seconds of every step of the fit.

    See Also
    --------
    ParKRegressor : Numbers and prediction intervals, with the same parameters.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from parkrr import ParKClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ParKClassifier(random_state=0).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    >>> model.predict_proba(X[:1]).argmax()
    np.int64(0)
    """

    _kind = "ParKClassifier"
    _outputs = ("prediction", "probability", "novelty")

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
        class_weight: dict[Any, float] | str | None = None,
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
        self.class_weight = class_weight

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
    ) -> "ParKClassifier":
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
        y : array-like of shape (n,), default=None
            Labels: strings, integers or booleans. It must be None for files.
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
        ParKClassifier
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
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = ParKClassifier(random_state=0).fit(X, np.where(X[:, 0] > 0.5, "high", "low"))
        >>> model.classes_
        array(['high', 'low'], dtype='<U4')
        """
        given = (groups, time, cv, X_val, y_val, sample_weight_val)
        split = None if all(each is None for each in given) else ValidationSplit(*given)
        return self._fit(X, y, sample_weight, split=split)

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        decay: float = 1.0,
    ) -> "ParKClassifier":
        """Add rows to the model without fitting the earlier rows again; the first call is a fit.

        Only the cells of new rows are solved again. What stays as it is, and when to fit again,
        is described in :meth:`ParKRegressor.partial_fit`; here the probabilities stay calibrated
        on the rows of the first call.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            New rows.
        y : array-like of shape (n,)
            Their labels.
        classes : array-like of shape (k,), default=None
            All labels that will occur. Pass it to the first call if its rows do not have all of
            them; later calls ignore it.
        sample_weight : array-like of shape (n,), default=None
            Their weights, as for :meth:`fit`.
        decay : float, default=1.0
            Factor on the statistics of a cell before new rows are added to it, above 0 and at
            most 1. Choose less than 1 if classes drift, so that old rows count less.

        Returns
        -------
        ParKClassifier
            The updated estimator.

        Raises
        ------
        ParameterError
            If the fit kept no statistics (see `keep_statistics`), a label is new, or
            `class_weight` is "balanced" in an update.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 300)[:, None]
        >>> labels = np.where(X[:, 0] > 0.5, "high", "low")
        >>> model = ParKClassifier(random_state=0)
        >>> for part in np.array_split(np.random.default_rng(0).permutation(300), 3):
        ...     model = model.partial_fit(X[part], labels[part], classes=["low", "high"])
        >>> model.predict([[0.1], [0.9]])
        array(['low', 'high'], dtype='<U4')
        """
        if not hasattr(self, "model_"):
            known = None if classes is None else np.unique(np.asarray(classes))
            return self._fit(X, y, sample_weight, updates=True, classes=known)
        self._update(X, y, sample_weight, decay=check_share("decay", decay))
        return self

    @return_like_input
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute scores, whose sign or largest entry gives the class.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.

        Returns
        -------
        ndarray of shape (n,) or (n, k)
            For two classes one score, positive for ``classes_[1]``; otherwise one score for each
            of `classes_`.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = ParKClassifier(random_state=0).fit(X, X[:, 0] > 0.5)
        >>> model.decision_function([[0.1], [0.9]]) > 0
        array([False,  True])
        """
        rows = self._rows(X)
        out = self._predictor().decide(rows, self._cores)
        return out[:, 0] if len(self.classes_) == 2 else out

    @return_like_input
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of each row.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.

        Returns
        -------
        ndarray of shape (n,)
            Labels from `classes_`.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> ParKClassifier(random_state=0).fit(X, X[:, 0] > 0.5).predict([[0.1], [0.9]])
        array([False,  True])
        """
        rows = self._rows(X)
        return self._predictor().predict(rows, self._cores)

    @return_like_input
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the probability of each class.

        Probabilities are calibrated on leave-one-out predictions of training rows: of the rows
        with a probability of 0.8, about four in five belong to that class.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.

        Returns
        -------
        ndarray of shape (n, k)
            Probabilities in the order of `classes_`.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(250, 1))
        >>> labels = rng.random(250) < X[:, 0]  # a row at 0.8 is True in four of five cases
        >>> model = ParKClassifier(random_state=0).fit(X, labels)
        >>> bool(0.6 < model.predict_proba([[0.8]])[0, 1] < 0.95)
        True
        """
        rows = self._rows(X)
        return self._predictor().probabilities(rows, self._cores)

    @return_like_input
    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.

        Returns
        -------
        ndarray of shape (n, k)
            Logarithms of :meth:`predict_proba`, which are always finite.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = ParKClassifier(random_state=0).fit(X, X[:, 0] > 0.5)
        >>> model.predict_log_proba([[0.9]]).shape
        (1, 2)
        """
        P = self.predict_proba(collect(X)).clip(np.finfo(np.float64).tiny)
        return np.log(P)  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Compute the accuracy of predictions.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.
        y : array-like of shape (n,)
            Their labels.
        sample_weight : array-like of shape (n,), default=None
            Their weights.

        Returns
        -------
        float
            Share of the rows whose class is predicted, from 0 to 1.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> labels = X[:, 0] > 0.5
        >>> model = ParKClassifier(random_state=0).fit(X[::2], labels[::2])
        >>> model.score(X[1::2], labels[1::2]) > 0.9
        True
        """
        return float(super().score(collect(X), read_labels(y), collect(sample_weight)))

    def _check_training_rows(
        self, X: Any, y: Any, sample_weight: Any, classes: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], ArrayLike | None]:
        y = None if y is None else read_labels(y)
        with naming_parameter("X, y"):
            rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
            check_classification_targets(labels)
            self.classes_, number = np.unique(labels, return_inverse=True)
        if classes is not None:
            self.classes_ = classes
            number = self._class_indices(labels)
        by_class = compute_class_weights(
            self.class_weight, self.classes_.tolist(), np.bincount(number)
        )
        if by_class is not None:
            w = 1.0 if sample_weight is None else check_weights(sample_weight, len(number))
            sample_weight = w * by_class[number]
        return rows, encode_classes(number, len(self.classes_)), sample_weight

    def _check_new_rows(
        self, y: Any, sample_weight: Any, n: int, t: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        number = self._class_indices(y)
        if number.shape != (n,):
            raise ParameterError(f"y must be {n} labels, got shape {number.shape}")
        w = None if sample_weight is None else check_weights(sample_weight, n)
        if isinstance(self.class_weight, str):
            raise ParameterError(
                f"class_weight must be None or a weight for each label to update a model or to "
                f"take X_val, got {self.class_weight!r}; the balance of all rows is not that of "
                f"new ones"
            )
        by_class = compute_class_weights(
            self.class_weight, self.classes_.tolist(), np.bincount(number)
        )
        if by_class is not None:
            w = by_class[number] if w is None else w * by_class[number]
        return encode_classes(number, len(self.classes_)).astype(np.float64), w

    def _code_targets(self, y: Any) -> NDArray[Any]:
        classes, number = np.unique(read_labels(y), return_inverse=True)
        return encode_classes(number, len(classes))

    def _class_indices(self, labels: Any) -> NDArray[np.int64]:
        """The position of each label in `classes_`, shape (n,)."""
        labels = read_labels(labels)
        known = np.isin(labels, self.classes_)
        if not known.all():
            raise ParameterError(
                f"y must hold labels of the first fit, {self.classes_.tolist()}, got "
                f"{labels[~known][0]!r}; name all of them as classes= of the first partial_fit"
            )
        number: NDArray[np.int64] = np.searchsorted(self.classes_, labels)
        return number

    def _n_outputs(self, y: ArrayLike | None) -> int:
        n_classes = 2 if y is None else len(np.unique(read_labels(y)))
        return 1 if n_classes == 2 else n_classes

    def _predictor(self) -> Predictor:
        return Predictor(self.model_, False, classes=self.classes_, calibration=self.calibration_)

    def _learn_uncertainty(
        self,
        result: FitResult,
        settings: FitSettings,
        predicted: Tensor,
        set_aside: ArraySource | None,
    ) -> tuple[list[dict[str, Any]], str]:
        self.calibration_: Calibration | None = None
        self.validation_rows_ = {}
        if len(self.classes_) == 1:
            return [], ""
        left_out = result.left_out
        labels = class_indices(left_out.Y.cpu().numpy(), len(self.classes_))
        self.calibration_, losses = learn_calibration(
            predicted.cpu().numpy(),
            labels,
            left_out.weights.cpu().numpy(),
            settings.seed,
        )
        self.validation_rows_ = classification_rows(
            left_out, predicted, self.classes_, self.calibration_, settings.seed
        )
        fewest = int(np.bincount(labels, minlength=len(self.classes_)).min())
        tried = [
            {"step": "probabilities", "by": k, "log loss": v, "fewest rows": fewest}
            for k, v in losses.items()
        ]
        return tried, self.calibration_.name
