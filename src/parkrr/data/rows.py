"""Rows in memory: users' arrays as tensors, blocks of rows, samples and the validation split.

A source hides where rows live: its reader sees blocks of rows and nothing else, so that a solver
needs only a loop over blocks. A cell of a source is a source.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parkrr.errors import ParameterError

FEW_ROWS = 300  # below, every row is left out in turn; no metric is learned unless requested
VALIDATION_SHARE = 0.2  # of the rows, on which candidates are compared
LARGEST_WEIGHT = 1e200
NOT_AVAILABLE = ("NAType", "NaTType")  # types of missing values of pandas, which may not be here
RARELY = 0.05  # of all pairs of rows: targets of which fewer are equal can tell copies apart

NARROW = (torch.bfloat16, torch.float16)

RowMap = Callable[[Tensor], Tensor]
Predict = TypeVar("Predict", bound=Callable[..., Any])


class Block(NamedTuple):
    """Some rows: features, targets, weights."""

    X: Tensor  # (b, d)
    Y: Tensor  # (b, t)
    w: Tensor | None  # (b,)


class Source(Protocol):
    """Rows that can be read block by block, wherever they live."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_outputs(self) -> int: ...

    def blocks(self, rows: int) -> Iterator[Block]: ...


class CellRows(Protocol):
    """The rows of one cell, wherever they live, loaded when the cell is fitted."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_outputs(self) -> int: ...

    @property
    def total_weight(self) -> float: ...

    def load(self) -> "ArraySource": ...


@dataclass(frozen=True)
class ArraySource:
    """Rows of tensors in memory: all of them, or those at `index`, seen through `view`.

    Parameters
    ----------
    X
        Features, shape (n, d).
    Y
        Targets, shape (n, t).
    w
        Row weights, shape (n,), or None when all are 1.
    index
        The rows that belong to this source, shape (n_rows,); None means all.
    view
        A row-wise function through which the features are read, block by block.

    Examples
    --------
    >>> import torch
    >>> from parkrr.data.rows import ArraySource
    >>> rows = ArraySource(torch.arange(6.0).reshape(3, 2), torch.ones(3, 1))
    >>> [len(block.X) for block in rows.blocks(2)]
    [2, 1]
    """

    X: Tensor
    Y: Tensor
    w: Tensor | None = None
    index: Tensor | None = None
    view: RowMap | None = None

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle the rows of a cell alone, not all rows and an index."""
        return ArraySource, tuple(self.block(slice(None)))

    @property
    def n_rows(self) -> int:
        return len(self.X) if self.index is None else len(self.index)

    @property
    def n_outputs(self) -> int:
        return self.Y.shape[1]

    @property
    def total_weight(self) -> float:
        """Sum of the weights: what the paper calls n, if a weight counts copies of a row."""
        if self.w is None:
            return float(self.n_rows)
        w = self.w if self.index is None else self.w[self.index]
        return float(w.sum(dtype=torch.float64))

    def squared_error(self, predicted: Tensor | float = 0.0) -> Tensor:
        """Weighted sum of squared errors of predictions (n_rows, t) of these rows, loaded."""
        each = (self.Y.double() - predicted).square().sum(1)
        return each.sum() if self.w is None else self.w.double() @ each

    def map(self, view: RowMap) -> "ArraySource":
        """The same rows read through one more row-wise function."""
        inner = self.view
        return replace(self, view=view if inner is None else lambda X: view(inner(X)))

    def blocks(self, rows: int) -> Iterator[Block]:
        """All rows in order, at most `rows` at a time."""
        for start in range(0, self.n_rows, rows):
            yield self.block(slice(start, start + rows))

    def block(self, part: slice | Tensor) -> Block:
        """The rows at these positions."""
        own = part if self.index is None else self.index[part]
        X = self.X[own]
        return Block(
            X if self.view is None else self.view(X),
            self.Y[own],
            None if self.w is None else self.w[own],
        )

    def load(self) -> "ArraySource":
        """The rows of this source alone, gathered and seen through its view once."""
        return ArraySource(*self.block(slice(None)))

    def to(self, dtype: torch.dtype) -> "ArraySource":
        """The rows of this source alone, in that dtype."""
        X, Y, w = self.block(slice(None))
        return ArraySource(X.to(dtype), Y.to(dtype), None if w is None else w.to(dtype))

    def sample(self, size: int, seed: int) -> "ArraySource":
        """`size` rows drawn without replacement, or all of them in order."""
        if size >= self.n_rows:
            return self.load()
        return ArraySource(*self.block(draw_indices(self.n_rows, size, seed)))

    def move_last(self, chosen: Tensor, groups: Tensor | None = None) -> "ArraySource":
        """The same rows, those where chosen (n_rows,) is true after all others, in random order.

        So any number of rows at the end is a random sample of the chosen ones. Rows of one of the
        groups (n_rows,) stay together.
        """
        last = chosen.nonzero()[:, 0]
        rng = np.random.default_rng(self.n_rows)
        order = rng.permutation(len(last))
        if groups is not None:
            own = groups[last].cpu().numpy()
            order = np.argsort(rng.permutation(own.max(initial=0) + 1)[own], kind="stable")
        last = last[torch.from_numpy(order).to(last.device)]
        index = torch.cat([(~chosen).nonzero()[:, 0], last])
        return replace(self, index=index if self.index is None else self.index[index])

    def move_to_end(self, chosen: Tensor) -> "ArraySource":
        """The same rows in order, but those of an index where chosen (n,) is true at the end."""
        index = (
            torch.arange(len(self.X), device=self.X.device) if self.index is None else self.index
        )
        mine = chosen[index]
        return replace(self, index=torch.cat([index[~mine], index[mine]]))

    def shards(self, count: int) -> "list[ArraySource]":
        """The rows cut into `count` runs of nearly equal length."""
        ends = [round(k * self.n_rows / count) for k in range(count + 1)]
        return [self.rows(slice(a, b)) for a, b in pairwise(ends)]

    def rows(self, part: slice) -> "ArraySource":
        """A run of rows, without a copy."""
        if self.index is not None:
            return replace(self, index=self.index[part])
        w = None if self.w is None else self.w[part]
        return replace(self, X=self.X[part], Y=self.Y[part], w=w)

    def split(self, cell_of: Tensor, n_cells: int) -> "list[ArraySource]":
        """One source per cell, given the cell of every row (n_rows,)."""
        order, counts = group_by_cell(cell_of, n_cells)
        index = order if self.index is None else self.index[order]
        return [replace(self, index=part) for part in torch.split(index, counts)]


