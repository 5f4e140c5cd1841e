"""The Python stacks of every process, by py-spy; many processes side by side.

Leaves ``ctx.shared["frames"]``, a set of (pid, file, line), for ``source``, and ``GIL_OWNERS`` for who would
have a process run Python. What stops nothing comes first (see ``stack_read``). Python >= 3.8.
"""

import contextlib
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

from . import attach, guarded, procfs, program_counter, py_spy
from .interface import ABSENT, ERROR, OK, PARTIAL, PROCESS, TIMEOUT, Context, Result, Target
from .stack_read import TRIES, Answer, StackRead

In = TypeVar("In")
Out = TypeVar("Out")

AT_ONCE = max(4, os.cpu_count() or 1)
"""Processes dumped side by side. More than the cores: one that hangs must not hold up the others."""


GIL_OWNERS = "stacks.gil_owners"
"""Key in ``ctx.shared``: {(pid, start ticks): [tid that held the GIL, or None, in each sample]}."""


class Stacks:
    """Takes ``stacks.json`` of processes; see FORMAT.md."""

    name = "stacks"
    scope = PROCESS
    once = False
    budget = 15.0
    describes = "Python stacks of every process (py-spy; ptrace permission; stops nothing unless it must)"

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        """The stacks of one process; ``dump_all`` is the faster way for several."""
        assert target is not None
        return dump_all(ctx, [target])[target.pid]

    def dump_all(self, ctx: Context, targets: Sequence[Target]) -> Dict[int, Result]:
        """The cells of several processes at once, by pid."""
        return dump_all(ctx, targets)


def dump_all(ctx: Context, targets: Sequence[Target]) -> Dict[int, Result]:
    """The cell of every target, by pid. Never raises for what a target is or does.

    Needs ``ctx.intern``. Takes about as long as the same dumps by ``xargs -P``; at most three rounds of
    4 s and three of 2 s, however many processes hang.
    """
    program = py_spy.find(ctx.py_spy)
    results: Dict[int, Result] = {}
    reads: List[StackRead] = []
    for target in targets:
        problem = _cannot_start(ctx, target, program)
        if problem is None and program is not None:
            read = StackRead(ctx, target, program)
            gone = read.open()
            if gone is None:
                reads.append(read)
                continue
            problem = Result(ABSENT, gone)
        results[target.pid] = problem or Result(ERROR, "not dumped")
    _ask_nonblocking(reads, results)
    reads = [read for read in reads if read.target.pid not in results]
    _ask_blocking([read for read in reads if read.wants_to_stop_threads()])
    peers = [read for read in reads if read.wants_locals()]
    for read, answer in zip(peers, _side_by_side(lambda read: read.ask(with_locals=True), peers)):
        read.take_locals(answer)
    for read in reads:
        results[read.target.pid] = _cell(read)
    return results


def _cannot_start(ctx: Context, target: Target, program: Optional[str]) -> Optional[Result]:
    problem = procfs.identity_problem(target.pid, target.start_ticks, ctx.proc)
    if problem is not None:
        return Result(*problem)
    if program is None:
        return Result(ABSENT, "no py-spy program found; install py-spy, or name it with ctx.py_spy")
    if ctx.remaining(1.0) <= 0.0:
        return Result(TIMEOUT, "no time left for stacks")
    return None


def _ask_nonblocking(reads: Sequence[StackRead], results: Dict[int, Result]) -> None:
    """Dumps that stop nothing. A process of which nothing more is to be learned has its cell in ``results``
    while others are still dumped."""
    waiting = [read for read in reads if read.failure is None]
    while waiting:
        late: List[Tuple[StackRead, Answer]] = []

        def take(read: StackRead, answer: Answer, late: List[Tuple[StackRead, Answer]] = late) -> None:
            if not read.can_be_taken_at_once(answer):
                late.append((read, answer))
                return
            read.take(answer)
            if read.is_complete() and not _without_python(read):
                results[read.target.pid] = _cell(read)

        _side_by_side(StackRead.ask, waiting, take)
        for read, answer in late:
            read.take(answer)
        waiting = [read for read in waiting if read.target.pid not in results and read.wants_another_try()]


def _ask_blocking(reads: Sequence[StackRead]) -> None:
    waiting = list(reads)
    for _ in range(TRIES):
        again = []
        for read, answer in zip(waiting, _side_by_side(StackRead.stop_and_ask, waiting)):
            if answer is None:
                continue
            read.take(answer, stopped=True)
            if read.may_stop_again(answer):
                again.append(read)
        waiting = again


