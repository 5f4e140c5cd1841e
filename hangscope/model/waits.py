"""What a thread waits for, as the frame dictionary names it."""

from __future__ import annotations

from enum import Enum

import msgspec

from .facts import Frame, Ref


class WaitKind(str, Enum):
    """The kinds that ``analyzers/frames.toml`` may use."""

    COLLECTIVE = "collective"  # joined, waits for the members
    ENTERING = "entering"  # on the line that issues the operation: neither joined nor innocent
    SEND = "send"
    RECV = "recv"
    BARRIER = "barrier"
    INIT = "init"  # process-group creation, waits for every member
    RENDEZVOUS = "rendezvous"
    STORE = "store"  # a key of the TCP store that some rank must set
    DEVICE = "device"  # GPU stream, event, .item(), cudaFree, full launch queue
    AUTOGRAD = "autograd"  # waits for autograd threads or the DDP reducer
    LOCK = "lock"
    SIGNALLED = "signalled"  # event, semaphore, condition: released by some thread of the process
    QUEUE = "queue"
    FUTURE = "future"
    JOIN_THREAD = "join-thread"
    CHILD = "child"  # a child process: join, waitpid, its queue or pipe
    GIL = "gil"
    FILE_LOCK = "file-lock"
    PIPE = "pipe"
    FIFO = "fifo"
    SOCKET = "socket"
    POLL = "poll"
    HOST_MEMORY = "host-memory"
    FILESYSTEM = "filesystem"
    DISK = "disk"  # asynchronous or block I/O
    DRIVER = "driver"  # in a device driver's ioctl
    KERNEL = "kernel"  # uninterruptible for another reason
    SLEEP = "sleep"
    RUNNING = "running"  # on a CPU
    COMPILE = "compile"
    STOPPED = "stopped"
    TRACED = "traced"
    DEAD = "dead"
    SERVICE = "service"  # an idle server loop: its normal wait
    TRANSPORT_IDLE = "transport-idle"  # gloo_tcp_loop, NCCL proxy in their normal poll
    RUNTIME = "runtime"  # a runtime thread in its normal wait: BLAS pool, watchdog, tqdm monitor
    UNKNOWN = "unknown"


class ReleasedBy(str, Enum):
    """Who can end the wait."""

    MEMBERS = "members"
    PEER = "peer"
    THREAD = "thread"  # a named thread pattern, see ``Wait.thread_pattern``
    CHILDREN = "children"
    IN_PROCESS = "in-process"  # some thread of the process, not known which
    KERNEL = "kernel"
    REMOTE = "remote"
    ITSELF = "itself"  # running or sleeping: ends by itself
    NOBODY = "nobody"


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What one thread waits for, decided from its newest stack, its kernel wait and its state.

    ``frame`` is the frame that decided; ``caller`` the innermost frame that belongs to the user or to
    a framework above the wait (what "same call chain" compares); ``chain`` the whole call chain above
    the deciding frame, innermost first, wrappers removed.
    """

    kind: WaitKind
    released_by: ReleasedBy
    operation: str | None = None
    """For collectives and p2p: all_reduce, send, …"""
    framework: str | None = None
    phase: str | None = None
    thread_pattern: str | None = None
    frame: Frame | None = None
    caller: Frame | None = None
    chain: tuple[Frame, ...] = ()
    peer: int | None = None
    """p2p: the global rank at the other end, when the kept integers tell it."""
    peer_pid: int | None = None
    """socket or pipe: the captured process at the other end. child: the pid waited for."""
    peer_pids: tuple[int, ...] = ()
    """pipe: all captured processes at the other end, when there are several."""
    remote: str | None = None
    """socket: ip:port at the other end; pipe and fifo: its path."""
    address: int | None = None
    """futex address."""
    lock: str | None = None
    """Source text of the lock expression being waited for."""
    held: tuple[str, ...] = ()
    """Source texts of the locks that the thread holds by enclosing ``with`` statements."""
    resolved: bool = True
    """False when no row of the dictionary knew the innermost frames."""
    why: str = ""
    """One clause for people: ``in work.wait() of all_gather``."""
    ref: Ref | None = None
