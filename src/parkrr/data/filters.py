"""Filters of rows: text such as "year > 2023 and city in ('Oslo', 'Rome')" as an Arrow expression.

    expression  :=  conjunction ("or" conjunction)*
    conjunction :=  condition ("and" condition)*
    condition   :=  "not" condition | "(" expression ")" | comparison
    comparison  :=  value (operator value)+ | value ["not"] "in" "(" literals ")"
                    | value "is" ["not"] "null" | column of booleans
    value       :=  column | `column` | number | 'text' | "text" | true | false

A row where a comparison meets a missing value is skipped, as Arrow and SQL do.
"""

import re
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parkrr.errors import ParameterError, suggest

TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | (?P<quoted>`[^`]+`)
    | (?P<operator><=|>=|==|!=|<>|<|>|=)
    | (?P<mark>[()\[\],])
    | (?P<word>[^\W\d][\w.]*)
    )""",
    re.VERBOSE,
)
OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "=": eq, "!=": ne, "<>": ne}
KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false")
EXAMPLE = "\"year > 2023 and city in ('Oslo', 'Rome')\""


class Token(NamedTuple):
    """A word, number, text, operator or mark, and where it begins."""

    kind: str
    text: str
    place: int


class Column(NamedTuple):
    """A column, and the type that literals beside it take."""

    name: str
    type: pa.DataType


class Literal(NamedTuple):
    """A number, text or boolean."""

    value: float | str | bool


def make_filter(given: Any, schema: pa.Schema) -> Any:
    """An Arrow expression of text, of pyarrow's lists of conditions, or of an expression.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from parkrr.data.filters import make_filter
    >>> make_filter("x > 0 and x <= 5", pa.schema({"x": "int64"}))
    <pyarrow.compute.Expression ((x > 0) and (x <= 5))>
    """
    if given is None or isinstance(given, pc.Expression):
        return given
    if isinstance(given, str):
        return FilterParser(given, schema).parse()
    try:
        return pq.filters_to_expression(given)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"filter must be text such as {EXAMPLE}, a pyarrow expression, or conditions such as "
            f"[('year', '>', 2023)], got {given!r}: {error}"
        ) from error


class FilterParser:
    """Reads one filter, token by token."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text, self.schema = text, schema
        self.tokens, self.next = self.split(), 0

    def split(self) -> list[Token]:
        """The tokens of the text, and one for its end."""
        tokens, place, end = [], 0, len(self.text.rstrip())
        while place < end:
            match = TOKEN.match(self.text, place)
            if match is None:
                rest = self.text[place:].lstrip()
                wrong = Token("", rest.split()[0], len(self.text) - len(rest))
                self.refuse(wrong, "a column or a value")
            kind = str(match.lastgroup)
            token = Token(kind, match[kind], match.start(kind))
            if kind == "word" and token.text.lower() in KEYWORDS:
                token = Token("keyword", token.text.lower(), token.place)
            tokens.append(token)
            place = match.end()
        return [*tokens, Token("end", "", end)]

    def refuse(self, token: Token, wanted: str) -> NoReturn:
        """Raise an error that shows where the text is not understood."""
        there = f"{token.text!r} at position {token.place}" if token.text else "its end"
        raise ParameterError(
            f"filter must be an expression such as {EXAMPLE}, but {self.text!r} has {there} where "
            f"{wanted} is expected"
        )

    def accept(self, *texts: str) -> bool:
        """Go past the next token if it is an unquoted one of these."""
        token = self.tokens[self.next]
        accepted = token.kind in ("keyword", "mark", "operator") and token.text in texts
        self.next += accepted
        return accepted

    def expect(self, *texts: str) -> None:
        """Go past one of these, or refuse what is there instead."""
        if not self.accept(*texts):
            self.refuse(self.tokens[self.next], " or ".join(map(repr, texts)))

    def parse(self) -> Any:
        """The whole text as an expression."""
        expression = self.parse_expression()
        if self.tokens[self.next].kind != "end":
            self.refuse(self.tokens[self.next], "'and', 'or' or its end")
        return expression

    def parse_expression(self) -> Any:
        parts = [self.parse_conjunction()]
        while self.accept("or"):
            parts.append(self.parse_conjunction())
        return reduce(or_, parts)

    def parse_conjunction(self) -> Any:
        parts = [self.parse_condition()]
        while self.accept("and"):
            parts.append(self.parse_condition())
        return reduce(and_, parts)

    def parse_condition(self) -> Any:
        if self.accept("not"):
            return ~self.parse_condition()
        if self.accept("("):
            expression = self.parse_expression()
            self.expect(")")
            return expression
        return self.parse_comparison()

    def parse_comparison(self) -> Any:
        """Conditions of one value: compared with others, in a list, or missing."""
        start = self.tokens[self.next]
        values, signs = [self.parse_value()], list[str]()
        first = values[0]
        if isinstance(first, Column):
            if self.accept("is"):
                negated = self.accept("not")
                self.expect("null")
                missing = pc.field(first.name).is_null()
                if pa.types.is_floating(first.type):
                    # Not is_null(nan_is_null=True): Arrow 26 skips row groups without nulls then.
                    missing = missing | pc.is_nan(pc.field(first.name))
                return ~missing if negated else missing
            negated = self.accept("not")
            if negated or self.tokens[self.next][:2] == ("keyword", "in"):
                self.expect("in")
                condition = pc.field(first.name).isin(self.parse_list(first))
                return ~condition & pc.field(first.name).is_valid() if negated else condition
        while self.tokens[self.next].kind == "operator":
            signs.append(self.tokens[self.next].text)
            self.next += 1
            values.append(self.parse_value())
        if not signs:
            if isinstance(first, Column) and pa.types.is_boolean(first.type):
                return pc.field(first.name)
            self.refuse(self.tokens[self.next], "a comparison, 'in' or 'is null'")
        if not any(isinstance(value, Column) for value in values):
            self.refuse(start, "a column")
        pairs = zip(pairwise(values), signs, strict=True)
        return reduce(and_, [compare(left, sign, right) for (left, right), sign in pairs])

    def parse_list(self, column: Column) -> pa.Array:
        """Literals in brackets, in the type of a column."""
        self.expect("(", "[")
        literals = []
        while True:
            token, value = self.tokens[self.next], self.parse_value()
            if isinstance(value, Column):
                self.refuse(token, "a number or text in quotes")
            literals.append(convert(value, column))
            if not self.accept(","):
                break
        self.expect(")", "]")
        return pa.array([each.as_py() for each in literals], literals[0].type)

    def parse_value(self) -> Column | Literal:
        """A column, a number, a text or a boolean."""
        token = self.tokens[self.next]
        self.next += 1
        if token.kind == "number":
            number = float(token.text)
            return Literal(int(token.text) if re.fullmatch(r"[-+]?\d+", token.text) else number)
        if token.kind == "text":
            return Literal(re.sub(r"\\(.)", r"\1", token.text[1:-1]))
        if token.text in ("true", "false") and token.kind == "keyword":
            return Literal(token.text == "true")
        if token.kind not in ("word", "quoted"):
            self.refuse(token, "a column or a value")
        name = token.text.strip("`") if token.kind == "quoted" else token.text
        if name not in self.schema.names:
            raise ParameterError(
                f"filter must be of columns, but {name!r} is not one of {self.schema.names}"
                f"{suggest(name, self.schema.names)}; write text in quotes"
            )
        kind = self.schema.field(name).type
        return Column(name, kind.value_type if pa.types.is_dictionary(kind) else kind)


