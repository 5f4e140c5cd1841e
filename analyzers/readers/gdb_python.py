r"""gdb's ``py-bt`` (python-gdb.py): Python frames, innermost first, alone or below ``thread apply all``.

``Waiting for the GIL`` is printed for a wait for *any* lock (Tools/gdb/libpython.py asks only whether the C
function is a lock's ``acquire``): it says that the thread waits for a lock, not for which. Old versions print
``#4 file '/x.py', in 'wait'``, and ``py-bt-full`` prints ``#4 Frame 0x…, for file /x.py, line 3, in wait``.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''Thread 1 (Thread 0x7f40 (LWP 41) "python"):
... Traceback (most recent call first):
...   Waiting for the GIL
...   <built-in method acquire of _thread.lock object at remote 0x7fb3>
...   File "/usr/lib/python3.11/threading.py", line 327, in wait
...     waiter.acquire()
...   File "/job/x.py", line 9, in main'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (dump,), end = read(lines, 0)
>>> dump.origin.pid, end, dump.threads[0].waits_for_gil, [frame.function for frame in dump.threads[0].frames]
(41, 7, False, ['wait', 'main'])
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Frame, SourceLine
from hangscope.model.loose import DumpedThread, StackDump

from .gdb_frames import cleaned
from .gdb_text import Head, thread_head
from .interface import BlockForm, Facts, Line
from .main_thread import main_of, marked
from .titles import introduced

MOST_FRAMES = 2_000
MOST_THREADS = 10_000
MOST_NOTES = 8
"""Remarks in front of the first frame."""

_TITLE = "Traceback (most recent call first):"
_FILE = re.compile(
    r"\s{1,8}File \"(?P<file>[^\"]{0,1000})\", line (?P<line>\d{1,9}), in (?P<function>\S.{0,400})"
)
_NOTE = re.compile(
    r"\s{1,8}(?:<built-in |Waiting for |Garbage-collecting|\(unable to read|\(frame information optimized)"
)
_OLD = re.compile(
    r"#\d{1,5} (?:<?file '(?P<file>[^']{1,1000})', in '(?P<function>[^']{1,400})'"
    r"|Frame 0x[0-9a-f]{1,16}, for file (?P<file2>.{1,1000}?), line (?P<line>\d{1,9}), "
    r"in (?P<function2>[^\s(]{1,400}).*)"
)
_OLD_NOTE = re.compile(r"#\d{1,5} (?:Waiting for |<built-in |Garbage-collecting|\(unable to read)")
_NOTHING = re.compile(r"(?:Unable to locate (?:gdb frame for )?python|Unable to read information on)")


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The threads that have Python frames, and the index behind them."""
    threads: list[DumpedThread] = []
    index, seen = start, set[str]()
    while index < len(lines) and len(threads) < MOST_THREADS:
        head = thread_head(cleaned(lines[index].text))
        if head is not None and head[0] in seen:
            break
        frames, end = _frames(lines, index + (head is not None))
        nothing = (
            head is not None and end < len(lines) and _NOTHING.match(cleaned(lines[end].text)) is not None
        )
        if end == index + (head is not None) and not nothing:
            break
        if head is None and threads:
            break
        threads.append(_thread(head, lines[index], frames))
        seen |= {head[0]} if head is not None else set()
        index = end + nothing
    if not any(thread.frames for thread in threads):
        return (), start
    rows = marked(threads)
    main = main_of(rows)
    pid = main.tid if main is not None else None
    known = introduced(lines, start, msgspec.structs.replace(lines[start].origin, pid=pid))
    return (StackDump(tool="gdb", origin=known, threads=rows, ref=lines[start].ref),), index


def _has_none(lines: Sequence[Line], index: int) -> bool:
    """gdb's remark on a thread without Python frames."""
    return index < len(lines) and _NOTHING.match(cleaned(lines[index].text)) is not None


def _thread(head: Head | None, line: Line, frames: list[Frame]) -> DumpedThread:
    if head is None:
        return DumpedThread(frames=tuple(frames), ref=line.ref)
    number, tid, ident, name = head
    main = number.rpartition(".")[2] == "1"
    return DumpedThread(tid=tid, ident=ident, name=name, frames=tuple(frames), main=main, ref=line.ref)


def _frames(lines: Sequence[Line], start: int) -> tuple[list[Frame], int]:
    """The frames of one traceback and the index behind it; the same index where there is none."""
    index = start
    if index < len(lines) and cleaned(lines[index].text).strip() == _TITLE:
        index += 1
    frames: list[Frame] = []
    while index < len(lines) and len(frames) < MOST_FRAMES:
        text = cleaned(lines[index].text).rstrip()
        frame = _frame(text)
        if frame is not None:
            frames.append(frame)
        elif (_NOTE.match(text) is None and _OLD_NOTE.match(text) is None) or (
            not frames and index - start > MOST_NOTES
        ):
            if not (frames and text.startswith("    ")):
                break
            if frames[-1].source is None:
                source = SourceLine(text=text.strip()[:500], alone=True)
                frames[-1] = msgspec.structs.replace(frames[-1], source=source)
        index += 1
    return (frames, index) if frames else ([], start)


def _frame(text: str) -> Frame | None:
    found = _FILE.fullmatch(text)
    if found is not None:
        return Frame(function=found["function"], file=found["file"], line=int(found["line"]))
    old = _OLD.match(text)
    if old is None:
        return None
    return Frame(
        function=old["function"] or old["function2"],
        file=old["file"] or old["file2"],
        line=int(old["line"] or 0),
    )


FORM = BlockForm(
    name="gdb-python",
    title="gdb py-bt, py-bt-full",
    openers=(_TITLE, "(LWP ", "#0 ", "#1 Waiting for", ", in '", "Frame 0x"),
    read=read,
)
