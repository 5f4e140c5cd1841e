"""Saves the shard while it arrives, so that whatever ends the capture leaves what was gathered readable.

Until the bundle is packed, the stream stands in ``<bundle>.partial/shards/<node>.tar.gz``, itself a bundle
directory without its manifest. When a file system fills up, the stream moves to the next place.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from ..bundle.pack import stream_bundle, write_bundle
from ..errors import BundleError
from .destination import Place


class Spool:
    """The bytes of one node's shard: all of them in ``data``, and on disk as far as a place takes them.

    ``places`` yields where to write, or a line about a place that was passed over (see
    ``destination.by_default``); None keeps the stream in memory (``-o -``). Notes for people: ``notes``.
    """

    def __init__(self, places: Iterator[Place | str] | None, node: str) -> None:
        self.data = bytearray()
        self.node = node
        self.notes: list[str] = []
        self.place: Place | None = None
        self._places = places
        self._descriptor: int | None = None
        self.partial: str | None = None
        """The directory that holds the stream now; None without one."""
        if places is not None:
            self._next_place()

    def add(self, chunk: bytes) -> None:
        """Appends to the stream. Never raises for a disk: it moves on, and says so in ``notes``."""
        self.data += chunk
        if self._descriptor is not None:
            self._write(chunk)

    def _write(self, chunk: bytes) -> None:
        assert self._descriptor is not None and self.place is not None
        try:
            if self.place.cap is not None and len(self.data) > self.place.cap:
                raise OSError(f"no more than {self.place.cap} bytes go there")
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self.give_up(error.strerror or str(error))

    def give_up(self, reason: str) -> None:
        """Leaves the present place (its partial file is removed) and moves to the next that works."""
        left = self.place
        self.discard()
        if left is not None:
            self.notes.append(f"{left.directory}: {reason}; moving on")
        self._next_place()

    def _next_place(self) -> None:
        for place in self._places or ():
            if isinstance(place, str):
                self.notes.append(place)
                continue
            self.place = place
            try:
                self._open_apart()
            except OSError as error:
                self.notes.append(f"{place.directory}: {error.strerror or error}; moving on")
                self.discard()
                continue
            if self.data:
                self._write(bytes(self.data))
            return
        self.place = None

    def _open_apart(self) -> None:
        """Opens the place; where another capture of this second is at work, under a name of its own."""
        try:
            self._open()
        except FileExistsError:
            assert self.place is not None
            stem, dot, suffix = self.place.file.rpartition(".")
            own = f"{stem or suffix}-{os.getpid()}{dot + suffix if stem else ''}"
            self.notes.append(f"{self.place.path}.partial is there already: saved as {own} instead")
            self.place = msgspec.structs.replace(self.place, file=own)
            self._open()

    def _open(self) -> None:
        assert self.place is not None
        partial = self.place.path + ".partial"
        os.mkdir(partial, 0o700)
        self.partial = partial  # only now is it ours to remove
        os.mkdir(os.path.join(partial, "shards"), 0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._file(), flags, 0o600)

    def _file(self) -> str:
        return os.path.join(self.partial or "", "shards", self.node + ".tar.gz")

    def pack(self, manifest: dict[str, Any]) -> str | None:
        """Writes the bundle where the stream is and removes the stream; moves on as ``add`` does.

        Returns the bundle's path, or None when no place took it (``stream_to`` still can).
        """
        with self._as_file() as name:
            while self.place is not None:
                try:
                    write_bundle(self.place.path, manifest, [(self.node, name)])
                except BundleError as error:
                    if _is_full(error) and self._descriptor is not None:
                        self.discard()  # the stream itself takes the room that the bundle needs
                        continue
                    self.give_up(error.why or str(error))
                    continue
                self.discard()
                return self.place.path
        return None

    def stream_to(self, stream: BinaryIO, manifest: dict[str, Any]) -> None:
        """Writes the bundle to a stream. Raises OSError."""
        with self._as_file() as name:
            stream_bundle(stream, manifest, [(self.node, name)])

    @contextlib.contextmanager
    def _as_file(self) -> Iterator[str]:
        """The stream under a file name that needs no disk."""
        descriptor = os.memfd_create("hangscope-shard")
        try:
            with open(descriptor, "wb", closefd=False) as copy:
                copy.write(self.data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        """Closes and removes the partial directory: after the bundle was packed, or before moving on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self.partial is None:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._file())
        for directory in (os.path.join(self.partial, "shards"), self.partial):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        self.partial = None


def _is_full(error: BundleError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
