"""Facts about a fitted estimator as plain data: cells, errors, borders, theory.

Any rows can be given, best those that the fit has not seen. Nothing here draws.
"""

import re
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from parkrr.data import TableEncoder, draw_indices, group_by_cell
from parkrr.errors import ParameterError
from parkrr.park import CellReport, Model
from parkrr.solvers import kernel_of_rows
from parkrr.theory import Theory, theory
from parkrr.uncertainty import COVERAGE, DiagnosticRows, Predictor

BORDER_ROWS = 4000  # at which cells are compared
BORDER_SHARE = 0.1  # of them, those most nearly between two centroids, are near a border
NO_SPREAD = 1e-12  # of the largest prediction: smaller differences are rounding
THEORY_CELLS = 50  # angles are computed between all pairs of them
THEORY_DRAW = 20  # rows drawn for each that is used, because the cells may be few of many


class FittedEstimator(Protocol):
    """The parts of a fitted estimator used here; its classes live in a higher folder."""

    model_: Model
    report_: list[CellReport]
    chosen_: Any
    validation_rows_: DiagnosticRows
    n_features_in_: int
    columns_: TableEncoder

    def _rows(self, X: Any) -> Tensor: ...

    def _predictor(self) -> Predictor: ...

    @property
    def _cores(self) -> int: ...


class Balance(NamedTuple):
    """How evenly rows are spread over cells; rows count the same whatever their weights.

    Parameters
    ----------
    cells, rows
        Their numbers.
    smallest, median, largest
        Rows of a cell.
    ratio
        Rows of the largest cell over the mean.
    largest_share
        Share of all rows that are in the largest cell.
    effective
        1 / sum rho_q^2: the number of equal cells that would be as uneven.
    """

    cells: int
    rows: int
    smallest: int
    median: float
    largest: int
    ratio: float
    largest_share: float
    effective: float


def balance(model: FittedEstimator) -> Balance:
    """How evenly the rows of the fit are spread over cells.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.

    Returns
    -------
    Balance
        Counts and ratios.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> inspection.balance(model).rows
    400
    """
    rows = np.array([cell.rows for cell in check_fitted(model).report_])
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


def cell_table(model: FittedEstimator) -> list[dict[str, Any]]:
    """A dict per cell: how it was fitted, as in `report_`, and its share rho_q of the weight.

    ``pandas.DataFrame(cell_table(model))`` is a table.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.

    Returns
    -------
    list of dict
        One per cell.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> round(sum(cell["share"] for cell in inspection.cell_table(model)), 6)
    1.0
    """
    total = sum(cell.weight for cell in check_fitted(model).report_)
    return [{**cell._asdict(), "share": cell.weight / total} for cell in model.report_]


def errors_by_cell(model: FittedEstimator, X: Any, y: ArrayLike) -> list[dict[str, Any]]:
    """Errors on rows X (n, d) with targets y, a dict per cell that has any of the rows.

    For a regressor "rmse", the root mean squared error, and "bias", the mean of prediction less
    truth, over rows and targets; for a classifier "error_rate" and "log_loss".

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame of shape (n, d)
        Rows, such as test rows.
    y : array-like of shape (n,) or (n, t)
        Their targets or labels.

    Returns
    -------
    list of dict
        One per cell that has rows.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> round(inspection.errors_by_cell(model, X, X[:, 0] + 1)[0]["bias"], 2)
    -1.0
    """
    rows = evaluate_rows(model, X, y, coverage=None)
    if "likelihood" in rows:
        wrong = rows["predicted"] != rows["truth"]
        values = {"error_rate": wrong, "log_loss": -np.log(rows["likelihood"])}
    else:
        off = (rows["predicted"] - rows["truth"]).reshape(len(rows["cell"]), -1)  # (n, t)
        values = {"rmse": np.square(off).mean(1), "bias": off.mean(1)}
    count = np.bincount(rows["cell"])
    present = count.nonzero()[0]
    means = {k: np.bincount(rows["cell"], v)[present] / count[present] for k, v in values.items()}
    if "rmse" in means:
        means["rmse"] = np.sqrt(means["rmse"])
    return as_records({"cell": present, "rows": count[present], **means})


