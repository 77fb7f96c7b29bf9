"""Which rows are validation rows: at random, whole groups, the future, or those of a splitter.

Everything that is compared, every error that is reported and every interval comes from validation
rows. So they must be as far from the training rows as the rows you will predict.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parkrr.data.rows import VALIDATION_SHARE, as_real, naming_parameter
from parkrr.errors import ParameterError


@dataclass(frozen=True)
class Holdout:
    """Which rows are validation rows, and how they are left out of the final fit."""

    is_validation: Tensor  # (n,)
    groups: Tensor | None = None  # (n,)  numbers of groups, which are left out as a whole
    apart: bool = False  # whether all validation rows are left out at once, by one more fit

    @property
    def keeps_apart(self) -> bool:
        """Whether validation rows are apart from training rows, and not among them."""
        return self.apart or self.groups is not None

    def take(self, index: Tensor) -> "Holdout":
        """The same for the rows at these positions."""
        groups = None if self.groups is None else self.groups[index]
        return Holdout(self.is_validation[index], groups, self.apart)

    def to(self, device: torch.device) -> "Holdout":
        """The same on that device."""
        groups = None if self.groups is None else self.groups.to(device)
        return Holdout(self.is_validation.to(device), groups, self.apart)


def hold_out(
    n: int,
    seed: int,
    *,
    groups: ArrayLike | None = None,
    time: ArrayLike | None = None,
    cv: Any = None,
) -> Holdout | None:
    """The validation rows of n rows; None if they are rows drawn at random.

    Parameters
    ----------
    groups
        The group of each row, (n,): whole groups are validation rows, some 20 % of the rows.
    time
        When each row was seen, numbers or dates (n,): the last 20 % of the rows.
    cv
        A splitter of scikit-learn: the test rows of its last split, which may use `groups`.
    """
    if time is not None and (groups is not None or cv is not None):
        raise ParameterError("time must be given without groups and cv: it divides the rows itself")
    if cv is not None:
        return hold_out_split(n, cv, groups)
    if time is not None:
        when = read_times(time, n)
        edge = np.quantile(when, 1 - VALIDATION_SHARE, method="higher")
        is_validation = when >= edge if (when < edge).any() else when > edge
        check_both("time", is_validation)
        return Holdout(torch.from_numpy(is_validation), apart=True)
    if groups is None:
        return None
    numbers = number_groups(groups, n)
    counts = np.bincount(numbers)
    order = np.random.default_rng([seed, 3]).permutation(len(counts))
    taken = np.cumsum(counts[order]) <= VALIDATION_SHARE * n
    taken[0] = True
    is_validation = np.isin(numbers, order[taken])
    check_both("groups", is_validation)
    return Holdout(torch.from_numpy(is_validation), torch.from_numpy(numbers))


def hold_out_split(n: int, cv: Any, groups: ArrayLike | None) -> Holdout:
    """The test rows of the last split of a splitter."""
    if not hasattr(cv, "split"):
        raise ParameterError(
            f"cv must be a splitter of scikit-learn, such as GroupKFold(), got {cv!r}"
        )
    numbers = None if groups is None else number_groups(groups, n)
    with naming_parameter("cv"):
        *_, (train, test) = cv.split(np.zeros((n, 1)), np.zeros(n), numbers)
    is_validation = np.zeros(n, dtype=bool)
    is_validation[test] = True
    if len(train) + len(test) < n:
        raise ParameterError(
            f"cv must divide all rows into training and test rows, but its last split has "
            f"{len(train)} and {len(test)} of {n}"
        )
    check_both("cv", is_validation)
    return Holdout(torch.from_numpy(is_validation), apart=True)


def number_groups(groups: ArrayLike, n: int) -> NDArray[np.int64]:
    """The groups of rows as numbers 0, 1, ..., shape (n,)."""
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ParameterError(f"groups must have one entry for each of {n} rows, got {labels.shape}")
    _, numbers = np.unique(
        labels.astype(str) if labels.dtype == object else labels, return_inverse=True
    )
    return numbers.reshape(n).astype(np.int64)


def read_times(time: ArrayLike, n: int) -> NDArray[np.float64]:
    """Times as numbers, shape (n,); dates in nanoseconds."""
    when = np.asarray(time)
    if when.dtype == object:
        with naming_parameter("time"):
            when = when.astype("datetime64[ns]")
    if when.dtype.kind in "mM":
        when = when.astype("datetime64[ns]" if when.dtype.kind == "M" else "timedelta64[ns]")
        missing = np.isnat(when)
        when = np.where(missing, np.nan, when.astype(np.int64).astype(np.float64))
    with naming_parameter("time"):
        when = as_real(when)
    if when.shape != (n,) or not np.isfinite(when).all():
        raise ParameterError(
            f"time must have one finite number or date for each of {n} rows, got shape "
            f"{when.shape} with {int((~np.isfinite(when)).sum())} missing"
        )
    return when


def check_both(name: str, is_validation: NDArray[np.bool_]) -> None:
    """Refuse to learn from nothing, or to validate on nothing."""
    if is_validation.all() or not is_validation.any():
        raise ParameterError(
            f"{name} must leave some rows to learn from and some to validate on, but one of both "
            f"is empty; give at least two different values"
        )
