"""Checks of parameters return the value or name the rule."""

import numpy as np
import pytest

from parkrr.errors import (
    ParameterError,
    check_bool,
    check_bytes,
    check_integer,
    check_integer_or,
    check_one_of,
    check_positive,
    check_positive_or,
    check_share,
)


@pytest.mark.parametrize(
    ("check", "value", "result"),
    [
        (check_integer, np.int64(3), 3),
        (check_positive, np.float32(0.5), 0.5),
        (check_share, 1, 1.0),
        (check_bool, np.True_, True),
    ],
)
def test_numbers_of_numpy_become_those_of_python(check, value, result):
    checked = check("p", value)
    assert checked == result
    assert type(checked) is type(result)


@pytest.mark.parametrize(
    ("check", "value", "rule"),
    [
        (check_integer, 0, "a whole number >= 1"),
        (check_integer, True, "a whole number >= 1"),
        (check_integer, 2.0, "a whole number >= 1"),
        (check_positive, float("nan"), "a positive finite number"),
        (check_positive, float("inf"), "a positive finite number"),
        (check_positive, "1", "a positive finite number"),
        (check_share, 0, "above 0 and at most 1"),
        (check_share, 1.1, "above 0 and at most 1"),
        (check_bool, 1, "True or False"),
    ],
)
def test_a_broken_rule_is_named_with_the_parameter_and_the_value(check, value, rule):
    with pytest.raises(ParameterError, match=rule) as raised:
        check("p", value)
    assert str(raised.value).startswith("p must be ")
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("check", [check_integer_or, check_positive_or])
def test_one_exception_is_none_and_another_is_refused(check):
    assert check("p", "auto", "auto") is None
    assert check("p", None, None) is None
    assert check("p", 4, "auto") == 4
    with pytest.raises(ParameterError, match="p must be"):
        check("p", "all", "auto")


def test_a_name_must_be_one_of_those_allowed():
    assert check_one_of("p", "a", {"a", "b"}) == "a"
    for value in ("c", 1, None):
        with pytest.raises(ParameterError, match=r"p must be one of \['a', 'b'\]"):
            check_one_of("p", value, {"b", "a"})


@pytest.mark.parametrize(
    ("value", "count"),
    [("4GB", 4e9), ("1.5 g", 1.5e9), ("800MB", 8e8), (".5k", 500.0), ("7.", 7.0), (7, 7.0)],
)
def test_bytes_may_have_a_unit(value, count):
    assert check_bytes("p", value) == count


def test_no_limit_of_bytes_is_none():
    assert check_bytes("p", None) is None


@pytest.mark.parametrize("value", ["much", "1.2.3GB", ".", "", "4PB", "-1GB", "1e9"])
def test_text_that_is_no_number_of_bytes_is_refused(value):
    with pytest.raises(ParameterError, match="p must be bytes, such as 4e9 or '4GB'"):
        check_bytes("p", value)
