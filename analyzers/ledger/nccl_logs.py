"""The NCCL lines of all files: one stream a process and file, and what belongs to a file and no process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hangscope.model.loose import LogEvent

from .communicator import Process
from .nccl_processes import Life, Stream

BLOCK = 6
"""Launches in a row, on the mean, from which on they came from a buffer; one of 4 KiB holds some twenty."""


class Turns:
    """How the processes of one file take turns."""

    def __init__(self) -> None:
        self.processes: set[Process] = set()
        self.launches = 0
        self.number = 0
        self._last: Process | None = None

    def add(self, process: Process) -> None:
        """One more launch."""
        self.launches += 1
        if process != self._last:
            self.number += 1
            self._last = process
            self.processes.add(process)


class Logs:
    """All streams, and what belongs to a file and no process of it."""

    def __init__(self, events: Sequence[LogEvent]) -> None:
        self.streams: dict[tuple[str, Process], Stream] = {}
        self._of: dict[Process, list[Stream]] = {}
        self.torn: dict[str, int] = {}
        """File → line of the last torn launch whose process nobody knows."""
        self.versions: dict[str, set[str]] = {}
        self._turns: dict[str, Turns] = {}
        self.unplaced = 0
        """Lines whose process nobody can tell."""
        ordered = sorted((event for event in events if event.kind.startswith("nccl-")), key=_place)
        nodes = _nodes(ordered)
        for event in ordered:
            self._add(event, nodes)

    def _add(self, event: LogEvent, nodes: dict[tuple[str, int], set[str]]) -> None:
        path, origin = event.ref.artifact, event.origin
        if event.kind == "nccl-version" and event.key is not None:
            self.versions.setdefault(path, set()).add(event.key)
        elif event.kind == "nccl-interface" and event.text.startswith("Bootstrap: "):
            self.versions.setdefault(path, set()).add("2.24")
        node = origin.node
        if node is None and origin.pid is not None:
            known = nodes.get((path, origin.pid), set())
            node = next(iter(known)) if len(known) == 1 else None
        if node is None or origin.pid is None:
            if event.kind == "nccl-collective":
                self.torn[path] = max(self.torn.get(path, 0), event.ref.line or 0)
            self.unplaced += event.kind != "nccl-version"
            return
        process = (node, origin.pid)
        stream = self.streams.get((path, process))
        if stream is None:
            stream = self.streams[(path, process)] = Stream(path, process)
            self._of.setdefault(process, []).append(stream)
        stream.add(event)
        if event.kind == "nccl-collective":
            self._turns.setdefault(path, Turns()).add(process)

    def in_blocks(self, path: str) -> bool:
        """Whether the launches of several processes stand in that file in blocks, as from a buffer each. NCCL
        does not flush its standard output, which libc buffers by 4 KiB where it is no terminal: the last
        lines of a process that was killed are lost (python -u, as torchrun runs it, has no such buffer)."""
        turns = self._turns.get(path)
        return turns is not None and len(turns.processes) > 1 and turns.launches > BLOCK * turns.number

    def of(self, process: Process) -> Sequence[Stream]:
        """The process's streams, one a file."""
        return self._of.get(process, ())

    def lives(self) -> Iterator[Life]:
        """Every communicator of every process."""
        for key in sorted(self.streams):
            yield from self.streams[key].lives


def _place(event: LogEvent) -> tuple[str, int, str, int, str]:
    return (
        event.ref.artifact,
        event.ref.line or 0,
        event.origin.node or "",
        event.origin.pid or 0,
        event.text,
    )


def _nodes(events: Iterable[LogEvent]) -> dict[tuple[str, int], set[str]]:
    """The nodes that a pid of a file is known on: a torn head has lost the node."""
    found: dict[tuple[str, int], set[str]] = {}
    for event in events:
        if event.origin.node is not None and event.origin.pid is not None:
            found.setdefault((event.ref.artifact, event.origin.pid), set()).add(event.origin.node)
    return found
