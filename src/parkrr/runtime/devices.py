"""Whatever holds tensors, on another device."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from parkrr.errors import ParameterError

Holder = TypeVar("Holder")


def moved(holder: Holder, device: str | torch.device) -> Holder:
    """A tensor, or a list, tuple or dataclass of them at any depth, on that device.

    Examples
    --------
    >>> import torch
    >>> from parkrr.runtime.devices import moved
    >>> from parkrr.data.rows import Block
    >>> moved(Block(torch.ones(2, 3), torch.ones(2, 1), None), "cpu").X.device
    device(type='cpu')
    """
    found: Any = holder
    if isinstance(holder, Tensor):
        found = holder.to(device)
    elif isinstance(holder, list):
        found = [moved(part, device) for part in holder]
    elif isinstance(holder, tuple) and hasattr(holder, "_fields"):
        found = type(holder)(*(moved(part, device) for part in holder))
    elif is_dataclass(holder) and not isinstance(holder, type):
        parts = {field.name: moved(getattr(holder, field.name), device) for field in fields(holder)}
        found = replace(holder, **parts)
    result: Holder = found
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
