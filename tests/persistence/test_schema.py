"""Contents of model files that do not fit together are refused by name."""

import ast
from pathlib import Path

import numpy as np
import pytest

import parkrr
from fuzz import put_together, taken_apart
from parkrr import load
from parkrr.errors import ModelFileError, NotFiniteError
from parkrr.persistence import read_model

FIXTURES = Path(__file__).parents[1] / "fixtures"


def changed(name, path, change):
    """A fixture whose tensors and facts a function has changed, as a new file."""
    tensors, about = taken_apart((FIXTURES / f"{name}-4.park").read_bytes())
    tensors = {key: tensor.copy() for key, tensor in tensors.items()}
    change(tensors, about)
    path.write_bytes(put_together(tensors, about))
    return path


def put(tensors, name, value):
    tensors[name].reshape(-1)[0] = value


def nest(kernel, times):
    """A kernel inside of so many products."""
    for _ in range(times):
        kernel = {"name": "product", "kernels": [kernel]}
    return kernel


TENSORS = [
    (lambda t, a: put(t, "centers", np.nan), "centers must be finite"),
    (lambda t, a: put(t, "weights", np.inf), "weights must be finite"),
    (lambda t, a: put(t, "sizes", -1), "sizes must be >= 1"),
    (lambda t, a: put(t, "sizes", 2**62), "weights must have .* rows by sizes"),
    (lambda t, a: put(t, "wide", False), "centers must have .* rows by sizes"),
    (lambda t, a: put(t, "more.ridge", 0), "ridge must be > 0"),
    (lambda t, a: put(t, "more.noise", -1), "noise must be >= 0"),
    (lambda t, a: put(t, "more.validation.cell", 4), "validation.cell must be from 0 to 3"),
    (lambda t, a: put(t, "more.validation.cell", -1), "validation.cell must be from 0 to 3"),
    (lambda t, a: put(t, "metric.knots", 1e9), "metric.knots must be at least two, in order"),
    (lambda t, a: t.update(limits=t["limits"].astype(np.float32)), "limits must be float64"),
    (lambda t, a: t.pop("more.quantiles"), "must have 'quantiles'"),
    (lambda t, a: t.pop("metric.levels"), "must be there together"),
    (lambda t, a: t.update(extra=np.zeros(1)), "cannot have 'extra'"),
    (lambda t, a: t.update({"more.extra": np.zeros(1)}), "cannot have 'extra'"),
    (lambda t, a: t.update(wide=t["sizes"]), "wide must be bool with 1 axes, got int64"),
    (lambda t, a: t.update(intercept=t["intercept"][:1]), "intercept must have 2 for 1"),
    (lambda t, a: t.update(centroids=t["centroids"][:0]), "centroids must have no for 0"),
    (
        lambda t, a: t.update({"metric.matrix": t["metric.matrix"][:-1]}),
        "the feature map has",
    ),
    (lambda t, a: a.update(more=1), "file cannot have 'more'"),
    (lambda t, a: a.pop("blend"), "file must have 'blend'"),
    (lambda t, a: a["blend"].update(n_nearest=0), "blend.n_nearest must be int >= 1, got 0"),
    (lambda t, a: a["blend"].update(width=1e39), "blend.width must be float <= 3.4"),
    (lambda t, a: a["blend"].update(n_nearest=True), "blend.n_nearest must be int, got True"),
    (lambda t, a: a.update(kernel={"name": "os.system"}), "kernel.name cannot be 'os.system'"),
    (lambda t, a: a.update(kernel={"name": ["gaussian"]}), "kernel.name must be str"),
    (
        lambda t, a: a["kernel"].update(lengthscale="1"),
        r"kernel.lengthscale must be float \| array, got '1'",
    ),
    (lambda t, a: a["kernel"].update(lengthscale=-1.0), "lengthscale must be between"),
    (lambda t, a: a["kernel"].update(lengthscale=[1.0] * 99), "lengthscale must be one number, or"),
    (lambda t, a: a["kernel"].update(lengthscale=[]), "lengthscale must be one number, or"),
    (lambda t, a: a["kernel"].update(nu=1.0), "nu must be one of"),
    (lambda t, a: a.update(kernel=nest(a["kernel"], 21)), "nested at most 20 times"),
    (lambda t, a: a.update(kernel={"name": "product", "kernels": []}), "at least one Kernel"),
    (
        lambda t, a: a.update(kernel={"name": "sum", "kernels": [a["kernel"]], "factors": []}),
        "factors must be one for each of 1 kernels",
    ),
    (
        lambda t, a: a.update(kernel={"name": "sum", "kernels": [a["kernel"]], "factors": [0]}),
        "factors.* must be float > 0",
    ),
    (lambda t, a: a["kernel"].update(__class__="x"), "cannot have '__class__'"),
    (lambda t, a: a["facts"]["params"].update(evil=1), "params cannot have 'evil'"),
    (lambda t, a: a["facts"]["params"].update(engine="dask"), "params.engine cannot be 'dask'"),
    (lambda t, a: a["facts"]["params"].update(kernel={"eval": "x"}), "cannot be 'eval'"),
    (
        lambda t, a: a["facts"].update(n_features_in_="4"),
        "n_features_in_ must be int, got '4'",
    ),
    (lambda t, a: a["facts"].update(target_names=["a"] * 9), "there must be . target_names"),
    (lambda t, a: a["facts"].update(target_names="y"), "target_names must be array"),
    (lambda t, a: a["facts"]["columns"].pop(), "columns must become"),
    (lambda t, a: a["facts"]["columns"][3]["codes"].pop(), "a code for each category"),
    (
        lambda t, a: a["facts"]["columns"][0].update(kind="Path"),
        "columns.*kind cannot be 'Path'",
    ),
    (lambda t, a: a["facts"]["columns"][0].update(name="sky"), "must have different names"),
    (lambda t, a: a["facts"]["report_"]["rows"].pop(), "an entry for each cell"),
    (lambda t, a: a["facts"].update(report_={}), "report_.*"),
    (
        lambda t, a: a["facts"]["report_"]["rows"].append([]),
        "report_.*rows.* must be int, got",
    ),
    (lambda t, a: a["facts"].update(one_output=True), "one_output must be false"),
    (
        lambda t, a: a["facts"]["uncertainty"]["kernel"].update(lengthscale=[1.0, 2.0]),
        "uncertainty.kernel.lengthscale must be one number, or",
    ),
    (lambda t, a: a["facts"].update(classes=["a"]), "classes of a regressor must be null"),
    (
        lambda t, a: a["facts"]["uncertainty"].update(scale="mean"),
        "uncertainty.scale cannot be 'mean'",
    ),
    (
        lambda t, a: a["facts"]["uncertainty"].update(n=0),
        "uncertainty.n must be float > 0",
    ),
]


