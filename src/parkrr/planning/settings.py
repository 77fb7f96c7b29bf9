"""From an estimator's parameters to checked settings and to the choices that are left open."""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Number
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from parkrr.data import FEW_ROWS, ArraySource, Holdout, draw_indices
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
from parkrr.park import Coarse, FitSettings, make_feature_map
from parkrr.partition import CENTROIDS, HARD, PARTITION_ROWS_PER_CELL, Blend, assign, balance_cells
from parkrr.planning.sizes import (
    EVEN,
    CellSpread,
    FitSize,
    choose_sizes,
    estimate_bytes,
    free_bytes,
)
from parkrr.runtime import (
    Callback,
    as_engine,
    describe_bytes,
    follow_choices,
    release_memory,
)
from parkrr.solvers import Falkon, stabilize
from parkrr.tuning import EFFORTS, Chosen, Effort, OpenChoices, TuningLog, choose_loss_penalty, tune
from parkrr.tuning.metric_search import (
    MATRIX_COLUMNS,
    ROWS_PER_FEATURE,
    ROWS_PER_SCREENED,
    family_of,
)

METRICS = ("auto", "euclidean", "learned", "standard")
FAMILIES = (Gaussian(), Matern(nu=2.5), Matern(nu=1.5), Laplacian())
SOLVERS = ("auto", "direct", "falkon")
PRECISIONS = ("auto", "float32", "float64")
EXTRAPOLATIONS = ("bounded", "free")
# Up to here float64 products cost nothing anyone would notice; beyond, float32 is twice as fast;
# where its error (1e-6 of the target) matters, a comparison on cells in float32 shows it.
FLOAT64_ROWS = 10_000
LOSSES = ("squared_error", "poisson", "gamma", "tweedie")
POINTS_OR = {"centroids": f"one of {sorted(CENTROIDS)}", "n_centers": "a number, 'auto'"}
POWERS = (1.0, 3.0)  # of a Tweedie loss, the smallest and the largest
FIRST_PENALTY = 1e-6  # before any is chosen
SPREAD_ROWS, SPREAD_REPEATS = 10_000, 4  # on which unevenness is measured, and how often
KEPT_CHOICES = ("kernel", "penalty", "metric", "blend", "coarse", "precision")  # if "auto"
LEAST_SHARE = 0.1  # of a time budget that is left however long rows took to read
TUNING_SECONDS = 40.0  # of metric descents, on the machine whose steps are counted


class CellCounts(Protocol):
    """Sizes of a fit, in memory or on disk."""

    @property
    def n_cells(self) -> int: ...

    @property
    def n_centers(self) -> int: ...


def is_auto(value: Any) -> bool:
    """Whether a parameter is left open."""
    return isinstance(value, str) and value == "auto"


def keep_choices(params: dict[str, Any], d: int) -> dict[str, Any]:
    """The parameters with what an earlier fit chose of those that are open, if there is one.

    A kernel or a metric that is given, and other features than the d of that fit, which a fold has
    where a rare category is missing, have everything chosen again.
    """
    earlier = params.get("warm_start", False)
    if isinstance(earlier, bool | np.bool_):
        return params
    if not isinstance(earlier, Chosen):
        raise ParameterError(
            f"warm_start must be True, False or the chosen_ of a fitted estimator, got {earlier!r}"
        )
    kernel, metric = params["kernel"], earlier.params["metric"]
    same = is_auto(kernel) or (
        isinstance(kernel, str) and family_of(earlier.params["kernel"]) == as_kernel(kernel)
    )
    origin = metric.origin if isinstance(metric, FeatureMap) else None
    fits = origin is None or len(origin) == d
    if not (same and fits and params["metric"] in ("auto", "learned")):
        return params
    others = [name for name in KEPT_CHOICES if is_auto(params[name])]
    return params | {name: earlier.params[name] for name in ("kernel", "metric", *others)}


