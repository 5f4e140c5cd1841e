r"""A text → its lines, as the forms see them: no colours, no carriage returns, no launcher prefixes.

>>> from .interface import Document
>>> log = b"\x1b[36m(Trainer pid=7)\x1b[0m step 1\r\n 40%|####  | 4/10 [00:01<00:02, 3.1it/s][rank2]: Lost\n"
>>> for line in lines_of(Document(path="x.log", data=log)):
...     print(line.number, line.text, line.origin.pid, line.origin.rank)
1 step 1 7 None
2 Lost None 2
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator

import msgspec

from hangscope.model.loose import NOBODY, Origin

from .container_logs import plain
from .interface import MOST_LINE, Document, Line
from .pasted import unwrapped
from .prefixes import Prefixes
from .torch_line import continues

_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)?|[()][0-9A-Z]|[@-Z\\-_=>78])"
)
_BARE_COLOUR = re.compile(rb"\[(?:[01]|[01];)?(?:3[0-7]|9[0-7]|0)?m(?!\w)|\[(?:[01];)?(?:3[0-7]|9[0-7])m")
"""Colours that lost their escape character on the way through a clipboard."""
_CONTROL = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_UNSEEN = tuple(character.encode() for character in "\u200b\u200e\u200f\u2028\u2029\u202e\ufeff")
_HEAD = 1 << 16
_BAR = re.compile(r"\d{1,3}%\|[^|\n]{0,300}\|[^\[\n]{0,60}\[[^\]\n]{0,120}\]")
"""A tqdm bar (tqdm/std.py, ``bar_format``)."""
_BAR_TITLE = 60
"""Characters in front of a bar that may be its title; more are a line that it was drawn behind."""
_GLUED = re.compile(r"(?!^)\[rank\d{1,6}\]:\[[EWIF]\d{0,4} ")
"""A c10 line of another rank in the middle of a line: its writer did not wait for the other one's end."""


def is_text(data: bytes) -> bool:
    """Whether ``data`` begins like a text. One that was truncated while it was open begins with zeros."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    head = data[:_HEAD].lstrip(b"\0")
    odd = head.decode("utf-8", "replace").count("\ufffd")
    odd += len(head) - len(head.translate(None, _CONTROL.replace(b"\x1b", b"")))
    return odd * 10 <= len(head)


def _rows(data: bytes) -> list[str]:
    """The rows of a text, without colours and control characters. It is cleaned as bytes: as a string, each
    character takes four of them where one emoji is in it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    if b"\x1b" in data:
        data = _ESCAPE.sub(b"", data)
    if _BARE_COLOUR.search(data):
        data = _BARE_COLOUR.sub(b"", data)
    data = data.translate(None, _CONTROL)
    for character in _UNSEEN:
        if character in data:
            data = data.replace(character, b"")
    return [row.decode("utf-8", "replace") for row in data.split(b"\n")]


def lines_of(document: Document) -> list[Line]:
    """The lines with something in them, in the file's order; empty for what is no text.

    Several lines can have one number: what stood behind a carriage return or a progress bar, and lines of two
    ranks that ran into each other.
    """
    if not is_text(document.data):
        return []
    rows = unwrapped(plain(_rows(document.data)))
    prefixes = Prefixes(rows, document.mtime)
    lines: list[Line] = []
    rows.reverse()
    for number in range(document.first_line, document.first_line + len(rows)):
        row = rows.pop()  # a huge text is not held twice
        for piece in _pieces(row):
            rest, origin = prefixes.take(piece)
            if "[rank" in rest:
                lines += _torn(number, rest, origin, prefixes, document.path)
            elif origin is NOBODY and lines and continues(rest):
                lines.append(Line(number, rest, lines[-1].origin, document.path))
            else:
                lines.append(Line(number, rest, origin, document.path))
    return lines


def _torn(number: int, text: str, origin: Origin, prefixes: Prefixes, path: str) -> Iterator[Line]:
    """The line, as one line for each rank that wrote in it."""
    starts = [0, *(match.start() for match in _GLUED.finditer(text)), len(text)]
    yield Line(number, text[: starts[1]], origin, path)
    for start, end in itertools.pairwise(starts[1:]):
        rest, other = prefixes.take(text[start:end])
        same_place = msgspec.structs.replace(other, node=origin.node, label=origin.label)
        yield Line(number, rest, same_place, path)


def _pieces(row: str) -> Iterator[str]:
    """What was written in one line of a file, one after the other."""
    row = row.rstrip()
    if "\r" in row:
        for part in row.split("\r"):
            yield from _pieces(part)
        return
    if "%|" in row:
        bar = _BAR.search(row[:MOST_LINE])
        if bar is not None:
            if bar.start() > _BAR_TITLE:
                yield from _pieces(row[: bar.start()])
            yield from _pieces(row[bar.end() :])
            return
    if row:
        yield row[:MOST_LINE]


def within(lines: list[Line], since: float | None, until: float | None) -> list[Line]:
    """The lines from ``since`` to ``until`` (seconds since the epoch). One without a time belongs to the one
    before it; those in front of the first time are kept."""
    if since is None and until is None:
        return lines
    kept, inside = [], True
    for line in lines:
        wall = line.origin.wall
        if wall is not None:
            inside = (since is None or wall >= since) and (until is None or wall <= until)
        if inside:
            kept.append(line)
    return kept


def streams(lines: list[Line]) -> list[list[Line]]:
    """The lines of each writer, by their first lines; those without a prefix are one writer's."""
    found: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(writer(line.origin), []).append(line)
    return list(found.values())


def writer(origin: Origin) -> tuple[object, ...]:
    """What tells the writers of a text apart."""
    return (origin.rank, origin.local_rank, origin.node, origin.pid, origin.label)
