"""Memory of the process, and bytes in plain text."""

import numpy as np
import pytest

from parkrr.runtime.formatting import describe_bytes
from parkrr.runtime.memory import process_bytes


def test_the_process_is_as_large_as_the_system_says():
    before = process_bytes()
    taken = np.ones(20_000_000)
    assert 0.9 * taken.nbytes < process_bytes() - before < 1.5 * taken.nbytes


@pytest.mark.parametrize(
    ("count", "words"), [(0, "nothing"), (12, "12 bytes"), (1.5e6, "1.5 MB"), (4e9, "4 GB")]
)
def test_bytes_are_told_in_words(count, words):
    assert describe_bytes(count) == words
