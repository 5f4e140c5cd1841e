"""``stacks/pid-N/stacks.json`` (and ``native/pid-N/native.json``): py-spy's threads, frames interned.

>>> sample = b'''{"pid": 41, "mode": "nonblocking", "tries": 1, "pause_ns": null, "threads": [
...   {"pid": 41, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 41, "active": false,
...    "owns_gil": false, "process_info": null, "stack": 0, "torn": false}], "after": {"41": "S"}}'''
>>> table = read(sample, "shard!stacks.json")
>>> table.threads[0].thread_name, table.threads[0].stack
('MainThread', 0)
"""

from __future__ import annotations

import msgspec

from .raw import decode


class StackThread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a dump; ``stack`` is an index into the shard's stack table."""

    os_thread_id: int | None = None
    thread_id: int | None = None
    thread_name: str | None = None
    active: bool | None = None
    owns_gil: bool = False
    stack: int | None = None
    torn: bool = False


class StackTable(msgspec.Struct, frozen=True, kw_only=True):
    """One dump of one process. ``pause_ns``: how long the target was stopped for it, nanoseconds."""

    pid: int
    mode: str = "nonblocking"
    threads: tuple[StackThread, ...]
    pause_ns: int | None = None
    program_counters: dict[str, str] = {}
    """``module+0xoffset (symbol)`` by thread id, of blocked threads without Python frames."""
    native: bool = False
    path: str = ""


def read(data: bytes, path: str) -> StackTable:
    """The dump of Python stacks."""
    return msgspec.structs.replace(decode(data, StackTable, path), path=path)


def read_native(data: bytes, path: str) -> StackTable:
    """A dump in which C and C++ frames stand between the Python ones."""
    return msgspec.structs.replace(decode(data, StackTable, path), path=path, native=True)
