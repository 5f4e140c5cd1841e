"""What a report format is: a function from a verdict to a string."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import msgspec

from ..model.verdict import Verdict


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How to write: ``width`` in columns; ``saved`` is where the evidence was written, if it was."""

    color: bool = False
    width: int = 100
    saved: str | None = None


Reporter = Callable[[Verdict, Style], str]


def printable(text: str) -> str:
    """The text on one line with control and format characters replaced, so that evidence cannot move
    the cursor, change colours or reverse the reading direction of a terminal.

    >>> printable("a\\x1b[31mb\\nc")
    'a?[31mb c'
    """
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in "\t\n\r":
        return " "
    return "?" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co") else character


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(42), duration(840), duration(7300)
    ('42 s', '14 min', '2 h 1 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
