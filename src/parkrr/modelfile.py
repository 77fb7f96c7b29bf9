"""A model as one file: tensors and plain data, a format version, no pickle.

The file holds what predictions need and nothing of the training rows but the centres. The names
of tensors are those of :class:`parkrr.model.Model`; cells are concatenated.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parkrr.engine import LocalEngine
from parkrr.errors import ModelFileError
from parkrr.fit import Coarse
from parkrr.intervals import Intervals, Posterior
from parkrr.kernels import KERNELS, Kernel
from parkrr.ledger import publishing
from parkrr.metrics import FeatureMap
from parkrr.model import CoarseModel, Model
from parkrr.partition import Blend
from parkrr.ray_engine import RayEngine
from parkrr.tensorfile import read_tensors, write_tensors

VERSION = 3
NOTHING: Mapping[str, Tensor] = {}


class Saved(NamedTuple):
    """What a file holds: a model, plain facts, and more tensors."""

    model: Model
    facts: dict[str, Any]
    more: dict[str, Tensor]


def write_model(
    path: Path, model: Model, facts: dict[str, Any], more: Mapping[str, Tensor] = NOTHING
) -> None:
    """Publish a model, plain facts about it and more tensors at once, or not at all."""
    sizes = [len(Z) for Z in model.centers]
    wide = [Z.dtype == torch.float64 for Z in model.centers]
    longest = torch.float64 if any(wide) else torch.float32
    tensors = {
        "centroids": model.centroids,
        "sizes": torch.tensor(sizes),
        "wide": torch.tensor(wide),
        "centers": torch.cat([Z.to(longest) for Z in model.centers]),
        "weights": torch.cat(model.weights),
        "intercept": model.intercept,
    }
    for field in fields(FeatureMap):
        tensor = getattr(model.metric, field.name)
        if tensor is not None:
            tensors[f"metric.{field.name}"] = tensor
    if model.coarse is not None:
        tensors |= {"coarse.centers": model.coarse.centers, "coarse.weights": model.coarse.weights}
    tensors |= {f"more.{name}": tensor for name, tensor in more.items()}
    about = {
        "format": "parkrr model",
        "version": VERSION,
        "kernel": plain_kernel(model.kernel),
        "coarse_kernel": model.coarse and plain_kernel(model.coarse.kernel),
        "blend": asdict(model.blend),
    }
    with publishing(path) as temporary:
        write_tensors(temporary, tensors, {**about, "facts": facts})


def read_model(path: Path) -> Saved:
    """What was written there."""
    tensors, about = read_tensors(path)
    if about.get("format") != "parkrr model" or about.get("version") != VERSION:
        raise ModelFileError(
            f"{str(path)!r} must be a parkrr model of version {VERSION}, but is "
            f"{about.get('format')!r} of version {about.get('version')!r}; load it with the "
            f"version of parkrr that wrote it"
        )
    sizes, wide = tensors["sizes"].tolist(), tensors["wide"].tolist()
    centers = torch.split(tensors["centers"], sizes)
    coarse = about["coarse_kernel"]
    model = Model(
        kernel=kernel_of(about["kernel"]),
        metric=FeatureMap(**inner(tensors, "metric.")),
        centroids=tensors["centroids"],
        # Clones, for a view of all centres travels to another process with all of them.
        centers=[
            Z.clone() if far else Z.float().clone() for Z, far in zip(centers, wide, strict=True)
        ],
        weights=[w.clone() for w in torch.split(tensors["weights"], sizes)],
        intercept=tensors["intercept"],
        blend=Blend(**about["blend"]),
        coarse=coarse and CoarseModel(kernel_of(coarse), **inner(tensors, "coarse.")),
    )
    return Saved(model, about["facts"], inner(tensors, "more."))


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
    """The kernel that plain data describe."""
    settings = {k: v for k, v in data.items() if k != "name"}
    kernel: Kernel = KERNELS[data["name"]](**settings)
    return kernel


def plain_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator as plain data; engines and generators are left behind."""
    return {name: plain_value(value) for name, value in params.items()}


def plain_value(value: Any) -> Any:
    """One parameter as plain data."""
    for kind, plain in PLAIN:
        if isinstance(value, kind):
            return plain(value)
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
    (RayEngine, lambda value: "ray"),
    (LocalEngine, lambda value: "local"),
    (np.random.RandomState, lambda value: None),
)


def params_of(data: dict[str, Any], metric: FeatureMap) -> dict[str, Any]:
    """Parameters from plain data."""
    return {name: value_of(value, metric) for name, value in data.items()}


def value_of(value: Any, metric: FeatureMap) -> Any:
    """One parameter from plain data."""
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


def plain_intervals(intervals: Intervals) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Intervals as plain facts and tensors."""
    learned = intervals.learned
    facts = {"how": intervals.how, "n": intervals.n}
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
