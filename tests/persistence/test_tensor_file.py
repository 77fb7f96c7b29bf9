"""Bytes that are no sound tensor file are refused by name, at once; sound ones come back mapped."""

import json
import os
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch

from parkrr import load
from parkrr.errors import ModelFileError
from parkrr.persistence.tensor_file import read_tensors, write_tensors

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_tensors_and_plain_data_come_back(tmp_path):
    shared = torch.arange(6.0)
    tensors = {"a": shared, "b": shared, "flags": torch.tensor([True, False])}
    tensors |= {"empty": torch.empty(0, 3), "turned": torch.ones(2, 3, dtype=torch.float16).T}
    write_tensors(tmp_path / "t.park", tensors, {"x": [1, "é", None]})
    again, about = read_tensors(tmp_path / "t.park")
    assert about == {"x": [1, "é", None]}
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    assert all(again[name].dtype == tensors[name].dtype for name in tensors)


def test_a_tensor_that_is_written_into_leaves_the_file_as_it_is(tmp_path):
    write_tensors(tmp_path / "t.park", {"a": torch.zeros(3)}, {})
    before = (tmp_path / "t.park").read_bytes()
    read_tensors(tmp_path / "t.park")[0]["a"].fill_(1.0)
    assert (tmp_path / "t.park").read_bytes() == before


@pytest.mark.parametrize("about", [{"x": float("nan")}, {"x": 2**63}, {"x": {1, 2}}], ids=str)
def test_data_that_json_cannot_hold_are_refused_before_anything_is_written(about, tmp_path):
    with pytest.raises(ModelFileError, match="cannot hold this model"):
        write_tensors(tmp_path / "t.park", {"a": torch.zeros(3)}, about)
    assert not list(tmp_path.iterdir())


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
    (header_of(b'{"a": 1}'), "without __metadata__ of parkrr"),
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


def test_a_boolean_other_than_0_and_1_is_refused(tmp_path):
    data = bytearray((FIXTURES / "regressor-4.park").read_bytes())
    data[-1] = 2  # tensors of booleans come last
    (tmp_path / "m.park").write_bytes(data)
    assert "'wide' must be 0 or 1" in refusal(tmp_path / "m.park")


@pytest.mark.parametrize("length", [7, 8, 1000, 30_000, -1], ids=str)
def test_a_truncated_file_is_refused(length, tmp_path):
    (tmp_path / "m.park").write_bytes((FIXTURES / "regressor-4.park").read_bytes()[:length])
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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "m.park")
    assert "a folder, a device or a pipe" in refusal(tmp_path / "m.park")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_refused_at_once(device):
    assert "a folder, a device or a pipe" in refusal(device)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_a_file_of_the_system_without_a_size_is_refused():
    assert "it has 0 bytes" in refusal("/proc/self/maps")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
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
