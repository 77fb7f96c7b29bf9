"""Add files outside docs/ to the site, and typeset formulas.

On GitHub a document links to ../ARCHITECTURE.md or ../benchmarks/results/scale.md. In the site
these files are below project/, and links to them are rewritten. Formulas become MathML, which
browsers typeset without a script; GitHub does the same with blocks of "math".
"""

import re
from pathlib import Path, PurePosixPath

import tomllib
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    *("ARCHITECTURE.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "RELEASING.md"),
    "SECURITY.md",
)
OUTSIDE = {
    **{name: f"project/{name}" for name in DOCUMENTS},
    **{
        f"benchmarks/results/{path.name}": f"project/{path.name}"
        for path in sorted((ROOT / "benchmarks/results").glob("*"))
        if path.suffix in (".md", ".png")
    },
}
FORMULA = re.compile(r"^```math\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config):
    """Link to the repository, once its owner is known."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    if "OWNER" not in urls["Source"]:
        config.repo_url = urls["Source"]
    return config


def on_files(files, config):
    """Add the files."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrite links that leave docs/, or that come from outside."""
    place = page.file.src_uri
    source = next((old for old, new in OUTSIDE.items() if new == place), f"docs/{place}")

    def rewrite(link):
        target = resolve(PurePosixPath(source).parent, link[1])
        inside = OUTSIDE.get(target) or target.removeprefix("docs/")
        if target not in OUTSIDE and not target.startswith("docs/"):
            return link[0]
        return f"]({relative(inside, place)}{link[2] or ''})"

    markdown = FORMULA.sub(lambda block: convert(block[1], display="block"), markdown)
    return LINK.sub(rewrite, markdown)


def resolve(folder, link):
    """Return where a link in that folder leads, from the root of the repository."""
    parts = []
    for part in (folder / link).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def relative(target, place):
    """Return the path from the document at `place` to `target`."""
    return "../" * place.count("/") + target
