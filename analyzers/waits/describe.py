"""Fills a ``Wait``: the decided kind with everything around it that is known, and one clause for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hangscope.model.facts import Frame
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

from ..dictionary import DEFAULT_RELEASE, lookup, lookup_thread
from . import locks, text
from .kernel import DATA_CALLS, OPENS, KernelWait

if TYPE_CHECKING:
    from .decide import Look

OPERATIONS = frozenset(
    {WaitKind.COLLECTIVE, WaitKind.ENTERING, WaitKind.BARRIER, WaitKind.SEND, WaitKind.RECV}
)
ENDS = frozenset(
    {
        WaitKind.PIPE,
        WaitKind.FIFO,
        WaitKind.SOCKET,
        WaitKind.QUEUE,
        WaitKind.CHILD,
        WaitKind.FILE_LOCK,
        WaitKind.DRIVER,
    }
)
"""Kinds for which the file or socket of the system call is told."""


def describe(look: Look, kind: WaitKind, released_by: ReleasedBy | None) -> Wait:
    """The Wait of that kind. ``released_by`` None: who usually ends such a wait."""
    thread, reading, kernel = look.thread, look.reading, look.kernel
    stack = thread.stack or ()
    frame = stack[reading.index] if reading and stack else None
    peers, remote = _ends(kernel) if kernel is not None and kind in ENDS else ((), None)
    operation = _operation(look, kind)
    lock = _lock(look, stack) if kind is WaitKind.LOCK else None
    child = kernel.child if kernel is not None and kind is WaitKind.CHILD else None
    wait = Wait(
        kind=kind,
        released_by=released_by or DEFAULT_RELEASE.get(kind, ReleasedBy.NOBODY),
        operation=operation,
        framework=_framework(look),
        phase=_phase(look, kind),
        thread_pattern=reading.thread_pattern if reading else None,
        frame=frame,
        caller=reading.caller if reading else None,
        chain=reading.chain if reading else (),
        peer=_peer(frame, kind) if frame is not None else None,
        peer_pid=child or (peers[0] if len(peers) == 1 else None),
        peer_pids=peers if len(peers) > 1 else (),
        remote=remote,
        address=kernel.address if kernel is not None else None,
        lock=lock,
        held=locks.held_locks(stack),
        resolved=kind is not WaitKind.UNKNOWN,
        why=_why(look, kind, operation, remote, lock),
        ref=thread.stack_ref if reading is not None and not _by_kernel(look, kind) else thread.ref,
    )
    return wait


def _by_kernel(look: Look, kind: WaitKind) -> bool:
    return kind in (WaitKind.DEAD, WaitKind.STOPPED, WaitKind.TRACED) or (
        look.kernel is not None and look.kernel.strong
    )


def _operation(look: Look, kind: WaitKind) -> str | None:
    """The operation that it waits in, or was entering when the kernel stopped it."""
    reading, native = look.reading, look.native
    if reading is not None and reading.kind in OPERATIONS and reading.operation:
        return reading.operation
    if reading is not None and kind is reading.implied and reading.implied_operation:
        return reading.implied_operation
    if native is not None and (kind in OPERATIONS or kind in (WaitKind.AUTOGRAD, WaitKind.TRANSPORT_IDLE)):
        return native.operation
    return None


def _framework(look: Look) -> str | None:
    if look.reading is not None and look.reading.framework:
        return look.reading.framework
    row = _thread_framework(look)
    return row or (look.native.framework if look.native is not None else None)


def _thread_framework(look: Look) -> str | None:
    """The framework that a C thread belongs to, by its name."""
    if look.thread.tid == look.process.pid or look.reading is not None:
        return None
    row = lookup_thread(look.thread.comm)
    return row.framework if row else None


def _phase(look: Look, kind: WaitKind) -> str | None:
    """Where in the framework; without one, what kind of sleep it is for the kernel."""
    if look.reading is not None and look.reading.phase:
        return look.reading.phase
    return look.kernel.phase if look.kernel is not None and _by_kernel(look, kind) else None


def _ends(kernel: KernelWait) -> tuple[tuple[int, ...], str | None]:
    """(captured processes at the other end, how that end is called)."""
    if kernel.socket is not None:
        peer = kernel.socket.peer_pid
        return ((peer,) if peer is not None else ()), kernel.socket.remote or kernel.socket.local or None
    if kernel.file is not None:
        return kernel.file.peers, kernel.file.target
    return (), None


def _peer(frame: Frame, kind: WaitKind) -> int | None:
    """The global rank at the other end of a send or receive, from the integers that were kept."""
    values = dict(frame.ints)
    if kind is WaitKind.SEND or (kind is WaitKind.ENTERING and frame.function == "isend"):
        return values.get("dst")
    if kind is WaitKind.RECV or (kind is WaitKind.ENTERING and frame.function == "irecv"):
        return values.get("src")
    return None


def _lock(look: Look, stack: tuple[Frame, ...]) -> str | None:
    """From the leaf's line; where the taking itself has frames, from the first line outside of them."""
    reading = look.reading
    if reading is None:
        return None
    if reading.wait_phase == "import lock":
        return "import lock"
    if reading.kind is not WaitKind.LOCK:
        return locks.waited_lock(stack[reading.leaf])
    above = [
        frame
        for frame in reading.chain
        if (found := lookup(frame)) is None or found.row.framework != "Python"
    ]
    return locks.waited_lock(above[0]) if above else None


