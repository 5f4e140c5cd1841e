"""The flight recorder and the wait counters of a rank, from its torch worker server where it runs one.

JSON only: the first pickle with stacks imports a compiler into the target and needs its GIL (torch 2.13).
Python >= 3.8.
"""

import base64
from typing import List, Optional, Set, Tuple

from . import guarded, procfs, worker_server
from .interface import ABSENT, DENIED, ERROR, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target

ASKED = (
    ("fr_trace_json", "fr_trace.json"),
    ("dump_nccl_trace_json", "nccl_trace.json"),
    ("wait_counter_values", "wait_counters.json"),
)
"""Handler of the worker server, artifact that its answer becomes. NCCL's operations stand in a recorder of
their own; a CPU build has no handler for that one, and an older build may have none for the other."""
TRACES = ("fr_trace.json", "nccl_trace.json")

DEADLINE = 2.0
"""Seconds for each answer. A stopped process accepts, and never answers."""

ANSWERED = "recorder.answered"
"""Key in ``ctx.shared``: the (pid, start ticks) whose NCCL recorder was told in this capture."""
LACKING = "recorder.lacking"
"""Key in ``ctx.shared``: the (pid, start ticks, handler) that a worker server lacks: not asked again."""


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
        failures: List[Tuple[str, str, str]] = []
        lacking: Set[Tuple[int, int, str]] = ctx.shared.setdefault(LACKING, set())
        for handler, name in ASKED:
            if (*target[:2], handler) in lacking:
                failures.append((name, ABSENT, f"{handler}: its worker server has no such handler"))
                continue
            body, failure = _ask(ctx, target, address, handler)
            if failure is None:
                artifacts.append((name, body))
                continue
            failures.append((name, *failure))
            if failure[0] == ABSENT:
                lacking.add((*target[:2], handler))
            if failure[0] == TIMEOUT:
                break  # a process that is stopped does not answer the next question either
        return _result(ctx, target, artifacts, failures)


def _result(
    ctx: Context, target: Target, artifacts: List[Tuple[str, bytes]], failures: List[Tuple[str, str, str]]
) -> Result:
    """The cell. Of the two recorders one is enough: which a build has depends on its back ends."""
    told = {name for name, _ in artifacts}
    if "nccl_trace.json" in told:
        answered: Set[Tuple[int, int]] = ctx.shared.setdefault(ANSWERED, set())
        answered.add(target[:2])
    if told.intersection(TRACES):
        failures = [item for item in failures if item[0] not in TRACES or item[1] != ABSENT]
    if not failures:
        return Result(OK, None, tuple(artifacts))
    status = PARTIAL if artifacts else failures[0][1]
    return Result(status, "; ".join(reason for _, _, reason in failures), tuple(artifacts))


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
