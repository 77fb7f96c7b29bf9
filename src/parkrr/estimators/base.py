"""What the two estimators share: parameters, the fit, updates and files."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from parkrr.data import (
    FEW_ROWS,
    FOLDS,
    VALIDATION_SHARE,
    ArraySource,
    Block,
    Holdout,
    ParquetTable,
    TableEncoder,
    Target,
    TrainingEncoder,
    as_source,
    as_tensor,
    assign_folds,
    check_any_rows,
    check_weights,
    collect,
    has_copies,
    hash_rows,
    hash_table,
    is_csv,
    is_frame,
    is_repeated,
    join_blocks,
    learn_frame_encoder,
    learn_numbers,
    merge_copies,
    name_columns,
    naming_parameter,
    needs_scan,
    return_like_input,
)
from parkrr.errors import ParameterError, check_column_kinds, check_one_of, suggest
from parkrr.estimators.guarantees import (
    GUARANTEES,
    choose_set_aside,
    read_guaranteed,
    refuse_update,
)
from parkrr.estimators.input_rows import (
    NUMERIC,
    encode_array,
    encode_frame,
    is_table,
    read_array,
    read_training_rows,
    warn_unused,
)
from parkrr.estimators.validation_split import ValidationSplit
from parkrr.kernels import FeatureMap, Kernel, Radial
from parkrr.out_of_core import (
    FilePredictor,
    FileScorer,
    fit_from_disk,
    score_table,
    write_predictions,
)
from parkrr.park import (
    IMPORTANCE_ROWS,
    LIGHTEST_CELL,
    CellReport,
    CellStatistics,
    Coarse,
    FitResult,
    FitSettings,
    Model,
    add_cell_errors,
    check_target,
    choose_blend,
    choose_limits,
    compute_statistics,
    feature_importances,
    fit_leaving_out,
    fit_park,
    forget_rows,
    include_targets,
    learn_rows,
    solve_changed,
    update_model,
    update_report,
    with_left_out,
)
from parkrr.partition import Blend
from parkrr.persistence import save_estimator
from parkrr.planning import (
    Plan,
    apply_lengthscales,
    build_settings,
    check_keep_statistics,
    check_loss,
    check_positive_target,
    check_size,
    keep_choices,
    learn_table,
    open_choices,
    plan_rows,
    plan_table,
    spend_time,
    stays_on_disk,
    subtract_memory,
    tune_settings,
)
from parkrr.runtime import (
    Callback,
    Engine,
    as_engine,
    check_device,
    describe_count,
    move_to_device,
    process_bytes,
    torch_threads,
)
from parkrr.tuning import Chosen, TuningLog
from parkrr.uncertainty import (
    DIAGNOSTIC_ROWS,
    DiagnosticRows,
    Predictor,
    drop_forgotten,
    mark_rows,
)

Estimator = TypeVar("Estimator", bound="ParKEstimator")

PLAN_ROWS = 20_000  # that a plan reads of an array
SMALL_STATISTICS = 2**20  # bytes that keep_statistics="auto" keeps: 360 centres in one cell
STATISTICS_ROWS = 2**16  # added to the statistics at a time
FEWER_CELLS = 0.5  # of those asked for, below which a fit warns: balance merges some of a few
SMALL_RECORD = 2**16  # rows that keep_statistics="auto" remembers one by one: 1.6 MB


class FitOutcome(NamedTuple):
    """What a fit returns to the estimator, whether its rows were in memory or on disk."""

    result: FitResult
    settings: FitSettings  # with every choice made
    log: TuningLog
    sample: Tensor  # training rows on which feature importance is computed, (r, d)
    blocks: Iterable[Block]  # all training rows, from which statistics are computed
    seconds: dict[str, float]  # of every step
    columns: TableEncoder  # how columns become numbers
    named: bool = True  # whether these have names
    classes: NDArray[Any] | None = None  # labels found in files
    set_aside: ArraySource | None = None  # rows that neither the fit nor its choices have seen
    by_region: bool = False  # whether rows were on disk and sorted
    blend_is_open: bool = False  # whether leave-one-out rows may narrow the blend


class ParKEstimator(ABC, BaseEstimator):  # type: ignore[misc]
    """Parameters and methods of both estimators; see :class:`ParKRegressor`."""

    _kind: ClassVar[str]  # name in a model file, whatever a subclass is called
    _outputs: ClassVar[tuple[str, ...]]  # what predict_to can write
    model_: Model
    columns_: TableEncoder
    one_output_: bool = True  # a regressor sets it in fit
    chosen_: Chosen
    report_: list[CellReport]
    seconds_: dict[str, float]
    validation_rows_: DiagnosticRows
    statistics_: CellStatistics | None = None
    target_names_: list[str] | None = None

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
        self.effort = effort
        self.time_budget = time_budget
        self.max_memory = max_memory
        self.max_model_size = max_model_size
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.precision = precision
        self.columns = columns
        self.device = device
        self.engine = engine
        self.checkpoint = checkpoint
        self.keep_statistics = keep_statistics
        self.progress = progress
        self.callbacks = callbacks
        self.warm_start = warm_start
        self.random_state = random_state

    def set_params(self: Estimator, **params: Any) -> Estimator:
        """Set parameters of this estimator, and of its kernel.

        A parameter of the kernel is written ``kernel__lengthscale``. It gives this estimator
        another kernel; other estimators that share the former one keep it.

        Parameters
        ----------
        params : dict
            Names and values, as listed by ``get_params()``.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        ValueError
            If there is no parameter of that name, or a kernel does not accept its value.
        ParameterError
            If a parameter of the kernel is set, but `kernel` is a name or "auto", of which
            parameters are chosen by :meth:`fit`.

        Examples
        --------
        >>> from parkrr import Gaussian, ParKRegressor
        >>> model = ParKRegressor(kernel=Gaussian())
        >>> model.set_params(kernel__lengthscale=2.0, penalty=1e-3).kernel
        Gaussian(lengthscale=2.0)
        """
        # BaseEstimator would change the kernel in place, with all estimators that share it.
        prefix = "kernel__"
        of_kernel = {k.removeprefix(prefix): v for k, v in params.items() if k.startswith(prefix)}
        super().set_params(**{k: v for k, v in params.items() if not k.startswith(prefix)})
        if of_kernel:
            self.kernel = replace_params(self.kernel, of_kernel)
        return self

    def plan(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Plan:
        """Predict what a fit of these rows will need, without fitting.

        It times small pieces of the fit on your machine, which takes about two seconds. Of
        files it reads one row group.

        Parameters
        ----------
        X : array-like of shape (n, d), a frame, or the result of :func:`parkrr.scan_parquet`
            Rows, as for :meth:`fit`.
        y : array-like of shape (n,) or (n, t), default=None
            Target; only the number of targets or classes is used. None stands for one target
            or two classes.
        sample_weight : array-like of shape (n,), default=None
            Not used, so that you can pass what you pass to :meth:`fit`.

        Returns
        -------
        Plan
            Cells, centres, peak memory, and seconds of every step. Print it for a summary;
            ``plan.plain()`` is a dict.

        Raises
        ------
        BudgetError
            If the fit cannot be done within `max_memory`.
        ParameterError
            If a parameter of the estimator is not valid.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> plan = ParKRegressor().plan(np.random.default_rng(0).normal(size=(20_000, 5)))
        >>> plan.cells, plan.centers
        (5, 20000)
        """
        params, X = self.get_params(deep=False), collect(X)
        check_scanned(X)
        check_any_rows(X)
        if isinstance(X, ParquetTable):
            return plan_table(params, X, classify=self._kind == "ParKClassifier", seed=0)
        declared = check_column_kinds(params["columns"])
        given = read_training_rows(X, declared)
        rows: Any = given.numbers if given.table is None else given.table
        head = rows[:PLAN_ROWS]
        Y = np.zeros((len(head), self._n_outputs(y)))
        if given.table is not None:
            fold = np.zeros(len(head), dtype=np.int8)
            head = learn_frame_encoder(head, Y, fold, None, declared).new_rows.encode(head)
        some = ArraySource(as_tensor(head), as_tensor(Y))
        return plan_rows(params, some, len(given), len(given.names))

    def forget(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Remove rows that the model was fitted to, as if it had never seen them.

        Only the cells of these rows are solved again, from the statistics of their other rows.
        Centres stay, even those that were among the removed rows. The rows are dropped from
        `validation_rows_`. If a row is refused, the model stays as it was.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows that were passed to :meth:`fit` or :meth:`partial_fit`, the same numbers.
        y : array-like of shape (n,) or (n, t)
            Their targets or labels.
        sample_weight : array-like of shape (n,), default=None
            Their weights, if they had any, and at most what `decay` has left of them. None
            stands for ones.

        Returns
        -------
        self
            The updated estimator.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If the fit kept no statistics (see `keep_statistics`), or a column has so many
            categories that it is encoded by targets, or a row was never learned, is
            forgotten already, or has less weight left than is to be forgotten. Of more than
            4 million rows, or 65,536 with ``keep_statistics="auto"``, it is only checked that
            the statistics of each cell remain those of some rows.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 400)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> y[:10] = 5.0  # wrong
        >>> model = ParKRegressor(keep_statistics=True, random_state=0).fit(X, y)
        >>> round(float(model.forget(X[:10], y[:10]).predict([[0.2]])[0]), 1)
        0.2
        """
        check_is_fitted(self)
        by_target = self.columns_.by_target
        if by_target:
            raise ParameterError(
                f"X must not hold columns that are encoded by means of the target, but "
                f"{by_target} are, and no single row can be taken out of a mean; fit again without "
                f"the rows"
            )
        self._update(X, y, sample_weight, forget=True)
        return self

    @return_like_input
    def novelty(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute how far each row lies from the training rows of its cell.

        It is the part of a row, in feature space, that lies outside the span of the nearest
        centres of its cell.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.

        Returns
        -------
        ndarray of shape (n,)
            From 0, at a centre, to 1, where no training row is near and predictions are close
            to the mean.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> model = ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.novelty([[1.0], [1000.0]]).round(3)
        array([0., 1.])
        """
        rows = self._rows(X)
        return self._predictor().novelty(rows, self._cores)

    @return_like_input
    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Find the cell that each row belongs to.

        It is the cell of the nearest centroid; in a model of several regions, of the nearest
        one in the nearest region. With a blend, neighbours of this cell predict the row too.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.

        Returns
        -------
        ndarray of shape (n,)
            Number of the cell of each row, from 0 to ``n_cells_ - 1``; ``report_[q]`` describes
            cell q.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import Gaussian, ParKRegressor
        >>> X = np.linspace(0, 6, 400)[:, None]
        >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0, random_state=0)
        >>> cells = model.fit(X, np.sin(X[:, 0])).apply(X)
        >>> bool((np.bincount(cells) == [cell.rows for cell in model.report_]).all())
        True
        """
        rows = self._rows(X)
        cells = self.model_.apply_in_chunks(self.model_.route, rows, self._cores)
        return cells.cpu().numpy()

    def save(self, path: str | Path, centers: str | None = None) -> float | None:
        """Write the fitted model to one file, which :func:`parkrr.load` reads.

        The file holds tensors and plain data, no code. Of the training rows it holds the
        centres, and target and prediction of up to 2,000 validation rows. It is written
        completely or not at all.

        Parameters
        ----------
        path : str or Path
            File, or URL such as "s3://bucket/minutes.park". An existing file is replaced.
        centers : {"float32", "float16"} or None, default=None
            Round centres to this type for a smaller file; None keeps them as they are.

        Returns
        -------
        float or None
            How much rounding changes predictions, as a share of their spread (root mean squares
            at up to 2,000 centres); None without rounding.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ModelFileError
            If a model file cannot hold the model, such as one with a kernel of your own.
        ParameterError
            If `centers` is not valid, or centres are too large for it.

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> from parkrr import ParKRegressor, load
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> model = ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> path = tempfile.mkdtemp() + "/sine.park"
        >>> model.save(path)
        >>> bool((load(path).predict(X) == model.predict(X)).all())
        True
        >>> model.save(path, centers="float32") < 1e-3
        True
        """
        check_is_fitted(self)
        return save_estimator(self, path, centers)

    def to_onnx(self, path: str | Path) -> None:
        """Write the fitted model as an ONNX file, for runtimes without Python.

        The input "X" of shape (n, d) is float64; a missing value is NaN. If some columns are not
        numbers there is an input of shape (n,) for each column instead, by its name: strings for
        categories, "" for a missing one, and float64 for numbers, for dates in seconds since 1970
        in UTC, and for times in seconds since midnight. A regressor has the output
        "prediction", with the shape of :meth:`predict`; a classifier has "label" of shape (n,)
        and "probability" of shape (n, k). Intervals and novelty are not part of the file. Needs
        onnx (``pip install 'parkrr[onnx]'``).

        Parameters
        ----------
        path : str or Path
            File, or URL. An existing file is replaced.

        Returns
        -------
        None

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If the model has columns of free text, or a kernel of your own, or more than 2 GB of
            centres and weights, or if onnx is not installed.

        Examples
        --------
        >>> import numpy as np, onnxruntime, tempfile
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> model = ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> path = tempfile.mkdtemp() + "/sine.onnx"
        >>> model.to_onnx(path)
        >>> [prediction] = onnxruntime.InferenceSession(path).run(["prediction"], {"X": X[:3]})
        >>> bool(np.allclose(prediction, model.predict(X[:3])))
        True
        """
        check_is_fitted(self)
        from parkrr.persistence.onnx_export import to_onnx  # noqa: PLC0415 - optional

        to_onnx(self, path)

    def show_report(self, path: str | Path, X: Any = None, y: ArrayLike | None = None) -> None:
        """Write a report on the fitted model as one HTML file that needs no other file.

        It shows choices, cells, errors on validation rows, feature importance and plots. With
        rows and targets it also shows where errors are large, jumps between cells, and the
        bounds of the theory. Needs matplotlib (``pip install 'parkrr[plot]'``).

        Parameters
        ----------
        path : str or Path
            File to write. An existing file is replaced.
        X : array-like of shape (n, d), or a frame, default=None
            Rows to report on, preferably rows that the model has not seen.
        y : array-like of shape (n,) or (n, t), default=None
            Their targets or labels.

        Returns
        -------
        None

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> from pathlib import Path
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> model = ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> path = Path(tempfile.mkdtemp(), "report.html")
        >>> model.show_report(path)
        >>> "<html" in path.read_text()
        True
        """
        check_is_fitted(self)
        from parkrr.report import write_report  # noqa: PLC0415 - optional

        write_report(self, path, X, y)

    def predict_outputs(
        self,
        X: ArrayLike,
        outputs: Sequence[str] = ("prediction",),
        coverage: float = 0.9,
    ) -> dict[str, NDArray[Any]]:
        """Compute several outputs of the same rows, which are read and predicted once.

        A service that returns a prediction with its interval and novelty needs this: each method
        for one of them reads the frame again, and `predict_interval` predicts again.

        Parameters
        ----------
        X : array-like of shape (n, d), or a frame
            Rows with the features of the fit.
        outputs : sequence of str, default=("prediction",)
            "prediction" and "novelty"; for a regressor also "interval" and "std"; for a classifier
            also "probability".
        coverage : float, default=0.9
            Share of targets that intervals are to contain, above 0 and below 1.

        Returns
        -------
        dict
            An array by name of output, in the order of `outputs`; an interval is "lower" and
            "upper".

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If an output is not one of those above, or `coverage` is too high.

        Examples
        --------
        >>> import numpy as np
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> model = ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> list(model.predict_outputs(X[:3], ["prediction", "interval", "novelty"]))
        ['prediction', 'lower', 'upper', 'novelty']
        """
        rows = self._rows(X)
        outputs = (outputs,) if isinstance(outputs, str) else outputs
        for name in outputs:
            check_one_of("outputs", name, self._outputs)
        predictor = self._predictor()
        if "interval" in outputs:
            predictor.check_coverage(coverage)
        return predictor.compute(rows, outputs, coverage, self._cores)

    def predict_to(
        self,
        source: ParquetTable,
        folder: str | Path,
        keys: Sequence[str] = (),
        outputs: Sequence[str] = ("prediction",),
        coverage: float = 0.9,
    ) -> int:
        """Predict all rows of files and write Parquet files, one slice of rows at a time.

        Parameters
        ----------
        source : ParquetTable
            Result of :func:`parkrr.scan_parquet`, :func:`parkrr.scan_csv` or :func:`parkrr.scan`.
            It needs no target.
        folder : str or Path
            Folder or URL for files named part-00000.parquet and so on. Rerunning the same call
            after an interruption writes only the files that are missing.
        keys : sequence of str, default=()
            Columns of `source` to copy beside the outputs.
        outputs : sequence of str, default=("prediction",)
            What to write: "prediction" and "novelty"; for a regressor also "interval" (columns
            "lower" and "upper") and "std"; for a classifier also "probability" (a list in the
            order of `classes_`).
        coverage : float, default=0.9
            Share of targets that intervals are to contain, above 0 and below 1.

        Returns
        -------
        int
            Number of rows predicted by this call.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If `source` lacks a column, or an output is not one of those above.
        CheckpointError
            If `folder` holds predictions of another model or of other files.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq, tempfile
        >>> from parkrr import ParKRegressor, scan_parquet
        >>> folder, x = tempfile.mkdtemp(), np.linspace(0, 6, 200)
        >>> table = pa.table({"x": x, "y": np.sin(x), "trip": range(200)})
        >>> pq.write_table(table, f"{folder}/rows.parquet")
        >>> rows = scan_parquet(f"{folder}/rows.parquet", target="y", features=["x"])
        >>> model = ParKRegressor(random_state=0, progress=False).fit(rows)
        >>> model.predict_to(rows, f"{folder}/out", keys=["trip"], outputs=["interval"])
        200
        >>> pq.read_table(f"{folder}/out").column_names
        ['trip', 'lower', 'upper']
        """
        check_is_fitted(self)
        check_source(source)
        keys = (keys,) if isinstance(keys, str) else keys
        outputs = (outputs,) if isinstance(outputs, str) else outputs
        for name in outputs:
            check_one_of("outputs", name, self._outputs)
        predictor = self._predictor()
        if "interval" in outputs:
            predictor.check_coverage(coverage)
        files = FilePredictor(
            predictor,
            self._columns_of(source),
            tuple(keys),
            tuple(outputs),
            float(coverage),
            str(folder),
        )
        return write_predictions(files, source, as_engine(self.engine), self.progress)

    def score_files(self, source: ParquetTable) -> dict[str, float | None]:
        """Compute scores of predictions of files, one slice of rows at a time.

        Parameters
        ----------
        source : ParquetTable
            Result of :func:`parkrr.scan_parquet`, :func:`parkrr.scan_csv` or :func:`parkrr.scan`
            with the target, and with row weights if you like. Rows without a target are left out.

        Returns
        -------
        dict
            For a regressor "rows", "rmse", "mae", "r2" (over several targets their mean; None for
            a constant target), the share of targets inside of 0.9 intervals and their mean width.
            For a classifier "rows", "error" (share of wrong labels), "log_loss", for two
            classes "auc", and "unknown_labels" if there are labels that `fit` has not seen.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If `source` lacks a column, or its target is not like that of `fit`.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq, tempfile
        >>> from parkrr import ParKRegressor, scan_parquet
        >>> path, x = f"{tempfile.mkdtemp()}/rows.parquet", np.linspace(0, 6, 200)
        >>> pq.write_table(pa.table({"x": x, "y": np.sin(x)}), path)
        >>> rows = scan_parquet(path, target="y")
        >>> model = ParKRegressor(random_state=0, progress=False).fit(rows)
        >>> scores = model.score_files(rows)
        >>> scores["rows"], scores["r2"] > 0.99
        (200, True)
        """
        check_is_fitted(self)
        check_source(source)
        classes = getattr(self, "classes_", None)
        t = 1 if classes is not None else len(self.model_.intercept)
        if len(source.target) != t:
            raise ParameterError(
                f"source must have {t} target columns, as in fit, got {list(source.target)}; name "
                f"them as target= of scan_parquet"
            )
        scorer = FileScorer(
            self._predictor(),
            self._columns_of(source),
            Target(source.target, classes),
        )
        return score_table(scorer, source, as_engine(self.engine), self.progress)

    @torch_threads(1)  # see TorchThreads: a model must not depend on the machine
    def _fit(
        self: Estimator,
        X: Any,
        y: Any,
        sample_weight: Any,
        updates: bool = False,
        classes: NDArray[Any] | None = None,
        split: "ValidationSplit | None" = None,
    ) -> Estimator:
        """Fit arrays, a frame or files; with `updates` keep statistics whatever is set.

        A classifier takes its classes from `classes`, or from y if that is None. `split` decides
        which rows are validation rows.
        """
        params, X, y = self.get_params(deep=False), collect(X), collect(y)
        if isinstance(params["warm_start"], bool | np.bool_) and params["warm_start"]:
            params["warm_start"] = getattr(self, "chosen_", False)
        check_rows(X, y)
        target_names = list(X.target) if isinstance(X, ParquetTable) else name_columns(y)
        if updates:
            params["keep_statistics"] = True
        guarantee = check_one_of("guarantee", params.get("guarantee", "none"), GUARANTEES)
        if check_loss(params) is not None:
            check_other_loss(X, params)
        if isinstance(X, ParquetTable) and (y is not None or sample_weight is not None):
            raise ParameterError(
                "y and sample_weight must be columns of the files; name them as target= and "
                "weight= of scan_parquet"
            )
        if split is not None and isinstance(X, ParquetTable):
            split.check_files()
        if isinstance(X, ParquetTable) and (X.groups or X.time):
            X, y, sample_weight, split = ValidationSplit.read_files(X, params)
        if guarantee != "none":
            if split is not None:
                split.check_guarantee(guarantee)
            if updates:
                refuse_update(guarantee)
            outcome = self._fit_with_guarantee(X, y, sample_weight, params)
        elif isinstance(X, ParquetTable):
            classify = self._kind == "ParKClassifier"
            outcome = fit_files(X, params, as_seed(self.random_state), classify)
            if outcome.classes is not None:
                self.classes_ = outcome.classes
            else:
                self.one_output_ = len(X.target) == 1
        else:
            if self.checkpoint is not None:
                warnings.warn(
                    f"checkpoint={str(self.checkpoint)!r} is not used: only fits of files can be "
                    f"resumed. Write the rows to Parquet and fit scan_parquet(...), or leave "
                    f"checkpoint out",
                    UserWarning,
                    stacklevel=4,
                )
            outcome = self._fit_in_memory(X, y, sample_weight, params, classes, split)
        self._keep(outcome)
        self.target_names_ = target_names
        self.statistics_ = None
        keep = params["keep_statistics"] if self.model_.link == "identity" else False
        if keeps_statistics(keep, self.report_, len(self.model_.intercept)):
            start = time.perf_counter()
            most = (SMALL_RECORD,) if params["keep_statistics"] == "auto" else ()
            statistics = compute_statistics(self.model_, self.report_, outcome.blocks, *most)
            if self.validation_rows_:
                left_out = outcome.result.left_out
                kept = left_out.draw_positions(DIAGNOSTIC_ROWS, outcome.settings.seed)
                statistics = replace(statistics, validation=mark_rows(left_out.X[kept]))
            self.statistics_ = statistics
            self.seconds_["statistics"] = time.perf_counter() - start
        return self

    def _move(self, rows: ArraySource) -> ArraySource:
        """Rows on the device of the fit."""
        return rows if self.device == "cpu" else move_to_device(rows, check_device(self.device))

    def _fit_in_memory(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        params: dict[str, Any],
        classes: NDArray[Any] | None,
        split: "ValidationSplit | None",
    ) -> FitOutcome:
        """Fit arrays or a frame."""
        started, holdout, seed = time.perf_counter(), None, as_seed(self.random_state)
        given = read_training_rows(X, check_column_kinds(params["columns"]))
        n, table, columns = len(given), given.table, None
        if split is not None:
            holdout = split.hold_out(n, seed)
        if table is not None:
            if split is None:
                share = VALIDATION_SHARE if n >= FEW_ROWS else 0.0
                fold = assign_folds(np.arange(n), seed, share)
            else:
                fold = split.assign_folds(n, seed, holdout)
            encoder = self._learn_columns(table, y, sample_weight, fold)
            columns, X = encoder.new_rows, encoder.encode(table, fold)
            if holdout is None and encoder.fold_codes and (fold == FOLDS).any():
                # Codes were made without the targets of these rows.
                holdout = Holdout(torch.from_numpy(fold == FOLDS))
        else:
            X = given.numbers
        X, Y, w = self._check_training_rows(X, y, sample_weight, classes)
        if columns is None:
            columns = learn_numbers(X, given.names, given.types)
        rows = as_source(X, Y, w)
        held = None
        if split is not None:
            held = split.read_rows(self, columns, given.named, Y.shape[1])
            held = None if held is None else self._move(held)
        if holdout is not None and w is not None:
            holdout = holdout.take(torch.from_numpy(check_weights(w, len(X)) > 0))
        classify, params = self._kind == "ParKClassifier", spend_time(params, started)
        outcome = fit_rows(self._move(rows), params, seed, columns, holdout, classify, held)
        return outcome._replace(named=given.named)

    def _fit_with_guarantee(
        self, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]
    ) -> FitOutcome:
        """Fit rows in memory, some of which decide nothing but the guaranteed intervals."""
        guarantee, seed = params["guarantee"], as_seed(self.random_state)
        columns: TableEncoder
        holdout, named = None, True
        if isinstance(X, ParquetTable):
            table, y, sample_weight = read_guaranteed(X, params)
        else:
            given = read_training_rows(X, check_column_kinds(params["columns"]))
            table, X, named = given.table, given.numbers, given.named
        if table is not None:
            y = np.asarray(y)
            with naming_parameter("y"):
                hashes = hash_table(table, self._code_targets(y).reshape(len(y), -1))
            aside = choose_set_aside(hashes, params, seed, encoded=True)
            w = None if sample_weight is None else check_weights(sample_weight, len(table))
            others = table.filter(~aside)
            share = VALIDATION_SHARE if len(others) >= FEW_ROWS else 0.0
            fold = assign_folds(np.arange(len(others)), seed, share)
            kept = None if w is None else w[~aside]
            encoder = self._learn_columns(others, y[~aside], kept, fold)
            columns = encoder.new_rows
            X = columns.encode(table)
            X[~aside] = encoder.encode(others, fold)
            if encoder.fold_codes and share:  # codes were made without the targets of these rows
                held = fold == FOLDS if kept is None else (fold == FOLDS)[kept > 0]
                holdout = Holdout(torch.from_numpy(held))
        X, Y, weights = self._check_training_rows(X, y, sample_weight, None)
        if table is None:
            hashes = hash_rows(as_tensor(X), as_tensor(Y))
            aside = choose_set_aside(hashes, params, seed, encoded=False)
            columns = learn_numbers(X, given.names, given.types)
        rows = as_source(X, Y, weights)
        if len(rows.X) < len(X):  # of weight zero
            aside = aside[check_weights(sample_weight, len(X)) > 0]
        rows = self._move(rows)
        chosen = torch.from_numpy(aside).to(rows.X.device)
        seen, others = (
            replace(rows, index=part.nonzero()[:, 0]).load() for part in (~chosen, chosen)
        )
        if guarantee == "jackknife+":
            outcome = fit_rows_leaving_out(seen, others, params, seed, columns, holdout)
            return outcome._replace(named=named)
        outcome = fit_rows(seen, params, seed, columns, holdout)
        others = merge_copies(others) if has_copies(others) else others
        return outcome._replace(set_aside=others, named=named)

    def _learn_columns(
        self, table: Any, y: Any, sample_weight: Any, fold: NDArray[np.int8]
    ) -> TrainingEncoder:
        """Learn how the columns of an Arrow table, with folds (n,), become numbers."""
        n = len(table)
        w = None if sample_weight is None else check_weights(sample_weight, n)
        if w is not None:  # only ratios matter, and a sum of weights of 1e308 is infinite
            w = w / w.max()
            w = w / w.mean()
        with naming_parameter("y"):
            Y = self._code_targets(y)
        if Y.shape[:1] != (n,):
            raise ParameterError(f"y must have one entry for each of {n} rows, got {Y.shape}")
        return learn_frame_encoder(
            table, Y.reshape(n, -1), fold, w, check_column_kinds(self.columns)
        )

    def _keep(self, outcome: FitOutcome) -> None:
        """Set the attributes of a fitted estimator."""
        start = time.perf_counter()
        result, settings, log = outcome.result, outcome.settings, outcome.log
        limits, blends, bounds = None, list[dict[str, Any]](), list[dict[str, Any]]()
        model, left_out, cores = result.model, result.left_out, self._cores
        if outcome.blend_is_open:
            model, blends = choose_blend(model, left_out, cores, settings.seed)
            settings = replace(settings, blend=model.blend)
        shares = model.cell_shares(left_out.X)
        predicted = left_out.free_predictions(model, cores, shares)  # (h, t)
        if self._is_bounded():
            limits, bounds = choose_limits(model, left_out, shares, predicted, cores)
        self.model_ = model = model.replace_limits(limits)
        result = result._replace(model=model)
        predicted = model.bound(predicted, shares)
        self.report_ = add_cell_errors(result.report, result.left_out, predicted)
        self.n_cells_ = len(self.report_)
        self.n_iter_ = max(max(cell.iterations, 1) for cell in self.report_)
        tried, uncertainty = self._learn_uncertainty(result, settings, predicted, outcome.set_aside)
        seconds = {"uncertainty": time.perf_counter() - start}
        self.seconds_ = log.seconds | outcome.seconds | seconds
        names = ("kernel", "penalty", "n_cells", "n_centers", "blend")
        chosen = {name: getattr(settings, name) for name in names} | {
            "metric": model.metric,
            "coarse": settings.coarse or 0,
            "precision": str(settings.dtype).removeprefix("torch."),
            "random_state": settings.seed,
            "callbacks": None,  # of this fit, as is what it started from
            "warm_start": False,
        }
        given = self.get_params(deep=False)
        if np.ndim(given["n_centers"]):
            chosen["n_centers"] = given["n_centers"]
        if outcome.by_region:  # a number of centres is for a fit without regions
            chosen["n_centers"] = given["n_centers"]
            if isinstance(given["blend"], str):  # its width follows from the cells of each region
                chosen["blend"] = given["blend"]
        params = {**given, **chosen}
        tried = [*log.tried, *blends, *bounds, *tried]
        self.chosen_ = Chosen(params, tried, log.seconds, uncertainty)
        self.__dict__.pop("feature_importances_", None)  # of an earlier fit
        if isinstance(settings.kernel, Radial):
            self.feature_importances_ = feature_importances(model, outcome.sample).cpu().numpy()
        self.columns_ = columns = outcome.columns
        # Features are columns, not the numbers they become.
        self.n_features_in_ = len(columns.names)
        self.__dict__.pop("feature_names_in_", None)
        if outcome.named:
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        if hasattr(self, "feature_importances_") and not columns.takes_numbers:
            self.feature_importances_ = np.bincount(
                columns.owners, self.feature_importances_, minlength=self.n_features_in_
            )
        if outcome.named:
            warn_unused(columns)
        warn_unconverged(self.report_, self.max_iter, self.tol)
        if not isinstance(self.n_cells, str):
            warn_fewer_cells(self.report_, settings.n_cells, settings.balance)

    def _update(
        self, X: Any, y: Any, sample_weight: Any, *, forget: bool = False, decay: float = 1.0
    ) -> None:
        """Add rows to the statistics of their cells, or subtract them, and solve those cells."""
        check_is_fitted(self)
        refuse_update(getattr(self, "guarantee", "none"))
        if self.statistics_ is None:
            raise ParameterError(
                "partial_fit and forget need statistics of the cells, which this model has not "
                "kept; fit it with keep_statistics=True, or start with partial_fit"
            )
        rows = self._rows(X)
        Y, w = self._check_new_rows(y, sample_weight, len(rows), len(self.model_.intercept))
        block = Block(rows, as_tensor(Y), None if w is None else as_tensor(w))
        check_target(block.Y)
        validation = self.validation_rows_
        if forget:
            statistics, changed = forget_rows(self.statistics_, self.model_, block)
            statistics, validation = drop_forgotten(statistics, validation, self.model_, block, y)
        else:
            statistics, changed = learn_rows(self.statistics_, self.model_, block, decay)
        fits = solve_changed(statistics, self.model_, changed)
        # Nothing below fails: an update that is refused leaves the model as it was.
        self.report_ = update_report(self.report_, statistics, fits)
        self.model_ = update_model(self.model_, fits)
        if self.model_.limits is not None and not forget:
            cell, limits = self.model_.route(block.X), self.model_.limits
            limits = include_targets(limits, block.Y.to(limits), cell)
            self.model_ = self.model_.replace_limits(limits)
        self.statistics_, self.validation_rows_ = statistics, validation

    def _rows(self, X: Any) -> Tensor:
        """X as the numbers that the model was fitted to, shape (n, d)."""
        if "model_" not in self.__dict__:  # scikit-learn's check takes 30 us
            check_is_fitted(self)
        X = collect(X)
        check_any_rows(X)
        if (  # nothing is left to check, and scikit-learn takes 100 us to find that out
            type(X) is np.ndarray
            and X.dtype in (np.float64, np.float32)
            and X.ndim == 2
            and X.shape[1] == self.n_features_in_
            and len(X) > 0
            and not hasattr(self, "feature_names_in_")
            and self.columns_.takes_numbers
            and np.isfinite(X).all()
        ):
            return as_tensor(X)
        named = hasattr(self, "feature_names_in_")
        if is_table(X):
            if not named:  # scikit-learn warns if there are names now
                validate_data(self, X, reset=False, skip_check_array=True)
            return as_tensor(encode_frame(self.columns_, named, X))
        with naming_parameter("X"):
            A = read_array(X, lambda rows: validate_data(self, rows, reset=False, **NUMERIC))
        return as_tensor(encode_array(self.columns_, A))

    def _columns_of(self, source: ParquetTable) -> TableEncoder:
        """How columns of files become numbers: by their names, or by their order as in an array."""
        if hasattr(self, "feature_names_in_"):
            return self.columns_
        if len(source.features) != self.n_features_in_:
            raise ParameterError(
                f"source must have the {self.n_features_in_} features of fit in their order, but "
                f"has {list(source.features)}; name them in scan_parquet(features=...)"
            )
        return self.columns_.rename(source.features)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """What notebooks show: scikit-learn's diagram, and below it facts about the fit."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and hasattr(self, "report_"):
            from parkrr.report import describe_in_html  # noqa: PLC0415 - only notebooks need it

            bundle["text/html"] += describe_in_html(self)
        return bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _cores(self) -> int:
        """Threads that predict."""
        return as_engine(self.engine).local.cores

    def _n_outputs(self, y: ArrayLike | None) -> int:
        """Columns that a target becomes."""
        return 1 if y is None or np.ndim(y) == 1 else np.shape(y)[1]

    @abstractmethod
    def _check_training_rows(
        self, X: Any, y: Any, sample_weight: Any, classes: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], ArrayLike | None]:
        """Features (n, d), targets (n, t) as numbers, and weights of a fit."""

    @abstractmethod
    def _check_new_rows(
        self, y: Any, sample_weight: Any, n: int, t: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Targets (n, t) and weights (n,) of n rows beside those of the fit, in its units."""

    @abstractmethod
    def _code_targets(self, y: Any) -> NDArray[Any]:
        """The target as numbers, unchecked, from which categories learn theirs."""

    def _is_bounded(self) -> bool:
        """Whether predictions have limits; scores, clipped to labels, would all be as certain."""
        return False

    @abstractmethod
    def _predictor(self) -> Predictor:
        """The model with all that its predictions need."""

    @abstractmethod
    def _learn_uncertainty(
        self,
        result: FitResult,
        settings: FitSettings,
        predicted: Tensor,
        set_aside: ArraySource | None,
    ) -> tuple[list[dict[str, Any]], str]:
        """Learn from leave-one-out predictions (h, t) and from rows that were set aside.

        Returns what was tried and what was best.
        """


