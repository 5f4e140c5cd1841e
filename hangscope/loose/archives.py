"""The members of tars and zips, one after the other, in memory: no path of theirs is ever used."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from ..bundle import tarblocks
from .interface import Limits, Unread
from .streams import CHUNK, Refused, Source

_LONG_NAME = (b"L", b"x")
_SKIPPED = (b"K", b"g")
_MOST_NAME = 1 << 16
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_DAMAGE = (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError, struct.error)


class Member(NamedTuple):
    """``mtime``: seconds since the epoch, None where the archive does not tell."""

    name: str
    mtime: float | None
    source: Source


def is_tar(head: bytes) -> bool:
    """Whether a stream that begins so is a tar."""
    try:
        return bool(tarblocks.parse(head[: tarblocks.BLOCK]).name)
    except tarblocks.BadHeader:
        return False


class _Part:
    """The data of one member of a tar: it ends where the member does."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self.left = size
        self.cut = False

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        if not self.left:
            return b""
        piece = self._source.read(min(size, self.left))
        self.cut = not piece
        self.left -= len(piece)
        return piece

    def skip(self) -> bool:
        """Moves to the end of the member; False where the tar ended before."""
        while self.left and self.read(CHUNK):
            pass
        return not self.cut


def tar_members(source: Source, path: str, limits: Limits) -> Iterator[Member | Unread]:
    """Regular files of a tar, as far as it goes; the long names of GNU and pax are understood."""
    name: bytes | None = None
    for _ in range(limits.files):
        block = _exactly(source, tarblocks.BLOCK)
        if not block.strip(b"\0"):
            return
        try:
            header = tarblocks.parse(block)
        except tarblocks.BadHeader as error:
            yield Unread(path, str(error), partly=True)
            return
        size = 0 if header.kind in tarblocks.EMPTY_TYPES else header.size
        part = _Part(source, size)
        if header.kind in _LONG_NAME:
            name = _long_name(header.kind, _exactly(part, min(size, _MOST_NAME)))
        elif header.kind not in _SKIPPED:
            if header.kind in (*tarblocks.REGULAR, b"7"):
                told = (name or header.name).decode("utf-8", "replace")
                yield Member(told, float(header.mtime) if header.mtime else None, part)
            name = None
        if not part.skip() or len(_exactly(source, -size % tarblocks.BLOCK)) < -size % tarblocks.BLOCK:
            yield Unread(path, "it ends in the middle of a member", partly=True)
            return
    yield Unread(path, f"it has more than {limits.files:,} members", partly=True)


def _exactly(source: Source, size: int) -> bytes:
    pieces = []
    while size > 0:
        piece = source.read(size)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _long_name(kind: bytes, data: bytes) -> bytes | None:
    """GNU's long name, or the path among pax records (``LENGTH KEY=VALUE`` and a line feed)."""
    if kind == b"L":
        return data.rstrip(b"\0") or None
    for record in data.split(b"\n"):
        key, _, value = record.partition(b" ")[2].partition(b"=")
        if key == b"path" and value:
            return value
    return None


def zip_members(file: IO[bytes], path: str, limits: Limits) -> Iterator[Member | Unread]:
    """Files of a zip. ``file`` must be able to seek."""
    try:
        archive = zipfile.ZipFile(file)
    except _ZIP_DAMAGE as error:
        yield Unread(path, f"a damaged zip: {error}")
        return
    for info in archive.infolist()[: limits.files]:
        if info.is_dir() or (info.external_attr >> 28) not in (0, 8):  # 8: a regular file
            continue
        try:
            opened = archive.open(info)
        except _ZIP_DAMAGE as error:
            yield Unread(f"{path}!{info.filename}", str(error))
            continue
        with opened:
            yield Member(info.filename, _utc_time(info.extra), _Unzipped(opened, info, limits))
    if len(archive.infolist()) > limits.files:
        yield Unread(path, f"it has more than {limits.files:,} members", partly=True)


class _Unzipped:
    """The data of one member of a zip. Raises Refused at a limit, or where it is damaged."""

    def __init__(self, opened: IO[bytes], info: zipfile.ZipInfo, limits: Limits) -> None:
        self._opened = opened
        self._most = max(limits.ratio_from, limits.ratio * info.compress_size)
        self._most = min(self._most, limits.unpacked)

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        try:
            piece = self._opened.read(min(size, CHUNK))
        except _ZIP_DAMAGE as error:
            raise Refused(f"damaged: {error}") from error
        self._most -= len(piece)
        if self._most < 0:
            raise Refused("it unpacks to far more than it is")
        return piece


def _utc_time(extra: bytes) -> float | None:
    """The mtime in a zip's extra field 0x5455; the date in its directory is of an unknown time zone."""
    place = 0
    while place + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, place)
        if kind == 0x5455 and size >= 5 and place + 9 <= len(extra) and extra[place + 4] & 1:
            return float(struct.unpack_from("<i", extra, place + 5)[0]) or None
        place += 4 + size
    return None