# Users' arrays.


def is_pandas(X: Any) -> bool:
    """Whether it is of pandas, which need not be installed."""
    return type(X).__module__.startswith("pandas")


def is_frame(X: Any) -> bool:
    """Whether Arrow can read it as a table, as it can frames of pandas and polars."""
    return hasattr(X, "__arrow_c_stream__")


def needs_scan(X: Any) -> bool:
    """Whether it is a source for `scan`, and neither an array nor a frame."""
    libraries = ("pyarrow._dataset", "deltalake.", "pyiceberg.", "datasets.", "ray.data.")
    plain = is_frame(X) or hasattr(X, "__array__")
    return not plain and (type(X).__module__.startswith(libraries) or callable(X))


def collect(rows: Any) -> Any:
    """Rows of a lazy frame of polars, read now, and of a tensor as an array; others as they are."""
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu()
        # numpy has no bfloat16, and scikit-learn's checks let float16 pass as it is.
        return (rows.float() if rows.dtype in NARROW else rows).numpy()
    return rows.collect() if type(rows).__name__ == "LazyFrame" else rows


def return_like_input(method: Predict) -> Predict:
    """A method of rows X that returns arrays: of a tensor X it returns tensors on its device.

    Floats have the dtype of X, if that is one of floats. Text stays an array.
    """

    @wraps(method)
    def return_tensors(self: Any, X: Any, *args: Any, **more: Any) -> Any:
        out = method(self, X, *args, **more)
        if not isinstance(X, Tensor):
            return out
        if isinstance(out, tuple):
            return tuple(tensor_like(part, X) for part in out)
        return tensor_like(out, X)

    return return_tensors  # type: ignore[return-value]


