"""``thread_wait``: from a thread's state, kernel wait and stacks to the one thing it waits for.

Order of trust: a state that is no wait (dead, stopped, traced); a sleep that only the kernel can end; native
frames; the Python stack; the source line of a leaf whose wait is C code; the system call; the place.
"""

from __future__ import annotations

import itertools

import msgspec

from hangscope.model.facts import Frame, Process, ProcessSample, ThreadSample
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

from ..dictionary import DEFAULT_RELEASE, NativeRow, lookup_native, lookup_thread
from . import activity, locks, text
from .describe import describe
from .kernel import KernelWait, kernel_wait
from .stack import Reading, read_stack

NO_WAIT = {
    "Z": (WaitKind.DEAD, ReleasedBy.NOBODY),
    "X": (WaitKind.DEAD, ReleasedBy.NOBODY),
    "x": (WaitKind.DEAD, ReleasedBy.NOBODY),
    "T": (WaitKind.STOPPED, ReleasedBy.REMOTE),
    "t": (WaitKind.TRACED, ReleasedBy.REMOTE),
}
MAY_SPIN = frozenset(
    {
        WaitKind.COLLECTIVE, WaitKind.ENTERING, WaitKind.BARRIER, WaitKind.SEND, WaitKind.RECV,
        WaitKind.DEVICE, WaitKind.INIT, WaitKind.STORE, WaitKind.RENDEZVOUS, WaitKind.COMPILE, WaitKind.QUEUE,
        WaitKind.SERVICE, WaitKind.RUNTIME, WaitKind.CHILD, WaitKind.FILE_LOCK,
    }
)  # fmt: skip
"""Waits that may poll on the CPU: a thread that runs in one still waits."""

TOLD_BY_KERNEL = frozenset(
    {
        WaitKind.PIPE, WaitKind.FIFO, WaitKind.SOCKET, WaitKind.CHILD, WaitKind.SLEEP, WaitKind.FILE_LOCK,
        WaitKind.DISK, WaitKind.FILESYSTEM,
    }
)  # fmt: skip
"""Interruptible waits whose system call says all: they need no frame."""

ASKS_A_STORE = (WaitKind.POLL, WaitKind.SLEEP, WaitKind.SOCKET)
"""How the stores wait for a key: TCPStore polls its socket, FileStore sleeps between looks (torch 2.13)."""

