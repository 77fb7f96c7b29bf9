"""Files outside docs/ as pages of the site.

On GitHub a page links to ../ARCHITECTURE.md or ../benchmarks/results/scale.md. In the site these
files are pages below project/, and links to them are turned there.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
OUTSIDE = {
    **{name: f"project/{name}" for name in PAGES},
    **{
        f"benchmarks/results/{path.name}": f"project/{path.name}"
        for path in sorted((ROOT / "benchmarks/results").glob("*"))
        if path.suffix in (".md", ".png")
    },
}
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files, config):
    """Add them."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links that leave docs/, or that come from outside, to pages of the site."""
    place = page.file.src_uri
    source = next((old for old, new in OUTSIDE.items() if new == place), f"docs/{place}")

    def turned(found):
        target = resolved(PurePosixPath(source).parent, found[1])
        inside = OUTSIDE.get(target) or target.removeprefix("docs/")
        if target not in OUTSIDE and not target.startswith("docs/"):
            return found[0]
        return f"]({relative(inside, place)}{found[2] or ''})"

    return LINK.sub(turned, markdown)


def resolved(folder, link):
    """Where a link in that folder leads, from the root of the repository."""
    parts = []
    for part in (folder / link).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def relative(target, place):
    """The way from the page at `place` to `target`."""
    return "../" * place.count("/") + target
