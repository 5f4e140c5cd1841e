"""The environment of a process as it is now; secrets are masked here, before anything is written.

Live by libc's ``environ`` (see live_environment), else the block of exec. Python >= 3.8, standard library
only.
"""

import json
import time
from typing import Optional, Sequence

from . import ahead, live_environment, procfs, rank_settings, redact
from .interface import ABSENT, DENIED, ERROR, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target


class EnvironmentCollector:
    """Takes ``environment.json``; see FORMAT.md."""

    name = "environment"
    scope = PROCESS
    once = True
    budget = 2.0
    describes = "environment variables, live, secrets masked; without the right to attach: those of exec"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """``{"variables": {name: value or its mask}, "source": "live" | "static"}``."""
        if target is None:
            return Result(ERROR, "no process given")
        problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        pid = procfs.live_id(target.pid, ctx.proc)
        found: Optional[live_environment.Environment] = ahead.take(ctx, self.name, target.pid)
        if found is None:
            found = live_environment.of_process(pid, ctx.remaining(self.budget), ctx.proc)
        if found.variables is None:
            return Result(*_failure(found.reason or "not readable"))
        rank_settings.remember(ctx, target, found.variables)
        shown = {"variables": redact.environment(found.variables, ctx.salt), "source": found.source}
        data = json.dumps(shown, sort_keys=True).encode("ascii")
        if found.source == live_environment.LIVE:
            return Result(OK, None, (("environment.json", data),))
        why = f"only as it was at exec: the live one is not readable ({found.reason})"
        return Result(PARTIAL, why, (("environment.json", data),))


def read_ahead(ctx: Context, targets: Sequence[Target]) -> None:
    """Has one child read the environment of each process; one that blocks it costs the budget of its cell."""
    live = {procfs.live_id(target.pid, ctx.proc): target.pid for target in targets}
    budget = EnvironmentCollector.budget
    until = time.monotonic() + ctx.remaining(budget * len(live))
    for pid, found in live_environment.of_processes(list(live), until, budget, ctx.proc).items():
        ahead.leave(ctx, EnvironmentCollector.name, live[pid], found)


def _failure(reason: str) -> "tuple[str, str]":
    if reason in procfs.GONE:
        return ABSENT, "the process has ended"
    if reason in procfs.REFUSED:
        return DENIED, f"/proc/PID/environ: {reason}"
    return (TIMEOUT, reason) if reason.startswith(("no answer", "not reached")) else (ERROR, reason)


COLLECTOR = EnvironmentCollector()
