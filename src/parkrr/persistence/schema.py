"""What must hold of the contents of a model file before anything is built from them.

Knows tensors and plain data, not where they come from. Every check raises ValueError with the name
of what is wrong; what passes can be built and asked without an index out of range, a dtype that
does not fit, or a number that is not finite. Start at :func:`check_model` and
:func:`check_estimator`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parkrr.data import TURNS
from parkrr.kernels import KERNELS
from parkrr.park import CellReport
from parkrr.partition import Blend
from parkrr.persistence.plain_checks import (
    LOOSE,
    Test,
    check,
    check_fields,
    check_names,
    check_record,
    is_any_number,
    is_increasing,
    is_labels,
    is_number,
    is_object,
    is_one_of,
    is_positive,
    is_scalar,
    is_truth,
    is_whole,
    is_word,
    list_of,
    maybe,
    object_of,
)
from parkrr.uncertainty import LEVELS

FLOATS = (torch.float64, torch.float32)
STORED = (*FLOATS, torch.float16)
WHOLE = (torch.int64,)
TRUTH = (torch.bool,)
Tensors = Mapping[str, Tensor]
Facts = Mapping[str, Any]
Sizes = dict[str, int]


class Rule(NamedTuple):
    """Dtypes of a tensor, and a letter for each of its axes: the same letter, the same length."""

    dtypes: tuple[torch.dtype, ...]
    axes: str


# Q cells, e columns after the map, t outputs, d numbers a row; n and w are the centres of cells
# in float32 and float64, m all of them, c those of the coarse level, k knots, x columns mixed.
MODEL = {
    "centroids": Rule(FLOATS, "Qe"),
    "sizes": Rule(WHOLE, "Q"),
    "wide": Rule(TRUTH, "Q"),
    "centers": Rule(STORED, "ne"),
    "centers.wide": Rule(STORED, "we"),
    "weights": Rule(FLOATS, "mt"),
    "intercept": Rule(FLOATS, "t"),
}
METRIC = {
    "metric.origin": Rule(FLOATS, "d"),
    "metric.scale": Rule(FLOATS, "d"),
    "metric.knots": Rule(FLOATS, "dk"),
    "metric.levels": Rule(FLOATS, "dk"),
    "metric.matrix": Rule(FLOATS, "xe"),
}
COARSE = {"coarse.centers": Rule(FLOATS, "ce"), "coarse.weights": Rule(FLOATS, "ct")}
# G levels, s centres of a learned scale, h rows left out.
BARS = {
    "noise": Rule(FLOATS, "Qt"),
    "ridge": Rule(FLOATS, "Q"),
    "factors": Rule(FLOATS, "Qt"),
    "quantiles": Rule(FLOATS, "Gt"),
}
SCALE = {"centers": Rule(FLOATS, "se"), "weights": Rule(FLOATS, "st")}
VALUES = ("held_out.truth", "held_out.predicted")
ENDS = ("held_out.lower", "held_out.upper")
LABELS = {
    "held_out.cell": Rule(WHOLE, "h"),
    "held_out.truth": Rule(WHOLE, "h"),
    "held_out.predicted": Rule(WHOLE, "h"),
    "held_out.confidence": Rule(FLOATS, "h"),
}
# What a model that goes on learning keeps: g numbers of all cells.
SUMS = {
    "sums.grams": Rule(FLOATS, "g"),
    "sums.rows": Rule(FLOATS, "Q"),
    "sums.weight": Rule(FLOATS, "Q"),
    "sums.fitted_rows": Rule(FLOATS, "Q"),
}
EMPTY = "nw"  # axes that may have no length
SETTINGS: dict[str, Test] = {
    "format": is_one_of(["parkrr model"]),
    "version": is_whole,
    "kernel": is_object,
    "coarse_kernel": maybe(is_object),
    "blend": is_object,
    "facts": is_object,
}
FACTS: dict[str, Test] = {
    "estimator": is_word,
    "params": is_object,
    "columns": maybe(list_of(is_object)),
    "classes": maybe(is_labels),
    "one_output": is_truth,
    "n_features_in_": is_whole,
    "feature_names_in_": maybe(list_of(is_word)),
    "feature_importances_": maybe(list_of(is_any_number)),
    "chosen": is_object,
    "seconds_": object_of(is_number),
    "report_": list_of(is_object),
    "uncertainty": is_object,
    "statistics": maybe(is_object),
}
CHOSEN: dict[str, Test] = {
    "params": is_object,
    "tried": list_of(object_of(is_scalar)),
    "seconds": object_of(is_number),
    "uncertainty": is_word,
}
NAMED: dict[str, Test] = {"kind": is_word, "name": is_word}
COLUMNS: dict[str, dict[str, Test]] = {
    "Number": {**NAMED, "fill": is_number, "flagged": is_truth},
    "Moment": {
        **NAMED,
        "fill": is_number,
        "flagged": is_truth,
        "elapsed": is_truth,
        "turns": list_of(is_one_of(TURNS)),
    },
    "Category": {
        **NAMED,
        "values": list_of(maybe(is_word)),
        "codes": list_of(list_of(is_number)),
        "other": list_of(is_number),
    },
}


def check_model(tensors: Tensors, about: Facts) -> Sizes:
    """Refuse tensors and settings of which no model can be made; the lengths of all axes."""
    check_kernel("kernel", about["kernel"])
    check_record("blend", about["blend"], Blend)
    blend = about["blend"]["n_nearest"] >= 1 and about["blend"]["width"] >= 0
    check(blend, "blend must have n_nearest >= 1 and width >= 0")
    coarse = {} if about["coarse_kernel"] is None else COARSE
    if coarse:
        check_kernel("coarse_kernel", about["coarse_kernel"])
    own = {name: t for name, t in tensors.items() if not name.startswith("more.")}
    sizes = check_tensors(own, {**MODEL, **metric_rules(tensors), **coarse}, {})
    check_cells(tensors, sizes)
    check_metric(tensors, sizes)
    return sizes


def metric_rules(tensors: Tensors) -> dict[str, Rule]:
    """Which parts of a map are there; without an origin there is none."""
    origin = "metric.origin" in tensors
    rules = {name: rule for name, rule in METRIC.items() if origin and name in tensors}
    pair = {"metric.knots", "metric.levels"} & set(rules)
    check(len(pair) != 1, "metric.knots and metric.levels must be there together")
    if "metric.matrix" in rules and tensors["metric.matrix"].ndim == 1:
        rules["metric.matrix"] = Rule(FLOATS, "e")
    return rules


def check_cells(tensors: Tensors, sizes: Sizes) -> None:
    """Refuse cells whose centres do not add up."""
    counts, wide = tensors["sizes"].tolist(), tensors["wide"].tolist()
    check(min(counts) >= 1, "sizes must be >= 1")
    total = sum(counts)
    of_wide = sum(m for m, far in zip(counts, wide, strict=True) if far)
    for name, rows, axis in (
        ("weights", total, "m"),
        ("centers", total - of_wide, "n"),
        ("centers.wide", of_wide, "w"),
    ):
        check(rows == sizes[axis], f"{name} must have {rows} rows by sizes, not {sizes[axis]}")


def check_metric(tensors: Tensors, sizes: Sizes) -> None:
    """Refuse a map that does not lead to the columns of the centroids."""
    d = sizes.setdefault("d", sizes["e"])
    knots = tensors.get("metric.knots") if "k" in sizes else None
    if knots is not None:
        rising = bool((knots[:, 1:] >= knots[:, :-1]).all())
        check(sizes["k"] >= 2 and rising, "metric.knots must be at least two, in order")
    columns = d if knots is None else 2 * d
    rows = sizes.get("x", sizes["e"])  # a matrix has rows of its own
    check(rows == columns, f"the map has {columns} columns for {rows} of what follows it")


def check_tensors(tensors: Tensors, rules: Mapping[str, Rule], sizes: Sizes) -> Sizes:
    """Refuse all tensors but these, of these dtypes and shapes, finite; the lengths of all axes."""
    check_names("the list of tensors", tensors, rules)
    for name, rule in rules.items():
        check_tensor(name, tensors[name], rule, sizes)
    return sizes


def check_tensor(name: str, tensor: Tensor, rule: Rule, sizes: Sizes) -> None:
    """Refuse another dtype or shape than the rule says, and numbers that are not finite."""
    shape = tuple(tensor.shape)
    if tensor.dtype not in rule.dtypes or len(shape) != len(rule.axes):
        kinds = " or ".join(str(kind).removeprefix("torch.") for kind in rule.dtypes)
        got = f"{str(tensor.dtype).removeprefix('torch.')} of shape {shape}"
        raise ValueError(f"{name} must be {kinds} with {len(rule.axes)} axes, got {got}")
    for axis, length in zip(rule.axes, shape, strict=True):
        fits = sizes.setdefault(axis, length) == length and (length > 0 or axis in EMPTY)
        check(fits, f"{name} must have {sizes[axis] or 'no'} for {length} in its shape {shape}")
    check(is_finite(tensor), f"{name} must be finite")


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite; isfinite would take as much memory as the tensor."""
    if tensor.dtype not in STORED or not tensor.numel():
        return True
    low, high = torch.aminmax(tensor)  # NaN if there is one
    return bool(torch.isfinite(low)) and bool(torch.isfinite(high))


