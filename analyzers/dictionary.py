"""The frame dictionary: ``frames.toml`` loaded once, and each distinct frame or symbol looked up once."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Literal

import msgspec

from hangscope.model.facts import Frame
from hangscope.model.waits import ReleasedBy, WaitKind

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

PATH = Path(__file__).with_name("frames.toml")

ANY_CLASS_HAS = frozenset(
    {"__init__", "__call__", "__next__", "__enter__", "__exit__", "forward", "run", "step"}
)
"""Method names that say nothing without their class: never matched under another class's name."""

DEFAULT_RELEASE = {
    WaitKind.COLLECTIVE: ReleasedBy.MEMBERS,
    WaitKind.ENTERING: ReleasedBy.MEMBERS,
    WaitKind.BARRIER: ReleasedBy.MEMBERS,
    WaitKind.INIT: ReleasedBy.MEMBERS,
    WaitKind.RENDEZVOUS: ReleasedBy.MEMBERS,
    WaitKind.STORE: ReleasedBy.MEMBERS,
    WaitKind.SEND: ReleasedBy.PEER,
    WaitKind.RECV: ReleasedBy.PEER,
    WaitKind.PIPE: ReleasedBy.PEER,
    WaitKind.AUTOGRAD: ReleasedBy.MEMBERS,
    WaitKind.DEVICE: ReleasedBy.MEMBERS,
    WaitKind.LOCK: ReleasedBy.IN_PROCESS,
    WaitKind.SIGNALLED: ReleasedBy.IN_PROCESS,
    WaitKind.QUEUE: ReleasedBy.IN_PROCESS,
    WaitKind.FUTURE: ReleasedBy.IN_PROCESS,
    WaitKind.GIL: ReleasedBy.IN_PROCESS,
    WaitKind.JOIN_THREAD: ReleasedBy.THREAD,
    WaitKind.CHILD: ReleasedBy.CHILDREN,
    WaitKind.FILE_LOCK: ReleasedBy.REMOTE,
    WaitKind.FIFO: ReleasedBy.REMOTE,
    WaitKind.SOCKET: ReleasedBy.REMOTE,
    WaitKind.POLL: ReleasedBy.REMOTE,
    WaitKind.SERVICE: ReleasedBy.REMOTE,
    WaitKind.TRANSPORT_IDLE: ReleasedBy.PEER,
    WaitKind.RUNTIME: ReleasedBy.IN_PROCESS,
    WaitKind.HOST_MEMORY: ReleasedBy.KERNEL,
    WaitKind.FILESYSTEM: ReleasedBy.KERNEL,
    WaitKind.DISK: ReleasedBy.KERNEL,
    WaitKind.DRIVER: ReleasedBy.KERNEL,
    WaitKind.KERNEL: ReleasedBy.KERNEL,
    WaitKind.STOPPED: ReleasedBy.REMOTE,
    WaitKind.TRACED: ReleasedBy.REMOTE,
    WaitKind.SLEEP: ReleasedBy.ITSELF,
    WaitKind.RUNNING: ReleasedBy.ITSELF,
    WaitKind.COMPILE: ReleasedBy.ITSELF,
}
"""Who ends a wait of that kind, where the row does not say. A wait that is missing here: nobody known."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row about Python functions; see the head of ``frames.toml`` for the meaning of the fields."""

    framework: str
    file: str
    functions: tuple[str, ...]
    role: Literal["wait", "outer", "place", "wrapper"] = "place"
    kind: WaitKind = WaitKind.RUNNING
    phase: str | None = None
    operation: str | None = None
    joined: Literal["source"] | None = None
    released_by: ReleasedBy | None = None
    thread_pattern: str | None = None
    stdlib: bool = False


class NativeRow(msgspec.Struct, frozen=True, kw_only=True):
    kind: WaitKind
    framework: str
    functions: tuple[str, ...]
    operation: str | None = None
    released_by: ReleasedBy | None = None


class ThreadRow(msgspec.Struct, frozen=True, kw_only=True):
    kind: WaitKind
    framework: str
    names: tuple[str, ...]
    phase: str | None = None


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    kind: WaitKind
    symbols: tuple[str, ...]
    modules: tuple[str, ...] = ()
    phase: str | None = None
    released_by: ReleasedBy | None = None
    strong: bool = False
    deep: bool = False
    vague: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    python: tuple[Row, ...]
    native: tuple[NativeRow, ...]
    thread: tuple[ThreadRow, ...]
    kernel: tuple[KernelRow, ...]


