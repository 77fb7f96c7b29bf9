"""Run the examples and write their text, output and plots to docs/gallery.

    python docs/render_gallery.py                  # all of examples/*.py
    python docs/render_gallery.py churn own_kernel

A document has the title and text of the example's docstring, its plots, code and output. The index,
docs/examples.md, has a card for each. Run it after a change of an example: a test compares the
code of documents with the examples, and CI runs all examples.
"""

import argparse
import ast
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
ROOT, GALLERY = DOCS.parent, DOCS / "gallery"
# The order of the cards: from first steps to special cases. Others follow by name.
FIRST = ("house_prices", "churn", "taxi_rides", "explanation", "tour_of_plots", "counts")


def render(example):
    """Run an example in a process of its own; its document, output and plots."""
    done = subprocess.run(
        [sys.executable, __file__, "--run", str(example)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "100"},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{example.name} failed:\n{done.stderr[-3000:]}")
    (GALLERY / f"{example.stem}.txt").write_text(done.stdout.rstrip() + "\n", encoding="utf-8")
    write_document(example)
    print(f"{example.stem}: {len(plots_of(example))} plots, {len(done.stdout.splitlines())} lines")


def run(example):
    """Run an example in this process and keep its plots."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only here

    plt.show = lambda: None
    os.chdir(tempfile.mkdtemp())
    runpy.run_path(example, run_name="__main__")
    for old in plots_of(Path(example)):
        old.unlink()
    for k, number in enumerate(plt.get_fignums()):
        plt.figure(number).savefig(GALLERY / f"{Path(example).stem}-{k}.png", dpi=80)


def plots_of(example):
    """The plots of an example, in order."""
    plots = GALLERY.glob(f"{example.stem}-*.png")
    return sorted(plots, key=lambda path: int(path.stem.rpartition("-")[2]))


def describe(example):
    """Title and text of an example, from its docstring."""
    title, _, text = ast.get_docstring(ast.parse(example.read_text())).partition("\n")
    return title.rstrip("."), text.strip()


def write_document(example):
    """The document of an example: text, plots, code, output."""
    title, text = describe(example)
    lines = [f"# {title}", "", text, ""]
    for path in plots_of(example):
        lines += [f"![{title}]({path.name})", ""]
    lines += [f'``` {{.python title="examples/{example.name}"}}']
    lines += [f'--8<-- "examples/{example.name}"', "```", "", '```text title="output"']
    lines += [f'--8<-- "docs/gallery/{example.stem}.txt"', "```"]
    (GALLERY / f"{example.stem}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_index(examples):
    """A card for each example."""
    names = [example.stem for example in examples]
    order = [n for n in FIRST if n in names] + [n for n in names if n not in FIRST]
    lines = [
        "# Gallery",
        "",
        "Worked examples with their plots and output, from runs on two busy cores. Each is a "
        "script: `python examples/churn.py`. Seconds, and results that depend on a time budget, "
        "differ from run to run. Some use real data if the environment variable `PARKRR_DATA` "
        "names a folder with it, and synthetic rows otherwise.",
        "",
        "`examples/service/` is a web service; [serving](serving.md#a-web-service) describes it.",
        "",
        '<div class="grid cards" markdown>',
        "",
    ]
    for name in order:
        example = ROOT / "examples" / f"{name}.py"
        title, text = describe(example)
        lines += [f"-   **[{title}](gallery/{name}.md)**", ""]
        for plot in plots_of(example)[:1]:
            lines += [f"    [![{title}](gallery/{plot.name})](gallery/{name}.md)", ""]
        lines += [f"    {' '.join(text.split('. ')[0].split()).rstrip('.')}.", ""]
    lines += ["</div>"]
    (DOCS / "examples.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    """Run what is asked for, and write the index."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="examples to run; all by default")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.run)
        return
    GALLERY.mkdir(exist_ok=True)
    examples = sorted((ROOT / "examples").glob("*.py"))
    for example in examples:
        if not arguments.names or example.stem in arguments.names:
            render(example)
    write_index([example for example in examples if (GALLERY / f"{example.stem}.md").exists()])


if __name__ == "__main__":
    main()
