"""From an estimator's parameters to checked settings, and to what is left to choose."""

from dataclasses import replace
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import torch

from parkrr.data import FEW_ROWS, ArraySource, draw_indices
from parkrr.errors import (
    ParameterError,
    check_bool,
    check_bytes,
    check_integer,
    check_integer_or,
    check_one_of,
    check_positive,
    check_positive_or,
)
from parkrr.kernels import (
    FeatureMap,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    Radial,
    as_kernel,
    standardize_features,
)
from parkrr.park import Coarse, FitSettings
from parkrr.partition import CENTROIDS, HARD, PARTITION_ROWS_PER_CELL, Blend, assign, balance_cells
from parkrr.planning.costs import EVEN, CellSpread, FitSize
from parkrr.planning.sizes import choose_sizes
from parkrr.runtime import as_engine, progress
from parkrr.solvers import Falkon
from parkrr.tuning import STEPS, OpenChoices, TuningLog, TuningPipeline

METRICS = ("auto", "euclidean", "learned", "standard")
FAMILIES = (Gaussian(), Matern(nu=1.5), Laplacian())
SOLVERS = ("auto", "direct", "falkon")
PRECISIONS = ("auto", "float32", "float64")
# Up to here float64 products cost nothing anyone would notice; beyond, float32 is twice as
# fast; where its error (1e-6 of the target) matters, a vote in float32 shows it.
FLOAT64_ROWS = 10_000
FIRST_PENALTY = 1e-6  # before any is chosen
SPREAD_ROWS, SPREAD_TRIES = 10_000, 4  # on which unevenness is measured, and how often
AUTO_SECONDS = 40.0  # after which descents stop


class CellCounts(Protocol):
    """Sizes of a fit, in memory or on disk."""

    @property
    def n_cells(self) -> int: ...

    @property
    def n_centers(self) -> int: ...


def wish_of(params: dict[str, Any]) -> OpenChoices:
    """What these parameters leave to choose."""
    kernel, metric = params["kernel"], as_metric(params["metric"])
    free, radial = is_auto(kernel), isinstance(families(kernel)[0], Radial)
    if metric == "auto" and not free:
        metric = "euclidean"  # a lengthscale has a unit
    if metric == "learned" and not radial:
        raise ParameterError(
            f"metric='learned' needs a radial kernel, got kernel={kernel!r}; use 'standard', or "
            f"one of gaussian, laplacian, matern"
        )
    return OpenChoices(
        families=families(kernel),
        lengthscale=free or metric == "learned",
        penalty=is_auto(params["penalty"]),
        metric=metric,
        blend=is_auto(params["blend"]),
        coarse=is_auto(params["coarse"]),
        precision=is_auto(params["precision"]),
    )


def patience(params: dict[str, Any]) -> float:
    """Seconds after which choosing comes to an end: half of the budget."""
    budget = check_positive_or("time_budget", params["time_budget"], "auto")
    return AUTO_SECONDS if budget is None else budget / 2


def shape_of(params: dict[str, Any], n: int, d: int, t: int, spread: CellSpread) -> FitSize:
    """A fit of n rows in memory in numbers, with the sizes it will have.

    Raises BudgetError if it cannot be small enough for max_memory.
    """
    wish = wish_of(params)
    open_shape = FitSize(
        n=n,
        d=d,
        t=t,
        n_cells=1,
        n_centers=n,
        spread=spread,
        wide=as_dtype(params["precision"], n) == torch.float64,
        cores=as_engine(params["engine"]).local.cores,
        families=len(wish.families) if wish.lengthscale else 0,
        learns=wish.metric == "learned" or (wish.learns and n >= max(FEW_ROWS, 10 * d)),
        chooses=wish.lengthscale or wish.penalty,
        tries=wish.blend or wish.coarse,
        keeps=check_keeping(params["keep_statistics"]),
        patience=patience(params),
        solver=check_one_of("solver", params["solver"], SOLVERS),
    )
    sizes = choose_sizes(
        open_shape,
        **given_sizes(params),
        time_budget=check_positive_or("time_budget", params["time_budget"], "auto"),
        max_memory=check_bytes("max_memory", params["max_memory"]),
    )
    return replace(open_shape, n_cells=sizes.n_cells, n_centers=sizes.n_centers)


