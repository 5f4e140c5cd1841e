"""Puts shards and a manifest together: one uncompressed tar, or a directory.

What is written is complete or not there at all: it is made under a temporary name beside its place (mode
0600, O_EXCL, O_NOFOLLOW) and given its name at the end; an existing file is never replaced. Python >= 3.8,
standard library only.
"""

import contextlib
import errno
import hashlib
import json
import os
import time
from typing import Any, BinaryIO, Dict, Iterator, Sequence, Tuple

from ..errors import BundleError
from . import layout, tarblocks

CHUNK = 1 << 20

Shards = Sequence[Tuple[str, str]]
"""(shard name, path of the shard file) pairs."""


def write_bundle(path: str, manifest: Dict[str, Any], shards: Shards) -> None:
    """Writes the bundle as a tar at ``path``. Format, sha256 and bytes of the manifest are filled in.

    Raises BundleError when ``path`` exists or cannot be written (``__cause__`` is the OSError: ENOSPC for a
    full disk); then nothing of it is left behind.
    """
    with _explained(path):
        temporary = _beside(path)
        try:
            with open(_create(temporary), "wb") as stream:
                stream_bundle(stream, manifest, shards)
                stream.flush()
                os.fsync(stream.fileno())
            _give_name(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def stream_bundle(stream: BinaryIO, manifest: Dict[str, Any], shards: Shards) -> None:
    """Writes the same tar to any binary writable, such as standard output. Raises OSError as it comes."""
    facts = {}
    for name, source in _distinct(shards):
        with open(source, "rb") as shard:
            size = os.fstat(shard.fileno()).st_size
            stream.write(tarblocks.header(layout.shard_path(name), size, int(time.time())))
            digest = hashlib.sha256()
            for chunk in _exactly(shard, size):
                digest.update(chunk)
                stream.write(chunk)
            stream.write(tarblocks.padding(size))
            facts[name] = {"sha256": digest.hexdigest(), "bytes": size}
    text = manifest_text(manifest, facts)
    stream.write(tarblocks.header(layout.MANIFEST, len(text), int(time.time())))
    stream.write(text + tarblocks.padding(len(text)) + tarblocks.END)


def write_directory(path: str, manifest: Dict[str, Any], shards: Shards) -> None:
    """Writes the bundle as a directory (mode 0700). Raises BundleError as ``write_bundle`` does."""
    with _explained(path):
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        temporary = _beside(path)
        written = []
        try:
            os.mkdir(temporary, 0o700)
            os.mkdir(os.path.join(temporary, layout.SHARDS), 0o700)
            facts = {}
            for name, source in _distinct(shards):
                written.append(os.path.join(temporary, layout.shard_path(name)))
                facts[name] = _copy(source, written[-1])
            written.append(os.path.join(temporary, layout.MANIFEST))
            with open(_create(written[-1]), "wb") as stream:
                stream.write(manifest_text(manifest, facts))
            os.rename(temporary, path)
        except BaseException:
            for leftover in written:
                with contextlib.suppress(OSError):
                    os.unlink(leftover)
            for folder in (os.path.join(temporary, layout.SHARDS), temporary):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            raise


def manifest_text(manifest: Dict[str, Any], facts: Dict[str, Dict[str, Any]]) -> bytes:
    """``manifest.json``: the caller's fields, the format, and for each node with a shard its facts
    (``{"sha256", "bytes"}`` by shard name)."""
    whole: Dict[str, Any] = {"format": layout.FORMAT, **manifest}
    nodes = [{**node, **facts.get(str(node.get("name")), {})} for node in manifest.get("nodes", [])]
    named = {node.get("name") for node in nodes}
    nodes += [{"name": name, "status": "ok", **facts[name]} for name in facts if name not in named]
    whole["nodes"] = nodes
    return json.dumps(whole, indent=1, allow_nan=False).encode("ascii") + b"\n"


def _distinct(shards: Shards) -> Shards:
    names = [name for name, _ in shards]
    if len(set(names)) != len(names):
        raise ValueError(f"two shards of one name: {sorted(names)}")
    return shards


def _copy(source: str, target: str) -> Dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with open(source, "rb") as shard, open(_create(target), "wb") as stream:
        for chunk in iter(lambda: shard.read(CHUNK), b""):
            digest.update(chunk)
            stream.write(chunk)
            size += len(chunk)
    return {"sha256": digest.hexdigest(), "bytes": size}


def _exactly(shard: BinaryIO, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes, whatever happens to the file meanwhile: the header has stated them."""
    while size:
        chunk = shard.read(min(CHUNK, size)) or bytes(min(CHUNK, size))
        size -= len(chunk)
        yield chunk


def _beside(path: str) -> str:
    """A temporary name in the same directory that nobody can have guessed."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name[:100]}.{os.urandom(8).hex()}.part")


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _give_name(temporary: str, path: str) -> None:
    """Moves the finished file to its name, never over another one.

    A hard link does both at once; on file systems without links a rename does, after a look.
    """
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.rename(temporary, path)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise BundleError(f"{path} is not written", "it exists", "another name with -o") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise BundleError(f"{path} is not written", why, "another place with -o") from error
