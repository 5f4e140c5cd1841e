"""Dumps of ranks whose numbers nothing tells: nobody can be named, but who stands elsewhere can be shown."""

from __future__ import annotations

from ..model.facts import Frame, Process
from ..model.verdict import MissingFact
from ..model.waits import Wait, WaitKind
from .job import COMMUNICATION, Job
from .naming import process_text

MOST = 3
"""Processes that are told by name."""
DUMP_ALL = (
    "for p in $(pgrep -f train.py); do r=$(tr '\\0' '\\n' < /proc/$p/environ | sed -n 's/^RANK=//p'); "
    "py-spy dump --pid $p > rank_$r.txt; done  # with the job's own script"
)


def nameless(job: Job) -> tuple[Process, ...]:
    """Processes that are ranks, with stacks, and without a number."""
    return tuple(p for p in job.processes if p.role == "rank" and p.rank is None and job.threads(p))


def nameless_doubt(job: Job) -> str:
    """Why nobody can be named, with the processes that are in no communication while the others are."""
    ranks = nameless(job)
    text = f"{len(ranks)} ranks were captured, and nothing tells their numbers (they have no RANK)"
    if len(ranks) == 1:
        text = "one rank was captured, and nothing tells its number (it has no RANK)"
    waits = {process.pid: _telling(job, process) for process in ranks}
    outside = [p for p in ranks if waits[p.pid] is None or not _communicates(waits[p.pid])]
    inside = len(ranks) - len(outside)
    if not job.capture.loose or not inside or not outside or len(outside) > MOST:
        return text
    told = ", ".join(f"{process_text(p)}{_where(job, p)}" for p in outside)
    verb = "waits" if inside == 1 else "wait"
    stand = "stands" if len(outside) == 1 else "stand"
    return f"{text}; {told} {stand} outside, and {inside} {verb} in communication"


def which_rank(job: Job) -> list[MissingFact]:
    """The rank of each dump, and how to have it told."""
    ranks = nameless(job)
    if not ranks or not job.capture.loose:
        return []
    told = ", ".join(process_text(process) for process in ranks[:MOST])
    return [
        MissingFact(
            what=f"which rank {told}{' …' if len(ranks) > MOST else ''} is",
            why="no dump tells it; give each file its rank in its name (rank_3.txt)",
            command=DUMP_ALL,
        )
    ]


def _telling(job: Job, process: Process) -> Wait | None:
    """What a thread that communicates waits for, else the main thread."""
    tids = job.communicating(process)
    if tids:
        return job.wait(process, tids[0])
    return job.wait(process, process.pid) if process.pid in job.threads(process) else None


def _communicates(wait: Wait | None) -> bool:
    return wait is not None and wait.kind in COMMUNICATION


def _where(job: Job, process: Process) -> str:
    wait = _telling(job, process)
    frame = (wait.caller or wait.frame) if wait is not None else None
    if frame is None and process.pid in job.threads(process):
        frame = next(iter(job.threads(process)[process.pid].stack or ()), None)
    what = f" ({wait.kind.value})" if wait is not None and wait.kind is not WaitKind.UNKNOWN else ""
    return f" at {_place(frame)}{what}" if frame is not None else ""


def _place(frame: Frame) -> str:
    return f"{frame.function} {frame.file}:{frame.line}" if frame.line else f"{frame.function} {frame.file}"
