r"""What ``py-spy dump`` prints: all versions, ``--native``, ``--locals``, ``--subprocesses``; ``ray stack``;
watchdogs that print such a dump into a log (SGLang); pastes that lost header, thread ids or indentation.

Frames stand innermost first. A process title may be a command line or any other name. Sources: py-spy
src/dump.rs (0.1 to 0.4); ray scripts.py ``stack``; sglang managers/scheduler.py (``pyspy_dump_schedulers``).

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''Process 4711: /v/bin/python train.py --local_rank=1
... Python v3.11.7 (/usr/bin/python3.11)
... Thread 4711 (idle): "MainThread"
...     recv (torch/distributed/distributed_c10d.py:2591)
...         Arguments:
...             src: 0
...     main (train.py:9)
... Thread 4730 (active+gil)'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (dump,), end = read(lines, 0)
>>> dump.origin.pid, dump.origin.local_rank, dump.origin.rank, end
(4711, 1, None, 8)
>>> dump.threads[0].frames[0].ints, [(t.tid, t.name, t.owns_gil) for t in dump.threads]
((('src', 0),), [(4711, 'MainThread', False), (4730, None, True)])
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Frame
from hangscope.model.loose import DumpedThread, Origin, StackDump

from .interface import BlockForm, Facts, Line
from .p2p_code import is_p2p, kept
from .py_spy_failures import FAILURES, asked, failure
from .py_spy_frames import Locals, frame_of, unwrapped_symbol
from .titles import LONGEST, introduced, title_origin

MOST_THREADS = 10_000
MOST_FRAMES = 2_000

_PROCESS = re.compile(r"Process (?P<pid>\d{1,9}): ?(?P<title>.*)")
_PYTHON = re.compile(r"Python (?:v|version )\d+\.\d+")
_PARENT = re.compile(r"Parent Process (?P<pid>\d{1,9}): ?")
_RAY = re.compile(r"Stack dump for (?P<title>\S.*)")
_WATCHDOG = re.compile(r"[Pp]y-?[Ss]py dump for PID (?P<pid>\d{1,9})\b")
_RULE = re.compile(r"-{20,}")
_THREAD = re.compile(
    r"Thread (?:(?P<tid>\d{1,9}) |(?P<ident>0[xX][0-9A-Fa-f]{1,16}) )?"
    r"\((?P<state>(?:idle|active)(?:\+gil)?)\)"
    r"(?::? ?\"?(?P<name>[^\"]*)\"?)?"
)
_OMITTED = ("...", "…", "[...]", "(...)")


class _Head(msgspec.Struct):
    """What stands in front of the threads."""

    end: int
    pid: int | None = None
    ppid: int | None = None
    title: str = ""
    sure: bool = False
    """It can be nothing but the head of a dump."""


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """One process's dump, and the index behind it."""
    head = _head(lines, start)
    reader = _Threads(lines, head.end)
    threads = reader.read()
    failed = failure(lines, reader.index) if not threads else None
    if not threads and not (failed and (head.sure or head.end == start)):
        return (), start
    origin = _origin(lines, start, head)
    end = reader.index
    problem = reader.problem
    if failed is not None:
        problem, end = failed
        pid = asked(lines, start) if origin.pid is None else origin.pid
        origin = msgspec.structs.replace(origin, pid=pid)
    dump = StackDump(
        tool="py-spy",
        origin=origin,
        title=head.title[:LONGEST],
        ppid=head.ppid,
        threads=tuple(_with_main(thread, head.pid) for thread in threads),
        native=reader.native,
        problem=problem,
        ref=lines[start].ref,
    )
    return (dump,), end


def _head(lines: Sequence[Line], start: int) -> _Head:
    """Every line of a head stands at most once in it: a second process is another dump's."""
    head = _Head(end=start)
    seen: set[str] = set()
    while head.end < len(lines) and len(seen) < 6:
        text = lines[head.end].text.strip()
        kind = _head_line(text, head)
        if kind is None or kind in seen:
            break
        seen.add(kind)
        head.end += 1
    head.sure = bool(seen & {"python", "watchdog", "ray"})
    return head


