"""What the two estimators can do once they are fitted: answer, tell, be saved."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from parkrr.data import Columns, ParquetTable, as_tensor, encode_frame, from_plain, naming, placed
from parkrr.errors import check_one_of
from parkrr.out_of_core import FilePredictor, numbers_only, write_predictions
from parkrr.park import CellReport, CellStatistics, Model, plain_sums, sums_from
from parkrr.persistence import (
    NARROW,
    REFUSED,
    Saved,
    axes,
    change,
    check_estimator,
    inner,
    named,
    narrowed,
    params_of,
    plain_params,
    sound,
    unnamed,
    write_model,
)
from parkrr.runtime import Engine, as_engine
from parkrr.tuning import Chosen
from parkrr.uncertainty import DiagnosticRows, Predictor, rows_from_tensors, rows_to_tensors


class Fitted(ABC, BaseEstimator):  # type: ignore[misc]
    """A fitted estimator."""

    _kind: ClassVar[str]  # in a model file, whatever a subclass is called
    _answers: ClassVar[tuple[str, ...]]  # that files can hold
    _one_output: bool
    engine: Engine | str
    progress: bool
    model_: Model
    columns_: Columns | None
    chosen_: Chosen
    report_: list[CellReport]
    seconds_: dict[str, float]
    validation_rows_: DiagnosticRows
    statistics_: CellStatistics | None = None

    @abstractmethod
    def _answering(self) -> Predictor:
        """The model with all that its answers need."""

    def _rows(self, X: ArrayLike) -> Tensor:
        """X as the numbers that the model was fitted to, shape (n, d)."""
        self._check_fitted()
        if self.columns_ is not None:
            return as_tensor(encode_frame(self.columns_, X))
        if self._plain_rows(X):
            return as_tensor(np.asarray(X))
        with naming("X"):
            return as_tensor(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))

    def _check_fitted(self) -> None:
        """As scikit-learn's check, which takes 30 us."""
        if "model_" not in self.__dict__:
            check_is_fitted(self)

    def _plain_rows(self, X: Any) -> bool:
        """Whether nothing is left to check: scikit-learn takes 100 us to find that out."""
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float64, np.float32)
            and X.ndim == 2
            and X.shape[1] == self.n_features_in_
            and len(X) > 0
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X).all())
        )

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

    def save(self, path: str | Path, centers: str | None = None) -> float | None:
        """Write the fitted model to one file, which :func:`parkrr.load` reads.

        It holds what predictions and questions about the fit need, as tensors and plain data;
        of the training rows only the centres, and of up to 2,000 that were left out target and
        prediction. Written at once or not at all.

        Parameters
        ----------
        path
            The file, or a URL such as "s3://bucket/minutes.park"; one that is there is replaced.
        centers
            "float32" or "float16" for a smaller file, whose centres are rounded; None keeps them
            as they are.

        Returns
        -------
        float or None
            By how much rounding changes predictions, over their spread (root mean squares, at
            2,000 of the centres); None if none was asked for.

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
        model, narrow, loss = self.model_, None, None
        if centers is not None:
            narrow = NARROW[check_one_of("centers", centers, NARROW)]
            model = narrowed(self.model_, narrow)
            loss = change(self.model_, model)
        uncertainty, tensors = self._plain_uncertainty()
        tensors |= rows_to_tensors(self.validation_rows_, getattr(self, "classes_", None))
        statistics = None
        if self.statistics_ is not None:
            statistics, sums = plain_sums(self.statistics_)
            tensors |= {f"sums.{name}": tensor for name, tensor in sums.items()}
        facts = {**self._plain_facts(), "uncertainty": uncertainty, "statistics": statistics}
        with sound(REFUSED):
            check_estimator(facts, tensors, axes(model), self._known_params())
        place, name = placed(path)
        place.put(name, lambda file: write_model(file, model, facts, tensors, narrow))
        return loss

    @classmethod
    def _known_params(cls) -> list[str]:
        """Parameters of the estimator that a file is loaded as, whatever a subclass adds."""
        [*_, own] = [kind for kind in cls.__mro__ if "_kind" in vars(kind)]
        names: list[str] = own._get_param_names()  # type: ignore[attr-defined]
        return names

    def _plain_facts(self) -> dict[str, Any]:
        """What a file says of the fit beside the model, as plain data."""
        lists = {
            name: None if not hasattr(self, name) else getattr(self, name).tolist()
            for name in ("classes_", "feature_names_in_", "feature_importances_")
        }
        known = self._known_params()
        chosen = {**self.chosen_._asdict(), "params": plain_params(self.chosen_.params, known)}
        return {
            "estimator": self._kind,
            "params": plain_params(self.get_params(deep=False), known),
            "columns": self.columns_ and self.columns_.plain(),
            "classes": lists["classes_"],
            "one_output": getattr(self, "_one_output", True),
            "n_features_in_": self.n_features_in_,
            "feature_names_in_": lists["feature_names_in_"],
            "feature_importances_": named(lists["feature_importances_"]),
            "chosen": named(chosen),
            "seconds_": self.seconds_,
            "report_": [named(asdict(cell)) for cell in self.report_],
        }

    def _restore(self, saved: Saved) -> None:
        """Take on what was saved; it has been checked."""
        model, facts = saved.model, saved.facts
        self.model_ = model
        columns, classes = facts["columns"], facts["classes"]
        self.columns_ = None if columns is None else from_plain(columns)
        self._one_output = facts["one_output"]
        if classes is not None:
            self.classes_ = np.array(classes)
        self.validation_rows_ = rows_from_tensors(saved.more, getattr(self, "classes_", None))
        self.n_features_in_, self.seconds_ = facts["n_features_in_"], facts["seconds_"]
        for name, dtype in (("feature_names_in_", object), ("feature_importances_", np.float64)):
            if facts[name] is not None:
                setattr(self, name, np.array(unnamed(facts[name]), dtype=dtype))
        chosen, known = facts["chosen"], self.get_params(deep=False)
        params = {**known, **params_of(chosen["params"], model.metric)}
        rest = (unnamed(chosen["tried"]), chosen["seconds"], chosen["uncertainty"])
        self.chosen_ = Chosen(params, *rest)
        if facts["statistics"] is not None:
            sizes, sums = [len(Z) for Z in model.centers], inner(saved.more, "sums.")
            self.statistics_ = sums_from(facts["statistics"], sums, sizes, len(model.intercept))
        self.report_ = [CellReport(**unnamed(cell)) for cell in facts["report_"]]
        self.n_cells_ = len(self.report_)
        self.n_iter_ = max(max(cell.iterations, 1) for cell in self.report_)

    def to_onnx(self, path: str | Path) -> None:
        """Write the fitted model as an ONNX file, for runtimes without Python.

        Its input "X" (n, d) is float64, and finite. A regressor has the output "prediction", of the
        shape of :meth:`predict`; a classifier "label" (n,) and "probability" (n, k). Columns of
        words, dates and times, intervals and novelty are not in it. Needs onnx
        (``pip install 'parkrr[onnx]'``).

        Examples
        --------
        >>> import numpy as np, onnxruntime, tempfile
        >>> from parkrr import ParKRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> model = ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> path = tempfile.mkdtemp() + "/sine.onnx"
        >>> model.to_onnx(path)
        >>> [answer] = onnxruntime.InferenceSession(path).run(["prediction"], {"X": X[:3]})
        >>> bool(np.allclose(answer, model.predict(X[:3])))
        True
        """
        check_is_fitted(self)
        from parkrr.persistence.onnx_export import to_onnx  # noqa: PLC0415 - optional

        to_onnx(self, path)

    def show_report(self, path: str | Path, X: Any = None, y: ArrayLike | None = None) -> None:
        """Write what there is to see of the model as one HTML page that needs nothing else.

        Choices, cells, errors of rows left out, importances, pictures; of rows X and targets y, if
        given, also where errors live, jumps across borders, and what the theory says. Needs
        matplotlib (``pip install 'parkrr[plot]'``).

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
        from parkrr.report.report import write_report  # noqa: PLC0415 - optional

        write_report(self, path, X, y)

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
            Where files named part-00000.parquet and so on go, a path or a URL. Interrupted, the
            same call goes on with those that are missing.
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

        Examples
        --------
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq, tempfile
        >>> from parkrr import ParKRegressor, scan_parquet
        >>> folder, x = tempfile.mkdtemp(), np.linspace(0, 6, 200)
        >>> table = pa.table({"x": x, "y": np.sin(x), "trip": range(200)})
        >>> pq.write_table(table, f"{folder}/rows.parquet")
        >>> rows = scan_parquet(f"{folder}/rows.parquet", target="y", features=["x"])
        >>> model = ParKRegressor(random_state=0, progress=False).fit(rows)
        >>> model.predict_to(rows, f"{folder}/answers", keys=["trip"], answers=["interval"])
        200
        >>> pq.read_table(f"{folder}/answers").column_names
        ['trip', 'lower', 'upper']
        """
        check_is_fitted(self)
        for name in answers:
            check_one_of("answers", name, self._answers)
        answering = self._answering()
        if "interval" in answers:
            answering.check_coverage(coverage)
        columns = self.columns_ or numbers_only(source, self.n_features_in_)
        wanted = (tuple(keys), tuple(answers), float(coverage), str(folder))
        predicting = FilePredictor(answering, columns, *wanted)
        return write_predictions(predicting, source, as_engine(self.engine), self.progress)
