"""Connections between ranks that only retransmit: what is left to blame when every member has joined.

The kernel of a stopped or stuck process still acknowledges what is sent to it. Data that is retransmitted
again and again without one byte acknowledged is lost on the way: that is the link, and no rank.
"""

from __future__ import annotations

import msgspec

from ...model.facts import Process, Ref, Socket
from ..job import Job
from ..membership import is_store, store_ports
from .draft import Draft
from .slots import Slot

TIMES = 2
"""Time-outs in a row, without an answer, from which a connection counts (one is everyday loss)."""


class Stalled(msgspec.Struct, frozen=True, kw_only=True):
    """A connection between two ranks, lower rank first, that loses everything."""

    ranks: tuple[int, int]
    nodes: tuple[str, str]
    text: str
    ref: Ref | None

    @property
    def id(self) -> str:
        return f"link:{self.ranks[0]}:{self.ranks[1]}"


def stalled(job: Job) -> tuple[Stalled, ...]:
    """Returns the stalled connections between the job's ranks, one a pair, by ranks."""
    rank_of = {(p.node, p.pid): rank for rank, p in job.ranks.items()}
    ports = store_ports(job)
    found: dict[tuple[int, int], Stalled] = {}
    for rank, process in sorted(job.ranks.items()):
        for socket in _lossy(process):
            peer = rank_of.get((socket.peer_node or process.node, socket.peer_pid or -1))
            if peer is None or peer == rank or is_store(ports, socket.local, socket.remote):
                continue
            pair = (min(rank, peer), max(rank, peer))
            text = f"rank {rank} retransmits to rank {peer} for the {socket.retransmits}th time, unanswered"
            found.setdefault(
                pair,
                Stalled(
                    ranks=pair,
                    nodes=(job.ranks[pair[0]].node, job.ranks[pair[1]].node),
                    text=text,
                    ref=process.samples[-1].ref,
                ),
            )
    return tuple(found[pair] for pair in sorted(found))


def _lossy(process: Process) -> list[Socket]:
    """Its connections with data that was retransmitted in vain since the first sample."""
    if len(process.samples) < 2:
        return []
    before = {socket.inode: socket for socket in process.samples[0].sockets}
    return [
        socket
        for socket in process.samples[-1].sockets
        if (old := before.get(socket.inode)) is not None
        and socket.timer == "retrans"
        and socket.retransmits >= max(TIMES, old.retransmits)
        and socket.tx_queue > 0
        and socket.bytes_acked is not None
        and socket.bytes_acked == old.bytes_acked
    ]


class Links:
    """Draws the edges of operations to stalled connections."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._stalled = stalled(draft.job)

    def operation(self, slot: Slot) -> None:
        """An operation that every member has joined (it has no other edge) waits for the connections between
        its members."""
        if self._draft.out.get(slot.id):
            return
        for item in self._stalled:
            if set(item.ranks) <= slot.ranks:
                first, second = item.ranks
                label = (
                    f"the connection of rank {first} ({item.nodes[0]}) and rank {second} ({item.nodes[1]})"
                )
                refs = (item.ref,) if item.ref is not None else ()
                self._draft.node(item.id, "resource", label, sink="stuck", refs=refs)
                self._draft.edge(slot.id, item.id, why=item.text, refs=refs)
