"""Models that go on learning: sums of every cell, to which rows are added or taken away.

The direct solver needs of the rows of a cell only K'W[K, R], with R what intercept and coarse level
leave of the target (appendix, after eq. (13)). Kept, these sums let a model learn new rows and
forget old ones without the others: what a cell then says is what a fit to its rows with the same
centres would. Map, centroids, centres, coarse level, intercept and lambda n stay as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from parkrr.data import Block, group_by_cell
from parkrr.errors import CellError, ParameterError
from parkrr.park.cells import CellReport
from parkrr.park.model import Model
from parkrr.solvers import add_gram, fill_lower, solve_statistics

BLOCK_VALUES = 2**21  # kernel values at a time: 16 MB
OUTGROWN = 4.0  # times the rows that its centres were drawn for, and a cell says so
NOTHING = 1e-9  # of weight left in a cell, and it has no rows


@dataclass(frozen=True)
class CellStatistics:
    """What the rows of every cell add up to.

    Parameters
    ----------
    grams
        K'W[K, R] of every cell, Q tensors (m_q, m_q + t).
    rows, weight
        Of every cell, shape (Q,); weights in units of `unit`.
    fitted_rows
        Rows of every cell when its centres were drawn, shape (Q,).
    ridge
        lambda n, which stays.
    unit
        The weight that counts as one: the mean of the fit.
    """

    grams: list[Tensor]
    rows: Tensor
    weight: Tensor
    fitted_rows: Tensor
    ridge: float
    unit: float


def sums_of(model: Model, report: list[CellReport], blocks: Iterable[Block]) -> CellStatistics:
    """The sums of the rows that a model was fitted to, raw, a block at a time."""
    zero = torch.zeros(len(report), dtype=torch.float64)
    t = len(model.intercept)
    grams = [Z.new_zeros(len(Z), len(Z) + t, dtype=torch.float64) for Z in model.centers]
    ridge = report[0].penalty * report[0].weight  # lambda_q n_q = lambda n of every cell
    sums = CellStatistics(grams, zero, zero, zero, ridge, 1.0)
    for block in blocks:
        sums, _ = added(sums, model, block)
    unit = float(sums.weight.sum()) / sum(cell.weight for cell in report)
    grams = [gram / unit for gram in sums.grams]
    weight = sums.weight / unit
    return replace(sums, grams=grams, unit=unit, weight=weight, fitted_rows=sums.rows)


def added(
    sums: CellStatistics, model: Model, block: Block, sign: float = 1.0, decay: float = 1.0
) -> tuple[CellStatistics, list[int]]:
    """The sums with these raw rows, or without them, and the cells that they are in.

    What a cell knew before counts `decay` when new rows reach it.
    """
    X, R = seen(model, block)
    order, counts = group_by_cell(model.cell_of(X), len(model.centers))
    w = block.Y.new_ones(len(X), dtype=torch.float64) if block.w is None else block.w.double()
    w = (w / sums.unit).to(R.device)
    grams, rows, weight = list(sums.grams), sums.rows.clone(), sums.weight.clone()
    touched = [q for q, count in enumerate(counts) if count]
    for q, at in enumerate(torch.split(order, counts)):
        if not len(at):
            continue
        change = cell_gram(model, q, X[at], R[at], w[at])
        grams[q] = decay * grams[q] + sign * change
        rows[q] += sign * len(at)
        weight[q] = decay * weight[q] + sign * float(w[at].sum())
    return replace(sums, grams=grams, rows=rows, weight=weight), touched


def seen(model: Model, block: Block) -> tuple[Tensor, Tensor]:
    """Raw rows as cells see them: mapped (n, e), and what is left of the target (n, t)."""
    X = model.narrowed(block.X)
    R = block.Y.double().to(X.device) - model.intercept
    return X, R if model.coarse is None else R - model.coarse(X)


def cell_gram(model: Model, q: int, X: Tensor, R: Tensor, w: Tensor) -> Tensor:
    """K'W[K, R] of mapped rows X (n, e) of cell q, in float64, shape (m_q, m_q + t)."""
    Z = model.centers[q].double()
    total = Z.new_zeros(len(Z), len(Z) + R.shape[1])
    rows = max(1, BLOCK_VALUES // len(Z))
    for start in range(0, len(X), rows):
        at = slice(start, start + rows)
        KR = torch.cat([model.kernel(X[at].double(), Z), R[at]], 1)
        add_gram(total, KR, w[at, None])
    return fill_lower(total)


def solved(sums: CellStatistics, model: Model, q: int) -> Tensor:
    """The coefficients of cell q, eq. (8), from its sums, shape (m_q, t)."""
    gram, Z, n_q = sums.grams[q], model.centers[q], float(sums.weight[q])
    if n_q <= NOTHING:
        return gram.new_zeros(len(Z), gram.shape[1] - len(Z))
    fit = solve_statistics(model.kernel, Z, gram, sums.ridge, n_q, raise_ridge=True)
    if fit is None:
        raise CellError(q, int(sums.rows[q]), "rounding left no solution; raise penalty, or refit")
    return fit.weights


def check_weights_left(sums: CellStatistics, touched: list[int]) -> None:
    """Refuse to forget more than a cell has learned."""
    short = [q for q in touched if float(sums.weight[q]) < -NOTHING or float(sums.rows[q]) < 0]
    if short:
        raise ParameterError(
            f"X, y and sample_weight must be rows that were learned before, but cell {short[0]} "
            f"would have {int(sums.rows[short[0]])} rows left; forget what fit and partial_fit saw"
        )


def updated(model: Model, sums: CellStatistics, touched: list[int]) -> Model:
    """The model with the touched cells solved again; the others are not looked at."""
    weights = list(model.weights)
    for q in touched:
        weights[q] = solved(sums, model, q)
    return model.with_weights(weights, touched)


def told(report: list[CellReport], sums: CellStatistics, touched: list[int]) -> list[CellReport]:
    """The report with what has changed in the touched cells, and whether they have outgrown."""
    report = list(report)
    for q in touched:
        rows, n_q = int(sums.rows[q]), float(sums.weight[q])
        report[q] = replace(
            report[q],
            rows=rows,
            weight=n_q,
            penalty=sums.ridge / max(n_q, 1e-300),
            outgrown=rows > OUTGROWN * float(sums.fitted_rows[q]),
        )
    return report


def plain_sums(sums: CellStatistics) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Sums as plain facts and tensors; of every gram the part on and right of the diagonal."""
    parts = [upper(gram) for gram in sums.grams]
    tensors = {
        "grams": torch.cat(parts),
        "rows": sums.rows,
        "weight": sums.weight,
        "fitted_rows": sums.fitted_rows,
    }
    return {"ridge": sums.ridge, "unit": sums.unit}, tensors


def upper(gram: Tensor) -> Tensor:
    """K'WK on and above the diagonal, then K'WR, of a gram (m, m + t), in one row."""
    m = len(gram)
    row, column = torch.triu_indices(m, m)
    return torch.cat([gram[row, column], gram[:, m:].reshape(-1)])


def sums_from(
    facts: dict[str, float], tensors: dict[str, Tensor], sizes: list[int], t: int
) -> CellStatistics:
    """The sums that facts and tensors describe, of cells with so many centres and t targets."""
    lengths = [m * (m + 1) // 2 + m * t for m in sizes]
    parts = torch.split(tensors["grams"], lengths)
    grams = [whole(part, m, t) for part, m in zip(parts, sizes, strict=True)]
    return CellStatistics(
        grams,
        tensors["rows"],
        tensors["weight"],
        tensors["fitted_rows"],
        facts["ridge"],
        facts["unit"],
    )


def whole(part: Tensor, m: int, t: int) -> Tensor:
    """A gram (m, m + t) from what `upper` keeps of it."""
    gram = part.new_zeros(m, m + t)
    row, column = torch.triu_indices(m, m)
    gram[row, column] = part[: len(row)]
    gram[:, m:] = part[len(row) :].view(m, t)
    return fill_lower(gram)
