"""What a reader of loose evidence is: a form, found by content, never by a file's name.

Three shapes. A *file form* is the whole file (a pickle, JSON, XML). A *line form* understands single lines. A
*block form* understands several lines that belong together: a stack, a table. Lines come without colours,
carriage returns and launcher prefixes; what the prefix told is the line's ``origin``, and lines of different
writers are told apart before a block form sees them. Forms raise nothing but UnreadableEvidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from hangscope.model.facts import Ref
from hangscope.model.loose import LooseFact, Origin

MOST_LINE = 4000
"""Characters of a line that are looked at."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One file, archive member or pasted text. ``path`` is what facts cite."""

    path: str
    data: bytes
    mtime: float | None = None
    """Seconds since the epoch; None where nobody knows."""
    origin: Origin = Origin()
    """What the file's name tells (source ``name``), used where the content tells nothing."""
    first_line: int = 1
    """Number of the first line of ``data`` in the file: of huge logs only windows are read."""
    since: float | None = None
    until: float | None = None
    """Seconds since the epoch: lines with a known time outside are left out, with what follows them."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line of a text, cleaned. ``number`` is 1-based in the file."""

    number: int
    text: str
    origin: Origin
    path: str

    @property
    def ref(self) -> Ref:
        """Where it stands."""
        return Ref(self.path, self.number)


Facts = Sequence[LooseFact]


class FileForm(msgspec.Struct, frozen=True, kw_only=True):
    """``recognise`` gets the first 64 KiB and must be cheap; the first form that says yes reads the file."""

    name: str
    title: str
    recognise: Callable[[bytes], bool]
    read: Callable[[Document], Facts]


class LineForm(msgspec.Struct, frozen=True, kw_only=True):
    """``needles``: case-sensitive literals, one of which is in every line that the form understands."""

    name: str
    title: str
    needles: tuple[str, ...]
    read: Callable[[Line], Facts]


class BlockForm(msgspec.Struct, frozen=True, kw_only=True):
    """``openers``: literals, one of which is in the first line of every block. ``read`` gets the lines of one
    writer and the index of such a line; it returns the facts and the index of the first line behind the block
    (the same index: it is none). It must not look at more lines than its block has, plus a few."""

    name: str
    title: str
    openers: tuple[str, ...]
    read: Callable[[Sequence[Line], int], tuple[Facts, int]]


Form = FileForm | LineForm | BlockForm
