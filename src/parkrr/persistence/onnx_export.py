"""A fitted model as an ONNX file. Start at :func:`to_onnx`.

The graph does what Algorithm 2 does and in the same order: rows are sorted by cell, and a loop
takes each cell to its own rows, a block at a time, so that a row costs the centres of its own cells
and not of all. The map, the routing and all sums are float64; kernel values are in the dtype that
the fit found necessary in each cell, for in onnxruntime an entry of a kernel matrix takes 6 ns in
float64 and 0.6 in float32.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from parkrr.data import TableEncoder, atomic_write
from parkrr.errors import ParameterError
from parkrr.kernels import KERNELS
from parkrr.park import Cell, Model
from parkrr.persistence.onnx_graph import Graph, Value
from parkrr.persistence.onnx_parts import (
    Array,
    Cells,
    array,
    decisions,
    distances,
    mapped,
    probabilities,
    shares_of,
    without_gaps,
)
from parkrr.uncertainty import Predictor

# Rows of one cell that are answered at a time; 64 took as long. Blocks are filled up with zeros,
# so with many outputs they are shorter: 256 rows by 1,000 outputs of 500 cells are a gigabyte.
BLOCK_ROWS, FEWEST_ROWS, BLOCK_NUMBERS = 256, 16, 2**13
ROUTED_NUMBERS = 2**22  # distances to centroids at a time, 32 MB


class ExportedModel(Protocol):
    """What is asked of a fitted estimator."""

    columns_: TableEncoder | None
    n_features_in_: int

    def _predictor(self) -> Predictor: ...


def to_onnx(model: ExportedModel, path: str | Path) -> None:
    """Write a fitted estimator as an ONNX file.

    Its input "X" (n, d) is float64; outputs are "prediction" of a regressor, "label" and
    "probability" of a classifier.

    Examples
    --------
    >>> import numpy as np, onnxruntime, tempfile
    >>> from parkrr import ParKRegressor
    >>> from parkrr.persistence.onnx_export import to_onnx
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6).fit(X, np.sin(X[:, 0]))
    >>> path = tempfile.mkdtemp() + "/sine.onnx"
    >>> to_onnx(model, path)
    >>> [answer] = onnxruntime.InferenceSession(path).run(["prediction"], {"X": X[:3]})
    >>> bool(np.allclose(answer, model.predict(X[:3])))
    True
    """
    answering, d = model._predictor(), model.n_features_in_
    check_kernels(answering.model)
    graph = Graph()
    X = Value(graph, "X", np.float64)
    rows = X if model.columns_ is None else without_gaps(X, model.columns_)
    F = predicted(answering.model, rows)  # (n, t)
    names = getattr(model, "feature_names_in_", None)
    facts = {"features": None if names is None else list(names)}
    outputs = answers(answering, F)
    with atomic_write(Path(path)) as temporary:
        graph.write(temporary, {X: ["n", d]}, outputs, {"parkrr": json.dumps(facts)})


def check_kernels(model: Model) -> None:
    """Refuse kernels whose formula is not known here."""
    kernels = [model.kernel, *([] if model.coarse is None else [model.coarse.kernel])]
    for kernel in kernels:
        if type(kernel) not in KERNELS.values():
            raise ParameterError(
                f"to_onnx knows the kernels of parkrr ({sorted(KERNELS)}), got {kernel!r}; keep "
                f"such a model in Python"
            )


def answers(answering: Predictor, F: Value) -> dict[str, tuple[Value, Sequence[Any]]]:
    """Outputs by name with their shapes, of values F (n, t): Answering.predictions and so on."""
    t = len(answering.model.intercept)
    if answering.classes is None:
        flat = F.reshape(-1) if answering.one_output else F
        return {"prediction": (flat, ["n"] if answering.one_output else ["n", t])}
    k, calibration = len(answering.classes), answering.calibration
    D = decisions(calibration, F, t)
    if k == 2:
        number = D.above(0.0).cast(np.int64).reshape(-1)
    else:
        number = F.graph.node("ArgMax", D, dtype=np.int64, axis=1, keepdims=0)
    label = F.graph.constant(labels(answering.classes)).gather(number)
    P = probabilities(calibration, F, t)
    return {"label": (label, ["n"]), "probability": (P, ["n", k])}


def labels(classes: Array) -> Array:
    """Labels as ONNX can hold them: words, whole numbers, truth values or numbers."""
    if classes.dtype.kind in "UO" and all(isinstance(label, str) for label in classes):
        return classes.astype(object)
    kinds = {"i": np.int64, "u": np.int64, "b": np.bool_, "f": np.float64}
    if classes.dtype.kind not in kinds:
        raise ParameterError(
            f"labels must be words or numbers for to_onnx, got {classes.tolist()[:5]}; fit the "
            f"model to their names"
        )
    return classes.astype(kinds[classes.dtype.kind])


class Routed(NamedTuple):
    """Rows on their way to the cells."""

    rows: Value  # (n, e)  mapped
    cells: Value  # (n, k)  that may answer
    shares: Value | None  # (n, k), of each row they add up to one; None if k = 1
    coarse: Value | None  # (n, t)  what the coarse level says


def predicted(model: Model, X: Value) -> Value:
    """The model at rows X (n, d), (n, t): Model.predict."""
    routed = route_all(model, X)
    out = from_cells(model, routed) + array(model.intercept)
    return out if routed.coarse is None else out + routed.coarse


def route_all(model: Model, X: Value) -> Routed:
    """Map rows X (n, d) and find their cells, a run of rows at a time."""
    coarse = 0 if model.coarse is None else len(model.coarse.centers)
    widest = max(len(model.centroids), coarse, 2 * model.centroids.shape[1])
    longest = max(1, ROUTED_NUMBERS // widest)
    found = in_runs(X, longest, lambda run: [v for v in route(model, run) if v is not None])
    rows, cells, *more = found
    shares = more.pop(0) if model.blend.n_blended(len(model.centroids)) > 1 else None
    return Routed(rows, cells, shares, more.pop() if more else None)


def in_runs(X: Value, longest: int, work: Callable[[Value], list[Value]]) -> list[Value]:
    """work(rows) of runs of at most `longest` rows of X (n, d), one after the other, (n, ...).

    A loop of ONNX stacks equal shapes, so runs are equally long and zeros fill up the last.
    """
    n = X.size(0)
    runs = ((n + (longest - 1)) // longest).clip(1)
    length = (n + runs - 1) // runs
    padded = X.padded(runs * length - n)
    found = X.graph.loop(runs, lambda i: work(padded.slice(i * length, (i + 1) * length)))
    return [part.unstacked().slice(0, n) for part in found]


def route(model: Model, X: Value) -> Routed:
    """Map rows X (n, d) and find their cells: Blend.answers."""
    graph, dtype = X.graph, model.centroids.dtype
    rows = mapped(model.metric, X, dtype)
    k = model.blend.n_blended(len(model.centroids))
    D = distances(model.kernel, rows.cast(np.float64), model.centroids)  # (n, Q)
    coarse = None if model.coarse is None else coarse_values(model, rows)
    if k == 1:
        cells = graph.node("ArgMin", D, dtype=np.int64, axis=1, keepdims=1)
        return Routed(rows, cells, None, coarse)
    kinds = [np.float64, np.int64]
    near, cells = graph.nodes("TopK", [D, graph.whole(k + 1)], kinds, axis=1, largest=0)
    shares = shares_of(model.blend, near - near.slice(0, 1, axis=1), k, dtype)
    return Routed(rows, cells.slice(0, k, axis=1), shares, coarse)


def coarse_values(model: Model, rows: Value) -> Value:
    """The coarse level at mapped rows (n, e), (n, t): CoarseModel.__call__."""
    assert model.coarse is not None
    Z = model.coarse.centers
    level = Cell(model.coarse.kernel.against(Z), model.coarse.weights.to(Z.dtype))
    return Cells(rows.graph, model.coarse.kernel, [level]).at(rows.graph.whole(0), rows)


def from_cells(model: Model, routed: Routed) -> Value:
    """Answers of the cells, added with their shares, (n, t): Model.at."""
    k = model.blend.n_blended(len(model.centroids))
    t, n = len(model.intercept), routed.rows.size(0)
    most = max(FEWEST_ROWS, min(BLOCK_ROWS, BLOCK_NUMBERS // t))
    pairs = pieces(routed, n * k, most)
    ask = cell_answers(model, routed.rows.graph)

    def one(at: Value) -> list[Value]:
        start, stop = pairs.starts.gather(at), pairs.stops.gather(at)
        rows = routed.rows.gather(pairs.number.slice(start, stop) // k)
        values = ask(pairs.cell.gather(start), rows)
        return [values.padded(-(stop - start) + most)]

    graph = routed.rows.graph
    [blocks] = graph.loop(pairs.starts.size(0), one)  # (p', most, t)
    values = blocks.unstacked().gather(pairs.place)  # (p, t)
    nothing = graph.filled(0.0, np.float64, n * k, t)
    out = graph.node("ScatterND", nothing, pairs.number.reshape(-1, 1), values)
    if routed.shares is None:
        return out
    return (out.reshape(n, k, t) * routed.shares.reshape(n, k, 1)).sum(1)


class Pieces(NamedTuple):
    """Pairs of row and cell, p of them, sorted by cell and cut into blocks."""

    number: Value  # (p,)  of row i and its j-th cell: i k + j
    cell: Value  # (p,)
    starts: Value  # (p',)  of blocks, each of rows of one cell
    stops: Value  # (p',)
    place: Value  # (p,)  among all rows of all blocks, were they full


def pieces(routed: Routed, n_pairs: Value, most: int) -> Pieces:
    """Which cells are asked about which rows, at most so many at a time."""
    graph = n_pairs.graph
    cells, kept = routed.cells.reshape(-1), None
    if routed.shares is not None:
        kept = routed.shares.reshape(-1).above(0.0).nonzero()  # (p,)
        cells, n_pairs = cells.gather(kept), kept.size(0)
    kinds = [np.int64, np.int64]
    cell, order = graph.nodes("TopK", [cells, n_pairs], kinds, axis=0, largest=0)  # a sort
    _, first, own = graph.nodes("Unique", [cell], [np.int64] * 3)
    at = graph.filled(1, np.int64, n_pairs).before()  # (p,)  0, 1, 2, ...
    rank = (at - first.gather(own)) % most  # within its block
    begins = rank.equals(0)
    starts = begins.nonzero()
    stops = graph.joined([starts.slice(1, np.iinfo(np.int64).max), n_pairs], axis=0)
    block = begins.cast(np.int64).before() + begins.cast(np.int64) - 1
    number = order if kept is None else kept.gather(order)
    return Pieces(number, cell, starts, stops, block * most + rank)


def cell_answers(model: Model, graph: Graph) -> Callable[[Value, Value], Value]:
    """Values (n, t) of cell q (1,) at mapped rows (n, e), in the dtype that the cell needs."""
    wide = np.array([cell.weights.dtype == torch.float64 for cell in model.cells])
    groups = []
    for flag in np.unique(wide):
        own = [cell if w == flag else None for cell, w in zip(model.cells, wide, strict=True)]
        groups.append(Cells(graph, model.kernel, own))
    if len(groups) == 1:
        return groups[0].at
    short, long = groups
    flags = graph.constant(wide)
    return lambda q, rows: graph.choose(
        flags.gather(q), lambda: long.at(q, rows), lambda: short.at(q, rows)
    )
