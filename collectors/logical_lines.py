"""Python source as logical lines: what a statement's first line is, how far it is indented, its text.

Only the lexical shape of the language is used (strings, comments, brackets, continuation lines), which
has been the same from Python 2.7 to 3.14 but for one point: since 3.12 (PEP 701) the expressions in an
f-string may hold the f-string's own quotes. So the agent's Python need not be the target's. Nothing is
ever evaluated. Python >= 3.8, standard library only.
"""

import re
from typing import List, NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<comment>\#[^\n]*)
    | (?P<quote>\"{3}|'{3}|"|')
    | (?P<open>[(\[{]) | (?P<close>[)\]}])
    | (?P<join>\\\n) | (?P<newline>\n)
    """,
    re.VERBOSE,
)
_ENDS = {
    '"': re.compile(r'(?:[^"\\\n]|\\.)*"', re.DOTALL),
    "'": re.compile(r"(?:[^'\\\n]|\\.)*'", re.DOTALL),
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"""', re.DOTALL),
    "'''": re.compile(r"(?:[^'\\]|\\.|'(?!''))*'''", re.DOTALL),
}
_FORMATTED = re.compile(r"(?:^|[^A-Za-z0-9_])(?:[ft]r?|r[ft])$", re.IGNORECASE)
"""What stands before the quote of an f-string or t-string."""

DEEPEST = 20
"""Strings within expressions within strings that are followed."""


class LogicalLine(NamedTuple):
    """One statement, or the header of a compound one. Lines count from 1; ``last`` is its last line."""

    first: int
    last: int
    indent: int
    text: str
    """Without comments; white space as written."""


def split(source: str, until: int) -> List[LogicalLine]:
    """The logical lines that begin on line ``until`` or before, in order; blank and comment lines are none.

    ``source`` has newlines as its only line ends. For text that is no Python the result is some list of
    lines, never an error.
    """
    lines: List[LogicalLine] = []
    start, first, number, depth, position = 0, 1, 1, 0, 0
    parts: List[str] = []
    while position < len(source) and (first <= until):
        found = _TOKEN.search(source, position)
        if found is None:
            break
        position = found.end()
        kind = found.lastgroup
        if kind == "quote":
            position = _string_end(source, found.group("quote"), position, 0)
            number += source.count("\n", found.start(), position)
        elif kind == "comment":
            parts.append(source[start : found.start()])
            start = position
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        else:
            if kind == "newline" and depth == 0:
                parts.append(source[start : found.start()])
                _append(lines, parts, first, number)
                start, first, parts = position, number + 1, []
            number += 1
    if first <= until:
        parts.append(source[start:])
        _append(lines, parts, first, number)
    return lines


def _append(lines: List[LogicalLine], parts: List[str], first: int, last: int) -> None:
    text = "".join(parts)
    body = text.lstrip(" \t\f")
    if not body.strip():
        return
    margin = text[: len(text) - len(body)].rpartition("\f")[2]
    lines.append(LogicalLine(first, last, len(margin.expandtabs(8)), body.rstrip()))


def _string_end(source: str, quote: str, position: int, level: int) -> int:
    """The position behind a string whose opening quote ends at ``position``."""
    opening = position - len(quote)
    if level < DEEPEST and _FORMATTED.search(source[max(0, opening - 3) : opening]):
        end = _formatted_end(source, quote, position, level)
        if end is not None:
            return end
    found = _ENDS[quote].match(source, position)
    return position if found is None else found.end()


_IN_TEXT = re.compile(r"\\[^{}]|\{\{|\{|\"{3}|'{3}|\"|'|\n")
_IN_EXPRESSION = re.compile(r"(?P<quote>\"{3}|'{3}|\"|')|[(\[{]|[)\]}]|:|\#[^\n]*")


def _formatted_end(source: str, quote: str, position: int, level: int) -> "int | None":
    """The same for an f-string or t-string; None when it has no end that makes sense."""
    while True:
        found = _IN_TEXT.search(source, position)
        if found is None:
            return None
        token = found.group()
        position = found.end()
        if token == "{":
            inner = _expression_end(source, quote, position, level)
            if inner is None:
                return None
            position = inner
        elif token[0] in "\"'":
            if source.startswith(quote, found.start()):
                return found.start() + len(quote)
            position = found.start() + 1
        elif token == "\n" and len(quote) == 1:
            return None


def _expression_end(source: str, quote: str, position: int, level: int) -> "int | None":
    """The position behind the ``}`` of a replacement field that begins at ``position``."""
    depth = 0
    while True:
        found = _IN_EXPRESSION.search(source, position)
        if found is None:
            return None
        token = found.group()
        position = found.end()
        if found.lastgroup == "quote":
            position = _string_end(source, found.group("quote"), position, level + 1)
        elif token in "([{":
            depth += 1
        elif token == "}" and depth == 0:
            return position
        elif token in ")]}":
            depth -= 1
        elif token == ":" and depth == 0:
            return _format_end(source, quote, position, level)


_IN_FORMAT = re.compile(r"[{}\n\"']")


def _format_end(source: str, quote: str, position: int, level: int) -> "int | None":
    """The position behind the ``}`` that ends a format specification."""
    while True:
        found = _IN_FORMAT.search(source, position)
        if found is None:
            return None
        token = found.group()
        position = found.end()
        if token == "}":
            return position
        if token == "{":
            inner = _expression_end(source, quote, position, level + 1) if level < DEEPEST else None
            if inner is None:
                return None
            position = inner
        elif len(quote) == 1 and (token == "\n" or token == quote):
            return None
