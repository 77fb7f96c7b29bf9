"""The memory of the process."""

import numpy as np

from parkrr.runtime.memory import process_bytes


def test_the_process_is_as_large_as_its_arrays_make_it():
    before = process_bytes()
    taken = np.ones(20_000_000)
    assert 0.9 * taken.nbytes < process_bytes() - before < 1.5 * taken.nbytes
