"""The wait-for graph of loose evidence: ranks, operations, devices. Solved like a capture's.

A rank waits for its lowest unfinished operation of every lane; an operation for the members that have not
joined it. A rank that has not joined and waits for nothing itself is an end of the waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from hangscope.model.graph import Certainty, Edge, Node, SinkClass, WaitGraph

from .absences import Absence
from .alignment import Operation
from .differences import Difference
from .identities import WORLD
from .machine import MachineEvent
from .transfers import Transfer


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """``starts``: rank → its node, for every rank that waits. The others by node id."""

    graph: WaitGraph
    starts: dict[int, tuple[str, ...]]
    operations: dict[str, Operation]
    transfers: dict[str, Transfer]
    differences: dict[str, Difference]


def rank_id(rank: int) -> str:
    return f"rank:{rank}"


class _Draft:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], Edge] = {}
        self.proven: set[int] = set()
        """Ranks that provably have not joined something."""
        self.waits: set[int] = set()

    def node(self, node: Node) -> str:
        self.nodes.setdefault(node.id, node)
        return node.id

    def edge(self, source: str, target: str, certainty: Certainty, why: str) -> None:
        known = self.edges.get((source, target))
        if known is None or (known.certainty == "possible" and certainty != "possible"):
            self.edges[source, target] = Edge(source=source, target=target, certainty=certainty, why=why)

    def rank(self, rank: int) -> str:
        return self.node(Node(id=rank_id(rank), type="thread", label=f"rank {rank}", rank=rank))


def draw(
    operations: Iterable[Operation],
    transfers: Iterable[Transfer],
    differences: Mapping[str, Difference],
    absences: Iterable[Absence],
    broken: Mapping[int, MachineEvent],
    readable: Collection[int] = (),
) -> Drawn:
    """Returns the graph with every sink classified. ``differences``: operation id → how its members differ;
    ``broken``: rank → what broke its GPU; ``readable``: all ranks, where each has a whole recorder.
    Cost follows ranks and operations."""
    draft = _Draft()
    gone = {absence.rank: absence for absence in absences}
    kept = {operation.id: operation for operation in operations}
    moves = {transfer.id: transfer for transfer in transfers}
    started = _started(kept.values())
    for operation in kept.values():
        _draw_operation(draft, operation, differences.get(operation.id), gone, started)
        _draw_broken(draft, operation, broken)
    for transfer in moves.values():
        _draw_transfer(draft, transfer, gone)
    _draw_batches(draft, list(moves.values()))
    _draw_possible(draft, kept.values(), readable)
    for rank in gone:
        draft.rank(rank)
    starts: dict[int, tuple[str, ...]] = {rank: (rank_id(rank),) for rank in sorted(draft.waits)}
    return Drawn(
        graph=WaitGraph(nodes=tuple(_sinks(draft, gone)), edges=tuple(draft.edges.values())),
        starts=starts,
        operations=kept,
        transfers=moves,
        differences={f"differs:{id}": found for id, found in differences.items() if id in kept},
    )


def _started(operations: Iterable[Operation]) -> dict[int, set[str]]:
    """rank → unfinished operations that its device has started."""
    found: dict[int, set[str]] = {}
    for operation in operations:
        for rank in operation.started:
            found.setdefault(rank, set()).add(operation.id)
    return found


def _draw_operation(
    draft: _Draft,
    operation: Operation,
    difference: Difference | None,
    gone: Mapping[int, Absence],
    started: Mapping[int, set[str]],
) -> None:
    node = draft.node(Node(id=operation.id, type="operation", label=operation.name))
    for rank in operation.waiting:
        draft.waits.add(rank)
        if rank not in gone:
            draft.edge(draft.rank(rank), node, "observed", f"rank {rank} has joined, and not finished it")
    _draw_members(draft, operation, node, gone)
    if difference is not None:
        label = "the members are in different operations at this number"
        target = draft.node(Node(id=f"differs:{operation.id}", type="operation", label=label, sink="stuck"))
        draft.edge(node, target, "observed", label)
    if operation.started and not operation.lacking and difference is None:
        for rank in operation.queued:
            _draw_device(draft, operation, rank, started)


def _draw_members(draft: _Draft, operation: Operation, node: str, gone: Mapping[int, Absence]) -> None:
    """For whom it waits: who provably has not joined, who is gone, and of whom nothing is known."""
    for rank in operation.lacking:
        draft.proven.add(rank)
        draft.edge(node, draft.rank(rank), "observed", f"rank {rank} has not joined")
    for rank in operation.joined:
        if rank in gone and rank not in operation.finished:
            draft.edge(node, draft.rank(rank), "observed", f"rank {rank} is gone")
    if operation.open_ended:
        for rank in gone:
            if rank not in operation.joined:
                how: Certainty = "observed" if operation.lane.key[1] == WORLD else "possible"
                draft.edge(node, draft.rank(rank), how, f"rank {rank} is gone")
    for rank in operation.unknown:
        if rank in gone:
            draft.edge(node, draft.rank(rank), "observed", f"rank {rank} is gone")
        elif not operation.finished:
            draft.edge(node, draft.rank(rank), "possible", f"nothing tells whether rank {rank} has joined")


def _draw_broken(draft: _Draft, operation: Operation, broken: Mapping[int, MachineEvent]) -> None:
    """A GPU that the machine reports as broken holds up the operation, whether its rank has joined or not."""
    for rank, event in broken.items():
        if rank in operation.finished or rank not in {
            *operation.joined,
            *operation.lacking,
            *operation.unknown,
        }:
            continue
        node = Node(id=f"broken:{rank}", type="resource", label=event.text, rank=rank, sink="stuck")
        draft.node(node)
        draft.proven.add(rank)
        if rank in operation.joined:
            draft.edge(operation.id, node.id, "observed", event.text)
        else:
            draft.edge(operation.id, draft.rank(rank), "observed", f"rank {rank} has not joined")
            draft.edge(draft.rank(rank), node.id, "inferred", event.text)


def _draw_device(draft: _Draft, operation: Operation, rank: int, started: Mapping[int, set[str]]) -> None:
    """The device of a rank that launched the operation and has not started it while others have: it works on
    something else first, or does not move."""
    id = f"device:{rank}"
    draft.node(Node(id=id, type="resource", label=f"the device of rank {rank}", rank=rank))
    draft.edge(
        operation.id, id, "observed", f"rank {rank} has launched it, and its device has not started it"
    )
    for other in sorted(started.get(rank, ())):
        draft.edge(id, other, "inferred", "its device is at work on this one")


def _draw_transfer(draft: _Draft, transfer: Transfer, gone: Mapping[int, Absence]) -> None:
    node = draft.node(Node(id=transfer.id, type="operation", label=transfer.name))
    for rank in transfer.waiting:
        draft.waits.add(rank)
        if rank in gone:
            draft.edge(node, draft.rank(rank), "observed", f"rank {rank} is gone")
        else:
            draft.edge(draft.rank(rank), node, "observed", f"rank {rank} waits in it")
    for rank in transfer.lacking:
        draft.proven.add(rank)
        draft.edge(node, draft.rank(rank), "observed", f"rank {rank} has not come to it")
    for rank in transfer.behind:
        draft.edge(node, draft.rank(rank), "inferred", f"rank {rank} has it behind another operation")
    for rank in transfer.unknown:
        how: Certainty = "observed" if rank in gone else "possible"
        draft.edge(node, draft.rank(rank), how, f"nothing tells whether rank {rank} has come to it")


def _draw_possible(draft: _Draft, operations: Iterable[Operation], readable: Collection[int]) -> None:
    """Groups of unknown membership: gloo's recorder lists a group from its first operation on. The only rank
    of the job that waits in nothing may be the member that has not come; one that waits itself never is."""
    idle = [rank for rank in readable if rank not in draft.waits]
    if len(idle) != 1:
        return
    rank = idle[0]
    for operation in operations:
        known = {*operation.joined, *operation.lacking, *operation.unknown}
        ended = operation.lacking or operation.unknown or operation.finished
        if operation.open_ended and not ended and rank not in known:
            draft.proven.add(rank)
            why = "it may be a member, and waits in nothing"
            draft.edge(operation.id, draft.rank(rank), "possible", why)


def _draw_batches(draft: _Draft, transfers: list[Transfer]) -> None:
    """A batch goes on as one: a transfer whose ends are both there still waits for the others that stand in a
    batch with it."""
    lame: dict[int, list[str]] = {}
    for transfer in transfers:
        if transfer.lacking or transfer.unknown or transfer.behind:
            for rank in transfer.waiting:
                lame.setdefault(rank, []).append(transfer.id)
    for transfer in transfers:
        if transfer.lacking or transfer.unknown or transfer.behind:
            continue
        for rank in transfer.waiting:
            for other in lame.get(rank, ()):
                draft.edge(transfer.id, other, "observed", f"rank {rank} has both in one batch")


def _sinks(draft: _Draft, gone: Mapping[int, Absence]) -> list[Node]:
    """A rank with no wait of its own is stuck where it provably has not joined; else nothing is known."""
    out = {source for source, _target in draft.edges}
    found = []
    for node in draft.nodes.values():
        if node.id in out or node.sink is not None:
            found.append(node)
            continue
        sink: SinkClass = "stuck"
        if node.type == "thread" and node.rank not in draft.proven and node.rank not in gone:
            sink = "unknown"
        found.append(msgspec.structs.replace(node, sink=sink))
    return found
