"""Parts of a model as ONNX nodes: gaps, the map, distances, kernel values, probabilities.

Each function is the twin of one that predicts, named in its docstring. Start at
:mod:`parkrr.persistence.onnx_export`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import Number, TableEncoder
from parkrr.errors import ParameterError
from parkrr.kernels import (
    FeatureMap,
    Gaussian,
    InnerProductBlock,
    Kernel,
    KernelBlock,
    Matern,
    Polynomial,
    PolynomialBlock,
    Radial,
    coordinate_limit,
)
from parkrr.park import Cell
from parkrr.partition import Blend
from parkrr.persistence.onnx_graph import Graph, Value
from parkrr.uncertainty import Affine, Calibration, Isotonic

Array = NDArray[Any]
LARGEST = 1e38  # what a map makes of a number at most, as in metrics


def array(tensor: Tensor, dtype: torch.dtype = torch.float64) -> Array:
    """A tensor as an array of that dtype."""
    found: Array = tensor.detach().cpu().to(dtype).numpy()
    return found


def without_gaps(X: Value, columns: TableEncoder) -> Value:
    """Columns of numbers (n, c), gaps filled and flagged, (n, d): Columns.encode."""
    others = [column.name for column in columns.columns if not isinstance(column, Number)]
    if others:
        raise ParameterError(
            f"to_onnx needs columns of numbers, but {others} are words, dates or times; turn them "
            f"into numbers before the fit, or serve the file of save(), which knows them"
        )
    known = [column for column in columns.columns if isinstance(column, Number)]
    graph = X.graph
    gaps = (graph.node(kind, X, dtype=bool) for kind in ("IsNaN", "IsInf"))
    missing = graph.node("Or", *gaps)
    fills = np.array([column.fill for column in known])
    filled = graph.node("Where", missing, fills, X, dtype=X.dtype)
    both = graph.joined([filled, missing.cast(X.dtype)], axis=1)  # (n, 2 c)
    pairs = [[k, len(known) + k] if c.flagged else [k] for k, c in enumerate(known)]
    return both.gather(np.array([k for pair in pairs for k in pair]), axis=1)


def mapped(metric: FeatureMap, X: Value, dtype: torch.dtype) -> Value:
    """Rows X (n, d) as the kernel sees them, (n, e): FeatureMap.__call__."""
    if metric.origin is None:
        return X.cast(short(dtype))
    d = len(metric.origin)
    F = X - array(metric.origin)
    if metric.scale is not None:
        largest = float(np.finfo(np.float64).max)
        F = F.clip(-largest, largest) * array(metric.scale)
    F = narrowed(F, d, dtype)
    if metric.knots is not None and metric.levels is not None:
        tables = array(metric.knots), array(metric.levels)
        scores = interpolated(X, *tables)
        F = X.graph.joined([F, scores.cast(F.dtype)], axis=1)
    if metric.matrix is None:
        return F
    matrix, F = array(metric.matrix.to(dtype)), F.cast(np.float64)
    F = F * matrix if matrix.ndim == 1 else F @ matrix
    return narrowed(F, metric.width(d), dtype)


def narrowed(F: Value, width: int, dtype: torch.dtype) -> Value:
    """Rows (n, width) in a dtype that may be shorter, kept where |x|^2 is finite."""
    limit = min(LARGEST, coordinate_limit(width, dtype))
    return F.clip(-limit, limit).cast(short(dtype))


def short(dtype: torch.dtype) -> "np.dtype[Any]":
    """What numpy calls it."""
    return np.dtype(np.float64 if dtype == torch.float64 else np.float32)


def interpolated(values: Value, knots: Array, levels: Array) -> Value:
    """Functions given at knots (c, k), straight between, at values (n, c): FeatureMap.scores.

    ONNX has no search in a sorted table. Halving takes log2(k) steps on (n, c); to count the
    knots below each value takes (n, c, k), 2 GB for 256 knots, 9 features and 10^5 rows.
    """
    graph, halvings = values.graph, max(1, (knots.shape[1] - 1).bit_length())
    more = ((0, 0), (0, 2**halvings - knots.shape[1]))
    table = graph.constant(np.pad(knots, more, constant_values=np.inf).reshape(-1))
    heights = graph.constant(np.pad(levels, more, mode="edge").reshape(-1))
    inside = values.clip(knots[:, 0], knots[:, -1])
    first = 2**halvings * np.arange(len(knots))  # (c,)  where each function begins
    below = graph.zeros_like(values, np.int64)  # (n, c)  how many knots are
    for step in (2**power for power in reversed(range(halvings))):
        probe = table.gather(below + (first + step - 1))
        below = below + probe.below(inside).cast(np.int64) * step
    at = below.clip(1) + first
    low, high = table.gather(at - 1), table.gather(at)
    width = (high * 0.5 - low * 0.5).clip(float(np.finfo(np.float64).tiny))
    part = ((inside * 0.5 - low * 0.5) / width).clip(0.0, 1.0)
    base = heights.gather(at - 1)
    return base + (heights.gather(at) - base) * part


def distances(kernel: Kernel, Z: Value, centroids: Tensor) -> Value:
    """What sorts cells by distance to mapped rows Z (n, e), (n, Q): Kernel.distance."""
    section = kernel.distance(centroids.double())
    G = Z.graph.node("Gemm", Z, *products(section), transB=1)
    if isinstance(section, PolynomialBlock) and section.diag is not None:
        return profile(kernel, G) * -2.0 + array(section.diag)
    return G


def products(section: KernelBlock) -> tuple[Array, Array]:
    """The GEMM of a section as a matrix (m, d') and a bias (m,) in place of ones in the rows."""
    right = array(section.fixed, section.fixed.dtype)  # (d', m), its last row the bias
    if isinstance(section, InnerProductBlock) and not section.norms:
        return right.T, np.zeros(right.shape[1], right.dtype)
    return right[:-1].T, right[-1]


def profile(kernel: Kernel, G: Value) -> Value:
    """The kernel, of what the GEMM of its section makes, (n, m): Section.shape."""
    if isinstance(kernel, Polynomial):
        return G.graph.node("Pow", G, float(kernel.degree))
    if not isinstance(kernel, Radial):
        return G
    if isinstance(kernel, Gaussian):
        return G.graph.node("Exp", G.clip(high=0.0))
    a = G.graph.node("Sqrt", G.clip(0.0))
    decay = G.graph.node("Exp", -a)
    if isinstance(kernel, Matern) and kernel.nu > 0.5:
        return decay * (a + 1.0 if kernel.nu == 1.5 else a * a * (1 / 3) + a + 1.0)
    return decay


def shares_of(blend: Blend, gaps: Value, k: int, dtype: torch.dtype) -> Value:
    """The shares (n, k) of the nearest cells, from k + 1 gaps (n, k + 1): Blend.shares."""
    reach = gaps.slice(k, k + 1, axis=1).clip(torch.finfo(dtype).tiny, blend.width)
    weights = (-(gaps.slice(0, k, axis=1) / reach) + 1.0).clip(0.0)
    weights = weights * weights
    return weights / weights.sum(1, keepdims=True)


class Cells:
    """Local estimators of one dtype, as arrays of a graph, one cell after the other.

    Parameters
    ----------
    graph, kernel
        Of all of them.
    cells
        By number; None for a cell that is not among these.
    """

    def __init__(self, graph: Graph, kernel: Kernel, cells: Sequence[Cell | None]) -> None:
        there = [cell for cell in cells if cell is not None]
        sizes = np.array([0 if cell is None else len(cell.weights) for cell in cells])
        self.kernel, self.dtype = kernel, there[0].weights.dtype
        self.stops = graph.constant(np.cumsum(sizes))
        self.starts = graph.constant(np.cumsum(sizes) - sizes)
        parts = [products(cell.section) for cell in there]
        matrices, biases = zip(*parts, strict=True)
        self.matrix = graph.constant(np.concatenate(matrices))  # (m, d')
        self.bias = graph.constant(np.concatenate(biases))  # (m,)
        weights = [array(cell.weights, self.dtype) for cell in there]
        self.weights = graph.constant(np.concatenate(weights))  # (m, t)
        if isinstance(kernel, Radial):
            known = origins(cells, there[0])
            self.width, self.origins = known.shape[1], graph.constant(known)  # (Q, e)

    def at(self, q: Value, rows: Value) -> Value:
        """Values of cell q (1,) at mapped rows (n, e), float64, (n, t): eq. (13)."""
        ends = self.starts.gather(q), self.stops.gather(q)
        A = self.lifted(rows.cast(short(self.dtype)), q)
        right = (part.slice(*ends) for part in (self.matrix, self.bias))
        K = profile(self.kernel, rows.graph.node("Gemm", A, *right, transB=1))
        # Sums of float32 products lost more than the kernel values: of a model with weights of 30
        # they were off by 2e-4 of the spread, these are by 5e-5, and take a third of the time more.
        return K.cast(np.float64) @ self.weights.slice(*ends).cast(np.float64)

    def lifted(self, rows: Value, q: Value) -> Value:
        """Rows (n, e) as the GEMM wants them, but for ones, (n, d'): Section.augment."""
        if not isinstance(self.kernel, Radial):
            return rows
        limit = coordinate_limit(self.width, self.dtype)
        scale = abs(self.kernel.coefficient) ** 0.5
        x = ((rows - self.origins.gather(q)) * scale).clip(-limit, limit)
        return rows.graph.joined([x, (x * x).sum(1, keepdims=True)], axis=1)


def origins(cells: Sequence[Cell | None], some: Cell) -> Array:
    """From where each cell measures rows, (Q, e); of a cell that is None it does not matter."""
    known = [torch.as_tensor((cell or some).section.origin) for cell in cells]
    return np.stack([array(origin, some.weights.dtype) for origin in known])


def decisions(calibration: Calibration | None, F: Value, t: int) -> Value:
    """Scores (n, t) whose sign, or largest entry, is the class: Calibration.decisions."""
    if isinstance(calibration, Affine):
        return F * calibration.factor + calibration.offset
    if isinstance(calibration, Isotonic):
        if t > 1:
            return probabilities(calibration, F, t)
        at = calibration.scores[0]
        return F.clip(float(at[0]), float(at[-1])) - calibration.equal_score
    return F


def probabilities(calibration: Calibration | None, F: Value, t: int) -> Value:
    """Of each class, (n, k), of scores (n, t): Calibration.probabilities."""
    graph = F.graph
    if isinstance(calibration, Isotonic):
        P = interpolated(F, *tables(calibration))
        return P / P.sum(1, keepdims=True) if t > 1 else graph.joined([-P + 1.0, P], axis=1)
    D = decisions(calibration, F, t)
    if calibration is not None and t == 1:
        D = graph.joined([graph.zeros_like(D, D.dtype), D], axis=1)
    return graph.node("Softmax", D, axis=1)  # of a single class: one


def tables(calibration: Isotonic) -> tuple[Array, Array]:
    """Functions of all classes as two arrays (t, k), the last number repeated."""
    longest = max(map(len, calibration.scores))
    scores, values = (
        np.stack([np.pad(row, (0, longest - len(row)), mode="edge") for row in rows])
        for rows in (calibration.scores, calibration.values)
    )
    return scores, values