def check_kernel(where: str, data: Any) -> None:
    """Refuse data that name no kernel of parkrr; it checks its own settings when it is made."""
    known = is_object(data) and is_one_of(KERNELS)(data.get("name"))
    check(known, f"{where} must be an object with a name out of {sorted(KERNELS)}")
    settings = {name: value for name, value in data.items() if name != "name"}
    check_record(where, settings, KERNELS[data["name"]])


def check_estimator(facts: Facts, more: Tensors, sizes: Sizes, params: Iterable[str]) -> None:
    """Refuse facts and tensors of which no fitted estimator with these parameters can be made."""
    check_fields("facts", facts, FACTS)
    check_fields("chosen", facts["chosen"], CHOSEN)
    for where, data in (("params", facts["params"]), ("chosen", facts["chosen"]["params"])):
        check_params(where, data, params)
    check(len(facts["report_"]) == sizes["Q"], "report_ must have an entry for each cell")
    for cell in facts["report_"]:
        check_record("report_", cell, CellReport, LOOSE, defaults=True)
    check_features(facts, sizes)
    more = check_sums(facts["statistics"], more, sizes)
    if facts["estimator"] == "ParKClassifier":
        check_classifier(facts, more, sizes)
    else:
        check_regressor(facts, more, sizes)


def check_sums(data: dict[str, Any] | None, more: Tensors, sizes: Sizes) -> Tensors:
    """Refuse sums of cells of other sizes; the tensors without them."""
    own = {name: tensor for name, tensor in more.items() if name.startswith("sums.")}
    check_tensors(own, {} if data is None else SUMS, dict(sizes))
    if data is not None:
        check_fields("statistics", data, {"ridge": is_positive, "unit": is_positive})
    return {name: tensor for name, tensor in more.items() if name not in own}


