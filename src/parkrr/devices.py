"""Whatever holds tensors, on another device."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

Holder = TypeVar("Holder")


def moved(holder: Holder, device: str | torch.device) -> Holder:
    """A tensor, or a list, tuple or dataclass of them at any depth, on that device.

    Examples
    --------
    >>> import torch
    >>> from parkrr.devices import moved
    >>> from parkrr.sources import Block
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
