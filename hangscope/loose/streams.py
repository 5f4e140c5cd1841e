"""Compressed bytes as a stream: gzip, bzip2, xz, zstandard, with limits against those that never end."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import zstandard

from .interface import Limits

CHUNK = 1 << 18
_MEMORY = 1 << 27
"""Bytes that a decompressor may hold."""
_BITE = 1 << 11
_DAMAGE = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError, ValueError)


class Refused(Exception):
    """The stream is not read on; the text says why."""


class Source(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        ...


class Peeked:
    """A source whose first bytes can be looked at before they are read. ``taken``: bytes given so far."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ahead = b""
        self.taken = 0

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer at the end."""
        while len(self._ahead) < size:
            more = self._source.read(max(CHUNK, size - len(self._ahead)))
            if not more:
                break
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = CHUNK, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        if self._ahead:
            piece, self._ahead = self._ahead[:size], self._ahead[size:]
        else:
            piece = self._source.read(size)
        self.taken += len(piece)
        return piece


class Inflated:
    """What a compressed source holds. One that is cut or damaged ends there, and ``problem`` says why.
    Raises Refused at a limit."""

    def __init__(self, source: Peeked, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._reader = _opener(source.peek(6))(source)
        self._made = 0
        self.problem: str | None = None

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        if self.problem is not None:
            return b""
        try:
            piece: bytes = self._reader.read(min(size, CHUNK))
        except _DAMAGE as error:
            self.problem = f"damaged, or cut: {error}"
            return b""
        self._made += len(piece)
        limits = self._limits
        endless = self._made > limits.ratio_from and self._made > limits.ratio * self._source.taken
        if endless or self._made > limits.unpacked:
            raise Refused(f"it unpacks to more than {self._made >> 20:,} MB")
        return piece


class _InTurn:
    """Streams of one kind, one behind the other (log rotation, ``cat a.gz b.gz``)."""

    def __init__(self, source: Peeked, make: Callable[[], Any]) -> None:
        self._source = source
        self._make = make
        self._engine = make()
        self._begun = False

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        while True:
            chunk = b""
            if self._engine.eof:
                chunk = (self._engine.unused_data or self._source.read(CHUNK)).lstrip(b"\0")
                if not chunk:
                    return b""
                self._engine = self._make()
            elif self._engine.needs_input:
                chunk = self._source.read(CHUNK)
                if not chunk:
                    raise EOFError("the stream ends early")
            piece: bytes = self._engine.decompress(chunk, size)
            if piece:
                return piece


class _Gzip:
    """A gzip member with the interface of bz2's and lzma's decompressors: of a cut one, all that there is."""

    def __init__(self) -> None:
        self._engine = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""
        return self._engine.eof

    @property
    def unused_data(self) -> bytes:
        """What was given and stands behind the member."""
        return self._engine.unused_data

    @property
    def needs_input(self) -> bool:
        """Whether all that was given has been taken."""
        return not self._engine.unconsumed_tail

    def decompress(self, chunk: bytes, size: int) -> bytes:
        """At most ``size`` bytes of what comes out."""
        return self._engine.decompress(self._engine.unconsumed_tail + chunk, size)


class _Zstandard:
    """A zstandard frame with the interface of bz2's and lzma's decompressors. It is fed a little at a time:
    what comes out is not bounded, and its own stream reader takes a cut file for a whole one."""

    def __init__(self) -> None:
        self._engine = zstandard.ZstdDecompressor(max_window_size=_MEMORY).decompressobj()
        self._chunk = b""
        self.eof = False
        self.unused_data = b""

    @property
    def needs_input(self) -> bool:
        """Whether all that was given has been taken."""
        return not self._chunk

    def decompress(self, chunk: bytes, size: int) -> bytes:
        """Some of what comes out, whatever its size."""
        self._chunk += chunk
        given, self._chunk = self._chunk[:_BITE], self._chunk[_BITE:]
        piece = self._engine.decompress(given)
        self.eof = self._engine.eof
        if self.eof:
            self.unused_data = self._engine.unused_data + self._chunk
        return piece


_OPENERS: tuple[tuple[bytes, Callable[[Peeked], Any]], ...] = (
    (b"\x1f\x8b", lambda source: _InTurn(source, _Gzip)),
    (b"BZh", lambda source: _InTurn(source, bz2.BZ2Decompressor)),
    (b"\xfd7zXZ\x00", lambda source: _InTurn(source, lambda: lzma.LZMADecompressor(memlimit=_MEMORY))),
    (b"\x28\xb5\x2f\xfd", lambda source: _InTurn(source, _Zstandard)),
)


def is_compressed(head: bytes) -> bool:
    """Whether a stream that begins so is compressed."""
    return any(head.startswith(mark) for mark, _ in _OPENERS)


def _opener(head: bytes) -> Callable[[Peeked], Any]:
    return next(opener for mark, opener in _OPENERS if head.startswith(mark))
