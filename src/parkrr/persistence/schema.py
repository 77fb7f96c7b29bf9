"""The rules that the contents of a model file must follow before anything is built from them.

Structs describe the plain data, :class:`TensorRule` describes the tensors, and functions hold the
rules that span several fields. Every rule raises ValueError with the name of the field. What passes
can be built and can predict without an index out of range, a wrong dtype or a number that is not
finite. Start at :func:`check_model` and :func:`check_estimator`.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, Union

import torch
from msgspec import Meta, Struct
from torch import Tensor

from parkrr.data import (
    DATES,
    PERIODS,
    Category,
    DateTime,
    FreeText,
    Ignored,
    Number,
    TableEncoder,
)
from parkrr.kernels import KERNELS
from parkrr.park import CellReport, Model
from parkrr.partition import Blend
from parkrr.persistence.plain_data import check_schema, define, define_like, require
from parkrr.uncertainty import LEVELS

Tensors = Mapping[str, Tensor]
Facts = dict[str, Any]
AxisLengths = dict[str, int]

# Plain data.

OBJECT = dict[str, Any]
SCALAR: Any = str | bool | int | float | None
COUNT = Annotated[int, Meta(ge=0)]
POSITIVE = Annotated[float, Meta(gt=0)]
NUMBER: Any = float | Literal["nan", "inf", "-inf"]  # JSON spells numbers that are not finite
ONE_OR_EACH: Any = float | Sequence[float]  # of all features, or of each
KERNEL_TYPES = {int: COUNT, ONE_OR_EACH: float | list[float]}


class SumOfKernels(Struct, tag_field="name", tag="sum", forbid_unknown_fields=True):
    """A sum of kernels."""

    kernels: "list[KERNEL]"
    factors: list[POSITIVE]


class ProductOfKernels(Struct, tag_field="name", tag="product", forbid_unknown_fields=True):
    """A product of kernels."""

    kernels: "list[KERNEL]"


SIMPLE_KERNEL: Any = Union[  # noqa: UP007 - of a tuple
    tuple(
        define_like(kind, KERNEL_TYPES, tag_field="name", tag=name)
        for name, kind in KERNELS.items()
    )
]
KERNEL: Any = SIMPLE_KERNEL | SumOfKernels | ProductOfKernels
COARSE_LEVEL = define("coarse", n_centers=COUNT, kernel=KERNEL | None)
WIDTH = Annotated[float, Meta(ge=0, le=torch.finfo(torch.float32).max)]  # rows may be float32
BLEND = define_like(Blend, {int: Annotated[int, Meta(ge=1)], float: WIDTH})
FILE = define(
    "file",
    format=Literal["parkrr model"],
    version=int,
    kernel=KERNEL,
    coarse_kernel=KERNEL | None,
    blend=BLEND,
    link=Literal["identity", "log"],
    facts=OBJECT,
)
# Parameters that are not scalars are objects with one field, which names their kind.
PARAMS: dict[str, Any] = {
    "kernel": KERNEL,
    "blend": define_like(Blend, {int: COUNT}),
    "coarse": COARSE_LEVEL,
    "pairs": list[tuple[SCALAR, SCALAR]],
    "metric": Any,
    "numbers": list[list[float]],
}
TURNS = {tuple[str, ...]: list[Literal[tuple(PERIODS)]]}  # type: ignore[misc]
COLUMN: Any = (
    define_like(Number, {}, tag_field="kind", tag="Number")
    | define_like(DateTime, TURNS, tag_field="kind", tag="DateTime")
    | define_like(Category, {}, tag_field="kind", tag="Category")
    | define_like(FreeText, {}, tag_field="kind", tag="FreeText")
    | define_like(Ignored, {}, tag_field="kind", tag="Ignored")
)
REPORT_TYPES = {int: COUNT, float: NUMBER, float | None: NUMBER | None}
REPORT: Any = define_like(CellReport, REPORT_TYPES, columns=True)
FACTS = define(
    "facts",
    estimator=str,
    params=OBJECT,
    columns=list[COLUMN],
    classes=list[str | bool | int | float] | None,
    one_output=bool,
    target_names=list[str] | None,
    n_features_in_=COUNT,
    feature_names_in_=list[str] | None,
    feature_importances_=list[NUMBER] | None,
    chosen=define(
        "chosen",
        params=OBJECT,
        tried=list[dict[str, SCALAR]],
        seconds=dict[str, float],
        uncertainty=str,
    ),
    seconds_=dict[str, float],
    report_=REPORT,
    uncertainty=OBJECT,
    statistics=define("statistics", ridge=POSITIVE, unit=POSITIVE) | None,
)
INTERVALS = define(
    "intervals",
    scale=Literal["constant", "posterior", "learned"],
    n=POSITIVE,
    kernel=KERNEL | None,
    power=Annotated[float, Meta(ge=0, le=2)],
    equal_tails=bool,
    guarantee=Literal["none", "split", "cell", "jackknife+"],
)
AFFINE = define(
    "affine",
    name=Literal["temperature", "platt", "base rate"],
    factor=list[float],
    offset=list[float],
)
ISOTONIC = define("isotonic", name=str, scores=list[list[float]], values=list[list[float]])

# Tensors.

FLOATS = (torch.float64, torch.float32)
STORED = (*FLOATS, torch.float16)
BY_CELL = ("centers", "centers.wide", "weights")
# Of these tensors together, up to which they are read when a file is opened. Of larger files a cell
# is checked when it is first used: to read 4 GB takes seconds, and as much memory.
CHECKED_BYTES = 2**28
WHOLE = (torch.int64,)


class TensorRule(NamedTuple):
    """Dtypes of a tensor, and a letter for each of its axes: the same letter, the same length."""

    dtypes: tuple[torch.dtype, ...]
    axes: str


# Q cells, e columns after the feature map, t outputs, d numbers a row; n and w count the centres of
# cells in float32 and in float64, m all of them, c those of the coarse level; k knots, x columns
# before the matrix; R regions of cells.
MODEL = {
    "centroids": TensorRule(FLOATS, "Qe"),
    "sizes": TensorRule(WHOLE, "Q"),
    "wide": TensorRule((torch.bool,), "Q"),
    "centers": TensorRule(STORED, "ne"),
    "centers.wide": TensorRule(STORED, "we"),
    "weights": TensorRule(FLOATS, "mt"),
    "intercept": TensorRule(FLOATS, "t"),
}
METRIC = {
    "metric.origin": TensorRule(FLOATS, "d"),
    "metric.scale": TensorRule(FLOATS, "d"),
    "metric.knots": TensorRule(FLOATS, "dk"),
    "metric.levels": TensorRule(FLOATS, "dk"),
    "metric.matrix": TensorRule(FLOATS, "xe"),
    "metric.bounds": TensorRule(FLOATS, "2d"),  # two ends
}
REGIONS = {
    "regions.centroids": TensorRule(FLOATS, "Re"),
    "regions.sizes": TensorRule(WHOLE, "R"),
    "regions.widths": TensorRule(FLOATS, "R"),
}
COARSE = {"coarse.centers": TensorRule(FLOATS, "ce"), "coarse.weights": TensorRule(FLOATS, "ct")}
SCORES = {
    "scores.values": TensorRule(FLOATS, "at"),
    "scores.w": TensorRule(FLOATS, "a"),
    "scores.counts": TensorRule(WHOLE, "S"),
    "scores.group_of_cell": TensorRule(WHOLE, "Q"),
}
LIMITS = {"limits": TensorRule((torch.float64,), "2Qt")}  # two ends
# G levels, s centres of a learned scale, h validation rows.
SCALES = {
    "noise": TensorRule(FLOATS, "Qt"),
    "ridge": TensorRule(FLOATS, "Q"),
    "factors": TensorRule(FLOATS, "Qt"),
    "quantiles": TensorRule(FLOATS, "Gt"),
}
# a rows set aside, s groups of cells; b numbers of leave-one-out fits of j rows.
GUARANTEES: dict[str, dict[str, TensorRule]] = {
    "none": {},
    "split": SCORES,
    "cell": SCORES,
    "jackknife+": {
        "jackknife.columns": TensorRule(FLOATS, "b"),
        "jackknife.counts": TensorRule(WHOLE, "Q"),
        "jackknife.changes": TensorRule(FLOATS, "jt"),
        "jackknife.residuals": TensorRule(FLOATS, "jt"),
    },
}
LEARNED_SCALE = {"centers": TensorRule(FLOATS, "se"), "weights": TensorRule(FLOATS, "st")}
TARGETS = ("validation.truth", "validation.predicted")
INTERVAL_ENDS = ("validation.lower", "validation.upper")
LABELS = {
    "validation.cell": TensorRule(WHOLE, "h"),
    "validation.truth": TensorRule(WHOLE, "h"),
    "validation.predicted": TensorRule(WHOLE, "h"),
    "validation.confidence": TensorRule(FLOATS, "h"),
}
# Statistics of all cells, from which a model is updated: g numbers.
STATISTICS = {
    "statistics.grams": TensorRule(FLOATS, "g"),
    "statistics.rows": TensorRule(FLOATS, "Q"),
    "statistics.weight": TensorRule(FLOATS, "Q"),
    "statistics.fitted_rows": TensorRule(FLOATS, "Q"),
}
# Which rows were learned, r of them, and by what three numbers validation rows are found again.
LEARNED = {
    "statistics.learned.hashes": TensorRule(WHOLE, "r"),
    "statistics.learned.cells": TensorRule(WHOLE, "r"),
    "statistics.learned.weights": TensorRule(FLOATS, "r"),
}
MARKS = {"statistics.validation": TensorRule(FLOATS, "h3")}
MAY_BE_EMPTY = "nwrh"  # axes; all rows may have been forgotten


def check_tensors(
    tensors: Tensors,
    rules: Mapping[str, TensorRule],
    lengths: AxisLengths,
    unread: Collection[str] = (),
) -> AxisLengths:
    """Refuse all but these tensors, of these dtypes and shapes, finite; the lengths of all axes.

    Whether the `unread` are finite is not looked at.
    """
    check_names("the list of tensors", tensors, rules)
    for name, (dtypes, axes) in rules.items():
        tensor, shape = tensors[name], tuple(tensors[name].shape)
        if tensor.dtype not in dtypes or len(shape) != len(axes):
            expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            got = f"{str(tensor.dtype).removeprefix('torch.')} of shape {shape}"
            raise ValueError(f"{name} must be {expected} with {len(axes)} axes, got {got}")
        for axis, length in zip(axes, shape, strict=True):
            fits = lengths.setdefault(axis, length) == length
            rule = f"{name} must have {lengths[axis] or 'no'} for {length} in its shape {shape}"
            require(fits and (length > 0 or axis in MAY_BE_EMPTY), rule)
        if tensor.dtype in STORED and tensor.numel() and name not in unread:
            low, high = torch.aminmax(tensor)  # NaN if there is one; isfinite takes more memory
            finite = bool(torch.isfinite(low)) and bool(torch.isfinite(high))
            require(finite, f"{name} must be finite")
    return lengths


def check_names(where: str, names: Collection[str], known: Collection[str]) -> None:
    """Refuse names that are missing, and names that are unknown."""
    missing, unknown = sorted(set(known) - set(names)), sorted(set(names) - set(known))
    if missing or unknown:
        verb, name = ("must", missing[0]) if missing else ("cannot", unknown[0])
        raise ValueError(f"{where} {verb} have {name[:50]!r}")


def check_below(name: str, numbers: Tensor, count: int) -> None:
    """Refuse numbers that are not from 0 to count - 1."""
    low, high = (int(end) for end in torch.aminmax(numbers)) if len(numbers) else (0, 0)
    require(0 <= low <= high < count, f"{name} must be from 0 to {count - 1}")


# A model, and a fitted estimator.


def check_model(tensors: Tensors, about: Facts, checked_bytes: int = CHECKED_BYTES) -> None:
    """Refuse tensors and plain data from which no model can be built."""
    check_schema("file", about, FILE)
    rules = MODEL | (COARSE if about["coarse_kernel"] else {})
    rules |= LIMITS if "limits" in tensors else {}
    rules |= REGIONS if "regions.centroids" in tensors else {}
    if "metric.origin" in tensors:  # without an origin there is no feature map
        rules |= {name: rule for name, rule in METRIC.items() if name in tensors}
    both = ("metric.knots" in rules) == ("metric.levels" in rules)
    require(both, "metric.knots and metric.levels must be there together")
    if "metric.matrix" in rules and tensors["metric.matrix"].ndim == 1:
        rules["metric.matrix"] = TensorRule(FLOATS, "e")
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith("more.")}
    large = sum(own[name].nbytes for name in BY_CELL if name in own) > checked_bytes
    lengths = check_tensors(own, rules, {"2": 2}, BY_CELL if large else ())
    for name in ("kernel", "coarse_kernel"):
        check_lengthscales(name, about[name], lengths["e"])
    for name in ("limits", "metric.bounds"):
        if name in own:
            low, high = own[name]
            require(bool((low <= high).all()), f"{name} must not be crossed")
    if "regions.sizes" in own:
        cells, Q = own["regions.sizes"], lengths["Q"]
        fits = int(cells.min()) >= 1 and int(cells.sum()) == Q
        require(fits, f"regions.sizes must be >= 1 and add up to {Q} cells")
    sizes, wide = tensors["sizes"].tolist(), tensors["wide"].tolist()
    require(min(sizes) >= 1, "sizes must be >= 1")
    in_wide = sum(size for size, flag in zip(sizes, wide, strict=True) if flag)
    expected = {"weights": sum(sizes), "centers": sum(sizes) - in_wide, "centers.wide": in_wide}
    for name, rows in expected.items():
        n = len(tensors[name])
        require(rows == n, f"{name} must have {rows} rows by sizes, not {n}")
    columns = lengths.get("d", lengths["e"])
    if "k" in lengths:
        knots = tensors["metric.knots"]
        rising = bool((knots[:, 1:] >= knots[:, :-1]).all())
        require(lengths["k"] >= 2 and rising, "metric.knots must be at least two, in order")
        columns *= 2  # scores stand beside the numbers
    rows = lengths.get("x", lengths["e"])  # a matrix has rows of its own
    require(rows == columns, f"the feature map has {columns} columns, but needs {rows}")


def check_lengthscales(name: str, kernel: Facts | None, e: int) -> None:
    """Refuse a kernel whose lengthscales are not those of e columns."""
    for part in list_simple_kernels(kernel) if kernel else ():
        lengthscale = part.get("lengthscale", 1.0)
        fits = not isinstance(lengthscale, list | tuple) or len(lengthscale) == e
        require(fits, f"{name}.lengthscale must be one number, or {e}")


def list_simple_kernels(kernel: Facts) -> list[Facts]:
    """The kernels that sums and products are made of."""
    simple, left = [], [kernel]
    while left:
        part = left.pop()
        if "kernels" in part:
            left.extend(part["kernels"])
        else:
            simple.append(part)
    return simple


def check_estimator(facts: Facts, more: Tensors, model: Model, params: Collection[str]) -> None:
    """Refuse facts and tensors from which no estimator with these parameters can be built."""
    check_schema("facts", facts, FACTS)
    check_params("params", facts["params"], params)
    check_params("chosen.params", facts["chosen"]["params"], params)
    Q, e = model.centroids.shape
    t = len(model.intercept)
    whole = all(len(column) == Q for column in facts["report_"].values())
    require(whole, "report_ must have an entry for each cell")
    check_features(facts, e if model.metric.origin is None else len(model.metric.origin))
    check_target_names(facts, t)
    own = {name: tensor for name, tensor in more.items() if name.startswith("statistics.")}
    if facts["statistics"] is None:
        check_tensors(own, {}, {})
    else:
        check_statistics(own, model, len(more.get("validation.cell", ())))
    more = {name: tensor for name, tensor in more.items() if name not in own}
    check = check_classifier if facts["estimator"] == "ParKClassifier" else check_regressor
    lengths = {"Q": Q, "e": e, "t": t}
    counts = more.get("jackknife.counts")
    if counts is not None and counts.shape == (Q,):
        lengths["b"] = sum(len(Z) * h for Z, h in zip(model.centers, counts.tolist(), strict=True))
    check(facts, more, lengths)


def check_statistics(own: Tensors, model: Model, h: int) -> None:
    """Refuse statistics of other cells, and rows that no cell has learned."""
    Q, t = len(model.centers), len(model.intercept)
    grams = sum(len(Z) * (len(Z) + 1) // 2 + len(Z) * t for Z in model.centers)
    rules = STATISTICS | (LEARNED if "statistics.learned.hashes" in own else {})
    rules |= MARKS if "statistics.validation" in own else {}
    check_tensors(own, rules, {"Q": Q, "g": grams, "h": h, "3": 3})
    if "statistics.learned.hashes" in own:
        hashes = own["statistics.learned.hashes"]
        require(bool((hashes[1:] > hashes[:-1]).all()), "statistics.learned.hashes must increase")
        check_below("statistics.learned.cells", own["statistics.learned.cells"], Q)
        positive = bool((own["statistics.learned.weights"] > 0).all())
        require(positive, "statistics.learned.weights must be > 0")


def check_params(where: str, data: Facts, known: Collection[str]) -> None:
    """Refuse parameters that the estimator does not have, and values of an unknown kind."""
    check_names(where, data, [name for name in known if name in data])
    for name, value in data.items():
        if not isinstance(value, dict):
            check_schema(f"{where}.{name}", value, SCALAR)
            continue
        require(len(value) == 1, f"{where}.{name} must be an object with one field")
        [(kind, inner)] = value.items()
        require(kind in PARAMS, f"{where}.{name} cannot be {kind[:50]!r}")
        check_schema(f"{where}.{name}", inner, PARAMS[kind])
    engine, progress = data.get("engine", "local"), data.get("progress", True)
    check_schema(f"{where}.engine", engine, Literal["local", "ray"])
    check_schema(f"{where}.progress", progress, bool)


def check_target_names(facts: Facts, t: int) -> None:
    """Refuse names of other targets than there are."""
    names, count = facts["target_names"], t if facts["classes"] is None else 1
    require(names is None or len(names) == count, f"there must be {count} target_names")


def check_features(facts: Facts, d: int) -> None:
    """Refuse columns that do not become d numbers, and names or importances of other columns."""
    n, names = facts["n_features_in_"], facts["feature_names_in_"]
    for values in (names, facts["feature_importances_"]):
        rule = f"there must be {n} names and importances of features"
        require(values is None or len(values) == n, rule)
    columns = TableEncoder.from_plain(facts["columns"])
    for column in columns.columns:
        if isinstance(column, Number):
            known = column.holds in ("number", "boolean", "duration")
            require(known, "columns of numbers must hold numbers, booleans or durations")
            same = all(len(heights) == len(column.knots) for heights in column.means)
            require(same, "columns of numbers must have a mean for each of their knots")
        if isinstance(column, DateTime):
            require(column.width > 0, "columns of dates must become at least one number")
            require(column.first in DATES, "columns of dates must begin with year, day or month")
        if isinstance(column, FreeText):
            unique = len(set(column.tokens)) == len(column.tokens)
            require(unique, "columns of text must have different tokens")
        if isinstance(column, Category):
            values, codes = column.values, column.codes
            unique = len(set(values)) == len(values) == len(codes)
            require(unique, "columns must have a code for each category")
            same = all(len(code) == column.width for code in codes)
            require(same, "codes of columns must be of one length")
    require(columns.width == d, f"columns must become {d} numbers, not {columns.width}")
    own = [column.name for column in columns.columns]
    require(len(set(own)) == len(own), "columns must have different names")
    require(names is None or names == own, "feature_names_in_ must be the names of columns")


def check_regressor(facts: Facts, more: Tensors, lengths: AxisLengths) -> None:
    """Refuse prediction intervals that do not fit the model."""
    intervals, one = facts["uncertainty"], facts["one_output"]
    require(facts["classes"] is None, "classes of a regressor must be null")
    require(not one or lengths["t"] == 1, "one_output must be false with several outputs")
    check_schema("uncertainty", intervals, INTERVALS)
    learned = intervals["scale"] == "learned"
    require(learned == (intervals["kernel"] is not None), "only a learned scale has a kernel")
    check_lengthscales("uncertainty.kernel", intervals["kernel"], lengths["e"])
    names = (*TARGETS, *(INTERVAL_ENDS if INTERVAL_ENDS[0] in more else ()))
    rules = (
        SCALES | (LEARNED_SCALE if learned else {}) | {"validation.cell": TensorRule(WHOLE, "h")}
    )
    rules |= {name: TensorRule(FLOATS, "h" if one else "ht") for name in names}
    rules |= GUARANTEES[intervals["guarantee"]]
    check_tensors(more, rules, {**lengths, "G": len(LEVELS)})
    check_guarantee(intervals["guarantee"], more)
    require(bool((more["ridge"] > 0).all()), "ridge must be > 0")
    for name in ("noise", "factors"):
        require(bool((more[name] >= 0).all()), f"{name} must be >= 0")
    check_below("validation.cell", more["validation.cell"], lengths["Q"])


def check_guarantee(name: str, more: Tensors) -> None:
    """Refuse rows behind a guarantee that do not belong to groups or cells."""
    if name == "jackknife+":
        counts, rows = more["jackknife.counts"], len(more["jackknife.residuals"])
        require(bool((more["jackknife.residuals"] >= 0).all()), "jackknife.residuals must be >= 0")
    elif name != "none":
        counts, rows = more["scores.counts"], len(more["scores.values"])
        check_below("scores.group_of_cell", more["scores.group_of_cell"], len(counts))
        require(bool((more["scores.w"] > 0).all()), "scores.w must be > 0")
    else:
        return
    fits = bool((counts >= 0).all()) and int(counts.sum()) == rows
    require(fits, f"counts of rows behind the guarantee must add up to {rows}")


def check_classifier(facts: Facts, more: Tensors, lengths: AxisLengths) -> None:
    """Refuse labels and probabilities that do not fit the model."""
    classes, calibration, t = facts["classes"], facts["uncertainty"], lengths["t"]
    require(bool(classes), "classes of a classifier must be there")
    one_type = len({type(label) for label in classes}) == 1
    require(one_type and is_increasing(classes), "classes must be of one type and increase")
    k = len(classes)
    require(t == (1 if k == 2 else k), f"{k} classes must have other outputs than {t}")
    if k == 1:
        require(calibration == {} and not more, "a single class has no probabilities")
        return
    isotonic = calibration.get("name") == "isotonic"
    check_schema("uncertainty", calibration, ISOTONIC if isotonic else AFFINE)
    for name in ("scores", "values") if isotonic else ("factor", "offset"):
        require(len(calibration[name]) == t, f"uncertainty.{name} must have {t} entries")
    for j in range(t if isotonic else 0):
        scores, values = calibration["scores"][j], calibration["values"][j]
        require(len(scores) == len(values) > 0, "scores and values must be of one length")
        require(is_increasing(scores), "scores of uncertainty must increase")
        inside = 0 < min(values) <= max(values) <= 1
        require(inside, "values of uncertainty must be above 0 and at most 1")
    check_tensors(more, LABELS, dict(lengths))
    check_below("validation.cell", more["validation.cell"], lengths["Q"])
    for name in TARGETS:
        check_below(name, more[name], k)


def is_increasing(values: list[Any]) -> bool:
    """Whether each value is larger than the one before."""
    return all(a < b for a, b in pairwise(values))
