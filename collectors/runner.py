"""The one runner for external commands: argument list, own process group, deadline, byte caps.

TERM, then KILL; both pipes drained together; of too much output the tail is kept. The result says what
happened. A command that survives SIGKILL is abandoned and listed in ``guarded.abandoned``.
"""

import contextlib
import os
import selectors
import signal
import time
from typing import Dict, List, NamedTuple, Optional, Sequence

from . import guarded

DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LINGER = 0.1
"""Seconds that the pipes of a command that has ended may stay silent before they are left."""


class Completed(NamedTuple):
    """``status``: ok (exit 0), failed (any other exit), timeout, missing (no such program), abandoned.

    ``returncode`` is negative for a signal and None when the command never ended.
    """

    status: str
    returncode: Optional[int]
    stdout: bytes
    stderr: bytes
    truncated: bool
    seconds: float

    def complaint(self) -> str:
        """The first useful line of what went wrong, for a cell's reason."""
        if self.status == "timeout":
            return f"killed after {self.seconds:.1f} s"
        if self.status == "abandoned":
            return f"no answer in {self.seconds:.1f} s, and it cannot be killed"
        if self.status == "missing":
            return self.stderr.decode("utf-8", "replace")
        lines = self.stderr.decode("utf-8", "replace").strip().splitlines()
        return "exit {}: {}".format(self.returncode, lines[0] if lines else "no message")


class _Tail:
    """Collects bytes and keeps the last ``cap`` of them."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.chunks: List[bytes] = []
        self.size = 0
        self.truncated = False

    def add(self, chunk: bytes) -> None:
        self.chunks.append(chunk)
        self.size += len(chunk)
        while self.size - len(self.chunks[0]) >= self.cap:
            self.size -= len(self.chunks.pop(0))
            self.truncated = True

    def value(self) -> bytes:
        data = b"".join(self.chunks)
        if len(data) > self.cap:
            self.truncated = True
            data = data[-self.cap :]
        return data


def run(
    argv: Sequence[str],
    timeout: float,
    cap: int = 32 << 20,
    env: Optional[Dict[str, str]] = None,
    grace: float = 0.5,
) -> Completed:
    """Runs a command to its end, or to ``timeout`` seconds. Never raises for what the command does.

    Not ``subprocess``: that waits without a deadline until the program has been loaded, and a program
    on a dead mount never is.
    """
    start = time.monotonic()
    deadline = start + timeout
    try:
        command = _start(list(argv), env)
    except OSError as error:
        return Completed("missing", None, b"", f"{argv[0]}: {error.strerror or error}".encode(), False, 0.0)
    guarded.running.append(command.pid)
    out, err = _Tail(cap), _Tail(1 << 16)
    gone, code, in_time = False, None, False
    try:
        tails = {command.out: out, command.err: err}
        in_time = _drain(command.pid, tails, deadline) and _exits(command.pid, deadline)
    finally:
        for descriptor in (command.out, command.err):
            os.close(descriptor)
        gone, code = _end(command.pid, in_time, grace)
        guarded.running.remove(command.pid)
    seconds = time.monotonic() - start
    refusal = _refusal(err.value())
    if in_time and gone and refusal is not None:
        return Completed("missing", None, b"", b"%s: %s" % (os.fsencode(argv[0]), refusal), False, seconds)
    status = _status(in_time, gone, code)
    return Completed(status, code, out.value(), err.value(), out.truncated, seconds)


def _refusal(stderr: bytes) -> Optional[bytes]:
    """Why the shell could not load the program; None when it did."""
    said = stderr.rstrip().rsplit(b"\n", 2)
    if said[-1].decode("ascii", "replace") != NOT_STARTED:
        return None
    return said[-2].rsplit(b": ", 1)[-1] if len(said) > 1 else b"it could not be loaded"


def _status(in_time: bool, gone: bool, code: Optional[int]) -> str:
    if not gone:
        return "abandoned"
    if not in_time:
        return "timeout"
    return "ok" if code == 0 else "failed"


class _Command(NamedTuple):
    """A started child and the ends of its pipes that this process reads."""

    pid: int
    out: int
    err: int


SHELL = "/bin/sh"
NOT_STARTED = "hangscope: the shell could not start it"
LOAD = f"""trap 'echo "{NOT_STARTED}" >&2' EXIT; exec "$0" "$@\""""
"""What the shell runs: a successful exec drops the trap with the shell."""


def _start(argv: List[str], env: Optional[Dict[str, str]]) -> _Command:
    """Starts a shell, which loads the program, in a group of its own, with null input, default signals and no
    other file. Raises OSError when there is no pipe or process.

    A spawn waits until what it starts has been loaded: for the shell that is at once, for a program on a dead
    mount it would be for ever. A fork does not wait, but copies the page tables of the whole agent: several
    milliseconds, for every process of the job. Where there is no shell, the program is spawned directly.
    """
    ends: List[int] = []
    try:
        for _ in range(2):
            ends += os.pipe()
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, ends[1], 1),
            (os.POSIX_SPAWN_DUP2, ends[3], 2),
            *((os.POSIX_SPAWN_CLOSE, number) for number in _inherited()),
        ]
        through = [SHELL, "-c", LOAD] if os.path.exists(SHELL) else []
        command = [*through, *argv]
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ if env is None else env,
            file_actions=files,
            setpgroup=0,
            setsigmask=(),
            setsigdef=DEFAULT_SIGNALS,
        )
    except OSError:
        for descriptor in ends:
            os.close(descriptor)
        raise
    os.close(ends[1])
    os.close(ends[3])
    return _Command(pid, ends[0], ends[2])


def _inherited() -> List[int]:
    """Files beyond 0 to 2 that a started program would get: those that this process was started with."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _drain(pid: int, tails: Dict[int, _Tail], deadline: float) -> bool:
    """Reads the pipes until all are closed, or the command has ended and they are empty (a grandchild may
    keep them open); False at the deadline."""
    with selectors.DefaultSelector() as selector:
        for descriptor, tail in tails.items():
            selector.register(descriptor, selectors.EVENT_READ, tail)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            ended = _exited(pid)
            ready = selector.select(min(left, LINGER))
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if chunk:
                    key.data.add(chunk)
                else:
                    selector.unregister(key.fd)
            if ended and not ready:
                return True
    return True


def _exited(pid: int) -> bool:
    """Whether the child has ended; it stays unreaped, so that its process group's number stays taken."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _exits(pid: int, deadline: float) -> bool:
    """Waits for the child to end; False at the deadline."""
    pause = 0.0005
    while not _exited(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    return True


def _end(pid: int, ended: bool, grace: float) -> "tuple[bool, Optional[int]]":
    """Ends what is left of the command's group, TERM first unless it has ended by itself, and reaps it.

    Returns (True, return code), or (False, None) for a child that is still there: it is now abandoned.
    """
    if not ended:
        _signal_group(pid, signal.SIGTERM)
        _exits(pid, time.monotonic() + grace)
    _signal_group(pid, signal.SIGKILL)
    if not _exits(pid, time.monotonic() + grace):
        guarded.abandoned.append(pid)
        return False, None
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return True, None
    return True, -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _signal_group(pid: int, number: int) -> None:
    """Signals the command's group, and the command itself, which may not have made its group yet."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)
