"""Questions to a fitted model, answered with plain data: cells, errors, borders, theory.

Knows estimators only by what it asks of them, for their classes live in a higher layer, and draws
nothing. What is asked about rows may be asked about any rows, best about those not in the fit.
"""

import re
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parkrr.data import draw_indices, group_by_cell
from parkrr.errors import ParameterError
from parkrr.park import CellReport, Model
from parkrr.solvers import kernel_of_rows
from parkrr.theory import Theory, theory
from parkrr.uncertainty import COVERAGE, DiagnosticRows, Predictor

Array = NDArray[Any]
BORDER_ROWS = 4000  # at which cells are compared
BORDER_SHARE = 0.1  # of them, those with the smallest gap, are near a border
NO_SPREAD = 1e-12  # of the largest prediction: what differs by less is rounding
THEORY_CELLS = 50  # angles are computed between all pairs of them
THEORY_DRAW = 20  # rows drawn for each that is used, for the cells may be few of many


class Fitted(Protocol):
    """What is asked of a fitted estimator."""

    model_: Model
    report_: list[CellReport]
    chosen_: Any
    validation_rows_: DiagnosticRows
    n_features_in_: int

    def _rows(self, X: Any) -> Tensor: ...

    def _predictor(self) -> Predictor: ...

    @property
    def _cores(self) -> int: ...


class Balance(NamedTuple):
    """How evenly rows are spread over cells; rows count the same whatever their weights.

    Parameters
    ----------
    cells, rows
        How many there are.
    smallest, median, largest
        Rows of a cell.
    ratio
        Rows of the largest cell over the mean.
    largest_share
        Share of all rows that are in the largest cell.
    effective
        1 / sum rho_q^2: as many equal cells would be as uneven.
    """

    cells: int
    rows: int
    smallest: int
    median: float
    largest: int
    ratio: float
    largest_share: float
    effective: float


def balance(model: Fitted) -> Balance:
    """How evenly the rows of the fit are spread over cells.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> from parkrr.inspection.diagnostics import balance
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> balance(model).rows
    400
    """
    rows = np.array([cell.rows for cell in fitted(model).report_])
    n = int(rows.sum())
    return Balance(
        cells=len(rows),
        rows=n,
        smallest=int(rows.min()),
        median=float(np.median(rows)),
        largest=int(rows.max()),
        ratio=float(rows.max() / rows.mean()),
        largest_share=float(rows.max() / n),
        effective=float(1 / np.square(rows / n).sum()),
    )


def cell_table(model: Fitted) -> list[dict[str, Any]]:
    """A dict per cell: how it was fitted, as in `report_`, and its share rho_q of the weight.

    ``pandas.DataFrame(cell_table(model))`` is a table.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> from parkrr.inspection.diagnostics import cell_table
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> round(sum(cell["share"] for cell in cell_table(model)), 6)
    1.0
    """
    total = sum(cell.weight for cell in fitted(model).report_)
    return [{**asdict(cell), "share": cell.weight / total} for cell in model.report_]


def errors_by_cell(model: Fitted, X: Any, y: ArrayLike) -> list[dict[str, Any]]:
    """How far off the model is on rows X (n, d) with targets y, a dict per cell that has any.

    Of a regressor "rmse", the root mean squared error, and "bias", the mean of prediction less
    truth, over rows and targets; of a classifier "error_rate" and "log_loss".

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> from parkrr.inspection.diagnostics import errors_by_cell
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> round(errors_by_cell(model, X, X[:, 0] + 1)[0]["bias"], 2)
    -1.0
    """
    rows = fitted(model)._rows(X)
    cell = cells_of(model, rows)
    if hasattr(model, "classes_"):
        labels, at = labels_of(model, y, len(rows))
        wrong = model._predictor().predict(rows, model._cores) != labels
        means = {"error_rate": wrong, "log_loss": -np.log(chances(model, rows, at))}
    else:
        off = differences(model, rows, y)  # (n, t)
        means = {"rmse": np.square(off).mean(1), "bias": off.mean(1)}
    count = np.bincount(cell, minlength=len(model.report_))
    there = count.nonzero()[0]
    found = {name: np.bincount(cell, v)[there] / count[there] for name, v in means.items()}
    if "rmse" in found:
        found["rmse"] = np.sqrt(found["rmse"])
    columns = {"cell": there, "rows": count[there], **found}
    return as_dicts({name: values.tolist() for name, values in columns.items()})