def tensor_like(array: NDArray[Any], X: Tensor) -> Any:
    """An array as a tensor on the device of X, and floats in its dtype; text as it is."""
    if array.dtype.kind not in "fiub":
        return array
    floats = array.dtype.kind == "f" and X.is_floating_point()
    return torch.as_tensor(array).to(X.device, X.dtype if floats else None)


def check_any_rows(X: Any, name: str = "X") -> None:
    """Refuse rows of which there are none, as scikit-learn does."""
    shape = getattr(X, "shape", None)
    n = shape[0] if shape else len(X) if isinstance(X, list | tuple) else 1
    if n == 0:
        raise ParameterError(
            f"{name} must have at least one row, got 0 sample(s); look at the filter or the slice "
            f"that made it, or skip empty batches"
        )


def as_source(X: NDArray[Any], Y: NDArray[Any], sample_weight: ArrayLike | None) -> ArraySource:
    """The rows of positive weight, as tensors."""
    w = None
    if sample_weight is not None:
        w = check_weights(sample_weight, len(X))
        if w.max() > LARGEST_WEIGHT:  # weights of copies are added; only ratios matter
            w = w / w.max()
        if (w == 0).any():
            X, Y, w = X[w > 0], Y[w > 0], w[w > 0]
    return ArraySource(as_tensor(X), as_tensor(Y), None if w is None else as_tensor(w))


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The array as a tensor, without a copy if torch can. It is never written to."""
    if min(array.strides, default=0) < 0:
        array = array.copy()
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def as_real(values: ArrayLike) -> NDArray[np.float64]:
    """As an array of float64; numpy would drop the imaginary part of complex numbers."""
    array = np.asarray(collect(values))
    if array.dtype.kind in "cmM":
        raise ValueError(f"numbers must be real, got {array.dtype}")
    return np.asarray(array, dtype=np.float64)


def read_numbers(y: Any, name: str = "y") -> NDArray[Any]:
    """A target of any kind as an array of numbers, none of them missing."""
    array = as_array(y, name)
    if array.dtype.kind in "OUS":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            refuse_missing(array, name)
            place = next(k for k, value in enumerate(array.flat) if not is_number(value))
            row, value = place // array[:1].size, as_plain(array.flat[place])
            raise ParameterError(
                f"{name} must be numbers, but row {row} is {value!r}; for labels use "
                f"ParKClassifier, and convert numbers that are written as text"
            ) from None
    if array.dtype.kind == "c":  # the text that scikit-learn has
        raise ParameterError(f"{name} must be real numbers: Complex data not supported")
    if array.dtype.kind not in "fiub":
        raise ParameterError(
            f"{name} must be real numbers, got {array.dtype}; dates and durations can be "
            f"predicted as seconds"
        )
    refuse_missing(array, name)
    return array


def read_labels(y: Any, name: str = "y") -> NDArray[Any]:
    """Labels of any kind as an array, none of them missing and all comparable."""
    array = as_array(y, name)
    refuse_missing(array, name)
    if array.dtype.kind == "O":
        kinds = {type(as_plain(value)): as_plain(value) for value in array.flat}
        orders = {str if issubclass(kind, str) else Real for kind in kinds}
        if len(orders) > 1:
            both = " and ".join(f"{value!r} ({kind.__name__})" for kind, value in kinds.items())
            raise ParameterError(f"{name} must be labels of one type, got {both}; convert them")
    return array


def name_columns(y: Any) -> list[str] | None:
    """The names of a column or of the columns of a frame; None if they are not text."""
    names = getattr(y, "columns", None)  # of frames; columns of Arrow have names of their own
    names = getattr(y, "column_names", names)
    names = [getattr(y, "name", None)] if names is None else list(names)
    return names if all(isinstance(name, str) and name for name in names) else None


def as_array(y: Any, name: str) -> NDArray[Any]:
    """A column, a frame or a sequence as an array."""
    try:
        array = np.asarray(collect(y))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be an array of one value a row: {error}") from error
    if array.ndim == 0 and array.dtype.kind == "O":  # such as a sparse matrix
        raise ParameterError(
            f"{name} must be an array of one value a row, got {type(y).__name__}; convert it"
        )
    return array


def as_plain(value: Any) -> Any:
    """A value of numpy as one of Python, which a message shows without its type."""
    return value.item() if isinstance(value, np.generic) else value


def is_number(value: Any) -> bool:
    """Whether it is a number, or text that is one."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def refuse_missing(array: NDArray[Any], name: str) -> None:
    """Name the first row of an array that is None, NaN, or NA or NaT of pandas."""
    if array.dtype.kind == "f":
        missing = np.isnan(array)
    elif array.dtype.kind == "O":
        values = (v is None or type(v).__name__ in NOT_AVAILABLE or v != v for v in array.flat)  # noqa: PLR0124
        missing = np.fromiter(values, bool, array.size).reshape(array.shape)
    else:
        return
    if missing.any() and array.ndim:
        rows = np.flatnonzero(missing.reshape(len(array), -1).any(1))
        raise ParameterError(
            f"{name} must have a value in every row, but {name} contains NaN or None in "
            f"{len(rows)} of {len(array)} rows, the first is row {rows[0]}; leave these rows out "
            f"of X and {name}"
        )