Decision = tuple[WaitKind, ReleasedBy | None]


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is looked at for one thread."""

    process: Process
    sample: ProcessSample
    thread: ThreadSample
    reading: Reading | None
    kernel: KernelWait | None
    native: NativeRow | None
    owner: int | None
    """The thread that keeps the interpreter lock."""

    @property
    def leaf(self) -> Frame | None:
        """The innermost Python frame that is no wrapper."""
        stack = self.thread.stack
        return stack[self.reading.leaf] if stack and self.reading else None

    @property
    def leaf_text(self) -> str | None:
        leaf = self.leaf
        return leaf.source.text if leaf is not None and leaf.source is not None else None

    @property
    def runs(self) -> bool:
        """On a CPU: met running, or most of the time between the samples was spent there."""
        used = activity.share(self.process, self.sample, self.thread)
        if used is None:
            return self.thread.state == "R" or (self.thread.state == "?" and self.thread.active is True)
        return used >= activity.MOST or (self.thread.state == "R" and used > activity.LITTLE)


def thread_wait(process: Process, sample: ProcessSample, thread: ThreadSample) -> Wait:
    """What the thread waits for in this sample; see ``Wait``. Never raises for what was captured."""
    reading = read_stack(thread.stack) if thread.stack else None
    return decide(process, sample, thread, reading, activity.gil_owner(process, sample))


def decide(
    process: Process, sample: ProcessSample, thread: ThreadSample, reading: Reading | None, owner: int | None
) -> Wait:
    """As ``thread_wait``, with the parts that are shared between threads given."""
    native = lookup_native(_innermost(thread.native)) if thread.native else None
    look = Look(
        process=process,
        sample=sample,
        thread=thread,
        reading=reading,
        kernel=kernel_wait(sample, thread),
        native=native[0] if native else None,
        owner=owner,
    )
    fixed = _fixed(look)
    if fixed is not None:
        return describe(look, *fixed)
    if reading is None:
        return describe(look, *_without_python(look))
    if thread.torn and look.runs:
        return describe(look, WaitKind.RUNNING, ReleasedBy.ITSELF)
    return describe(look, *_with_python(look))


def _innermost(native: tuple[Frame, ...]) -> tuple[str, ...]:
    """The native functions inside of the innermost Python frame: those outside of it have called back into
    Python (a hook in the backward pass), and what they wait for is what that Python code waits for."""
    inner = itertools.takewhile(lambda frame: frame.library is not None, native)
    return tuple(frame.function for frame in inner)


def _fixed(look: Look) -> Decision | None:
    """States that are no wait, and sleeps that only the kernel can end."""
    thread, kernel = look.thread, look.kernel
    if thread.state in NO_WAIT:
        return NO_WAIT[thread.state]
    if look.sample.frozen:
        return WaitKind.STOPPED, ReleasedBy.REMOTE
    if kernel is not None and kernel.strong:
        return kernel.kind, kernel.released_by
    return None


def _without_python(look: Look) -> Decision:
    """Threads of C code, and processes whose stacks could not be taken."""
    thread, kernel = look.thread, look.kernel
    leader = thread.tid == look.process.pid
    row = None if leader else lookup_thread(thread.comm)
    if row is not None:
        return row.kind, None
    if look.native is not None:
        return look.native.kind, look.native.released_by
    if kernel is not None and kernel.kind in TOLD_BY_KERNEL:
        return kernel.kind, kernel.released_by
    if look.runs:
        return WaitKind.RUNNING, ReleasedBy.ITSELF
    if thread.stack == () and _waits_for_gil(look):
        return WaitKind.GIL, ReleasedBy.IN_PROCESS
    dumped = any(item.stack for item in look.sample.threads)
    if not leader and dumped and kernel is not None:
        return WaitKind.RUNTIME, None  # py-spy lists every thread that has run Python: this one never did
    return WaitKind.UNKNOWN, ReleasedBy.NOBODY


def _with_python(look: Look) -> Decision:
    reading = look.reading
    assert reading is not None
    if _waits_for_gil(look) and _asks_for_gil(look):
        return WaitKind.GIL, ReleasedBy.IN_PROCESS
    if reading.kind is not None:
        return _decided(look, reading, reading.kind)
    if look.native is not None:
        return look.native.kind, look.native.released_by
    if look.process.gpus and text.DEVICE.search(look.leaf_text or ""):
        return WaitKind.DEVICE, None
    if look.runs:
        return _running(reading), ReleasedBy.ITSELF
    kernel = look.kernel
    if kernel is None:
        return _implied(look, reading)
    if kernel.futex:
        return _futex(look, reading)
    if kernel.kind in ASKS_A_STORE and text.STORE.search(look.leaf_text or ""):
        return WaitKind.STORE, None
    if kernel.kind is WaitKind.POLL:
        implied = _implied(look, reading)
        return implied if implied[0] is not WaitKind.UNKNOWN else (WaitKind.POLL, kernel.released_by)
    if kernel.kind is WaitKind.SOCKET and kernel.call in ("accept", "accept4"):
        return _accepting(look)
    if kernel.kind is WaitKind.SLEEP and reading.implied in (WaitKind.INIT, WaitKind.COMPILE):
        return reading.implied, None
    return kernel.kind, kernel.released_by


def _decided(look: Look, reading: Reading, kind: WaitKind) -> Decision:
    """The dictionary decided; the source line, native frames, CPU time and role refine it."""
    if reading.joined_by_source and not _has_joined(look):
        return WaitKind.ENTERING, None
    if kind is WaitKind.ENTERING and look.native is not None and look.native.kind in (
        WaitKind.SEND, WaitKind.RECV, WaitKind.COLLECTIVE, WaitKind.BARRIER,
    ):  # fmt: skip
        return look.native.kind, None
    if look.runs and kind not in MAY_SPIN:
        return WaitKind.RUNNING, ReleasedBy.ITSELF
    if kind is WaitKind.SOCKET and reading.wait_phase == "accept":
        return _accepting(look)
    between = reading.wait_phase == "queue between processes"
    if kind is WaitKind.CHILD and between and look.process.role in ("dataloader", "helper", "orphan"):
        return WaitKind.QUEUE, ReleasedBy.PEER
    if kind is WaitKind.PIPE and look.kernel is not None and look.kernel.socket is not None:
        return WaitKind.SOCKET, ReleasedBy.REMOTE
    return kind, reading.released_by


def _has_joined(look: Look) -> bool:
    """On the line that waits for the issued operation, or native frames inside of the wait."""
    native = look.native
    if native is not None and native.kind in (WaitKind.COLLECTIVE, WaitKind.BARRIER):
        return True
    return text.is_joined(look.leaf_text) is True


def _accepting(look: Look) -> Decision:
    """A thread that accepts connections is a server; a main thread that does waits for somebody."""
    if look.thread.tid != look.process.pid:
        return WaitKind.SERVICE, None
    return WaitKind.SOCKET, ReleasedBy.REMOTE


def _futex(look: Look, reading: Reading) -> Decision:
    """A futex under a frame that the dictionary does not know: only the source line can tell."""
    leaf, line = look.leaf, look.leaf_text or ""
    if leaf is not None and locks.takes_lock(leaf):
        return WaitKind.LOCK, None
    if text.WAIT_CALL.search(line):
        # a Work's wait, of a collective or of a transfer: its line does not tell which
        return (WaitKind.COLLECTIVE, ReleasedBy.PEER) if _communicates(look) else (WaitKind.SIGNALLED, None)
    if text.JOIN.search(line):
        return WaitKind.JOIN_THREAD, None
    if text.QUEUE.search(line):
        return WaitKind.QUEUE, None
    if _waits_for_gil(look):
        return WaitKind.GIL, ReleasedBy.IN_PROCESS
    return _implied(look, reading)


def _communicates(look: Look) -> bool:
    """The process has a communication back end's threads: a C++ ``.wait()`` may be that of a Work."""
    return any(
        row.kind is WaitKind.TRANSPORT_IDLE or item.comm.startswith("pt_nccl_")
        for item in look.sample.threads
        if item.tid != look.process.pid and (row := lookup_thread(item.comm)) is not None
    )


def _waits_for_gil(look: Look) -> bool:
    """Another thread keeps the interpreter lock over both samples, asleep, and this one is in a futex."""
    asleep = look.kernel is not None and (look.kernel.futex or look.kernel.kind is WaitKind.POLL)
    return look.owner is not None and look.owner != look.thread.tid and asleep


def _asks_for_gil(look: Look) -> bool:
    """It wakes up as often as only a waiter for the interpreter lock does."""
    rate = activity.wakes(look.process, look.sample, look.thread)
    return rate is not None and rate >= activity.GIL_WAKES


def _running(reading: Reading) -> WaitKind:
    return WaitKind.COMPILE if reading.implied is WaitKind.COMPILE else WaitKind.RUNNING


def _implied(look: Look, reading: Reading) -> Decision:
    """What the leaf's place implies. That a place computes is no explanation for a thread that sleeps."""
    if reading.implied is None or reading.implied is WaitKind.RUNNING:
        if look.thread.state == "R":
            return WaitKind.RUNNING, ReleasedBy.ITSELF
        return WaitKind.UNKNOWN, ReleasedBy.NOBODY
    return reading.implied, DEFAULT_RELEASE.get(reading.implied)
