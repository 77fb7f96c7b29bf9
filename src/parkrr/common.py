"""What the two estimators share: parameters, the fit, files."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from parkrr import importance
from parkrr.answering import Answering, checked_coverage
from parkrr.arrays import as_source, as_tensor, check_weights
from parkrr.cells import CellReport
from parkrr.checks import check_device, check_one_of
from parkrr.columns import Columns, from_plain
from parkrr.disk import learned, stays_on_disk, stream
from parkrr.engine import Engine
from parkrr.errors import ParameterError
from parkrr.fit import Coarse, FitResult, Park
from parkrr.kernels import Kernel, Radial
from parkrr.metrics import FeatureMap
from parkrr.model import Model
from parkrr.modelfile import Saved, params_of, plain_params, write_model
from parkrr.partition import Blend
from parkrr.prediction import Predicting, numbers_only, predict_files
from parkrr.rowtable import Target, encode_frame, frame_table, learn_frame
from parkrr.settings import (
    as_engine,
    chosen_park,
    park_of,
    patience,
    sizes_of,
    wish_of,
)
from parkrr.sources import FEW_ROWS, ArraySource, merged
from parkrr.tables import ParquetTable
from parkrr.tuning import Chosen, Diary


class ParKEstimator(ABC, BaseEstimator):  # type: ignore[misc]
    """What the two estimators share: parameters, their rules, and a multi-output fit."""

    _kind: ClassVar[str]  # in a model file, whatever a subclass is called
    _answers: ClassVar[tuple[str, ...]]  # that files can hold

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
        self.progress = progress
        self.random_state = random_state

    def _fit(self, X: NDArray[Any], Y: NDArray[Any], sample_weight: ArrayLike | None) -> None:
        """Fit all columns of Y (n, t) at once."""
        rows = as_source(X, Y, sample_weight, check_device(self.device))
        self._fit_rows(rows, as_seed(self.random_state))
        self._name(self.columns_)

    def _fit_rows(self, rows: ArraySource, seed: int) -> None:
        """Fit all targets of rows in memory at once."""
        params = self.get_params(deep=False)
        wish, engine = wish_of(params), as_engine(self.engine)
        # Each of few rows is left out in turn: with all its copies, or it would predict itself.
        rows = merged(rows) if rows.n_rows < FEW_ROWS else rows
        sizes = sizes_of(params, rows.n_rows, rows.X.shape[1], engine.local)
        park = park_of(params, wish, sizes, rows.n_rows, seed)
        park, diary = chosen_park(park, wish, patience(params), rows)
        result = park.fit(rows)
        sample = rows.sample(importance.ROWS, park.seed).X
        self._keep(result, park, diary, sample)

    def _fit_table(self, table: ParquetTable, y: Any, weight: Any, classify: bool) -> None:
        """Fit rows of files, in memory if they fit there."""
        if y is not None or weight is not None:
            raise ParameterError(
                "y and sample_weight must be columns of the files; name them as target= and "
                "weight= of scan_parquet"
            )
        params, seed = self.get_params(deep=False), as_seed(self.random_state)
        if stays_on_disk(table, params):
            found = stream(table, params, seed, classify)
            self._name_target(found.rows.target)
            self._keep(found.result, found.settled, found.diary, found.looked_at)
            self.seconds_ |= found.seconds
            self._name(found.rows.columns)
        else:
            rows = learned(table, params, seed, classify)
            self._name_target(rows.target)
            self._fit_rows(rows.load(as_engine(self.engine).local), seed)
            self._name(rows.columns)

    def _name_target(self, target: Target) -> None:
        """What the columns of a table say of the target."""
        self._one_output = len(target.names) == 1
        if target.classes is not None:
            self.classes_ = target.classes

    def _keep(self, result: FitResult, park: Park, diary: Diary, sample: Tensor) -> None:
        """What a fit leaves behind."""
        start = time.perf_counter()
        self.model_ = result.model
        self.report_: list[CellReport] = result.report
        self.n_cells_ = len(result.report)
        self.n_iter_ = max(max(cell.iterations, 1) for cell in result.report)
        seconds = {"place": result.place_seconds, "cells": result.cells_seconds}
        self.seconds_: dict[str, float] = diary.seconds | seconds
        tried, how = self._learn_uncertainty(result, park)
        self.seconds_["uncertainty"] = time.perf_counter() - start
        settled = self._settled(park, result.model)
        self.chosen_ = Chosen(settled, [*diary.tried, *tried], diary.seconds, how)
        self.__dict__.pop("feature_importances_", None)  # of an earlier fit
        if isinstance(park.kernel, Radial):
            self.feature_importances_ = importance.importances(result.model, sample).cpu().numpy()
        warn_unconverged(result.report, self.max_iter, self.tol)

    def _settled(self, park: Park, model: Model) -> dict[str, Any]:
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
        self.columns_ = learn_frame(table, self._coded(y).reshape(len(table), -1), w)
        return self.columns_.encode(table)

    def _coded(self, y: ArrayLike) -> NDArray[Any]:
        """The target as numbers."""
        return np.asarray(y, np.float64)

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
    def _learn_uncertainty(self, result: FitResult, park: Park) -> tuple[list[dict[str, Any]], str]:
        """Learn from rows left out; what was compared, and what won."""

    @abstractmethod
    def _answering(self) -> Answering:
        """The model with all that its answers need."""

    def _rows(self, X: ArrayLike) -> Tensor:
        """X as the numbers that the model was fitted to, shape (n, d)."""
        check_is_fitted(self)
        if self.columns_ is not None:
            return as_tensor(encode_frame(self.columns_, X))
        return as_tensor(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

    @property
    def _cores(self) -> int:
        """Threads that predict."""
        return as_engine(self.engine).local.cores

    def novelty(self, X: ArrayLike) -> NDArray[np.float64]:
        """How far each row of X (n, d) lies from what its cell has seen, shape (n,).

        The part of the row that is outside the span of the nearest centres of its cell, in
        feature space: 0 at a centre, near 1 where the model has seen nothing and answers with
        little more than the mean.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> model = ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.novelty([[1.0], [1000.0]]).round(3)
        array([0., 1.])
        """
        return self._answering().novelty(self._rows(X), self._cores)

    @abstractmethod
    def _plain_uncertainty(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What was learned from rows left out, as plain facts and tensors."""

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, which :func:`parkrr.load` reads.

        It holds what predictions and questions about the fit need, as tensors and plain data;
        of the training rows only the centres. Written at once or not at all.
        """
        check_is_fitted(self)
        classes = getattr(self, "classes_", None)
        names = getattr(self, "feature_names_in_", None)
        importances = getattr(self, "feature_importances_", None)
        facts = {
            "estimator": self._kind,
            "params": plain_params(self.get_params(deep=False)),
            "columns": self.columns_ and self.columns_.plain(),
            "classes": None if classes is None else classes.tolist(),
            "one_output": getattr(self, "_one_output", True),
            "n_features_in_": self.n_features_in_,
            "feature_names_in_": None if names is None else names.tolist(),
            "feature_importances_": None if importances is None else importances.tolist(),
            "chosen": [plain_params(self.chosen_.params), *self.chosen_[1:]],
            "seconds_": self.seconds_,
            "report_": [asdict(cell) for cell in self.report_],
        }
        own, tensors = self._plain_uncertainty()
        write_model(Path(path), self.model_, {**facts, "uncertainty": own}, tensors)

    def _restore(self, saved: Saved) -> None:
        """Take on what was saved."""
        model, facts, _ = saved
        self.model_ = model
        columns, classes = facts["columns"], facts["classes"]
        self.columns_ = None if columns is None else from_plain(columns)
        self._one_output = facts["one_output"]
        if classes is not None:
            self.classes_ = np.array(classes)
        for name in ("n_features_in_", "seconds_"):
            setattr(self, name, facts[name])
        for name, dtype in (("feature_names_in_", object), ("feature_importances_", np.float64)):
            if facts[name] is not None:
                setattr(self, name, np.array(facts[name], dtype=dtype))
        params, *rest = facts["chosen"]
        self.chosen_ = Chosen(params_of(params, model.metric), *rest)
        self.report_ = [CellReport(**cell) for cell in facts["report_"]]
        self.n_cells_ = len(self.report_)
        self.n_iter_ = max(max(cell.iterations, 1) for cell in self.report_)

    def predict_to(
        self,
        source: ParquetTable,
        folder: str | Path,
        keys: Sequence[str] = (),
        answers: Sequence[str] = ("prediction",),
        coverage: float = 0.9,
    ) -> int:
        """Predict all rows of files into Parquet files, a slice at a time.

        Parameters
        ----------
        source
            What :func:`parkrr.scan_parquet` finds; it needs no target.
        folder
            Where files named part-00000.parquet and so on go. Interrupted, the same call goes on
            with those that are missing.
        keys
            Columns to write beside the answers.
        answers
            Which: "prediction"; "interval" (columns "lower" and "upper") and "std" of a regressor;
            "probability" of a classifier, a list in the order of `classes_`; "novelty".
        coverage
            Of intervals.

        Returns
        -------
        int
            How many rows were predicted now.
        """
        check_is_fitted(self)
        for name in answers:
            check_one_of("answers", name, self._answers)
        answering = self._answering()
        if "interval" in answers:
            checked_coverage(coverage, answering.bars())
        columns = self.columns_ or numbers_only(source, self.n_features_in_)
        wanted = (tuple(keys), tuple(answers), float(coverage), str(folder))
        predicting = Predicting(answering, columns, *wanted)
        return predict_files(predicting, source, as_engine(self.engine), self.progress)


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
