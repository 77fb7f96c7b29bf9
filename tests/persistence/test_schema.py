"""Model files of a hostile world: whatever they claim, they are refused by name, at once."""

import ast
import json
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import parkrr
from fuzz import put_together, taken_apart
from parkrr import load
from parkrr.errors import ModelFileError

FIXTURES = Path(__file__).parents[1] / "fixtures"


def refusal(path):
    """How a file is refused."""
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert Path(path).name in str(caught.value)
    return str(caught.value)


def header_of(text, more=b""):
    """The bytes of a file with that header."""
    return struct.pack("<Q", len(text)) + text + more


BYTES = [
    (b"", "it has 0 bytes"),
    (b"1234567", "it has 7 bytes"),
    (struct.pack("<Q", 2**63), "its header would have 9,223,372,036,854,775,808 bytes"),
    (struct.pack("<Q", 10**9) + b" " * 100, "its header would have 1,000,000,000 bytes"),
    (header_of(b"\xff\xfe{}"), "can't decode byte 0xff"),
    (header_of(b"[]"), "must be an object of JSON"),
    (header_of(b"{"), "Expecting property name"),
    (header_of(b"[" * 100_000), "recursion"),
    (header_of(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "recursion"),
    (header_of(b'{"a": 1, "a": 2}'), "'a' is there twice"),
    (header_of(b'{"a": NaN}'), "numbers must be finite"),
    (header_of(b'{"a": 1e999}'), "numbers must be finite"),
    (header_of(b'{"a": %d}' % 2**64), "fit 64 bits"),
    (header_of(b'{"a": "\\ud800"}'), "surrogates not allowed"),
    (header_of(b'{"a": 1}'), "__metadata__ must be object, got None"),
    (header_of(b'{"__metadata__": {"format": "pt"}}'), "__metadata__ cannot have 'format'"),
    (header_of(b'{"__metadata__": {"parkrr": 1}}'), "__metadata__.parkrr must be str, got 1"),
    (header_of(b'{"__metadata__": {"parkrr": "[]"}}'), "must be an object of JSON"),
]


@pytest.mark.parametrize(("data", "reason"), BYTES, ids=[reason for _, reason in BYTES])
def test_bytes_that_are_no_file_of_ours_are_refused(data, reason, tmp_path):
    (tmp_path / "m.park").write_bytes(data)
    assert reason in refusal(tmp_path / "m.park")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (1, "'x' must be object, got 1"),
        ({"dtype": "F64", "shape": [1]}, "'x' must have 'data_offsets'"),
        ({"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}, "'x'.dtype cannot be 'BF16'"),
        ({"dtype": [], "shape": [1], "data_offsets": [0, 8]}, "'x'.dtype must be str, got []"),
        ({"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}, "must be int >= 0, got -1"),
        ({"dtype": "F64", "shape": [True], "data_offsets": [0, 8]}, "must be int, got True"),
        ({"dtype": "F64", "shape": [1], "data_offsets": [8, 0]}, "must take 8 bytes, not -8"),
        ({"dtype": "F64", "shape": [1], "data_offsets": [0]}, "must be array of length 2"),
        ({"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}, "bytes behind the file"),
        ({"dtype": "F64", "shape": [2**32, 2**32], "data_offsets": [0, 0]}, "cannot have"),
        ({"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]}, "cannot have the shape"),
        ({"dtype": "F64", "shape": [1] * 9, "data_offsets": [0, 8]}, "array of length <= 8"),
        ({"dtype": "F64", "shape": [1], "data_offsets": [8, 16]}, "must begin at byte 0"),
        ({"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}, "belong to no tensor"),
    ],
)
def test_a_tensor_that_does_not_fit_its_file_is_refused(entry, reason, tmp_path):
    header = {"__metadata__": {"parkrr": "{}"}, "x": entry}
    (tmp_path / "m.park").write_bytes(header_of(json.dumps(header).encode(), b"\0" * 8))
    assert reason in refusal(tmp_path / "m.park")


def changed(name, path, change):
    """A fixture whose tensors and facts a function has changed, as a new file."""
    tensors, about = taken_apart((FIXTURES / f"{name}-3.park").read_bytes())
    tensors = {key: tensor.copy() for key, tensor in tensors.items()}
    change(tensors, about)
    path.write_bytes(put_together(tensors, about))
    return path


def put(tensors, name, value):
    tensors[name].reshape(-1)[0] = value


TENSORS = [
    (lambda t, a: put(t, "centers", np.nan), "centers must be finite"),
    (lambda t, a: put(t, "weights", np.inf), "weights must be finite"),
    (lambda t, a: put(t, "sizes", -1), "sizes must be >= 1"),
    (lambda t, a: put(t, "sizes", 2**62), "weights must have .* rows by sizes"),
    (lambda t, a: put(t, "wide", False), "centers must have .* rows by sizes"),
    (lambda t, a: put(t, "more.ridge", 0), "ridge must be > 0"),
    (lambda t, a: put(t, "more.noise", -1), "noise must be >= 0"),
    (lambda t, a: put(t, "more.held_out.cell", 3), "held_out.cell must be from 0 to 2"),
    (lambda t, a: put(t, "more.held_out.cell", -1), "held_out.cell must be from 0 to 2"),
    (lambda t, a: put(t, "metric.knots", 1e9), "metric.knots must be at least two, in order"),
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
    (lambda t, a: a["blend"].update(n_nearest=True), "blend.n_nearest must be int, got True"),
    (lambda t, a: a.update(kernel={"name": "os.system"}), "kernel.name cannot be 'os.system'"),
    (lambda t, a: a.update(kernel={"name": ["gaussian"]}), "kernel.name must be str"),
    (lambda t, a: a["kernel"].update(lengthscale="1"), "kernel.lengthscale must be float, got '1'"),
    (lambda t, a: a["kernel"].update(lengthscale=-1.0), "lengthscale must be between"),
    (lambda t, a: a["kernel"].update(nu=1.0), "nu must be one of"),
    (lambda t, a: a["kernel"].update(__class__="x"), "cannot have '__class__'"),
    (lambda t, a: a["facts"]["params"].update(evil=1), "params cannot have 'evil'"),
    (lambda t, a: a["facts"]["params"].update(engine="dask"), "params.engine cannot be 'dask'"),
    (lambda t, a: a["facts"]["params"].update(kernel={"eval": "x"}), "cannot be 'eval'"),
    (
        lambda t, a: a["facts"].update(n_features_in_="4"),
        "n_features_in_ must be int, got '4'",
    ),
    (lambda t, a: a["facts"]["columns"].pop(), "columns must become"),
    (lambda t, a: a["facts"]["columns"][3]["codes"].pop(), "a code for each category"),
    (
        lambda t, a: a["facts"]["columns"][0].update(kind="Path"),
        "columns.*kind cannot be 'Path'",
    ),
    (lambda t, a: a["facts"]["columns"][0].update(name="sky"), "must have different names"),
    (lambda t, a: a["facts"]["report_"].pop(), "an entry for each cell"),
    (
        lambda t, a: a["facts"]["report_"][0].update(rows=[]),
        "report_.*rows must be int, got",
    ),
    (lambda t, a: a["facts"].update(one_output=True), "one_output must be false"),
    (lambda t, a: a["facts"].update(classes=["a"]), "classes of a regressor must be null"),
    (lambda t, a: a["facts"]["uncertainty"].update(how="mean"), "uncertainty.how cannot be 'mean'"),
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
    (lambda t, a: put(t, "more.held_out.truth", 3), "held_out.truth must be from 0 to 2"),
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


def test_a_truth_value_other_than_0_and_1_is_refused(tmp_path):
    data = bytearray((FIXTURES / "regressor-3.park").read_bytes())
    data[-1] = 2  # tensors of truth values come last
    (tmp_path / "m.park").write_bytes(data)
    assert "'wide' must be 0 or 1" in refusal(tmp_path / "m.park")


@pytest.mark.parametrize("length", [7, 8, 1000, 30_000, -1], ids=str)
def test_a_truncated_file_is_refused(length, tmp_path):
    (tmp_path / "m.park").write_bytes((FIXTURES / "regressor-3.park").read_bytes()[:length])
    refusal(tmp_path / "m.park")


def test_a_header_that_would_take_a_gigabyte_is_refused_before_it_does(tmp_path):
    inner = "[" + "[]," * 10_000_000 + "[]]"
    text = json.dumps({"__metadata__": {"parkrr": '{"a": ' + inner + "}"}})
    (tmp_path / "m.park").write_bytes(header_of(text.encode()))
    size = (tmp_path / "m.park").stat().st_size
    tracemalloc.start()
    reason = refusal(tmp_path / "m.park")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "its header would take" in reason
    assert peak < 2 * size + 2**26


def test_a_folder_is_no_model(tmp_path):
    assert "a folder, a device or a pipe" in refusal(tmp_path)


def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "m.park")
    assert "a folder, a device or a pipe" in refusal(tmp_path / "m.park")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_refused_at_once(device):
    assert "a folder, a device or a pipe" in refusal(device)


def test_a_file_of_the_system_without_a_size_is_refused():
    assert "it has 0 bytes" in refusal("/proc/self/maps")


def test_a_link_that_leads_to_itself_is_an_error_of_the_system_that_names_it(tmp_path):
    (tmp_path / "m.park").symlink_to(tmp_path / "m.park")
    with pytest.raises(OSError, match=r"m\.park"):
        load(tmp_path / "m.park")


def test_a_path_with_a_zero_byte_is_refused():
    with pytest.raises(ModelFileError, match="embedded null byte"):
        load("a\0b")


def test_a_file_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"m\.park"):
        load(tmp_path / "m.park")


MODULES = [
    *(f"persistence/{name}" for name in ("tensor_file", "plain_data", "schema", "model_file")),
    "persistence/estimator_file",
    "estimators/loading",
]
RUNS_CODE = {"eval", "exec", "compile", "__import__", "pickle", "marshal", "shelve", "importlib"}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_that_could_run_code_is_named_where_files_are_read(module):
    tree = ast.parse((Path(parkrr.__file__).parent / f"{module}.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert not names & (RUNS_CODE | {"load_module", "import_module", "system", "popen"})
