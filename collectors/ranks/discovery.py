"""Which processes there are, and which of them are the ranks of which job.

``scan`` looks at every process of the node, first at what cannot block, then, in children with deadlines, at
command lines and environments; ``recognise`` (job_groups) makes jobs of it. Nothing is named that was not
seen: a process that could not be told is in ``denied``, and the scan is then not complete.
Python >= 3.8, standard library only.
"""

import re
import time
from typing import Any, Dict, List, Optional, Tuple

from ...errors import NoSuchTarget, PermissionRefused
from .. import guarded, live_environment, procfs
from ..interface import Target
from . import known_programs, roles
from .found_job import FoundJob, record
from .job_groups import recognise
from .job_of_pid import job_of_pid
from .job_rows import lone_job
from .process_tree import cheap_tree
from .roles import ProcessInfo

__all__ = ["FoundJob", "ProcessInfo", "cheap_tree", "job_of_pid", "recognise", "scan", "scan_record"]

SCAN_BUDGET = 10.0
"""Seconds that a scan takes at most, unless told otherwise."""
KERNEL_THREAD = 0x00200000
FORKED = 0x00000040
"""PF_KTHREAD and PF_FORKNOEXEC of include/linux/sched.h, in field 9 of /proc/PID/stat."""
THREADS_READ = 4096


def scan(proc: str = "/proc", deadline: Optional[float] = None) -> List[ProcessInfo]:
    """All user processes of the node, ascending by pid, this one's reading children left out.

    ``deadline``: time.monotonic seconds (default: 10 s from now). What could not be read in time has its
    ``reason`` set; nothing is raised for processes that are gone, foreign or stuck.
    """
    limit = time.monotonic() + SCAN_BUDGET if deadline is None else deadline
    plain = [info for info in (_plain(pid, proc) for pid in procfs.list_pids(proc)) if info is not None]
    # Whoever sleeps uninterruptibly is asked last: a stuck mmap_lock then keeps nobody waiting. Of what runs
    # no Python the block of exec is enough: it is never a rank, and the look is much cheaper.
    order = sorted(plain, key=lambda info: (info.state == "D", _runs_no_python(info)))
    asked = [info.via or info.pid for info in order if not _dead(info)]
    others = frozenset(info.pid for info in plain if _runs_no_python(info))
    answers = live_environment.glimpses(asked, known_programs.IDENTITY, limit, proc, only_exec=others)
    return [_complete(info, answers.get(info.via or info.pid), proc) for info in plain]


def _dead(info: ProcessInfo) -> bool:
    return info.state in ("Z", "X") and info.via is None


def _runs_no_python(info: ProcessInfo) -> bool:
    return info.exe is not None and not roles.is_python(info)


def _plain(pid: int, proc: str) -> Optional[ProcessInfo]:
    """What can be read of a process without waiting; None for kernel threads and our own readers."""
    text, _ = procfs.read_text(f"{proc}/{pid}/stat", 4096)
    line = procfs.parse_stat(text or "")
    if text is None or line is None or pid in guarded.running or pid in guarded.abandoned:
        return None
    flags = int(text[text.rfind(")") + 1 :].split()[6])
    if flags & KERNEL_THREAD:
        return None
    status = procfs.status_fields(pid, proc)
    uid = status.get("Uid", "").split()
    nspid = tuple(int(word) for word in status.get("NSpid", "").split() if word.isdigit())
    live = procfs.live_id(pid, proc)
    return ProcessInfo(
        pid=pid,
        ppid=line.ppid,
        start_ticks=line.start_ticks,
        comm=line.comm,
        state=line.state,
        uid=int(uid[0]) if uid and uid[0].isdigit() else None,
        nspid=nspid,
        session=line.session,
        pgrp=line.pgrp,
        forked=bool(flags & FORKED),
        exe=_executable(live, proc),
        via=None if live == pid else live,
    )


def _executable(pid: int, proc: str) -> Optional[str]:
    target, _ = procfs.read_link(f"{proc}/{pid}/exe")
    return None if target is None else re.sub(r" \(deleted\)$", "", target)


def _complete(info: ProcessInfo, seen: Optional[live_environment.Glimpse], proc: str) -> ProcessInfo:
    """Adds what the guarded look answered, and the thread names of whatever could be a rank."""
    if seen is not None:
        info = info._replace(
            cmdline=seen.cmdline,
            env=seen.variables,
            exec_env=seen.exec_variables,
            env_source=seen.source,
            reason=seen.reason,
        )
    if info.env is None or info.env or roles.is_python(info):
        info = info._replace(threads=_thread_names(info.pid, proc))
    return info


def _thread_names(pid: int, proc: str) -> Tuple[str, ...]:
    names = []
    for tid in procfs.tasks(pid, proc)[:THREADS_READ]:
        text, _ = procfs.read_text(f"{proc}/{pid}/task/{tid}/comm", 64)
        if text is not None:
            names.append(text.rstrip("\n"))
    return tuple(names)


def scan_record(
    pid: int, only: bool = False, proc: str = "/proc", deadline: Optional[float] = None
) -> Tuple[Dict[str, Any], List[Target]]:
    """``processes.json`` (a ScanRecord) for the job of ``pid``, and its processes as targets, ranks first.

    ``only``: the process alone. A process that is not there any more gives a record without processes that is
    not complete; nothing is raised.
    """
    processes = scan(proc, deadline)
    try:
        job = job_of_pid(pid, processes, proc)
    except (NoSuchTarget, PermissionRefused) as error:
        info = next((process for process in processes if process.pid == pid), None)
        if info is None:
            return record(None, notes=(str(error),)), []
        job = lone_job(info, processes)._replace(notes=(str(error),), complete=False)
    if only:
        job = job._replace(rows=tuple(row for row in job.rows if row["pid"] == pid), complete=False)
    rows = sorted(
        job.rows, key=lambda row: (row["role"] != "rank", row["rank"] is None, row["rank"] or 0, row["pid"])
    )
    targets = [
        Target(row["pid"], row["start_ticks"], row["role"], row["rank"], row["comm"], row["uid"])
        for row in rows
    ]
    return record(job), targets
