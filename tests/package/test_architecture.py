"""The shape of the package is a test, not a memory."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import parkrr

SOURCE = Path(parkrr.__file__).parent
MODULES = sorted(path for path in SOURCE.glob("*/*.py"))
# A folder imports only folders that stand before it.
FOLDERS = [
    "errors",
    "runtime",
    "kernels",
    "data",
    "sources",
    "solvers",
    "partition",
    "park",
    "theory",
    "uncertainty",
    "tuning",
    "planning",
    "persistence",
    "out_of_core",
    "inspection",
    "plots",
    "report",
    "estimators",
    "cli",
]
# Heavy dependencies, and the only places that import them.
HOMES = {
    "sklearn": {"estimators", "uncertainty/calibration.py", "report"},
    "jinja2": {"report"},
    "pyarrow": {"data", "sources", "out_of_core/predict_files.py"},
    "ray": {"runtime/ray_engine.py"},
    "matplotlib": {"plots"},
    "safetensors": {"persistence/tensor_file.py"},
    "msgspec": {"persistence"},
    "tqdm": {"runtime"},
    "typer": {"cli"},
    "rich": {"cli"},
    "onnx": {"persistence/onnx_graph.py"},
}
NOT_LOADED = ("onnx", "matplotlib", "ray", "typer", "rich")
NOT_ENTERED = ("onnx_columns", "onnx_export", "onnx_graph", "plots", "report", "ray_engine", "cli")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def place(path):
    return path.relative_to(SOURCE).as_posix()


def test_every_folder_has_its_place_in_the_order():
    assert sorted(FOLDERS) == sorted({path.parent.name for path in MODULES})


@pytest.mark.parametrize("module", MODULES, ids=place)
def test_folders_import_only_folders_before_them(module):
    own = FOLDERS.index(module.parent.name)
    inner = [name.split(".")[1] for name in imports(module) if name.startswith("parkrr.")]
    assert all(FOLDERS.index(folder) <= own for folder in inner)


@pytest.mark.parametrize("module", MODULES, ids=place)
def test_heavy_dependencies_have_one_home(module):
    used = {name.split(".")[0] for name in imports(module)} & set(HOMES)
    assert all({module.parent.name, place(module)} & HOMES[name] for name in used)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_has_more_than_twelve_files(folder):
    assert len(list((SOURCE / folder).glob("*.*"))) <= 12


def test_at_most_three_files_stand_beside_the_folders():
    assert len([path for path in SOURCE.iterdir() if path.is_file()]) <= 3


def test_every_public_name_is_listed_and_can_be_imported():
    assert set(parkrr.__all__) == {*parkrr.PUBLIC, "__version__"}
    assert all(getattr(parkrr, name) is not None for name in dir(parkrr))


def test_an_estimator_loads_no_optional_part():
    script = (
        "import sys, parkrr; parkrr.ParKRegressor; "
        f"print([m for m in sys.modules if m.split('.')[0] in {NOT_LOADED} or "
        f"m.startswith('parkrr.') and set(m.split('.')) & set({NOT_ENTERED})])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"
