"""Numbers as text."""

import pytest

from parkrr.runtime import describe_bytes, describe_count, describe_seconds, show_number


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0003, "1.000"), (1.0, "1"), (0.5, "0.5"), (5170.4, "5,170"), (9999.99, "10,000")],
)
def test_zeros_at_the_end_of_a_number_show_that_it_was_rounded(value, text):
    assert show_number(value) == text
