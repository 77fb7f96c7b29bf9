"""Scores of predictions of files: each slice becomes a few sums, however many rows it has."""

import math
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from parkrr.data import (
    BLOCK_BYTES,
    ParquetTable,
    TableEncoder,
    Target,
    class_indices,
    rows_per_block,
)
from parkrr.errors import ParameterError
from parkrr.out_of_core.predict_files import check_source_columns
from parkrr.runtime import Engine, run_tasks
from parkrr.uncertainty import COVERAGE, Predictor

SLICES = 64  # tasks that score a table
# Log odds of two classes are counted in so many steps from -ODDS to ODDS, which ranks them: the
# area under the curve is off by less than 1e-4.
ODDS, ODDS_STEPS = 40.0, 2**16
LEAST_PROBABILITY = 1e-15  # of a label, for the log-loss
ROUNDING = 1e-12  # relative: a target that varies less is a constant


class Totals(NamedTuple):
    """Totals over rows, which slices add up; all but `rows` are weighted."""

    rows: int
    by_target: NDArray[np.float64]  # (t, sums), of a classification (1, sums)
    odds: NDArray[np.float64]  # weight of each class at each step of the log odds, (2, steps)


@dataclass(frozen=True)
class FileScorer:
    """Scores slices of a table."""

    predictor: Predictor
    columns: TableEncoder  # how columns of the table become the numbers of a row
    target: Target

    def sum_slice(self, table: ParquetTable) -> Totals:
        """The sums of one slice of rows."""
        names = list(dict.fromkeys([*self.columns.read_names, *table.target]))
        names += [table.weight] if table.weight else []
        sums = [
            self.sum_block(block, table.weight)
            for block in table.blocks(rows_per_block(self.columns.width, BLOCK_BYTES), names)
        ]
        return reduce(add_totals, sums)

    def sum_block(self, block: Any, weight: str | None) -> Totals:
        """The sums of some rows, those without a target or of weight zero left out."""
        known = np.ones(len(block), dtype=bool)
        for name in self.target.names:
            known &= block[name].is_valid().to_numpy(zero_copy_only=False)
        w = np.ones(len(block)) if weight is None else np.asarray(block[weight], dtype=np.float64)
        Y = self.target.encode(block)  # NaN also for labels that the model does not know
        if self.target.classes is None:
            known &= np.isfinite(Y).all(1)
        known &= w > 0
        Y, w = Y[known], w[known]
        X = torch.from_numpy(self.columns.encode(block.filter(known)))
        if self.target.classes is None:
            return self.sum_errors(X, Y, w)
        return self.sum_labels(X, Y, w)

    def sum_errors(self, X: torch.Tensor, Y: NDArray[Any], w: NDArray[Any]) -> Totals:
        """Of a regression with targets Y (n, t): what its scores are made of."""
        n = len(Y)
        predicted = self.predictor.outputs(X)  # (n, t)
        shape = predicted.shape
        low, high = (each.reshape(shape) for each in self.predictor.interval(X, self.coverage))
        inside = np.logical_and(low <= Y, high >= Y)
        # From the mean of the fit: squares of targets near 1e9 would take all digits.
        centred = Y - self.predictor.model.intercept.cpu().double().numpy()
        each = np.stack(
            [
                np.ones(shape),
                (Y - predicted) ** 2,
                np.abs(Y - predicted),
                centred,
                centred**2,
                inside,
                high - low,
                np.abs(Y),
            ],
            2,
        )  # (n, t, sums)
        return Totals(n, np.tensordot(w, each, 1), np.zeros((2, 1)))

    @property
    def coverage(self) -> float:
        """Of the intervals whose coverage is counted."""
        return min(COVERAGE, self.predictor.known_intervals.largest_coverage)

    def sum_labels(self, X: torch.Tensor, Y: NDArray[Any], w: NDArray[Any]) -> Totals:
        """Of a classification with codes Y (n, t), NaN for unknown labels."""
        classes = self.target.classes
        assert classes is not None
        P = self.predictor.probabilities(X)  # (n, k)
        decided = class_indices(self.predictor.decide(X), len(classes))
        unknown = np.isnan(Y).any(1)
        index = class_indices(np.nan_to_num(Y), len(classes))
        own = np.where(unknown, 0.0, P[np.arange(len(P)), index])
        each = np.stack(
            [
                np.ones(len(P)),
                unknown | (decided != index),
                -np.log(own.clip(LEAST_PROBABILITY)),
                unknown,
            ],
            1,
        )
        odds = np.zeros((2, ODDS_STEPS))
        if len(classes) == 2:
            p = P[~unknown, 1].clip(1e-300, 1 - 1e-16)
            step = (np.log(p / (1 - p)).clip(-ODDS, ODDS) / ODDS + 1) / 2 * (ODDS_STEPS - 1)
            np.add.at(odds, (index[~unknown], np.round(step).astype(np.int64)), w[~unknown])
        return Totals(len(P), (w @ each)[None], odds)

    def scores(self, totals: Totals) -> dict[str, float | None]:
        """What the sums of all rows amount to."""
        if not totals.rows:
            raise ParameterError(
                f"target must have values, but {list(self.target.names)} is missing in every row"
            )
        means = (totals.by_target[:, 1:] / totals.by_target[:, :1]).T
        if self.target.classes is not None:
            error, loss, unknown = means[:, 0].tolist()
            scores: dict[str, float | None] = {
                "rows": totals.rows,
                "error": error,
                "log_loss": loss,
            }
            if len(self.target.classes) == 2:
                scores["auc"] = area_under_curve(totals.odds)
            return scores | ({"unknown_labels": unknown} if unknown else {})
        squares, absolute, mean, second, inside, width, size = means
        variance = second - mean**2  # (t,)
        varies = bool((variance > (ROUNDING * size) ** 2).all())
        return {
            "rows": totals.rows,
            "rmse": math.sqrt(float(squares.mean())),
            "mae": float(absolute.mean()),
            "r2": float((1 - squares / variance).mean()) if varies else None,
            f"share_in_{self.coverage:.3g}_interval": float(inside.mean()),
            "mean_width": float(width.mean()),
        }


def add_totals(one: Totals, other: Totals) -> Totals:
    """The sums over both."""
    return Totals(*map(add, one, other))


def area_under_curve(odds: NDArray[np.float64]) -> float | None:
    """The share of pairs of both classes that are in order, a tie counting half; None without."""
    negative, positive = odds
    total = float(negative.sum() * positive.sum())
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below) / total if total else None


def score_table(
    scorer: FileScorer, table: ParquetTable, engine: Engine, shown: bool
) -> dict[str, float | None]:
    """Scores of all rows of a table, a slice at a time."""
    check_source_columns(table, (*scorer.columns.read_names, *scorer.target.names))
    slices = table.slices(SLICES)
    sums = run_tasks(
        engine,
        partial(FileScorer.sum_slice, scorer),
        slices,
        label="scoring",
        unit="rows",
        size_of=lambda part: part.n_rows,
        shown=shown,
    )
    return scorer.scores(reduce(add_totals, sums))
