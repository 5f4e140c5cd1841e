"""Joins Python and native stacks to the kernel's threads, and gives each frame its source line."""

from __future__ import annotations

import re

import msgspec

from hangscope.model.evidence import RawFrame, Shard
from hangscope.model.facts import Frame, Ref, SourceLine, ThreadSample

from ..readers.pystack_text import NativeDump
from ..readers.source import SourceTable
from ..readers.stacks import StackTable, StackThread
from .parsed import ParsedShard

POINT_TO_POINT = ("send", "recv", "isend", "irecv", "send_object_list", "recv_object_list")
KEPT_INTEGERS = ("src", "dst", "group_src", "group_dst", "tag")
_LOCK = re.compile(r"<(?:unlocked |locked )?_thread\.R?[lL]ock .*?at 0x(?P<address>[0-9a-f]{1,16})")
_FORK_START = "multiprocessing/popen_fork.py"
_BOOTSTRAP = "multiprocessing/process.py"


class FrameTable:
    """The frames and stacks of a shard as facts; equal frames are one object."""

    def __init__(self, parsed: ParsedShard) -> None:
        lines: dict[tuple[str, int], SourceLine] = {}
        for _, table in parsed.every(SourceTable):
            lines.update(table.lines)
        self._shard: Shard = parsed.shard
        self._frames = [_frame(raw, lines) for raw in parsed.shard.frames]
        self._stacks: dict[int, tuple[tuple[Frame, ...] | None, bool]] = {}
        self._lines = lines

    def stack(self, index: int | None) -> tuple[tuple[Frame, ...] | None, bool]:
        """The interned stack, innermost first and without a parent's frames, and whether it had such; None
        for an index that does not exist."""
        if index is None or not 0 <= index < len(self._shard.stacks):
            return None, False
        found = self._stacks.get(index)
        if found is None:
            numbers = self._shard.stacks[index]
            found = (None, False)
            if all(0 <= number < len(self._frames) for number in numbers):
                found = cut_at_fork(tuple(self._frames[number] for number in numbers))
            self._stacks[index] = found
        return found

    def sourced(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """Frames of another origin with their source lines."""
        return tuple(
            msgspec.structs.replace(frame, source=self._lines.get((frame.file, frame.line)))
            if frame.library is None
            else frame
            for frame in frames
        )


def _frame(raw: RawFrame, lines: dict[tuple[str, int], SourceLine]) -> Frame:
    """py-spy sets ``module`` to the library for native frames only."""
    values = {str(item.get("name")): str(item.get("repr"))[:1000] for item in raw.locals or ()}
    integers: list[tuple[str, int]] = []
    if raw.name in POINT_TO_POINT and raw.filename.endswith("distributed_c10d.py"):
        integers = [
            (name, int(values[name]))
            for name in KEPT_INTEGERS
            if name in values and re.fullmatch(r"-?\d{1,9}", values[name])
        ]
    locks = [found["address"] for text in values.values() if (found := _LOCK.search(text))]
    return Frame(
        function=raw.name,
        file=raw.filename,
        line=raw.line,
        library=raw.module,
        ints=tuple(integers),
        lock_address=int(locks[0], 16) if len(locks) == 1 else None,
        source=None if raw.module else lines.get((raw.filename, raw.line)),
    )


def _at_counter(place: str) -> Frame:
    """``libc.so.6+0x98109 (malloc)`` as a native frame; without a symbol the place is the name."""
    module, found, symbol = place.partition(" (")
    library = module.partition("+")[0]
    return Frame(function=symbol.rstrip(")") if found else module, file=library, library=library)


def cut_at_fork(stack: tuple[Frame, ...]) -> tuple[tuple[Frame, ...], bool]:
    """Removes the parent's frames from the stack of a child that multiprocessing forked.

    Such a stack goes on below ``BaseProcess._bootstrap`` with ``_launch``, ``start`` and the parent's own
    frames at the moment of the fork: a worker would look like a rank in the training loop. Returns the
    stack (whole when it is none) and whether it was one.
    """
    for index, frame in enumerate(stack[:-1]):
        started = frame.file.endswith(_BOOTSTRAP) and frame.function.rpartition(".")[2] == "_bootstrap"
        if started and stack[index + 1].file.endswith(_FORK_START):
            return stack[: index + 1], True
    return stack, False


class Stacks:
    """The stacks of one process in one sample, by thread id."""

    def __init__(self, parsed: ParsedShard, frames: FrameTable, pid: int, sample: int) -> None:
        self.python: dict[int, tuple[StackThread, Ref]] = {}
        self.native: dict[int, tuple[Frame, ...]] = {}
        self.owners: set[int] = set()
        self.forked = False
        self._frames = frames
        for table in parsed.of(StackTable, pid, sample):
            for thread in table.threads:
                self._take(table, thread)
            for tid, place in table.program_counters.items():
                if tid.isdigit() and len(tid) < 12:
                    self.native.setdefault(int(tid), (_at_counter(place),))
        for dump in parsed.of(NativeDump, pid, sample):
            for item in dump.threads:
                self.native[item.tid] = frames.sourced(item.frames)
                if item.has_gil:
                    self.owners.add(item.tid)

    def _take(self, table: StackTable, thread: StackThread) -> None:
        """A whole stack beats a torn one; else the later dump counts."""
        tid = thread.os_thread_id
        if tid is None:
            return
        if table.native:
            stack, _ = self._frames.stack(thread.stack)
            if stack is not None:
                self.native[tid] = stack
            return
        known = self.python.get(tid)
        if known is None or known[0].torn or not thread.torn:
            self.python[tid] = (thread, Ref(table.path))

    def join(self, thread: ThreadSample) -> ThreadSample:
        """The thread with its stacks, when it has any."""
        native = self.native.get(thread.tid)
        entry = self.python.get(thread.tid)
        if entry is None:
            return msgspec.structs.replace(thread, native=native) if native else thread
        found, ref = entry
        stack, forked = self._frames.stack(found.stack)
        self.forked = self.forked or forked
        return msgspec.structs.replace(
            thread,
            python_name=found.thread_name,
            stack=stack,
            torn=found.torn,
            owns_gil=found.owns_gil or thread.tid in self.owners,
            active=found.active,
            native=native,
            stack_ref=ref,
        )

    def unseen(self, tids: set[int]) -> list[int]:
        """Threads that have a stack but were in no thread table."""
        return sorted(set(self.python) - tids)
