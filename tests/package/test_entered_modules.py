"""How many modules a newcomer has to read to follow a fit or a prediction."""

import pytest

from entered_modules import MOST, entered_modules


@pytest.fixture(scope="module")
def modules():
    return entered_modules()


@pytest.mark.parametrize("step", MOST)
def test_few_modules_are_entered(modules, step):
    assert len(modules[step]) <= MOST[step], modules[step]


def test_a_prediction_enters_no_module_that_a_fit_does_not(modules):
    assert set(modules["predict"]) <= set(modules["fit"])