class Match(msgspec.Struct, frozen=True):
    """What the dictionary says about one Python function."""

    row: Row
    operation: str | None


@functools.cache
def tables() -> _File:
    """The whole dictionary, read and checked once a process."""
    return msgspec.convert(tomllib.loads(PATH.read_text(encoding="utf-8")), _File)


@functools.cache
def _by_name() -> dict[str, list[tuple[str, Row]]]:
    """(qualified name, row) of every listed function, by the last part of its name."""
    found: dict[str, list[tuple[str, Row]]] = {}
    for row in tables().python:
        for name in row.functions:
            found.setdefault(last_part(name), []).append((name, row))
    return found


def last_part(qualname: str) -> str:
    """``f`` of ``Class.method.<locals>.f``."""
    return qualname.rpartition(".")[2]


def lookup(frame: Frame) -> Match | None:
    """What is known of a Python frame's function; None for the user's code and for native frames."""
    return None if frame.library is not None else _lookup(frame.file, frame.function)


@functools.lru_cache(maxsize=1 << 16)
def _lookup(file: str, function: str) -> Match | None:
    short = last_part(function)
    known = [(name, row) for name, row in _by_name().get(short, ()) if _stands_in(file, row)]
    exact = [row for name, row in known if name == function]
    if not exact and "." not in function:
        exact = [row for _, row in known]  # Python < 3.11 prints no class
    if not exact and known and short not in ANY_CLASS_HAS:
        rows = {row.kind: row for _, row in known}
        exact = list(rows.values()) if len(rows) == 1 else []  # the class has another name in this version
    if not exact:
        return None
    row = exact[0]
    return Match(row, short if row.operation == "*" else row.operation)


def _stands_in(file: str, row: Row) -> bool:
    """True when the file is the row's: whole components at its end; the standard library's directory."""
    if file == row.file:
        return True
    if not file.endswith("/" + row.file):
        return False
    return (
        not row.stdlib or re.search(r"/python3?[\d.]*(?:\.zip)?t?$", file[: -len(row.file) - 1]) is not None
    )


@functools.lru_cache(maxsize=1 << 14)
def lookup_native(functions: tuple[str, ...]) -> tuple[NativeRow, int] | None:
    """The most telling row that fits one of the native functions (innermost first), and that one's index."""
    for row in tables().native:
        for pattern in row.functions:
            for index, name in enumerate(functions):
                if re.search(pattern, name[:500]):
                    return row, index
    return None


@functools.lru_cache(maxsize=1 << 12)
def lookup_thread(comm: str) -> ThreadRow | None:
    """What a thread of that kernel name is; None for the names of programs (``python3``)."""
    for row in tables().thread:
        if any(re.search(pattern, comm) for pattern in row.names):
            return row
    return None


@functools.lru_cache(maxsize=1 << 14)
def lookup_kernel(symbols: tuple[str, ...]) -> tuple[KernelRow, str] | None:
    """The row for a sleep in the kernel, and the symbol that decided.

    ``symbols``: the wchan, then the kernel stack innermost first, ``name [module]`` for modules.
    """
    parsed = [_split(symbol) for symbol in symbols]
    for row in tables().kernel:
        if row.deep:
            for name, module in parsed:
                if module in row.modules or _fits(row, name):
                    return row, name
    for vague in (False, True):
        for name, _ in parsed:
            for row in tables().kernel:
                if row.vague == vague and _fits(row, name):
                    return row, name
    return None


def _split(symbol: str) -> tuple[str, str | None]:
    """(name without the compiler's suffix, module).

    >>> _split("poll_schedule_timeout.constprop.0"), _split("uvm_ioctl [nvidia_uvm]")
    (('poll_schedule_timeout', None), ('uvm_ioctl', 'nvidia_uvm'))
    """
    name, found, module = symbol.partition(" [")
    return name.partition(".")[0], module.rstrip("]") if found else None


def _fits(row: KernelRow, name: str) -> bool:
    return any(
        name.startswith(symbol[:-1]) if symbol.endswith("*") else name == symbol for symbol in row.symbols
    )
