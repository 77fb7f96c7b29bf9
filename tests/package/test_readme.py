"""The code in README.md runs as it is printed, and prints what follows it.

A block of Python is a program of its own; a block of text right after it is its output, whose
numbers may differ by 0.03: processors round differently, and a search then takes another path. A
block for the shell runs in bash. All run in a folder with the files that they name.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.S | re.M)
NUMBER = re.compile(r"\d+\.\d* *")
BLOCKS = BLOCK.findall(README)
INSTALL = [code for _, code, _ in BLOCKS if "pip install" in code]  # .ci/release installs
RUN = [block for block in BLOCKS if block[1] not in INSTALL]
INTERPRETERS = {"python": [sys.executable, "-c"], "bash": ["bash", "-euc"]}


def numbers(text):
    return [float(number) for number in NUMBER.findall(text)]


def first_line(text):
    return text.partition("\n")[0]


def trips(n):
    rng = np.random.default_rng(0)
    km, hour = rng.gamma(2.0, 3.0, n), rng.integers(0, 24, n)
    minutes = 3 + 2 * km + np.cos(hour / 4) + rng.normal(0, 0.5, n)
    return pa.table({"trip_id": np.arange(n), "km": km, "hour": hour, "minutes": minutes})


@pytest.fixture
def folder(tmp_path):
    """A folder with the trips that the blocks read."""
    for name in ("trips", "new-trips"):
        (tmp_path / name).mkdir()
        pq.write_table(trips(600), tmp_path / f"{name}.parquet")
        pq.write_table(trips(600), tmp_path / name / "part-0.parquet")
    return tmp_path


@pytest.mark.parametrize(("language", "code", "output"), RUN, ids=first_line)
def test_code_runs_as_printed_and_prints_what_follows_it(language, code, output, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*INTERPRETERS[language], code],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout if output else ""
    assert NUMBER.sub("0", printed) == NUMBER.sub("0", output)
    assert numbers(printed) == pytest.approx(numbers(output), abs=0.03)


@pytest.mark.parametrize("code", INSTALL, ids=first_line)
def test_extras_that_are_installed_exist(code):
    wanted = ",".join(re.findall(r"\[([\w,]+)\]", code) + re.findall(r"extras: ([\w, ]+)", code))
    assert set(re.findall(r"\w+", wanted)) <= set(metadata("parkrr").get_all("Provides-Extra"))
