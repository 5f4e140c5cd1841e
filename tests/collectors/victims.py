"""Real processes in real trouble, for the tests of the collectors. Each ends with its block."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hangscope.collectors import procfs
from hangscope.collectors.interface import Context, Target

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

NAME_THREAD = """
import ctypes
def name_thread(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
"""


@contextlib.contextmanager
def victim(
    code: str, *arguments: str, prepare: Callable[[], None] | None = None, **kwargs: object
) -> Iterator[int]:
    """Runs Python code that prints one line when it has reached its trouble; yields its pid.

    ``prepare`` runs in the child before the exec.
    """
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=prepare,
        **kwargs,  # type: ignore[call-overload]  # cwd and the like
    )
    try:
        line = process.stdout.readline()
        assert line, "the victim ended before it was ready"
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


@contextlib.contextmanager
def blocked_in_kernel(directory: Path) -> Iterator[int]:
    """A process whose thread ``ds-offload`` is in state D: its vfork child opens a FIFO without a writer."""
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    code = (
        NAME_THREAD
        + """
import os, sys, threading
def offload():
    name_thread("ds-offload")
    opening = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[opening])
print("ready")  # before: CPython holds the GIL in posix_spawn
thread = threading.Thread(target=offload)
thread.start()
thread.join()
"""
    )
    with victim(code, str(fifo)) as pid:
        try:
            wait_until(lambda: any(state(pid, tid) == "D" for tid in procfs.tasks(pid)))
            yield pid
        finally:
            descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # lets the child go on and end
            wait_until(lambda: all(state(pid, tid) != "D" for tid in procfs.tasks(pid)))
            os.close(descriptor)


@contextlib.contextmanager
def exited_leader(path: Path, opening: str = "") -> Iterator[int]:
    """A process whose main thread has exited (Z) while another, which holds ``path`` open, lives on.

    ``opening`` is code that it runs first.
    """
    code = (
        opening
        + """
import ctypes, os, platform, sys, threading, time
def stay():
    held = open(sys.argv[1], "w")
    held.write("x" * 7); held.flush()
    print("ready")
    time.sleep(60)
threading.Thread(target=stay).start()
number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
ctypes.CDLL(None).syscall(number, 0)  # exit(2) of this thread alone
"""
    )
    with victim(code, str(path)) as pid:
        wait_until(lambda: [state(pid, tid) for tid in procfs.tasks(pid)] == ["Z", "S"])
        yield pid


def settle(pid: int, threads: int) -> None:
    """Waits until a process has that many threads and none runs."""
    wait_until(lambda: [state(pid, tid) for tid in procfs.tasks(pid)] == ["S"] * threads)


def state(pid: int, tid: int | None = None) -> str | None:
    line = procfs.stat_fields(pid, tid=tid)
    return None if line is None else line.state


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the expected state was not reached"
        time.sleep(0.005)


def target(pid: int) -> Target:
    return Target(pid=pid, start_ticks=procfs.start_ticks(pid) or 0, role="rank", rank=0)


def context(*pids: int, **kwargs: object) -> Context:
    return Context([target(pid) for pid in pids], **kwargs)  # type: ignore[arg-type]  # as Context takes them


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
