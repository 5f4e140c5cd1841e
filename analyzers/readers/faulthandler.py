r"""Python's ``faulthandler``: on a signal, on a crash, or after a set time; innermost first, no source lines.

Threads come newest first, so that the main thread is the last one; Python 3.14 adds names and a C stack.
Source: CPython Python/traceback.c (``_Py_DumpTracebackThreads``), Modules/faulthandler.c.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''Timeout (0:02:00)!
... Thread 0x00007ff405132180 [heartbeat] (most recent call first):
...   <no Python frame>
... Thread 0x00007ff406132180 (most recent call first):
...   File "/job/x.py", line 2477 in barrier
...   File "/job/x.py", line 9 in <module>'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (dump,), end = read(lines, 0)
>>> end, [(t.tid, t.name, t.main, len(t.frames)) for t in dump.threads]
(6, [(None, 'heartbeat', False, 0), (None, None, True, 2)])
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.facts import Frame
from hangscope.model.loose import DumpedThread, LogEvent, StackDump

from .interface import BlockForm, Facts, Line
from .main_thread import marked
from .titles import introduced

MOST_THREADS = 10_000
MOST_FRAMES = 2_000
DIED = "Fatal Python error: "

_REASON = re.compile(r"(?:Timeout \(.{1,60}\)!|Fatal Python error: .{1,300})")
_TIMEOUT = re.compile(
    r"Timeout \((?:(?P<days>\d{1,5}) days?, )?"
    r"(?P<hours>\d{1,3}):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d{1,9})?)\)!"
)
_STATE = re.compile(r"(?:Python runtime state: .{1,60}|<Cannot show all threads while the GIL is disabled>)")
_THREAD = re.compile(
    r"(?:(?:Current thread|Thread) (?P<ident>0x[0-9a-fA-F]{1,16})(?: \[(?P<name>[^\]]{0,64})\])?|Stack) "
    r"\(most recent call first\):"
)
_FRAME = re.compile(
    r"\s{2}File \"(?P<file>.{0,1000})\", line (?P<line>\d{1,9}|\?{3}) in (?P<function>\S.{0,500})"
)
_IN_BETWEEN = re.compile(r"\s{2}(?:<no Python frame>|<.{1,80}>|\.\.\.|Garbage-collecting)")
_C_STACK = re.compile(r"Current thread's C stack trace \(most recent call first\):")
_C_FRAME = re.compile(r"\s{2}(?:Binary file \"|<)")


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """One process's threads, and the index behind them."""
    index, died, timer = start, None, None
    while index < len(lines) and index < start + 3 and _is_reason(lines[index].text):
        if lines[index].text.startswith(DIED):
            died = lines[index]
        timer = _seconds(lines[index].text) or timer
        index += 1
    threads: list[DumpedThread] = []
    seen: set[str] = set()
    while index < len(lines) and len(threads) < MOST_THREADS:
        head = _THREAD.fullmatch(lines[index].text.strip())
        if head is None or (head["ident"] or "") in seen:
            break
        seen.add(head["ident"] or "")
        frames, end = _frames(lines, index + 1)
        ident = int(head["ident"], 16) if head["ident"] else None
        threads.append(
            DumpedThread(ident=ident, name=head["name"] or None, frames=tuple(frames), ref=lines[index].ref)
        )
        index = end
    if not threads:
        return ((_crash(died),), start + 1) if died is not None else ((), start)
    index = _behind_c_stack(lines, index)
    known = introduced(lines, start, lines[start].origin)
    problem = died.text.strip() if died is not None else None
    dump = StackDump(
        tool="faulthandler",
        origin=known,
        threads=marked(threads),
        apart=timer,
        problem=problem,
        ref=lines[start].ref,
    )
    return ((dump, _crash(died)) if died is not None else (dump,)), index


def _seconds(text: str) -> float | None:
    """The time that ``dump_traceback_later`` was set to. Its timer is set again after it fired, at the
    earliest: two such dumps of a process are so far apart at least."""
    found = _TIMEOUT.match(text.strip())
    if found is None:
        return None
    hours = int(found["days"] or 0) * 24 + int(found["hours"])
    return (hours * 60 + int(found["minutes"])) * 60 + float(found["seconds"])


def _crash(line: Line) -> LogEvent:
    return LogEvent(kind="exception", origin=line.origin, text=line.text.strip()[:400], ref=line.ref)


def _is_reason(text: str) -> bool:
    text = text.strip()
    return _REASON.fullmatch(text) is not None or _STATE.fullmatch(text) is not None


def _frames(lines: Sequence[Line], index: int) -> tuple[list[Frame], int]:
    frames: list[Frame] = []
    while index < len(lines) and len(frames) < MOST_FRAMES:
        found = _FRAME.fullmatch(lines[index].text.rstrip())
        if found is None:
            if _IN_BETWEEN.fullmatch(lines[index].text.rstrip()) is None:
                break
        else:
            number = int(found["line"]) if found["line"].isdecimal() else 0
            frames.append(Frame(function=found["function"], file=found["file"], line=number))
        index += 1
    return frames, index


def _behind_c_stack(lines: Sequence[Line], index: int) -> int:
    """Python 3.14 prints the C stack of the thread that crashed: it is only passed over."""
    if index < len(lines) and _C_STACK.fullmatch(lines[index].text.strip()):
        index += 1
        while index < len(lines) and _C_FRAME.match(lines[index].text):
            index += 1
    return index


FORM = BlockForm(
    name="faulthandler",
    title="Python's faulthandler",
    openers=("(most recent call first):", DIED, "Timeout ("),
    read=read,
)