SAYS = {
    WaitKind.DEAD: "has ended",
    WaitKind.TRACED: "is held by a debugger",
    WaitKind.RUNNING: "runs",
    WaitKind.SLEEP: "sleeps for a set time",
    WaitKind.COMPILE: "compiles",
    WaitKind.SERVICE: "is an idle server loop",
    WaitKind.TRANSPORT_IDLE: "is a transport thread in its normal wait",
    WaitKind.RUNTIME: "is a runtime thread in its normal wait",
    WaitKind.AUTOGRAD: "waits for the autograd engine or the reducer",
    WaitKind.DEVICE: "waits for the device",
    WaitKind.GIL: "waits for the interpreter lock",
    WaitKind.JOIN_THREAD: "waits for a thread to end",
    WaitKind.FUTURE: "waits for a future",
    WaitKind.STORE: "waits for a key of the store",
    WaitKind.RENDEZVOUS: "waits in the rendezvous",
    WaitKind.INIT: "waits for the other members in the creation of a process group",
}


FOR = {
    WaitKind.SIGNALLED: "a signal from another thread",
    WaitKind.QUEUE: "an item of a queue",
    WaitKind.PIPE: "the other end of a pipe",
    WaitKind.FIFO: "the other end of a FIFO",
    WaitKind.SOCKET: "the other end of a socket",
    WaitKind.POLL: "one of its descriptors",
    WaitKind.FILE_LOCK: "a file lock",
    WaitKind.DISK: "I/O to end",
    WaitKind.FILESYSTEM: "a file system",
}


def _why(look: Look, kind: WaitKind, operation: str | None, remote: str | None, lock: str | None) -> str:
    """One plain clause."""
    thread, kernel = look.thread, look.kernel
    if kind is WaitKind.STOPPED:
        return (
            "is frozen by its cgroup"
            if look.sample.frozen and thread.state != "T"
            else "is stopped by a signal"
        )
    if kernel is not None and kernel.strong and kind is kernel.kind:
        where = f" at {kernel.symbol}" if kernel.symbol else ""
        return f"sleeps in the kernel{where} (state {thread.state})"
    if kind in SAYS:
        return SAYS[kind]
    if kind is WaitKind.ENTERING:
        return f"is on the way into {operation or 'a collective'}"
    if kind in OPERATIONS:
        return f"has joined {operation or 'an operation'} and waits for it to end"
    if kind is WaitKind.LOCK:
        return f"waits for {lock or 'a lock'}"
    if kind is WaitKind.CHILD:
        child = kernel.child if kernel is not None else None
        return f"waits for child {child}" if child else "waits for a child process"
    if kind is WaitKind.UNKNOWN:
        return _unknown(look)
    target = f" on {remote}" if remote else ""
    if look.reading is not None and look.reading.kind is not None and look.thread.stack:
        return f"waits in {look.thread.stack[look.reading.index].function}{target}"
    call = f" in {kernel.call}" if kernel is not None and kernel.call else ""
    if kind is WaitKind.POLL and kernel is not None and not target and kernel.call in (*DATA_CALLS, *OPENS):
        return f"waits in {kernel.call}, on what is not known"
    if kind is WaitKind.SIGNALLED and kernel is not None and kernel.released_by is ReleasedBy.REMOTE:
        return f"waits for a signal from outside{call}"
    return f"waits for {FOR.get(kind, kind.value.replace('-', ' '))}{target}{call}"


def _unknown(look: Look) -> str:
    if look.leaf is None and look.thread.native:
        call = look.kernel.call if look.kernel is not None else None
        return f"waits in {call or look.thread.native[0].function}, without a Python stack to tell on what"
    if look.leaf is None:
        return "no stack of it was captured"
    names = [name for name in (look.thread.wchan, look.kernel.call if look.kernel else None) if name]
    where = f" in {names[0]}" if names else ""
    if text.FILE_CALL.search(look.leaf_text or ""):
        return f"is in a file call{where}"
    return f"waits{where} below a function that the dictionary does not know"