def check_params(where: str, data: dict[str, Any], known: Iterable[str]) -> None:
    """Refuse parameters that the estimator has not, and values of no known kind."""
    check_names(where, data, {*data, *known} if set(data) <= set(known) else known)
    for name, value in data.items():
        if not is_scalar(value):
            check_value(f"{where}.{name}", value)
    engine = data.get("engine", "local")
    check(is_one_of(["local", "ray"])(engine), f"engine of {where} must be local or ray")
    check(is_truth(data.get("progress", True)), f"progress of {where} must be true or false")


def check_value(where: str, value: Any) -> None:
    """Refuse a parameter with parts that is none of those there are."""
    check(is_object(value) and len(value) == 1, f"{where} must be an object with one field")
    [(kind, data)] = value.items()
    if kind == "kernel":
        check_kernel(where, data)
    elif kind == "blend":
        check_record(where, data, Blend)
    elif kind == "coarse":
        check_fields(where, data, {"n_centers": is_whole, "kernel": maybe(is_object)})
        if data["kernel"] is not None:
            check_kernel(where, data["kernel"])
    elif kind == "pairs":
        pairs = list_of(lambda pair: list_of(is_scalar)(pair) and len(pair) == 2)
        check(pairs(data), f"{where} must be pairs of a label and a weight")
    else:
        check(kind == "metric", f"{where} cannot be {kind[:50]!r}")


def check_features(facts: Facts, sizes: Sizes) -> None:
    """Refuse columns that do not become the numbers of a row, and names or shares of others."""
    columns, n = facts["columns"], facts["n_features_in_"]
    names = facts["feature_names_in_"]
    for own in (names, facts["feature_importances_"]):
        check(own is None or len(own) == n, f"there must be {n} names and importances of features")
    if columns is None:
        check(n == sizes["d"], f"n_features_in_ must be {sizes['d']}, got {n}")
        return
    width = sum(column_width(column) for column in columns)
    check(width == sizes["d"], f"columns must become {sizes['d']} numbers, not {width}")
    found = [column["name"] for column in columns]
    check(len(set(found)) == len(found), "columns must have different names")
    check(names == found, "feature_names_in_ must be the names of columns")


