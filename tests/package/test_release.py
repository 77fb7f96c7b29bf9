"""Files of a release that repeat something of the package agree with it."""

import re
from pathlib import Path

import pytest
import yaml

import parkrr

ROOT = Path(__file__).parents[2]
NAMES_ON_CONDA = {"torch": "pytorch"}


def pyproject():
    return pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]


def read_yaml(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_citation_and_recipe_have_the_version_of_the_package():
    assert read_yaml("CITATION.cff")["version"] == parkrr.__version__
    assert read_yaml("recipe/recipe.yaml")["context"]["version"] == parkrr.__version__


def test_the_recipe_requires_what_the_package_requires():
    project = pyproject()
    python, *wanted = read_yaml("recipe/recipe.yaml")["requirements"]["run"]
    required = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    parts = [re.fullmatch(r"([\w-]+)(>=.*)", requirement).groups() for requirement in required]
    assert wanted == [f"{NAMES_ON_CONDA.get(name, name)} {bound}" for name, bound in parts]
    assert python == f"python {project['requires-python']}"


def test_the_oldest_versions_are_the_lower_bounds():
    bounds = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
    oldest = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / ".ci/oldest.txt").read_text(), re.M))
    assert {name: version[: len(bounds[name])] for name, version in oldest.items()} == {
        name: bounds[name] for name in oldest
    }


def test_the_documentation_lists_the_public_names():
    rows = (ROOT / "docs/api/index.md").read_text(encoding="utf-8")
    [names] = re.findall(r"^\| `parkrr` \| (.*) \|$", rows, re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", names), "__version__"} == set(parkrr.__all__)


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github/workflows").iterdir()), ids=lambda f: f.name
)
def test_every_action_is_pinned_by_digest_with_its_version(file):
    uses = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", use) for use in uses)


def test_one_action_has_one_digest():
    text = "".join(path.read_text() for path in (ROOT / ".github/workflows").iterdir())
    pins = set(re.findall(r"uses: ([\w/-]+)@(\w+)", text))
    assert len(pins) == len({name for name, _ in pins})


def test_every_link_of_the_readme_is_absolute_on_pypi():
    metadata = pytest.importorskip("hatchling.metadata.core")
    manager = pytest.importorskip("hatchling.plugin.manager").PluginManager()
    readme = metadata.ProjectMetadata(str(ROOT), manager).core.readme
    places = re.findall(r'(?:\]\(|src=")([^)"]+)', readme)
    assert len(places) == len(re.findall(r'(?:\]\(|src=")', (ROOT / "README.md").read_text()))
    assert [place for place in places if not place.startswith("https://")] == []
