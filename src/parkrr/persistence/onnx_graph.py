"""ONNX graphs written like arithmetic; the only home of onnx, imported when a graph is begun.

A :class:`Value` is the name of what a node will compute, and ``a + b`` is a node. Knows no model.
Operators are those of opset 18, of the year 2022. A whole number is a list of one, (1,), which is
how ONNX wants sizes and places.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from parkrr.errors import ParameterError

OPSET, IR_VERSION = 18, 8
MOST_BYTES = 2**31 - 2**20  # of a protobuf message, which an ONNX file is


class Value:
    """What a node will compute: a name, and the dtype of its elements.

    Parameters
    ----------
    graph
        Where nodes made from it go.
    name
        Unique in the graph.
    dtype
        Of its elements; a plain number beside it takes it on.
    """

    def __init__(self, graph: "Graph", name: str, dtype: DTypeLike) -> None:
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    def __add__(self, other: "Operand") -> "Value":
        return self.graph.node("Add", self, other)

    def __sub__(self, other: "Operand") -> "Value":
        return self.graph.node("Sub", self, other)

    def __mul__(self, other: "Operand") -> "Value":
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other: "Operand") -> "Value":
        return self.graph.node("Div", self, other)

    def __floordiv__(self, other: "Operand") -> "Value":
        return self.graph.node("Div", self, other)  # of whole numbers >= 0

    def __mod__(self, other: "Operand") -> "Value":
        return self.graph.node("Mod", self, other)

    def __matmul__(self, other: "Operand") -> "Value":
        return self.graph.node("MatMul", self, other)

    def __neg__(self) -> "Value":
        return self.graph.node("Neg", self)

    def below(self, other: "Operand") -> "Value":
        """Whether elements are smaller."""
        return self.graph.node("Less", self, other, dtype=bool)

    def above(self, other: "Operand") -> "Value":
        """Whether elements are larger."""
        return self.graph.node("Greater", self, other, dtype=bool)

    def equals(self, other: "Operand") -> "Value":
        """Whether elements are the same."""
        return self.graph.node("Equal", self, other, dtype=bool)

    def cast(self, dtype: DTypeLike) -> "Value":
        """The same numbers, of that dtype."""
        if np.dtype(dtype) == self.dtype:
            return self
        return self.graph.node("Cast", self, dtype=dtype, to=self.graph.code(dtype))

    def clip(self, low: "Operand | None" = None, high: "Operand | None" = None) -> "Value":
        """Elements between two bounds, either of which may be open."""
        raised = self if low is None else self.graph.node("Max", self, low)
        return raised if high is None else self.graph.node("Min", raised, high)

    def gather(self, at: "Operand", axis: int = 0) -> "Value":
        """Entries of one axis, by number."""
        return self.graph.node("Gather", self, self.graph.whole(at), axis=axis)

    def slice(self, start: "Operand", stop: "Operand", axis: int = 0) -> "Value":
        """Entries start to stop of one axis."""
        where = (self.graph.whole(number) for number in (start, stop, axis))
        return self.graph.node("Slice", self, *where)

    def reshape(self, *sizes: "Operand") -> "Value":
        """The same elements in another shape."""
        return self.graph.node("Reshape", self, self.graph.whole_list(*sizes), allowzero=1)

    def padded(self, more: "Operand") -> "Value":
        """A matrix with so many more rows of zeros."""
        return self.graph.node("Pad", self, self.graph.whole_list(0, 0, more, 0))

    def sum(self, axis: int, keepdims: bool = False) -> "Value":
        """Sums over one axis."""
        axes = self.graph.whole(axis)
        return self.graph.node("ReduceSum", self, axes, keepdims=int(keepdims))

    def before(self) -> "Value":
        """The sum of all numbers before each one, of a list."""
        axis = self.graph.constant(np.array(0))
        return self.graph.node("CumSum", self, axis, exclusive=1)

    def nonzero(self) -> "Value":
        """Where a list is not zero."""
        return self.graph.node("NonZero", self, dtype=np.int64).reshape(-1)

    def unstacked(self) -> "Value":
        """(a, b, c) as (a b, c)."""
        last = self.graph.node("Shape", self, dtype=np.int64, start=-1)
        return self.reshape(-1, last)

    def size(self, axis: int) -> "Value":
        """How long one axis is."""
        return self.graph.node("Shape", self, dtype=np.int64, start=axis, end=axis + 1)


Operand = Value | NDArray[Any] | float


class Graph:
    """Nodes in the order in which they are made, and the arrays that are part of them."""

    def __init__(self) -> None:
        self.onnx = imported()
        self.arrays: list[Any] = []
        self.made: list[Any] = []
        self.n_bytes = 0
        self.n_names = 0

    def name(self) -> str:
        """A name that no other value has."""
        self.n_names += 1
        return f"v{self.n_names}"

    def code(self, dtype: DTypeLike) -> int:
        """What ONNX calls a dtype."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, array: NDArray[Any]) -> Value:
        """An array that is part of the graph."""
        name = self.name()
        array = array.astype(np.int64) if array.dtype.kind == "i" else array
        self.n_bytes += array.nbytes
        self.arrays.append(self.onnx.numpy_helper.from_array(array, name))
        return Value(self, name, array.dtype)

    def whole(self, number: Operand) -> Value:
        """A whole number, as a list of one."""
        if isinstance(number, Value):
            return number
        return self.constant(np.atleast_1d(np.asarray(number, dtype=np.int64)))

    def whole_list(self, *numbers: Operand) -> Value:
        """Whole numbers, as one list."""
        if not any(isinstance(number, Value) for number in numbers):
            return self.whole(np.array(numbers))
        return self.joined([self.whole(number) for number in numbers], axis=0)

    def joined(self, parts: Sequence[Value], axis: int) -> Value:
        """Values one after the other along an axis."""
        return self.node("Concat", *parts, axis=axis)

    def filled(self, value: float, dtype: DTypeLike, *sizes: Operand) -> Value:
        """One number everywhere."""
        number = self.onnx.numpy_helper.from_array(np.array([value], dtype=dtype))
        shape = self.whole_list(*sizes)
        return self.node("ConstantOfShape", shape, dtype=dtype, value=number)

    def zeros_like(self, value: Value, dtype: DTypeLike) -> Value:
        """Zeros in the shape of another value."""
        zero = self.onnx.numpy_helper.from_array(np.zeros(1, dtype))
        shape = self.node("Shape", value, dtype=np.int64)
        return self.node("ConstantOfShape", shape, dtype=dtype, value=zero)

    def node(
        self, kind: str, *inputs: Operand, dtype: DTypeLike | None = None, **attributes: Any
    ) -> Value:
        """What an operator makes; of the dtype of its first input, unless another is given."""
        first = next(value.dtype for value in inputs if isinstance(value, Value))
        made = self.nodes(kind, inputs, [first if dtype is None else dtype], **attributes)
        return made[0]

    def nodes(
        self, kind: str, inputs: Sequence[Operand], dtypes: Sequence[DTypeLike], **attributes: Any
    ) -> list[Value]:
        """All that an operator makes."""
        first = next((value.dtype for value in inputs if isinstance(value, Value)), None)
        given = [self.operand(value, first).name for value in inputs]
        made = [Value(self, self.name(), dtype) for dtype in dtypes]
        names = [value.name for value in made]
        self.made.append(self.onnx.helper.make_node(kind, given, names, **attributes))
        return made

    def operand(self, value: Operand, dtype: Any) -> Value:
        """Numbers beside a value as part of the graph."""
        if isinstance(value, Value):
            return value
        return self.constant(value if isinstance(value, np.ndarray) else np.array(value, dtype))

    @contextmanager
    def inner(self) -> Iterator[list[Any]]:
        """Nodes made meanwhile are those of a body."""
        outer, self.made = self.made, []
        try:
            yield self.made
        finally:
            self.made = outer

    def about(self, values: Sequence[Value], shapes: Sequence[Any] | None = None) -> list[Any]:
        """What a graph says of its ends."""
        tell = self.onnx.helper.make_tensor_value_info
        known = shapes or [None] * len(values)
        pairs = zip(values, known, strict=True)
        return [tell(value.name, self.code(value.dtype), shape) for value, shape in pairs]

    def loop(self, count: Value, body: Callable[[Value], Sequence[Value]]) -> list[Value]:
        """What `body` makes of 0, 1, ..., count - 1, stacked: shapes must not differ."""
        at, go = Value(self, self.name(), np.int64), Value(self, self.name(), bool)
        with self.inner() as nodes:
            found = [self.node("Identity", go), *body(at.reshape(1))]
        ends = self.about([at, go], [[], []]), self.about(found)
        inside = self.onnx.helper.make_graph(nodes, self.name(), *ends)
        forever = self.constant(np.array(True))
        dtypes = [value.dtype for value in found[1:]]
        return self.nodes("Loop", [count, forever], dtypes, body=inside)

    def choose(self, flag: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """What one of two bodies makes."""
        bodies = []
        for branch in (yes, no):
            with self.inner() as nodes:
                found = branch()
            outputs = self.about([found])
            bodies.append(self.onnx.helper.make_graph(nodes, self.name(), [], outputs))
        return self.node(
            "If", flag, dtype=found.dtype, then_branch=bodies[0], else_branch=bodies[1]
        )

    def write(
        self,
        path: Path,
        inputs: dict[Value, Sequence[Any]],
        outputs: dict[str, tuple[Value, Sequence[Any]]],
        facts: dict[str, str],
    ) -> None:
        """Write the graph from inputs to named outputs, with their shapes, and facts about it."""
        if self.n_bytes > MOST_BYTES:
            raise ParameterError(
                f"an ONNX file holds at most 2 GB, but this model has {self.n_bytes / 1e9:.1f} GB "
                f"of centres and weights; fit it with fewer n_centers, or serve its .park file"
            )
        ends = [Value(self, name, value.dtype) for name, (value, _) in outputs.items()]
        for end, (value, _) in zip(ends, outputs.values(), strict=True):
            names = ([value.name], [end.name])
            self.made.append(self.onnx.helper.make_node("Identity", *names))
        shapes = [shape for _, shape in outputs.values()]
        whole = self.onnx.helper.make_graph(
            self.made,
            "parkrr",
            self.about(list(inputs), list(inputs.values())),
            self.about(ends, shapes),
            self.arrays,
        )
        self.onnx.save_model(self.as_model(whole, facts), path)

    def as_model(self, whole: Any, facts: dict[str, str]) -> Any:
        """A graph as ONNX wants it in a file, checked."""
        helper = self.onnx.helper
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            whole, opset_imports=opset, ir_version=IR_VERSION, producer_name="parkrr"
        )
        helper.set_model_props(model, facts)
        self.onnx.checker.check_model(model)
        return model


def imported() -> Any:
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
