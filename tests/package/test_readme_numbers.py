"""Every number in README.md is in the results that its paragraph links to.

The rule: outside of code, each number of a paragraph, a list item or a table must be, rounded to
the digits that README.md prints, in a file of benchmarks/results that the same paragraph links to.
A table belongs to the paragraph above it. Numbers that are not measured are in NOT_MEASURED, with
the reason. Outputs of code are not looked up here: tests/package/test_readme.py prints them again.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_MEASURED = {
    r"Python 3\.\d+": "what pyproject.toml requires",
    r"1 - AUC": "the name of a measure",
    r"1,000 trees": "a setting of LightGBM",
    r"0\.9 intervals": "the coverage that was requested",
    r"January to June 2001": "the name of a dataset",
    r"BSD-3-Clause": "the licence",
    r"<img [^>]*>": "the width of the logo",
    r"limits R2 to about 0\.96": "1 - 1 / 24.9, from the variances of noise and target",
    r"(?m)^\| [^|]+, [\d.,]+( million)? \|": "the rows of a dataset, first in a table",
    r"10\^8 distinct rows of 9 features": "the size of the data",
}
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?:benchmarks/results/(\w+)\.md)?[^)]*\)")
NUMBER = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?: (million|minutes))?(?!\w)")
UNITS = {"million": 1e6, "minutes": 60, "": 1}


def paragraphs():
    """Yield the text of each paragraph or list item; a table continues the text above it."""
    text = re.sub(r"\n+(?=\|)", "\n", CODE.sub("", README))
    yield from re.split(r"\n\n+|\n(?=- )", text)


def measurements(paragraph):
    """Return what the numbers of a paragraph are: the text, its value and half its last digit."""
    text = LINK.sub("]", paragraph)
    for phrase in NOT_MEASURED:
        text = re.sub(phrase, "", text)
    for digits, unit in NUMBER.findall(text):
        decimals = len(digits.partition(".")[2])
        value = float(digits.replace(",", "")) * UNITS[unit]
        yield f"{digits} {unit}".strip(), value, 0.5000001 * 10**-decimals * UNITS[unit]


def numbers_in(value):
    """Yield all numbers in a JSON document."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(part)
    elif isinstance(value, int | float):
        yield float(value)


def results(name):
    """Return the numbers in NAME.json and in NAME.md, without what describes the machine."""
    folder = ROOT / "benchmarks/results"
    table = (folder / f"{name}.md").read_text(encoding="utf-8").rpartition("processor")[0]
    written = [float(digits.replace(",", "")) for digits, _ in NUMBER.findall(table)]
    return [*numbers_in(json.loads((folder / f"{name}.json").read_text())["results"]), *written]


@pytest.mark.parametrize("paragraph", [*paragraphs()], ids=lambda text: " ".join(text.split()[:4]))
def test_every_number_is_in_the_results_that_its_paragraph_links_to(paragraph):
    recorded = [number for name in LINK.findall(paragraph) if name for number in results(name)]
    missing = [
        text
        for text, value, half in measurements(paragraph)
        if not any(abs(number - value) <= half for number in recorded)
    ]
    assert missing == []


@pytest.mark.parametrize("phrase", [*NOT_MEASURED])
def test_every_exception_is_still_in_the_text(phrase):
    assert re.search(phrase, README)
