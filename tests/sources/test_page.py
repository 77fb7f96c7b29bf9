"""The code of docs/sources.md, in a folder of its own."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
ROWS, *EXAMPLES = [block for block in BLOCKS if "import ray" not in block]  # takes a cluster


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_makes_a_table_of_rows(example, tmp_path, monkeypatch):
    library = re.match(r"(?:import|from) (\w+)", example)[1]
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(ROWS + example, names)
    assert names["rows"].n_rows >= 2
