"""Dumps of one process, in order → its samples: what several tools say of the same moment is one sample.

A Python stack and a native one complete each other; a second dump of the same kind is the next look. Threads
meet by kernel thread id, else by ``pthread_self``, else as the main thread.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hangscope.model.facts import Frame, Ref
from hangscope.model.loose import DumpedThread, ProcessState, StackDump

PARTIAL = "info threads"
"""How the problem of a dump begins that shows the innermost frames only: it never is a look of its own."""


class SeenThread(msgspec.Struct, kw_only=True):
    """One thread in one sample, put together. ``stack``: Python frames; ``native``: C frames with the Python
    ones between; None where no dump showed them."""

    ref: Ref
    tid: int | None = None
    ident: int | None = None
    name: str | None = None
    comm: str | None = None
    main: bool = False
    stack: tuple[Frame, ...] | None = None
    native: tuple[Frame, ...] | None = None
    active: bool | None = None
    owns_gil: bool = False
    state: str = "?"
    wchan: str | None = None
    kernel_stack: tuple[str, ...] | None = None


class Look(msgspec.Struct, kw_only=True):
    """One sample: its threads, and which sides of them have been seen."""

    wall: float | None = None
    apart: float | None = None
    """Seconds since the look before, at least."""
    sides: set[str] = msgspec.field(default_factory=set)
    threads: list[SeenThread] = msgspec.field(default_factory=list)


def looks_of(dumps: Iterable[StackDump], states: Iterable[ProcessState] = ()) -> list[Look]:
    """The samples of one process, oldest first. ``states`` (rows of ps) complete the newest one."""
    looks: list[Look] = []
    for dump in dumps:
        sides = _sides(dump)
        partial = (dump.problem or "").startswith(PARTIAL)
        if not looks or (looks[-1].sides & sides and not partial):
            looks.append(Look())
        _add(looks[-1], dump, sides, partial and bool(looks[-1].sides))
    for state in states:
        if not looks:
            looks.append(Look())
        _add_state(looks[-1], state)
    return looks


def _sides(dump: StackDump) -> set[str]:
    """python, native or kernel: which kinds of frames the dump has."""
    if dump.tool == "kernel":
        return {"kernel"}
    python = any(frame.library is None for thread in dump.threads for frame in thread.frames)
    sides = {"native"} if dump.native else set()
    return sides | ({"python"} if python or not dump.native else set())


def _add(look: Look, dump: StackDump, sides: set[str], only_missing: bool) -> None:
    look.sides |= sides
    look.wall = dump.origin.wall or look.wall
    look.apart = dump.apart or look.apart
    known = _Known(look.threads)
    for thread in dump.threads:
        seen = known.find(thread)
        if seen is None:
            seen = SeenThread(ref=thread.ref)
            look.threads.append(seen)
            known.add(thread, seen)
        elif only_missing:
            continue
        _complete(seen, thread, dump)


class _Known:
    """The threads of a sample by what tools call them."""

    def __init__(self, threads: list[SeenThread]) -> None:
        self._by_tid = {thread.tid: thread for thread in threads if thread.tid is not None}
        self._by_ident = {thread.ident: thread for thread in threads if thread.ident is not None}
        self._main = next((thread for thread in threads if thread.main), None)

    def find(self, thread: DumpedThread) -> SeenThread | None:
        found = self._by_tid.get(thread.tid) if thread.tid is not None else None
        if found is None and thread.ident is not None:
            found = self._by_ident.get(thread.ident)
        if found is None and thread.main and self._main is not None:
            return None if _differs(self._main, thread) else self._main
        return found

    def add(self, thread: DumpedThread, seen: SeenThread) -> None:
        if thread.tid is not None:
            self._by_tid[thread.tid] = seen
        if thread.ident is not None:
            self._by_ident[thread.ident] = seen


def _differs(seen: SeenThread, thread: DumpedThread) -> bool:
    return None not in (seen.tid, thread.tid) and seen.tid != thread.tid


def _complete(seen: SeenThread, thread: DumpedThread, dump: StackDump) -> None:
    """Adds what this dump tells to what is known already."""
    seen.tid = thread.tid if seen.tid is None else seen.tid
    seen.ident = thread.ident if seen.ident is None else seen.ident
    seen.main = seen.main or bool(thread.main)
    seen.active = thread.active if seen.active is None else seen.active
    seen.owns_gil = seen.owns_gil or thread.owns_gil
    seen.state = thread.state or seen.state
    seen.wchan = thread.wchan or seen.wchan
    seen.kernel_stack = thread.kernel_stack or seen.kernel_stack
    if dump.tool in ("pystack", "gdb"):
        seen.comm = thread.name or seen.comm
    else:
        seen.name = thread.name or seen.name
    if dump.tool == "kernel":
        return
    python = tuple(frame for frame in thread.frames if frame.library is None)
    if python or (not dump.native and seen.stack is None):
        seen.stack = python
    if len(python) < len(thread.frames):
        seen.native = thread.frames


def _add_state(look: Look, state: ProcessState) -> None:
    """A row of ps is the state of the main thread."""
    main = next((thread for thread in look.threads if thread.main or thread.tid == state.pid), None)
    if main is None:
        main = SeenThread(ref=state.ref, tid=state.pid, main=True)
        if look.threads:
            return  # which of its threads is the main one is not known
        look.threads.append(main)
    main.state = state.state if main.state == "?" else main.state
    main.wchan = main.wchan or state.wchan