def _side_by_side(
    step: Callable[[In], Out], items: Sequence[In], take: Optional[Callable[[In, Out], None]] = None
) -> List[Out]:
    """``step`` of every item, in order. The threads are gone afterwards: the caller forks.

    ``take`` is called with each item and its result in the caller's thread, in order, while the others still
    run: it may start no child.
    """
    results: List[Out] = []
    if len(items) < 2:
        for item in items:
            results.append(step(item))
            if take is not None:
                take(item, results[-1])
        return results
    with ThreadPoolExecutor(min(AT_ONCE, len(items))) as pool:
        try:
            for item, result in zip(items, pool.map(step, items)):
                results.append(result)
                if take is not None:
                    take(item, result)
            return results
        except BaseException:
            # interrupted: the pool's threads end as soon as what they wait for does
            for pid in list(guarded.running):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise


def _cell(read: StackRead) -> Result:
    """Interns the frames and says how good the reading is."""
    problem = procfs.identity_problem(read.target.pid, read.target.start_ticks, read.ctx.proc)
    failure = read.failure
    if not read.threads and problem is not None:
        return Result(*problem)
    _want_source(read)
    _note_gil_owner(read)
    threads = [_row(read, thread) for thread in read.threads.values()]
    body: Dict[str, Any] = {
        "pid": read.target.pid,
        "mode": read.mode,
        "tries": read.tries,
        "locals": read.with_locals,
        "dumped": None if read.dumped is None else [round(moment, 6) for moment in read.dumped],
        "pause_ns": None if read.pause is None else int(read.pause * 1e9),
        "threads": threads,
        "after": attach.states(read.after),
    }
    counters = program_counter.of_blocked(read.target.pid, _without_python(read), read.ctx)
    if counters:
        body["program_counters"] = counters
    artifact = ("stacks.json", json.dumps(body, separators=(",", ":")).encode("ascii"))
    if not threads and failure is not None:
        reason = "; ".join([failure.reason or "py-spy failed", *read.notes])
        return Result(failure.status, reason, (artifact,) if counters or read.pause is not None else ())
    reason = "; ".join(_blemishes(read) + read.notes + ([problem[1]] if problem else []))
    return Result(PARTIAL if reason else OK, reason or None, (artifact,))


def _want_source(read: StackRead) -> None:
    wanted = read.ctx.shared.setdefault("frames", set())
    pid = read.target.pid
    wanted.update((pid, f["filename"], f["line"]) for f in read.distinct_frames() if f["module"] is None)


def _note_gil_owner(read: StackRead) -> None:
    owners = [int(thread["os_thread_id"]) for thread in read.threads.values() if thread["owns_gil"]]
    known: Dict[Tuple[int, int], List[Optional[int]]] = read.ctx.shared.setdefault(GIL_OWNERS, {})
    known.setdefault(read.target[:2], []).append(owners[0] if owners else None)


def _row(read: StackRead, thread: Dict[str, Any]) -> Dict[str, Any]:
    row = {name: value for name, value in thread.items() if name != "frames"}
    row["stack"] = _interned(read.ctx, thread["frames"])
    return row


def _interned(ctx: Context, frames: List[Dict[str, Any]]) -> int:
    """The table's index of a stack. A stack of shared frames that was seen before is known by their identity:
    most stacks repeat from rank to rank, and the table has to encode every frame to find that out."""
    if any(frame["locals"] is not None for frame in frames):
        return int(ctx.intern.stack(frames))
    seen: Dict[Any, Tuple[int, Tuple[Dict[str, Any], ...]]] = ctx.shared.setdefault("known_stacks", {})
    key = tuple(map(id, frames))
    known = seen.get(key)
    if known is None:
        # the frames are kept with it: the identity of one that is gone may be another's
        known = seen[key] = int(ctx.intern.stack(frames)), tuple(frames)
    return known[0]


def _without_python(read: StackRead) -> List[int]:
    """Threads in uninterruptible sleep of which no Python frame is known."""
    known = {thread["os_thread_id"] for thread in read.threads.values() if thread["frames"]}
    return [tid for tid, task in sorted(read.after.items()) if task.state == "D" and tid not in known]


def _blemishes(read: StackRead) -> List[str]:
    found = []
    torn = read.torn()
    if torn:
        names = ", ".join(str(thread["os_thread_id"]) for thread in torn[:5])
        found.append(f"{len(torn)} of {len(read.threads)} threads ran while they were read ({names})")
    if read.failure is not None:
        found.append(f"the last try failed: {read.failure.reason}")
    stopped = attach.newly_stopped(read.states, read.after)
    if stopped:
        found.append("stopped since the dump: " + ", ".join(str(tid) for tid in stopped[:5]))
    return found


COLLECTOR = Stacks()
