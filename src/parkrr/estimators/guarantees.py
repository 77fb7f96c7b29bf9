"""Which rows decide nothing but guaranteed intervals. Start at :func:`choose_set_aside`."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parkrr.data import ParquetTable, choose_rows, read_file_rows
from parkrr.errors import ParameterError
from parkrr.kernels import FeatureMap
from parkrr.planning import open_choices, size_rows, stays_on_disk

GUARANTEES = ("none", "split", "cell", "jackknife+")
FEWEST_ROWS = 10
SHARE = 0.2
FEW = 39  # of few rows: enough for a coverage of 0.95 with equal tails
SPLIT_MOST = 10_000  # the coverage of one model then varies by 0.003
JACKKNIFE_MOST, JACKKNIFE_VALUES = 2_000, 2**24  # rows, and coefficients of their fits: 134 MB


def choose_set_aside(
    hashes: NDArray[np.uint64], params: dict[str, Any], seed: int, *, encoded: bool
) -> NDArray[np.bool_]:
    """Which of the rows with these hashes (n,) decide nothing but guaranteed intervals, (n,).

    A fifth, or 39 of few rows, but no more than half. For the jackknife+, which fits these rows
    too, all of them where rows decide nothing; `encoded` columns are decided by rows.
    """
    n, guarantee = len(hashes), params["guarantee"]
    if n < FEWEST_ROWS:
        raise ParameterError(
            f"guarantee={guarantee!r} needs at least {FEWEST_ROWS} rows, got {n}; set it to 'none'"
        )
    size = max(math.ceil(SHARE * n), min(FEW, n // 2))
    if guarantee == "split":
        size = min(size, SPLIT_MOST)
    elif guarantee == "jackknife+":
        sizes = size_rows(params, n)
        size = n if not encoded and decides_nothing(params, n) else size
        most = JACKKNIFE_VALUES * sizes.n_cells // sizes.n_centers
        size = max(1, min(size, JACKKNIFE_MOST, most))
    return choose_rows(hashes, size, seed)


def decides_nothing(params: dict[str, Any], n: int) -> bool:
    """Whether n rows decide nothing in a fit with these parameters, not even an intercept."""
    choices, sizes = open_choices(params, n, 1), size_rows(params, n)
    if choices.lengthscale or choices.penalty or choices.coarse or params["coarse"] != 0:
        return False
    given = isinstance(choices.metric, FeatureMap) or choices.metric == "euclidean"
    whole = sizes.n_cells == 1 and sizes.n_centers >= n
    return given and whole and not params["fit_intercept"]


def read_guaranteed(
    source: ParquetTable, params: dict[str, Any]
) -> tuple[Any, NDArray[Any], NDArray[Any] | None]:
    """Table, targets and weights of files for a fit with a guarantee, which must be in memory."""
    if stays_on_disk(source, params):
        raise ParameterError(
            f"guarantee must be 'none' for files that stay on disk, got {params['guarantee']!r}: "
            f"a pass over them would fit the rows that must be set aside. Raise max_memory, leave "
            f"checkpoint out, or fit some of the rows (scan_parquet(..., filter=...))"
        )
    features, y, w, _, _ = read_file_rows(source)
    return features, y, w


def refuse_update(guarantee: str) -> None:
    """Refuse to update a model whose intervals belong to its fit."""
    if guarantee != "none":
        raise ParameterError(
            f"guarantee must be 'none' to update a model, got {guarantee!r}: an update would "
            f"leave its intervals without their theorem; fit all rows again"
        )
