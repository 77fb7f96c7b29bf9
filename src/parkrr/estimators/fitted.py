"""What the two estimators can do once they are fitted: answer, tell, be saved."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from parkrr.data import Columns, ParquetTable, as_tensor, encode_frame, naming
from parkrr.errors import check_one_of
from parkrr.out_of_core import FilePredictor, numbers_only, write_predictions
from parkrr.park import CellReport, CellStatistics, Model
from parkrr.persistence import save_estimator
from parkrr.runtime import Engine, as_engine
from parkrr.tuning import Chosen
from parkrr.uncertainty import DiagnosticRows, Predictor


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
        return save_estimator(self, path, centers)

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
