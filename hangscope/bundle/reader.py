"""Reads a capture back: a bundle (tar or directory), or a single shard, whole or cut short.

A bundle is untrusted: see FORMAT.md for what is dropped and what is refused. Nothing is written to disk.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..errors import BundleError
from ..model.evidence import Evidence, RawFrame, Shard
from . import layout, tarblocks
from .inflate import Limits, Members, inflate
from .shard_reader import decode, read_shard

CHUNK = 1 << 16
LIMITS = Limits()
GZIP = b"\x1f\x8b"
NO_BUNDLE = "no hangscope bundle"


class _ManifestNode(msgspec.Struct, frozen=True):
    name: str
    status: str = "ok"
    reason: str | None = None
    sha256: str | None = None


class _Manifest(msgspec.Struct, frozen=True):
    tool: str | None = None
    job: str | None = None
    nodes: tuple[_ManifestNode, ...] = ()


class _Format(msgspec.Struct, frozen=True):
    format: str


def read_bundle(path: str, limits: Limits = LIMITS) -> Evidence:
    """The evidence in a bundle tar, a bundle directory or one ``<node>.tar.gz``.

    Raises BundleError when it is none of these or cannot be opened, NewerFormat when a later version wrote
    it. Damage is no error: the shard's ``problem`` and cells tell it.
    """
    try:
        if os.path.isdir(path):
            return _read_directory(path, limits)
        with _open(path) as stream:
            return _read_stream(stream, path, _stem(path), limits)
    except OSError as error:
        raise BundleError(f"cannot read {path}", error.strerror or str(error)) from error


def read_bundle_bytes(data: bytes, source: str = "-", limits: Limits = LIMITS) -> Evidence:
    """The same for bytes that came through a pipe. A shard takes its node's host as name."""
    return _read_stream(io.BytesIO(data), source, None, limits)


def stack_frames(shard: Shard, index: int) -> tuple[RawFrame, ...] | None:
    """The frames of an interned stack, innermost first; None for an index that was not captured."""
    if not 0 <= index < len(shard.stacks):
        return None
    return tuple(shard.frames[frame] for frame in shard.stacks[index])


def _open(path: str, *flags: int) -> BinaryIO:
    """Opens a regular file for reading; a FIFO or device never blocks and is refused."""
    mode = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    for flag in flags:
        mode |= flag
    descriptor = os.open(path, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"cannot read {path}", "it is no regular file", "hangscope analyze - < FILE")
    return os.fdopen(descriptor, "rb")


def _stem(path: str) -> str:
    name = Path(path).name
    for suffix in (layout.SHARD_SUFFIX, ".tgz", ".gz", ".tar"):
        name = name.removesuffix(suffix)
    return layout.shard_name(name)


def _read_stream(stream: BinaryIO, source: str, name: str | None, limits: Limits) -> Evidence:
    head = stream.read(tarblocks.BLOCK)
    stream.seek(0)
    if head[:2] == GZIP or (len(head) < 2 and source.endswith(layout.SHARD_SUFFIX)):
        return _single(inflate(_chunks(stream), limits), source, name, limits)
    try:
        first = tarblocks.parse(head)
    except tarblocks.BadHeader:
        raise BundleError(
            f"{source} is {NO_BUNDLE}", "neither a tar nor a gzip stream", layout.ADVICE
        ) from None
    if layout.place_of(first.name.decode("ascii", "backslashreplace")) is not None:
        return _single(_chunks(stream), source, name, limits)
    return _read_tar(stream, source, limits)


def _single(pieces: Iterator[bytes], source: str, name: str | None, limits: Limits) -> Evidence:
    """A shard on its own, compressed or not."""
    shard, strangers = read_shard(name or "stdin", Members(pieces, limits), limits)
    if not shard.cells and shard.node is None and any(_in_bundle(path) for path in strangers):
        raise BundleError(f"{source} is a compressed bundle", None, f"gunzip {source}")
    if strangers and not shard.cells and shard.node is None:
        raise BundleError(f"{source} is {NO_BUNDLE}", "its members are others", layout.ADVICE)
    if name is None and shard.node is not None:
        shard = _renamed(shard, layout.shard_name(shard.node.host))
    return _evidence([shard], _Manifest(), {}, source, [])


def _in_bundle(path: str) -> bool:
    return path == layout.MANIFEST or layout.shard_of(path) is not None


def _renamed(shard: Shard, name: str) -> Shard:
    """The shard under a name that was learnt after it had been read."""
    replace = msgspec.structs.replace
    artifacts = [
        replace(item, node=name, path=f"{name}!{item.path.partition('!')[2]}") for item in shard.artifacts
    ]
    cells = [replace(cell, node=name) for cell in shard.cells]
    return replace(shard, name=name, artifacts=tuple(artifacts), cells=tuple(cells))


def _read_tar(stream: BinaryIO, source: str, limits: Limits) -> Evidence:
    shards: dict[str, Shard] = {}
    digests: dict[str, str] = {}
    notes: list[str] = []
    manifest = _Manifest()
    seen: set[str] = set()
    for header, start in _outer_members(stream, limits, notes):
        path = header.name.decode("ascii", "backslashreplace")
        name = layout.shard_of(path)
        if header.kind not in tarblocks.REGULAR or (name is None and path != layout.MANIFEST):
            what = tarblocks.TYPE_NAMES.get(header.kind, "it has no place in a bundle")
            _note(notes, f"dropped {ascii(path)[1:-1][:120]}: {what}")
        elif path in seen:
            _note(notes, f"dropped {ascii(path)[1:-1][:120]}: occurs twice")
        elif name is None:
            manifest = _manifest(stream.read(min(header.size, limits.json_bytes + 1)), limits, notes)
        else:
            shards[name], digests[name] = _read_member(name, stream, header.size, limits)
        seen.add(path)
        stream.seek(start)
    if not seen & {layout.MANIFEST} and not shards:
        raise BundleError(f"{source} is {NO_BUNDLE}", "it holds no shard", layout.ADVICE)
    return _evidence(list(shards.values()), manifest, digests, source, notes)


