"""A model as one file: tensors and plain data, a format version, no pickle.

The file holds what predictions need and nothing of the training rows but the centres. The names
of tensors are those of :class:`parkrr.park.model.Model`; cells are concatenated.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.data import draw, publishing
from parkrr.errors import ModelFileError, ParameterError
from parkrr.kernels import KERNELS, FeatureMap, Kernel
from parkrr.park import Coarse, CoarseModel, Model
from parkrr.partition import Blend
from parkrr.persistence.plain_checks import NOT_FINITE, check_fields
from parkrr.persistence.schema import SETTINGS, check_model
from parkrr.persistence.tensor_file import read_tensors, write_tensors
from parkrr.uncertainty import Intervals, Posterior

VERSION = 3
NOTHING: Mapping[str, Tensor] = {}
REFUSED = "a model file cannot hold this model"
NARROW = {"float16": torch.float16, "float32": torch.float32}
CHANGED_ROWS = 2000  # centres at which a model with narrower ones is compared with itself


class Saved(NamedTuple):
    """What a file holds: a model, plain facts, and more tensors."""

    model: Model
    facts: dict[str, Any]
    more: dict[str, Tensor]


def write_model(
    path: Path,
    model: Model,
    facts: dict[str, Any],
    more: Mapping[str, Tensor] = NOTHING,
    narrow: torch.dtype | None = None,
) -> None:
    """Publish a model, plain facts about it and more tensors at once, or not at all.

    Centres may be stored in a narrower dtype than they are used in.
    """
    wide = [Z.dtype == torch.float64 for Z in model.centers]
    tensors = {
        "centroids": model.centroids,
        "sizes": torch.tensor([len(Z) for Z in model.centers]),
        "wide": torch.tensor(wide),
        "centers": stacked(model, torch.float32, narrow),
        "centers.wide": stacked(model, torch.float64, narrow),
        "weights": torch.cat(model.weights),
        "intercept": model.intercept,
    }
    tensors |= {f"metric.{name}": t.double() for name, t in parts_of(model.metric).items()}
    if model.coarse is not None:
        tensors |= {"coarse.centers": model.coarse.centers, "coarse.weights": model.coarse.weights}
    about = {
        "format": "parkrr model",
        "version": VERSION,
        "kernel": plain_kernel(model.kernel),
        "coarse_kernel": model.coarse and plain_kernel(model.coarse.kernel),
        "blend": asdict(model.blend),
    }
    with sound(REFUSED):
        check_model(tensors, about)
    tensors |= {f"more.{name}": tensor for name, tensor in more.items()}
    with publishing(path) as temporary:
        write_tensors(temporary, tensors, {**about, "facts": facts})


def stacked(model: Model, dtype: torch.dtype, narrow: torch.dtype | None) -> Tensor:
    """The centres of cells of that dtype, one cell after the other."""
    own = [Z.to(narrow or dtype).cpu() for Z in model.centers if Z.dtype == dtype]
    return torch.cat([torch.empty(0, model.centroids.shape[1], dtype=narrow or dtype), *own])


def parts_of(metric: FeatureMap) -> dict[str, Tensor]:
    """The tensors of a map that have a say: none without an origin."""
    found = {field.name: getattr(metric, field.name) for field in fields(FeatureMap)}
    there = {name: tensor for name, tensor in found.items() if tensor is not None}
    return there if metric.origin is not None else {}


def narrowed(model: Model, narrow: torch.dtype) -> Model:
    """The model with centres rounded to that dtype, as it would be loaded."""
    largest = max(float(Z.abs().max()) for Z in model.centers)
    if largest > torch.finfo(narrow).max:
        raise ParameterError(
            f"centers must be None or 'float32' for this model, since its centres are as large as "
            f"{largest:.1e}, got {str(narrow).removeprefix('torch.')!r}"
        )
    return replace(model, centers=[Z.to(narrow).to(Z.dtype) for Z in model.centers])


def change(model: Model, other: Model) -> float:
    """How far two models with the same centres are apart, over the spread of the first.

    Root mean squares over outputs and up to 2,000 of the centres of the first.
    """
    Z = torch.cat([Z.to(model.centroids.dtype) for Z in model.centers])
    Z = Z[draw(len(Z), min(len(Z), CHANGED_ROWS), 0).to(Z.device)]
    before, after = model.at(Z), other.at(Z)
    spread = (before - before.mean(0)).square().mean().sqrt()
    return float((after - before).square().mean().sqrt() / spread.clamp_min(1e-300))


def read_model(path: Path, shared: bool = False) -> Saved:
    """What was written there.

    With `shared` the centres and weights of cells are views of the file, which processes have in
    common; else each is a tensor of its own, for a view travels to another process with all that
    it is a view of.
    """
    tensors, about = read_tensors(path)
    if about.get("format") != "parkrr model" or about.get("version") != VERSION:
        raise ModelFileError(
            f"{str(path)!r} must be a parkrr model of version {VERSION}, but is "
            f"{about.get('format')!r} of version {about.get('version')!r}; load it with the "
            f"version of parkrr that wrote it"
        )
    with sound(damaged(path)):
        check_fields("the file", about, SETTINGS)
        check_model(tensors, about)
        model = model_of(tensors, about, list if shared else clones)
        return Saved(model, about["facts"], inner(tensors, "more."))


def clones(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Each in memory of its own."""
    return [tensor.clone() for tensor in tensors]


@contextmanager
def sound(told: str) -> Iterator[None]:
    """What is refused inside is a ModelFileError that begins so."""
    try:
        yield
    except ValueError as error:
        raise ModelFileError(f"{told}: {error}") from error


def damaged(path: Path) -> str:
    """How a message about a file begins that has the format, but not what it asks for."""
    return f"{str(path)!r} is damaged"


