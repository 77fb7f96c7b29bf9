"""Tensors, and what holds them, on another device."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from parkrr.errors import ParameterError

Holder = TypeVar("Holder")


def move_to_device(holder: Holder, device: str | torch.device) -> Holder:
    """A tensor, or a list, tuple or dataclass of them at any depth, on that device."""

    def move(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(device)
        if isinstance(part, list):
            return [move(inner) for inner in part]
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return type(part)(*map(move, part))
        if is_dataclass(part) and not isinstance(part, type):
            return replace(part, **{f.name: move(getattr(part, f.name)) for f in fields(part)})
        return part

    result: Holder = move(holder)
    return result


def check_device(device: Any) -> torch.device:
    """The torch device of that name, if torch has it."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ParameterError(
            f"device must be one this torch can use, such as 'cpu', got {device!r}"
        ) from error
    return torch.device(device)
