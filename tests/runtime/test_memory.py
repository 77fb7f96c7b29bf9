"""The memory of the process."""

import subprocess
import sys

import numpy as np
import pytest

from parkrr.runtime.memory import process_bytes

# Pages that come new when arrays of 4 MB are made and freed again and again, in a new process.
FAULTS = """
import resource, torch
from parkrr.runtime import torch_threads

def use_arrays():
    [torch.zeros(2**19, dtype=torch.float64) for _ in range(6)]

with torch_threads(1):
    use_arrays()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        use_arrays()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_the_process_is_as_large_as_its_arrays_make_it():
    before = process_bytes()
    taken = np.ones(20_000_000)
    assert 0.9 * taken.nbytes < process_bytes() - before < 1.5 * taken.nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told")
def test_freed_memory_is_used_again_instead_of_fresh_pages():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True)
    assert int(done.stdout) < 30_000  # of 122,000
