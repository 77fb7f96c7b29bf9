"""Arrays of users as tensors."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from parkrr.data.rows import ArraySource
from parkrr.errors import ParameterError

LARGEST_WEIGHT = 1e200


@contextmanager
def naming(name: str) -> Iterator[None]:
    """What numpy or scikit-learn says of a value inside names the parameter, or one of several."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if re.search(rf"\b({name.replace(', ', '|')})\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ParameterError
        raise kind(f"{name}: {error}") from error


def as_source(
    X: NDArray[Any], Y: NDArray[Any], sample_weight: ArrayLike | None, device: torch.device
) -> ArraySource:
    """The rows that count, as tensors: those of weight zero are left out."""
    w = None
    if sample_weight is not None:
        w = check_weights(sample_weight, len(X))
        if w.max() > LARGEST_WEIGHT:  # weights of copies are added; only ratios matter
            w = w / w.max()
        if (w == 0).any():
            X, Y, w = X[w > 0], Y[w > 0], w[w > 0]
    weights = None if w is None else as_tensor(w).to(device)
    return ArraySource(as_tensor(X).to(device), as_tensor(Y).to(device), weights)


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    """The array as a tensor, without a copy if torch can. It is never written to."""
    if min(array.strides, default=0) < 0:
        array = array.copy()
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def real(values: ArrayLike) -> NDArray[np.float64]:
    """As an array of float64; numpy would drop the imaginary part of complex numbers."""
    array = np.asarray(values)
    if array.dtype.kind in "cmM":
        raise ValueError(f"numbers must be real, got {array.dtype}")
    return np.asarray(array, dtype=np.float64)


def check_weights(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """The weights as an array (n,), if they are weights."""
    with naming("sample_weight"):
        w = real(sample_weight)
    w = np.full(n, w) if w.ndim == 0 else w
    if w.shape not in ((n,), (n, 1)):
        raise ParameterError(f"sample_weight must have one entry a row ({n}), got {w.shape}")
    w = w.reshape(n)
    if not (np.isfinite(w).all() and (w >= 0).all() and (w > 0).any()):
        raise ParameterError(
            f"sample_weight must be finite and >= 0 and not all zero, got values from "
            f"{w.min()} to {w.max()}"
        )
    return w
