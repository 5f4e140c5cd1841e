"""Many Flight Recorder files at once: several processes read them, one file in memory each.

The readers are children of this process, started with its own interpreter and module path. Each gets every
n-th path and answers in their order, so that the records come in the order of the paths, whatever the
processes do. Their answers hold every text, call site and list of ranks once: a job's ranks differ in numbers
only."""

from __future__ import annotations

import gc
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence

from ..analyzers.readers import flight_json, flight_pickle
from ..analyzers.readers.interface import Document
from ..analyzers.readers.names import origin_of_name
from ..errors import UnreadableEvidence
from ..model.loose import FlightRecord
from .flight_wire import Packer, Unpacker
from .interface import Limits, Unread

MUCH = 32 << 20
"""Bytes of all files from which on starting processes pays."""
_FORMS = (flight_pickle.FORM, flight_json.FORM)
_PROGRAM = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import serve; serve()"
_BETWEEN_COLLECTIONS = 256


def is_flight_record(head: bytes) -> bool:
    """Whether a file that begins so is read here."""
    return any(form.recognise(head) for form in _FORMS)


def read_flight_records(paths: Sequence[str], processes: int = 2) -> Iterator[FlightRecord | Unread]:
    """One answer a path, in their order. Nothing in the files raises; with few files, or where no process can
    be started, this process reads them itself. The children end with the iterator."""
    children = _started(min(processes, len(paths))) if processes > 1 and _much(paths) else []
    if len(children) < 2:
        yield from map(_read, paths)
        return
    try:
        unpackers = []
        for number, child in enumerate(children):
            _ask(child, paths[number :: len(children)])
            unpackers.append(Unpacker())
        gone: set[int] = set()
        for number, path in enumerate(paths):
            turn = number % len(children)
            if turn in gone:
                yield _read(path)
                continue
            answer = _answer(children[turn])
            if answer is None:
                gone.add(turn)
                yield Unread(path, "the process that read it ended")
            else:
                yield unpackers[turn].unpacked(answer)
    finally:
        for child in children:
            _end(child)


def _much(paths: Sequence[str]) -> bool:
    total = 0
    for path in paths:
        try:
            total += os.stat(path).st_size
        except OSError:
            continue
        if total >= MUCH:
            return len(paths) > 1
    return False


def _started(count: int) -> list[subprocess.Popen[bytes]]:
    """Reading processes; none where they cannot be had. They see the modules that this process sees, and not
    those of the working directory: that can be the evidence itself."""
    if not sys.executable:
        return []
    command = [sys.executable, "-I", "-c", _PROGRAM, json.dumps([entry for entry in sys.path if entry])]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            children.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            )
    except OSError:
        for child in children:
            _end(child)
        return []
    return children


def _ask(child: subprocess.Popen[bytes], paths: Sequence[str]) -> None:
    """Sends all paths: the child reads them to their end before it answers."""
    if child.stdin is None:
        return
    try:
        with child.stdin as pipe:
            pipe.write(b"\0".join(os.fsencode(path) for path in paths))
    except BrokenPipeError:
        return


def _answer(child: subprocess.Popen[bytes]) -> bytes | None:
    """The next answer; None when the child ended before."""
    if child.stdout is None:
        return None
    head = child.stdout.read(4)
    size = int.from_bytes(head, "little")
    data = child.stdout.read(size) if len(head) == 4 else b""
    return data if data and len(data) == size else None


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    child.wait()


def serve() -> None:
    """A reading process: paths on standard input, answers on standard output."""
    paths = [os.fsdecode(path) for path in sys.stdin.buffer.read().split(b"\0")]
    output = sys.stdout.buffer
    packer = Packer()
    gc.disable()
    for number, path in enumerate(paths):
        answer = packer.packed(_read(path))
        output.write(len(answer).to_bytes(4, "little"))
        output.write(answer)
        output.flush()
        if number % _BETWEEN_COLLECTIONS == _BETWEEN_COLLECTIONS - 1:
            gc.collect()


def _read(path: str) -> FlightRecord | Unread:
    limit = Limits().binary
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return Unread(path, "it is no regular file")
            if status.st_size > limit:
                return Unread(path, f"it is no text, and has more than {limit >> 20:,} MB")
            data = file.read(limit)
    except OSError as error:
        return Unread(path, error.strerror or str(error))
    document = Document(path=path, data=data, mtime=status.st_mtime or None, origin=origin_of_name(path))
    for form in _FORMS:
        try:
            if form.recognise(data[: 1 << 16]):
                for record in form.read(document):
                    if isinstance(record, FlightRecord):
                        return record
        except UnreadableEvidence as error:
            return Unread(path, error.why or error.what)
    return Unread(path, "no Flight Recorder dump")
