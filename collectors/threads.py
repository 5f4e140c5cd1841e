"""Every thread of a process as the kernel sees it: state, wait channel, system call, counters.

The threads that decide are often not Python's (gloo's loop, an allocator in a page fault), so every task is
read. Raw text goes into ``threads.json``; what the stack collector needs to decide whether it may attach is
left in ``ctx.shared["threads"][pid]`` (see ``brief``). Nothing here waits for the target.
"""

import json
import time
from typing import Any, Dict, List, Optional, Set

from . import procfs
from .interface import DENIED, OK, PARTIAL, PROCESS, Context, Result, Target

COUNTERS = ("status", "stat", "schedstat")
PLACE = ("wchan", "syscall", "stack")
TRIES = 3
"""Readings of a thread that is being scheduled while it is read, before the last one is kept as it is."""
MOST = 20_000
"""Threads of one process that are read; more are cut, and the cell says so."""


class Threads:
    """Takes ``threads.json`` of one process; see FORMAT.md."""

    name = "threads"
    scope = PROCESS
    once = False
    budget = 4.0
    describes = "state, wait channel, system call, kernel stack and counters of every thread (stack: root)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """The artifact holds what was read before the process ended, if it ends meanwhile."""
        assert target is not None
        pid = target.pid
        problem = procfs.identity_problem(pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        until = time.monotonic() + ctx.remaining(self.budget)
        rows, unread = read_tasks(pid, ctx.proc, until)
        problem = procfs.identity_problem(pid, target.start_ticks, ctx.proc)
        if problem is not None and not rows:
            return Result(*problem)
        if not rows:
            _, error = procfs.list_names(f"{ctx.proc}/{pid}/task")
            return Result(DENIED, f"/proc/{pid}/task: {error or 'no thread could be read'}")
        ctx.shared.setdefault("threads", {})[pid] = [brief(row) for row in rows]
        data = json.dumps({"pid": pid, "threads": rows}, separators=(",", ":")).encode("ascii")
        reason = problem[1] if problem is not None else _gaps(rows, unread)
        return Result(OK if reason is None else PARTIAL, reason, (("threads.json", data),))


def read_tasks(pid: int, proc: str, until: float) -> "tuple[List[Dict[str, Any]], int]":
    """Reads every task, also those that appear meanwhile. Returns (rows by tid, tasks not read in time)."""
    rows: List[Dict[str, Any]] = []
    seen: Set[int] = set()
    for _ in range(2):
        new = [tid for tid in procfs.tasks(pid, proc) if tid not in seen]
        for index, tid in enumerate(new):
            if time.monotonic() > until or len(seen) >= MOST:
                return sorted(rows, key=lambda row: int(row["tid"])), len(new) - index
            seen.add(tid)
            row = read_task(pid, tid, proc)
            if row is not None:
                rows.append(row)
    return sorted(rows, key=lambda row: int(row["tid"])), 0


def read_task(pid: int, tid: int, proc: str) -> Optional[Dict[str, Any]]:
    """One thread's row, or None when it ended before it could be read.

    The counters stand in three files. They, and the place where the thread sleeps, belong together when the
    thread was not switched in or out between the first file and the last: else they are read again.
    """
    place = f"{proc}/{pid}/task/{tid}"
    row: Dict[str, Any] = {}
    for _ in range(TRIES):
        row = {"tid": tid, "comm": None}
        errors: Dict[str, str] = {}
        for name in COUNTERS + PLACE:
            row[name], error = procfs.read_whole(f"{place}/{name}")
            if error is not None:
                errors[name] = error
        if row["stat"] is None and errors.get("stat") in procfs.GONE:
            return None
        row["errors"] = errors
        after, _ = procfs.read_whole(f"{place}/status")
        if after is None or _switches(after) == _switches(row["status"]):
            break
    row["comm"] = _comm_of(row) or (procfs.read_whole(f"{place}/comm")[0] or "").rstrip("\n") or None
    _refuse_false_zero(row)
    return row


def _comm_of(row: Dict[str, Any]) -> Optional[str]:
    line = procfs.parse_stat(row["stat"] or "")
    return None if line is None else line.comm


def _refuse_false_zero(row: Dict[str, Any]) -> None:
    """To readers that may not trace the task the kernel prints wchan 0, as for a running one: no answer."""
    error = row["errors"].get("syscall")
    if row["wchan"] == "0" and error in procfs.REFUSED:
        row["wchan"] = None
        row["errors"]["wchan"] = error


def _switches(status: Optional[str]) -> "tuple[Optional[str], Optional[str]]":
    return (
        procfs.status_field(status or "", "voluntary_ctxt_switches"),
        procfs.status_field(status or "", "nonvoluntary_ctxt_switches"),
    )


def brief(row: Dict[str, Any]) -> Dict[str, Any]:
    """What may be decided by at once: ``{tid, comm, state, wchan, syscall, utime, stime, voluntary,
    involuntary, tracer}``. ``wchan`` is None when it may not be read, ``"0"`` for a running thread;
    ``syscall`` is a number, -1 for blocked outside a system call (a page fault), None when running or
    not readable; the times are clock ticks; anything not known is None."""
    line = procfs.parse_stat(row["stat"] or "")
    status = row["status"] or ""
    words = (row["syscall"] or "").split()
    return {
        "tid": row["tid"],
        "comm": row["comm"],
        "state": None if line is None else line.state,
        "wchan": row["wchan"],
        "syscall": _number(words[0]) if words else None,
        "utime": None if line is None else line.utime,
        "stime": None if line is None else line.stime,
        "voluntary": _number(procfs.status_field(status, "voluntary_ctxt_switches")),
        "involuntary": _number(procfs.status_field(status, "nonvoluntary_ctxt_switches")),
        "tracer": _number(procfs.status_field(status, "TracerPid")),
    }


def _number(word: Optional[str]) -> Optional[int]:
    try:
        return None if word is None else int(word)
    except ValueError:
        return None


def _gaps(rows: List[Dict[str, Any]], unread: int) -> Optional[str]:
    """What is missing in the rows, in one line: ``stack: EACCES (40 threads)``; None for nothing."""
    counts: Dict[str, int] = {}
    for row in rows:
        for name, error in row["errors"].items():
            if error not in procfs.GONE:
                counts[f"{name}: {error}"] = counts.get(f"{name}: {error}", 0) + 1
    parts = [f"{what} ({count} of {len(rows)} threads)" for what, count in sorted(counts.items())]
    if unread:
        parts.append(f"{unread} threads were not read in time")
    return "; ".join(parts) or None


COLLECTOR = Threads()
