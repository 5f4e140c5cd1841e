"""What the kernel says about a thread: state, wchan, kernel stack and system call → a kind of wait."""

from __future__ import annotations

import msgspec

from hangscope.model.facts import OpenFile, ProcessSample, Socket, ThreadSample
from hangscope.model.waits import ReleasedBy, WaitKind

from ..dictionary import DEFAULT_RELEASE, lookup_kernel
from .native_call import native_call

FILE_CALLS = frozenset(
    {
        "open", "openat", "openat2", "stat", "lstat", "fstat", "newfstatat", "statx", "statfs",
        "fstatfs", "fsync", "fdatasync", "truncate", "ftruncate", "getdents", "getdents64", "rename",
        "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "sync", "syncfs",
        "sync_file_range", "fallocate", "copy_file_range", "msync",
    }
)  # fmt: skip
DATA_CALLS = frozenset(
    {
        "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "sendfile",
        "splice",
    }
)  # fmt: skip
SOCKET_CALLS = frozenset(
    {
        "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg", "connect", "accept",
        "accept4",
    }
)  # fmt: skip
ON_A_FILE = frozenset(
    {
        "ioctl", "flock", "fcntl", "fsync", "fdatasync", "ftruncate", "fallocate", "getdents",
        "getdents64", "fstat",
    }
)  # fmt: skip
FIRST_ARGUMENT_IS_A_FILE = DATA_CALLS | SOCKET_CALLS | ON_A_FILE

BY_CALL: dict[str, WaitKind] = {
    **dict.fromkeys(("futex", "futex_wait", "futex_waitv"), WaitKind.SIGNALLED),
    **dict.fromkeys(("poll", "ppoll", "select", "pselect6"), WaitKind.POLL),
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_pwait2"), WaitKind.POLL),
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), WaitKind.SLEEP),
    **dict.fromkeys(("wait4", "waitid"), WaitKind.CHILD),
    **dict.fromkeys(("io_getevents", "io_pgetevents", "io_uring_enter"), WaitKind.DISK),
    **dict.fromkeys(("pause", "rt_sigsuspend", "rt_sigtimedwait"), WaitKind.SIGNALLED),
    **dict.fromkeys(("semop", "semtimedop", "msgrcv", "msgsnd", "mq_timedreceive"), WaitKind.SIGNALLED),
    "flock": WaitKind.FILE_LOCK,
    "fcntl": WaitKind.FILE_LOCK,
    **dict.fromkeys(SOCKET_CALLS, WaitKind.SOCKET),
}
OPENS = ("open", "openat", "openat2")
TERMINALS = ("/dev/pts/", "/dev/tty")
FUTEX = frozenset(("futex", "futex_wait", "futex_waitv"))