def _head_line(text: str, head: _Head) -> str | None:
    if (found := _PROCESS.fullmatch(text)) is not None:
        if head.pid not in (None, int(found["pid"])):
            return None
        head.pid, head.title = int(found["pid"]), found["title"].strip()
        return "process"
    if (found := _RAY.fullmatch(text)) is not None:
        head.title = found["title"]
        head.pid = _pid_of_ps_line(head.title)
        return "ray"
    if (found := _WATCHDOG.search(text)) is not None:
        head.pid = int(found["pid"])
        return "watchdog"
    if _PYTHON.match(text):
        return "python"
    if (found := _PARENT.match(text)) is not None:
        head.ppid = int(found["pid"])
        return "parent"
    return "rule" if _RULE.fullmatch(text) else None


def _pid_of_ps_line(title: str) -> int | None:
    """``user 4711 0.1 2.0 …`` (ps aux) or ``4711 …``."""
    numbers = [word for word in title.split()[:2] if word.isdecimal() and len(word) < 10]
    return int(numbers[0]) if numbers else None


def _origin(lines: Sequence[Line], start: int, head: _Head) -> Origin:
    """Who is in the dump: its own head first. The pid of the line's prefix is that of who printed it, and
    so is the rank unless the two are one."""
    known = lines[start].origin
    another = head.pid is not None and known.pid not in (None, head.pid)
    if another and known.source == "prefix":
        known = msgspec.structs.replace(known, rank=None, local_rank=None, source=None)
    known = msgspec.structs.replace(known, pid=head.pid)
    return title_origin(head.title, introduced(lines, start, known), head.pid)


def _with_main(thread: DumpedThread, pid: int | None) -> DumpedThread:
    if thread.name is None and (thread.tid is None or pid is None):
        return thread
    main = thread.name == "MainThread" or (thread.tid is not None and thread.tid == pid)
    return msgspec.structs.replace(thread, main=main)


class _Threads:
    """Reads thread after thread; ``index`` is the first line behind them."""

    def __init__(self, lines: Sequence[Line], index: int) -> None:
        self._lines = lines
        self.index = index
        self.native = False
        self.problem: str | None = None

    def read(self) -> list[DumpedThread]:
        threads: list[DumpedThread] = []
        while self.index < len(self._lines) and len(threads) < MOST_THREADS:
            head = _THREAD.fullmatch(self._lines[self.index].text.strip())
            if head is None:
                break
            ref = self._lines[self.index].ref
            self.index += 1
            if head["tid"] is None and head["ident"] is None:
                self.problem = self.problem or "the dump lost its thread ids"
            threads.append(
                DumpedThread(
                    tid=int(head["tid"]) if head["tid"] else None,
                    ident=int(head["ident"], 16) if head["ident"] else None,
                    name=(head["name"] or "").strip() or None,
                    frames=self._frames(),
                    active=head["state"].startswith("active"),
                    owns_gil=head["state"].endswith("+gil"),
                    ref=ref,
                )
            )
        return threads

    def _frames(self) -> tuple[Frame, ...]:
        frames: list[Frame] = []
        values = Locals()
        while self.index < len(self._lines) and len(frames) < MOST_FRAMES:
            text = self._lines[self.index].text
            if frames and values.takes(text):
                self.index += 1
                continue
            if text.strip() in _OMITTED:
                self.problem = self.problem or "somebody left frames out of it"
                self.index += 1
                continue
            frame = self._frame(text)
            if frame is None:
                break
            _keep(frames, values)
            values = Locals()
            self.native = self.native or frame.library is not None
            frames.append(frame)
        _keep(frames, values)
        return tuple(frames)

    def _frame(self, text: str) -> Frame | None:
        if text.startswith(("Thread ", "Process ", "Python v")):
            return None
        frame = frame_of(text)
        if frame is not None:
            self.index += 1
            return frame
        found = unwrapped_symbol(self._lines, self.index)
        if found is None:
            return None
        self.index = found[1]
        return found[0]


def _keep(frames: list[Frame], values: Locals) -> None:
    """Gives the newest frame the integers of its locals that name a peer."""
    if frames and values.values and is_p2p(frames[-1].function, frames[-1].file):
        frames[-1] = msgspec.structs.replace(frames[-1], ints=kept(values.values))


FORM = BlockForm(
    name="py-spy-text",
    title="py-spy dump (text), ray stack",
    openers=("Process ", "Stack dump for ", "dump for PID", "(idle)", "(active)", "(active+gil)", *FAILURES),
    read=read,
)
