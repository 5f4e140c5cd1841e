"""``sacct``'s table: how the scheduler says that a job and its steps ended.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> table = '''JobID           JobName  Partition  AllocCPUS      State ExitCode
... ------------ ---------- ---------- ---------- ---------- --------
... 71                train        gpu         64    TIMEOUT      0:0
... 71.0            python3                    64 OUT_OF_ME+    0:125
... 72.0            python3                    64  COMPLETED      0:0'''
>>> lines = [Line(at, text, NOBODY, "x") for at, text in enumerate(table.splitlines(), 1)]
>>> facts, after = read(lines, 0)
>>> [(fact.kind, fact.key, fact.code) for fact in facts], after
([('job-ended', 'time-limit', None), ('job-oom', '71.0', None)], 5)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from hangscope.model.loose import LogEvent

from .interface import BlockForm, Facts, Line

MOST_ROWS = 5000
_ENDED = {
    "TIMEOUT": "time-limit",
    "CANCELLED": "cancelled",
    "NODE_FAIL": "node-failure",
    "PREEMPTED": "preempted",
    "BOOT_FAIL": "node-failure",
    "DEADLINE": "time-limit",
    "FAILED": "failed",
}
_DASHES = re.compile(r"^-{2,80}(?: +-{2,80}){2,60} *$")
_JOB = re.compile(r"^\d{1,10}[\w.+\[\]-]{0,40}$")


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """*job-ended* (``key``: how) and *job-oom* (``key``: the step) of the rows that did not end well."""
    head = lines[start].text
    if "State" not in head or "JobID" not in head:
        return (), start
    if "|" in head:
        columns = [name.strip() for name in head.split("|")]
        return _rows(lines, start + 1, lambda text: dict(zip(columns, text.split("|"), strict=False)))
    if start + 1 >= len(lines) or _DASHES.match(lines[start + 1].text) is None:
        return (), start
    spans = [found.span() for found in re.finditer(r"-+", lines[start + 1].text)]
    return _rows(
        lines,
        start + 2,
        lambda text: {head[a:b].strip(): text[a:b].strip() for a, b in spans},
    )


def _rows(lines: Sequence[Line], at: int, cells: Callable[[str], dict[str, str]]) -> tuple[Facts, int]:
    found: list[LogEvent] = []
    first = at
    while at < min(len(lines), first + MOST_ROWS):
        row = cells(lines[at].text[:2000])
        if _JOB.match(row.get("JobID", "")) is None:
            break
        event = _event(lines[at], row)
        if event is not None:
            found.append(event)
        at += 1
    return found, at


def _event(line: Line, row: dict[str, str]) -> LogEvent | None:
    state = row.get("State", "").rstrip("+").partition(" ")[0]
    origin = msgspec.structs.replace(line.origin, rank=None, local_rank=None, pid=None, source=None)
    text = " ".join(line.text.split())[:400]
    if len(state) > 3 and "OUT_OF_MEMORY".startswith(state):
        return LogEvent(kind="job-oom", origin=origin, key=row["JobID"], text=text, ref=line.ref)
    how = next((key for name, key in _ENDED.items() if len(state) > 3 and name.startswith(state)), None)
    if how is None:
        return None
    code = row.get("ExitCode", "").partition(":")[0]
    return LogEvent(
        kind="job-ended",
        origin=origin,
        key=how,
        code=int(code) if how == "failed" and code.isdigit() and len(code) < 6 else None,
        text=text,
        ref=line.ref,
    )


FORM = BlockForm(name="sacct_table", title="Slurm: sacct's table", openers=("JobID",), read=read)
