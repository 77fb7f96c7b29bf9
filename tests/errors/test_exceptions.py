"""Exceptions cross processes, and are those of Python as well."""

import pickle

import pytest

from parkrr import errors

CASES = [
    (errors.SourceError("a.csv", "no such file"), OSError, "'a.csv' cannot be read: no such file"),
    (errors.StorageError("out", "disk full"), OSError, "'out' cannot be written: disk full"),
    (errors.CellError(3, 1200, "overflow"), RuntimeError, "cell 3 (1,200 rows) could not be"),
    (errors.BudgetError("too large"), ValueError, "too large"),
]


@pytest.mark.parametrize(("error", "kind", "text"), CASES, ids=lambda case: type(case).__name__)
def test_an_exception_survives_a_process_and_is_a_built_in_one(error, kind, text):
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, kind)
    assert isinstance(again, errors.ParKError)
    assert str(again) == str(error)
    assert str(error).startswith(text)
