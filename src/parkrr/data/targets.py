"""Targets as numbers: classes as codes of +1 and -1, and what rows of each class weigh."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parkrr.data.column_kinds import as_numbers, decode_dictionary, family_of
from parkrr.data.parquet import BLOCK_BYTES, SLICES, ParquetTable, rows_per_block
from parkrr.errors import ParameterError, suggest
from parkrr.runtime import Engine

MOST_CLASSES = 1000
SHOWN_LABELS = 20  # of a message
NO_TARGET = "target must have values, but is missing in every row that was read"


@dataclass(frozen=True)
class Target:
    """Encodes target columns as numbers."""

    names: tuple[str, ...]  # of the columns
    classes: NDArray[Any] | None = None  # labels of a classification, in order
    class_weights: NDArray[np.float64] | None = None  # of a row of each class, (k,)

    def weigh(self, Y: NDArray[Any], w: NDArray[Any] | None) -> NDArray[Any] | None:
        """Weights of rows (n,) times those of their classes, from codes Y (n, t)."""
        if self.class_weights is None or self.classes is None:
            return w
        by_class: NDArray[Any] = self.class_weights[class_indices(Y, len(self.classes))]
        return by_class if w is None else w * by_class

    def encode(self, table: pa.Table) -> NDArray[np.float64]:
        """Targets (n, t), NaN where there is none; classes as codes of +1 and -1."""
        if self.classes is None:
            return np.stack([as_numbers(table[name], name) for name in self.names], 1)
        labels = decode_dictionary(table[self.names[0]])
        try:
            known = pa.array(self.classes, labels.type)
        except (pa.ArrowException, TypeError, ValueError):
            raise ParameterError(
                f"target must hold labels as in fit, such as {self.classes[:1].tolist()[0]!r}, but "
                f"{self.names[0]!r} is {labels.type}; read or write it in that type"
            ) from None
        index = pc.index_in(labels, value_set=known)
        index = index.fill_null(-1).to_numpy(zero_copy_only=False)
        Y = encode_classes(index, len(self.classes)).astype(np.float64)
        Y[index < 0] = np.nan
        return Y


def encode_classes(index: NDArray[Any], n_classes: int) -> NDArray[np.float32]:
    """Classes (n,) by index as +1 and -1, shape (n, k), or (n, 1) for two of them."""
    columns = [1] if n_classes == 2 else range(n_classes)
    coded: NDArray[np.float32] = np.equal.outer(index, columns).astype(np.float32) * 2 - 1
    return coded


def class_indices(values: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """The classes with the largest values (n, k), for two classes (n, 1), by index, (n,)."""
    index: NDArray[np.int64]
    index = (values[:, 0] > 0).astype(np.int64) if n_classes == 2 else values.argmax(1)
    return index


def decode_classes(values: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The labels with the largest values (n, k), for two classes (n, 1), shape (n,)."""
    labels: NDArray[Any] = classes[class_indices(values, len(classes))]
    return labels


def compute_class_weights(
    class_weight: Any, labels: Sequence[Any], counts: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """The weight of a row of each class, (k,); "balanced" gives all classes the same total.

    Done here because scikit-learn's function takes the label of every row, and rows on disk are
    known by their counts.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        balanced: NDArray[np.float64] = counts.sum() / (len(counts) * counts)
        return balanced
    if not isinstance(class_weight, Mapping):
        raise ParameterError(
            f"class_weight must be None, 'balanced' or a weight for each label, such as "
            f"{ {labels[0]: 2.0} }, got {class_weight!r}{suggest(class_weight, ['balanced'])}"
        )
    for label, weight in class_weight.items():
        if label not in labels:
            raise ParameterError(
                f"class_weight must be of labels of y, {list(labels[:SHOWN_LABELS])}"
                f"{' and more' if labels[SHOWN_LABELS:] else ''}, got {label!r}"
                f"{suggest(label, labels)}"
            )
        if not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
            raise ParameterError(
                f"class_weight must hold weights > 0 and finite, got {weight!r} for {label!r}"
            )
    return np.array([float(class_weight.get(label, 1.0)) for label in labels])


def learn_target(table: ParquetTable, classify: bool, class_weight: Any, engine: Engine) -> Target:
    """How to encode the target; a pass over its column finds the classes."""
    if not classify:
        for name in table.target:
            kind = table.schema.field(name).type
            if family_of(kind) == "text" or pa.types.is_dictionary(kind):
                raise ParameterError(
                    f"target must be a column of numbers, but {name!r} is {kind}; for labels use "
                    f"ParKClassifier, on the command line --classify"
                )
        return Target(table.target)
    if len(table.target) != 1:
        raise ParameterError(f"target must be one column of labels, got {table.target!r}")
    counts = sum(engine.map(count_labels, table.slices(SLICES)), Counter())
    if not counts:
        raise ParameterError(NO_TARGET)
    labels = sorted(counts)
    if not isinstance(labels[0], str | bool | int | float):  # a model file holds no others
        raise ParameterError(
            f"target must be strings, numbers or booleans to be classified, but "
            f"{table.target[0]!r} is {table.schema.field(table.target[0]).type}; write it as "
            f"strings"
        )
    weights = compute_class_weights(
        class_weight, labels, np.array([counts[label] for label in labels])
    )
    return Target(table.target, np.array(labels), weights)


def count_labels(table: ParquetTable) -> "Counter[Any]":
    """The labels in a slice, and how many rows have each."""
    [name] = table.target
    total: Counter[Any] = Counter()
    for block in table.blocks(rows_per_block(1, BLOCK_BYTES), [name]):
        counts = decode_dictionary(block[name]).value_counts()
        labels, rows = counts.field("values").to_pylist(), counts.field("counts").to_pylist()
        total.update(dict(zip(labels, rows, strict=True)))
        if len(total) > MOST_CLASSES:
            raise ParameterError(
                f"target must have at most {MOST_CLASSES} labels to be classified, but {name!r} "
                f"has more; fit numbers with ParKRegressor"
            )
    return Counter(
        {
            label: rows
            for label, rows in total.items()
            if label is not None and not (isinstance(label, float) and math.isnan(label))
        }
    )