def worst_rows(model: Fitted, X: Any, y: ArrayLike, count: int = 20) -> list[dict[str, Any]]:
    """The rows of X (n, d) with the largest errors, the worst first.

    Each with its "index" in X, "cell", "truth", "prediction", "error" and "novelty". The error is
    prediction less truth, with several targets the root of their mean square; of a classifier
    one minus the probability of the true class.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> from parkrr.inspection.diagnostics import worst_rows
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> y = X[:, 0].copy()
    >>> y[7] = 5
    >>> worst_rows(model, X, y, count=1)[0]["index"]
    7
    """
    rows = fitted(model)._rows(X)
    if hasattr(model, "classes_"):
        truth, at = labels_of(model, y, len(rows))
        error = 1 - chances(model, rows, at)
    else:
        off = differences(model, rows, y)  # (n, t)
        error = off[:, 0] if off.shape[1] == 1 else np.sqrt(np.square(off).mean(1))
        truth = model._predictor().flatten(targets_of(model, y, len(rows)))
    worst = np.argsort(-np.abs(error), kind="stable")[:count]
    answering, at_worst = model._predictor(), rows[torch.from_numpy(worst)]
    columns = {
        "index": worst,
        "cell": cells_of(model, at_worst),
        "truth": truth[worst],
        "prediction": answering.predict(at_worst, model._cores),
        "error": error[worst],
        "novelty": answering.novelty(at_worst, model._cores),
    }
    return as_dicts({name: values.tolist() for name, values in columns.items()})


class BorderJumps(NamedTuple):
    """How far the estimators of two cells are apart where these meet.

    Parameters
    ----------
    rows
        Rows near a border that were looked at; 0 if there is one cell.
    median, high
        Of the jumps, and their 0.9 quantile, in standard deviations of the predictions.
    blended
        Whether predictions pass from one cell to the next in steps too small to see, so that no
        jump is left. Large ones still mean that cells disagree.
    """

    rows: int
    median: float
    high: float
    blended: bool


def border_jumps(model: Fitted, X: Any) -> BorderJumps:
    """How far predictions would jump at borders, if the nearest cell alone answered.

    At the tenth of rows X (n, d), at most 4,000, whose two nearest centroids are most nearly at
    the same distance, the estimator of the nearest cell against that of the second nearest.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> from parkrr.inspection.diagnostics import border_jumps
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> border_jumps(model, X).high < 0.1
    True
    """
    inner, rows = fitted(model).model_, model._rows(X)
    rows = rows[draw_indices(len(rows), BORDER_ROWS, 0)]
    Q = len(inner.centroids)
    blended = inner.blend.n_blended(Q) > 1
    if Q == 1:
        return BorderJumps(0, 0.0, 0.0, blended)
    Z = inner.narrowed(rows)
    cells, gaps = inner.centroid_distances.nearest(Z, 2)  # (n, 2) each
    near = gaps[:, 1].argsort()[: max(1, round(BORDER_SHARE * len(Z)))]
    first, second = (local_values(inner, Z[near], cells[near, k]) for k in (0, 1))  # (b, t)
    values = inner.predict(rows, model._cores)
    spread = values.std(0, correction=0)  # (t,)
    # Of a constant target both are rounding; their ratio would be anything.
    known = spread > NO_SPREAD * values.abs().max()
    jumps = torch.where(known, (first - second) / torch.where(known, spread, 1.0), 0.0)
    sizes = jumps.square().mean(1).sqrt().cpu().numpy()  # (b,)
    median, high = np.quantile(sizes, [0.5, 0.9]).tolist()
    return BorderJumps(len(sizes), median, high, blended)


def theory_of(model: Fitted, X: Any, n_rows: int = 1000, random_state: int = 0) -> Theory:
    """What the paper's theory says of the model's cells, on a sample of rows X (n, d).

    The function f of the theory is the kernel ridge fit, with all sampled rows and the penalty
    of the model, of what the model says of them, its mean taken away. Without targets the model
    is all that is known of the truth; and it is fitted, not interpolated, because the model
    jumps at borders, which no function of finite norm does. Of several outputs it is the first.
    Of more than 50 cells 50 neighbours are looked at, as a problem of their own.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import ParKRegressor
    >>> from parkrr.inspection.diagnostics import theory_of
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor("gaussian", 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> 0 < theory_of(model, X, n_rows=100).cosine <= 1
    True
    """
    inner, rows = fitted(model).model_, model._rows(X)
    order = np.random.default_rng(random_state).permutation(len(rows))
    Z = inner.narrowed(rows[torch.from_numpy(order[: THEORY_DRAW * n_rows])])
    cell_of = inner.cell_of(Z)
    at, share = neighbours(inner, cell_of)
    Z, cell_of = Z[at][:n_rows], cell_of[at][:n_rows]
    # lambda_q = lambda / rho_q stays the same when other cells are left out.
    penalty = float(model.chosen_.params["penalty"]) / share
    f = (inner.at(Z) - inner.intercept)[:, 0]  # (n,)
    values, V = torch.linalg.eigh(kernel_of_rows(inner.kernel, Z))  # eq. (3) at any penalty
    weights = V @ (V.T @ f / (values.clamp_min(0) + penalty * len(Z)))
    return theory(inner.kernel, Z, cell_of, weights, penalty)