def replace_params(kernel: Any, params: dict[str, Any]) -> Kernel:
    """The kernel with other values of some of its parameters."""
    names = ", ".join(f"kernel__{name}" for name in params)
    if not isinstance(kernel, Kernel) or not is_dataclass(kernel):
        raise ParameterError(
            f"kernel must be an instance that is a dataclass, such as Gaussian(), to set {names}, "
            f"got {kernel!r}; set it first"
        )
    known = kernel.get_params()
    for name in params:
        if name not in known:
            raise ParameterError(
                f"kernel__{name} must be a parameter of {kernel!r}, which has {list(known)}"
                f"{suggest(name, known)}"
            )
    return replace(kernel, **params)


def check_source(source: Any) -> None:
    """Refuse what is no table of files."""
    if not isinstance(source, ParquetTable):
        raise ParameterError(
            f"source must be the result of scan_parquet, scan_csv or scan, got "
            f"{type(source).__name__}; write scan(source, ...), or use predict or score for rows "
            f"in memory"
        )


def check_scanned(X: Any) -> None:
    """Refuse a source of another library that is neither an array nor a frame."""
    if needs_scan(X):
        name = getattr(X, "__name__", None) or type(X).__name__
        raise ParameterError(
            f"X must be rows in memory or the result of scan, got {name}; write "
            f"fit(parkrr.scan(source, target=...))"
        )


