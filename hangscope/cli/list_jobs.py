"""Bare ``hangscope``: the distributed jobs that are seen here, with the command that captures each."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..jobs.interface import Job

NONE_SEEN = """\
No distributed job is seen on this machine.
  hangscope capture -p PID   captures any Python process, with the job that it belongs to
  hangscope demo             shows what a verdict looks like
"""
NOT_ROOT = """\
The jobs of other users are seen by them and by root only.
"""


def run(arguments: argparse.Namespace) -> int:
    """Prints a table of jobs."""
    from ..jobs import SCHEDULERS

    found = [job for scheduler in SCHEDULERS for job in scheduler.jobs()]
    if not found:
        sys.stdout.write(NONE_SEEN if os.geteuid() == 0 else NONE_SEEN + NOT_ROOT)
        return 0
    for job in found:
        sys.stdout.write(describe(job))
    return 0


def describe(job: Job) -> str:
    """A few lines on a job, ending in its capture command."""
    from ..model.ranges import rank_ranges
    from ..report.interface import duration, printable

    world = "?" if job.world_size is None else str(job.world_size)
    age = (
        ""
        if job.started_wall is None
        else f", started {duration(max(0.0, time.time() - job.started_wall))} ago"
    )
    here = f"ranks {rank_ranges(job.ranks)} of {world}" if job.ranks else f"no ranks of {world}"
    others = len(job.processes) - len(job.ranks)
    lines = [
        f"{job.selector}   {here}, {job.launcher}, user {job.user}{age}",
        f"    {job.title}",
        f"    {len(job.processes)} processes" + (f", {others} of them no ranks" if others > 0 else ""),
    ]
    if job.note:
        lines.append(f"    note: {job.note}")
    lines.append(f"    hangscope capture --job {job.selector}")
    return "".join(printable(line) + "\n" for line in lines)
