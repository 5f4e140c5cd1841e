r"""``ps`` in the variants that people paste (``aux``, ``-ef``, ``-eLo …``, ``axl``, ``--forest``), ``top``.

A row becomes the state of a process; rows of threads (a LWP, TID or SPID column) become those of a dump, so
that they meet the stacks of the same process. The header names the columns; without it nothing is read.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> sample = '''  PID  PPID STAT WCHAN                  ELAPSED CMD
... 4711  4700 DNl  nfs_start_io_read   1-22:05:51 /v/bin/python train.py --local_rank=3
... 4712  4711 Z    -                        05:12  \\_ [python] <defunct>'''
>>> lines = [Line(n, text, NOBODY, "x.txt") for n, text in enumerate(sample.split(chr(10)), 1)]
>>> (first, second), end = read(lines, 0)
>>> first.state, first.wchan, first.elapsed, first.origin.local_rank
('D', 'nfs_start_io_read', 165951.0, 3)
>>> second.pid, second.ppid, second.state, second.command, end
(4712, 4711, 'Z', '[python] <defunct>', 3)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.loose import DumpedThread, LooseFact, ProcessState, StackDump

from .interface import BlockForm, Facts, Line
from .titles import LONGEST, title_origin

MOST_ROWS = 100_000

_THREAD_IDS = ("LWP", "TID", "SPID")
_STATES = ("STAT", "S", "STATE")
_COMMANDS = ("COMMAND", "CMD", "ARGS", "COMM", "COMMAND+")
_KNOWN = frozenset(("PID", "PPID", "USER", "UID", "WCHAN", "ELAPSED", "ETIME", "%CPU", "TIME", "TTY", "PR"))
_ELAPSED = re.compile(
    r"(?:(?:(?P<days>\d{1,5})-)?(?P<hours>\d{1,2}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{2})"
)
_FOREST = re.compile(r"(?:[|\\`_ -]{0,60}(?:\\_|`-|\|-) )?\s{0,60}")
_WEEKDAY = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STATE_LETTERS = frozenset("RSDTtZXIW")
_IDLE_STATES = frozenset("SRI")


class Columns(msgspec.Struct, frozen=True):
    """Which word of a row is what; the last column holds the rest of the line."""

    names: tuple[str, ...]

    def place(self, *names: str) -> int | None:
        """The index of the first of the names that the header has."""
        return next((self.names.index(name) for name in names if name in self.names), None)


class _Row(msgspec.Struct):
    pid: int
    tid: int | None
    ppid: int | None
    state: str
    wchan: str | None
    elapsed: float | None
    command: str


class _Threads(msgspec.Struct):
    command: str
    rows: list[DumpedThread]


def columns_of(text: str) -> Columns | None:
    """The columns that a header names; None for any other line."""
    names = tuple(text.split())
    if not 2 <= len(names) <= 40 or "PID" not in names or names[-1] not in _COMMANDS:
        return None
    enough = any(name in _KNOWN - {"PID"} or name in _STATES for name in names)
    return Columns(names) if enough and all(name.upper() == name for name in names[:-1]) else None


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """A fact a row, threads of one process together; the index behind the table."""
    columns = columns_of(lines[start].text)
    if columns is None:
        return (), start
    facts: list[LooseFact] = []
    threads: dict[int, _Threads] = {}
    index = start + 1
    while index < len(lines) and index - start < MOST_ROWS:
        row = _row(lines[index].text, columns)
        if row is None:
            break
        _take(row, lines[index], facts, threads)
        index += 1
    facts += [_dump(pid, found, lines[start]) for pid, found in threads.items() if len(found.rows) > 1]
    return facts, index if facts or index > start + 1 else start


def _dump(pid: int, found: _Threads, header: Line) -> StackDump:
    origin = title_origin(found.command, header.origin, pid)
    rows = tuple(found.rows)
    return StackDump(tool="kernel", origin=origin, title=found.command, threads=rows, ref=rows[0].ref)


def _take(row: _Row, line: Line, facts: list[LooseFact], threads: dict[int, _Threads]) -> None:
    if row.command.startswith("[") and row.state in _IDLE_STATES and row.ppid in (None, 0, 2):
        return  # the kernel's own threads at rest
    if row.tid is None or row.tid == row.pid:
        facts.append(
            ProcessState(
                origin=title_origin(row.command, line.origin, row.pid),
                pid=row.pid,
                ppid=row.ppid,
                state=row.state,
                wchan=row.wchan,
                command=row.command,
                elapsed=row.elapsed,
                ref=line.ref,
            )
        )
    if row.tid is not None:
        main = row.tid == row.pid
        thread = DumpedThread(tid=row.tid, main=main, state=row.state, wchan=row.wchan, ref=line.ref)
        threads.setdefault(row.pid, _Threads(row.command, [])).rows.append(thread)


def _row(text: str, columns: Columns) -> _Row | None:
    words = _words(text, columns)
    place = columns.place("PID")
    if words is None or place is None:
        return None
    pid = _number(words[place])
    if pid is None:
        return None
    command = _FOREST.sub("", words[-1], count=1).strip()
    return _Row(
        pid=pid,
        tid=_number(_at(words, columns.place(*_THREAD_IDS))),
        ppid=_number(_at(words, columns.place("PPID"))),
        state=_state(_at(words, columns.place(*_STATES)), command),
        wchan=_wchan(_at(words, columns.place("WCHAN"))),
        elapsed=_seconds(_at(words, columns.place("ELAPSED", "ETIME"))),
        command=command[:LONGEST],
    )


def _words(text: str, columns: Columns) -> list[str] | None:
    """The row cut into the header's columns. ``STARTED`` and ``START_TIME`` are five words (``lstart``)."""
    number = len(columns.names)
    words = text.split(maxsplit=number - 1)
    started = columns.place("STARTED")
    if started is not None and len(words) > started and words[started] in _WEEKDAY:
        words = text.split(maxsplit=number + 3)
        words[started : started + 5] = [" ".join(words[started : started + 5])]
    if len(words) == number - 1 and columns.place("WCHAN", *_STATES) is not None:
        words.append("")
    return words if len(words) == number else None


def _at(words: list[str], place: int | None) -> str:
    return words[place] if place is not None and place < len(words) else ""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _state(text: str, command: str) -> str:
    if text[:1] in _STATE_LETTERS:
        return text[0]
    return "Z" if "<defun" in command else "?"


def _wchan(text: str) -> str | None:
    """``-`` means that it does not sleep, or that the kernel shows nothing; ``*`` that its threads differ."""
    return text if len(text) > 2 and not text.startswith("?") else None


def _seconds(text: str) -> float | None:
    found = _ELAPSED.match(text)
    if found is None:
        return None
    days, hours = int(found["days"] or 0), int(found["hours"] or 0)
    return float(((days * 24 + hours) * 60 + int(found["minutes"])) * 60 + int(found["seconds"]))


FORM = BlockForm(
    name="ps",
    title="ps, top",
    openers=("PID ", "PID\t"),
    read=read,
)
