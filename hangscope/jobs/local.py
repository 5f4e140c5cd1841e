"""Jobs on this machine, whoever started them: torchrun, deepspeed, mpirun, mp.spawn, or a shell script."""

from __future__ import annotations

import os

from ..collectors import procfs
from ..collectors.ranks import discovery
from ..collectors.ranks.found_job import FoundJob
from ..errors import NoSuchTarget
from .interface import Job, JobProcess


class LocalScheduler:
    """The processes of this node, as ``discovery`` recognises them. ``proc``: the /proc that is looked at."""

    prefix = "local"

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc

    def jobs(self) -> tuple[Job, ...]:
        """The distributed jobs that are visible from here, the longest running first."""
        found = discovery.recognise(discovery.scan(self.proc))
        return tuple(self._job(job) for job in found)

    def job_of_pid(self, pid: int) -> Job:
        """The job that a process belongs to; a Python process of none is a job of one.

        Raises NoSuchTarget for what is dead or no Python program, PermissionRefused for what may not be seen.
        """
        return self._job(discovery.job_of_pid(pid, discovery.scan(self.proc), self.proc))

    def job_named(self, name: str) -> Job:
        """The job of that name. Raises NoSuchTarget with what there is instead."""
        jobs = self.jobs()
        for job in jobs:
            if job.name == name:
                return job
        there = ", ".join(job.selector for job in jobs) or "no distributed job is seen here"
        raise NoSuchTarget(
            f"no job {self.prefix}:{name}", f"seen here: {there}", "hangscope, which lists them"
        )

    def _job(self, found: FoundJob) -> Job:
        boot = procfs.boot_time(self.proc)
        ticks = os.sysconf("SC_CLK_TCK")
        notes = list(found.notes)
        if found.denied:
            pids = ", ".join(str(pid) for pid in found.denied[:8])
            notes.append(f"{len(found.denied)} processes could not be told apart from ranks: {pids}")
        first = next((row for row in found.rows if row["role"] == "rank"), found.rows[0])
        return Job(
            scheduler=self.prefix,
            name=found.name,
            world_size=found.world_size,
            ranks=tuple(sorted(found.ranks)),
            launcher=found.launcher,
            launcher_pid=found.launcher_pid,
            nodes=(os.uname().nodename,),
            processes=tuple(
                JobProcess(
                    pid=row["pid"],
                    role=row["role"],
                    rank=row["rank"],
                    state=row["state"],
                    title=row["title"],
                )
                for row in found.rows
            ),
            started_wall=None if boot is None else boot + found.start_ticks / ticks,
            user=user_name(found.uid),
            title=first["title"],
            note="; ".join(notes) or None,
        )


def user_name(uid: int | None) -> str:
    """The user's name by /etc/passwd alone (a directory service may never answer); the number without one."""
    if uid is None:
        return "?"
    for line in (procfs.read_text("/etc/passwd")[0] or "").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(uid):
            return fields[0]
    return str(uid)
