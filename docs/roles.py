"""Turn roles in docstrings, :class:`Gaussian` or :math:`x^2`, into links and MathML."""

import re

import griffe
from latex2mathml.converter import convert

ROLE = re.compile(r":(class|func|meth|mod|math):`([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites the docstring of every object."""

    def on_object(self, *, obj, loader, **kwargs):
        """Once all objects are known."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = ROLE.sub(lambda match: to_markdown(obj, *match.groups()), text)


def to_markdown(obj, role, text):
    """Return one role as Markdown."""
    if role == "math":
        return convert(text)
    name = text.rpartition(".")[2] if role != "mod" else text
    return f'<autoref optional identifier="{path_of(obj, text)}"><code>{name}</code></autoref>'


def path_of(obj, name):
    """Return the full path of a name in the scope of an object."""
    if name.startswith("parkrr."):
        return name
    scope = obj
    while scope is not None:
        if name.split(".")[0] in scope.all_members:
            return f"{scope.path}.{name}"
        scope = scope.parent
    return name
