"""Processes for the tests of the stack collectors, and a py-spy that tells how it was called."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangscope.collectors import py_spy
from hangscope.collectors.interface import Context, Result

from . import victims

SLEEPER_AND_SPINNER = """
import sys, threading, time
def sleeper():
    time.sleep(600)
def spinner():
    while True:
        sum(range(100))
threading.Thread(target=sleeper, name="sleeper", daemon=True).start()
if "spin" in sys.argv:
    threading.Thread(target=spinner, name="spinner", daemon=True).start()
print("ready", flush=True)
threading.Event().wait(600)
"""

REAL_PY_SPY = py_spy.find() or "py-spy"


class Table:
    """Interns stacks as the shard writer does."""

    def __init__(self) -> None:
        self.stacks: list[list[dict[str, Any]]] = []

    def stack(self, frames: list[dict[str, Any]]) -> int:
        if frames not in self.stacks:
            self.stacks.append(frames)
        return self.stacks.index(frames)


def program(path: Path, script: str) -> str:
    """An executable shell script."""
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return str(path)


class TracedPySpy:
    """The real py-spy behind a script that notes its arguments."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "py-spy.calls"
        self.path = program(directory / "py-spy", f'echo "$@" >> "{self.log}"\nexec "{REAL_PY_SPY}" "$@"\n')

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def blocking_calls(self) -> list[str]:
        return [call for call in self.calls() if "--nonblocking" not in call]


def context(*pids: int, **kwargs: Any) -> Context:
    kwargs.setdefault("intern", Table())
    return victims.context(*pids, **kwargs)


def body(result: Result, name: str = "stacks.json") -> dict[str, Any]:
    value: dict[str, Any] = json.loads(dict(result.artifacts)[name])
    return value


def functions(ctx: Context, result: Result, name: str = "stacks.json") -> dict[str, list[str]]:
    """Function names, innermost first, by thread name."""
    return {
        thread["thread_name"]: [
            frame["name"].rsplit(".", 1)[-1] for frame in ctx.intern.stacks[thread["stack"]]
        ]
        for thread in body(result, name)["threads"]
    }


@contextlib.contextmanager
def traced(pid: int, tracer: str = "") -> Iterator[int]:
    """Lets another process trace ``pid`` by PTRACE_SEIZE, as a debugger does; yields the tracer's pid."""
    code = """
import ctypes, os, sys
PTRACE_SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
for tid in os.listdir(f"/proc/{sys.argv[1]}/task"):
    if libc.ptrace(PTRACE_SEIZE, int(tid), None, None) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
print("ready", flush=True)
sys.stdin.read()
"""
    with victims.victim(code, str(pid)) as tracing:
        yield tracing


FUSE_SERVER = """
import ctypes, os, struct, sys
fd = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"hangscope-test", sys.argv[1].encode(), b"fuse", 0, options) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<QQQQQQIIIIIIIIII", node, 65536, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
print("ready", flush=True)
while True:
    request = os.read(fd, 1 << 17)
    length, kind, unique, node = struct.unpack_from("<IIQQ", request)
    answer = b""
    if kind == 26:
        answer = struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 10, 65536, 1, 16, 0, 0)
    elif kind == 1:
        answer = struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attributes(2)
    elif kind == 3:
        answer = struct.pack("<QII", 3600, 0, 0) + attributes(node)
    elif kind in (14, 27):
        answer = struct.pack("<QII", 1, 0, 0)
    elif kind == 17:
        answer = struct.pack("<QQQQQIIII24x", 1000, 500, 500, 100, 50, 4096, 255, 4096, 0)
    elif kind in (15, 2, 36, 42):
        continue  # reads, and what needs no answer
    failure = 0 if answer or kind in (18, 25, 29, 34) else -38  # ENOSYS: the kernel does without it
    os.write(fd, struct.pack("<IiQ", 16 + len(answer), failure, unique) + answer)
"""
"""A file system of one file whose reads are never answered. Its death ends every wait for it."""

LOCKS_ITS_MEMORY_MAP = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
slow = os.open(sys.argv[1], os.O_RDONLY)
address = libc.mmap(None, 65536, 1, 1, slow, 0)
memory = os.open("/proc/self/mem", os.O_RDONLY)
def hold():  # reading one's own mem holds the lock for the whole fault
    os.pread(memory, 1, address)
def want():  # and a writer that waits for it keeps all later readers out
    time.sleep(0.3)
    libc.mmap(None, 1 << 20, 3, 0x22, -1, 0)
threading.Thread(target=want, daemon=True).start()
os.write(1, b"ready\\n")
hold()
"""


@contextlib.contextmanager
def locked_memory_map(directory: Path) -> Iterator[int]:
    """A process whose mmap_lock is contended for as long as the block runs. Needs root and /dev/fuse."""
    mount_point = directory / "mount"
    mount_point.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-u", "-c", FUSE_SERVER, str(mount_point)], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        if not server.stdout.readline():
            pytest.skip("no FUSE file system can be mounted here")
        with victims.victim(LOCKS_ITS_MEMORY_MAP, str(mount_point / "slow")) as pid:
            try:
                victims.wait_until(lambda: any(victims.state(pid, tid) == "D" for tid in tasks(pid)))
                yield pid
            finally:
                server.kill()
    finally:
        server.kill()
        server.wait(10)
        if server.stdout is not None:
            server.stdout.close()
        subprocess.run(["umount", "-l", str(mount_point)], check=False)


def tasks(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