def open_choices(params: dict[str, Any], n: int, d: int) -> OpenChoices:
    """What these parameters leave open for n rows of d features.

    A kernel by name is a family: its lengthscale and the metric are open as with "auto". An
    instance is fixed as it is, and its lengthscale has a unit: that of the features.
    """
    kernel, metric = params["kernel"], params["metric"]
    families = FAMILIES if is_auto(kernel) else (as_kernel(kernel),)
    named, radial = isinstance(kernel, str), isinstance(families[0], Radial)
    if not isinstance(metric, FeatureMap):
        metric = check_one_of("metric", metric, METRICS)
    if metric == "auto" and not named:
        metric = "euclidean"
    elif metric == "auto" and not radial:
        metric = "standard"  # no metric is learned for kernels of the inner product
    if metric == "learned" and not radial:
        raise ParameterError(
            f"metric='learned' needs a radial kernel, got kernel={kernel!r}; use 'standard', or "
            f"one of gaussian, laplacian, matern"
        )
    if metric == "learned" and has_several_lengthscales(families[0]):
        raise ParameterError(
            f"metric='learned' needs a kernel with one lengthscale, which it chooses with the "
            f"weights of features, got kernel={kernel!r}; leave metric out, or kernel='gaussian'"
        )
    per_feature = ROWS_PER_SCREENED if d > MATRIX_COLUMNS else ROWS_PER_FEATURE
    enough_rows = n >= max(FEW_ROWS, per_feature * d)
    return OpenChoices(
        families=families,
        lengthscale=radial and (named or metric == "learned"),
        penalty=is_auto(params["penalty"]),
        metric=metric,
        learn_metric=metric == "learned" or (metric == "auto" and enough_rows),
        blend=is_auto(params["blend"]),
        coarse=is_auto(params["coarse"]) and check_loss(params) is None,
        precision=is_auto(params["precision"]),
        bounded=is_bounded(params),
    )


def is_bounded(params: dict[str, Any]) -> bool:
    """Whether features have bounds; leave-one-out fits of jackknife+ would have others."""
    extrapolation = check_one_of(
        "extrapolation", params.get("extrapolation", "bounded"), EXTRAPOLATIONS
    )
    return extrapolation == "bounded" and params.get("guarantee") != "jackknife+"


def apply_lengthscales(params: dict[str, Any], rows: ArraySource, seed: int) -> dict[str, Any]:
    """The parameters with lengthscales of single features made part of the feature map.

    So features are scaled once, and partition, solvers, explanations, model files and exports see
    a kernel with one lengthscale.
    """
    kernel, d = params["kernel"], rows.X.shape[1]
    if not isinstance(kernel, Radial) or not has_several_lengthscales(kernel):
        return params
    choices = open_choices(params, rows.n_rows, d)
    base = make_feature_map(choices.metric, kernel, rows, seed, choices.bounded)
    if base.origin is None:
        base = FeatureMap(torch.zeros(d, dtype=torch.float64, device=rows.X.device))
    matrix = base.matrix
    width = base.width(d) if matrix is None else matrix.shape[-1]
    kernel, weights = kernel.split_lengthscales(width)
    assert weights is not None
    matrix = weights if matrix is None else matrix * weights.to(matrix)
    return params | {"kernel": kernel, "metric": base.with_matrix(matrix.to(rows.X.device))}


def has_several_lengthscales(kernel: Kernel) -> bool:
    """Whether each feature has a lengthscale of its own."""
    return isinstance(getattr(kernel, "lengthscale", 1.0), Sequence)


def count_choices(params: dict[str, Any]) -> int:
    """How many numbers a fit with these parameters chooses by the error of its rows.

    Kernel, lengthscale and penalty as far as they are open, and the intercept.
    """
    choices = open_choices(params, 1, 1)
    several = len(choices.families) > 1
    return several + choices.lengthscale + choices.penalty + bool(params["fit_intercept"])