@pytest.mark.parametrize(("change", "reason"), TENSORS, ids=[reason for _, reason in TENSORS])
def test_a_regressor_that_does_not_fit_together_is_refused(change, reason, tmp_path):
    path = changed("regressor", tmp_path / "m.park", change)
    with pytest.raises(ModelFileError, match=f"m.park' is damaged: .*{reason}"):
        load(path)


LABELS = [
    (lambda t, a: a["facts"].update(classes=["a", "b"]), "2 classes must have other outputs"),
    (
        lambda t, a: a["facts"].update(classes=["b", "a", "c"]),
        "must be of one type and increase",
    ),
    (
        lambda t, a: a["facts"].update(classes=["a", 1, "c"]),
        "must be of one type and increase",
    ),
    (lambda t, a: a["facts"].update(classes=None), "classes of a classifier must be there"),
    (lambda t, a: put(t, "more.validation.truth", 3), "validation.truth must be from 0 to 2"),
    (
        lambda t, a: a["facts"]["uncertainty"]["scores"].pop(),
        "scores must have 3 entries",
    ),
    (lambda t, a: a["facts"]["uncertainty"]["scores"][0].reverse(), "must increase"),
    (lambda t, a: a["facts"]["uncertainty"]["values"][0].append(2), "of one length"),
    (lambda t, a: a["facts"].update(uncertainty={}), "uncertainty must have 'name'"),
]


@pytest.mark.parametrize(("change", "reason"), LABELS, ids=[reason for _, reason in LABELS])
def test_a_classifier_that_does_not_fit_together_is_refused(change, reason, tmp_path):
    path = changed("classifier", tmp_path / "m.park", change)
    with pytest.raises(ModelFileError, match=f"m.park' is damaged: .*{reason}"):
        load(path)


MODULES = [
    *(f"persistence/{name}" for name in ("tensor_file", "plain_data", "schema", "model_file")),
    "persistence/estimator_file",
    "estimators/load",
]
RUNS_CODE = {"eval", "exec", "compile", "__import__", "pickle", "marshal", "shelve", "importlib"}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_that_could_run_code_is_named_where_files_are_read(module):
    tree = ast.parse((Path(parkrr.__file__).parent / f"{module}.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert not names & (RUNS_CODE | {"load_module", "import_module", "system", "popen"})


@pytest.mark.parametrize(("name", "what"), [("centers.wide", "centres"), ("weights", "weights")])
def test_cells_of_a_large_file_are_checked_when_they_are_used(name, what, tmp_path):
    path = changed("regressor", tmp_path / "m.park", lambda t, a: put(t, name, np.nan))
    model = read_model(path, shared=True, checked_bytes=0).model
    with pytest.raises(NotFiniteError, match=f"the {what} of cell 0 must be finite"):
        model.cells[0]
