"""The memory of this process."""

import ctypes
import mmap
import sys
from pathlib import Path

STATM = Path("/proc/self/statm")


def process_bytes() -> float:
    """What this process holds now; 0 where the system does not tell."""
    if not STATM.exists():
        return 0.0
    return float(STATM.read_text().split()[1]) * mmap.PAGESIZE


def release_memory() -> None:
    """Return freed memory to the system, where the C library can.

    glibc keeps what threads have freed: some 300 MB after choices, and 250 after a plan.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
