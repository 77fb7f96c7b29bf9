"""A fitted model as an ONNX file. Start at :func:`to_onnx`.

The graph does what Algorithm 2 does, in the same order: rows are sorted by cell, and a loop applies
each cell to its own rows, a block at a time, so that a row costs the centres of its own cells only.
The feature map, the choice of cells and all sums are float64. Kernel values have the dtype that the
fit found necessary in each cell: in onnxruntime an entry of a kernel matrix takes 6 ns in float64
and 0.6 ns in float32. Docstrings name the method that each function repeats.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import TableEncoder, atomic_write
from parkrr.errors import ParameterError
from parkrr.kernels import (
    FeatureMap,
    Gaussian,
    InnerProductBlock,
    Kernel,
    KernelBlock,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    PolynomialBlock,
    Radial,
    coordinate_limit,
)
from parkrr.park import Cell, Model
from parkrr.partition import Blend
from parkrr.persistence.onnx_columns import (
    describe_inputs,
    encode_columns,
    fill_missing,
    takes_matrix,
)
from parkrr.persistence.onnx_graph import Graph, Value, interpolate
from parkrr.uncertainty import Affine, Calibration, Isotonic, Predictor

Array = NDArray[Any]
# Rows of one cell that are predicted at a time; 64 took as long. Blocks are filled up with zeros,
# so with many outputs they are shorter: 256 rows by 1,000 outputs of 500 cells are a gigabyte.
BLOCK_ROWS, FEWEST_ROWS, BLOCK_NUMBERS = 256, 16, 2**13
ROUTED_NUMBERS = 2**22  # distances to centroids at a time, 32 MB
LARGEST_FEATURE = 1e38  # as in FeatureMap


class ExportedModel(Protocol):
    """The part of a fitted estimator that is exported."""

    columns_: TableEncoder
    n_features_in_: int

    def _predictor(self) -> Predictor: ...


EXPORTED_KERNELS = (Gaussian, Laplacian, Matern, Polynomial, Linear)


def to_onnx(model: ExportedModel, path: str | Path) -> None:
    """Write a fitted estimator as an ONNX file.

    Its input is "X" (n, d) of float64, or one input (n,) for each column if some are not numbers;
    outputs are "prediction" of a regressor, "label" and "probability" of a classifier.

    Examples
    --------
    >>> import numpy as np, onnxruntime, tempfile
    >>> from parkrr import Gaussian, ParKRegressor
    >>> from parkrr.persistence.onnx_export import to_onnx
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6).fit(X, np.sin(X[:, 0]))
    >>> path = tempfile.mkdtemp() + "/sine.onnx"
    >>> to_onnx(model, path)
    >>> [y] = onnxruntime.InferenceSession(path).run(["prediction"], {"X": X[:3]})
    >>> bool(np.allclose(y, model.predict(X[:3])))
    True
    """
    predictor = model._predictor()
    park, classes = predictor.model, predictor.classes
    for kernel in [park.kernel, *([] if park.coarse is None else [park.coarse.kernel])]:
        if not isinstance(kernel, EXPORTED_KERNELS):
            exported = [kind.__name__ for kind in EXPORTED_KERNELS]
            raise ParameterError(
                f"to_onnx exports the kernels {exported}, got {kernel!r}; keep such a model in "
                f"Python"
            )
    if park.regions is not None:
        raise ParameterError(
            f"to_onnx exports models whose cells are not in regions, got {len(park.centroids):,} "
            f"cells in {len(park.regions.sizes):,} regions; fit with n_centers set"
        )
    graph = Graph()
    names = getattr(model, "feature_names_in_", None)
    facts: dict[str, Any] = {"features": None if names is None else list(names)}
    if takes_matrix(model.columns_):
        X = Value(graph, "X", np.float64)
        inputs: dict[Value, Sequence[Any]] = {X: ["n", model.n_features_in_]}
        rows = fill_missing(X, model.columns_)
    else:
        inputs, rows = encode_columns(graph, model.columns_)
        facts["inputs"] = describe_inputs(model.columns_)
    t = len(park.intercept)
    F = predict(park, rows)  # (n, t)
    outputs: dict[str, tuple[Value, Sequence[Any]]]
    if classes is None:
        one = predictor.one_output
        outputs = {"prediction": (F.reshape(-1), ["n"]) if one else (F, ["n", t])}
    else:
        D = decide(predictor.calibration, F, t)
        if len(classes) == 2:
            number = D.above(0.0).cast(np.int64).reshape(-1)
        else:
            number = graph.node("ArgMax", D, dtype=np.int64, axis=1, keepdims=0)
        label = graph.constant(encode_labels(classes)).gather(number)
        P = estimate_probabilities(predictor.calibration, F, t)
        outputs = {"label": (label, ["n"]), "probability": (P, ["n", len(classes)])}
    for name in {value.name for value in inputs} & {"", *outputs}:
        raise ParameterError(
            f"a column must not be named {name!r} for to_onnx, which names an output so; rename it "
            f"before the fit"
        )
    with atomic_write(Path(path)) as temporary:
        graph.write(temporary, inputs, outputs, {"parkrr": json.dumps(facts)})


def encode_labels(classes: Array) -> Array:
    """Labels as ONNX can hold them: strings, integers, booleans or floats."""
    if classes.dtype.kind in "UO" and all(isinstance(label, str) for label in classes):
        return classes.astype(object)
    kinds = {"i": np.int64, "u": np.int64, "b": np.bool_, "f": np.float64}
    if classes.dtype.kind not in kinds:
        raise ParameterError(
            f"labels must be strings or numbers for to_onnx, got {classes.tolist()[:5]}; fit the "
            f"model to their names"
        )
    return classes.astype(kinds[classes.dtype.kind])


def to_array(tensor: Tensor, dtype: torch.dtype = torch.float64) -> Array:
    """A tensor as an array of that dtype."""
    array: Array = tensor.detach().cpu().to(dtype).numpy()
    return array


def numpy_float(dtype: torch.dtype) -> "np.dtype[Any]":
    """The dtype of numpy for float64 or float32."""
    return np.dtype(np.float64 if dtype == torch.float64 else np.float32)


# From rows to features.


def map_features(metric: FeatureMap, X: Value, dtype: torch.dtype) -> Value:
    """Rows X (n, d) as the kernel gets them, (n, e): FeatureMap.__call__."""
    if metric.origin is None:
        return X.cast(numpy_float(dtype))
    d = len(metric.origin)
    F = X - to_array(metric.origin)
    if metric.scale is not None:
        largest = float(np.finfo(np.float64).max)
        F = F.clip(-largest, largest) * to_array(metric.scale)
    if metric.bounds is not None:
        F = F.clip(*to_array(metric.bounds))
    F = limit_features(F, d, dtype)
    if metric.knots is not None and metric.levels is not None:
        scores = interpolate(X, to_array(metric.knots), to_array(metric.levels))
        F = X.graph.concatenate([F, scores.cast(F.dtype)], axis=1)
    if metric.matrix is None:
        return F
    matrix, F = to_array(metric.matrix.to(dtype)), F.cast(np.float64)
    F = F * matrix if matrix.ndim == 1 else F @ matrix
    return limit_features(F, matrix.shape[-1], dtype)


def limit_features(F: Value, width: int, dtype: torch.dtype) -> Value:
    """Rows (n, width) in a dtype that may be narrower, kept where |x|^2 is finite."""
    limit = min(LARGEST_FEATURE, coordinate_limit(width, dtype))
    return F.clip(-limit, limit).cast(numpy_float(dtype))


# From features to cells.


class RoutedRows(NamedTuple):
    """Rows with the cells that predict them."""

    rows: Value  # (n, e)  mapped
    cells: Value  # (n, k)
    shares: Value | None  # (n, k)  of each row they add up to one; None if k = 1
    coarse: Value | None  # (n, t)  values of the coarse level


def predict(model: Model, X: Value) -> Value:
    """The model at rows X (n, d), (n, t): Model.predict.

    Rows are mapped and routed in runs. A loop of ONNX stacks equal shapes, so the runs are equally
    long and zeros fill up the last.
    """
    n_coarse = 0 if model.coarse is None else len(model.coarse.centers)
    widest = max(len(model.centroids), n_coarse, 2 * model.centroids.shape[1])
    longest = max(1, ROUTED_NUMBERS // widest)
    n = X.size(0)
    runs = ((n + (longest - 1)) // longest).clip(1)
    length = (n + runs - 1) // runs
    padded = X.pad_rows(runs * length - n)

    def route_run(i: Value) -> list[Value]:
        run = padded.slice(i * length, (i + 1) * length)
        return [value for value in route(model, run) if value is not None]

    rows, cells, *more = (part.merge_blocks().slice(0, n) for part in X.graph.loop(runs, route_run))
    shares = more.pop(0) if model.blend.n_blended(len(model.centroids)) > 1 else None
    out = predict_cells(model, RoutedRows(rows, cells, shares, None)) + to_array(model.intercept)
    out = out + more.pop() if more else out
    out = X.graph.node("Exp", out) if model.link == "log" else out
    return bound(model, out, cells, shares)


def bound(model: Model, out: Value, cells: Value, shares: Value | None) -> Value:
    """Predictions (n, t) inside of the limits of their cells (n, k): Model.bound."""
    if model.limits is None:
        return out
    ends = []
    for side in to_array(model.limits):  # (Q, t)
        end = out.graph.constant(side).gather(cells)  # (n, k, t)
        n, k = out.size(0), model.blend.n_blended(len(model.centroids))
        ends.append((end if shares is None else end * shares.reshape(n, k, 1)).sum(1))
    return out.graph.node("Min", out.graph.node("Max", out, ends[0]), ends[1])


def route(model: Model, X: Value) -> RoutedRows:
    """Map rows X (n, d) and find their cells: Blend.cell_shares."""
    graph, dtype = X.graph, model.centroids.dtype
    rows, coarse = map_features(model.metric, X, dtype), None
    k = model.blend.n_blended(len(model.centroids))
    D = order_by_distance(model.kernel, rows.cast(np.float64), model.centroids)  # (n, Q)
    if model.coarse is not None:  # NystromModel.__call__
        Z = model.coarse.centers
        level = Cell(model.coarse.kernel.against(Z), model.coarse.weights.to(Z.dtype))
        coarse = ExportedCells(graph, model.coarse.kernel, [level])(graph.integers(0), rows)
    if k == 1:
        cells = graph.node("ArgMin", D, dtype=np.int64, axis=1, keepdims=1)
        return RoutedRows(rows, cells, None, coarse)
    dtypes = [np.float64, np.int64]
    near, cells = graph.nodes("TopK", [D, graph.integers(k + 1)], dtypes, axis=1, largest=0)
    shares = share_cells(model.blend, near - near.slice(0, 1, axis=1), k, dtype)
    return RoutedRows(rows, cells.slice(0, k, axis=1), shares, coarse)


def order_by_distance(kernel: Kernel, Z: Value, centroids: Tensor) -> Value:
    """Numbers (n, Q) that sort cells by distance to mapped rows Z (n, e): Kernel.distance."""
    block = kernel.distance(centroids.double())
    G = Z.graph.node("Gemm", Z, *split_bias(block), transB=1)
    if isinstance(block, PolynomialBlock) and block.diag is not None:
        return apply_profile(kernel, G) * -2.0 + to_array(block.diag)
    return G


def share_cells(blend: Blend, excess: Value, k: int, dtype: torch.dtype) -> Value:
    """Shares (n, k) of the nearest cells: Blend.cell_shares.

    `excess` (n, k + 1) is the distance to each of the nearest centroids less the smallest one.
    """
    reach = excess.slice(k, k + 1, axis=1).clip(torch.finfo(dtype).tiny, blend.width)
    weights = (-(excess.slice(0, k, axis=1) / reach) + 1.0).clip(0.0)
    weights = weights * weights
    return weights / weights.sum(1, keepdims=True)


def predict_cells(model: Model, routed: RoutedRows) -> Value:
    """Values of the cells, added by their shares, (n, t): Model.at."""
    graph, t, n = routed.rows.graph, len(model.intercept), routed.rows.size(0)
    k = model.blend.n_blended(len(model.centroids))
    most = max(FEWEST_ROWS, min(BLOCK_ROWS, BLOCK_NUMBERS // t))
    blocks = sort_by_cell(routed, n * k, most)
    evaluate = export_cells(model, graph)

    def predict_block(i: Value) -> list[Value]:
        start, stop = blocks.starts.gather(i), blocks.stops.gather(i)
        rows = routed.rows.gather(blocks.pair.slice(start, stop) // k)
        values = evaluate(blocks.cell.gather(start), rows)
        return [values.pad_rows(-(stop - start) + most)]

    [stacked] = graph.loop(blocks.starts.size(0), predict_block)  # (p', most, t)
    values = stacked.merge_blocks().gather(blocks.position)  # (p, t)
    zeros = graph.full(graph.integers(n * k, t), 0.0, np.float64)
    out = graph.node("ScatterND", zeros, blocks.pair.reshape(-1, 1), values)
    if routed.shares is None:
        return out
    return (out.reshape(n, k, t) * routed.shares.reshape(n, k, 1)).sum(1)


class CellBlocks(NamedTuple):
    """Pairs of row and cell, p of them, sorted by cell and cut into blocks."""

    pair: Value  # (p,)  of row i and its j-th cell: i k + j
    cell: Value  # (p,)
    starts: Value  # (p',)  of blocks, each of rows of one cell
    stops: Value  # (p',)
    position: Value  # (p,)  among the rows of all blocks, were they full


def sort_by_cell(routed: RoutedRows, n_pairs: Value, most: int) -> CellBlocks:
    """Pairs of row and cell with a share above zero, in blocks of at most `most` rows."""
    graph, cells, kept = n_pairs.graph, routed.cells.reshape(-1), None
    if routed.shares is not None:
        kept = routed.shares.reshape(-1).above(0.0).nonzero()  # (p,)
        cells, n_pairs = cells.gather(kept), kept.size(0)
    dtypes = [np.int64, np.int64]
    cell, order = graph.nodes("TopK", [cells, n_pairs], dtypes, axis=0, largest=0)  # a sort
    _, first, own = graph.nodes("Unique", [cell], [np.int64] * 3)
    index = graph.full(n_pairs, 1, np.int64).sum_before()  # (p,)  0, 1, 2, ...
    rank = (index - first.gather(own)) % most  # within its block
    begins = rank.equals(0)
    starts = begins.nonzero()
    stops = graph.concatenate([starts.slice(1, np.iinfo(np.int64).max), n_pairs], axis=0)
    block = begins.cast(np.int64).sum_before() + begins.cast(np.int64) - 1
    pair = order if kept is None else kept.gather(order)
    return CellBlocks(pair, cell, starts, stops, block * most + rank)


# The values of a cell.


def export_cells(model: Model, graph: Graph) -> Callable[[Value, Value], Value]:
    """A function of cell q (1,) and mapped rows (n, e): values (n, t), in the dtype of the cell."""
    wide = np.array([cell.weights.dtype == torch.float64 for cell in model.cells])
    groups = []
    for flag in np.unique(wide):
        own = [cell if w == flag else None for cell, w in zip(model.cells, wide, strict=True)]
        groups.append(ExportedCells(graph, model.kernel, own))
    if len(groups) == 1:
        return groups[0]
    in_float32, in_float64 = groups
    flags = graph.constant(wide)
    return lambda q, rows: graph.choose(
        flags.gather(q), lambda: in_float64(q, rows), lambda: in_float32(q, rows)
    )


class ExportedCells:
    """Local estimators of one dtype, as arrays of a graph, one cell after the other.

    Parameters
    ----------
    graph, kernel
        Of all of them.
    cells
        By number; None for a cell of the other dtype.
    """

    def __init__(self, graph: Graph, kernel: Kernel, cells: Sequence[Cell | None]) -> None:
        own = [cell for cell in cells if cell is not None]
        sizes = np.array([0 if cell is None else len(cell.weights) for cell in cells])
        self.kernel, self.dtype = kernel, own[0].weights.dtype
        self.stops = graph.constant(np.cumsum(sizes))
        self.starts = graph.constant(np.cumsum(sizes) - sizes)
        matrices, biases = zip(*(split_bias(cell.kernel_block) for cell in own), strict=True)
        self.matrix = graph.constant(np.concatenate(matrices))  # (m, d')
        self.bias = graph.constant(np.concatenate(biases))  # (m,)
        weights = [to_array(cell.weights, self.dtype) for cell in own]
        self.weights = graph.constant(np.concatenate(weights))  # (m, t)
        if isinstance(kernel, Radial):
            origins = [torch.as_tensor((cell or own[0]).kernel_block.origin) for cell in cells]
            stacked = np.stack([to_array(origin, self.dtype) for origin in origins])
            self.width, self.origins = stacked.shape[1], graph.constant(stacked)  # (Q, e)
            # Of a Python float torch would make float32: predictions were off by 4e-8.
            block: Any = own[0].kernel_block
            scale = torch.as_tensor(block.scale, dtype=torch.float64)
            self.scale = graph.constant(to_array(scale, self.dtype))  # one, or (e,)

    def __call__(self, q: Value, rows: Value) -> Value:
        """Values of cell q (1,) at mapped rows (n, e), float64, (n, t): eq. (13)."""
        graph, start, stop = rows.graph, self.starts.gather(q), self.stops.gather(q)
        A = rows.cast(numpy_float(self.dtype))
        if isinstance(self.kernel, Radial):  # KernelBlock.augment, without the column of ones
            limit = coordinate_limit(self.width, self.dtype)
            x = ((A - self.origins.gather(q)) * self.scale).clip(-limit, limit)
            A = graph.concatenate([x, (x * x).sum(1, keepdims=True)], axis=1)
        right = (part.slice(start, stop) for part in (self.matrix, self.bias))
        K = apply_profile(self.kernel, graph.node("Gemm", A, *right, transB=1))
        # Sums of float32 products lost more than the kernel values: for a model with weights of 30
        # they were off by 2e-4 of the spread; these are off by 5e-5, and take a third longer.
        return K.cast(np.float64) @ self.weights.slice(start, stop).cast(np.float64)


def split_bias(block: KernelBlock) -> tuple[Array, Array]:
    """The matrix product of a block as a matrix (m, d') and, for the ones in rows, a bias (m,)."""
    right = to_array(block.fixed, block.fixed.dtype)  # (d', m), its last row the bias
    if isinstance(block, InnerProductBlock) and not block.norms:
        return right.T, np.zeros(right.shape[1], right.dtype)
    return right[:-1].T, right[-1]


def apply_profile(kernel: Kernel, G: Value) -> Value:
    """Kernel values (n, m) of the matrix product of a block: KernelBlock.from_products."""
    if isinstance(kernel, Polynomial):
        return G.graph.node("Pow", G, float(kernel.degree))
    if isinstance(kernel, Linear):
        return G
    if isinstance(kernel, Gaussian):
        return G.graph.node("Exp", G.clip(high=0.0))
    assert isinstance(kernel, Laplacian | Matern)
    a = G.graph.node("Sqrt", G.clip(0.0))
    decay = G.graph.node("Exp", -a)
    if isinstance(kernel, Matern) and kernel.nu > 0.5:
        return decay * (a + 1.0 if kernel.nu == 1.5 else a * a * (1 / 3) + a + 1.0)
    return decay


# From values to classes.


def decide(calibration: Calibration | None, F: Value, t: int) -> Value:
    """Scores (n, t) whose sign, or largest entry, is the class: Calibration.decide."""
    if isinstance(calibration, Affine):
        return F * calibration.factor + calibration.offset
    if isinstance(calibration, Isotonic):
        if t > 1:
            return estimate_probabilities(calibration, F, t)
        ends = calibration.scores[0][[0, -1]]
        return F.clip(*map(float, ends)) - calibration.equal_score
    assert calibration is None  # a single class
    return F


def estimate_probabilities(calibration: Calibration | None, F: Value, t: int) -> Value:
    """Probabilities (n, k) of the classes, of scores (n, t): Calibration.probabilities."""
    graph = F.graph
    if isinstance(calibration, Isotonic):
        longest = max(map(len, calibration.scores))
        scores, values = (  # (t, longest) each, the last number repeated
            np.stack([np.pad(row, (0, longest - len(row)), mode="edge") for row in rows])
            for rows in (calibration.scores, calibration.values)
        )
        P = interpolate(F, scores, values)
        return P / P.sum(1, keepdims=True) if t > 1 else graph.concatenate([-P + 1.0, P], axis=1)
    D = decide(calibration, F, t)
    if calibration is not None and t == 1:
        D = graph.concatenate([graph.zeros_like(D, D.dtype), D], axis=1)
    return graph.node("Softmax", D, axis=1)  # of a single class: one