def worst_rows(
    model: FittedEstimator, X: Any, y: ArrayLike, count: int = 20
) -> list[dict[str, Any]]:
    """The rows of X (n, d) with the largest errors, the worst first.

    Each with its "index" in X, "cell", "truth", "prediction", "error" and "novelty". The error is
    prediction less truth, for several targets the root of their mean square; for a classifier
    one minus the probability of the true class.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame of shape (n, d)
        Rows, such as test rows.
    y : array-like of shape (n,) or (n, t)
        Their targets or labels.
    count : int, default=20
        How many rows, at least 1.

    Returns
    -------
    list of dict
        One per row, the largest error first.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> y = X[:, 0].copy()
    >>> y[7] = 5
    >>> inspection.worst_rows(model, X, y, count=1)[0]["index"]
    7
    """
    rows = evaluate_rows(model, X, y, coverage=None)
    if "likelihood" in rows:
        error = 1 - rows["likelihood"]
    else:
        off = (rows["predicted"] - rows["truth"]).reshape(len(rows["cell"]), -1)  # (n, t)
        error = off[:, 0] if off.shape[1] == 1 else np.sqrt(np.square(off).mean(1))
    worst = np.argsort(-np.abs(error), kind="stable")[:count]
    columns = {"index": worst, "cell": rows["cell"][worst], "truth": rows["truth"][worst]}
    columns |= {"prediction": rows["predicted"][worst], "error": error[worst]}
    X_worst = model._rows(X)[torch.from_numpy(worst)]
    columns["novelty"] = model._predictor().novelty(X_worst, model._cores)
    return as_records(columns)


class BorderJumps(NamedTuple):
    """How far the estimators of two cells are apart where the cells meet.

    Parameters
    ----------
    rows
        Rows near a border that were compared; 0 if there is one cell.
    median, high
        Of the jumps, and their 0.9 quantile, in standard deviations of the predictions.
    blended
        Whether predictions pass from one cell to the next smoothly, so that no jump is left.
        Large ones still mean that cells disagree.
    """

    rows: int
    median: float
    high: float
    blended: bool


def border_jumps(model: FittedEstimator, X: Any) -> BorderJumps:
    """How far predictions would jump at borders if only the nearest cell predicted.

    At the tenth of rows X (n, d), at most 4,000, whose two nearest centroids are most nearly at
    the same distance, the estimator of the nearest cell is compared with that of the second.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame of shape (n, d)
        Rows, such as test rows.

    Returns
    -------
    BorderJumps
        Sizes of the jumps.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> inspection.border_jumps(model, X).high < 0.1
    True
    """
    inner, rows = linear_model(model), model._rows(X)
    rows = rows[draw_indices(len(rows), BORDER_ROWS, 0)]
    Q = len(inner.centroids)
    blended = inner.blend.n_blended(Q) > 1
    if Q == 1:
        return BorderJumps(0, 0.0, 0.0, blended)
    Z = inner.map_rows(rows)
    cells, farther = inner.kernel.distance(inner.centroids).nearest(Z, 2)  # (n, 2) each
    near = farther[:, 1].argsort()[: max(1, round(BORDER_SHARE * len(Z)))]
    Z, cells = Z[near], cells[near]

    def local_values(cell_of: Tensor) -> Tensor:  # (b,) -> (b, t)
        order, counts = group_by_cell(cell_of, Q)
        values = torch.zeros(len(Z), len(inner.intercept), dtype=torch.float64, device=Z.device)
        for q, members in enumerate(torch.split(order, counts)):
            block, w = inner.cells[q]
            values[members] = (block(Z[members].to(w.dtype)) @ w).double()
        return values

    difference = local_values(cells[:, 0]) - local_values(cells[:, 1])
    values = inner.predict(rows, model._cores)
    spread = values.std(0, correction=0)  # (t,)
    # For a constant target both are rounding, and their ratio could be anything.
    known = spread > NO_SPREAD * values.abs().max()
    jumps = torch.where(known, difference / torch.where(known, spread, 1.0), 0.0)
    sizes = jumps.square().mean(1).sqrt().cpu().numpy()  # (b,)
    median, high = np.quantile(sizes, [0.5, 0.9]).tolist()
    return BorderJumps(len(sizes), median, high, blended)


def theory_of(model: FittedEstimator, X: Any, n_rows: int = 1000, random_state: int = 0) -> Theory:
    """The quantities of the paper's theory for the model's cells, on a sample of rows X (n, d).

    The function f of the theory is the kernel ridge fit, with all sampled rows and the penalty
    of the model, to the model's predictions less their mean. Without targets the model is all that
    is known of the truth; it is fitted, not interpolated, because the model jumps at borders,
    which no function of finite norm does. With several outputs it is the first. Of more than 50
    cells, 50 neighbours are used, as a problem of their own.

    Parameters
    ----------
    model : ParKRegressor or ParKClassifier
        A fitted estimator.
    X : array-like or frame of shape (n, d)
        Rows, such as test rows.
    n_rows : int, default=1000
        Rows to sample; memory grows with its square.
    random_state : int, default=0
        Seed of the sample.

    Returns
    -------
    Theory
        Angles, effective dimensions and bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(), 1e-6, n_cells=4, blend=1, coarse=0).fit(X, X[:, 0])
    >>> 0 < inspection.theory_of(model, X, n_rows=100).cosine <= 1
    True
    """
    inner, rows = linear_model(model), model._rows(X)
    order = np.random.default_rng(random_state).permutation(len(rows))
    Z = inner.map_rows(rows[torch.from_numpy(order[: THEORY_DRAW * n_rows])])
    cell_of = inner.assign(Z)
    first, count = inner.centroids[cell_of[:1]], min(THEORY_CELLS, len(inner.centroids))
    around = inner.kernel.distance(inner.centroids).nearest(first, count)[0][0]
    inside = torch.isin(cell_of, around)
    Z, cell_of = Z[inside][:n_rows], cell_of[inside][:n_rows]
    # lambda_q = lambda / rho_q stays the same when other cells are left out.
    penalty = float(model.chosen_.params["penalty"]) / float(inside.double().mean())
    f = (inner.evaluate(Z) - inner.intercept)[:, 0]  # (n,)
    values, V = torch.linalg.eigh(kernel_of_rows(inner.kernel, Z))  # eq. (3) at any penalty
    weights = V @ (V.T @ f / (values.clamp_min(0) + penalty * len(Z)))
    return theory(inner.kernel, Z, cell_of, weights, penalty)


