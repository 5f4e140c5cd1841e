"""Ranks that wait for one another: a cycle over several groups or transfers, and what only looks like one."""

from __future__ import annotations

from hangscope.model.graph import Root
from hangscope.model.ranges import ranks_phrase

from .alignment import Operation
from .finding import Cap, Finding
from .picture import Picture


def knot(picture: Picture, root: Root) -> Finding:
    """What a component with no way out means: a cycle over groups or transfers, or one group's own split."""
    operations = tuple(picture.drawn.operations[id] for id in root.nodes if id in picture.drawn.operations)
    transfers = [id for id in root.nodes if id in picture.drawn.transfers]
    ranks = tuple(sorted(r for r in root.ranks))
    victims = tuple(rank for rank in root.victims if rank not in ranks)
    if root.certainty == "possible":
        fact = f"{ranks_phrase(ranks)} may wait for one another; what some of them have joined is not known"
        return Finding(
            kind="undecided",
            victims=(*victims, *ranks),
            fact=fact,
            root=root,
            operations=operations,
            unknown=_unknown_of(operations),
        )
    groups = {operation.lane.key[1] for operation in operations}
    if len(groups) == 1 and not transfers:
        fact = "the counters of one group contradict each other"
        return Finding(
            kind="undecided", victims=(*victims, *ranks), fact=fact, root=root, operations=operations
        )
    odd = _odd_of_equal_groups(picture, operations) if not transfers else ()
    if odd:
        both = " and ".join(operation.name for operation in operations[:2])
        return Finding(
            kind="rank-diverged",
            ranks=odd,
            victims=tuple(sorted({*victims, *ranks} - set(odd))),
            cause="rank-skips-collective",
            fact=f"{ranks_phrase(odd)} took {both} in another order than the other members, or skipped one",
            root=root,
            operations=operations,
            caps=(("low", "only the majority says who left the common path"),),
        )
    cause = "pp-p2p-order-cycle" if transfers and not operations else "cross-pg-order-deadlock"
    names = [picture.solution.nodes[id].label for id in root.nodes if id.startswith(("op:", "p2p:"))]
    fact = f"{ranks_phrase(ranks)} wait for one another over {', '.join(names[:4])}"
    caps: list[Cap] = (
        [("medium", "a rank that skipped an operation would look the same")] if operations else []
    )
    return Finding(
        kind="cycle", ranks=ranks, victims=victims, cause=cause, fact=fact, root=root, operations=operations,
        caps=tuple(caps),
    )  # fmt: skip


def _odd_of_equal_groups(picture: Picture, operations: tuple[Operation, ...]) -> tuple[int, ...]:
    """Groups of the same members are one program order: a strict majority that has joined the same of the
    operations makes the rest the odd ones."""
    members = {frozenset(op.lane.members) if op.lane.members is not None else None for op in operations}
    only = members.pop() if len(members) == 1 else None
    if only is None or len(only) < 3:
        return ()
    joined: dict[frozenset[str], set[int]] = {}
    for rank in only - set(_unknown_of(operations)):
        joined.setdefault(frozenset(op.id for op in operations if rank in op.joined), set()).add(rank)
    most = max(joined.values(), key=len, default=set())
    if 2 * len(most) <= len(only):
        return ()
    return tuple(sorted(rank for ranks in joined.values() if ranks is not most for rank in ranks))


def _unknown_of(operations: tuple[Operation, ...]) -> tuple[int, ...]:
    return tuple(sorted({rank for operation in operations for rank in operation.unknown}))
