"""partial_fit and forget: statistics of every cell, to which rows are added or from which they go.

The direct solver needs of the rows of a cell only K'W[K, R], with R what intercept and coarse level
leave of the target (appendix, after eq. (13)). A model that keeps these statistics can be fitted to
new rows, or as if old ones had not been there, without reading the others: each cell is what a fit
to its rows with the same centres would be. Feature map, centroids, centres, coarse level, intercept
and lambda n stay as they are. What can be forgotten is decided by :mod:`.learned_rows`, or where
there are too many rows to keep each, by what the statistics prove.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import Block, group_by_cell, hash_rows
from parkrr.errors import CellError, ParameterError
from parkrr.park.cells import CellReport, local_penalty
from parkrr.park.learned_rows import LearnedRows, merge_rows
from parkrr.park.model import Model
from parkrr.solvers import LocalFit, add_gram, fill_lower, solve_statistics

BLOCK_VALUES = 2**21  # kernel values at a time: 16 MB
OUTGROWN = 4.0  # a cell has outgrown its centres at so many times the rows they were drawn for
NO_WEIGHT = 1e-9  # a cell with less weight than this has no rows
MOST_LEARNED = 2**22  # rows that are remembered one by one: 100 MB
# An eigenvalue of K'WK below minus this share of its largest entry is not rounding: rows in float32
# are mapped to 1e-7.
NEGATIVE = 1e-6


@dataclass(frozen=True)
class CellStatistics:
    """What the rows of every cell add up to."""

    grams: list[Tensor]  # K'W[K, R] of every cell, Q times (m_q, m_q + t)
    rows: Tensor  # (Q,)
    weight: Tensor  # (Q,)  in units of `unit`
    fitted_rows: Tensor  # (Q,)  when centres were drawn
    ridge: float  # lambda n, which stays the same
    unit: float  # the weight that counts as one: the mean of the fit
    learned: LearnedRows | None = None  # None if they are too many, or an older file has none
    validation: Tensor | None = None  # (h, 3)  by which validation rows are found again

    def to_tensors(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Numbers and tensors for a file; of each K'WK the upper triangle."""
        parts = []
        for gram in self.grams:
            m = len(gram)
            row, column = torch.triu_indices(m, m)
            parts += [gram[row, column], gram[:, m:].reshape(-1)]
        tensors = {
            "grams": torch.cat(parts),
            "rows": self.rows,
            "weight": self.weight,
            "fitted_rows": self.fitted_rows,
        }
        if self.learned is not None:
            tensors |= {f"learned.{name}": part for name, part in vars(self.learned).items()}
        if self.validation is not None:
            tensors["validation"] = self.validation
        return {"ridge": self.ridge, "unit": self.unit}, tensors

    @classmethod
    def from_tensors(
        cls, numbers: dict[str, float], tensors: dict[str, Tensor], model: Model
    ) -> "CellStatistics":
        """What `to_tensors` returned for that model."""
        t, start, grams = len(model.intercept), 0, []
        for m in (len(Z) for Z in model.centers):
            row, column = torch.triu_indices(m, m)
            middle, stop = start + len(row), start + len(row) + m * t
            gram = tensors["grams"].new_zeros(m, m + t)
            gram[row, column] = tensors["grams"][start:middle]
            gram[:, m:] = tensors["grams"][middle:stop].view(m, t)
            grams.append(fill_lower(gram))
            start = stop
        learned = {
            name.removeprefix("learned."): part
            for name, part in tensors.items()
            if name.startswith("learned.")
        }
        return cls(
            grams=grams,
            rows=tensors["rows"],
            weight=tensors["weight"],
            fitted_rows=tensors["fitted_rows"],
            ridge=numbers["ridge"],
            unit=numbers["unit"],
            learned=LearnedRows(**learned) if learned else None,
            validation=tensors.get("validation"),
        )


