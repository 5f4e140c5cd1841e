"""Draws the whole graph: from every rank's working threads outward, never the other way round."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...model.facts import Process
from ...model.graph import WaitGraph
from ...model.waits import ReleasedBy, Wait, WaitKind
from ..job import INSIDE, Job
from ..membership import Membership
from ..presence import Presence
from ..progress import Progress
from ..recorder import Records
from .devices import Devices
from .draft import Draft
from .entries import Entries
from .inside import Inside
from .operations import Operations
from .outside import Outside
from .resources import share_resources
from .sinks import classify_sinks
from .slots import P2P, Slot, autograd_threads, joiners_of, slots_of


class Built(msgspec.Struct, frozen=True):
    """The graph, each operation's slot by node id, and where each rank starts."""

    graph: WaitGraph
    slots: dict[str, Slot]
    starts: dict[int, tuple[str, ...]]
    """rank → node ids of its own working threads (or its absent node)."""


def build(
    job: Job,
    presences: dict[int, Presence],
    membership: Membership,
    records: Records,
    progress: Progress,
) -> Built:
    """Returns the graph with every sink classified. Cost follows ranks, operations and the threads on
    wait paths."""
    draft = Draft(job)
    entries = Entries(draft, presences)
    operations = Operations(draft, entries, membership, records, job)
    starts = {rank: _starts(job, entries, rank) for rank in job.members}
    groups = slots_of(joiners_of(job, presences, membership, records))
    operations.draw(groups)
    threads = _Threads(draft, entries, presences, operations.devices)
    while draft.queue:
        threads.draw(*draft.queue.pop())
    share_resources(draft)
    slots = {slot.id: slot for members in groups.values() for slot in members}
    classify_sinks(draft, slots, membership, progress)
    return Built(draft.finished(), slots, starts)


def _starts(job: Job, entries: Entries, rank: int) -> tuple[str, ...]:
    entry = entries.rank(rank)
    presence = entries.presences[rank]
    if presence.being != "alive" or presence.process is None:
        return (entry,)
    process = presence.process
    communicating = [entries.draft.thread(process, tid) for tid in job.communicating(process)]
    return tuple(dict.fromkeys([entry, *communicating]))


class _Threads:
    """Draws what one thread waits for, apart from collectives."""

    def __init__(
        self, draft: Draft, entries: Entries, presences: Mapping[int, Presence], devices: Devices
    ) -> None:
        self._draft = draft
        self._entries = entries
        self._presences = presences
        self._inside = Inside(draft)
        self._outside = Outside(draft, entries)
        self._devices = devices

    def draw(self, process: Process, tid: int) -> None:
        wait = self._draft.job.wait(process, tid)
        source = self._draft.thread(process, tid)
        self._devices.thread(process, tid, source)
        if wait.kind in P2P:
            self._point_to_point(process, wait, source)
        elif wait.kind is WaitKind.AUTOGRAD:
            self._autograd(process, tid, source)
        elif wait.kind is WaitKind.GIL:
            self._inside.gil(process, tid, source) or self._inside.gil_owner(process, tid, source)
        elif wait.kind is WaitKind.CHILD or wait.released_by is ReleasedBy.CHILDREN:
            self._outside.children(process, source, wait.peer_pid)
        elif wait.kind in INSIDE:
            self._within(process, tid, wait, source)
        elif wait.kind is WaitKind.FILE_LOCK:
            self._outside.file_lock(process, source)
        elif wait.kind in (WaitKind.SOCKET, WaitKind.PIPE, WaitKind.FIFO, WaitKind.POLL):
            self._outside.peer(process, wait, source)

    def _within(self, process: Process, tid: int, wait: Wait, source: str) -> None:
        if wait.released_by is ReleasedBy.THREAD and wait.thread_pattern:
            self._inside.named_thread(process, tid, source, wait.thread_pattern)
            return
        if wait.released_by is ReleasedBy.PEER:
            self._outside.peer(process, wait, source)
            return
        if self._inside.gil(process, tid, source) or self._inside.lock(process, tid, wait, source):
            return
        why = wait.why or f"waits for some thread ({wait.kind.value})"
        self._inside.some_thread(process, tid, source, why)

    def _autograd(self, process: Process, tid: int, source: str) -> None:
        """backward() waits for autograd's own threads; without any in sight it is DDP's reducer, which
        the operation already stands for."""
        for other in autograd_threads(self._draft.job, process):
            if other != tid:
                target = self._draft.thread(process, other)
                self._draft.edge(source, target, certainty="inferred", why="backward runs in it")

    def _point_to_point(self, process: Process, wait: Wait, source: str) -> None:
        rank = process.rank
        sends = wait.kind is WaitKind.SEND
        if wait.peer is None or rank is None:
            self._draft.edge(
                source,
                self._draft.node("unknown:peer", "unknown", "the other rank is not known", sink="unknown"),
                certainty="possible",
            )
            return
        pair = (rank, wait.peer) if sends else (wait.peer, rank)
        verb = "send to" if sends else "recv from"
        id = self._draft.node(
            f"p2p:{wait.kind.value}:{pair[0]}:{pair[1]}", "operation", f"{verb} rank {wait.peer}"
        )
        self._draft.edge(source, id, why=wait.why or f"waits in {verb} rank {wait.peer}")
        if not self._posted(wait.peer, rank, not sends):
            other = "posted the receive" if sends else "sent"
            why = f"rank {wait.peer} has not {other}"
            self._draft.edge(id, self._entries.rank(wait.peer), why=why)

    def _posted(self, peer: int, rank: int, sends: bool) -> bool:
        """True when a living thread of the peer stands in the other half of this transfer."""
        presence = self._presences.get(peer)
        if presence is None or presence.being != "alive" or presence.process is None:
            return False
        job = self._draft.job
        kind = WaitKind.SEND if sends else WaitKind.RECV
        waits = [job.wait(presence.process, tid) for tid in job.threads(presence.process)]
        return any(wait.kind is kind and wait.peer == rank for wait in waits)
