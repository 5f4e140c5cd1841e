"""Waits that end inside the process: locks with a known holder, the GIL, and *some thread, not known which*.

For the last the edges are OR and inferred, to every other thread but service loops and runtime threads in
their normal wait. They pass through one node a process, so that forty threads make forty edges.
"""

from __future__ import annotations

import re

from ...model.facts import Process, ThreadSample
from ...model.graph import Certainty
from ...model.waits import Wait, WaitKind
from ..job import IDLE, LIVE, Job
from .draft import Draft

PRIVATE = re.compile(r"^(self|cls)\.")


def lock_key(text: str, wait: Wait) -> tuple[str, Certainty]:
    """What makes two source texts one lock: the text within one file, and within one class for
    ``self.…``. A plain name is one object; an attribute may be another instance's: inferred."""
    where = wait.frame.file if wait.frame is not None else ""
    owner = ""
    if PRIVATE.match(text) and wait.frame is not None:
        owner = wait.frame.function.rpartition(".")[0]
    certainty: Certainty = "observed" if text.isidentifier() else "inferred"
    return f"{where}|{owner}|{text}", certainty


class Inside:
    """Draws the in-process edges of a thread."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._job: Job = draft.job
        self._holders: dict[tuple[str, int], dict[str, list[int]]] = {}

    def lock(self, process: Process, tid: int, wait: Wait, source: str) -> bool:
        """An edge to the thread that holds the lock by an enclosing ``with``; False when none is known."""
        if not wait.lock:
            return False
        key, certainty = lock_key(wait.lock, wait)
        holders = [holder for holder in self._held(process).get(key, ()) if holder != tid]
        holders = [h for h in holders if not self._same_futex(process, tid, h)]
        if len(holders) != 1:
            return False
        id = self._draft.node(f"lock:{process.node}:{process.pid}:{key}", "lock", wait.lock, process=process)
        self._draft.edge(source, id, why=f"waits for {wait.lock}")
        holder = self._draft.thread(process, holders[0])
        why = f"stands inside `with {wait.lock}`"
        self._draft.edge(id, holder, certainty=certainty, why=why)
        return True

    def _held(self, process: Process) -> dict[str, list[int]]:
        place = (process.node, process.pid)
        if place not in self._holders:
            held: dict[str, list[int]] = {}
            for tid in sorted(self._job.threads(process)):
                wait = self._job.wait(process, tid)
                for text in sorted(set(wait.held)):
                    if text != wait.lock:
                        held.setdefault(lock_key(text, wait)[0], []).append(tid)
            self._holders[place] = held
        return self._holders[place]

    def _same_futex(self, process: Process, tid: int, other: int) -> bool:
        """Both wait at one address: they want the same lock, so neither of them holds it."""
        first, second = self._job.wait(process, tid), self._job.wait(process, other)
        return first.address is not None and first.address == second.address

    def gil(self, process: Process, tid: int, source: str) -> bool:
        """An edge to a thread that kept the GIL, blocked, in two samples running."""
        for owner in gil_keepers(self._job, process):
            thread = self._job.threads(process).get(tid)
            if owner != tid and thread is not None and _is_python(thread):
                target = self._draft.thread(process, owner)
                self._draft.edge(source, target, why="it keeps the GIL in every sample")
                return True
        return False

    def gil_owner(self, process: Process, tid: int, source: str) -> bool:
        """For a thread that waits for the GIL itself: an edge to whoever had it in the newest sample."""
        for other, thread in sorted(self._job.threads(process).items()):
            if thread.owns_gil and other != tid:
                self._draft.edge(source, self._draft.thread(process, other), why="it has the GIL")
                return True
        return False

    def some_thread(self, process: Process, tid: int, source: str, why: str) -> bool:
        """OR edges to every thread that could end the wait; False when there is no other one."""
        candidates = self._candidates(process)
        if not candidates - {tid}:
            return False
        id = f"inside:{process.node}:{process.pid}"
        known = id in self._draft.nodes
        self._draft.node(id, "queue", "some other thread of the process", process=process)
        self._draft.edge(source, id, certainty="inferred", why=why)
        if not known:
            for other in sorted(candidates):
                target = self._draft.thread(process, other)
                self._draft.edge(id, target, mode="or", why="could end the wait")
        return True

    def named_thread(self, process: Process, tid: int, source: str, pattern: str) -> bool:
        """OR edges to the threads whose name or functions match the frame dictionary's pattern."""
        try:
            expression = re.compile(pattern)
        except re.error:
            return False
        matching = [
            other
            for other, thread in sorted(self._job.threads(process).items())
            if other != tid and _matches(expression, thread)
        ]
        for other in matching:
            certainty: Certainty = "observed" if len(matching) == 1 else "inferred"
            target = self._draft.thread(process, other)
            self._draft.edge(source, target, mode="or", certainty=certainty, why="feeds the wait")
        return bool(matching)

    def _candidates(self, process: Process) -> set[int]:
        """Threads that are not idle; running and sleeping ones only when nobody else is left."""
        kinds = {tid: self._job.wait(process, tid).kind for tid in self._job.threads(process)}
        busy = {tid for tid, kind in kinds.items() if kind not in IDLE}
        blocked = {tid for tid in busy if kinds[tid] not in LIVE and tid != process.pid}
        return {tid for tid in busy if kinds[tid] not in LIVE} if blocked else busy


def gil_keepers(job: Job, process: Process) -> list[int]:
    """Threads that own the GIL in the last two samples without running."""
    if len(process.samples) < 2:
        return []
    before = {thread.tid: thread for thread in process.samples[-2].threads}
    return [
        tid
        for tid, thread in sorted(job.threads(process).items())
        if thread.owns_gil
        and thread.state != "R"
        and job.wait(process, tid).kind is not WaitKind.RUNNING
        and tid in before
        and before[tid].owns_gil
        and before[tid].state != "R"
    ]


def _is_python(thread: ThreadSample) -> bool:
    return thread.python_name is not None or thread.stack is not None


def _matches(expression: re.Pattern[str], thread: ThreadSample) -> bool:
    names = [thread.comm, thread.python_name or "", *(frame.function for frame in thread.stack or ())]
    return any(expression.search(name) for name in names)
