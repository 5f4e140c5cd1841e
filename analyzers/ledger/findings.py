"""From the roots of the graph to findings: what kind of hang each is, and whom it names."""

from __future__ import annotations

import msgspec

from hangscope.model.graph import Root
from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import Kind

from ..solve import certainty_of
from .alignment import Operation
from .arrivals import host_may_wait
from .differences import Difference, first_difference
from .finding import Cap, Finding, order
from .history import tempered
from .knots import knot
from .picture import Picture, broken_devices, is_arrival

SURE = 64
"""Roots of which the certainty is reckoned; the first ones have the largest impact."""


def findings_of(picture: Picture) -> list[Finding]:
    """Every root that a waiting rank reaches, merged where victims and kind are equal."""
    found = []
    for position, root in enumerate(picture.solution.roots):
        if position < SURE:
            root = certainty_of(root, picture.solution, picture.drawn.starts)
        made = _finding(picture, root)
        if made is not None:
            found.append(made)
    merged: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        key = (finding.kind, finding.type, finding.victims, finding.cause, finding.difference is None)
        other = merged.get(key)
        merged[key] = finding if other is None else _merge(other, finding)
    return sorted((tempered(finding, picture) for finding in merged.values()), key=order)


def _merge(one: Finding, other: Finding) -> Finding:
    operations = {operation.id: operation for operation in (*one.operations, *other.operations)}
    return msgspec.structs.replace(
        one,
        ranks=tuple(sorted({*one.ranks, *other.ranks})),
        unknown=tuple(sorted({*one.unknown, *other.unknown})),
        operations=tuple(operations.values()),
        caps=tuple(dict.fromkeys((*one.caps, *other.caps))),
    )


def _finding(picture: Picture, root: Root) -> Finding | None:
    if root.is_cycle:
        return knot(picture, root)
    id = root.nodes[0]
    node = picture.solution.nodes[id]
    if id in picture.drawn.differences:
        return _different(picture, root, picture.drawn.differences[id])
    if id in picture.drawn.operations:
        return _operation(root, picture.drawn.operations[id])
    if id in picture.drawn.transfers:
        name = picture.drawn.transfers[id].name
        return Finding(kind="all-joined", victims=root.victims, fact=f"both ends are in {name}", root=root)
    if node.rank is None:
        return None
    operations = _leading(picture, id)
    if id.startswith("broken:"):
        return _broken(picture, root, node.rank, operations)
    if node.type == "resource":
        fact = (
            f"the others' devices have started {_first(operations)}, the device of rank {node.rank} has not"
        )
        return Finding(
            kind="rank-blocked", type="gpu", ranks=(node.rank,), victims=_without(root.victims, node.rank),
            cause="device-side-wedge", fact=fact, root=root, operations=operations,
        )  # fmt: skip
    return _rank(picture, root, node.rank, operations)


def _broken(picture: Picture, root: Root, rank: int, operations: tuple[Operation, ...]) -> Finding:
    """A GPU that the machine reports broken, under a rank that others wait for."""
    event = broken_devices(picture.machine)[rank]
    return Finding(
        kind="rank-blocked",
        type="gpu",
        ranks=(rank,),
        victims=_without(root.victims, rank),
        cause=event.cause,
        fact=f"{event.text} (rank {rank}, by {event.tie})",
        root=root,
        operations=operations,
        hard=True,
        at=event.pci,
    )


def _rank(picture: Picture, root: Root, rank: int, operations: tuple[Operation, ...]) -> Finding:
    absence = next((item for item in picture.absences.first if item.rank == rank), None)
    if absence is not None:
        return Finding(
            kind="rank-absent", ranks=(rank,), victims=root.victims, cause=absence.cause, fact=absence.text,
            root=root, operations=operations,
        )  # fmt: skip
    if picture.solution.nodes[root.nodes[0]].sink == "unknown":
        what = f"nothing tells whether rank {rank} has joined {_first(operations)}"
        return Finding(
            kind="undecided",
            victims=root.victims,
            fact=what,
            root=root,
            operations=operations,
            unknown=(rank,),
        )
    fact = f"rank {rank} has not joined {_first(operations)}"
    store = bool(operations) and all(op.lane.key[0].startswith("store") for op in operations)
    if store and rank not in _speaking(picture):
        keys = [operation.lane.key[0].partition(":")[2] for operation in operations]
        if host_may_wait(picture.facts, rank, keys):
            fact = f"rank {rank} is waited for, and may itself wait at the store for others to come"
            return Finding(
                kind="undecided", victims=root.victims, fact=fact, root=root, operations=operations,
                unknown=(rank,),
            )  # fmt: skip
        return Finding(
            kind="rank-absent", ranks=(rank,), victims=root.victims, cause="store-wait-missing-rank",
            fact=f"rank {rank} has not come to {_first(operations)}", root=root, operations=operations,
        )  # fmt: skip
    return Finding(
        kind="rank-blocked", ranks=(rank,), victims=root.victims, fact=fact, root=root, operations=operations
    )