def neighbours(model: Model, cell_of: Tensor) -> tuple[Tensor, float]:
    """Which rows, of cells (n,), are in the cells around that of the first, and their share."""
    count = min(THEORY_CELLS, len(model.centroids))
    first = model.centroids[cell_of[:1]]
    around = model.centroid_distances.nearest(first, count)[0][0]
    inside = torch.isin(cell_of, around)
    return inside.nonzero()[:, 0], float(inside.double().mean())


def seen_rows(model: Fitted, X: Any, y: ArrayLike, coverage: float = COVERAGE) -> DiagnosticRows:
    """Rows X (n, d) with targets y as `validation_rows_` has those that were left out.

    Intervals of that coverage are missing if the fit left out too few rows to know them.
    """
    rows = fitted(model)._rows(X)
    answering, cell = model._predictor(), cells_of(model, rows)
    found: DiagnosticRows = {"cell": cell, "predicted": answering.predict(rows, model._cores)}
    if hasattr(model, "classes_"):
        found["truth"], _ = labels_of(model, y, len(rows))
        found["confidence"] = answering.probabilities(rows, model._cores).max(1)
        return found
    found["truth"] = answering.flatten(targets_of(model, y, len(rows)))
    if coverage <= answering.known_intervals.largest_coverage:
        found["lower"], found["upper"] = answering.interval(rows, coverage, model._cores)
    return found


def compared(model: Fitted, what: str) -> list[dict[str, Any]]:
    """Kernels that were tried, each with its "penalty" or "lengthscale", whichever is asked for.

    Steps of choosing see different rows and baselines, so that each has a "ratio" of its error
    to the least of its step.
    """
    found = []
    for one in (one for one in fitted(model).chosen_.tried if "kernel" in one):
        width = re.search(r"lengthscale=([^,)]+)", one["kernel"])
        at = one["penalty"] if what == "penalty" else width and float(width[1])
        if at is not None and np.isfinite(one["error"]):
            found.append({**one, "family": one["kernel"].split("(")[0], "at": at})
    least = {o["step"]: o["error"] for o in sorted(found, key=lambda o: -o["error"])}
    return [{**one, "ratio": one["error"] / max(least[one["step"]], 1e-300)} for one in found]


def fitted(model: Fitted) -> Fitted:
    """The model, if it is fitted."""
    if not hasattr(model, "report_"):
        raise ParameterError(f"model must be fitted, got {model!r}; call its fit first")
    return model


def cells_of(model: Fitted, rows: Tensor) -> Array:
    """The cell of each of the rows (n, d), shape (n,)."""
    inner = model.model_
    return inner.in_runs(inner.route, rows, model._cores).cpu().numpy()


def targets_of(model: Fitted, y: ArrayLike, n: int) -> Array:
    """Targets of a regression as numbers (n, t)."""
    Y, t = np.asarray(y, dtype=np.float64), len(model.model_.intercept)
    if Y.shape != (n, t) and not (t == 1 and Y.shape == (n,)):
        raise ParameterError(f"y must have shape {(n, t) if t > 1 else (n,)}, got {Y.shape}")
    return Y.reshape(n, t)


def labels_of(model: Any, y: ArrayLike, n: int) -> tuple[Array, Array]:
    """Labels of a classification (n,), and their numbers among the classes of the fit."""
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise ParameterError(f"y must have shape {(n,)}, got {labels.shape}")
    number = {label: k for k, label in enumerate(model.classes_.tolist())}
    unknown = sorted({repr(label) for label in labels.tolist() if label not in number})
    if unknown:
        raise ParameterError(f"y must hold labels of the fit, got also {', '.join(unknown[:5])}")
    return labels, np.array([number[label] for label in labels.tolist()], dtype=np.int64)


def differences(model: Fitted, rows: Tensor, y: ArrayLike) -> Array:
    """Prediction less truth, shape (n, t)."""
    return model._predictor().outputs(rows, model._cores) - targets_of(model, y, len(rows))


def chances(model: Fitted, rows: Tensor, at: Array) -> Array:
    """The probability of the class of each row that has that number (n,), shape (n,)."""
    P = model._predictor().probabilities(rows, model._cores)  # (n, k)
    return P[np.arange(len(P)), at].clip(np.finfo(np.float64).tiny, 1)


def local_values(model: Model, Z: Tensor, cell_of: Tensor) -> Tensor:
    """What the estimators of these cells (n,) alone say at mapped rows Z (n, e), shape (n, t)."""
    order, counts = group_by_cell(cell_of, len(model.centroids))
    values = torch.zeros(len(Z), len(model.intercept), dtype=torch.float64, device=Z.device)
    for q, at in enumerate(torch.split(order, counts)):
        section, w = model.cells[q]
        values[at] = (section(Z[at].to(w.dtype)) @ w).double()
    return values


def as_dicts(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Columns of the same length as a dict per row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
