"""Tensors and plain data in one safetensors file; loading runs nothing from it."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from parkrr.errors import ModelFileError


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write them; facts are plain data."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(plain, path, metadata={"parkrr": json.dumps(facts)})
        path.chmod(mode)  # safetensors leaves files that only their owner can read
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What was written there."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["parkrr"])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelFileError(f"{str(path)!r} is not a file of parkrr: {error}") from error
