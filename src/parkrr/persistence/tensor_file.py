"""Tensors and plain data in one safetensors file; reading it runs nothing from it.

The file is mapped, not read, so that processes that open the same file share its pages. Whatever
the header claims is compared with the size of the file first. `safetensors.safe_open` is not used:
it opens the path once for the header and again for the tensors, so that a file replaced in between
would become a mixture of two models.
"""

import json
import math
import mmap
import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from parkrr.errors import ModelFileError
from parkrr.persistence.plain_data import (
    check_memory,
    check_portable,
    check_schema,
    define,
    parse_json,
    require,
)

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "I64": torch.int64,
    "BOOL": torch.bool,
}
# How other files begin that people have beside a model, and what to do with each.
OTHER_FORMATS = {
    b"PAR1": "it is Parquet, which scan_parquet reads",
    b"\x80": "it is a pickle, which pickle.load or joblib.load reads; models are written by save",
    b"PK\x03\x04": "it is a zip file, such as torch.save and Excel write",
    b"\x1f\x8b": "it is compressed by gzip; decompress it first",
    b"ARROW1": "it is Arrow data",
    b"\x89HDF": "it is HDF5",
    b"{": "it is JSON",
    b"<": "it is HTML or XML, such as a report; its model is the file beside it",
}
TEXT = {*b"\t\n\r", *range(32, 127)}
LARGEST_HEADER = 100_000_000  # bytes; the reader of safetensors has the same limit
MOST_ENTRIES = 2**48
COUNT = Annotated[int, Meta(ge=0)]
TENSOR = define(
    "tensor",
    dtype=Literal[tuple(DTYPES)],
    shape=Annotated[list[COUNT], Meta(max_length=8)],
    data_offsets=tuple[COUNT, COUNT],
)
METADATA = define("metadata", parkrr=str)
# Without these, opening a pipe waits for a writer, and a terminal takes over the process. No system
# has all of them.
FLAG_NAMES = ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")
FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in FLAG_NAMES)


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and plain data to a file."""
    separate: dict[str, Tensor] = {}
    storages = set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        storage = own.untyped_storage().data_ptr()
        separate[name] = own.clone() if storage in storages else own  # safetensors refuses sharing
        storages.add(storage)
    try:
        check_portable(about)
        text = json.dumps(about)
        length = len(text) + text.count('"') + text.count("\\")  # escaped as text inside of JSON
        require(length <= LARGEST_HEADER, f"its header would have {length:,} bytes")
        check_memory(text, sum(tensor.nbytes for tensor in separate.values()) + length)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"a model file cannot hold this model: {error}") from error
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(separate, path, metadata={"parkrr": text})
        path.chmod(mode)  # safetensors leaves files that only their owner can read
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, as views of the mapped file, and plain data.

    Raises ModelFileError for a file that is not one of parkrr or is damaged, and OSError for one
    that cannot be opened. Writing into a tensor copies its pages and leaves the file as it is.
    """
    try:
        data = map_file(path)
        length = int.from_bytes(data[:8], "little")
        fits = length <= min(LARGEST_HEADER, len(data) - 8)
        wrong = f"its header would have {length:,} bytes, in a file of {len(data):,}"
        require(fits, describe_format(data) or wrong)
        header = parse_json(data[8 : 8 + length].decode(), len(data))
        metadata = header.pop("__metadata__", None)
        foreign = "it is a safetensors file of another program, without __metadata__ of parkrr"
        require(metadata is not None, foreign)
        check_schema("__metadata__", metadata, METADATA)
        tensors = view_tensors(header, data, 8 + length)
        return tensors, parse_json(metadata["parkrr"], len(data))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{str(path)!r} is not a file of parkrr: {error}") from error


def describe_format(data: mmap.mmap) -> str:
    """What a file is that begins as another kind of file does, and what reads it."""
    for start, kind in OTHER_FORMATS.items():
        if data[: len(start)] == start:
            return kind
    return "it is text" if all(byte in TEXT for byte in data[:64]) else ""


def map_file(path: Path) -> mmap.mmap:
    """A regular file as memory."""
    descriptor = os.open(path, FLAGS)
    try:
        status = os.fstat(descriptor)  # of what was opened, whatever happens to the path
        require(stat.S_ISREG(status.st_mode), "it is a folder, a device or a pipe")
        require(status.st_size >= 8, f"it has {status.st_size} bytes")
        return mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def view_tensors(header: dict[str, Any], data: mmap.mmap, start: int) -> dict[str, Tensor]:
    """Views of the tensors of a header, which must fill the file from byte `start` to its end."""
    for name, entry in header.items():
        check_schema(repr(name[:50]), entry, TENSOR)
    tensors, end, size = {}, 0, len(data) - start
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        label, shape, (first, last) = repr(name[:50]), entry["shape"], entry["data_offsets"]
        dtype, count = DTYPES[entry["dtype"]], math.prod(shape)
        possible = math.prod(length or 1 for length in shape) <= MOST_ENTRIES
        require(possible, f"{label} cannot have the shape {shape}")
        n_bytes = count * dtype.itemsize
        require(last - first == n_bytes, f"{label} must take {n_bytes} bytes, not {last - first}")
        require(first == end, f"{label} must begin at byte {end} of the tensors, not {first}")
        require(last <= size, f"{label} ends {last - size} bytes behind the file")
        end = last
        if not count:
            tensors[name] = torch.empty(shape, dtype=dtype)
            continue
        aligned = (start + first) % dtype.itemsize == 0
        require(aligned, f"{label} must begin at a multiple of {dtype.itemsize} bytes")
        if dtype == torch.bool:
            raw = torch.frombuffer(data, dtype=torch.uint8, count=count, offset=start + first)
            require(int(raw.max()) <= 1, f"{label} must be 0 or 1")
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=start + first)
        tensors[name] = flat.reshape(shape)
    require(end == size, f"{size - end} bytes at its end belong to no tensor")
    return tensors
