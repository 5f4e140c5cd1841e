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
    out, err, refusal = _Tail(cap), _Tail(1 << 16), _Tail(1 << 12)
    gone, code, in_time = False, None, False
    try:
        tails = {command.out: out, command.err: err, command.refusal: refusal}
        in_time = _drain(command.pid, tails, deadline) and _exits(command.pid, deadline)
    finally:
        for descriptor in (command.out, command.err, command.refusal):
            os.close(descriptor)
        gone, code = _end(command.pid, in_time, grace)
        guarded.running.remove(command.pid)
    status = _status(in_time, gone, code, refusal.value())
    stderr = refusal.value() if status == "missing" else err.value()
    code = None if status == "missing" else code
    return Completed(status, code, out.value(), stderr, out.truncated, time.monotonic() - start)


def _status(in_time: bool, gone: bool, code: Optional[int], refusal: bytes) -> str:
    if not gone:
        return "abandoned"
    if not in_time:
        return "timeout"
    if refusal:
        return "missing"
    return "ok" if code == 0 else "failed"


class _Command(NamedTuple):
    """A started child and the ends of its pipes that this process reads."""

    pid: int
    out: int
    err: int
    refusal: int
    """Closed by a successful exec; else it brings the reason."""


def _start(argv: List[str], env: Optional[Dict[str, str]]) -> _Command:
    """Forks and lets the child load the program. Raises OSError when there is no pipe or process."""
    ends: List[int] = []
    try:
        for _ in range(3):
            ends += os.pipe()
        pid = os.fork()
    except OSError:
        for descriptor in ends:
            os.close(descriptor)
        raise
    if pid == 0:
        _exec(argv, env, ends[1], ends[3], ends[5])
    for descriptor in (ends[1], ends[3], ends[5]):
        os.close(descriptor)
    return _Command(pid, ends[0], ends[2], ends[4])


def _exec(argv: List[str], env: Optional[Dict[str, str]], out: int, err: int, refusal: int) -> None:
    """In the child: a session of its own, null input, default signals, no other file; never returns."""
    try:
        try:
            os.setsid()
            os.dup2(out, 1)
            os.dup2(err, 2)
            guarded.keep_only(1, 2, refusal)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(argv[0], argv, os.environ if env is None else env)
        except OSError as error:
            os.write(refusal, f"{argv[0]}: {error.strerror or error}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


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
