"""Recognises hangscope's own bundles by their content."""

from __future__ import annotations

import os
import stat
import zlib
from typing import BinaryIO

from ..bundle import layout, tarblocks

_GZIP = b"\x1f\x8b"
_LOOK = 64
"""Members of a tar that are looked at: a bundle begins with its manifest or a shard."""


def is_bundle(path: str) -> bool:
    """Whether the file or folder is a bundle, whole or damaged. False for what cannot be opened."""
    try:
        if os.path.isdir(path):
            return _is_bundle_folder(path)
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as stream:
            return is_bundle_stream(stream)
    except (OSError, ValueError):  # ValueError: a zero byte in the name
        return False


def is_bundle_stream(stream: BinaryIO) -> bool:
    """The same for an open file, which must be able to seek; its position is the start afterwards."""
    stream.seek(0)
    head = stream.read(4 * tarblocks.BLOCK)
    found = _is_bundle_head(head) or _has_shard(stream)
    stream.seek(0)
    return found


def _is_bundle_head(head: bytes) -> bool:
    """Whether a stream that begins so is one shard, or a bundle that somebody compressed."""
    packed = head.startswith(_GZIP)
    if packed:
        try:
            head = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, tarblocks.BLOCK)
        except zlib.error:
            return False
    try:
        first = tarblocks.parse(head[: tarblocks.BLOCK]).name.decode("ascii", "replace")
    except tarblocks.BadHeader:
        return False
    return first == layout.NODE or (packed and _of_bundle(first))


def _of_bundle(name: str) -> bool:
    return name == layout.MANIFEST or layout.shard_of(name) is not None


def _has_shard(stream: BinaryIO) -> bool:
    """Whether a plain tar has a shard, or our manifest, among its first members."""
    position = 0
    for _ in range(_LOOK):
        stream.seek(position)
        try:
            header = tarblocks.parse(stream.read(tarblocks.BLOCK))
        except tarblocks.BadHeader:
            return False
        name = header.name.decode("ascii", "replace")
        if layout.shard_of(name) is not None:
            return True
        if name == layout.MANIFEST and layout.NAME.encode() in stream.read(min(header.size, 4096)):
            return True
        position += tarblocks.BLOCK + header.size + -header.size % tarblocks.BLOCK
        if position > 1 << 62:
            return False
    return False


def _is_bundle_folder(path: str) -> bool:
    manifest = os.path.join(path, layout.MANIFEST)
    if os.path.isfile(manifest):
        with open(manifest, "rb") as stream:
            if layout.NAME.encode() in stream.read(4096):
                return True
    folder = os.path.join(path, layout.SHARDS)
    names = sorted(os.listdir(folder))[:_LOOK] if os.path.isdir(folder) else []
    shards = [name for name in names if layout.shard_of(f"{layout.SHARDS}/{name}") is not None]
    return any(is_bundle(os.path.join(folder, name)) for name in shards[:4])