def check_weights(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """The weights as an array (n,), if they are valid."""
    with naming_parameter("sample_weight"):
        w = as_real(sample_weight)
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


@contextmanager
def naming_parameter(name: str) -> Iterator[None]:
    """Put the name of the parameter, or of several, before errors of numpy and scikit-learn."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if re.search(rf"\b({name.replace(', ', '|')})\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ParameterError
        raise kind(f"{name}: {error}") from error


# Groups, runs and samples of rows.


def join_blocks(blocks: Sequence[Block]) -> ArraySource:
    """The rows of several blocks as one source; a block without weights has weights of one."""
    X, Y = torch.cat([block.X for block in blocks]), torch.cat([block.Y for block in blocks])
    if all(block.w is None for block in blocks):
        return ArraySource(X, Y)
    weights = [torch.ones_like(b.Y[:, 0]) if b.w is None else b.w.to(b.Y) for b in blocks]
    return ArraySource(X, Y, torch.cat(weights))


def cut_evenly(lengths: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Runs (first, last) of about the same total length, at most `count` of them."""
    ends = np.cumsum(lengths)
    number = np.minimum(count - 1, (ends - 1) * count // ends[-1])
    firsts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    return list(zip(firsts, [*firsts[1:], len(lengths)], strict=True))


def group_by_cell(cell_of: Tensor, n_cells: int) -> tuple[Tensor, list[int]]:
    """The order (n,) that puts rows of one cell together, and the rows in each cell."""
    counts = np.bincount(cell_of.cpu().numpy(), minlength=n_cells).tolist()
    return sort_by_cell(cell_of, n_cells), counts


def sort_by_cell(cell_of: Tensor, n_cells: int) -> Tensor:
    """The order (n,) that puts rows of one cell together."""
    narrow = np.uint16 if n_cells <= 2**16 else np.int64
    cells = cell_of.cpu().numpy().astype(narrow)
    order = np.argsort(cells, kind="stable")  # radix sort on 16 bits
    return torch.from_numpy(order).to(cell_of.device)


def draw_indices(n: int, size: int, seed: int) -> Tensor:
    """`size` of the numbers 0..n-1 without replacement, or all of them in order, (size,)."""
    if size >= n:
        return torch.arange(n)
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.choice(n, size, replace=False))


# Choices that depend on the content of rows, not on the order in which rows arrive.


def select_validation_rows(rows: ArraySource, seed: int) -> Tensor:
    """Whether each row is a validation row, (n,): the same rows in whatever order they arrive.

    No metric is learned from validation rows, so their error is an honest estimate.
    """
    order = canonical_order(rows)
    chosen = torch.empty(rows.n_rows, dtype=torch.bool, device=order.device)
    chosen[order] = validation_positions(rows.n_rows, seed).to(order.device)
    return chosen


def validation_positions(n: int, seed: int) -> Tensor:
    """Whether the row at each position of the canonical order is a validation row, (n,)."""
    return torch.from_numpy(np.random.default_rng([seed, 2]).random(n) < VALIDATION_SHARE)


def canonical_order(rows: ArraySource) -> Tensor:
    """An order (n,) of the rows by content, whatever the order of rows and of columns.

    It does not depend on the units of columns: values count in thousandths of their spread. Rows
    that are alike in all of these, as where one value of 1e12 makes the spread, are in the order of
    their bits.
    """
    X, Y, _ = rows.block(slice(None))
    hashes = np.zeros(len(X), dtype=np.uint64)
    for column in (*X.T, *Y.T):
        x = column.double().cpu().numpy()
        # From the least of them: a mean of values near 1e13 depends on the order of rows.
        x = x / 2 - x.min() / 2
        x = x / max(x.max(), 1e-300)
        x = (x - x.mean()) / max(x.std(), 1e-300)
        # The offset keeps values off the edges of the thousandths, where rounding would decide.
        hashes += mix_bits(np.floor(x * 1000.123 + 0.377).astype(np.int64).view(np.uint64))
    return torch.from_numpy(np.lexsort((hash_rows(X, Y), hashes))).to(X.device)


def has_copies(rows: ArraySource) -> bool:
    """Whether rows appear more than once, and not by coincidence.

    Rows of equal features are copies if most of them have equal targets too, though targets of
    two rows are rarely equal. Labels and small counts, which often are, can tell nothing.
    """
    X, Y, _ = rows.block(slice(None))
    hashes = (hash_rows(X, Y[:, :0]), hash_rows(X[:, :0], Y), hash_rows(X, Y))
    counts = (np.unique(each, return_counts=True)[1] for each in hashes)
    equal_X, equal_Y, equal = ((n * (n - 1.0)).sum() for n in counts)  # pairs
    return bool(equal_Y <= RARELY * float(len(X)) ** 2 and equal > equal_X / 2)


def is_repeated(rows: ArraySource) -> bool:
    """Whether every row is there several times, and as often as any other."""
    X, Y, _ = rows.block(slice(None))
    counts = np.unique(hash_rows(X, Y), return_counts=True)[1]
    return bool(counts.min() == counts.max() > 1)


def merge_copies(rows: ArraySource) -> ArraySource:
    """Copies of a row as one row with their total weight, at the place of the first."""
    X, Y, w = rows.block(slice(None))
    _, first, kind = np.unique(hash_rows(X, Y), return_index=True, return_inverse=True)
    weights = np.ones(len(X)) if w is None else w.double().cpu().numpy()
    total, order = np.bincount(kind, weights=weights), np.argsort(first)
    own = torch.from_numpy(first[order]).to(X.device)
    return ArraySource(X[own], Y[own], torch.from_numpy(total[order]).to(X.device))


def hash_rows(X: Tensor, Y: Tensor) -> NDArray[np.uint64]:
    """64 bits of each row X (n, d), Y (n, t), shape (n,): the same in float32 and float64."""
    hashes = np.zeros(len(X), dtype=np.uint64)
    for column in (*X.T, *Y.T):  # adding zero turns -0.0 into 0.0
        bits = (column.double().cpu().numpy() + 0.0).view(np.uint64)
        hashes = mix_bits(hashes * np.uint64(0x9E3779B97F4A7C15) + mix_bits(bits))
    return hashes


def choose_rows(hashes: NDArray[np.uint64], size: int, seed: int) -> NDArray[np.bool_]:
    """Whether each row is one of `size` chosen ones, (n,): the same in whatever order they arrive.

    Copies of a row are chosen together, so that there can be a few more.
    """
    mixed = mix_bits(hashes ^ mix_bits(np.array([seed + 1], dtype=np.uint64)))
    chosen: NDArray[np.bool_] = mixed <= np.partition(mixed, size - 1)[size - 1]
    return chosen


def mix_bits(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64-bit numbers with their bits spread over all places, as in splitmix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(31))