class KernelWait(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's side of a wait. ``strong``: whatever the Python stack says, this is what holds it."""

    kind: WaitKind
    released_by: ReleasedBy
    strong: bool = False
    phase: str | None = None
    symbol: str | None = None
    """The wchan or kernel function that decided; else the system call."""
    call: str | None = None
    futex: bool = False
    address: int | None = None
    file: OpenFile | None = None
    socket: Socket | None = None
    child: int | None = None
    """The pid that wait4 was asked for."""


def kernel_wait(sample: ProcessSample, thread: ThreadSample) -> KernelWait | None:
    """What the thread sleeps on in the kernel; None when it runs, or nothing is known of its sleep.

    States that are no sleep (Z, X, T, t) are the caller's business.
    """
    if thread.state == "R":
        return None
    call, args = _call(thread)
    file, socket = _object(sample, call, args)
    symbols = tuple(([thread.wchan] if thread.wchan else []) + list(thread.kernel_stack or ()))
    found = lookup_kernel(symbols) if symbols else None
    if thread.state == "D":
        kind, phase, symbol = _uninterruptible(thread, call, file)
        released = ReleasedBy.KERNEL
        return KernelWait(
            kind=kind,
            released_by=released,
            strong=True,
            phase=phase,
            symbol=symbol,
            call=call,
            file=file,
            socket=socket,
        )
    if found is None or found[0].vague:
        return _from_call(call, args, file, socket)
    row, symbol = found
    kind, released_by = row.kind, row.released_by or DEFAULT_RELEASE.get(row.kind, ReleasedBy.KERNEL)
    if kind is WaitKind.PIPE and file is not None and file.target.startswith("/"):
        terminal = file.target.startswith(TERMINALS)
        kind = WaitKind.PIPE if terminal else WaitKind.FIFO
        released_by = ReleasedBy.REMOTE
    if kind is WaitKind.SOCKET and file is not None and file.target.startswith(TERMINALS):
        kind, released_by = WaitKind.PIPE, ReleasedBy.REMOTE  # wait_woken: terminals and TCP sleep there
    futex = row.phase == "futex"
    return KernelWait(
        kind=kind,
        released_by=released_by,
        strong=row.strong,
        phase=row.phase,
        symbol=symbol,
        call=call,
        futex=futex,
        address=args[0] if futex and call in FUTEX and args else None,
        file=file,
        socket=socket,
        child=_child(call, args),
    )


def _call(thread: ThreadSample) -> tuple[str | None, tuple[int, ...]]:
    """Name and arguments of the system call; ``page fault`` for a sleep outside any. Of a thread of which the
    kernel's side is not known, the call that its native stack ends in."""
    call = thread.syscall
    asleep = thread.state == "?" and thread.active is not True and not thread.wchan
    if call is None and asleep and thread.native:
        return native_call(thread.native), ()
    if call is None or call.number is None:
        return None, ()
    return ("page fault", ()) if call.number < 0 else (call.name, call.args)


def _object(
    sample: ProcessSample, call: str | None, args: tuple[int, ...]
) -> tuple[OpenFile | None, Socket | None]:
    """The open file, and the socket, that the call's first argument names."""
    if call not in FIRST_ARGUMENT_IS_A_FILE or not args:
        return None, None
    number = args[0] & 0xFFFFFFFF
    file = next((item for item in sample.files if item.fd == number), None)
    socket = next((item for item in sample.sockets if item.fd == number), None)
    return file, socket


def _child(call: str | None, args: tuple[int, ...]) -> int | None:
    """The pid in wait4's first, or waitid's second argument (idtype P_PID = 1)."""
    if call == "wait4" and args and 0 < args[0] < 1 << 22:
        return args[0]
    if call == "waitid" and len(args) > 1 and args[0] == 1:
        return args[1]
    return None


def _uninterruptible(
    thread: ThreadSample, call: str | None, file: OpenFile | None
) -> tuple[WaitKind, str | None, str | None]:
    """(kind, phase, symbol) of a thread in state D, which always sleeps in the kernel itself."""
    symbols = tuple(([thread.wchan] if thread.wchan else []) + list(thread.kernel_stack or ()))
    found = lookup_kernel(symbols) if symbols else None
    device = file is not None and file.target.startswith("/dev/")
    if found is not None and found[0].strong and found[0].kind is not WaitKind.KERNEL:
        return found[0].kind, found[0].phase, found[1]
    symbol = found[1] if found is not None else thread.wchan
    if call == "ioctl" and device and file is not None and file.target.startswith("/dev/nvidia"):
        return WaitKind.DRIVER, "GPU driver", symbol or call
    writes = call in DATA_CALLS and file is not None and file.target.startswith("/") and not device
    if call in FILE_CALLS or writes:
        return WaitKind.FILESYSTEM, "file system", symbol or call
    phase = found[0].phase if found is not None and found[0].strong else None
    return WaitKind.KERNEL, phase, symbol or call


def _from_call(
    call: str | None, args: tuple[int, ...], file: OpenFile | None, socket: Socket | None
) -> KernelWait | None:
    """From the system call alone, where wchan and stack are hidden (no ptrace permission hides both)."""
    kind = BY_CALL.get(call or "")
    released = DEFAULT_RELEASE.get(kind) if kind is not None else None
    if kind is None and call in DATA_CALLS and file is not None:
        kind, released = _of_target(file.target)
    if kind is None and socket is not None:
        kind, released = WaitKind.SOCKET, ReleasedBy.REMOTE
    if kind is None and file is None and not args and call in (*DATA_CALLS, *OPENS):
        kind, released = WaitKind.POLL, ReleasedBy.REMOTE  # on what is not known: a file, a pipe, a FIFO
    if kind is None:
        return None
    futex = call in FUTEX
    return KernelWait(
        kind=kind,
        released_by=released or ReleasedBy.REMOTE,
        phase="futex" if futex else None,
        symbol=call,
        call=call,
        futex=futex,
        address=args[0] if futex and args else None,
        file=file,
        socket=socket,
        child=_child(call, args),
    )


def _of_target(target: str) -> tuple[WaitKind | None, ReleasedBy | None]:
    """What reading from or writing to such a file waits for."""
    if target.startswith("pipe:["):
        return WaitKind.PIPE, ReleasedBy.PEER
    if target.startswith("socket:["):
        return WaitKind.SOCKET, ReleasedBy.REMOTE
    if target.startswith("anon_inode:"):
        return WaitKind.SIGNALLED, ReleasedBy.REMOTE
    if target.startswith(TERMINALS):
        return WaitKind.PIPE, ReleasedBy.REMOTE
    return (WaitKind.FILESYSTEM, ReleasedBy.KERNEL) if target.startswith("/") else (None, None)
