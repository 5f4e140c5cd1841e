"""The members of a shard, as far as it goes: a tolerant inflater and a tar reader that only moves on.

Everything that stands before a cut or a damaged byte is delivered; what follows is not guessed at.
Limits hold against archives that unpack to far more than they are.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from . import layout, tarblocks

PIECE = 1 << 18
"""Bytes that are inflated at a time."""


class Limits(NamedTuple):
    """What is believed of a bundle. Sizes in bytes. ``ratio`` is inflated to compressed, looked at once a
    shard has more than ``ratio_from`` inflated bytes (text of idle threads packs some 60 to 1 at most)."""

    member_bytes: int = 256 << 20
    shard_bytes: int = 8 << 30
    json_bytes: int = 64 << 20
    members: int = 500_000
    shards: int = 200_000
    table_entries: int = 5_000_000
    ratio: int = 250
    ratio_from: int = 64 << 20


class Damage(Exception):
    """The stream cannot be followed any further; the text says why."""


def inflate(chunks: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    """Inflates a gzip stream. Without a proper end it raises Damage, after all that could be read."""
    engine = zlib.decompressobj(16 + zlib.MAX_WBITS)
    taken = made = 0
    for chunk in chunks:
        taken += len(chunk)
        while chunk and not engine.eof:
            before = engine.copy()
            try:
                piece = engine.decompress(chunk, PIECE)
            except zlib.error as error:
                yield from _up_to_the_error(before, chunk)
                raise Damage(f"damaged: {error}") from None
            chunk = engine.unconsumed_tail
            made += len(piece)
            if made > limits.shard_bytes:
                raise Damage(f"limit: more than {limits.shard_bytes} bytes unpacked")
            if made > limits.ratio_from and made > limits.ratio * taken:
                raise Damage(f"limit: unpacks to more than {limits.ratio} times its size")
            yield piece
        if engine.eof:
            return
    with contextlib.suppress(zlib.error):
        yield engine.flush()
    raise Damage(layout.STREAM_CUT)


def _up_to_the_error(engine: zlib._Decompress, chunk: bytes) -> Iterator[bytes]:
    """What comes out of ``chunk`` byte by byte before the engine meets the damage again."""
    for index in range(len(chunk)):
        try:
            yield engine.decompress(chunk[index : index + 1], PIECE)
        except zlib.error:
            return


class Members:
    """Iterates (header, data) over a tar. ``data`` is None for what is no regular file, is larger than
    ``member_bytes``, or was cut. Afterwards ``problem`` says why it ended early, None when it did not."""

    def __init__(self, pieces: Iterator[bytes], limits: Limits) -> None:
        self._pieces = pieces
        self._limits = limits
        self._piece = b""
        self._at = 0
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[tarblocks.Header, bytes | None]]:
        try:
            for _ in range(self._limits.members):
                block = self._take(tarblocks.BLOCK)
                if not block.strip(b"\0"):
                    return
                yield from self._member(tarblocks.parse(block))
            self.problem = f"limit: more than {self._limits.members} members"
        except (Damage, tarblocks.BadHeader) as problem:
            self.problem = str(problem)

    def _member(self, header: tarblocks.Header) -> Iterator[tuple[tarblocks.Header, bytes | None]]:
        size = 0 if header.kind in tarblocks.EMPTY_TYPES else header.size
        rest = size + -size % tarblocks.BLOCK
        data: bytes | None = None
        try:
            if header.kind in tarblocks.REGULAR and size <= self._limits.member_bytes:
                data = self._take(size)
                rest -= size
            self._skip(rest)
        except Damage:
            yield header, data
            raise
        yield header, data

    def _take(self, size: int) -> bytes:
        """Exactly ``size`` bytes, held once. Raises Damage when the stream ends before."""
        data = self._piece[self._at : self._at + size]
        self._at += len(data)
        if len(data) == size:
            return data
        buffer = io.BytesIO()
        buffer.write(data)
        while buffer.tell() < size:
            self._next()
            self._at = min(len(self._piece), size - buffer.tell())
            buffer.write(self._piece[: self._at])
        return buffer.getvalue()

    def _skip(self, size: int) -> None:
        while size > len(self._piece) - self._at:
            size -= len(self._piece) - self._at
            self._next()
        self._at += size

    def _next(self) -> None:
        """Puts the next piece in place of one that is used up."""
        self._piece, self._at = b"", 0
        for piece in self._pieces:
            self._piece = piece
            return
        raise Damage(layout.STREAM_CUT)