def axes(model: Model) -> dict[str, int]:
    """The lengths that what comes with a model must have, by the letters of `filechecks`."""
    Q, e = model.centroids.shape
    d = e if model.metric.origin is None else len(model.metric.origin)
    t = len(model.intercept)
    grams = sum(len(Z) * (len(Z) + 1) // 2 + len(Z) * t for Z in model.centers)
    return {"Q": Q, "e": e, "d": d, "t": t, "g": grams}


def model_of(
    tensors: dict[str, Tensor],
    about: dict[str, Any],
    taken: Callable[[Iterable[Tensor]], list[Tensor]],
) -> Model:
    """The model of checked tensors and settings; `taken` makes a list of those of cells."""
    sizes, wide = tensors["sizes"].tolist(), tensors["wide"].tolist()
    both = list(zip(sizes, wide, strict=True))
    short, long = ([m for m, far in both if far == kind] for kind in (False, True))
    narrow = iter(torch.split(tensors["centers"].float(), short))
    broad = iter(torch.split(tensors["centers.wide"].double(), long))
    coarse = about["coarse_kernel"]
    return Model(
        kernel=kernel_of(about["kernel"]),
        metric=FeatureMap(**inner(tensors, "metric.")),
        centroids=tensors["centroids"],
        centers=taken(next(broad if far else narrow) for far in wide),
        weights=taken(torch.split(tensors["weights"], sizes)),
        intercept=tensors["intercept"],
        blend=Blend(**about["blend"]),
        coarse=coarse and CoarseModel(kernel_of(coarse), **inner(tensors, "coarse.")),
    )


def inner(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def plain_kernel(kernel: Kernel) -> dict[str, Any]:
    """A kernel as plain data."""
    for name, kind in KERNELS.items():
        if type(kernel) is kind:
            return {"name": name, **asdict(kernel)}  # type: ignore[call-overload]
    raise ModelFileError(
        f"a model file holds only kernels of parkrr ({sorted(KERNELS)}), got {kernel!r}; "
        f"keep such a model in Python"
    )


def kernel_of(data: dict[str, Any]) -> Kernel:
    """The kernel that checked data describe."""
    settings = {k: v for k, v in data.items() if k != "name"}
    kernel: Kernel = KERNELS[data["name"]](**settings)
    return kernel


def plain_params(params: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Those parameters of an estimator as plain data; engines and generators are left behind."""
    return {name: plain_value(params[name]) for name in known if name in params}


def plain_value(value: Any) -> Any:
    """One parameter as plain data."""
    for kind, plain in PLAIN:
        if isinstance(value, kind):
            return plain(value)
    if hasattr(value, "remote"):  # an engine
        return "ray" if value.remote else "local"
    return str(value)


def plain_coarse(level: Coarse) -> dict[str, Any]:
    """A coarse level as plain data."""
    own = None if level.kernel is None else plain_kernel(level.kernel)
    return {"n_centers": level.n_centers, "kernel": own}


PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (str | int | float | None, lambda value: value),
    (np.generic, lambda value: value.item()),
    (Kernel, lambda value: {"kernel": plain_kernel(value)}),
    (FeatureMap, lambda value: {"metric": "of the model"}),
    (Blend, lambda value: {"blend": asdict(value)}),
    (Coarse, lambda value: {"coarse": plain_coarse(value)}),
    (dict, lambda value: {"pairs": [list(pair) for pair in value.items()]}),
    (np.random.RandomState, lambda value: None),
)


def params_of(data: dict[str, Any], metric: FeatureMap) -> dict[str, Any]:
    """Parameters from plain data."""
    return {name: value_of(value, metric) for name, value in data.items()}


def value_of(value: Any, metric: FeatureMap) -> Any:
    """One parameter from checked data."""
    if not isinstance(value, dict):
        return value
    [(kind, data)] = value.items()
    if kind == "kernel":
        return kernel_of(data)
    if kind == "blend":
        return Blend(**data)
    if kind == "pairs":
        return dict(data)
    if kind == "coarse":
        return Coarse(data["n_centers"], data["kernel"] and kernel_of(data["kernel"]))
    return metric


def named(value: Any) -> Any:
    """Data with the names of numbers that are not finite, which JSON has not."""
    if isinstance(value, dict):
        return {key: named(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [named(inner) for inner in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def unnamed(value: Any) -> Any:
    """Data with numbers for such names."""
    if isinstance(value, dict):
        return {key: unnamed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [unnamed(inner) for inner in value]
    return float(value) if isinstance(value, str) and value in NOT_FINITE else value


def plain_intervals(intervals: Intervals) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Intervals as plain facts and tensors."""
    learned = intervals.learned
    facts = {"how": intervals.scale_name, "n": intervals.n}
    facts["kernel"] = learned and plain_kernel(learned.kernel)
    tensors = {
        "noise": intervals.posterior.noise,
        "ridge": intervals.posterior.ridge,
        "factors": intervals.factors,
        "quantiles": intervals.quantiles,
    }
    if learned is not None:
        tensors |= {"centers": learned.centers, "weights": learned.weights}
    return facts, tensors


def intervals_from(facts: dict[str, Any], tensors: dict[str, Tensor]) -> Intervals:
    """The intervals that facts and tensors describe."""
    learned = None
    if facts["kernel"] is not None:
        kernel = kernel_of(facts["kernel"])
        learned = CoarseModel(kernel, tensors["centers"], tensors["weights"])
    posterior = Posterior(tensors["noise"], tensors["ridge"])
    rest = (tensors["factors"], tensors["quantiles"], facts["n"])
    return Intervals(posterior, facts["how"], learned, *rest)
