"""One process's stacks in one sample: the tries, what each thread's best reading is, what may still be done.

The order is a rule of safety. A dump that stops nothing comes first. It counts for a thread only if that
thread cannot have run meanwhile; else the thread is torn. Only what still matters after that is dumped with
the threads stopped, and only where every thread sleeps in a wait known to be interruptible (``attach``).
``stacks`` runs these steps for many processes at once. Python >= 3.8.
"""

import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import attach, guarded, p2p_locals, procfs, py_spy, thread_ids
from .attach import Task
from .interface import ERROR, OK, TIMEOUT, Context, Target
from .py_spy_answer import Known

TRIES = 3
NONBLOCKING_TIMEOUT = 4.0
BLOCKING_TIMEOUT = 2.0
PROBE_TIMEOUT = 1.0
MATTERS = ("rank", "dataloader", "helper", "orphan")
"""Roles whose running threads may be the answer: for them a short stop is worth it."""


class Answer(NamedTuple):
    """A dump and the threads as they were directly before and after it."""

    dump: py_spy.Dump
    before: Dict[int, Task]
    after: Dict[int, Task]


class StackRead:
    """Built up by the steps below; ``stacks`` turns it into a cell."""

    def __init__(self, ctx: Context, target: Target, program: str) -> None:
        self.ctx = ctx
        self.target = target
        self.program = program
        self.mode = "nonblocking"
        self.subject = target.pid
        """What py-spy is pointed at: a live thread where the leader has ended."""
        self.tries = 0
        self.threads: Dict[int, Dict[str, Any]] = {}
        """Best reading of each thread by pthread id; ``torn`` says what it is worth."""
        self.states: Dict[int, str] = {}
        """State of every thread before the first dump."""
        self.after: Dict[int, Task] = {}
        self.failure: Optional[py_spy.Dump] = None
        """The last dump that failed, None after one that did not."""
        self.dumped: Optional[Tuple[float, float]] = None
        """When the first py-spy began and the last one ended, monotonic seconds."""
        self.pause: Optional[float] = None
        self.notes: List[str] = []
        self.with_locals = False
        self._tids: Dict[int, int] = {}
        self._known: Known = ctx.shared.setdefault("known_frames", Known())

    def open(self) -> Optional[str]:
        """Looks at the process before the first dump. Returns why there is nothing to dump, or None."""
        gone = py_spy.ended(self.target.pid, self.ctx.proc)
        if gone is not None:
            return gone
        self.states = attach.read_states(self.target.pid, self.ctx.proc)
        if self.states.get(self.target.pid, "") in ("Z", "X"):
            alive = py_spy.live_thread(self.target.pid, self.ctx.proc)
            if alive is None:
                return "the process has ended"
            self.mode, self.subject = "dead-leader", alive
            self.notes.append(f"its main thread has ended, thread {alive} lives on")
        self.failure = self._locked_memory()
        return None

    def _locked_memory(self) -> Optional[py_spy.Dump]:
        """A failed dump when the process's memory map is locked for good; py-spy is not run then.

        py-spy reads with process_vm_readv(2), which waits for that lock and cannot be killed meanwhile (Linux
        6.18), while a reader of cmdline can. A lock that is in the way has a waiting writer, which is in D.
        """
        blocked = [tid for tid, state in self.states.items() if state == "D"]
        if not blocked:
            return None
        path = f"{self.ctx.proc}/{self.subject}/cmdline"
        outcome = guarded.call(_readable, path, timeout=self.ctx.remaining(PROBE_TIMEOUT))
        if outcome.status not in ("timeout", "abandoned"):
            return None
        self.after = attach.read_tasks(self.target.pid, self.ctx.proc)
        wchan, _ = procfs.read_text(f"{self.ctx.proc}/{self.target.pid}/task/{blocked[0]}/wchan", 256)
        where = f"thread {blocked[0]} in state D at {wchan or '?'}"
        return py_spy.Dump(
            TIMEOUT, f"its memory map is locked ({where}): nothing can read its memory", (), True
        )

    # Steps that wait for py-spy: these run side by side for many processes.

    def ask(self, with_locals: bool = False) -> Answer:
        """A dump that stops nothing."""
        before = attach.read_tasks(self.target.pid, self.ctx.proc)
        dump = self._dump(NONBLOCKING_TIMEOUT, with_locals=with_locals)
        return Answer(dump, before, attach.read_tasks(self.target.pid, self.ctx.proc, before))

    def stop_and_ask(self) -> Optional[Answer]:
        """A dump of stopped threads, where that is safe at this moment; None where it is not."""
        why = attach.refusal(self.target.pid, self.ctx.proc)
        if why is not None:
            self.notes.append(f"not dumped with its threads stopped: {why}")
            return None
        before = attach.read_tasks(self.target.pid, self.ctx.proc)
        dump = self._dump(BLOCKING_TIMEOUT, blocking=True)
        self.pause = max(self.pause or 0.0, dump.seconds)
        return Answer(dump, before, attach.settled(self.target.pid, before, self.ctx.proc))

    def _dump(self, timeout: float, blocking: bool = False, with_locals: bool = False) -> py_spy.Dump:
        began = time.monotonic()
        dump = py_spy.dump(
            self.program,
            self.subject,
            self.ctx.remaining(timeout),
            blocking=blocking,
            with_locals=with_locals,
            proc=self.ctx.proc,
            known=self._known,
        )
        self.dumped = (self.dumped[0] if self.dumped else began, time.monotonic())
        return dump

    # Steps that think.

    def take(self, answer: Answer, stopped: bool = False) -> None:
        """Keeps of a dump what is better than what was there."""
        self.tries += 1
        self.after = answer.after
        if answer.dump.status != OK:
            self.failure = answer.dump
            return
        self.failure = None
        if stopped:
            self.mode, self.threads = "blocking", {}
        self._name_threads(answer)
        whole = stopped or self._gil_was_held(answer)
        for thread in answer.dump.threads:
            thread["torn"] = not (whole or self._was_still(thread, answer))
            known = self.threads.get(thread["thread_id"])
            if known is None or known["torn"]:
                self.threads[thread["thread_id"]] = thread

    def can_be_taken_at_once(self, answer: Answer) -> bool:
        """Whether ``take`` needs no child: one looks up the kernel thread ids that py-spy did not print."""
        return all(thread["os_thread_id"] is not None for thread in answer.dump.threads)

    def is_complete(self) -> bool:
        """Whether nothing more is to be asked: it has stacks, and no dump could make them better."""
        more = self.wants_another_try() or self.wants_to_stop_threads() or self.wants_locals()
        return self.failure is None and not more

    def _name_threads(self, answer: Answer) -> None:
        """Fills in kernel thread ids that py-spy did not print, translates those that it did."""
        tasks = {**answer.before, **answer.after}
        nameless = [t for t in answer.dump.threads if t["os_thread_id"] is None]
        thread_ids.translate((t for t in answer.dump.threads if t["os_thread_id"] is not None), tasks)
        if nameless and any(t["thread_id"] not in self._tids for t in nameless):
            pthreads = [t["thread_id"] for t in nameless]
            timeout = self.ctx.remaining(1.0)
            self._tids = thread_ids.of_pthreads(self.target.pid, pthreads, tasks, timeout, self.ctx.proc)
        for thread in nameless:
            thread["os_thread_id"] = self._tids.get(thread["thread_id"])

    def _was_still(self, thread: Dict[str, Any], answer: Answer) -> bool:
        tid = thread["os_thread_id"]
        if tid is not None:
            return attach.still(answer.before.get(tid), answer.after.get(tid))
        return all(attach.still(task, answer.after.get(tid)) for tid, task in answer.before.items())

    def _gil_was_held(self, answer: Answer) -> bool:
        """True when one thread held the GIL all the while without running (blocked in C, in a page fault):
        then no other's Python frames can have changed, though the waiters for the GIL wake every 5 ms."""
        owners = [thread for thread in answer.dump.threads if thread["owns_gil"]]
        tid = owners[0]["os_thread_id"] if len(owners) == 1 else None
        return tid is not None and attach.still(answer.before.get(tid), answer.after.get(tid))

    def torn(self) -> List[Dict[str, Any]]:
        """Threads that ran in every reading of them."""
        return [thread for thread in self.threads.values() if thread["torn"]]

    def wants_another_try(self) -> bool:
        if self.tries >= TRIES or self.ctx.remaining(1.0) <= 0.0:
            return False
        if self.failure is not None:
            return not self.failure.final
        return bool(self.torn())

    def wants_to_stop_threads(self) -> bool:
        """True when only a dump of stopped threads can still tell what is worth knowing."""
        if self.mode != "nonblocking" or self.ctx.remaining(1.0) <= 0.0:
            return False
        if not self.threads:
            return self.failure is not None and self.failure.status == ERROR and not self.failure.final
        return bool(self.torn()) and self.target.role in MATTERS

    def may_stop_again(self, answer: Answer) -> bool:
        """After a blocking dump that failed: another try, unless it ran into its deadline."""
        return answer.dump.status not in (OK, TIMEOUT) and not answer.dump.final

    def wants_locals(self) -> bool:
        return any(p2p_locals.is_p2p(frame) for frame in self.distinct_frames())

    def distinct_frames(self) -> List[Dict[str, Any]]:
        """Every frame of every thread; equal ones are one object (``py_spy.parse``), and come once."""
        frames = {id(frame): frame for thread in self.threads.values() for frame in thread["frames"]}
        return list(frames.values())

    def take_locals(self, answer: Answer) -> None:
        """Adds the peers of point-to-point operations, for threads that stood still with the same stack."""
        if answer.dump.status != OK:
            self.notes.append(f"no peers of its point-to-point operation: {answer.dump.reason}")
            return
        self._name_threads(answer)
        for detailed in answer.dump.threads:
            thread = self.threads.get(detailed["thread_id"])
            if thread is None or not any(p2p_locals.is_p2p(frame) for frame in thread["frames"]):
                continue
            if self._was_still(detailed, answer) and p2p_locals.add(thread["frames"], detailed["frames"]):
                self.with_locals = True
            else:
                self.notes.append(f"thread {thread['os_thread_id']} went on before its peer was read")
        self.after = answer.after


def _readable(path: str) -> bool:
    """Returns when the file could be read, or not be read; runs in a killable child."""
    procfs.read_bytes(path, 64)
    return True
