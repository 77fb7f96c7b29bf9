"""Some leave-one-out rows with their predictions, kept in the model for diagnostics and plots."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parkrr.data import Block, class_indices
from parkrr.park import CellStatistics, LeaveOneOutRows, Model
from parkrr.uncertainty.calibration import Calibration
from parkrr.uncertainty.intervals import DIAGNOSTIC_ROWS

DiagnosticRows = dict[str, NDArray[Any]]
LABELS = ("truth", "predicted")  # of a classification: a file holds their numbers
PREFIX = "validation."  # in a model file
MARKS = (1.0, 2**0.5, 3**0.5)  # frequencies of the directions by which rows are found again
SAME = 1e-5  # of its length, that a row in float32 may have moved in another batch


def classification_rows(
    left_out: LeaveOneOutRows,
    predicted: Tensor,
    classes: NDArray[Any],
    calibration: Calibration,
    seed: int,
) -> DiagnosticRows:
    """Cell, label, predicted label and its probability ("confidence") of some rows."""
    kept = left_out.draw_positions(DIAGNOSTIC_ROWS, seed)
    P = calibration.probabilities(predicted[kept].cpu().numpy())  # (h, k)
    truth = class_indices(left_out.Y[kept].cpu().numpy(), len(classes))
    return {
        "cell": left_out.cell[kept].cpu().numpy(),
        "truth": classes[truth],
        "predicted": classes[P.argmax(1)],
        "confidence": P.max(1),
    }


def mark_rows(X: Tensor) -> Tensor:
    """Mapped rows X (n, e) along three fixed directions, by which they are found again, (n, 3)."""
    X = X.double().cpu()
    number = torch.arange(1, X.shape[1] + 1, dtype=torch.float64)[:, None]
    return X @ torch.sin(13 * number * torch.tensor(MARKS, dtype=torch.float64))


def drop_forgotten(
    statistics: CellStatistics, rows: DiagnosticRows, model: Model, block: Block, y: Any
) -> tuple[CellStatistics, DiagnosticRows]:
    """Both without the diagnostic rows that equal rows of a block, with targets or labels y.

    Each row of the block drops one row at most, for others may be copies that were not forgotten.
    """
    if statistics.validation is None or not len(statistics.validation):
        return statistics, rows
    X, y = model.map_rows(block.X), np.asarray(y)  # (n, e)
    if block.w is not None:  # a row without weight was not forgotten
        X, y = X[block.w > 0], y[block.w.numpy() > 0]
    near = SAME * X.double().norm(dim=1).cpu().numpy()  # (n,)
    marks, own = mark_rows(X).numpy(), statistics.validation.numpy()  # (n, 3), (h, 3)
    given, truth = y.reshape(len(X), -1), rows["truth"].reshape(len(own), -1)
    off = 0.0 if "confidence" in rows else SAME * np.abs(truth).max(initial=0.0)
    order = np.argsort(own[:, 0])
    first = np.searchsorted(own[order, 0], marks[:, 0] - near)
    last = np.searchsorted(own[order, 0], marks[:, 0] + near, "right")
    kept = np.ones(len(own), bool)
    for i in np.flatnonzero(first < last).tolist():
        some = order[first[i] : last[i]]
        same = (np.abs(own[some] - marks[i]) <= near[i]).all(1) & kept[some]
        same &= (
            (truth[some] == given[i]).all(1)
            if off == 0.0
            else (np.abs(truth[some] - given[i]) <= off).all(1)
        )
        kept[some[same.argmax()]] &= not same.any()
    rows = {name: values[kept] for name, values in rows.items()}
    return replace(statistics, validation=statistics.validation[torch.from_numpy(kept)]), rows


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
