"""Some leave-one-out rows with their predictions, kept in the model for diagnostics and plots."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import class_indices, draw_indices
from parkrr.park import CellReport, LeaveOneOutRows, Model
from parkrr.uncertainty.calibration import Calibration
from parkrr.uncertainty.intervals import Intervals

ROWS = 2000
COVERAGE = 0.9  # of their intervals, if there are enough rows to estimate their ends
DiagnosticRows = dict[str, NDArray[Any]]
LABELS = ("truth", "predicted")  # of a classification: a file holds their numbers
PREFIX = "held_out."  # in a model file


def regression_rows(
    model: Model, left_out: LeaveOneOutRows, predicted: Tensor, intervals: Intervals, seed: int
) -> DiagnosticRows:
    """Cell, truth, prediction (h, t) and ends of the 0.9 interval of some rows."""
    kept = draw_indices(len(predicted), ROWS, seed).sort().values.to(predicted.device)
    mean = predicted[kept]
    columns = {"cell": left_out.cell[kept], "truth": left_out.Y[kept], "predicted": mean}
    if intervals.largest_coverage >= COVERAGE:
        levels = intervals.end_levels(COVERAGE)
        off = intervals.offsets(model, left_out.X[kept], levels, leave_out=True)  # (h, t, 2)
        columns |= {"lower": mean + off[..., 0], "upper": mean + off[..., 1]}
    return {name: values.cpu().numpy() for name, values in columns.items()}


def classification_rows(
    left_out: LeaveOneOutRows,
    predicted: Tensor,
    classes: NDArray[Any],
    calibration: Calibration,
    seed: int,
) -> DiagnosticRows:
    """Cell, label, predicted label and its probability ("confidence") of some rows."""
    kept = draw_indices(len(predicted), ROWS, seed).sort().values.to(predicted.device)
    P = calibration.probabilities(predicted[kept].cpu().numpy())  # (h, k)
    truth = class_indices(left_out.Y[kept].cpu().numpy(), len(classes))
    return {
        "cell": left_out.cell[kept].cpu().numpy(),
        "truth": classes[truth],
        "predicted": classes[P.argmax(1)],
        "confidence": P.max(1),
    }


def add_cell_errors(
    report: list[CellReport], left_out: LeaveOneOutRows, predicted: Tensor
) -> list[CellReport]:
    """The report with the root mean squared error of the leave-one-out rows of each cell."""
    w, Q = left_out.weights, len(report)
    squares = (left_out.Y - predicted).square().mean(1) * w  # (h,)
    rows = w.new_zeros(Q).index_add_(0, left_out.cell, w)
    sums = w.new_zeros(Q).index_add_(0, left_out.cell, squares)
    errors = (sums / rows).sqrt().tolist()
    return [
        replace(cell, error=None if n == 0 else error)
        for cell, n, error in zip(report, rows.tolist(), errors, strict=True)
    ]


def rows_to_tensors(rows: DiagnosticRows, classes: NDArray[Any] | None) -> dict[str, Tensor]:
    """For a model file: labels by their number."""
    tensors = {}
    for name, values in rows.items():
        if classes is not None and name in LABELS:
            values = np.searchsorted(classes, values).astype(np.int64)  # noqa: PLW2901
        tensors[PREFIX + name] = torch.from_numpy(values).contiguous()
    return tensors


def rows_from_tensors(tensors: dict[str, Tensor], classes: NDArray[Any] | None) -> DiagnosticRows:
    """The rows that a model file holds."""
    own = {name.removeprefix(PREFIX): t.numpy() for name, t in tensors.items() if PREFIX in name}
    return {
        name: values if classes is None or name not in LABELS else classes[values]
        for name, values in own.items()
    }
