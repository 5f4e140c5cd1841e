"""One process's NCCL lines → its communicators, told apart by pointer in that process only.

A pointer is used again after the end of its communicator: Init, Destroy and Abort lines tell the lives apart.
"""

from __future__ import annotations

import functools
from array import array

from hangscope.model.facts import Ref
from hangscope.model.loose import LogEvent

from .communicator import Process

_TRANSFERS = ("Send", "Recv", "Put", "Signal", "Wait")
Signature = tuple[str, str | None, str | None, str | None, str | None]
"""Operation, size, type, reduction, root."""


class Life:
    """One communicator in one process, as one log shows it."""

    def __init__(self, stream: Stream, pointer: str, words: dict[str, str], event: LogEvent) -> None:
        self.stream = stream
        self.pointer = pointer
        self.identity = event.communicator
        self.rank = event.group_rank
        self.size = int(words["nranks"]) if "nranks" in words else None
        self.parent: Life | None = None
        self.split = words.get("split")
        self.color = words.get("color")
        self.order = ""
        self.pci = event.pci
        self.started = self.placed = self.complete = False
        self.ended: str | None = None
        self.ref = event.ref
        self.children = 0
        self.transfers = 0
        self.counts = array("Q")
        self.lines = array("Q")
        self.signatures: list[Signature] = []

    @property
    def formed(self) -> bool:
        """The log shows how it was formed: it begins before the first launch."""
        return self.started or self.complete

    def ref_of(self, index: int) -> Ref:
        """Where a launch stands."""
        return Ref(self.stream.path, self.lines[index] or None)


class Stream:
    """The NCCL lines of one process in one file."""

    def __init__(self, path: str, process: Process) -> None:
        self.path = path
        self.process = process
        self.lives: list[Life] = []
        self.ranks: set[int] = set()
        """Global ranks that prefixes tell."""
        self.attempts: set[int] = set()
        self.first = 0
        self.last = 0
        self.wall: float | None = None
        self.launches = False
        """The COLL subsystem is on."""
        self.torn = 0
        """Line of the last launch that was torn."""
        self._open: dict[str, Life] = {}
        self._sizes: dict[int, int] = {}

    def add(self, event: LogEvent) -> None:
        """One more line, in the order of the file."""
        line = event.ref.line or 0
        self.first = self.first or line
        self.last = max(self.last, line)
        if event.origin.wall is not None:
            self.wall = max(self.wall or 0.0, event.origin.wall)
        if event.origin.rank is not None:
            self.ranks.add(event.origin.rank)
        if event.origin.attempt is not None:
            self.attempts.add(event.origin.attempt)
        add = _ADDERS.get(event.kind)
        if add is not None:
            words = words_of(event.key)
            pointer = words.get("comm")
            if pointer is not None:
                add(self, event, pointer, words)
            elif event.kind == "nccl-collective":
                self.launches, self.torn = True, line

    def _start(self, event: LogEvent, pointer: str, words: dict[str, str]) -> None:
        self._begin(event, pointer, words).started = True

    def _placed(self, event: LogEvent, pointer: str, words: dict[str, str]) -> None:
        life = self._open.get(pointer)
        if life is not None and life.rank == event.group_rank:
            life.placed = True

    def _complete(self, event: LogEvent, pointer: str, words: dict[str, str]) -> None:
        life = self._open.get(pointer)
        same = life is not None and not life.complete and life.rank == event.group_rank
        if life is None or not same or (event.communicator or life.identity) != life.identity:
            life = self._begin(event, pointer, words)
        life.complete = True
        life.pci = life.pci or event.pci

    def _end(self, event: LogEvent, pointer: str, words: dict[str, str]) -> None:
        life = self._open.get(pointer)
        if life is None or life.rank not in (None, event.group_rank):
            return
        life.ended = event.operation
        if event.text.rstrip().endswith("COMPLETE"):
            del self._open[pointer]

    def _launch(self, event: LogEvent, pointer: str, words: dict[str, str]) -> None:
        self.launches = True
        life = self._open.get(pointer)
        if life is None:
            life = self._open[pointer] = Life(self, pointer, words, event)
            life.rank = None
            self.lives.append(life)
        operation = event.operation or ""
        if operation.startswith(_TRANSFERS):
            life.transfers += 1
            return
        life.counts.append(event.sequence or 0)
        life.lines.append(event.ref.line or 0)
        life.signatures.append(
            _signature(operation, event.sizes, event.dtype, words.get("op"), words.get("root"))
        )

    def _begin(self, event: LogEvent, pointer: str, words: dict[str, str]) -> Life:
        life = self._open[pointer] = Life(self, pointer, words, event)
        self.lives.append(life)
        if "parent" in words:
            life.parent = self._open.get(words["parent"])
            if life.parent is not None:
                life.parent.children += 1
                life.order = str(life.parent.children)
        elif life.identity is None and life.size is not None:
            self._sizes[life.size] = self._sizes.get(life.size, 0) + 1
            life.order = str(self._sizes[life.size])
        return life


@functools.lru_cache(maxsize=4096)
def _signature(
    operation: str, sizes: str | None, dtype: str | None, reduction: str | None, root: str | None
) -> Signature:
    """One object for equal ones: a job launches a few kinds of collectives a million times."""
    return (operation, sizes, dtype, reduction, root)


_ADDERS = {
    "nccl-init-start": Stream._start,
    "nccl-init-placed": Stream._placed,
    "nccl-init-complete": Stream._complete,
    "nccl-comm-end": Stream._end,
    "nccl-collective": Stream._launch,
}


def words_of(key: str | None) -> dict[str, str]:
    """The words of an event's key: names and values in turn.

    >>> words_of("comm 0x55 nranks 4"), words_of(None)
    ({'comm': '0x55', 'nranks': '4'}, {})
    """
    words = key.split() if key else []
    return dict(zip(words[::2], words[1::2], strict=False))