def compute_statistics(
    model: Model,
    report: list[CellReport],
    blocks: Iterable[Block],
    most_learned: int = MOST_LEARNED,
) -> CellStatistics:
    """The statistics of the rows, as the user gave them, that a model was fitted to.

    Up to `most_learned` rows are remembered one by one.
    """
    zero = torch.zeros(len(report), dtype=torch.float64)
    t = len(model.intercept)
    grams = [Z.new_zeros(len(Z), len(Z) + t, dtype=torch.float64) for Z in model.centers]
    statistics = CellStatistics(grams, zero, zero, zero, report[0].ridge, unit=1.0)
    learned, n_rows = list[RoutedRows](), 0
    for block in blocks:
        rows = route_rows(statistics, model, block)
        statistics, _ = add_rows(statistics, model, rows)
        n_rows += len(rows.X)
        learned = [*learned, rows.without_features()] if n_rows <= most_learned else []
    unit = float(statistics.weight.sum()) / sum(cell.weight for cell in report)
    parts = zip(*((rows.hashes, rows.cell_of.cpu(), rows.w.cpu()) for rows in learned), strict=True)
    return replace(
        statistics,
        grams=[gram / unit for gram in statistics.grams],
        weight=statistics.weight / unit,
        fitted_rows=statistics.rows,
        unit=unit,
        learned=merge_rows(*map(torch.cat, parts)) if learned else None,
    )


class RoutedRows(NamedTuple):
    """Rows as the cells are fitted to them, with their cells."""

    X: Tensor  # (n, e)  mapped
    R: Tensor  # (n, t)  what intercept and coarse level leave of the target
    w: Tensor  # (n,)  in units of the user, above zero
    cell_of: Tensor  # (n,)
    hashes: Tensor  # (n,)

    def without_features(self) -> "RoutedRows":
        return self._replace(X=self.X[:0], R=self.R[:0])


def route_rows(statistics: CellStatistics, model: Model, block: Block) -> RoutedRows:
    """The rows of positive weight; those that were learned before stay in their cells."""
    if block.w is not None and not bool((block.w > 0).all()):
        block = Block(*(part[block.w > 0] for part in block))  # type: ignore[index]
    X, R, w = model.residual(block)
    hashes = torch.from_numpy(hash_rows(block.X, block.Y).view(np.int64))
    cell_of = model.assign(X)
    if statistics.learned is not None:
        cell_of = statistics.learned.route(hashes, cell_of)
    return RoutedRows(X, R, R.new_ones(len(X)) if w is None else w, cell_of, hashes)


def add_rows(
    statistics: CellStatistics,
    model: Model,
    rows: RoutedRows,
    sign: float = 1.0,
    decay: float = 1.0,
) -> tuple[CellStatistics, list[int]]:
    """Statistics with these rows added, or with sign -1 taken away, and the cells that changed.

    Earlier rows of a cell that changes are weighted down by `decay`.
    """
    w = rows.w / statistics.unit
    order, counts = group_by_cell(rows.cell_of, len(model.centers))
    changed = [q for q, count in enumerate(counts) if count]
    grams, n_rows = list(statistics.grams), statistics.rows.clone()
    weight = statistics.weight.clone()
    for q, own in enumerate(torch.split(order, counts)):
        if len(own):
            gram = compute_gram(model, q, Block(rows.X[own], rows.R[own], w[own]))
            grams[q] = decay * grams[q] + sign * gram
            n_rows[q] += sign * len(own)
            weight[q] = decay * weight[q] + sign * float(w[own].sum())
    return replace(statistics, grams=grams, rows=n_rows, weight=weight), changed


def learn_rows(
    statistics: CellStatistics, model: Model, block: Block, decay: float
) -> tuple[CellStatistics, list[int]]:
    """Statistics with these rows added, and the cells that changed.

    Earlier rows of a cell that changes are weighted down by `decay`.
    """
    rows = route_rows(statistics, model, block)
    added, changed = add_rows(statistics, model, rows, decay=decay)
    learned = statistics.learned
    if learned is not None:
        learned = learned.decay(changed, decay) if decay < 1 else learned
        learned = learned.add(rows.hashes, rows.cell_of, rows.w)
        learned = learned if len(learned) <= MOST_LEARNED else None
    return replace(added, learned=learned), changed


