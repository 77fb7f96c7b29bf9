"""Numbers as text."""

import pytest

from parkrr.runtime import describe_bytes, describe_count, describe_seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "nothing"), (999, "999 bytes"), (1e3, "1 kB"), (4.14e9, "4.14 GB"), (2e12, "2 TB")],
)
def test_bytes_have_the_largest_unit_that_fits(count, text):
    assert describe_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.24, "0.2 s"), (9.9, "9.9 s"), (42.3, "42 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_seconds_have_few_digits(seconds, text):
    assert describe_seconds(seconds) == text


def test_a_count_has_its_noun():
    assert describe_count(1, "cell") == "1 cell"
    assert describe_count(1200, "cell") == "1,200 cells"
    assert describe_count(2, "pass", "passes") == "2 passes"
