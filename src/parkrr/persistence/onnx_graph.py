"""ONNX graphs written like arithmetic. The only module that imports onnx, when a graph is begun.

A :class:`Value` stands for the output of a node, and ``a + b`` adds a node to the graph. Operators
are those of opset 18, of the year 2022. An integer is a list of one, (1,), as ONNX expects sizes
and positions.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from parkrr.errors import ParameterError

OPSET, IR_VERSION = 18, 8
ML, ML_OPSET = "ai.onnx.ml", 3  # the domain of operators on strings
MOST_BYTES = 2**31 - 2**20  # of a protobuf message, which an ONNX file is


def operator(kind: str, dtype: DTypeLike | None = None) -> "Callable[[Value, Operand], Value]":
    """A method that adds a node with two inputs."""
    return lambda self, other: self.graph.node(kind, self, other, dtype=dtype)


class Value:
    """The output of a node: its name, and the dtype of its elements.

    Parameters
    ----------
    graph
        Where nodes that use it are added.
    name
        Unique in the graph.
    dtype
        Of its elements; a plain number used with it takes the same dtype.
    """

    def __init__(self, graph: "Graph", name: str, dtype: DTypeLike) -> None:
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    __add__ = operator("Add")
    __sub__ = operator("Sub")
    __mul__ = operator("Mul")
    __truediv__ = operator("Div")
    __floordiv__ = operator("Div")  # of integers >= 0
    __mod__ = operator("Mod")
    __matmul__ = operator("MatMul")
    below = operator("Less", bool)
    above = operator("Greater", bool)
    equals = operator("Equal", bool)

    def __neg__(self) -> "Value":
        return self.graph.node("Neg", self)

    def cast(self, dtype: DTypeLike) -> "Value":
        """The same numbers in another dtype."""
        if np.dtype(dtype) == self.dtype:
            return self
        return self.graph.node("Cast", self, dtype=dtype, to=self.graph.dtype_code(dtype))

    def clip(self, low: "Operand | None" = None, high: "Operand | None" = None) -> "Value":
        """Elements between two bounds, either of which may be open."""
        raised = self if low is None else self.graph.node("Max", self, low)
        return raised if high is None else self.graph.node("Min", raised, high)

    def gather(self, indices: "Operand", axis: int = 0) -> "Value":
        """Entries of one axis, by index."""
        return self.graph.node("Gather", self, self.graph.integers(indices), axis=axis)

    def slice(self, start: "Operand", stop: "Operand", axis: int = 0) -> "Value":
        """Entries start to stop of one axis."""
        return self.graph.node("Slice", self, *map(self.graph.integers, (start, stop, axis)))

    def reshape(self, *sizes: "Operand") -> "Value":
        """The same elements in another shape."""
        return self.graph.node("Reshape", self, self.graph.integers(*sizes), allowzero=1)

    def pad_rows(self, more: "Operand") -> "Value":
        """A matrix with further rows of zeros."""
        return self.graph.node("Pad", self, self.graph.integers(0, 0, more, 0))

    def sum(self, axis: int, keepdims: bool = False) -> "Value":
        """Sums over one axis."""
        axes = self.graph.integers(axis)
        return self.graph.node("ReduceSum", self, axes, keepdims=int(keepdims))

    def sum_before(self) -> "Value":
        """The sum of all entries of a list before each one."""
        return self.graph.node("CumSum", self, self.graph.constant(np.array(0)), exclusive=1)

    def nonzero(self) -> "Value":
        """The indices at which a list is not zero."""
        return self.graph.node("NonZero", self, dtype=np.int64).reshape(-1)

    def merge_blocks(self) -> "Value":
        """(a, b, c) as (a b, c)."""
        return self.reshape(-1, self.graph.node("Shape", self, dtype=np.int64, start=-1))

    def size(self, axis: int) -> "Value":
        """The length of one axis."""
        return self.graph.node("Shape", self, dtype=np.int64, start=axis, end=axis + 1)


Operand = Value | NDArray[Any] | float


class Graph:
    """Nodes in the order in which they are added, and the arrays that they use."""

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.arrays: list[Any] = []
        self.added: list[Any] = []
        self.n_bytes = self.n_names = 0

    def new_name(self) -> str:
        """A name that no other value has."""
        self.n_names += 1
        return f"parkrr/{self.n_names}"  # columns are inputs by their own names

    def dtype_code(self, dtype: DTypeLike) -> int:
        """The number of a dtype in ONNX."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, array: NDArray[Any]) -> Value:
        """An array that is part of the graph."""
        name = self.new_name()
        array = array.astype(np.int64) if array.dtype.kind == "i" else array
        self.n_bytes += array.nbytes
        self.arrays.append(self.onnx.numpy_helper.from_array(array, name))
        return Value(self, name, array.dtype)

    def integers(self, *numbers: Operand) -> Value:
        """Integers as one list."""
        if any(isinstance(number, Value) for number in numbers):
            parts = [n if isinstance(n, Value) else self.integers(n) for n in numbers]
            return parts[0] if len(parts) == 1 else self.concatenate(parts, axis=0)
        lists: list[Any] = list(numbers)
        return self.constant(np.concatenate([np.atleast_1d(n) for n in lists]).astype(np.int64))

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Values one after the other along an axis."""
        return self.node("Concat", *parts, axis=axis)

    def full(self, shape: Value, value: float, dtype: DTypeLike) -> Value:
        """One number everywhere."""
        number = self.onnx.numpy_helper.from_array(np.array([value], dtype=dtype))
        return self.node("ConstantOfShape", shape, dtype=dtype, value=number)

    def zeros_like(self, value: Value, dtype: DTypeLike) -> Value:
        """Zeros in the shape of another value."""
        return self.full(self.node("Shape", value, dtype=np.int64), 0, dtype)

    def node(
        self, kind: str, *inputs: Operand, dtype: DTypeLike | None = None, **attributes: Any
    ) -> Value:
        """Add an operator with one output, by default of the dtype of its first input."""
        first = next(value.dtype for value in inputs if isinstance(value, Value))
        return self.nodes(kind, inputs, [first if dtype is None else dtype], **attributes)[0]

    def nodes(
        self, kind: str, inputs: Sequence[Operand], dtypes: Sequence[DTypeLike], **attributes: Any
    ) -> list[Value]:
        """Add an operator with several outputs, of these dtypes."""
        first = next((value.dtype for value in inputs if isinstance(value, Value)), None)
        names = []
        for value in inputs:
            if isinstance(value, float | int):
                value = np.array(value, first)  # noqa: PLW2901
            names.append((value if isinstance(value, Value) else self.constant(value)).name)
        outputs = [Value(self, self.new_name(), dtype) for dtype in dtypes]
        output_names = [value.name for value in outputs]
        self.added.append(self.onnx.helper.make_node(kind, names, output_names, **attributes))
        return outputs

    def subgraph(self, inputs: Sequence[Value], body: Callable[[], Sequence[Value]]) -> Any:
        """The nodes that `body` adds, as a graph of scalar inputs with the outputs of `body`."""
        outer, self.added = self.added, []
        try:
            outputs = body()
            ends = self.describe(inputs, [[]] * len(inputs)), self.describe(outputs)
            return self.onnx.helper.make_graph(self.added, self.new_name(), *ends), outputs
        finally:
            self.added = outer

    def describe(self, values: Sequence[Value], shapes: Sequence[Any] | None = None) -> list[Any]:
        """Names, dtypes and shapes of inputs or outputs."""
        return [
            self.onnx.helper.make_tensor_value_info(value.name, self.dtype_code(value.dtype), shape)
            for value, shape in zip(values, shapes or [None] * len(values), strict=True)
        ]

    def loop(self, count: Value, body: Callable[[Value], Sequence[Value]]) -> list[Value]:
        """The outputs of `body` for 0, 1, ..., count - 1, stacked; their shapes must be equal."""
        index, go = Value(self, self.new_name(), np.int64), Value(self, self.new_name(), bool)
        inside, outputs = self.subgraph(
            [index, go], lambda: [self.node("Identity", go), *body(index.reshape(1))]
        )
        dtypes = [value.dtype for value in outputs[1:]]
        return self.nodes("Loop", [count, self.constant(np.array(True))], dtypes, body=inside)

    def choose(self, flag: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """The output of one of two bodies."""
        then_branch, [output] = self.subgraph([], lambda: [yes()])
        else_branch, _ = self.subgraph([], lambda: [no()])
        branches = {"then_branch": then_branch, "else_branch": else_branch}
        return self.node("If", flag, dtype=output.dtype, **branches)

    def used_opsets(self) -> list[tuple[str, int]]:
        """Domains of the operators that were added, with their versions."""
        has_strings = any(node.domain == ML for node in self.added)
        return [("", OPSET), *([(ML, ML_OPSET)] if has_strings else [])]

    def write(
        self,
        path: Path,
        inputs: dict[Value, Sequence[Any]],
        outputs: dict[str, tuple[Value, Sequence[Any]]],
        metadata: dict[str, str],
    ) -> None:
        """Write the graph from inputs to named outputs, with their shapes, and metadata."""
        if self.n_bytes > MOST_BYTES:
            raise ParameterError(
                f"an ONNX file holds at most 2 GB, but this model has {self.n_bytes / 1e9:.1f} GB "
                f"of centres and weights; fit it with fewer n_centers, or serve its .park file"
            )
        helper, ends = self.onnx.helper, []
        for name, (value, _) in outputs.items():
            ends.append(Value(self, name, value.dtype))
            self.added.append(helper.make_node("Identity", [value.name], [name]))
        described = self.describe(ends, [shape for _, shape in outputs.values()])
        given = self.describe(list(inputs), list(inputs.values()))
        model = helper.make_model(
            helper.make_graph(self.added, "parkrr", given, described, self.arrays),
            opset_imports=[helper.make_opsetid(*one) for one in self.used_opsets()],
            ir_version=IR_VERSION,
            producer_name="parkrr",
        )
        helper.set_model_props(model, metadata)
        self.onnx.checker.check_model(model)
        self.onnx.save_model(model, path)


def interpolate(values: Value, knots: NDArray[Any], levels: NDArray[Any]) -> Value:
    """Piecewise linear functions with knots (c, k), at values (n, c): FeatureMap.scores.

    ONNX has no search in a sorted table. Bisection takes log2(k) steps on (n, c); counting the
    knots below each value takes (n, c, k), 2 GB for 256 knots, 9 features and 10^5 rows.
    """
    graph, halvings = values.graph, max(1, (knots.shape[1] - 1).bit_length())
    more = ((0, 0), (0, 2**halvings - knots.shape[1]))
    table = graph.constant(np.pad(knots, more, constant_values=np.inf).reshape(-1))
    heights = graph.constant(np.pad(levels, more, mode="edge").reshape(-1))
    inside = values.clip(knots[:, 0], knots[:, -1])
    first = 2**halvings * np.arange(len(knots))  # (c,)  where each function begins
    below = graph.zeros_like(values, np.int64)  # (n, c)  the number of knots below
    for step in (2**power for power in reversed(range(halvings))):
        probe = table.gather(below + (first + step - 1))
        below = below + probe.below(inside).cast(np.int64) * step
    right = below.clip(1) + first
    low, high = table.gather(right - 1), table.gather(right)
    width = (high * 0.5 - low * 0.5).clip(float(np.finfo(np.float64).tiny))
    part = ((inside * 0.5 - low * 0.5) / width).clip(0.0, 1.0)
    base = heights.gather(right - 1)
    return base + (heights.gather(right) - base) * part


def import_onnx() -> Any:
    """The onnx module."""
    try:
        import onnx  # noqa: PLC0415 - optional
        import onnx.checker  # noqa: PLC0415
        import onnx.helper  # noqa: PLC0415
        import onnx.numpy_helper  # noqa: PLC0415
    except ImportError as error:
        raise ParameterError(
            "to_onnx needs onnx, which is not installed; pip install 'parkrr[onnx]'"
        ) from error
    return onnx
