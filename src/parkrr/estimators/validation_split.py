"""Arguments of fit for validation rows: groups, time, a splitter, or other rows."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from parkrr.data import (
    FOLDS,
    ArraySource,
    Holdout,
    ParquetTable,
    TableEncoder,
    as_source,
    assign_folds,
    collect,
    hold_out,
    naming_parameter,
    read_file_rows,
)
from parkrr.errors import ParameterError
from parkrr.estimators.input_rows import NUMERIC, encode_array, encode_frame, is_table, read_array
from parkrr.planning import stays_on_disk


class TargetEncoder(Protocol):
    """An estimator with a rule for how its targets become numbers."""

    def _check_new_rows(
        self, y: Any, sample_weight: Any, n: int, t: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]: ...


@dataclass(frozen=True)
class ValidationSplit:
    """Arguments of fit that say which rows are validation rows."""

    groups: ArrayLike | None = None
    time: ArrayLike | None = None
    cv: Any = None
    X_val: Any = None
    y_val: Any = None
    sample_weight_val: ArrayLike | None = None

    def __post_init__(self) -> None:
        if (self.X_val is None) != (self.y_val is None):
            missing = "y_val" if self.y_val is None else "X_val"
            raise ParameterError(f"X_val and y_val must be given together, but {missing} is None")
        given = [name for name in ("groups", "time", "cv") if getattr(self, name) is not None]
        if self.X_val is not None and given:
            raise ParameterError(
                f"X_val must be given without {' and '.join(given)}: they are the validation rows"
            )

    def check_files(self) -> None:
        """Refuse arrays beside files."""
        for name in ("groups", "time", "cv", "X_val", "y_val", "sample_weight_val"):
            if getattr(self, name) is not None:
                raise ParameterError(
                    f"{name} must be None for files; name columns as groups= or time= of "
                    f"scan_parquet"
                )

    @classmethod
    def read_files(
        cls, table: ParquetTable, params: dict[str, Any]
    ) -> "tuple[Any, NDArray[Any], NDArray[Any] | None, ValidationSplit]":
        """Features, targets and weights of files, and the split that their columns describe."""
        if stays_on_disk(table, params):
            raise ParameterError(
                "groups and time must be None for files that stay on disk, where validation rows "
                "are drawn at random; raise max_memory, leave checkpoint out, or fit some of the "
                "rows (scan_parquet(..., filter=...))"
            )
        features, y, w, groups, time = read_file_rows(table)
        return features, y, w, cls(groups, time)

    def check_guarantee(self, guarantee: str) -> None:
        """Refuse to divide rows that a guarantee divides at random."""
        for name in ("groups", "time", "cv", "X_val"):
            if getattr(self, name) is not None:
                raise ParameterError(
                    f"{name} must be None with guarantee={guarantee!r}, whose theorem needs rows "
                    f"that are set aside at random; use guarantee='none'"
                )

    def hold_out(self, n: int, seed: int) -> Holdout | None:
        """Which of n rows are validation rows; None for rows drawn at random."""
        return hold_out(n, seed, groups=self.groups, time=self.time, cv=self.cv)

    def assign_folds(self, n: int, seed: int, holdout: Holdout | None) -> NDArray[np.int8]:
        """The fold in which each of n rows is encoded, (n,)."""
        if holdout is None:  # the validation rows are beside these
            return assign_folds(np.arange(n), seed, 0.0)
        numbers = np.arange(n) if holdout.groups is None else holdout.groups.numpy()
        fold = assign_folds(numbers, seed, 0.0)
        return np.where(holdout.is_validation.numpy(), FOLDS, fold).astype(np.int8)

    def read_rows(
        self, estimator: TargetEncoder, columns: TableEncoder, named: bool, t: int
    ) -> ArraySource | None:
        """The validation rows that were given, as the estimator encodes rows with t targets."""
        if self.X_val is None:
            return None
        given = collect(self.X_val)
        with naming_parameter("X_val"):
            if is_table(given):
                X = encode_frame(columns, named, given)
            else:
                X = encode_array(
                    columns,
                    read_array(given, lambda X: check_array(X, input_name="X_val", **NUMERIC)),
                )
        with naming_parameter("y_val"):
            Y, w = estimator._check_new_rows(self.y_val, self.sample_weight_val, len(X), t)
        return as_source(X, Y, w)