def check_rows(X: Any, y: Any) -> None:
    """Refuse what is no table of rows, and rows without targets."""
    if isinstance(X, str | Path):
        scan = "scan_csv" if is_csv(str(X)) else "scan_parquet"
        raise ParameterError(
            f"X must be rows in memory or the result of {scan}, got {str(X)!r}; for a file "
            f"write fit({scan}({str(X)!r}, target=...))"
        )
    check_scanned(X)
    check_any_rows(X)
    if y is None and not isinstance(X, ParquetTable):  # as in scikit-learn
        way_out = "; if it is a column of X, write fit(parkrr.scan(X, target=...))"
        raise ParameterError(
            f"y must be given with X: this estimator requires y to be passed, but the target y is "
            f"None{way_out if is_frame(X) else ''}"
        )


def check_other_loss(X: Any, params: dict[str, Any]) -> None:
    """Refuse what only sums of squares can do."""
    loss = params["loss"]
    if check_keep_statistics(params["keep_statistics"]):
        raise ParameterError(
            f"loss must be 'squared_error' for partial_fit, forget and keep_statistics=True, got "
            f"{loss!r}: weights of its rows change with every update; fit all rows again"
        )
    if params["guarantee"] == "jackknife+":
        raise ParameterError(
            f"guarantee must be 'none', 'split' or 'cell' for loss={loss!r}, got 'jackknife+', "
            f"which needs fits that are linear in the target"
        )
    if isinstance(X, ParquetTable) and stays_on_disk(X, params):
        raise ParameterError(
            f"loss must be 'squared_error' for files that stay on disk, got {loss!r}: every step "
            f"would read them again. Raise max_memory, leave checkpoint out, or fit some of the "
            f"rows (scan_parquet(..., filter=...))"
        )


