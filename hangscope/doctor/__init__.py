"""``examine``: what to arm before the next run, what this machine allows, what a running job has set."""

from __future__ import annotations

import msgspec

from ..collectors import live_environment, procfs, redact
from ..errors import NoSuchTarget, PermissionRefused
from . import machine, running, settings, versions
from .values import Diagnosis, Variable, Versions, numbers

__all__ = ["Diagnosis", "examine"]

PATIENCE = 5.0


def examine(pid: int | None = None, torch: str | None = None, nccl: str | None = None) -> Diagnosis:
    """The examination. ``pid``: a process of a running job; ``torch``, ``nccl``: its versions, where given.

    Raises NoSuchTarget when there is no such process, PermissionRefused when its environment may not be read.
    """
    if pid is not None and procfs.stat_fields(pid) is None:
        raise NoSuchTarget(f"no process {pid}", None, "hangscope, which lists the jobs seen here")
    found = _versions(pid, torch, nccl)
    environment, source = _environment(pid, found) if pid is not None else (None, None)
    return Diagnosis(
        versions=found,
        settings=settings.settings_for(numbers(found.torch), numbers(found.nccl)),
        checks=machine.checks(pid),
        environment=environment,
        environment_source=source,
    )


def _versions(pid: int | None, torch: str | None, nccl: str | None) -> Versions:
    found = versions.of_process(pid) if pid is not None else versions.installed()
    if torch is None and nccl is None:
        return found
    return msgspec.structs.replace(
        found,
        torch=torch or found.torch,
        nccl=nccl or found.nccl,
        source="the command line, and " + found.source,
    )


def _environment(pid: int, found: Versions) -> tuple[tuple[Variable, ...], str | None]:
    read = live_environment.of_process(procfs.live_id(pid), PATIENCE)
    if read.variables is None:
        raise PermissionRefused(
            f"the environment of pid {pid} cannot be read", read.reason, "the same as its user, or as root"
        )
    shown = redact.environment(read.variables, b"")
    return running.examined(shown, numbers(found.torch)), read.source
