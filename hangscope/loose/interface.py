"""What is found where people point, and how much of it is believed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..analyzers.readers.interface import Document


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes. An archive in an archive is opened, one in that one is not."""

    files: int = 200_000
    """Files of a folder, members of an archive."""
    depth: int = 40
    """Folders in folders."""
    archives: int = 2
    layers: int = 5
    """Archives and compressions, one in the other."""
    binary: int = 512 << 20
    """Largest file that is no text."""
    nested: int = 256 << 20
    """Largest zip in an archive: it is held in memory."""
    unpacked: int = 64 << 30
    """All that one archive gives."""
    ratio: int = 400
    ratio_from: int = 256 << 20
    """``ratio`` is unpacked to packed, looked at beyond ``ratio_from``: only what never ends has it."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a log. ``since`` and ``until``: seconds since the epoch, for lines with known times."""

    since: float | None = None
    until: float | None = None
    whole: int = 64 << 20
    """Bytes up to which a log is read whole."""
    edge: int = 8 << 20
    """Of a larger one: bytes from its beginning, and from its end."""
    matched: int = 32 << 20
    """Of a larger one: bytes around lines that a form may know, from the first and again from the last."""
    before: int = 20
    after: int = 400
    """Lines before and behind such a line: a block of stacks is long, what leads to it is short."""


class FoundBundle(msgspec.Struct, frozen=True):
    """A hangscope bundle. ``data`` where it stands in an archive, None where it is a file or folder."""

    path: str
    data: bytes | None = None


class Unread(msgspec.Struct, frozen=True):
    """What was found and not read, or, ``partly``, not to its end."""

    path: str
    why: str
    partly: bool = False

    @property
    def text(self) -> str:
        """As a line for people."""
        return f"{self.path} was {'read in part' if self.partly else 'not read'}: {self.why}"


class FoundRecord(msgspec.Struct, frozen=True):
    """A file that looks like a flight recorder's dump: many of them are best read together."""

    path: str


Found = Document | FoundBundle | FoundRecord | Unread
Heard = Callable[[str], None]
"""Is told what is being read now."""


def silent(text: str) -> None:
    """For those who do not want to hear."""
