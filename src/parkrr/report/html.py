"""A page of plain HTML: its frame, tables, pictures inside of it. Knows no models.

Whatever is put into it as text is escaped here, and nothing is asked of the network.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import Any

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1c2126; --soft: #5b6570; --back: #fff; --card: #f4f6f8;
  --line: #d9dee3; --mark: #b03a12; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a3adb7; --back: #14181c;
  --card: #1e242a; --line: #38414a; --mark: #ff9b73; }
  img { filter: invert(1) hue-rotate(180deg); } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; color: var(--ink); background: var(--back);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.5rem; padding-top: 0.8rem;
  border-top: 1px solid var(--line); }
p, li { max-width: 46rem; } p { margin: 0.5rem 0; }
.tiles, .pictures { display: grid; gap: 0.8rem; margin: 1rem 0; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.tile { background: var(--card); border-radius: 0.5rem; padding: 0.6rem 0.8rem; }
.tile b { display: block; font-size: 1.3rem; } .tile span, figcaption { color: var(--soft); }
.pictures { grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.pictures figure:last-child:nth-child(odd) { grid-column: 1 / -1; }
figure { margin: 0; background: var(--card); border-radius: 0.5rem; padding: 0.6rem; }
img { width: 100%; max-width: 36rem; height: auto; display: block; margin: auto; }
figcaption, table, .tile span { font-size: 0.88rem; }
.scroll { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; overflow-wrap: normal; }
th, td { text-align: right; padding: 0.2rem 0.7rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, .word { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
th, .word { white-space: normal; vertical-align: bottom; }
.facts td { white-space: normal; text-align: left; vertical-align: top; }
summary { cursor: pointer; padding: 0.3rem 0; }
.warn { border-left: 4px solid var(--mark); padding-left: 1.8rem; }
</style></head><body>
<h1>$title</h1>
$body
</body></html>
""")


def whole_page(title: str, body: str) -> str:
    """A page of that title, which is text, around a body, which is HTML."""
    return PAGE.substitute(title=escape(title), body=body)


def figures(pictures: Iterable[tuple[bytes, str]]) -> str:
    """PNG pictures with their captions, side by side where there is room."""
    inner = []
    for picture, caption in pictures:
        data, words = base64.b64encode(picture).decode(), escape(caption)
        image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
        inner.append(f"<figure>{image}<figcaption>{words}</figcaption></figure>")
    return f'<div class="pictures">{"".join(inner)}</div>' if inner else ""


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the same kind as a table that scrolls by itself."""
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    word = {name for name in names if is_word(rows[0].get(name))}
    kind = {name: ' class="word"' if name in word else "" for name in names}
    lines = [[f"<th{kind[name]}>{escape(name)}</th>" for name in names]]
    lines += [[f"<td{kind[name]}>{shown(row.get(name))}</td>" for name in names] for row in rows]
    return scrolling("".join(f"<tr>{''.join(line)}</tr>" for line in lines), "")


def facts(known: Mapping[str, Any]) -> str:
    """Names and values, in two columns that fit a phone."""
    lines = (f"<tr><td>{escape(k)}</td><td>{shown(v)}</td></tr>" for k, v in known.items())
    return scrolling("".join(lines), ' class="facts"')


def scrolling(lines: str, kind: str) -> str:
    """Lines of a table in a frame of its own."""
    return f'<div class="scroll"><table{kind}>{lines}</table></div>'


def folded(title: str, inner: str, unfolded: bool = False) -> str:
    """HTML under a title, which is text, that opens when it is asked for."""
    if not inner:
        return ""
    is_open = " open" if unfolded else ""
    return f"<details{is_open}><summary>{escape(title)}</summary>{inner}</details>"


def is_word(value: Any) -> bool:
    """Whether a value is read from the left."""
    return isinstance(value, str) and not value.endswith("%")


def shown(value: Any) -> str:
    """A value as escaped text."""
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return escape(str(value))
