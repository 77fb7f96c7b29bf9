"""What the two estimators share: parameters, the fit, files."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from parkrr.data import (
    FEW_ROWS,
    ArraySource,
    Block,
    Columns,
    ParquetTable,
    Target,
    as_source,
    as_tensor,
    check_weights,
    frame_table,
    learn_frame,
    merged,
    naming,
    real,
)
from parkrr.errors import ParameterError
from parkrr.estimators.fitted import Fitted
from parkrr.inspection import importance
from parkrr.kernels import FeatureMap, Kernel, Radial
from parkrr.out_of_core import stream
from parkrr.park import (
    CellReport,
    CellStatistics,
    Coarse,
    FitResult,
    FitSettings,
    Model,
    added,
    check_weights_left,
    sums_of,
    told,
    updated,
)
from parkrr.partition import Blend
from parkrr.planning import (
    Plan,
    check_keeping,
    checked_shape,
    chosen_park,
    learned,
    left_of,
    park_of,
    patience,
    plan_rows,
    plan_table,
    stays_on_disk,
    wish_of,
)
from parkrr.runtime import Engine, as_engine, check_device, give_back, moved, process_bytes
from parkrr.tuning import Chosen, TuningLog
from parkrr.uncertainty import add_cell_errors

PLAN_ROWS = 20_000  # that a plan looks at
SMALL_STATISTICS = 2**20  # bytes, 360 centres in one cell
SUMMED_ROWS = 2**16  # that are added up at a time


class ParKEstimator(Fitted):
    """What the two estimators share: parameters, their rules, and a multi-output fit."""

    _updating = False  # while the first rows of a stream are fitted

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
        self.checkpoint = checkpoint
        self.keep_statistics = keep_statistics
        self.progress = progress
        self.random_state = random_state

    def _fit(self, X: NDArray[Any], Y: NDArray[Any], sample_weight: ArrayLike | None) -> None:
        """Fit all columns of Y (n, t) at once."""
        rows = as_source(X, Y, sample_weight, check_device(self.device))
        self._fit_rows(rows, as_seed(self.random_state), self._parameters())
        self._name(self.columns_)

    def _parameters(self) -> dict[str, Any]:
        """Parameters; a first :meth:`partial_fit` keeps statistics whatever they say."""
        params: dict[str, Any] = self.get_params(deep=False)
        return params | ({"keep_statistics": True} if self._updating else {})

    def _fit_rows(self, rows: ArraySource, seed: int, params: dict[str, Any]) -> None:
        """Fit all targets of rows in memory at once."""
        wish = wish_of(params)
        # Each of few rows is left out in turn: with all its copies, or it would predict itself.
        rows = merged(rows) if rows.n_rows < FEW_ROWS else rows
        sizes = checked_shape(params, rows)
        park = park_of(params, wish, sizes, rows.n_rows, seed)
        park, diary = chosen_park(park, wish, patience(params), rows)
        give_back()  # what choosing took, before cells take theirs
        result = park.fit(rows)
        sample = rows.sample(importance.ROWS, park.seed).X
        self._keep(result, park, diary, sample)
        self._keep_sums(rows.blocks(SUMMED_ROWS), params)

    @contextmanager
    def _first_rows(self) -> Iterator[None]:
        """A fit inside keeps statistics."""
        self._updating = True
        try:
            yield
        finally:
            del self._updating

    def _keep_sums(self, blocks: Iterable[Block], params: dict[str, Any]) -> None:
        """What updates need of the rows that were fitted, if it is to be kept."""
        self.statistics_: CellStatistics | None = None
        if keeps(params, self.report_, len(self.model_.intercept)):
            start = time.perf_counter()
            self.statistics_ = sums_of(self.model_, self.report_, blocks)
            self.seconds_["statistics"] = time.perf_counter() - start

    def plan(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Plan:
        """What a fit of these rows will be: cells, centres, peak memory, seconds of every step.

        Pieces of the fit are timed on this machine, which takes some two seconds; of files one row
        group is read. What cannot be done within `max_memory` is refused, as by `fit`.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`; y only says how many targets or classes there are.

        Returns
        -------
        Plan
            Print it; ``plan.plain()`` is a dict.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> plan = ParKRegressor().plan(np.random.default_rng(0).normal(size=(20_000, 5)))
        >>> plan.cells, plan.centers
        (5, 20000)
        """
        params, classify = self.get_params(deep=False), self._kind == "ParKClassifier"
        if isinstance(X, ParquetTable):
            return plan_table(params, X, classify, 0)
        names = frame_table(X)
        if names is None:
            X = check_array(X, dtype=[np.float64, np.float32], ensure_min_samples=1)
        head = X[:PLAN_ROWS] if names is None else names[:PLAN_ROWS]
        Y = np.zeros((len(head), self._outputs(y)))
        if names is not None:
            head = learn_frame(head, Y, None).encode(head)
        rows = ArraySource(as_tensor(head), as_tensor(Y))
        n, features = (len(X), X.shape[1]) if names is None else names.shape
        return plan_rows(params, rows, n, features)

    def _update(self, X: Any, y: Any, sample_weight: Any, sign: float, decay: float) -> None:
        """Add rows to what cells know, or take them away, and solve those cells again."""
        check_is_fitted(self)
        if self.statistics_ is None:
            raise ParameterError(
                "partial_fit and forget need keep_statistics=True in the fit before, or a model "
                "that began with partial_fit, got neither"
            )
        rows = self._rows(X)
        Y = self._targets(y, len(rows))  # (n, t)
        w = self._weighed(y, sample_weight, len(rows))
        weights = None if w is None else as_tensor(w)
        sums, touched = added(
            self.statistics_, self.model_, Block(rows, as_tensor(Y), weights), sign, decay
        )
        check_weights_left(sums, touched)
        self.model_ = updated(self.model_, sums, touched)
        self.statistics_, self.report_ = sums, told(self.report_, sums, touched)

    @abstractmethod
    def _targets(self, y: Any, n: int) -> NDArray[np.float64]:
        """Targets of n rows as the model was fitted to them, shape (n, t)."""

    def _weighed(self, y: Any, sample_weight: Any, n: int) -> NDArray[np.float64] | None:
        """Weights of n rows, or None."""
        return None if sample_weight is None else check_weights(sample_weight, n)

    def forget(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Take rows that were learned before out of the model, as if it had never seen them.

        Their cells are solved again from what the other rows add up to; needs
        ``keep_statistics=True`` or a model that began with `partial_fit`. Centres stay, even
        those that were among these rows.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 400)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> y[:10] = 5.0  # wrong
        >>> model = ParKRegressor(keep_statistics=True, random_state=0).fit(X, y)
        >>> round(float(model.forget(X[:10], y[:10]).predict([[0.1]])[0]), 1)
        0.1
        """
        self._update(X, y, sample_weight, sign=-1.0, decay=1.0)
        return self

    def _outputs(self, y: ArrayLike | None) -> int:
        """Columns that a target becomes."""
        return 1 if y is None or np.ndim(y) == 1 else np.shape(y)[1]

    def _fit_table(self, table: ParquetTable, y: Any, weight: Any, classify: bool) -> None:
        """Fit rows of files, in memory if they fit there."""
        if y is not None or weight is not None:
            raise ParameterError(
                "y and sample_weight must be columns of the files; name them as target= and "
                "weight= of scan_parquet"
            )
        params, seed = self._parameters(), as_seed(self.random_state)
        if stays_on_disk(table, params):
            found = stream(table, params, seed, classify)
            self._name_target(found.rows.target)
            self._keep(found.result, found.settled, found.diary, found.looked_at)
            del self.seconds_["partition"]  # of files that is the pass
            self.seconds_ |= found.seconds
            self._keep_sums(found.rows.blocks(), params)
            self._name(found.rows.columns)
        else:
            rows = learned(table, params, seed, classify)
            self._name_target(rows.target)
            loaded = moved(rows.load(as_engine(self.engine).local), check_device(self.device))
            self._fit_rows(loaded, seed, left_of(params, process_bytes()))
            self._name(rows.columns)

    def _name_target(self, target: Target) -> None:
        """What the columns of a table say of the target."""
        self._one_output = len(target.names) == 1
        if target.classes is not None:
            self.classes_ = target.classes

    def _keep(self, result: FitResult, park: FitSettings, diary: TuningLog, sample: Tensor) -> None:
        """What a fit leaves behind."""
        start = time.perf_counter()
        self.model_ = result.model
        predicted = result.left_out.predictions(result.model, self._cores)  # (h, t)
        self.report_: list[CellReport] = add_cell_errors(result.report, result.left_out, predicted)
        self.n_cells_ = len(result.report)
        self.n_iter_ = max(max(cell.iterations, 1) for cell in result.report)
        seconds = {"partition": result.place_seconds, "cells": result.cells_seconds}
        self.seconds_: dict[str, float] = diary.seconds | seconds
        tried, how = self._learn_uncertainty(result, park, predicted)
        self.seconds_["uncertainty"] = time.perf_counter() - start
        settled = self._settled(park, result.model)
        self.chosen_ = Chosen(settled, [*diary.tried, *tried], diary.seconds, how)
        self.__dict__.pop("feature_importances_", None)  # of an earlier fit
        if isinstance(park.kernel, Radial):
            self.feature_importances_ = importance.importances(result.model, sample).cpu().numpy()
        warn_unconverged(result.report, self.max_iter, self.tol)

    def _settled(self, park: FitSettings, model: Model) -> dict[str, Any]:
        """Parameters that fit the same model with nothing left to choose."""
        names = ("kernel", "penalty", "n_cells", "n_centers", "blend")
        settled = {name: getattr(park, name) for name in names}
        settled |= {"metric": model.metric, "coarse": park.coarse or 0}
        settled["precision"] = str(park.dtype).removeprefix("torch.")
        return {**self.get_params(deep=False), **settled, "random_state": park.seed}

    def _numbers(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """X with its words, dates and gaps as numbers, if it is a frame that has any."""
        self.columns_: Columns | None = None
        table = frame_table(X)
        if table is None:
            return X
        w = None if sample_weight is None else check_weights(sample_weight, len(table))
        if w is not None:  # only ratios matter, and a sum of weights of 1e308 is infinite
            w = w / w.max()
            w = w / w.mean()
        with naming("y"):
            Y = self._coded(y)
        if Y.shape[:1] != (len(table),):
            raise ParameterError(f"y must have one entry a row ({len(table)}), got {Y.shape}")
        self.columns_ = learn_frame(table, Y.reshape(len(table), -1), w)
        return self.columns_.encode(table)

    def _coded(self, y: ArrayLike) -> NDArray[Any]:
        """The target as numbers."""
        return real(y)

    def _name(self, columns: Columns | None) -> None:
        """Features are the columns of the table, whatever numbers they have become."""
        if columns is None:
            return
        self.columns_ = columns
        self.n_features_in_ = len(columns.names)
        self.feature_names_in_ = np.array(columns.names, dtype=object)
        if hasattr(self, "feature_importances_"):
            self.feature_importances_ = np.bincount(
                columns.owners, self.feature_importances_, minlength=self.n_features_in_
            )

    @abstractmethod
    def _learn_uncertainty(
        self, result: FitResult, park: FitSettings, predicted: Tensor
    ) -> tuple[list[dict[str, Any]], str]:
        """Learn from rows left out and predictions of them; what was compared, and what won."""


def keeps(params: dict[str, Any], report: list[CellReport], t: int) -> bool:
    """Whether a fit keeps statistics: if asked to, and by itself those of small models."""
    small = 8 * sum(cell.centers * (cell.centers + t) for cell in report) <= SMALL_STATISTICS
    return check_keeping(params["keep_statistics"]) or (
        small and params["keep_statistics"] == "auto"
    )


def as_seed(random_state: int | np.random.RandomState | None) -> int:
    """A whole number is the seed itself, so that a fit can be repeated from its seed."""
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ParameterError(f"random_state must be >= 0, got {random_state!r}")
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