def fit_rows(
    rows: ArraySource,
    params: dict[str, Any],
    seed: int,
    columns: TableEncoder,
    holdout: Holdout | None = None,
    classify: bool = False,
    held: ArraySource | None = None,
) -> FitOutcome:
    """Fit rows in memory.

    A holdout marks which of them are validation rows; `held` are such rows beside them, to which
    the model is not fitted.
    """
    given, drawn, started = rows, rows, time.perf_counter()
    # A row is left out with all its copies, or it would predict itself: where every row was there
    # three times, 0.9 intervals held 0.004 of new rows.
    if holdout is None and held is None and (rows.n_rows < FEW_ROWS or has_copies(rows)):
        rows = merge_copies(rows)
        # Where some rows are there more often than others, new rows may be copies too, so choices
        # are made with copies on both sides of a split: KEGG had an error of 0.094, and has 0.076.
        drawn = rows if rows.n_rows < FEW_ROWS or is_repeated(given) else given
    holdout = holdout and holdout.to(rows.X.device)
    params = apply_lengthscales(keep_choices(params, rows.X.shape[1]), rows, seed)
    choices = open_choices(params, rows.n_rows, rows.X.shape[1])
    size = check_size(params, drawn)
    choices = choices if size.tries else replace(choices, coarse=False)
    settings = build_settings(params, choices, size, rows.n_rows, seed)
    if settings.power is not None:
        check_positive_target(rows, settings.power)
    params = spend_time(params, started)
    if held is None:
        settings, log = tune_settings(
            params, settings, choices, drawn, holdout, size.fitting_seconds
        )
        result = fit_park(settings, rows, holdout, classify)
    else:
        both = join_blocks([rows.block(slice(None)), held.block(slice(None))])
        is_held = torch.arange(both.n_rows, device=both.X.device) >= rows.n_rows
        holdout = Holdout(is_held, apart=True)
        settings, log = tune_settings(params, settings, choices, both, holdout)
        if choices.penalty:  # lambda n stays the same with fewer rows
            share = both.total_weight / rows.total_weight
            settings = replace(settings, penalty=settings.penalty * share)
        result = fit_park(settings, rows)
        result = with_left_out(result, result.model, held, settings.engine.local)
    outcome = describe_outcome(result, settings, log, rows, given, columns)
    return outcome._replace(blend_is_open=choices.blend)