def _speaking(picture: Picture) -> set[int]:
    """Ranks that wrote something themselves."""
    origins = (getattr(fact, "origin", None) for fact in picture.facts)
    ranks = {picture.who.rank_of(origin) for origin in origins if origin is not None}
    return {rank for rank in ranks if rank is not None}


def _operation(root: Root, operation: Operation) -> Finding:
    victims = tuple(sorted({*root.victims, *operation.waiting}))
    if operation.finished:
        fact = (
            f"{operation.name} is finished on {ranks_phrase(operation.finished)} and not on "
            f"{ranks_phrase(operation.waiting)}: dumps of different moments, or devices that lag"
        )
        return Finding(kind="undecided", victims=victims, fact=fact, root=root, operations=(operation,))
    if operation.open_ended:
        fact = f"who else is a member of {operation.lane.label or 'the group of all ranks'} is not known"
        return Finding(kind="undecided", victims=victims, fact=fact, root=root, operations=(operation,))
    if is_arrival(operation):
        fact = f"whom {operation.name} waits for is not known"
        return Finding(kind="undecided", victims=victims, fact=fact, root=root, operations=(operation,))
    fact = f"all {len(operation.joined)} members are in {operation.name}, and none has finished it"
    return Finding(kind="all-joined", victims=victims, fact=fact, root=root, operations=(operation,))


def _different(picture: Picture, root: Root, pending: Difference) -> Finding:
    """The members are in different operations at one number: the first difference tells who left the path."""
    first = first_difference(pending.lane) or pending
    everyone = {*root.victims, *(rank for part in pending.parts for rank in part.ranks)}
    operation = picture.drawn.operations[root.nodes[0].removeprefix("differs:")]
    kind: Kind = "rank-diverged" if first.elsewhere and first.odd else "mismatch"
    cause = "collective-order-mismatch"
    if kind == "rank-diverged":
        cause = "rank-skips-collective" if first.aspect == "operation" else "rank-local-condition-divergence"
    parts = "; ".join(
        f"{ranks_phrase(part.ranks)} {_shown(first, part.label, part.sizes, part.dtype)}"
        for part in first.parts[:4]
    )
    caps: list[Cap] = []
    if not first.odd:
        caps.append(("medium", "no majority of the members agrees: who left the common path is ambiguous"))
    elif not all(seen.recorded for _rank, seen in first.lane.occurrences(first.sequence)):
        caps.append(("low", "only the majority of the log's lines says who left the common path"))
    else:
        caps.append(("low", "only the majority decides who left the common path"))
    return Finding(
        kind=kind,
        ranks=first.odd,
        victims=tuple(sorted(everyone - set(first.odd))),
        cause=cause,
        fact=f"at #{first.sequence}: {parts}",
        root=root,
        operations=(operation,),
        difference=first,
        caps=tuple(caps),
    )


def _shown(difference: Difference, label: str, sizes: str | None, dtype: str | None) -> str:
    if difference.aspect == "size":
        return f"{label} of {sizes}"
    return f"{label} of {dtype}" if difference.aspect == "dtype" else label


def _leading(picture: Picture, id: str) -> tuple[Operation, ...]:
    """The operations that wait for the node, those with the most waiting first."""
    edges = picture.solution.predecessors.get(id, ())
    found = [
        picture.drawn.operations[edge.source] for edge in edges if edge.source in picture.drawn.operations
    ]
    return tuple(sorted(found, key=lambda op: (-len(op.waiting), not op.lane.gpu, op.id)))


def _first(operations: tuple[Operation, ...]) -> str:
    return operations[0].name if operations else "the operation"


def _without(ranks: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(other for other in ranks if other != rank)
