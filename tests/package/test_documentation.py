"""Code in the documentation and the examples imports public names that exist."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import parkrr

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
PUBLIC = {"parkrr", *(f"parkrr.{name}" for name in parkrr.MODULES)}
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def imports(code):
    """Yield (module, name) of every import from parkrr."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "parkrr":
            yield from ((node.module, alias.name) for alias in node.names)


def snippets(file):
    text = file.read_text()
    return [text] if file.suffix == ".py" else CODE.findall(text)


@pytest.mark.parametrize("file", [*DOCUMENTS, *EXAMPLES], ids=lambda file: file.name)
def test_imports_in_documentation_and_examples_are_public(file):
    wanted = [one for code in snippets(file) for one in imports(code)]
    missing = [(module, name) for module, name in wanted if module not in PUBLIC]
    missing += [
        (module, name)
        for module, name in wanted
        if module in PUBLIC and not hasattr(import_module(module), name)
    ]
    assert missing == []


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.py")), ids=lambda f: f.stem)
def test_every_example_has_a_page_with_its_title_text_and_output(file):
    title, _, text = ast.get_docstring(ast.parse(file.read_text())).partition("\n")
    page = (GALLERY / f"{file.stem}.md").read_text()
    assert page.startswith(f"# {title.rstrip('.')}\n\n{text.strip()}\n")
    assert f'--8<-- "examples/{file.name}"' in page
    assert (GALLERY / f"{file.stem}.txt").read_text().strip()
    assert f"(gallery/{file.stem}.md)" in (ROOT / "docs" / "examples.md").read_text()


def test_every_plot_function_is_in_an_example():
    code = "".join(file.read_text() for file in EXAMPLES)
    assert [
        name for name in dir(parkrr.plots) if name.startswith("plot_") and name not in code
    ] == []