def build_settings(
    params: dict[str, Any], choices: OpenChoices, sizes: CellCounts, n: int, seed: int
) -> FitSettings:
    """Algorithm 1 for n rows; what is left open holds a value to start from."""
    own = check_centroids(params)
    power, coarse = check_loss(params), check_coarse(params["coarse"])
    if power is not None and coarse is not None:
        raise ParameterError(
            f"coarse must be 'auto' or 0 for loss={params['loss']!r}, got {params['coarse']!r}; "
            f"the residuals of a coarse level are for squared errors"
        )
    return FitSettings(
        kernel=choices.families[0],
        penalty=check_positive_or("penalty", params["penalty"], "auto") or FIRST_PENALTY,
        metric=choices.metric,
        bounded=choices.bounded,
        n_cells=sizes.n_cells,
        n_centers=sizes.n_centers,
        centroids="uniform" if own is not None else params["centroids"],
        own_centroids=own,
        own_centers=read_points("n_centers", params["n_centers"]),
        n_candidates=check_integer_or("n_candidates", params["n_candidates"], None),
        balance=check_bool("balance", params["balance"]) and own is None,
        blend=check_blend(params["blend"]),
        coarse=coarse,
        solver=check_one_of("solver", params["solver"], SOLVERS),
        falkon=Falkon(
            check_integer("max_iter", params["max_iter"]),
            check_positive("tol", params["tol"]),
        ),
        fit_intercept=check_bool("fit_intercept", params["fit_intercept"]),
        dtype=check_precision(params["precision"], n),
        engine=as_engine(params["engine"]),
        seed=seed,
        shown=check_bool("progress", params["progress"]),
        power=power,
    )


def check_loss(params: dict[str, Any]) -> float | None:
    """The power of the variance along the mean of a loss with a logarithmic link; None for squares.

    A classifier has no such parameter.
    """
    loss = check_one_of("loss", params.get("loss", "squared_error"), LOSSES)
    if loss == "tweedie":
        low, high = POWERS
        power = check_positive("power", params["power"])
        if not low <= power <= high:
            raise ParameterError(
                f"power must be from {low:g} (counts) over 2 (gamma) to {high:g}, got {power!r}; "
                f"for 0, a constant variance, use loss='squared_error'"
            )
        return power
    return {"squared_error": None, "poisson": 1.0, "gamma": 2.0}[loss]


def check_positive_target(rows: ArraySource, power: float) -> None:
    """Refuse targets that a loss with a logarithmic link has no mean for."""
    if rows.n_outputs > 1:
        raise ParameterError(
            f"y must be one target for a loss other than 'squared_error', got {rows.n_outputs}; "
            f"fit one estimator for each, as MultiOutputRegressor of scikit-learn does"
        )
    low, high = (float(end) for end in rows.Y.aminmax())
    if low < 0 or high == 0 or (low == 0 and power >= 2):
        rule = "> 0" if power >= 2 else ">= 0 and not all 0"
        raise ParameterError(
            f"y must be {rule} for this loss, got values from {low:g} to {high:g}; use "
            f"loss='squared_error'{', or poisson for zeros' if low == 0 and high > 0 else ''}"
        )


def tune_settings(
    params: dict[str, Any],
    settings: FitSettings,
    choices: OpenChoices,
    rows: ArraySource,
    holdout: Holdout | None = None,
    fitting_seconds: float = math.inf,
) -> tuple[FitSettings, TuningLog]:
    """The settings with every choice made on these rows, here and not on a cluster.

    A time budget leaves `fitting_seconds` for what follows, at most half of it.
    """
    if not (choices.lengthscale or choices.penalty or choices.blend or choices.coarse):
        return settings, TuningLog()
    here = replace(settings, engine=settings.engine.local, shown=False, power=None)
    compared = rows if settings.power is None else stabilize(rows, settings.power)
    seconds, deadline = tuning_seconds(params, fitting_seconds), math.inf
    if not is_auto(params["time_budget"]):
        deadline = time.perf_counter() + seconds
    with follow_choices(check_callbacks(params), deadline, settings.shown) as progress:
        effort = check_effort(params)
        tuned, log = tune(here, choices, compared, seconds, progress, holdout, effort)
    release_memory()  # what tuning took, before cells take theirs
    engine, shown, power = settings.engine, settings.shown, settings.power
    tuned = replace(tuned, engine=engine, shown=shown, power=power)
    if settings.power is not None and choices.penalty:
        tuned = choose_loss_penalty(tuned, rows, holdout, log)
    return tuned, log


def check_effort(params: dict[str, Any]) -> Effort:
    """How much is searched."""
    return EFFORTS[check_one_of("effort", params["effort"], tuple(EFFORTS))]