def fit_rows_leaving_out(
    seen: ArraySource,
    others: ArraySource,
    params: dict[str, Any],
    seed: int,
    columns: TableEncoder,
    holdout: Holdout | None = None,
) -> FitOutcome:
    """Fit rows in memory: choices are made on `seen`, each of the others is left out in turn."""
    others = merge_copies(others) if has_copies(others) else others
    rows = join_blocks([seen.block(slice(None)), others.block(slice(None))])
    params = keep_choices(params, rows.X.shape[1])
    params = apply_lengthscales(params, seen if seen.n_rows else rows, seed)
    choices = open_choices(params, seen.n_rows, rows.X.shape[1])
    size = check_size(params, rows)
    choices = choices if size.tries else replace(choices, coarse=False)
    settings = build_settings(params, choices, size, rows.n_rows, seed)
    if settings.own_centers is not None:
        raise ParameterError(
            f"n_centers must be a number or 'auto' for guarantee='jackknife+', got an array of "
            f"shape {tuple(settings.own_centers.shape)}"
        )
    if settings.solver == "falkon":
        raise ParameterError(
            "solver must be 'auto' or 'direct' for guarantee='jackknife+', got 'falkon', which "
            "has no formula for the fit without a row"
        )
    if choices.precision:
        settings = replace(settings, dtype=torch.float64)
    log = TuningLog()
    if seen.n_rows:
        choices = replace(choices, precision=False)
        holdout = holdout and holdout.to(seen.X.device)
        settings, log = tune_settings(
            params, settings, choices, seen, holdout, size.fitting_seconds
        )
    if choices.penalty:  # lambda n stays the same as rows are added
        share = seen.total_weight / rows.total_weight
        settings = replace(settings, penalty=settings.penalty * share)
    result = fit_leaving_out(settings, seen, others)
    return describe_outcome(result, settings, log, rows, rows, columns)


