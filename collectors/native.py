"""Native stacks, on request only: C and C++ frames between the Python ones.

pystack where it is installed (its ``--native-all`` also shows threads without Python), else py-spy. Both
stop the target's threads, so the conditions of ``attach.refusal`` hold. Python >= 3.8.
"""

import json
import os
import shutil
import sys
from typing import Any, Dict, List, Optional

from . import attach, procfs, py_spy, runner, thread_ids
from .attach import Task
from .interface import ABSENT, DENIED, ERROR, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target

TIMEOUT_S = 20.0
PYSTACK_CAP = 16 << 20


class Native:
    """Takes ``native.txt`` (pystack) or ``native.json`` (py-spy) of the processes in
    ``ctx.options["native_pids"]``."""

    name = "native"
    scope = PROCESS
    once = False
    budget = TIMEOUT_S + 1.0
    describes = "native stacks of chosen processes (pystack or py-spy --native; stops them for a moment)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        assert target is not None
        if target.pid not in ctx.options.get("native_pids", ()):
            return Result(ABSENT, "native stacks were not asked for")
        problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
        if problem is not None:
            return Result(*problem)
        gone = py_spy.ended(target.pid, ctx.proc)
        if gone is not None:
            return Result(ABSENT, gone)
        refusal = attach.refusal(target.pid, ctx.proc)
        if refusal is not None:
            return Result(ABSENT, f"not taken, since its threads may not be stopped: {refusal}")
        pystack = find_pystack(ctx.options.get("pystack"))
        return by_pystack(ctx, target, pystack) if pystack else by_py_spy(ctx, target)


def find_pystack(given: Optional[str] = None) -> Optional[str]:
    """The pystack program, or None: ``given``, else beside this interpreter, else on PATH."""
    for path in (given, os.path.join(os.path.dirname(sys.executable or ""), "pystack")):
        if path and os.access(path, os.X_OK):
            return path
    return shutil.which("pystack")


def by_pystack(ctx: Context, target: Target, pystack: str) -> Result:
    """pystack attaches with PTRACE_ATTACH: killed, it can leave the process stopped, which is undone here."""
    before = attach.read_tasks(target.pid, ctx.proc)
    argv = [pystack, "--no-color", "remote", "--native-all", str(target.pid)]
    done = runner.run(argv, ctx.remaining(TIMEOUT_S), cap=PYSTACK_CAP)
    after = attach.settled(target.pid, before, ctx.proc)
    repair = attach.set_going(target.pid, before, after)
    notes = [repair] if repair else _left_stopped(before, after)
    artifacts = (("native.txt", done.stdout),) if done.stdout.strip() else ()
    if done.status == "ok":
        return Result(PARTIAL if notes else OK, "; ".join(notes) or None, artifacts)
    status = TIMEOUT if done.status in ("timeout", "abandoned") else ERROR
    if "Operation not permitted" in done.stderr.decode("utf-8", "replace"):
        status, notes = DENIED, [*notes, py_spy.PTRACE_ADVICE]
    return Result(status, "; ".join([f"pystack {done.complaint()}", *notes]), artifacts)


def by_py_spy(ctx: Context, target: Target) -> Result:
    """As ``stacks.json``, mode ``native``."""
    program = py_spy.find(ctx.py_spy)
    if program is None:
        return Result(ABSENT, "neither pystack nor py-spy was found; install py-spy")
    before = attach.read_tasks(target.pid, ctx.proc)
    dump = py_spy.dump(program, target.pid, ctx.remaining(TIMEOUT_S), native=True, proc=ctx.proc)
    after = attach.settled(target.pid, before, ctx.proc)
    notes = _left_stopped(before, after)
    if dump.status != OK:
        return Result(dump.status, "; ".join([dump.reason or "py-spy failed", *notes]))
    thread_ids.translate(dump.threads, {**before, **after})
    rows: List[Dict[str, Any]] = []
    for thread in dump.threads:
        frames = thread.pop("frames")
        rows.append({**thread, "stack": ctx.intern.stack(frames), "torn": False})
    body = {
        "pid": target.pid,
        "mode": "native",
        "tries": 1,
        "locals": False,
        "pause_ns": int(dump.seconds * 1e9),
        "threads": rows,
        "after": attach.states(after),
    }
    artifact = ("native.json", json.dumps(body, separators=(",", ":")).encode("ascii"))
    return Result(PARTIAL if notes else OK, "; ".join(notes) or None, (artifact,))


def _left_stopped(before: Dict[int, Task], after: Dict[int, Task]) -> List[str]:
    stopped = attach.newly_stopped(attach.states(before), after)
    return ["stopped since the dump: " + ", ".join(str(tid) for tid in stopped)] if stopped else []


COLLECTOR = Native()
