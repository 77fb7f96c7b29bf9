"""Everything public has an example, which the doctests of CI run."""

import inspect

import pytest

import parkrr
from parkrr.inspection import diagnostics
from parkrr.planning import plan
from parkrr.plots import plots
from parkrr.theory import bounds as theory

CLASSES = [parkrr.ParKRegressor, parkrr.ParKClassifier]
METHODS = [
    method
    for kind in CLASSES
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and method.__module__.startswith("parkrr")
]
EXPORTED = [getattr(parkrr, name) for name in parkrr.PUBLIC]
PICTURES = [picture for name, picture in vars(plots).items() if name.startswith("plot_")]
QUESTIONS = [
    diagnostics.balance,
    diagnostics.border_jumps,
    diagnostics.cell_table,
    diagnostics.errors_by_cell,
    diagnostics.theory_of,
    diagnostics.worst_rows,
    theory.theory,
]
OTHERS = [
    plan.Plan,
]
PUBLIC = [*METHODS, *EXPORTED, *PICTURES, *QUESTIONS, *OTHERS]


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__qualname__)
def test_it_has_an_example(thing):
    assert ">>> " in thing.__doc__
