"""partial_fit and forget: statistics of every cell, to which rows are added or from which they go.

The direct solver needs of the rows of a cell only K'W[K, R], with R what intercept and coarse level
leave of the target (appendix, after eq. (13)). A model that keeps these statistics can be fitted to
new rows, or as if old ones had not been there, without reading the others: each cell is what a fit
to its rows with the same centres would be. Feature map, centroids, centres, coarse level, intercept
and lambda n stay as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from parkrr.data import Block, group_by_cell
from parkrr.errors import CellError, ParameterError
from parkrr.park.cells import CellReport, local_penalty
from parkrr.park.model import Model
from parkrr.solvers import add_gram, fill_lower, solve_statistics

BLOCK_VALUES = 2**21  # kernel values at a time: 16 MB
OUTGROWN = 4.0  # a cell has outgrown its centres at so many times the rows they were drawn for
NO_WEIGHT = 1e-9  # a cell with less weight than this has no rows


@dataclass(frozen=True)
class CellStatistics:
    """What the rows of every cell add up to."""

    grams: list[Tensor]  # K'W[K, R] of every cell, Q times (m_q, m_q + t)
    rows: Tensor  # (Q,)
    weight: Tensor  # (Q,)  in units of `unit`
    fitted_rows: Tensor  # (Q,)  when centres were drawn
    ridge: float  # lambda n, which stays the same
    unit: float  # the weight that counts as one: the mean of the fit

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
        return cls(
            grams=grams,
            rows=tensors["rows"],
            weight=tensors["weight"],
            fitted_rows=tensors["fitted_rows"],
            ridge=numbers["ridge"],
            unit=numbers["unit"],
        )


def compute_statistics(
    model: Model, report: list[CellReport], blocks: Iterable[Block]
) -> CellStatistics:
    """The statistics of the rows, as the user gave them, that a model was fitted to."""
    zero = torch.zeros(len(report), dtype=torch.float64)
    t = len(model.intercept)
    grams = [Z.new_zeros(len(Z), len(Z) + t, dtype=torch.float64) for Z in model.centers]
    statistics = CellStatistics(grams, zero, zero, zero, report[0].ridge, unit=1.0)
    for block in blocks:
        statistics, _ = update_statistics(statistics, model, block)
    unit = float(statistics.weight.sum()) / sum(cell.weight for cell in report)
    return replace(
        statistics,
        grams=[gram / unit for gram in statistics.grams],
        weight=statistics.weight / unit,
        fitted_rows=statistics.rows,
        unit=unit,
    )


def update_statistics(
    statistics: CellStatistics, model: Model, block: Block, sign: float = 1.0, decay: float = 1.0
) -> tuple[CellStatistics, list[int]]:
    """Statistics with these rows added, or with sign -1 taken away, and the cells that changed.

    Earlier rows of a cell that changes are weighted down by `decay`.
    """
    X, R, w = model.residual(block)
    w = (R.new_ones(len(X)) if w is None else w) / statistics.unit
    order, counts = group_by_cell(model.assign(X), len(model.centers))
    changed = [q for q, count in enumerate(counts) if count]
    grams, rows = list(statistics.grams), statistics.rows.clone()
    weight = statistics.weight.clone()
    for q, own in enumerate(torch.split(order, counts)):
        if len(own):
            gram = compute_gram(model, q, Block(X[own], R[own], w[own]))
            grams[q] = decay * grams[q] + sign * gram
            rows[q] += sign * len(own)
            weight[q] = decay * weight[q] + sign * float(w[own].sum())
    return replace(statistics, grams=grams, rows=rows, weight=weight), changed


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


def check_rows_left(statistics: CellStatistics, changed: list[int]) -> None:
    """Refuse to forget more rows than a cell was fitted to."""
    for q in changed:
        if float(statistics.weight[q]) < -NO_WEIGHT or float(statistics.rows[q]) < 0:
            raise ParameterError(
                f"X, y and sample_weight must be rows that were learned before, but cell {q} would "
                f"have {int(statistics.rows[q])} rows left; forget only rows that fit and "
                f"partial_fit were given"
            )


def update_model(model: Model, statistics: CellStatistics, changed: list[int]) -> Model:
    """The model with the changed cells solved again."""
    weights = list(model.weights)
    for q in changed:
        weights[q] = solve_weights(statistics, model, q)
    return model.replace_weights(weights, changed)


def solve_weights(statistics: CellStatistics, model: Model, q: int) -> Tensor:
    """The coefficients of cell q, eq. (8), from its statistics, shape (m_q, t)."""
    gram, Z, n_q = statistics.grams[q], model.centers[q], float(statistics.weight[q])
    if n_q <= NO_WEIGHT:
        return gram.new_zeros(len(Z), gram.shape[1] - len(Z))
    fit = solve_statistics(model.kernel, Z, gram, statistics.ridge, n_q, raise_ridge=True)
    if fit is None:
        reason = "rounding left no solution; raise penalty or refit"
        raise CellError(q, int(statistics.rows[q]), reason)
    return fit.weights


def update_report(
    report: list[CellReport], statistics: CellStatistics, changed: list[int]
) -> list[CellReport]:
    """The report with rows, weight and penalty of the changed cells."""
    report = list(report)
    for q in changed:
        rows, n_q = int(statistics.rows[q]), float(statistics.weight[q])
        report[q] = replace(
            report[q],
            rows=rows,
            weight=n_q,
            penalty=local_penalty(statistics.ridge, n_q),
            outgrown=rows > OUTGROWN * float(statistics.fitted_rows[q]),
        )
    return report
