"""From what was typed after ``-p`` or ``--job`` to the job that is meant."""

from __future__ import annotations

from ..errors import NoSuchTarget, UsageError
from ..jobs import SCHEDULERS
from ..jobs.interface import Job, Scheduler

LATER = ("slurm", "k8s", "hosts")
"""Prefixes that have a meaning in the design, and no module yet."""


def job_named(selector: str) -> Job:
    """The job of ``scheduler:name``, or of a bare name that fits exactly one.

    Raises UsageError for a scheduler that is not known or a name that fits several, NoSuchTarget otherwise.
    """
    prefix, colon, name = selector.partition(":")
    known = {scheduler.prefix: scheduler for scheduler in SCHEDULERS}
    if colon and prefix in known:
        return known[prefix].job_named(name)
    if colon and prefix in LATER:
        raise UsageError(
            f"{selector}: this release takes jobs of one machine only",
            None,
            "on each node: hangscope capture -p PID",
        )
    fitting = [job for scheduler in SCHEDULERS for job in _fitting(scheduler, selector)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        commands = " | ".join(f"hangscope capture --job {job.selector}" for job in fitting)
        raise UsageError(f"{selector} fits {len(fitting)} jobs", None, commands)
    prefixes = ", ".join(f"{prefix}:NAME" for prefix in known)
    raise NoSuchTarget(
        f"no job {selector} is seen here", f"known forms: {prefixes}", "hangscope, which lists what there is"
    )


def _fitting(scheduler: Scheduler, name: str) -> list[Job]:
    return [job for job in scheduler.jobs() if job.name == name]


def job_of_pid(pid: int) -> Job:
    """The job of a process, as the local scheduler sees it. Raises NoSuchTarget or PermissionRefused."""
    local = next(scheduler for scheduler in SCHEDULERS if scheduler.prefix == "local")
    return local.job_of_pid(pid)
