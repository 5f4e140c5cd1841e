"""All that is known of one attempt of one job: lanes, operations, transfers, absences, the graph."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Gpu, KernelEvent
from hangscope.model.loose import FlightRecord, LogEvent, LooseFact, RasCommunicator, RasReport

from ..solve import Solution, solve
from .absences import Absences, absences_of
from .alignment import Operation, operations_of
from .communicator import Communicator
from .differences import Difference, difference_at
from .graph import Drawn, draw
from .identities import WORLD, Identities
from .lanes import Lane, Lanes
from .launches import add_launches, communicators_of
from .lines import add_lines
from .machine import Machine, MachineEvent, machine_events
from .placement import identities_of
from .ras import RasPicture, add_ras
from .records import add_records
from .transfers import Transfer, transfers_of


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What the verdict is made from."""

    job: str | None
    facts: Sequence[LooseFact]
    who: Identities
    lanes: Lanes
    operations: tuple[Operation, ...]
    transfers: tuple[Transfer, ...]
    differences: dict[str, Difference]
    absences: Absences
    ras: RasPicture
    machine: Machine
    drawn: Drawn
    solution: Solution
    seen: frozenset[int]
    """Ranks of which some fact speaks for itself: a dump, a line, a report."""
    transferring: frozenset[int] = frozenset()
    """Ranks whose NCCL log shows sends or receives."""
    notes: tuple[str, ...] = ()
    unequal: str | None = None
    """Nodes or ranks that stand at different restart counts."""

    @property
    def world_size(self) -> int | None:
        return self.who.world_size

    @property
    def waiting(self) -> tuple[int, ...]:
        """Ranks that stand in an unfinished operation."""
        return tuple(sorted(self.drawn.starts))

    @property
    def silent(self) -> tuple[int, ...]:
        """Ranks of the job (those that must exist, where no source counts them) of which nothing was read."""
        return tuple(rank for rank in range(self.who.at_least) if rank not in self.seen)


def picture_of(
    facts: Sequence[LooseFact],
    *,
    job: str | None = None,
    notes: Sequence[str] = (),
    unequal: str | None = None,
) -> Picture:
    """Returns the picture of the facts of one attempt."""
    communicators = communicators_of(facts)
    who = Identities(facts, next((one.size for one in communicators if one.world), None))
    lanes = Lanes()
    records = [fact for fact in facts if isinstance(fact, FlightRecord)]
    events = [fact for fact in facts if isinstance(fact, LogEvent)]
    add_records(lanes, records, who)
    add_lines(lanes, events, who)
    add_launches(lanes, communicators)
    ras = add_ras(lanes, [fact for fact in facts if isinstance(fact, RasReport)], who)
    seen = _seen(facts, who, lanes)
    silent = set(range(who.at_least)) - seen
    for lane in lanes:
        of_all = lane.key[1] == WORLD and not is_arrival_lane(lane)
        lane.expected = set(range(who.at_least)) if of_all and lane.members is None else set()
        lane.unseen = 0 if of_all else len(silent)
    operations = operations_of(lanes)
    transfers = transfers_of(records, who)
    machine = _machine(facts, who, communicators)
    absences = absences_of(facts, who, machine)
    differences = {
        operation.id: found
        for operation in operations
        if (found := difference_at(operation.lane, operation.sequence)) is not None
    }
    drawn = draw(
        operations, transfers, differences, absences.first, broken_devices(machine), _readable(records, who)
    )
    return Picture(
        job=job,
        facts=facts,
        who=who,
        lanes=lanes,
        operations=tuple(operations),
        transfers=tuple(transfers),
        differences=differences,
        absences=absences,
        ras=ras,
        machine=machine,
        drawn=drawn,
        solution=solve(drawn.graph, drawn.starts),
        seen=seen,
        transferring=frozenset(
            rank
            for one in communicators
            for member in one.members
            if member.transfers and (rank := one.global_rank(member.rank)) is not None
        ),
        notes=tuple(notes),
        unequal=unequal,
    )


def _machine(facts: Sequence[LooseFact], who: Identities, communicators: Sequence[Communicator]) -> Machine:
    """Events of the machines; who runs where is asked only where there are any."""
    if not any(isinstance(f, KernelEvent | Gpu) or getattr(f, "kind", "") == "gpu-lost" for f in facts):
        return Machine(by_rank={})
    return machine_events(facts, identities_of(facts, communicators), world_size=who.world_size)


def _readable(records: Sequence[FlightRecord], who: Identities) -> frozenset[int]:
    """All ranks of the job, where each has a recorder that was read to its end; else none."""
    whole = {record.origin.rank for record in records if record.partial is None}
    everyone = frozenset(range(who.world_size or 0))
    return everyone if everyone <= whole else frozenset()


def broken_devices(machine: Machine) -> dict[int, MachineEvent]:
    """rank → what broke its GPU, where that came first and no other rank has such an event."""
    if machine.doubt:
        return {}
    return {
        event.rank: event
        for event in machine.first
        if event.rank is not None and event.weight == 0 and event.kind.startswith(("xid", "gpu"))
    }


def _seen(facts: Sequence[LooseFact], who: Identities, lanes: Lanes) -> frozenset[int]:
    found = {rank for lane in lanes for rank, standing in lane.standings.items() if standing.known}
    for fact in facts:
        if isinstance(fact, RasReport):
            found |= {r for one in fact.communicators for r in _in_communicator(one, who)}
        origin = getattr(fact, "origin", None)
        rank = who.rank_of(origin) if origin is not None else None
        if rank is not None:
            found.add(rank)
    return frozenset(found)


def _in_communicator(one: RasCommunicator, who: Identities) -> set[int]:
    """The global ranks of which the report has data."""
    table = who.communicators.get(one.hash, {})
    return {table[item.rank] for item in one.ranks if item.rank in table}


def is_arrival(operation: Operation) -> bool:
    """A barrier or store whose message names the missing ranks itself."""
    return is_arrival_lane(operation.lane)


def is_arrival_lane(lane: Lane) -> bool:
    """Whether who stands in it waits for others to arrive."""
    return lane.key[0].partition(":")[0] in ("barrier", "stall", "store", "init")


__all__ = ["WORLD", "Picture", "is_arrival", "picture_of"]
