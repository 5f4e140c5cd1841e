"""Which global rank a member of a communicator is, and which communicators belong to an attempt that is over.

The prefix of its lines tells a process's rank. Else the communicator that holds every process of the logs
does, where no other is larger and no other has members that it lacks: its ranks are the job's.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .communicator import Communicator, Member, Process
from .nccl_logs import Logs

_Device = tuple[Process, str | None]


def placed_in_world(found: Sequence[Communicator], logs: Logs) -> list[Communicator]:
    """The communicators with global ranks where they are known, and with ``world`` and ``superseded`` set."""
    over = _superseded(found, logs)
    told = _told(found, logs)
    world = _world([one for one in found if one.key not in over], told)
    known: dict[_Device, int] = {}
    if world is not None:
        known = {((m.node, m.pid), m.pci): m.rank for m in world.members}
    placed = []
    for one in found:
        members = tuple(
            msgspec.structs.replace(member, global_rank=_global(member, one, world, known, told))
            for member in one.members
        )
        placed.append(
            msgspec.structs.replace(
                one,
                members=members,
                world=world is not None and one.key == world.key,
                superseded=one.key in over,
            )
        )
    return placed


def _global(
    member: Member,
    one: Communicator,
    world: Communicator | None,
    known: dict[_Device, int],
    told: dict[Process, int],
) -> int | None:
    if world is not None and one.key == world.key:
        return member.rank
    process = (member.node, member.pid)
    if process in told:
        return told[process]
    return known.get((process, member.pci))


def _told(found: Sequence[Communicator], logs: Logs) -> dict[Process, int]:
    """Ranks that the prefixes of a process's lines tell, where they agree, no other process of a communicator
    has the same, and the process has one rank of each communicator."""
    claims: dict[Process, set[int]] = {}
    for stream in logs.streams.values():
        claims.setdefault(stream.process, set()).update(stream.ranks)
    sure = {process: next(iter(ranks)) for process, ranks in claims.items() if len(ranks) == 1}
    for one in found:
        owners: dict[int, set[Process]] = {}
        seats: dict[Process, int] = {}
        for member in one.members:
            process = (member.node, member.pid)
            seats[process] = seats.get(process, 0) + 1
            if process in sure:
                owners.setdefault(sure[process], set()).add(process)
        shared = {process for claimed in owners.values() if len(claimed) > 1 for process in claimed}
        for process in shared | {process for process, count in seats.items() if count > 1}:
            sure.pop(process, None)
    return sure


def _world(found: Sequence[Communicator], told: dict[Process, int]) -> Communicator | None:
    """The communicator of all ranks; None where the logs do not show which it is."""
    largest = max((one.size for one in found), default=0)
    everyone = set().union(*(_processes(one) for one in found))
    fitting = [
        one
        for one in found
        if one.size == largest
        and one.parent is None
        and not one.disputed
        and len(everyone - _processes(one)) <= len(one.absent)
        and all(told.get((m.node, m.pid), m.rank) == m.rank for m in one.members)
        and (one.absent or not any(_has_unseen(other, everyone) for other in found))
    ]
    seats = {tuple((m.rank, m.node, m.pid) for m in one.members) for one in fitting}
    return fitting[0] if len(seats) == 1 else None


def _processes(one: Communicator) -> set[Process]:
    return {(member.node, member.pid) for member in one.members}


def _has_unseen(one: Communicator, everyone: set[Process]) -> bool:
    """Whether it has ranks that are no process in the logs: formed with them, or more than could be."""
    if not one.absent:
        return False
    formed = any(member.complete for member in one.members)
    return formed or len(one.absent) > len(everyone - _processes(one))


def _superseded(found: Sequence[Communicator], logs: Logs) -> set[str]:
    """Communicators whose processes all fell silent, in the same files, before those of another one with the
    same ranks on the same nodes began; or that an elastic agent's restart count tells."""
    spans = {one.key: _spans(one, logs) for one in found}
    attempts = {one.key: _attempts(one, logs) for one in found}
    seats: dict[tuple[int, int, str, str | None], list[Communicator]] = {}
    for one in found:
        for member in one.members[:1]:
            seats.setdefault((one.size, member.rank, member.node, member.pci), []).append(one)
    over = set()
    for rivals in seats.values():
        for old in rivals:
            for new in rivals:
                if old is not new and _followed(old, new, spans, attempts):
                    over.add(old.key)
    return over


_Spans = dict[str, tuple[int, int]]


def _followed(
    old: Communicator, new: Communicator, spans: dict[str, _Spans], attempts: dict[str, set[int]]
) -> bool:
    if {(m.node, m.pid) for m in old.members} & {(m.node, m.pid) for m in new.members}:
        return False
    if attempts[old.key] and attempts[new.key]:
        return max(attempts[old.key]) < min(attempts[new.key])
    shared = spans[old.key].keys() & spans[new.key].keys()
    return bool(shared) and all(spans[old.key][path][1] < spans[new.key][path][0] for path in shared)


def _spans(one: Communicator, logs: Logs) -> _Spans:
    """Path → first and last line of the members' processes in it."""
    found: _Spans = {}
    for member in one.members:
        for stream in logs.of((member.node, member.pid)):
            first, last = found.get(stream.path, (stream.first, stream.last))
            found[stream.path] = (min(first, stream.first), max(last, stream.last))
    return found


def _attempts(one: Communicator, logs: Logs) -> set[int]:
    streams = (stream for member in one.members for stream in logs.of((member.node, member.pid)))
    return {attempt for stream in streams for attempt in stream.attempts}
