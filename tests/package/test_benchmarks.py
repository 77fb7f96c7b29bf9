"""Every result can be made again, and is in the list of docs/benchmarks.md."""

import re
from pathlib import Path

import rerun

ROOT = Path(__file__).parents[2]
RECORDED = sorted(path.stem for path in (ROOT / "benchmarks/results").glob("*.json"))


def test_every_result_has_a_command_that_makes_it_again():
    assert sorted(rerun.BENCHMARKS) == RECORDED


def test_every_command_names_a_script_of_the_benchmarks():
    scripts = {script for name in rerun.BENCHMARKS for script, *_ in rerun.commands(name)}
    assert [name for name in scripts if not (ROOT / f"benchmarks/{name}.py").exists()] == []


def test_every_result_is_in_the_list_of_benchmarks():
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    table = "".join(re.findall(r"^\|.*$", text, re.MULTILINE))
    assert [name for name in RECORDED if f"results/{name}.md" not in table] == []