def check_callbacks(params: dict[str, Any]) -> Sequence[Callback]:
    """The functions that are told what is compared."""
    callbacks = params.get("callbacks") or ()
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ParameterError(
            f"callbacks must be a list of functions of one FitEvent, got {callbacks!r}"
        )
    return callbacks


def spend_time(params: dict[str, Any], started: float) -> dict[str, Any]:
    """The parameters with what is left of the time budget since a `time.perf_counter`."""
    budget = check_positive_or("time_budget", params["time_budget"], "auto")
    if budget is None:
        return params
    left = budget - (time.perf_counter() - started)
    return params | {"time_budget": max(left, LEAST_SHARE * budget)}


def tuning_seconds(params: dict[str, Any], fitting_seconds: float = math.inf) -> float:
    """Seconds of choosing: half of the time budget, or what other steps leave of it."""
    budget = check_positive_or("time_budget", params["time_budget"], "auto")
    return TUNING_SECONDS if budget is None else max(budget / 2, budget - fitting_seconds)


def check_keep_statistics(keep_statistics: bool | str) -> bool:
    """Whether statistics are to be kept whatever they take."""
    if is_auto(keep_statistics):
        return False
    if not isinstance(keep_statistics, bool | np.bool_):
        raise ParameterError(
            f"keep_statistics must be True, False or 'auto', got {keep_statistics!r}"
        )
    return bool(keep_statistics)


def check_precision(precision: str, n: int) -> torch.dtype:
    """The dtype of products over n rows."""
    precision = check_one_of("precision", precision, PRECISIONS)
    if precision == "auto":
        precision = "float32" if n > FLOAT64_ROWS else "float64"
    return torch.float32 if precision == "float32" else torch.float64


def check_blend(blend: Any) -> Blend:
    """The blend itself; 1 is the nearest cell alone."""
    if isinstance(blend, Blend):
        return blend
    if is_auto(blend) or blend == 1:
        return HARD
    raise ParameterError(
        f"blend must be 1, 'auto' or a Blend, got {blend!r}; write Blend(n_nearest, width) to "
        f"blend that many cells, or 'auto' to have number and width chosen"
    )


def check_coarse(coarse: Any) -> Coarse | None:
    """The coarse level itself, or one with that many centres; 0 is none."""
    if isinstance(coarse, Coarse):
        return coarse
    if is_auto(coarse) or (isinstance(coarse, Integral) and coarse == 0):
        return None
    return Coarse(check_integer("coarse", coarse, "a number of centres >= 0 or a Coarse"))


def check_centroids(params: dict[str, Any]) -> Tensor | None:
    """The centroids (Q, d) that are given; None for those of a rule, which must be known."""
    own = read_points("centroids", params["centroids"])
    if own is None:
        check_one_of("centroids", params["centroids"], CENTROIDS)
    return own


def read_points(name: str, given: Any) -> Tensor | None:
    """Points (k, d) in the units of the features that a parameter gives; None if it is no array."""
    if given is None or isinstance(given, str | Number):
        return None
    try:
        own = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        own = np.empty(0)
    if own.ndim != 2 or not own.size or not np.isfinite(own).all():
        raise ParameterError(
            f"{name} must be {POINTS_OR[name]}, or finite numbers with a row for each and a column "
            f"for each feature, got {given!r}"
        )
    return torch.from_numpy(own)


def count_given_centers(params: dict[str, Any]) -> int | None:
    """The number of centres that is asked for or given; None if it is left open."""
    own = read_points("n_centers", params["n_centers"])
    if own is not None:
        return len(own)
    return check_integer_or("n_centers", params["n_centers"], "auto")


def count_cells(params: dict[str, Any]) -> int | None:
    """The number of cells that is asked for; None if it is left open."""
    n_cells, own = check_integer_or("n_cells", params["n_cells"], "auto"), check_centroids(params)
    if own is not None and n_cells not in (None, len(own)):
        raise ParameterError(
            f"n_cells must be 'auto' or {len(own)}, the number of centroids that are given, got "
            f"{n_cells}"
        )
    return n_cells if own is None else len(own)


