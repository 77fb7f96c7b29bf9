"""Tensors and plain data in one safetensors file; reading it runs nothing from it.

Knows bytes, not models. A file is mapped, not read, so that processes which open the same one
share its pages. What a header claims is held against the size of the file before it is believed.
"""

import json
import math
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from parkrr.errors import ModelFileError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "I64": torch.int64,
    "BOOL": torch.bool,
}
MOST_HEADER = 100_000_000  # bytes; the reader of safetensors has the same limit
MOST_AXES, MOST_ENTRIES = 8, 2**48
# Python takes more room than text: of "[[],[]]" 64 bytes for 3. A header may ask for this much
# beyond the size of its file; a model of 10^5 cells with a file of 35 MB asks for 80 MB.
ROOM = 2**26
COSTS = {"[": 64, "{": 240, ",": 40}
LARGEST = 2**63
# Opening a pipe would wait for a writer, and a terminal would take over the process.
WISHES = ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")  # no system has all of them
FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in WISHES)


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write them; facts are plain data."""
    plain = apart(tensors)
    try:
        check_plain(facts)
        text = json.dumps(facts)
        escaped = len(text) + text.count('"') + text.count("\\")  # it is text inside of JSON
        check_room(text, sum(tensor.nbytes for tensor in plain.values()) + escaped, escaped)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"a model file cannot hold this model: {error}") from error
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(plain, path, metadata={"parkrr": text})
        path.chmod(mode)  # safetensors leaves files that only their owner can read
    except SafetensorError as error:
        raise OSError(str(error)) from error


def apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in memory that no two of them share, which safetensors would refuse."""
    found: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        place = own.untyped_storage().data_ptr()
        found[name] = own.clone() if place in seen else own
        seen.add(place)
    return found


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What was written there; tensors are views of the file.

    Raises ModelFileError for what is no sound file of parkrr, and OSError for what cannot be
    opened. Whoever writes into a tensor gets pages of its own.
    """
    try:
        return parsed(mapped(path))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{str(path)!r} is not a file of parkrr: {error}") from error


def mapped(path: Path) -> mmap.mmap:
    """A regular file as memory."""
    descriptor = os.open(path, FLAGS)
    try:
        about = os.fstat(descriptor)  # of what was opened, whatever happens to the path
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is a folder, a device or a pipe")
        if about.st_size < 8:
            raise ValueError(f"it has {about.st_size} bytes")
        return mmap.mmap(descriptor, about.st_size, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def parsed(data: mmap.mmap) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a file."""
    length = int.from_bytes(data[:8], "little")
    if length > min(MOST_HEADER, len(data) - 8):
        raise ValueError(f"its header would have {length:,} bytes, in a file of {len(data):,}")
    header = plain_data(data[8 : 8 + length].decode(), len(data))
    about = header.pop("__metadata__", None)
    if not isinstance(about, dict) or list(about) != ["parkrr"]:
        raise ValueError("its header says nothing of parkrr")
    if not isinstance(about["parkrr"], str):
        raise ValueError("what its header says of parkrr must be text")
    tensors = dict(placed(header, data, 8 + length))
    return tensors, plain_data(about["parkrr"], len(data))


def plain_data(text: str, size: int) -> dict[str, Any]:
    """An object of JSON in a file of that size."""
    check_room(text, size)
    found = json.loads(text, object_pairs_hook=unique)
    if not isinstance(found, dict):
        raise ValueError("its header must be an object of JSON")
    check_plain(found)
    return found


def check_room(text: str, size: int, length: int = 0) -> None:
    """Refuse text that would take far more memory than its file has, or is too long for one."""
    asked = sum(cost * text.count(mark) for mark, cost in COSTS.items())
    if length > MOST_HEADER or asked > size + ROOM:
        raise ValueError(f"its header would take {(len(text) + asked) / 1e6:,.0f} MB of memory")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, unless it has a name twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:50]!r} is there twice")
    return found


def check_plain(value: Any) -> None:
    """Refuse what is not plain data, or what another language could not read."""
    if isinstance(value, dict):
        check_plain([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for inner in value:
            check_plain(inner)
    elif isinstance(value, str):
        value.encode()  # half of a surrogate pair is no text
    elif isinstance(value, int | float):
        whole = isinstance(value, int)
        if not (-LARGEST <= value < LARGEST if whole else math.isfinite(value)):
            raise ValueError(f"numbers must be finite and fit 64 bits, got {repr(value)[:40]}")
    elif value is not None:
        raise TypeError(f"plain data must be text, numbers, lists and objects, got {value!r}")


def placed(header: dict[str, Any], data: mmap.mmap, start: int) -> Iterator[tuple[str, Tensor]]:
    """Views of the tensors that a header describes, which fill the file from `start` on."""
    spans = sorted((span_of(name, entry), name) for name, entry in header.items())
    end = 0
    for (first, last), name in spans:
        if first != end:
            raise ValueError(f"{name[:50]!r} must begin at byte {end} of the tensors, not {first}")
        if last > len(data) - start:
            raise ValueError(f"{name[:50]!r} ends {last - len(data) + start} bytes behind the file")
        yield name, view(name, header[name], data, start + first)
        end = last
    if end != len(data) - start:
        raise ValueError(f"{len(data) - start - end} bytes at its end belong to no tensor")


def span_of(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor lies, if its entry is sound by itself."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name[:50]!r} must have dtype, shape and data_offsets alone")
    kind, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(f"{name[:50]!r} must be one of {sorted(DTYPES)}")
    if not all(are_sizes(sizes) for sizes in (shape, span)) or len(span) != 2:
        raise ValueError(f"{name[:50]!r} must have whole numbers >= 0 as shape and offsets")
    bytes_ = math.prod(shape) * DTYPES[kind].itemsize
    if len(shape) > MOST_AXES or math.prod(k or 1 for k in shape) > MOST_ENTRIES:
        raise ValueError(f"{name[:50]!r} cannot have the shape {shape}")
    if span[1] - span[0] != bytes_:
        raise ValueError(f"{name[:50]!r} must take {bytes_} bytes, not {span[1] - span[0]}")
    return span[0], span[1]


def are_sizes(values: Any) -> bool:
    """Whether that is a list of whole numbers >= 0; True and False are none."""
    return isinstance(values, list) and all(type(k) is int and k >= 0 for k in values)


def view(name: str, entry: dict[str, Any], data: mmap.mmap, start: int) -> Tensor:
    """A tensor of a file, where it lies."""
    kind, shape = DTYPES[entry["dtype"]], entry["shape"]
    if not math.prod(shape):
        return torch.empty(shape, dtype=kind)
    if start % kind.itemsize:
        raise ValueError(f"{name[:50]!r} must begin at a multiple of {kind.itemsize} bytes")
    where = {"count": math.prod(shape), "offset": start}
    if kind == torch.bool and int(torch.frombuffer(data, dtype=torch.uint8, **where).max()) > 1:
        raise ValueError(f"{name[:50]!r} must be 0 or 1")
    return torch.frombuffer(data, dtype=kind, **where).reshape(shape)
