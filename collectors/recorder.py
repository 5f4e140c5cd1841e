"""The flight recorder and the wait counters of a rank, from its torch worker server where it runs one.

JSON only: the first pickle with stacks imports a compiler into the target and needs its GIL (torch 2.13).
Python >= 3.8.
"""

import base64
from typing import List, Optional, Tuple

from . import guarded, procfs, worker_server
from .interface import ABSENT, DENIED, ERROR, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target

ASKED = (("fr_trace_json", "fr_trace.json"), ("wait_counter_values", "wait_counters.json"))
"""Handler of the worker server, artifact that its answer becomes."""

DEADLINE = 2.0
"""Seconds for each answer. A stopped process accepts, and never answers."""


class Recorder:
    """Takes ``fr_trace.json`` and ``wait_counters.json`` of a rank, byte for byte."""

    name = "recorder"
    scope = PROCESS
    once = False
    budget = DEADLINE * len(ASKED) + 0.5
    describes = "flight recorder and wait counters of a rank (only where the job runs a torch worker server)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        assert target is not None
        if target.role != "rank":
            return Result(ABSENT, "not a rank")
        problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        try:
            address = worker_server.find(target.pid, ctx.proc)
        except worker_server.NotThere as why:
            return Result(DENIED if why.denied else ABSENT, str(why))
        artifacts: List[Tuple[str, bytes]] = []
        failures: List[Tuple[str, str]] = []
        for handler, name in ASKED:
            body, failure = _ask(ctx, target, address, handler)
            if failure is None:
                artifacts.append((name, body))
            else:
                failures.append(failure)
                if failure[0] == TIMEOUT:
                    break  # a process that is stopped does not answer the second question either
        if not failures:
            return Result(OK, None, tuple(artifacts))
        status = PARTIAL if artifacts else failures[0][0]
        return Result(status, "; ".join(reason for _, reason in failures), tuple(artifacts))


def _ask(
    ctx: Context, target: Target, address: worker_server.Address, handler: str
) -> Tuple[bytes, Optional[Tuple[str, str]]]:
    """(body, None), or (b"", (status, reason))."""
    timeout = ctx.remaining(DEADLINE)
    if timeout <= 0.0:
        return b"", (TIMEOUT, f"{handler}: no time left")
    outcome = guarded.call(
        worker_server.post, target.pid, address, handler, timeout, ctx.proc, timeout=timeout + 0.2
    )
    if outcome.status != "ok":
        reason = outcome.reason or outcome.status
        slow = outcome.status in ("timeout", "abandoned") or reason.startswith(("timeout", "TimeoutError"))
        status = TIMEOUT if slow else DENIED if "PermissionError" in reason else ERROR
        return b"", (status, f"{handler}: {reason}")
    code, body = outcome.value
    if code != "200":
        # a CPU build of torch, or an older one, lacks a handler
        return b"", (ABSENT, f"{handler}: the worker server answers {code}")
    return base64.b64decode(body), None


COLLECTOR = Recorder()