def size_fit(params: dict[str, Any], n: int, d: int, t: int, spread: CellSpread) -> FitSize:
    """A fit of n rows in memory in numbers, with the sizes it will have.

    Raises
    ------
    BudgetError
        If it cannot be small enough for max_memory.
    """
    choices = open_choices(params, n, d)
    unsized = FitSize(
        n=n,
        d=d,
        t=t,
        n_cells=1,
        n_centers=n,
        spread=spread,
        float64=check_precision(params["precision"], n) == torch.float64,
        cores=as_engine(params["engine"]).local.cores,
        families=len(choices.families) if choices.lengthscale else 0,
        learns=choices.learn_metric,
        chooses=choices.lengthscale or choices.penalty,
        tries=choices.coarse,
        keeps=check_keep_statistics(params["keep_statistics"]),
        tuning_seconds=tuning_seconds(params),
        effort=check_effort(params),
        solver=check_one_of("solver", params["solver"], SOLVERS),
    )
    return choose_sizes(
        unsized,
        n_cells=count_cells(params),
        n_centers=count_given_centers(params),
        time_budget=check_positive_or("time_budget", params["time_budget"], "auto"),
        max_memory=check_bytes("max_memory", params["max_memory"]),
        max_model_size=check_bytes("max_model_size", params["max_model_size"]),
    )


def size_rows(params: dict[str, Any], n: int) -> FitSize:
    """The sizes of a fit of n rows whatever memory it takes."""
    return size_fit({**params, "max_memory": None, "max_model_size": None}, n, 1, 1, EVEN)


def size_fit_of_sample(params: dict[str, Any], rows: ArraySource, n: int) -> FitSize:
    """The same for n rows of which `rows` are some, which show how uneven cells will be."""
    d, t = rows.X.shape[1], rows.n_outputs
    n_cells = size_fit({**params, "max_memory": None}, n, d, t, EVEN).n_cells
    return size_fit(params, n, d, t, measure_spread(params, rows, n_cells))


def check_size(params: dict[str, Any], rows: ArraySource) -> FitSize:
    """A fit of these rows in numbers; it keeps max_memory, or warns if little is free."""
    d = rows.X.shape[1]
    for name in ("centroids", "n_centers"):
        own = read_points(name, params[name])
        if own is not None and own.shape[1] != d:
            raise ParameterError(
                f"{name} must have {d} columns, one for each number of a row, got {own.shape[1]}; "
                f"columns of categories, dates and text become several"
            )
    if params["max_memory"] is not None:
        return size_fit_of_sample(params, rows, rows.n_rows)
    size = size_fit(params, rows.n_rows, rows.X.shape[1], rows.n_outputs, EVEN)
    need, free = estimate_bytes(size), free_bytes()
    if free is not None and need > free:
        warnings.warn(
            f"this fit takes about {describe_bytes(need)} and {describe_bytes(free)} are free; set "
            f"max_memory to have it smaller",
            ResourceWarning,
            stacklevel=6,
        )
    return size


def measure_spread(params: dict[str, Any], rows: ArraySource, n_cells: int) -> CellSpread:
    """How uneven cells will be, from partitions of a sample in standard units.

    Copies of one row, which no metric can tell apart, make cells that cannot be split.
    """
    if n_cells == 1:
        return EVEN
    sample = rows.sample(SPREAD_ROWS, 0)
    X = standardize_features(sample.X)(sample.X, torch.float32)
    n_cells = max(1, min(n_cells, len(X) // PARTITION_ROWS_PER_CELL))
    cores, balance = as_engine(params["engine"]).local.cores, params["balance"]
    kernel = Gaussian(X.shape[1] ** 0.5)
    spreads = []
    for seed in range(SPREAD_REPEATS):
        C = X[draw_indices(len(X), n_cells, seed)]
        if check_bool("balance", balance):
            C = balance_cells(kernel, X, None, C, rule="uniform", lightest=1.0, seed=seed)
        counts = torch.bincount(assign(kernel, X, C), minlength=len(C)).double()
        sizes = counts.sort(descending=True).values * n_cells / len(X)  # (about Q,)
        squares, cubes = (float(sizes.pow(k).sum()) / n_cells for k in (2, 3))
        at_once = float(sizes[:cores].square().sum())
        spreads.append(CellSpread(float(sizes[0]), at_once, squares, cubes))
    return CellSpread(*(sum(values) / len(values) for values in zip(*spreads, strict=True)))
