"""What a scheduler is to hangscope: something that lists jobs and says where their ranks run.

One module a scheduler, listed in ``hangscope.jobs.SCHEDULERS``. This release knows the local one.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class JobProcess(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    role: str
    rank: int | None
    state: str
    title: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A distributed job that was found. ``name`` is what follows ``local:`` in ``--job``."""

    scheduler: str
    name: str
    world_size: int | None
    ranks: tuple[int, ...]
    launcher: str
    launcher_pid: int | None
    nodes: tuple[str, ...]
    processes: tuple[JobProcess, ...]
    started_wall: float | None
    user: str
    title: str
    note: str | None = None

    @property
    def selector(self) -> str:
        """What ``--job`` takes: ``local:NAME``."""
        return f"{self.scheduler}:{self.name}"


class Scheduler(Protocol):
    """``jobs`` never blocks for ever and never raises for processes that it cannot read."""

    prefix: str

    def jobs(self) -> tuple[Job, ...]:
        """The distributed jobs that are visible from here."""
        ...

    def job_of_pid(self, pid: int) -> Job:
        """The job that a process belongs to. Raises NoSuchTarget or PermissionRefused."""
        ...

    def job_named(self, name: str) -> Job:
        """The job of that name. Raises NoSuchTarget with what there is instead."""
        ...
