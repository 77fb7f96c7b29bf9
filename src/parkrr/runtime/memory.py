"""The memory of this process."""

import ctypes
import mmap
import sys
from functools import cache
from pathlib import Path

STATM = Path("/proc/self/statm")
# Parameters of mallopt in glibc: how much free memory at the end of a heap goes back to the system,
# and from which size on an array has pages of its own. Programs that free arrays of 32 MB come to
# these values by themselves.
TRIM_THRESHOLD, MMAP_THRESHOLD = (-1, 2**26), (-3, 2**25)


@cache
def reuse_freed_memory() -> None:
    """Let the C library keep freed memory for the next array of the same size, where it can.

    Otherwise every temporary of a few megabytes comes as fresh pages. A batch of metric descent,
    which has a dozen of them, took 36 ms on one thread, of which the system took 23, and takes 19.
    On two threads, which wait for each other when pages come, of a machine that others use too,
    four of them took 1,800 ms and take 85.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if adjust is not None:
        adjust(*TRIM_THRESHOLD)
        adjust(*MMAP_THRESHOLD)


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
