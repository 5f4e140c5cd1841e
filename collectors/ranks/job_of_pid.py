"""From a pid that somebody typed to its job, or to a clear refusal. Python >= 3.8, standard library only."""

import os
from typing import List, Sequence

from ...errors import NoSuchTarget, PermissionRefused
from .. import procfs
from . import roles
from .found_job import FoundJob
from .job_groups import recognise
from .job_rows import lone_job
from .roles import ProcessInfo

LIST = "hangscope, which lists the jobs"


def job_of_pid(pid: int, processes: Sequence[ProcessInfo], proc: str = "/proc") -> FoundJob:
    """The job that a process belongs to; a Python process of no job is a job of one.

    Raises NoSuchTarget for what is dead, a kernel thread or no Python program, PermissionRefused for what may
    not be looked at; both say what to do instead.
    """
    info = next((process for process in processes if process.pid == pid), None)
    if info is None:
        raise _missing(pid, proc)
    for job in recognise(processes):
        if any(row["pid"] == pid for row in job.rows):
            return job
    below = _jobs_below(pid, processes)
    if len(below) == 1:
        return below[0]
    if below:
        names = ", ".join(f"local:{job.name}" for job in below)
        raise NoSuchTarget(
            f"pid {pid} ({info.comm}) runs {len(below)} jobs: {names}",
            None,
            "hangscope capture --job, with one of them",
        )
    _refuse_unless_python(info)
    return lone_job(info, processes)


def _missing(pid: int, proc: str) -> NoSuchTarget:
    """Why a scan has not shown this pid."""
    group = procfs.status_fields(pid, proc).get("Tgid", "")
    line = procfs.stat_fields(pid, proc)
    if line is None:
        return NoSuchTarget(f"no process {pid}", "it has ended, or runs elsewhere", LIST)
    if group.isdigit() and int(group) != pid:
        return NoSuchTarget(f"{pid} is a thread of process {group}", None, f"hangscope capture -p {group}")
    return NoSuchTarget(f"pid {pid} ({line.comm}) is a kernel thread", None, LIST)


def _jobs_below(pid: int, processes: Sequence[ProcessInfo]) -> List[FoundJob]:
    parents = {process.pid: process.ppid for process in processes}

    def is_below(member: int) -> bool:
        seen = set()
        while member in parents and member not in seen:
            seen.add(member)
            member = parents[member]
            if member == pid:
                return True
        return False

    return [job for job in recognise(processes) if any(is_below(row["pid"]) for row in job.rows)]


def _refuse_unless_python(info: ProcessInfo) -> None:
    if info.uid not in (None, os.getuid()) and os.getuid() != 0:
        raise PermissionRefused(
            f"pid {info.pid} ({info.comm}) belongs to another user",
            f"uid {info.uid}",
            "run as that user, or as root",
        )
    if info.state in ("Z", "X") and info.via is None:
        raise NoSuchTarget(
            f"pid {info.pid} ({info.comm}) is dead",
            "a zombie that nobody has waited for",
            "a living process of the same job; hangscope alone lists the jobs",
        )
    if info.exe is None and info.env is None and info.reason in procfs.REFUSED:
        raise PermissionRefused(
            f"pid {info.pid} ({info.comm}) may not be looked at",
            info.reason,
            "run as root, or add CAP_SYS_PTRACE",
        )
    if not roles.is_python(info):
        raise NoSuchTarget(
            f"pid {info.pid} ({info.comm}) is no Python process, and no job is below it",
            os.path.basename(info.exe or "") or None,
            LIST,
        )
