"""Operations of process groups: each waits for every member that has not joined it.

An operation is a node, never an edge between two ranks, so that cost follows ranks and operations.
Between slots of one group the edges say *those ranks stand in another operation of the same group*.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model.graph import Certainty
from ...model.waits import WaitKind
from ..job import BLOCKED, COMMUNICATION, GONE, Job, is_transport
from ..membership import Membership
from ..presence import ABSENT
from ..recorder import Records, names
from .devices import CARRIES, Devices
from .draft import Draft
from .entries import Entries
from .links import Links
from .slots import INIT, STORE, UNNAMED, WORLD, Slot, autograd_threads

LEFT_EARLY = frozenset(
    {
        "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "scatter",
        "scatter_object_list",
    }
)  # fmt: skip
"""Operations with a root: a member may have done its part and be far ahead while others still wait in it."""

TROUBLE = (BLOCKED | GONE) - {WaitKind.POLL, WaitKind.SOCKET, WaitKind.PIPE}
"""Waits that are not a transport thread's normal poll."""

UNKNOWN_MEMBERS = "unknown:members"
"""The node that stands for whom an operation waits for, where several ranks could be it."""

Target = tuple[str, Certainty, str]
"""(node, certainty, why)."""


class Operations:
    """Draws all slots of the job."""

    def __init__(
        self, draft: Draft, entries: Entries, membership: Membership, records: Records, job: Job
    ) -> None:
        self._draft = draft
        self._entries = entries
        self._membership = membership
        self._records = records
        self._job = job
        self._alive = {r for r, presence in entries.presences.items() if presence.being == "alive"}
        self._communicating = {rank for rank in self._alive if self._in_communication(rank)}
        self._troubled = self._transport_trouble()
        self._devices = Devices(draft, membership, records)
        self._links = Links(draft)

    @property
    def devices(self) -> Devices:
        return self._devices

    def draw(self, groups: dict[str, list[Slot]]) -> None:
        every = [slot for slots in groups.values() for slot in slots]
        for group, slots in groups.items():
            for slot in slots:
                refs = tuple(j.entry.ref for j in slot.joiners if j.entry is not None)[:3]
                self._draft.node(slot.id, "operation", slot_label(slot), refs=refs)
                for joiner in slot.joiners:
                    process = self._job.ranks[joiner.rank]
                    tid = int(joiner.node.rpartition(":")[2])
                    why = joiner.wait.why or f"waits in {slot.label}"
                    self._draft.edge(self._draft.thread(process, tid), slot.id, why=why)
            self._between(group, slots)
            joined = {rank for slot in slots for rank in slot.ranks}
            for slot in slots:
                for node, certainty, why in self._waits_for(slot, joined):
                    self._draft.edge(slot.id, node, certainty=certainty, why=why)
                self._devices.operation(slot, every)
                self._links.operation(slot)

    def _between(self, group: str, slots: list[Slot]) -> None:
        """Slots of one group with other sequences or other operations wait for one another's ranks."""
        if len(slots) < 2:
            return
        levels: dict[int | None, list[Slot]] = {}
        recorded = all(slot.sequence is not None for slot in slots)
        for slot in slots:
            levels.setdefault(slot.sequence if recorded else None, []).append(slot)
        below: str | None = None
        for level in sorted(levels, key=lambda number: -1 if number is None else number):
            here = levels[level]
            for slot in here if below is not None else ():
                self._draft.edge(slot.id, below or "", why="these ranks are behind it")
            below = here[0].id
            if len(here) > 1:
                below = self._draft.node(f"group:{group}:{level}", "operation", "one operation of the group")
                for slot in here:
                    self._draft.edge(slot.id, below, why="others stand in another operation of the group")
                    self._draft.edge(below, slot.id, why="these ranks stand in it")

    def _waits_for(self, slot: Slot, joined: set[int]) -> list[Target]:
        if slot.group == STORE:
            return self._unnamed(slot, joined, possible=True)
        if slot.group == UNNAMED:
            return self._unnamed(slot, joined, possible=not self._membership.everyone)
        if slot.group == INIT:
            return self._initial(slot)
        if slot.group == WORLD:
            return self._world(slot, joined)
        return self._recorded(slot, joined)

    def _initial(self, slot: Slot) -> list[Target]:
        """Group creation waits for every rank that has not come; one with its group formed has."""
        formed = {joiner.rank for joiner in slot.joiners if self._membership.formed(joiner.rank)}
        targets: list[Target] = []
        for rank in self._others(slot.ranks):
            if rank in self._alive and self._membership.formed(rank) and not formed:
                continue
            targets.append((self._entries.rank(rank), "observed", f"rank {rank} has not come"))
        return targets

    def _world(self, slot: Slot, joined: set[int]) -> list[Target]:
        targets: list[Target] = []
        if slot.sequence is None and self._may_be_past(slot, joined):
            return self._maybe(set(self._others(joined)) - self._communicating)
        for rank in self._others(joined):
            if slot.sequence is not None and rank in self._alive:
                group = next(j.entry.group for j in slot.joiners if j.entry is not None)
                if self._records.joined(rank, group, slot.sequence):
                    continue
            targets.append((self._entries.rank(rank), "observed", f"rank {rank} has not joined"))
        return targets + self._transports(self._job.members)

    def _may_be_past(self, slot: Slot, joined: set[int]) -> bool:
        """Several ranks are outside of communication, and some of them may have finished the operation."""
        if slot.label not in LEFT_EARLY:
            return False
        outside = set(self._others(joined)) - self._communicating
        return len(outside) > 1 and not any(self._entries.presences[r].being in ABSENT for r in outside)

    def _recorded(self, slot: Slot, joined: set[int]) -> list[Target]:
        """A named group among several: members are those whose recorders list it, or sockets prove."""
        sequence = slot.sequence or 0
        group = slot.group
        listed = self._records.listed.get(group, frozenset())
        proven = listed | self._records.proven.get(group, frozenset())
        inferred = self._records.inferred.get(group, frozenset())
        certain = set(self._job.members) if self._membership.everyone else set(proven)
        targets: list[Target] = []
        for rank in sorted((certain | set(inferred)) - joined):
            how: Certainty = "observed" if rank in certain else "inferred"
            state = self._records.joined(rank, group, sequence) if rank in self._alive else False
            if state is None:
                how = "possible" if rank in self._communicating else how
            if state is not True:
                targets.append((self._entries.rank(rank), how, f"rank {rank} has not joined"))
        targets += self._transports(sorted(certain))
        if all(how == "possible" for _node, how, _why in targets):
            candidates = set(self._others(joined)) - certain - set(inferred)
            targets.extend(self._maybe({rank for rank in candidates if self._may_be_member(rank)}))
        return targets

    def _may_be_member(self, rank: int) -> bool:
        """True unless the rank's recorder names every group that the rank is in."""
        recorder = self._records.by_rank.get(rank)
        return recorder is None or self._membership.groups.get(rank, 0) > len(names(recorder))

    def _unnamed(self, slot: Slot, joined: set[int], possible: bool) -> list[Target]:
        """Several groups, and no source names this one."""
        others = set(self._others(joined)) - self._communicating
        if possible:
            return self._maybe(others)
        if self._may_be_past(slot, joined):
            return self._maybe(others)
        targets: list[Target] = [
            (self._entries.rank(rank), "observed", f"rank {rank} has not joined") for rank in sorted(others)
        ]
        return targets + self._transports(self._job.members)

    def _maybe(self, ranks: set[int]) -> list[Target]:
        """Possible members: ranks that are gone, else the only one that is in no communication; several
        of them leave open whom the operation waits for."""
        gone = {r for r in ranks if self._entries.presences[r].being in ABSENT}
        outside = gone or (ranks - self._communicating)
        why = "it may be a member, and is in no communication"
        if gone or len(outside) == 1:
            return [(self._entries.rank(rank), "possible", why) for rank in sorted(outside)]
        if not ranks:
            return []
        node = self._draft.node(
            UNKNOWN_MEMBERS, "unknown", "whom the operation waits for is not known", sink="unknown"
        )
        return [(node, "possible", "several ranks may be members")]

    def _others(self, joined: Iterable[int]) -> list[int]:
        inside = set(joined)
        return [rank for rank in self._job.members if rank not in inside]

    def _transports(self, ranks: Iterable[int]) -> list[Target]:
        return [
            (self._draft.thread(self._job.ranks[rank], tid), "observed", f"{CARRIES} rank {rank}")
            for rank in ranks
            for tid in self._troubled.get(rank, ())
        ]

    def _in_communication(self, rank: int) -> bool:
        """Waits for other ranks. One in backward does only where autograd's threads do: else they are what it
        waits for."""
        process = self._job.ranks[rank]
        kinds = {self._job.wait(process, tid).kind for tid in self._job.communicating(process)}
        if kinds != {WaitKind.AUTOGRAD}:
            return bool(kinds)
        workers = autograd_threads(self._job, process)
        return all(self._job.wait(process, tid).kind in COMMUNICATION for tid in workers)

    def _transport_trouble(self) -> dict[int, list[int]]:
        """rank → transport threads that are not in their normal poll."""
        found: dict[int, list[int]] = {}
        for rank in sorted(self._alive):
            process = self._job.ranks[rank]
            for tid, thread in sorted(self._job.threads(process).items()):
                if is_transport(thread.comm) and self._job.wait(process, tid).kind in TROUBLE:
                    found.setdefault(rank, []).append(tid)
        return found


def slot_label(slot: Slot) -> str:
    """``all_reduce #12 of group tp`` as far as it is known."""
    number = f" #{slot.sequence}" if slot.sequence is not None else ""
    known = slot.group not in (WORLD, INIT, UNNAMED, STORE)
    return f"{slot.label}{number}" + (f" of group {slot.group}" if known else "")
