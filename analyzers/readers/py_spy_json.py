r"""``py-spy dump --json`` (0.3.4 and newer): a list of threads; several one after the other; cut short.

The process's main thread comes last, and threads without a Python state never appear. ``module`` is set for
native frames only. Source: py-spy src/stack_trace.rs.

>>> from .interface import Document
>>> sample = b'''[{"pid": 41, "thread_id": 139, "thread_name": "MainThread", "os_thread_id": 41,
...   "active": false, "owns_gil": true, "frames": [{"name": "step", "filename": "/job/x.py", "module": null,
...   "short_filename": "x.py", "line": 8, "locals": null}], "process_info": null}]'''
>>> recognise(sample)
True
>>> (dump,) = read(Document(path="rank_3.json", data=sample))
>>> dump.origin.pid, dump.threads[0].owns_gil, dump.threads[0].frames[0].function
(41, True, 'step')
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from hangscope.errors import UnreadableEvidence
from hangscope.model.facts import Frame, Ref
from hangscope.model.loose import DumpedThread, StackDump

from .interface import Document, Facts, FileForm
from .p2p_code import is_p2p, kept

MOST_DUMPS = 20_000
_START = re.compile(rb'\s*(?:\xef\xbb\xbf)?\s*\[\s*\{[^{}\[\]]{0,600}"(?:frames|os_thread_id|thread_id)"\s*:')
_SPACE = re.compile(r"[\s,]*")
CUT = "the dump is cut short"


class _Frame(msgspec.Struct):
    name: str
    filename: str = ""
    module: str | None = None
    line: int = 0
    locals: list[dict[str, Any]] | None = None


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    pid: int | None = None
    thread_id: int | None = None
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool = False


def recognise(head: bytes) -> bool:
    """True for a list of objects that begin like py-spy's threads."""
    return _START.match(head[:4096]) is not None and b'"owns_gil"' in head and b'"frames"' in head


def read(document: Document) -> Facts:
    """One StackDump a list. Raises UnreadableEvidence when not one thread of it can be read."""
    dumps = [dump for dump in _dumps(document) if dump.threads]
    if not dumps:
        raise UnreadableEvidence(document.path, "no thread of a py-spy dump in it")
    return dumps


def _dumps(document: Document) -> Iterator[StackDump]:
    text = document.data.decode("utf-8-sig", "replace")
    place, counted, line = 0, 0, document.first_line
    for _ in range(MOST_DUMPS):
        place = text.find("[", place)
        if place < 0:
            return
        line += text.count("\n", counted, place)
        counted = place
        items, place, whole = _items(text, place)
        threads = [thread for item in items if (thread := _thread(item)) is not None]
        yield _dump(threads, document, Ref(document.path, line), whole)
        if not whole:
            return


def _items(text: str, place: int) -> tuple[list[Any], int, bool]:
    """The items of the list that begins at ``place``, the index behind it, and whether it has an end."""
    decoder = json.JSONDecoder()
    items: list[Any] = []
    place += 1
    while True:
        space = _SPACE.match(text, place)
        place = space.end() if space is not None else place
        if text[place : place + 1] == "]":
            return items, place + 1, True
        try:
            item, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return items, place, False
        items.append(item)


def _thread(item: Any) -> _Thread | None:
    try:
        return msgspec.convert(item, _Thread)
    except msgspec.ValidationError:
        return None


def _dump(threads: list[_Thread], document: Document, ref: Ref, whole: bool) -> StackDump:
    pids = {thread.pid for thread in threads if thread.pid}
    pid = pids.pop() if len(pids) == 1 else None
    rows = tuple(_dumped(thread, ref) for thread in threads)
    native = any(frame.library is not None for row in rows for frame in row.frames)
    return StackDump(
        tool="py-spy",
        origin=msgspec.structs.replace(document.origin, pid=pid),
        threads=rows,
        native=native,
        problem=None if whole else CUT,
        ref=ref,
    )


def _dumped(thread: _Thread, ref: Ref) -> DumpedThread:
    tid = thread.os_thread_id or None
    return DumpedThread(
        tid=tid,
        ident=thread.thread_id,
        name=thread.thread_name,
        frames=tuple(_frame(frame) for frame in thread.frames),
        main=thread.thread_name == "MainThread" or (tid is not None and tid == thread.pid),
        active=thread.active,
        owns_gil=thread.owns_gil,
        ref=ref,
    )


def _frame(frame: _Frame) -> Frame:
    values = {str(item.get("name")): str(item.get("repr"))[:100] for item in frame.locals or ()}
    peer = bool(values) and is_p2p(frame.name, frame.filename)
    return Frame(
        function=frame.name[:500],
        file=frame.filename[:1000],
        line=frame.line,
        library=frame.module,
        ints=kept(values) if peer else (),
    )


FORM = FileForm(name="py-spy-json", title="py-spy dump --json", recognise=recognise, read=read)
