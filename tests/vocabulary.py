"""Find retired words in the package, its documentation and its messages.

``python tests/vocabulary.py [FILE OR FOLDER ...]`` prints each place and exits with 1 if there is
one. A hook alone has the name that mkdocs gives it. Text is searched by word, code by identifier:
classes of the old vocabulary, functions named by a bare participle ("learned", "kept") and
variables that do not say what they hold ("found", "how", "who", "at").
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEARCHED = ("src", "docs", "examples", "README.md", "ARCHITECTURE.md", "mkdocs.yml")
ALLOWED = ("docs/hooks.py",)  # mkdocs names its hooks
TEXT = re.compile(
    r"\b((?<!long )words|gaps|truth values?|moments|answer(s|ed|ing)?|asks|listens to|knows|says"
    r"|judge[sd]?|judging|judge?ments?|teach(es)?|rows left out|left-out rows|held-out rows"
    r"|scout(s|ed|ing)?|race(?! +string)[sd]?|racing|vote[srd]?|voters|voting|(?<!blend[ _])trials?"
    r"|balls?|(?<!bbox to )anchors?(?!: warn)|runners?|polls?|rolls?|compass"
    r"|error bars that hold|the machine of the user|goes on where it was"
    r"|pictures?|page(?! checksum)|figures)\b",
    re.IGNORECASE,
)
CLASSES = {
    *("Park", "Skeleton", "Decided", "Ledger", "Sums", "Wish", "Diary", "Guess", "Section"),
    *("Room", "Pace", "Shape"),
}
VARIABLES = {"found", "how", "who", "at"}
PARTICIPLE = re.compile(
    r"([a-z]+ed|kept|told|found|usual|sound|seen|said|known|drawn|shown|made|left|given|taken|built)"
)
NOT_A_PARTICIPLE = {"seed", "speed", "need", "shed", "feed", "embed", "proceed"}


def files(places):
    for place in places:
        path = ROOT / place
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (
            file
            for file in inside
            if file.suffix in (".py", ".md", ".yml", ".html", ".css")
            and file.relative_to(ROOT).as_posix() not in ALLOWED
        )


def words_in(text):
    for number, line in enumerate(text.splitlines(), 1):
        # An identifier such as cell_comparison or predict_words is several words.
        for match in TEXT.finditer(line.replace("_", " ")):
            yield number, match.group()


def is_participle(name):
    return PARTICIPLE.fullmatch(name) is not None and name not in NOT_A_PARTICIPLE


def names_in(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name in CLASSES:
            yield node.lineno, f"class {node.name}"
        if isinstance(node, ast.FunctionDef) and is_participle(node.name):
            yield node.lineno, f"def {node.name}"
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if name in VARIABLES:
                yield node.lineno, f"variable {name}"


def retired(file):
    text = file.read_text()
    places = list(words_in(text))
    if file.suffix == ".py" and file.is_relative_to(ROOT / "src"):
        places += names_in(text)
    return [f"{file.relative_to(ROOT)}:{number}: {word}" for number, word in sorted(places)]


def main():
    places = sys.argv[1:] or SEARCHED
    lines = [line for file in files(places) for line in retired(file)]
    print("\n".join(lines) or "no retired word")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