def spread_of(params: dict[str, Any], rows: ArraySource, n_cells: int) -> CellSpread:
    """How uneven cells will be, from partitions of a sample in standard units.

    Copies of one row, which no metric can tell apart, make cells that cannot be split.
    """
    if n_cells == 1:
        return EVEN
    sample = rows.sample(SPREAD_ROWS, 0)
    X = standardize_features(sample.X)(sample.X, torch.float32)
    n_cells = max(1, min(n_cells, len(X) // PARTITION_ROWS_PER_CELL))
    cores, even = as_engine(params["engine"]).local.cores, check_bool("balance", params["balance"])
    found = [partitioned(X, n_cells, even, cores, seed) for seed in range(SPREAD_TRIES)]
    return CellSpread(*(sum(values) / len(values) for values in zip(*found, strict=True)))


def partitioned(X: torch.Tensor, n_cells: int, even: bool, cores: int, seed: int) -> CellSpread:
    """How uneven the cells of one partition of X (n, d) are."""
    kernel = Gaussian(X.shape[1] ** 0.5)
    C = X[draw_indices(len(X), n_cells, seed)]
    if even:
        C = balance_cells(kernel, X, None, C, rule="uniform", lightest=1.0, seed=seed)
    counts = torch.bincount(assign(kernel, X, C), minlength=len(C)).double()
    sizes = counts.sort(descending=True).values * n_cells / len(X)  # (about Q,)
    at_once = float(sizes[:cores].square().sum())
    moments = (float(sizes.pow(k).sum()) / n_cells for k in (2, 3))
    return CellSpread(float(sizes[0]), at_once, *moments)


def given_sizes(params: dict[str, Any]) -> dict[str, int | None]:
    """Cells and centres the user asks for."""
    names = ("n_cells", "n_centers")
    return {name: check_integer_or(name, params[name], "auto") for name in names}


def park_of(
    params: dict[str, Any], wish: OpenChoices, sizes: CellCounts, n: int, seed: int
) -> FitSettings:
    """Algorithm 1 for n rows; what is to be chosen is a first guess."""
    return FitSettings(
        kernel=families(params["kernel"])[0],
        penalty=check_positive_or("penalty", params["penalty"], "auto") or FIRST_PENALTY,
        metric=wish.metric,
        n_cells=sizes.n_cells,
        n_centers=sizes.n_centers,
        centroids=check_one_of("centroids", params["centroids"], CENTROIDS),
        n_candidates=check_integer_or("n_candidates", params["n_candidates"], None),
        balance=check_bool("balance", params["balance"]),
        blend=as_blend(params["blend"]),
        coarse=as_coarse(params["coarse"]),
        solver=check_one_of("solver", params["solver"], SOLVERS),
        falkon=Falkon(
            check_integer("max_iter", params["max_iter"]),
            check_positive("tol", params["tol"]),
        ),
        fit_intercept=check_bool("fit_intercept", params["fit_intercept"]),
        dtype=as_dtype(params["precision"], n),
        engine=as_engine(params["engine"]),
        seed=seed,
        shown=check_bool("progress", params["progress"]),
    )


def check_keeping(keep_statistics: bool | str) -> bool:
    """Whether statistics are to be kept whatever they take."""
    if is_auto(keep_statistics):
        return False
    if not isinstance(keep_statistics, bool | np.bool_):
        raise ParameterError(
            f"keep_statistics must be True, False or 'auto', got {keep_statistics!r}"
        )
    return bool(keep_statistics)


def as_dtype(precision: str, n: int) -> torch.dtype:
    """The dtype of products over rows."""
    precision = check_one_of("precision", precision, PRECISIONS)
    if precision == "auto":
        precision = "float32" if n > FLOAT64_ROWS else "float64"
    return torch.float32 if precision == "float32" else torch.float64


def is_auto(value: Any) -> bool:
    """Whether a parameter is left to us."""
    return isinstance(value, str) and value == "auto"


def families(kernel: Kernel | str) -> tuple[Kernel, ...]:
    """The kernels to choose from."""
    return FAMILIES if is_auto(kernel) else (as_kernel(kernel),)


def as_metric(metric: FeatureMap | str) -> FeatureMap | str:
    """The map itself, or the name of one."""
    if isinstance(metric, FeatureMap):
        return metric
    return check_one_of("metric", metric, METRICS)


def as_blend(blend: Blend | int | str) -> Blend:
    """The blend itself; 1 is the nearest cell alone."""
    if isinstance(blend, Blend):
        return blend
    if is_auto(blend) or blend == 1:
        return HARD
    raise ParameterError(f"blend must be 1 or a Blend(n_nearest, width), got {blend!r}")


def as_coarse(coarse: Coarse | int | str) -> Coarse | None:
    """The coarse level itself, or one with that many centres; 0 is none."""
    if isinstance(coarse, Coarse):
        return coarse
    if is_auto(coarse) or (isinstance(coarse, Integral) and coarse == 0):
        return None
    return Coarse(check_integer("coarse", coarse, "a number of centres >= 0 or a Coarse"))


def chosen_park(
    park: FitSettings, wish: OpenChoices, seconds: float, rows: ArraySource
) -> tuple[FitSettings, TuningLog]:
    """The settings with every choice made on these rows, here and not on a cluster."""
    if not wish.anything:
        return park, TuningLog()
    here = replace(park, engine=park.engine.local, shown=False)
    with progress("choosing", STEPS, "steps", park.shown) as tick:
        settled, diary = TuningPipeline(here, wish, seconds, tick).run(rows)
    return replace(settled, engine=park.engine, shown=park.shown), diary