def compare(left: Column | Literal, sign: str, right: Column | Literal) -> Any:
    """One comparison as an expression; a literal takes the type of the column beside it."""
    operands: list[Any] = []
    for value, other in ((left, right), (right, left)):
        if isinstance(value, Column):
            operands.append(pc.field(value.name))
        elif isinstance(other, Column):
            operands.append(pc.scalar(convert(value, other)))
        else:
            raise ParameterError(
                f"filter must compare columns, but compares {value.value!r} and {other.value!r}"
            )
    return OPERATORS[sign](*operands)


def convert(literal: Literal, column: Column) -> pa.Scalar:
    """A literal as a value that a column of that type can be compared with."""
    value, kind = literal.value, column.type
    boolean, text = isinstance(value, bool), isinstance(value, str)
    if pa.types.is_boolean(kind):
        fits, rule = boolean, "true or false"
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        fits, rule = text, "text in quotes"
    elif pa.types.is_temporal(kind):
        fits, rule = text, "a date or time in quotes, such as '2026-01-31'"
    else:
        fits, rule = not (boolean or text), "a number without quotes"
    try:
        if fits and pa.types.is_timestamp(kind):
            return as_timestamp(str(value), kind)
        if fits and text:
            return pa.scalar(value).cast(kind)
        if fits:
            return pa.scalar(value)
    except pa.ArrowException:
        pass
    raise ParameterError(
        f"filter must compare {column.name!r}, which is {kind}, with {rule}, got {value!r}"
    )


def as_timestamp(text: str, kind: pa.TimestampType) -> pa.Scalar:
    """A date or time, in the zone of the column unless it names one."""
    zoned = re.search(r"(Z|[-+]\d\d:?\d\d)$", text) is not None and ":" in text
    if kind.tz is None or zoned:
        return pa.scalar(text).cast(kind)
    return pc.assume_timezone(pa.scalar(text).cast(pa.timestamp(kind.unit)), kind.tz)


def needs_only(given: Any, names: Sequence[str]) -> bool:
    """Whether a filter is of these columns alone, as far as its text shows."""
    if not isinstance(given, str):
        return True
    tokens = FilterParser(given, pa.schema([])).tokens
    return all(each.text.strip("`") in names for each in tokens if each.kind in ("word", "quoted"))
