"""Paths → documents, one at a time: files, folders, archives, standard input."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable, Iterator
from typing import IO, BinaryIO, cast

from ..analyzers.readers.forms import FORMS
from ..analyzers.readers.interface import Document, FileForm
from ..analyzers.readers.lines import is_text
from ..analyzers.readers.names import origin_of_name
from .archives import ZIP, Member, is_tar, tar_members, zip_members
from .bundles import is_bundle, is_bundle_stream
from .flight_records import is_flight_record
from .interface import Found, FoundBundle, FoundRecord, Heard, Limits, Unread, Window, silent
from .streams import Inflated, Peeked, Refused, is_compressed
from .walk import walk
from .window import excerpts, read_up_to

HEAD = 1 << 16


def opened(
    paths: Iterable[str],
    window: Window | None = None,
    limits: Limits | None = None,
    heard: Heard = silent,
    records_apart: bool = False,
) -> Iterator[Found]:
    """Everything that stands below ``paths``, in their order; a file that is named twice comes once.

    What cannot be read comes as Unread, and stops nothing. ``records_apart``: files that look like flight
    recorder dumps come as FoundRecord, unread.
    """
    opening = _Opening(window or Window(), limits or Limits(), heard, records_apart)
    for path in paths:
        yield from opening.path(path)


def opened_stream(
    stream: BinaryIO, name: str, window: Window | None = None, heard: Heard = silent
) -> Iterator[Found]:
    """The same for an open file that can seek; ``name`` is what facts cite."""
    yield from _Opening(window or Window(), Limits(), heard).stream(stream, name, None)


class _Place:
    """Where the bytes stand that are being read: how they are cited, and how deep in archives."""

    def __init__(self, path: str, mtime: float | None, archives: int = 0, layers: int = 0) -> None:
        self.path = path
        self.mtime = mtime
        self.archives = archives
        self.layers = layers

    def member(self, member: Member) -> _Place:
        name = member.name.removeprefix("./")
        return _Place(f"{self.path}!{name}", member.mtime, self.archives + 1, self.layers + 1)

    def inside(self) -> _Place:
        return _Place(self.path, self.mtime, self.archives, self.layers + 1)


class _Opening:
    """One walk through what was named."""

    def __init__(self, window: Window, limits: Limits, heard: Heard, records_apart: bool = False) -> None:
        self.records_apart = records_apart
        self.window = window
        self.limits = limits
        self.heard = heard
        self.seen: set[tuple[int, int]] = set()

    def path(self, path: str) -> Iterator[Found]:
        """What stands at a path."""
        if "\0" in path:
            yield Unread(path, "no such name")
        elif is_bundle(path):
            yield FoundBundle(path)
        elif os.path.isdir(path):
            for found in walk(path, self.limits):
                if not isinstance(found, str):
                    yield found
                elif is_bundle(found):
                    yield FoundBundle(found)
                else:
                    yield from self._file(found, os.O_NOFOLLOW)
        else:
            yield from self._file(path)

    def _file(self, path: str, flags: int = 0) -> Iterator[Found]:
        self.heard(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
        except OSError as error:
            yield Unread(path, error.strerror or str(error))
            return
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                yield Unread(path, "it is no regular file; try hangscope analyze - < FILE")
            elif (status.st_dev, status.st_ino) not in self.seen:
                self.seen.add((status.st_dev, status.st_ino))
                yield from self.stream(file, path, status.st_mtime or None)

    def stream(self, file: BinaryIO, path: str, mtime: float | None) -> Iterator[Found]:
        """What an open file holds. A bundle comes with its bytes."""
        if is_bundle_stream(file):
            yield FoundBundle(path, file.read())
            return
        yield from self._guarded(Peeked(cast(IO[bytes], file)), _Place(path, mtime), file)

    def _guarded(self, source: Peeked, place: _Place, file: BinaryIO | None) -> Iterator[Found]:
        try:
            yield from self._content(source, place, file)
        except Refused as refused:
            yield Unread(place.path, str(refused))
        except OSError as error:
            yield Unread(place.path, error.strerror or str(error))

    def _content(self, source: Peeked, place: _Place, file: BinaryIO | None) -> Iterator[Found]:
        head = source.peek(HEAD)
        if head.startswith(ZIP) or is_tar(head):
            if place.archives >= self.limits.archives:
                yield Unread(place.path, "an archive in an archive in an archive; unpack one of them")
            elif head.startswith(ZIP):
                yield from self._zip(source, place, file)
            else:
                yield from self._tar(source, place)
        elif is_compressed(head):
            if place.layers >= self.limits.layers:
                yield Unread(place.path, "compressed too many times")
                return
            inflated = Inflated(source, self.limits)
            yield from self._content(Peeked(inflated), place.inside(), None)
            if inflated.problem is not None:
                yield Unread(place.path, str(inflated.problem), partly=True)
        elif self.records_apart and place.layers == 0 and is_flight_record(head):
            yield FoundRecord(place.path)
        else:
            yield from self._documents(source, head, place)

    def _zip(self, source: Peeked, place: _Place, file: BinaryIO | None) -> Iterator[Found]:
        if file is None:
            data = read_up_to(source, self.limits.nested + 1)
            if len(data) > self.limits.nested:
                yield Unread(place.path, "a zip of that size in an archive; unpack it")
                return
            file = io.BytesIO(data)
        yield from self._members(zip_members(file, place.path, self.limits), place)

    def _tar(self, source: Peeked, place: _Place) -> Iterator[Found]:
        look = io.BytesIO(source.peek(HEAD))
        if is_bundle_stream(look):
            data = read_up_to(source, self.limits.binary + 1)
            if len(data) > self.limits.binary:
                yield Unread(place.path, "a bundle of that size in an archive; unpack it")
            else:
                yield FoundBundle(place.path, data)
            return
        yield from self._members(tar_members(source, place.path, self.limits), place)

    def _members(self, members: Iterator[Member | Unread], place: _Place) -> Iterator[Found]:
        for member in members:
            if isinstance(member, Unread):
                yield member
            elif member.name.endswith("/data.pkl"):
                yield Unread(place.path, "saved tensors (torch.save), no evidence")
                return
            else:
                inner = place.member(member)
                self.heard(inner.path)
                yield from self._guarded(Peeked(member.source), inner, None)

    def _documents(self, source: Peeked, head: bytes, place: _Place) -> Iterator[Found]:
        """The file as one document, or as several where only parts of a huge log are read."""
        is_log = is_text(head) and not any(
            isinstance(form, FileForm) and form.recognise(head) for form in FORMS
        )
        most = self.window.whole if is_log else self.limits.binary
        data = read_up_to(source, most + 1)
        if len(data) <= most:
            yield self._document(place, data)
        elif not is_log:
            yield Unread(place.path, f"it is no text, and has more than {most >> 20:,} MB")
        else:
            for part in excerpts(data, source, self.window, lambda said: self.heard(f"{place.path}: {said}")):
                yield self._document(place, part.data, part.first)
            why = "a huge log: its beginning, its end and the lines that a form may know"
            yield Unread(place.path, why, partly=True)

    def _document(self, place: _Place, data: bytes, first_line: int = 1) -> Document:
        return Document(
            path=place.path,
            data=data,
            mtime=place.mtime,
            origin=origin_of_name(place.path),
            first_line=first_line,
            since=self.window.since,
            until=self.window.until,
        )