def linear_model(model: FittedEstimator) -> Model:
    """The model before its link: for a loss with a logarithmic one, the logarithm of the mean."""
    inner = check_fitted(model).model_
    return inner if inner.link == "identity" else inner.replace_limits(None, link="identity")


def evaluate_rows(
    model: FittedEstimator, X: Any, y: ArrayLike, coverage: float | None = COVERAGE
) -> DiagnosticRows:
    """Rows X (n, d) with targets y in the form of `validation_rows_`.

    "cell", "truth" and "predicted"; for a regressor "lower" and "upper" of intervals, unless
    coverage is None or higher than the fit can estimate; for a classifier "confidence", the
    probability of the predicted class, and "likelihood", that of the true one.
    """
    rows = check_fitted(model)._rows(X)
    inner, predictor, n = model.model_, model._predictor(), len(rows)
    columns: DiagnosticRows = {
        "cell": inner.apply_in_chunks(inner.route, rows, model._cores).cpu().numpy(),
        "predicted": predictor.predict(rows, model._cores),
    }
    if predictor.classes is not None:
        truth = np.asarray(y)
        if truth.shape != (n,):
            raise ParameterError(f"y must have shape {(n,)}, got {truth.shape}")
        number = {label: k for k, label in enumerate(predictor.classes.tolist())}
        unknown = sorted({repr(label) for label in truth.tolist() if label not in number})
        if unknown:
            extra = ", ".join(unknown[:5])
            raise ParameterError(f"y must hold labels of the fit, got also {extra}")
        P = predictor.probabilities(rows, model._cores)  # (n, k)
        own = P[np.arange(n), [number[label] for label in truth.tolist()]]
        columns |= {"truth": truth, "confidence": P.max(1)}
        return columns | {"likelihood": own.clip(np.finfo(np.float64).tiny, 1)}
    truth, t = np.asarray(y, dtype=np.float64), len(inner.intercept)
    if truth.shape != (n, t) and not (t == 1 and truth.shape == (n,)):
        raise ParameterError(f"y must have shape {(n, t) if t > 1 else (n,)}, got {truth.shape}")
    columns["truth"] = predictor.flatten(truth.reshape(n, t))
    if coverage is not None and coverage <= predictor.known_intervals.largest_coverage:
        columns["lower"], columns["upper"] = predictor.interval(rows, coverage, model._cores)
    return columns


def tuning_errors(model: FittedEstimator, parameter: str) -> list[dict[str, Any]]:
    """Kernels that were compared, each with the "value" of its "penalty" or "lengthscale".

    Steps of the search use different rows and baselines, so each has the "ratio" of its error to
    the least of its step.
    """
    tried = []
    for one in (one for one in check_fitted(model).chosen_.tried if "kernel" in one):
        width = re.search(r"lengthscale=([^,()]+)", one["kernel"])
        value = one["penalty"] if parameter == "penalty" else width and float(width[1])
        if value is not None and np.isfinite(one["error"]):
            tried.append({**one, "family": one["kernel"].split("(")[0], "value": value})
    least = {one["step"]: one["error"] for one in sorted(tried, key=lambda one: -one["error"])}
    return [{**one, "ratio": one["error"] / max(least[one["step"]], 1e-300)} for one in tried]


def feature_names(model: FittedEstimator) -> list[str]:
    """The names of the features, x0, x1 and so on if they have none."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{k}" for k in range(model.n_features_in_)] if names is None else list(names)


def check_fitted(model: FittedEstimator) -> FittedEstimator:
    """The model, if it is fitted."""
    if not hasattr(model, "report_"):
        raise ParameterError(f"model must be fitted, got {model!r}; call its fit first")
    return model


def as_records(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Arrays of the same length as a dict per row, of Python values."""
    lists = [values.tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
