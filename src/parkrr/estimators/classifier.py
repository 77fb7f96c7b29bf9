"""ParKClassifier: labels and their probabilities."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from parkrr.data import ParquetTable, check_weights, class_numbers, class_weights, codes, naming
from parkrr.errors import ParameterError, check_share
from parkrr.estimators.base import ParKEstimator
from parkrr.kernels import FeatureMap, Kernel
from parkrr.park import Coarse, FitResult, FitSettings
from parkrr.partition import Blend
from parkrr.runtime import Engine
from parkrr.uncertainty import (
    Calibration,
    Predictor,
    classification_rows,
    learn_calibration,
)


class ParKClassifier(ClassifierMixin, ParKEstimator):  # type: ignore[misc]
    """Classification by kernel ridge regression on feature-space partitions (ParK).

    Classes become +1 / -1 codes that are fitted in one solve with several outputs; rows left out
    in turn teach how scores become probabilities. The parameters and attributes are those of
    :class:`ParKRegressor`, `classes_`, and:

    Parameters
    ----------
    class_weight
        "balanced", so that every class counts the same; the weight of each label; or None.

    Attributes
    ----------
    calibration_
        From scores to probabilities, see
        :mod:`parkrr.uncertainty.calibration`; None for a single class.

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
    _answers = ("prediction", "probability", "novelty")
    _given_classes: NDArray[Any] | None = None  # to the first call of partial_fit

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
        max_memory: float | str | None = None,
        fit_intercept: bool = True,
        max_iter: int = 100,
        tol: float = 1e-4,
        precision: str = "auto",
        device: str = "cpu",
        engine: Engine | str = "local",
        checkpoint: str | Path | None = None,
        keep_statistics: bool | str = "auto",
        progress: bool = True,
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
            time_budget=time_budget,
            max_memory=max_memory,
            fit_intercept=fit_intercept,
            max_iter=max_iter,
            tol=tol,
            precision=precision,
            device=device,
            engine=engine,
            checkpoint=checkpoint,
            keep_statistics=keep_statistics,
            progress=progress,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> "ParKClassifier":
        """Fit the model to labels y (n,) of any kind; the rest as for the regressor.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = ParKClassifier(random_state=0).fit(X, np.where(X[:, 0] > 0.5, "high", "low"))
        >>> model.classes_
        array(['high', 'low'], dtype='<U4')
        """
        if isinstance(X, ParquetTable):
            self._fit_table(X, y, sample_weight, classify=True)
            return self
        X = self._numbers(X, y, sample_weight)
        with naming("X, y"):
            rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
            check_classification_targets(labels)
            self.classes_, at = np.unique(labels, return_inverse=True)
        if self._given_classes is not None:
            self.classes_ = self._given_classes
            at = self._numbers_of(labels)
        by_class = class_weights(self.class_weight, self.classes_.tolist(), np.bincount(at))
        if by_class is not None:
            w = 1.0 if sample_weight is None else check_weights(sample_weight, len(at))
            sample_weight = w * by_class[at]
        self._fit(rows, codes(at, len(self.classes_)), sample_weight)
        return self

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        decay: float = 1.0,
    ) -> "ParKClassifier":
        """Learn more rows, see :meth:`ParKRegressor.partial_fit`; the first call is a fit.

        Parameters
        ----------
        classes
            All labels that there will be, in the first call, if its rows do not have them all.

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
            self._given_classes = None if classes is None else np.unique(np.asarray(classes))
            try:
                with self._first_rows():
                    return self.fit(X, y, sample_weight)
            finally:
                del self._given_classes
        self._update(X, y, sample_weight, 1.0, check_share("decay", decay))
        return self

    def _numbers_of(self, labels: Any) -> NDArray[np.int64]:
        """Which of `classes_` each label is, shape (n,)."""
        labels = np.asarray(labels)
        known = np.isin(labels, self.classes_)
        if not known.all():
            raise ParameterError(
                f"y must hold labels of the first fit, {self.classes_.tolist()}, got "
                f"{labels[~known][0]!r}; name all of them as classes= of the first partial_fit"
            )
        at: NDArray[np.int64] = np.searchsorted(self.classes_, labels)
        return at

    def _targets(self, y: Any, n: int) -> NDArray[np.float64]:
        at = self._numbers_of(y)
        if at.shape != (n,):
            raise ParameterError(f"y must be {n} labels, got shape {at.shape}")
        return codes(at, len(self.classes_)).astype(np.float64)

    def _weighed(self, y: Any, sample_weight: Any, n: int) -> NDArray[np.float64] | None:
        w = super()._weighed(y, sample_weight, n)
        if self.class_weight is None:
            return w
        if isinstance(self.class_weight, str):
            raise ParameterError(
                f"class_weight must be None or a weight for each label to update a model, got "
                f"{self.class_weight!r}; the balance of all rows is not that of new ones"
            )
        at = self._numbers_of(y)
        by_class = class_weights(self.class_weight, self.classes_.tolist(), np.bincount(at))
        assert by_class is not None
        own: NDArray[np.float64] = by_class[at]
        return own if w is None else w * own

    def _outputs(self, y: ArrayLike | None) -> int:
        classes = 2 if y is None else len(np.unique(np.asarray(y)))
        return 1 if classes == 2 else classes

    def _coded(self, y: ArrayLike) -> NDArray[Any]:
        classes, at = np.unique(np.asarray(y), return_inverse=True)
        return codes(at, len(classes))

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores at X (n, d): (n,) for two classes, positive for the second; else (n, k).

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = ParKClassifier(random_state=0).fit(X, X[:, 0] > 0.5)
        >>> model.decision_function([[0.1], [0.9]]) > 0
        array([False,  True])
        """
        out = self._answering().decide(self._rows(X), self._cores)
        return out[:, 0] if len(self.classes_) == 2 else out

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each row of X (n, d), shape (n,).

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> ParKClassifier(random_state=0).fit(X, X[:, 0] > 0.5).predict([[0.1], [0.9]])
        array([False,  True])
        """
        return self._answering().predict(self._rows(X), self._cores)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of each of `classes_` at X (n, d), shape (n, k).

        Calibrated on rows that were each left out, so that of answers of 0.8 four in five hold.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(500, 1))
        >>> labels = rng.random(500) < X[:, 0]  # a row at 0.8 is True in four of five cases
        >>> model = ParKClassifier(random_state=0).fit(X, labels)
        >>> bool(0.6 < model.predict_proba([[0.8]])[0, 1] < 0.95)
        True
        """
        return self._answering().probabilities(self._rows(X), self._cores)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The logarithm of that probability, shape (n, k).

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKClassifier
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = ParKClassifier(random_state=0).fit(X, X[:, 0] > 0.5)
        >>> model.predict_log_proba([[0.9]]).shape
        (1, 2)
        """
        P = self.predict_proba(X).clip(np.finfo(np.float64).tiny)
        return np.log(P)  # type: ignore[no-any-return]

    def _answering(self) -> Predictor:
        self._check_fitted()
        return Predictor(self.model_, False, classes=self.classes_, calibration=self.calibration_)

    def _learn_uncertainty(
        self, result: FitResult, park: FitSettings, predicted: Tensor
    ) -> tuple[list[dict[str, Any]], str]:
        self.calibration_: Calibration | None = None
        self.validation_rows_ = {}
        if len(self.classes_) == 1:
            return [], ""
        left_out, F = result.left_out, predicted.cpu().numpy()
        at = class_numbers(left_out.Y.cpu().numpy(), len(self.classes_))
        w = left_out.weights.cpu().numpy()
        self.calibration_, losses = learn_calibration(F, at, w, park.seed)
        self.validation_rows_ = classification_rows(
            left_out, predicted, self.classes_, self.calibration_, park.seed
        )
        tried = [{"step": "probabilities", "by": k, "log loss": v} for k, v in losses.items()]
        return tried, self.calibration_.name
