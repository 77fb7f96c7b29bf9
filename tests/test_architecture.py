"""The shape of the package is a test, not a memory."""

import ast
from pathlib import Path

import pytest

import parkrr

SOURCE = Path(parkrr.__file__).parent
MODULES = sorted(path for path in SOURCE.glob("*.py") if path.stem != "__init__")
LAYERS = [
    {"errors", "words", "heap", "plainchecks"},
    {"lifting", "sources", "engine", "factors", "checks", "progress", "conjugate", "leaving"},
    {"folders", "devices"},
    {"tables", "columns", "ledger", "tensorfile", "calibration", "onnx_graph"},
    {"kernels", "metrics", "arrays", "ray_engine"},
    {"partition", "problem"},
    {"solvers"},
    {"model", "path", "gradients", "diskplan", "cells", "theory"},
    {"leftout", "posterior", "onnx_parts"},
    {"fit", "scouting", "descent", "importance", "rowtable"},
    {"voting", "trial", "intervals", "skeleton"},
    {"filechecks"},
    {"heldout", "modelfile", "answering", "refining", "streaming", "shuffling"},
    {"tuning", "prediction", "conversion", "onnx_export", "updating"},
    {"pace"},
    {"costs"},
    {"planning", "diskcosts"},
    {"settings"},
    {"disk"},
    {"plan"},
    {"diagnostics", "page"},
    {"plane"},
    {"plots"},
    {"report"},
    {"fitted"},
    {"common"},
    {"regressor", "classifier"},
    {"loading", "summary", "exits", "terminal", "options"},
    {"asking"},
    {"cli", "commands"},
    {"__main__"},
]
HOMES = {
    "sklearn": {"common", "fitted", "regressor", "classifier", "calibration"},
    "pyarrow": {"tables", "columns", "rowtable", "prediction", "conversion", "folders"},
    "ray": {"ray_engine"},
    "matplotlib": {"plots"},
    "safetensors": {"tensorfile"},
    "tqdm": {"progress"},
    "typer": {"cli", "options"},
    "rich": {"terminal"},
    "onnx": {"onnx_graph"},
}
FUNCTIONS = [
    pytest.param(node, id=f"{path.stem}.{node.name}")
    for path in MODULES
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef)
]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(name):
    [number] = [k for k, names in enumerate(LAYERS) if name in names]
    return number


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_imports_point_down(module):
    inner = {name.split(".")[1] for name in imports(module) if name.startswith("parkrr.")}
    assert all(layer(name) < layer(module.stem) for name in inner)


@pytest.mark.parametrize("package", sorted(HOMES))
def test_a_heavy_dependency_stays_at_home(package):
    users = {path.stem for path in MODULES for n in imports(path) if n.split(".")[0] == package}
    assert users == HOMES[package]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_is_at_most_400_lines(module):
    assert module.read_text().count("\n") <= 400


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_body_is_at_most_40_lines(function):
    body = function.body[1:] if ast.get_docstring(function) else function.body
    assert not body or body[-1].end_lineno - body[0].lineno < 40


def test_the_public_surface_is_what_all_says():
    found = {name: getattr(parkrr, name) for name in parkrr.__all__}
    assert set(found) == {*parkrr.HOMES, "__version__"} == set(dir(parkrr))


def test_modules_are_there_without_an_import_of_their_own():
    assert parkrr.kernels.Gaussian(2.0).lengthscale == 2.0


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'parkrr' has no attribute 'ParkRegressor'"):
        _ = parkrr.ParkRegressor