def _outer_members(
    stream: BinaryIO, limits: Limits, notes: list[str]
) -> Iterator[tuple[tarblocks.Header, int]]:
    """(header, where the next header stands) with the stream at the member's data."""
    end = stream.seek(0, os.SEEK_END)
    position = 0
    for _ in range(limits.shards):
        stream.seek(position)
        block = stream.read(tarblocks.BLOCK)
        if len(block) == tarblocks.BLOCK and not block.strip(b"\0"):
            return
        try:
            header = tarblocks.parse(block)
        except tarblocks.BadHeader as error:
            _note(notes, f"the bundle was not read to its end: {error if block else layout.STREAM_CUT}")
            return
        size = 0 if header.kind in tarblocks.EMPTY_TYPES else header.size
        position = min(end, position + tarblocks.BLOCK + size + -size % tarblocks.BLOCK)
        yield header, position
    raise BundleError("the bundle is refused", f"it has more than {limits.shards} members")


def _read_directory(path: str, limits: Limits) -> Evidence:
    notes: list[str] = []
    shards: list[Shard] = []
    digests: dict[str, str] = {}
    manifest = _Manifest()
    folder = os.path.join(path, layout.SHARDS)
    file = os.path.join(path, layout.MANIFEST)
    if os.path.lexists(file):
        with _open(file, os.O_NOFOLLOW) as stream:
            manifest = _manifest(stream.read(limits.json_bytes + 1), limits, notes)
    elif not os.path.isdir(folder):
        why = f"it has no {layout.MANIFEST} and no {layout.SHARDS}"
        raise BundleError(f"{path} is {NO_BUNDLE}", why, layout.ADVICE)
    for entry in sorted(os.listdir(folder))[: limits.shards] if os.path.isdir(folder) else []:
        name = layout.shard_of(f"{layout.SHARDS}/{entry}")
        place = os.path.join(folder, entry)
        if name is None or not stat.S_ISREG(os.lstat(place).st_mode):
            what = "it has no place in a bundle" if name is None else "no regular file"
            _note(notes, f"dropped {ascii(entry)[1:-1][:120]}: {what}")
            continue
        with _open(place, os.O_NOFOLLOW) as stream:
            size = os.fstat(stream.fileno()).st_size
            shard, digests[name] = _read_member(name, stream, size, limits)
            shards.append(shard)
    return _evidence(shards, manifest, digests, path, notes)


def _read_member(name: str, stream: BinaryIO, size: int, limits: Limits) -> tuple[Shard, str]:
    """A shard of ``size`` bytes at the stream's position, and its SHA-256 in hex."""
    digest = hashlib.sha256()
    chunks = _chunks(stream, size, digest)
    shard, _ = read_shard(name, Members(inflate(chunks, limits), limits), limits)
    for _chunk in chunks:  # what stands behind the gzip stream counts for the checksum
        pass
    return shard, digest.hexdigest()


def _chunks(
    stream: BinaryIO, size: int | None = None, digest: hashlib._Hash | None = None
) -> Iterator[bytes]:
    """The stream from here, at most ``size`` bytes, in chunks."""
    while size is None or size > 0:
        chunk = stream.read(CHUNK if size is None else min(CHUNK, size))
        if not chunk:
            return
        if size is not None:
            size -= len(chunk)
        if digest is not None:
            digest.update(chunk)
        yield chunk


def _manifest(data: bytes, limits: Limits, notes: list[str]) -> _Manifest:
    """The manifest, or an empty one with a note. Raises NewerFormat, or BundleError for another program's."""
    found, why = decode(data, _Format, limits)
    if found is not None:
        layout.check_format(found.format)
        manifest, why = decode(data, _Manifest, limits)
        if manifest is not None:
            return manifest
    _note(notes, f"{layout.MANIFEST} is ignored: {why}")
    return _Manifest()


def _note(notes: list[str], text: str) -> None:
    if len(notes) < 200:
        notes.append(text)


def _evidence(
    shards: list[Shard], manifest: _Manifest, digests: dict[str, str], source: str, notes: list[str]
) -> Evidence:
    """Joins shards and manifest; nodes that were asked and are not here become ``missing_nodes``."""
    here = {shard.name for shard in shards}
    for node in manifest.nodes:
        if node.sha256 is not None and digests.get(node.name, node.sha256) != node.sha256:
            _note(notes, f"shard {ascii(node.name)[1:-1][:120]} was changed: its checksum differs")
        if node.name in here and node.status != "ok" and node.reason is not None:
            _note(notes, f"{ascii(node.name)[1:-1][:120]}: {node.reason[:500]}")
    jobs = [manifest.job] + [shard.scan.job for shard in shards if shard.scan is not None]
    tools = [manifest.tool] + [shard.node.agent_version for shard in shards if shard.node is not None]
    return Evidence(
        job=next((job for job in jobs if job is not None), None),
        shards=tuple(sorted(shards, key=lambda shard: shard.name)),
        missing_nodes=tuple(
            (node.name, node.reason or node.status) for node in manifest.nodes if node.name not in here
        ),
        source=source,
        tool_version=next((tool for tool in tools if tool is not None), None),
        notes=tuple(notes),
    )