def column_width(column: dict[str, Any]) -> int:
    """How many numbers a column becomes, if it is one."""
    check(is_one_of(COLUMNS)(column.get("kind")), f"columns must be of a kind in {list(COLUMNS)}")
    check_fields("columns", column, COLUMNS[column["kind"]])
    if column["kind"] == "Number":
        return 1 + int(column["flagged"])
    if column["kind"] == "Moment":
        width = column["elapsed"] + 2 * len(column["turns"]) + column["flagged"]
        check(width > 0, "columns of dates must become a number at least")
        return int(width)
    values, codes, width = column["values"], column["codes"], len(column["other"])
    check(len(set(values)) == len(values) == len(codes), "columns must have a code for each word")
    check(all(len(code) == width for code in codes), "codes of columns must be of one length")
    return width


def check_regressor(facts: Facts, more: Tensors, sizes: Sizes) -> None:
    """Refuse intervals that do not fit the model."""
    known, one = facts["uncertainty"], facts["one_output"]
    check(facts["classes"] is None, "classes of a regressor must be null")
    check(not one or sizes["t"] == 1, "one_output must be false with several outputs")
    scales = ["constant", "posterior", "learned"]
    tests = {"how": is_one_of(scales), "n": is_positive, "kernel": maybe(is_object)}
    check_fields("uncertainty", known, tests)
    learned = known["how"] == "learned"
    check(learned == (known["kernel"] is not None), "only a learned scale has a kernel")
    if learned:
        check_kernel("uncertainty", known["kernel"])
    told = [*VALUES, *(ENDS if ENDS[0] in more else ())]
    rules = {**BARS, **(SCALE if learned else {}), "held_out.cell": Rule(WHOLE, "h")}
    rules |= {name: Rule(FLOATS, "h" if one else "ht") for name in told}
    check_tensors(more, rules, {**sizes, "G": len(LEVELS)})
    check(bool((more["ridge"] > 0).all()), "ridge must be > 0")
    for name in ("noise", "factors"):
        check(bool((more[name] >= 0).all()), f"{name} must be >= 0")
    check_below("held_out.cell", more["held_out.cell"], sizes["Q"])


def check_classifier(facts: Facts, more: Tensors, sizes: Sizes) -> None:
    """Refuse labels and probabilities that do not fit the model."""
    classes, known = facts["classes"], facts["uncertainty"]
    check(classes is not None, "classes of a classifier must be there")
    k, t = len(classes), sizes["t"]
    check(t == (1 if k == 2 else k), f"{k} classes must have other outputs than {t}")
    if k == 1:
        check(known == {} and not more, "a single class has no probabilities")
        return
    check_calibration(known, t)
    check_tensors(more, LABELS, dict(sizes))
    check_below("held_out.cell", more["held_out.cell"], sizes["Q"])
    for name in VALUES:
        check_below(name, more[name], k)


def check_calibration(data: dict[str, Any], t: int) -> None:
    """Refuse maps from t scores to probabilities that are none."""
    if data.get("name") != "isotonic":
        numbers = list_of(is_number)
        ways = is_one_of(["temperature", "platt"])
        check_fields("uncertainty", data, {"name": ways, "factor": numbers, "offset": numbers})
        for name in ("factor", "offset"):
            check(len(data[name]) == t, f"{name} of uncertainty must have {t} numbers")
        return
    lists = list_of(list_of(is_number))
    check_fields("uncertainty", data, {"name": is_word, "scores": lists, "values": lists})
    scores, values = data["scores"], data["values"]
    check(len(scores) == len(values) == t, f"scores and values of uncertainty must be {t}")
    for at, p in zip(scores, values, strict=True):
        check(len(at) == len(p) > 0, "scores and values must be of one length")
        check(is_increasing(at), "scores of uncertainty must increase")
        check(0 < min(p) <= max(p) <= 1, "values of uncertainty must be above 0 and at most 1")


def check_below(name: str, numbers: Tensor, count: int) -> None:
    """Refuse numbers of what is not there."""
    low, high = (int(end) for end in torch.aminmax(numbers))
    check(0 <= low <= high < count, f"{name} must be from 0 to {count - 1}")
