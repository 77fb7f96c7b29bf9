"""A model as one file: tensors and plain data, a format version, no pickle.

The file holds what predictions need, and of the training rows only the centres. Tensors have the
names of the fields of :class:`parkrr.park.Model`; those of all cells are concatenated.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parkrr.data import atomic_write, draw_indices
from parkrr.errors import ModelFileError, ParameterError
from parkrr.kernels import KERNELS, FeatureMap, Kernel, KernelProduct, KernelSum
from parkrr.park import Model, NystromModel
from parkrr.partition import Blend, Regions
from parkrr.persistence.schema import CHECKED_BYTES, check_model
from parkrr.persistence.tensor_file import read_tensors, write_tensors

VERSION = 4
NO_TENSORS: Mapping[str, Tensor] = {}
CANNOT_HOLD = "a model file cannot hold this model"
MOST_NESTED = 20  # sums and products in each other
TOO_DEEP = f"kernels must be nested at most {MOST_NESTED} times; add and multiply fewer in turn"
COMPARED_CENTERS = 2000  # at which a model with rounded centres is compared with the original


class SavedModel(NamedTuple):
    """The contents of a file: a model, plain facts, and further tensors."""

    model: Model
    facts: dict[str, Any]
    more: dict[str, Tensor]


def write_model(
    path: Path,
    model: Model,
    facts: dict[str, Any],
    more: Mapping[str, Tensor] = NO_TENSORS,
    centers_dtype: torch.dtype | None = None,
) -> None:
    """Write a model, plain facts about it and further tensors to a file, completely or not at all.

    The centres are stored as `centers_dtype`, if given, which may be narrower than their own.
    """
    stacked = {}
    for name, dtype in (("centers", torch.float32), ("centers.wide", torch.float64)):
        stored = centers_dtype or dtype
        own = [Z.to(stored).cpu() for Z in model.centers if Z.dtype == dtype]
        stacked[name] = torch.cat([torch.empty(0, model.centroids.shape[1], dtype=stored), *own])
    tensors = {
        "centroids": model.centroids,
        "sizes": torch.tensor([len(Z) for Z in model.centers]),
        "wide": torch.tensor([Z.dtype == torch.float64 for Z in model.centers]),
        **stacked,
        "weights": torch.cat(list(model.weights)),
        "intercept": model.intercept,
    }
    if model.metric.origin is not None:  # without an origin there is no feature map
        parts = {field.name: getattr(model.metric, field.name) for field in fields(FeatureMap)}
        tensors |= {f"metric.{k}": v.double() for k, v in parts.items() if v is not None}
    if model.limits is not None:
        tensors["limits"] = model.limits
    if model.regions is not None:
        parts = {field.name: getattr(model.regions, field.name) for field in fields(Regions)}
        tensors |= {f"regions.{name}": part for name, part in parts.items()}
    if model.coarse is not None:
        tensors |= {"coarse.centers": model.coarse.centers, "coarse.weights": model.coarse.weights}
    about = {
        "format": "parkrr model",
        "version": VERSION,
        "kernel": encode_kernel(model.kernel),
        "coarse_kernel": model.coarse and encode_kernel(model.coarse.kernel),
        "blend": asdict(model.blend),
        "link": model.link,
        "facts": facts,
    }
    with model_file_errors(CANNOT_HOLD):
        check_model(tensors, about)
    tensors |= {f"more.{name}": tensor for name, tensor in more.items()}
    with atomic_write(path) as temporary:
        write_tensors(temporary, tensors, about)


def read_model(path: Path, shared: bool = False, checked_bytes: int = CHECKED_BYTES) -> SavedModel:
    """Read what :func:`write_model` wrote.

    With `shared`, the centres and weights of cells are views of the mapped file, so that processes
    share them. Without, each is a tensor of its own: a view that is sent to another process takes
    all of the file with it. Up to `checked_bytes` of centres and weights are read now.
    """
    tensors, about = read_tensors(path)
    if about.get("format") != "parkrr model" or about.get("version") != VERSION:
        raise ModelFileError(
            f"{str(path)!r} must be a parkrr model of version {VERSION}, but is "
            f"{about.get('format')!r} of version {about.get('version')!r}; load it with the "
            f"version of parkrr that wrote it"
        )
    with model_file_errors(f"{str(path)!r} is damaged"):
        check_model(tensors, about, checked_bytes)
        model = build_model(tensors, about, shared)
        return SavedModel(model, about["facts"], select_prefix(tensors, "more."))


@contextmanager
def model_file_errors(start: str) -> Iterator[None]:
    """Turn a ValueError inside into a ModelFileError whose message begins with `start`."""
    try:
        yield
    except ValueError as error:
        raise ModelFileError(f"{start}: {error}") from error


def build_model(tensors: dict[str, Tensor], about: dict[str, Any], shared: bool) -> Model:
    """The model of checked tensors and plain data."""
    sizes, wide = tensors["sizes"], tensors["wide"]  # (Q,) each
    stacks = (tensors["centers"].float(), tensors["centers.wide"].double())
    centers = CellViews(stacks, sizes, wide)
    weights = CellViews((tensors["weights"],), sizes, torch.zeros_like(wide))
    coarse, regions = about["coarse_kernel"], select_prefix(tensors, "regions.")
    return Model(
        kernel=decode_kernel(about["kernel"]),
        metric=FeatureMap(**select_prefix(tensors, "metric.")),
        centroids=tensors["centroids"],
        centers=centers if shared else [Z.clone() for Z in centers],
        weights=weights if shared else [w.clone() for w in weights],
        intercept=tensors["intercept"],
        blend=Blend(**about["blend"]),
        limits=tensors.get("limits"),  # without which predictions have no bounds
        regions=Regions(**regions) if regions else None,
        coarse=coarse and NystromModel(decode_kernel(coarse), **select_prefix(tensors, "coarse.")),
        link=about["link"],
    )


class CellViews(Sequence[Tensor]):
    """The rows of each cell in tensors that hold those of all cells, as views made when needed.

    Views of 10^5 cells take 0.3 s and 60 MB, and one row needs those of one or two.
    """

    def __init__(self, stacks: tuple[Tensor, ...], sizes: Tensor, stack_of: Tensor) -> None:
        self.stacks, self.sizes = stacks, sizes.tolist()
        self.stack_of: list[int] = stack_of.int().tolist()
        ends = torch.stack([(sizes * (stack_of == s)).cumsum(0) for s in range(len(stacks))])
        self.ends: list[int] = ends.gather(0, stack_of.long()[None])[0].tolist()  # in its stack

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, q: int) -> Tensor:  # type: ignore[override]
        end = self.ends[q]
        return self.stacks[self.stack_of[q]][end - self.sizes[q] : end]


def select_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, under the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def encode_kernel(kernel: Kernel, depth: int = 0) -> dict[str, Any]:
    """A kernel as plain data."""
    if depth > MOST_NESTED:
        raise ModelFileError(TOO_DEEP)
    for name, kind in KERNELS.items():
        if type(kernel) is kind:
            return {"name": name, **asdict(kernel)}  # type: ignore[call-overload]
    if isinstance(kernel, KernelSum | KernelProduct):
        parts = [encode_kernel(part, depth + 1) for part in kernel.kernels]
        if isinstance(kernel, KernelProduct):
            return {"name": "product", "kernels": parts}
        return {"name": "sum", "kernels": parts, "factors": list(kernel.factors)}
    raise ModelFileError(
        f"a model file holds only kernels of parkrr ({sorted(KERNELS)}), got {kernel!r}; "
        f"keep such a model in Python"
    )


def decode_kernel(data: dict[str, Any], depth: int = 0) -> Kernel:
    """The kernel that checked plain data describe."""
    if depth > MOST_NESTED:
        raise ValueError(TOO_DEEP)
    settings = {name: value for name, value in data.items() if name != "name"}
    if "kernels" in data:
        parts = tuple(decode_kernel(part, depth + 1) for part in data["kernels"])
        return (
            KernelProduct(parts) if data["name"] == "product" else KernelSum(parts, data["factors"])
        )
    kernel: Kernel = KERNELS[data["name"]](**settings)
    return kernel


def round_centers(model: Model, dtype: torch.dtype) -> tuple[Model, float]:
    """The model with its centres rounded to a dtype, as it will be loaded, and what that loses.

    The loss is the root mean squared change of predictions at up to 2,000 centres, divided by the
    spread of predictions.
    """
    largest = max(float(Z.abs().max()) for Z in model.centers)
    if largest > torch.finfo(dtype).max:
        raise ParameterError(
            f"centers must be None or 'float32' for this model, since its centres are as large as "
            f"{largest:.1e}, got {str(dtype).removeprefix('torch.')!r}"
        )
    rounded = replace(model, centers=[Z.to(dtype).to(Z.dtype) for Z in model.centers])
    Z = torch.cat([Z.to(model.centroids.dtype) for Z in model.centers])  # (m, e)
    Z = Z[draw_indices(len(Z), min(len(Z), COMPARED_CENTERS), 0).to(Z.device)]
    before, after = model.evaluate(Z), rounded.evaluate(Z)  # (2000, t)
    spread = (before - before.mean(0)).square().mean().sqrt()
    return rounded, float((after - before).square().mean().sqrt() / spread.clamp_min(1e-300))
