"""``source/pid-N/source.json``: the source around each distinct frame, read on the node.

>>> sample = b'''{"frames": [{"file": "/job/x.py", "line": 9, "text": "  with self.outer:",
...   "function": "def f(self):", "withs": [[7, "self.inner"]], "loops": [[5, "for batch in data:"]]}]}'''
>>> lines = read(sample, "x").lines
>>> lines["/job/x.py", 9].text, lines["/job/x.py", 9].withs
('with self.outer:', ((7, 'self.inner'),))
"""

from __future__ import annotations

import msgspec

from hangscope.model.facts import SourceLine

from .raw import decode

LONGEST = 500
"""Characters of a source line that are kept; the patterns that read it are not linear in its length."""


class _RawLine(msgspec.Struct):
    file: str
    line: int
    text: str | None = None
    function: str | None = None
    withs: tuple[tuple[int, str], ...] | None = None
    loops: tuple[tuple[int, str], ...] | None = None


class _RawSource(msgspec.Struct):
    frames: list[_RawLine]


class SourceTable(msgspec.Struct, frozen=True):
    """Source by (file, line); frames whose file could not be read are missing."""

    lines: dict[tuple[str, int], SourceLine]


def read(data: bytes, path: str) -> SourceTable:
    """The lines, stripped of their indentation."""
    raw = decode(data, _RawSource, path)
    return SourceTable(
        {
            (item.file, item.line): SourceLine(
                text=item.text.strip()[:LONGEST],
                function=item.function[:LONGEST] if item.function else None,
                withs=_shortened(item.withs),
                loops=_shortened(item.loops),
            )
            for item in raw.frames
            if item.text is not None
        }
    )


def _shortened(blocks: tuple[tuple[int, str], ...] | None) -> tuple[tuple[int, str], ...]:
    return tuple((line, text[:LONGEST]) for line, text in blocks or ())
