"""Fitted attributes and parameters become plain data and come back."""

import math

import numpy as np
import pytest
import torch

from parkrr import LocalEngine
from parkrr.kernels import FeatureMap, Gaussian, Matern
from parkrr.park import CellReport, Coarse
from parkrr.partition import Blend
from parkrr.persistence.estimator_file import (
    decode_numbers,
    decode_params,
    decode_report,
    encode_numbers,
    encode_params,
    encode_report,
)

MAP = FeatureMap(torch.zeros(2), torch.ones(2))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 0.5, "auto"),
        *(Gaussian(2.0), Matern(1.0, nu=2.5), Blend(2, 0.5), Coarse(50), Coarse(9, Gaussian(3.0))),
        {"left": 2.0, "right": 1},
        MAP,
    ],
    ids=repr,
)
def test_a_parameter_comes_back(value):
    plain = encode_params({"p": value, "of a subclass": 1}, ["p", "missing"])
    assert decode_params(plain, MAP) == {"p": value}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.random.RandomState(0), None),
        (LocalEngine(), "local"),
    ],
    ids=["float", "int", "generator", "engine"],
)
def test_a_parameter_that_is_not_plain_becomes_so(value, plain):
    [encoded] = encode_params({"p": value}, ["p"]).values()
    assert encoded == plain
    assert type(encoded) is type(plain)


def test_a_report_is_columns_and_comes_back():
    plain = CellReport(0, 9, 9.0, 3, 1e-3, "direct", "asked for", 0, 0.0, True, "", 0.1)
    report = [plain, plain._replace(cell=1, residual=math.nan, error=math.inf), plain]
    encoded = encode_report(report)
    assert encoded["residual"] == [0.0, "nan", 0.0]
    assert encoded["error"] == [None, "inf", None]
    decoded = decode_report(encoded)
    assert math.isnan(decoded[1].residual)
    assert decoded[1].error == math.inf
    assert [decoded[0], decoded[2]] == [plain, plain]


def test_numbers_that_are_not_finite_are_spelled_and_come_back():
    data = {"a": [float("inf"), 1.0, {"b": float("-inf")}], "c": "x", "d": None}
    plain = {"a": ["inf", 1.0, {"b": "-inf"}], "c": "x", "d": None}
    assert encode_numbers(data) == plain
    assert decode_numbers(plain) == data
    assert encode_numbers(np.float64("nan")) == "nan"
