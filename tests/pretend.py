"""A device that is not there: tensors say they are on it and are computed on the CPU.

No graphics card is here. What one would refuse is refused: operations on tensors of two devices,
and numpy's look at a tensor that is elsewhere. Torch's "meta" lends its name, for every build
knows it. What a card would round, lack or do slowly is not seen.
"""

import threading
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from parkrr.runtime.engine import thread_pools

NAME = "meta"
aten = torch.ops.aten
# An index here of a tensor elsewhere is taken, not one elsewhere of a tensor here.
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}


class Elsewhere(torch.Tensor):
    """A tensor that says it is on the other device."""

    @staticmethod
    def __new__(cls, inner):
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        kind = {"dtype": inner.dtype, "device": torch.device(NAME)}
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), **layout, **kind)

    def __init__(self, inner):
        self.inner = inner

    def tolist(self):
        return self.inner.tolist()

    def numpy(self, **_):
        raise TypeError("can't convert a tensor on another device to numpy, use .cpu() first")

    __array__ = numpy

    def __repr__(self):
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Tensors made for the other device or sent there are elsewhere."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


class Sending(TorchFunctionMode):
    """torch.tensor with a device, which makes its tensor before anything else is asked."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.tensor and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return function(*args, **kwargs).to(device)
        return function(*args, **kwargs)


def run(function, args, kwargs):
    """An operation on the CPU; what it gives is where its tensors or its device are."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    device = kwargs.get("device")
    there = any(isinstance(x, Elsewhere) for x in tensors)
    goes = there if device is None else torch.device(device).type == NAME
    if function not in {aten._to_copy.default, aten.copy_.default}:
        check_together(function, args, tensors)
    plain = {**kwargs, "device": torch.device("cpu")} if device is not None else kwargs
    found = function(*tree_map(here, args), **tree_map(here, plain))
    if function._schema.name.endswith("_") or "out" in kwargs:
        return kwargs.get("out", args[0])
    return tree_map(elsewhere, found) if goes else found


def check_together(function, args, tensors):
    """Refuse tensors of two devices; a number on the CPU is taken anywhere."""
    places = {x.device.type for x in tensors if x.dim()}
    taken = function in INDEXED and isinstance(args[0], Elsewhere)
    if len(places) > 1 and not taken:
        raise RuntimeError(f"{function} expects all tensors to be on one device, got {places}")


def here(value):
    return value.inner if isinstance(value, Elsewhere) else value


def elsewhere(value):
    plain = isinstance(value, torch.Tensor) and not isinstance(value, Elsewhere)
    return Elsewhere(value) if plain else value


@contextmanager
def pretending():
    """The other device is there, in threads begun inside as well; none from before is used."""
    before = threading.Thread.run

    def run_there(thread):
        with Pretending(), Sending():
            before(thread)

    threading.Thread.run = run_there
    thread_pools.reset()
    try:
        with Pretending(), Sending():
            yield
    finally:
        threading.Thread.run = before
        thread_pools.reset()
