"""Everything public is documented, with an example that the doctests of CI run."""

import inspect
import re

import numpy as np
import pytest

import parkrr
from parkrr import inspection, plots
from parkrr.planning import plan
from parkrr.theory import bounds as theory

CLASSES = [parkrr.ParKRegressor, parkrr.ParKClassifier]
METHODS = [
    method
    for kind in CLASSES
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and method.__module__.startswith("parkrr")
]
EXPORTED = [getattr(parkrr, name) for name in parkrr.PUBLIC]
PLOTS = [plot for name, plot in vars(plots).items() if name.startswith("plot_")]
QUESTIONS = [
    inspection.balance,
    inspection.border_jumps,
    inspection.cell_table,
    inspection.drift,
    inspection.effective_dimension,
    inspection.errors_by_cell,
    inspection.explain,
    inspection.iteration_curve,
    inspection.neighbors,
    inspection.partial_dependence,
    inspection.penalty_path,
    inspection.posterior,
    inspection.shapley_values,
    inspection.theory_of,
    inspection.worst_rows,
    theory.theory,
]
OTHERS = [
    plan.Plan,
]
PUBLIC = [*METHODS, *EXPORTED, *PLOTS, *QUESTIONS, *OTHERS]


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__qualname__)
def test_it_has_an_example(thing):
    assert ">>> " in thing.__doc__


def section(text, name):
    """The text of one section of a numpydoc docstring, without its indent; empty if missing."""
    parts = re.split(r"\n(\w[\w ]*)\n-+\n", "\n" + inspect.cleandoc(text))
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(name, "")


def entries(text):
    """What a section lists: from each name to its type and text."""
    found = re.findall(r"^(\w[\w, ]*)(?: : (.*))?\n((?:    .*\n?)+)", text, re.MULTILINE)
    return {name: (kind, body) for names, kind, body in found for name in names.split(", ")}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in CLASSES for name in kind().get_params()]
)
def test_every_parameter_of_an_estimator_is_documented(kind, name):
    types, body = entries(section(kind.__doc__, "Parameters"))[name]
    default = inspect.signature(kind).parameters[name].default
    stated = re.search(r", default=(.*)$", types)[1]
    assert stated.strip('"') == str(default) or float(stated) == default
    assert len(body.split()) >= 5


@pytest.mark.parametrize("kind", CLASSES)
def test_no_parameter_is_documented_that_is_not_there(kind):
    documented = entries(section(kind.__doc__, "Parameters"))
    assert list(documented) == list(inspect.signature(kind).parameters)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_attribute_of_a_fit_is_documented(kind):
    X = np.linspace(0, 1, 40)[:, None]
    model = kind(penalty=1e-3, metric="standard", blend=1, coarse=0).fit(X, X[:, 0] > 0.5)
    fitted = {name for name in vars(model) if name.endswith("_")}
    documented = entries(section(kind.__doc__, "Attributes"))
    assert fitted <= set(documented)
    assert set(documented) <= fitted | {"feature_names_in_"}  # an array has no names
    assert all(types for types, _ in documented.values())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_every_method_says_what_it_takes_returns_and_raises(method):
    parameters = entries(section(method.__doc__, "Parameters"))
    assert list(parameters) == list(inspect.signature(method).parameters)[1:]
    assert all(types for types, _ in parameters.values())
    assert section(method.__doc__, "Returns")
    assert section(method.__doc__, "Raises")
    assert ">>> " in section(method.__doc__, "Examples")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_every_optional_argument_of_a_method_has_its_default(method):
    documented = entries(section(method.__doc__, "Parameters"))
    for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
        if parameter.default is not inspect.Parameter.empty:
            stated = documented[name][0].partition("default=")[2]
            assert stated.replace('"', "'") == str(parameter.default)
