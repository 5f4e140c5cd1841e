r"""gdb's ``thread apply all bt``, a lone ``bt``, and ``info threads``: C and C++ frames, innermost first.

The thread whose number is 1 is the process's first one, so its LWP is the pid (gdb numbers an attached
process's threads so). Prompts, the pager's questions, wrapped lines and lost addresses are expected.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''Thread 2 (Thread 0x7f1a1b0146c0 (LWP 46) "pt_tcpstore_uv"):
... #0  0x00007f1a3a326cae in epoll_pwait (epfd=3) at ../epoll_pwait.c:40
... ---Type <return> to continue, or q <return> to quit---
... #1  uv_run () from /v/libtorch_cpu.so
... Thread 1 (LWP 41):
... #0  __lll_lock_wait (futex=0x7f76) at lowlevellock.c:52'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (dump,), end = read(lines, 0)
>>> dump.origin.pid, end, [(t.tid, t.name, t.main, len(t.frames)) for t in dump.threads]
(41, 6, [(46, 'pt_tcpstore_uv', False, 2), (41, None, True, 1)])
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Frame, Ref
from hangscope.model.loose import DumpedThread, StackDump

from .gdb_frames import cleaned, frame_of, frames_of
from .interface import BlockForm, Facts, Line
from .titles import introduced, title_origin

MOST_THREADS = 10_000
INNERMOST_ONLY = "info threads: the innermost frame of each thread only"

_THREAD = re.compile(
    r"(?P<current>\* |  )?Thread (?P<number>\d{1,6}(?:\.\d{1,6})?) \((?:Thread (?P<ident>0x[0-9a-f]{1,16}) )?"
    r"\(?(?:LWP|process|tid) (?P<tid>\d{1,9})\)?\)?"
    r"(?:\s\((?:Exiting|running)\))?(?:[ ]\"(?P<name>[^\"]{0,64})\")?(?:\s?\(Exiting\))?\)?:?"
)
_ROW = re.compile(
    r"\s{0,8}(?P<current>\*)?\s{0,8}(?P<number>\d{1,6}(?:\.\d{1,6})?)\s{1,8}"
    r"(?:Thread (?P<ident>0x[0-9a-f]{1,16})(?= ))?\s?\(?(?:LWP|process) (?P<tid>\d{1,9})\)?"
    r"(?:\s{1,4}\"(?P<name>[^\"]{0,64})\")?\s{1,30}(?P<frame>\S.*)"
)
_LONELY = re.compile(r"#0\s{1,3}(?:0x[0-9a-f]{1,16} in )?\S.{0,3000}? \(.{0,3000}")
_PROCESS = re.compile(
    r"(?:Attaching to (?:program: .{1,400}, )?process |gdb\b.{0,200}? (?:--pid[= ]|-p ?))(\d{1,9})"
)


Head = tuple[str, int, int | None, str | None]
"""(gdb's number of the thread, its LWP, its pthread id, its name)."""


def thread_head(text: str) -> Head | None:
    """What the line above a thread's frames says; None for any other line."""
    found = _THREAD.fullmatch(text.strip())
    if found is None:
        return None
    ident = int(found["ident"], 16) if found["ident"] else None
    return found["number"], int(found["tid"]), ident, found["name"] or None


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The threads of one process, and the index behind them. A thread that comes a second time begins the
    next dump."""
    text = cleaned(lines[start].text)
    if _ROW.fullmatch(text) is not None and thread_head(text) is None:
        rows, end = _table(lines, start)
        return _facts(lines, start, rows, INNERMOST_ONLY), end
    if thread_head(text) is None:
        return _alone(lines, start, text)
    threads: list[DumpedThread] = []
    index, seen = start, set[str]()
    while index < len(lines) and len(threads) < MOST_THREADS:
        head = thread_head(cleaned(lines[index].text))
        if head is None or head[0] in seen:
            break
        frames, end = frames_of(lines, index + 1)
        if not frames:
            break
        seen.add(head[0])
        threads.append(_thread(head, lines[index].ref, frames))
        index = end
    if not threads:
        return (), start
    return _facts(lines, start, threads, None), index


def _thread(head: Head, ref: Ref, frames: Sequence[Frame]) -> DumpedThread:
    number, tid, ident, name = head
    main = number.rpartition(".")[2] == "1"
    return DumpedThread(tid=tid, ident=ident, name=name, frames=tuple(frames), main=main, ref=ref)


def _alone(lines: Sequence[Line], start: int, text: str) -> tuple[Facts, int]:
    """``bt`` of one thread that nothing names. Many programs number lines so: it must look like gdb's."""
    if _LONELY.fullmatch(text) is None:
        return (), start
    frames, index = frames_of(lines, start)
    told = any(frame.file for frame in frames)
    if len(frames) < 2 or not told:
        return (), start
    thread = DumpedThread(frames=tuple(frames), ref=lines[start].ref)
    return _facts(lines, start, [thread], None), index


def _table(lines: Sequence[Line], start: int) -> tuple[list[DumpedThread], int]:
    """``info threads``: a row a thread, with its innermost frame."""
    threads: list[DumpedThread] = []
    index = start
    while index < len(lines) and len(threads) < MOST_THREADS:
        found = _ROW.fullmatch(cleaned(lines[index].text))
        if found is None:
            if threads and lines[index].text.startswith("    ") and lines[index].text.strip():
                index += 1  # a wrapped row
                continue
            break
        frame = frame_of(f"#0  {found['frame']}")
        ident = int(found["ident"], 16) if found["ident"] else None
        head = (found["number"], int(found["tid"]), ident, found["name"] or None)
        threads.append(_thread(head, lines[index].ref, [frame] if frame else []))
        index += 1
    return threads, index


def _facts(lines: Sequence[Line], start: int, threads: list[DumpedThread], problem: str | None) -> Facts:
    pid = next((thread.tid for thread in threads if thread.main), None) or _attached(lines, start)
    known = introduced(lines, start, msgspec.structs.replace(lines[start].origin, pid=pid))
    dump = StackDump(
        tool="gdb",
        origin=title_origin("", known, pid),
        threads=tuple(threads),
        native=True,
        problem=problem,
        ref=lines[start].ref,
    )
    return (dump,)


def _attached(lines: Sequence[Line], start: int) -> int | None:
    """The pid that gdb said it attached to, a few lines before."""
    for index in range(start, max(-1, start - 6), -1):
        found = _PROCESS.search(lines[index].text[:1000])
        if found is not None:
            return int(found[1])
    return None


FORM = BlockForm(
    name="gdb-text",
    title="gdb thread apply all bt, bt, info threads",
    openers=("(LWP ", "Thread 1 (", "(process ", "#0 ", "#0\t"),
    read=read,
)
