"""Lines of srun and slurmstepd: memory limits, killed tasks, jobs that were ended; 18.08 to 26.05.

Task numbers are Slurm's. They are the job's ranks only where srun started one task a rank, and not where it
started one torchrun a node: the event calls their group ``slurm-tasks``.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> def facts(text):
...     return [(fact.kind, fact.about, fact.key, fact.code) for fact in read(Line(1, text, NOBODY, "x"))]
>>> facts("srun: error: node-b: tasks 0-2,9: Killed")
[('task-killed', (0, 1, 2, 9), None, -9)]
>>> facts("slurmstepd: error: *** STEP 71.0 ON node-a CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***")
[('job-ended', (), 'time-limit', None)]
>>> facts("slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the tasks have been killed.")
[('job-oom', (), '71.0', 1)]
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hangscope.model.loose import LogEvent, Origin

from .clocks import dated
from .interface import Facts, Line, LineForm

TASKS = "slurm-tasks"
MOST_TASKS = 1 << 17
_HOST = r"[A-Za-z0-9][\w.-]{0,99}"
_CANCELLED = re.compile(
    rf"\*\*\* (?P<what>JOB|STEP) (?P<id>[\w.+]{{1,40}}) ON (?P<host>{_HOST}) (?:CANCELLED|FAILED) "
    r"AT (?P<at>[\d:T-]{10,30})"
    r"(?: DUE TO (?P<why>[A-Z ]{1,40}?)(?:,| \*\*\*))?"
)
_OOM = re.compile(
    r"Detected (?P<count>\d{1,6}) oom[-_]kill event(?:\(s\)|s)? in (?:StepId=|step )(?P<step>[\w.+]{1,40}?)"
    r"(?:[.,]? |\.?$)"
)
_LIMIT = re.compile(
    r"[Ee]xceeded (?:job|step) memory limit|being killed.{0,40}memory|exceeded memory limit \("
)
_TASKS = re.compile(
    rf"srun: error: (?P<host>{_HOST}): tasks? (?P<tasks>[\d,-]{{1,2000}}): (?P<how>\S.{{0,80}})"
)
_NODE = re.compile(rf"(?:Node failure on|error: Node(?! failure)) (?P<host>{_HOST})(?:$| |,)")
_CODES = {
    "Killed": -9,
    "Terminated": -15,
    "Aborted": -6,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Out Of Memory": -9,
}
_EXIT = re.compile(r"Exited with exit code (\d{1,3})")
_REASONS = {
    "TIME LIMIT": "time-limit",
    "NODE FAILURE": "node-failure",
    "PREEMPTION": "preempted",
    "JOB REQUEUE": "requeued",
}


def read(line: Line) -> Facts:
    """The line's event. ``key`` of *job-ended*: time-limit, cancelled, node-failure, preempted, aborted; the
    node that failed is the event's node."""
    text = line.text[:3000].rstrip()
    for reader in (_cancelled, _oom, _tasks, _others):
        fields = reader(text)
        if fields is not None:
            return (_event(line, text, fields),)
    return ()


def _event(line: Line, text: str, fields: dict[str, Any]) -> LogEvent:
    origin: Origin = line.origin
    changes = {name: fields.pop(name) for name in ("node", "wall") if fields.get(name) is not None}
    # the scheduler wrote it, whatever rank's output it stands in
    origin = msgspec.structs.replace(origin, rank=None, local_rank=None, pid=None, source=None, **changes)
    fields.pop("node", None)
    fields.pop("wall", None)
    return LogEvent(origin=origin, text=text.strip()[:400], ref=line.ref, **fields)


def _cancelled(text: str) -> dict[str, Any] | None:
    found = _CANCELLED.search(text)
    if found is None:
        return None
    stamp = dated(found["at"])
    key = _REASONS.get((found["why"] or "").strip(), "cancelled")
    return {"kind": "job-ended", "node": found["host"], "wall": stamp.wall if stamp else None, "key": key}


def _oom(text: str) -> dict[str, Any] | None:
    found = _OOM.search(text)
    if found is not None:
        return {"kind": "job-oom", "key": found["step"], "code": int(found["count"])}
    return {"kind": "job-oom"} if "slurm" in text and _LIMIT.search(text) is not None else None


def _tasks(text: str) -> dict[str, Any] | None:
    found = _TASKS.search(text)
    if found is None:
        return None
    code = next((code for name, code in _CODES.items() if found["how"].startswith(name)), None)
    said = _EXIT.match(found["how"])
    return {
        "kind": "job-oom" if found["how"].startswith("Out Of Memory") else "task-killed",
        "node": found["host"],
        "about": numbers(found["tasks"]),
        "about_group_ranks": True,
        "group": TASKS,
        "code": int(said[1]) if said is not None else code,
    }


def _others(text: str) -> dict[str, Any] | None:
    if "Job step aborted: Waiting up to" in text:
        return {"kind": "job-ended", "key": "aborted"}
    found = _NODE.search(text) if "srun" in text or "slurm" in text else None
    return {"kind": "job-ended", "key": "node-failure", "node": found["host"]} if found is not None else None


def numbers(text: str) -> tuple[int, ...]:
    """Slurm's list of numbers; empty when it is damaged.

    >>> numbers("0-3,9"), numbers("3-1"), numbers("0-999999999")
    ((0, 1, 2, 3, 9), (), ())
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or len(first) > 7 or len(last) > 7:
            return ()
        low, high = int(first), int(last or first)
        if not 0 <= high - low < MOST_TASKS or len(found) > MOST_TASKS:
            return ()
        found.update(range(low, high + 1))
    return tuple(sorted(found))


FORM = LineForm(
    name="slurm-line",
    title="Slurm: lines of srun and slurmstepd",
    needles=(
        "*** JOB ",
        "*** STEP ",
        " oom_kill event",
        " oom-kill event",
        "memory limit",
        "srun: error: ",
        "Job step aborted: ",
    ),
    read=read,
)
