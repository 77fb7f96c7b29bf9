"""A few of the rows that were each left out of a fit, kept to look at."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import class_numbers, draw
from parkrr.park import CellReport, LeaveOneOutRows, Model
from parkrr.uncertainty.calibration import Calibration
from parkrr.uncertainty.intervals import Intervals

ROWS = 2000
COVERAGE = 0.9  # of their intervals, if rows are enough to know where those end
DiagnosticRows = dict[str, NDArray[Any]]
LABELS = ("truth", "predicted")  # which of a classification are labels


def some(n: int, seed: int) -> Tensor:
    """Which of n rows are kept, in order."""
    found: Tensor = draw(n, ROWS, seed).sort().values
    return found


def of_regression(
    model: Model, left_out: LeaveOneOutRows, predicted: Tensor, intervals: Intervals, seed: int
) -> DiagnosticRows:
    """Cell, truth, prediction (h, t) and ends of the 0.9 interval of some rows."""
    at = some(len(predicted), seed).to(predicted.device)
    found = {"cell": left_out.cell[at], "truth": left_out.Y[at], "predicted": predicted[at]}
    if 1 - 2 * intervals.least_tail >= COVERAGE:
        tails = intervals.tails(COVERAGE)
        off = intervals.quantile(model, left_out.X[at], tails, left_out=True)  # (h, t, 2)
        found |= {"lower": predicted[at] + off[..., 0], "upper": predicted[at] + off[..., 1]}
    return {name: values.cpu().numpy() for name, values in found.items()}


def of_classification(
    left_out: LeaveOneOutRows,
    predicted: Tensor,
    classes: NDArray[Any],
    calibration: Calibration,
    seed: int,
) -> DiagnosticRows:
    """Cell, label, predicted label and the probability it was given, of some rows."""
    at = some(len(predicted), seed).to(predicted.device)
    P = calibration.probabilities(predicted[at].cpu().numpy())  # (h, k)
    truth = class_numbers(left_out.Y[at].cpu().numpy(), len(classes))
    return {
        "cell": left_out.cell[at].cpu().numpy(),
        "truth": classes[truth],
        "predicted": classes[P.argmax(1)],
        "confidence": P.max(1),
    }


def with_errors(
    report: list[CellReport], left_out: LeaveOneOutRows, predicted: Tensor
) -> list[CellReport]:
    """The report with the root mean squared error of the rows that each cell left out."""
    w, Q = left_out.weights, len(report)
    squares = (left_out.Y - predicted).square().mean(1) * w  # (h,)
    rows = w.new_zeros(Q).index_add_(0, left_out.cell, w)
    sums = w.new_zeros(Q).index_add_(0, left_out.cell, squares)
    errors = (sums / rows).sqrt().tolist()
    told = [None if n == 0 else e for n, e in zip(rows.tolist(), errors, strict=True)]
    return [cell.judged(error) for cell, error in zip(report, told, strict=True)]


def as_tensors(held_out: DiagnosticRows, classes: NDArray[Any] | None) -> dict[str, Tensor]:
    """For a file: labels by their number."""
    return {
        f"held_out.{name}": torch.from_numpy(
            values
            if classes is None or name not in LABELS
            else np.searchsorted(classes, values).astype(np.int64)
        ).contiguous()
        for name, values in held_out.items()
    }


def from_tensors(tensors: dict[str, Tensor], classes: NDArray[Any] | None) -> DiagnosticRows:
    """What a file holds of them."""
    own = {name.removeprefix("held_out."): t for name, t in tensors.items() if "held_out." in name}
    return {
        name: values.numpy() if classes is None or name not in LABELS else classes[values.numpy()]
        for name, values in own.items()
    }