def describe_outcome(
    result: FitResult,
    settings: FitSettings,
    log: TuningLog,
    rows: ArraySource,
    given: ArraySource,
    columns: TableEncoder,
) -> FitOutcome:
    """What a fit of rows in memory returns; `given` are these rows before copies were merged."""
    return FitOutcome(
        result=result,
        settings=settings,
        log=log,
        sample=rows.sample(IMPORTANCE_ROWS, settings.seed).X,
        blocks=given.blocks(STATISTICS_ROWS),
        seconds={"partition": result.partition_seconds, "cells": result.cells_seconds},
        columns=columns,
    )


def fit_files(table: ParquetTable, params: dict[str, Any], seed: int, classify: bool) -> FitOutcome:
    """Fit rows of files: in memory if they fit there, else from disk."""
    if stays_on_disk(table, params):
        fit = fit_from_disk(table, params, seed, classify)
        return FitOutcome(
            result=fit.result,
            settings=fit.settings,
            log=fit.log,
            sample=fit.sample,
            blocks=fit.rows.blocks(),
            seconds=fit.seconds,
            columns=fit.rows.columns,
            classes=fit.rows.target.classes,
            by_region=fit.by_region,
            blend_is_open=fit.blend_is_open,
        )
    started = time.perf_counter()
    rows = learn_table(table, params, seed, classify)
    loaded, is_validation = rows.load(as_engine(params["engine"]).local)
    loaded = move_to_device(loaded, check_device(params["device"]))
    holdout = None
    if is_validation is not None and loaded.n_rows >= FEW_ROWS:
        holdout = Holdout(is_validation)
    params = spend_time(subtract_memory(params, process_bytes()), started)
    outcome = fit_rows(loaded, params, seed, rows.columns, holdout, classify)
    return outcome._replace(classes=rows.target.classes)