def forget_rows(
    statistics: CellStatistics, model: Model, block: Block
) -> tuple[CellStatistics, list[int]]:
    """Statistics without these rows, and the cells that changed.

    Refuses rows that were not learned, or as far as the statistics can prove it.
    """
    rows = route_rows(statistics, model, block)
    if statistics.learned is None:
        left, changed = add_rows(statistics, model, rows, sign=-1.0)
        check_statistics(statistics, left, changed)
        return left, changed
    learned = statistics.learned.remove(rows.hashes, rows.w)
    left, changed = add_rows(statistics, model, rows, sign=-1.0)
    counts = learned.count(len(model.centers))
    grams, n_rows, weight = list(left.grams), left.rows.clone(), left.weight.clone()
    for q in changed:
        if counts[q]:  # a row may be forgotten in parts, each of which counted as a row
            n_rows[q] = max(float(n_rows[q]), float(counts[q]))
        else:  # what is left of the sums is rounding
            grams[q] = torch.zeros_like(grams[q])
            n_rows[q] = weight[q] = 0.0
    return replace(left, grams=grams, rows=n_rows, weight=weight, learned=learned), changed


def compute_gram(model: Model, q: int, rows: Block) -> Tensor:
    """K'W[K, R] of mapped rows of cell q, in float64, shape (m_q, m_q + t)."""
    X, R, w = rows
    assert w is not None
    Z = model.centers[q].double()
    total = Z.new_zeros(len(Z), len(Z) + R.shape[1])
    size = max(1, BLOCK_VALUES // len(Z))
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        KR = torch.cat([model.kernel(X[part].double(), Z), R[part]], 1)
        add_gram(total, KR, w[part, None])
    return fill_lower(total)


def check_statistics(before: CellStatistics, after: CellStatistics, changed: list[int]) -> None:
    """Refuse what no rows add up to: fewer than none, less than no weight, a negative K'WK."""
    for q in changed:
        m, K_mm = len(after.grams[q]), before.grams[q]
        least = -NEGATIVE * float(K_mm.diagonal().max())
        reason = ""
        if float(after.weight[q]) < -NO_WEIGHT or float(after.rows[q]) < 0:
            reason = f"cell {q} would have {int(after.rows[q])} rows left"
        elif float(torch.linalg.eigvalsh(after.grams[q][:, :m])[0]) < least:
            reason = f"K'WK of cell {q} would be negative, which that of no rows is"
        if reason:
            raise ParameterError(
                f"X, y and sample_weight must be rows that were learned before, but {reason}; "
                f"forget only rows that fit and partial_fit were given"
            )


def solve_changed(
    statistics: CellStatistics, model: Model, changed: list[int]
) -> dict[int, LocalFit]:
    """Eq. (8) of the changed cells, from their statistics."""
    return {q: solve_cell(statistics, model, q) for q in changed}


def solve_cell(statistics: CellStatistics, model: Model, q: int) -> LocalFit:
    """Cell q from its statistics; where rounding leaves no solution, with a larger ridge."""
    gram, Z, n_q = statistics.grams[q], model.centers[q], float(statistics.weight[q])
    if n_q <= NO_WEIGHT:
        zero = gram.new_zeros(len(Z), gram.shape[1] - len(Z))
        return LocalFit(zero, 0, 0.0, True, "", Z.dtype)
    fit = solve_statistics(model.kernel, Z, gram, statistics.ridge, n_q, raise_ridge=True)
    if fit is None:
        reason = "rounding left no solution; raise penalty or refit"
        raise CellError(q, int(statistics.rows[q]), reason)
    return fit


def update_model(model: Model, fits: dict[int, LocalFit]) -> Model:
    """The model with other weights in the cells that were solved."""
    weights = list(model.weights)
    for q, fit in fits.items():
        weights[q] = fit.weights
    return model.replace_weights(weights, list(fits))


def update_report(
    report: list[CellReport], statistics: CellStatistics, fits: dict[int, LocalFit]
) -> list[CellReport]:
    """The report with what is new of the cells that were solved."""
    report = list(report)
    for q, fit in fits.items():
        rows, n_q = int(statistics.rows[q]), float(statistics.weight[q])
        report[q] = report[q]._replace(
            rows=rows,
            weight=n_q,
            penalty=local_penalty(statistics.ridge, n_q),
            solver="direct",
            why="updated from statistics",
            iterations=fit.n_iter,
            residual=fit.residual,
            converged=fit.converged,
            fallback=fit.fallback,
            outgrown=rows > OUTGROWN * float(statistics.fitted_rows[q]),
        )
    return report