def keeps_statistics(keep_statistics: bool | str, report: list[CellReport], t: int) -> bool:
    """Whether a fit with t targets keeps statistics: by default those of small models."""
    n_bytes = 8 * sum(cell.centers * (cell.centers + t) for cell in report)
    return check_keep_statistics(keep_statistics) or (
        keep_statistics == "auto" and n_bytes <= SMALL_STATISTICS
    )


def as_seed(random_state: int | np.random.RandomState | None) -> int:
    """A seed from what scikit-learn accepts; an integer is the seed itself, so fits repeat."""
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ParameterError(f"random_state must be >= 0, got {random_state!r}")
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError:
        raise ParameterError(
            f"random_state must be an integer >= 0, None or a numpy RandomState, got "
            f"{random_state!r}; a Generator draws a seed by int(rng.integers(2**31))"
        ) from None


def warn_unconverged(report: list[CellReport], max_iter: int, tol: float) -> None:
    """Warn once of all cells that did not converge."""
    stuck = [cell for cell in report if not cell.converged]
    if stuck:
        worst = max(cell.residual for cell in stuck)
        warnings.warn(
            f"{len(stuck)} of {len(report)} cells stopped after at most max_iter={max_iter} "
            f"iterations (worst residual {worst:.1e}, tol={tol:.0e}). Raise max_iter, or "
            f"penalty if the kernel is ill-conditioned.",
            ConvergenceWarning,
            stacklevel=6,  # the caller of fit
        )


def warn_fewer_cells(report: list[CellReport], wanted: int, balance: bool) -> None:
    """Warn once if there are far fewer cells than were asked for, with the reason."""
    weight = sum(cell.weight for cell in report)
    if len(report) >= FEWER_CELLS * wanted:
        return
    if balance and wanted * LIGHTEST_CELL > weight:
        why = (
            f"a balanced cell has at least {LIGHTEST_CELL} of {weight:,.0f} rows (their weights, "
            f"if they have any); set balance=False for smaller cells"
        )
    elif balance:
        why = (
            "cells with few rows were merged with their neighbours; set balance=False to keep them"
        )
    else:
        why = "the others are centroids that no row is nearest to, such as copies"
    warnings.warn(
        f"n_cells={wanted} gave {describe_count(len(report), 'cell')}: {why}", stacklevel=6
    )
