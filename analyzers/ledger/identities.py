"""Who is who: which rank a process is, which group a name means, which member a group's rank is.

Only what is equal on all ranks joins anything: a group's GUID, a communicator's commId, (node, pid), a PCI
address on its node. Ids and pointers that are local to a process never do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from hangscope.model.loose import (
    FlightRecord,
    LogEvent,
    LooseFact,
    Origin,
    ProcessState,
    RasReport,
    StackDump,
)
from hangscope.model.ranges import rank_ranges

from .unnamed_groups import UnnamedGroups, is_unnamed

WORLD = "world"
"""The name that the ledger gives to the group of all ranks."""

_WORLD_NAMES = frozenset({"0", "default_pg", "world"})
_WORLD_DESCRIPTIONS = frozenset({"default_pg"})

Process = tuple[str, int]
"""(node, pid)."""

_Value = TypeVar("_Value", str, int)


def group_key(name: str | None, desc: str | None = None) -> str | None:
    """The group as the ledger calls it: torch gives the group of all ranks GUID 0 and the description
    ``default_pg`` (distributed_c10d.py, 2.3 and later). None where nothing names the group.

    >>> group_key("0", "default_pg"), group_key("51", "tp"), group_key(None)
    ('world', '51', None)
    """
    if desc in _WORLD_DESCRIPTIONS or (name in _WORLD_NAMES and not desc):
        return WORLD
    return name


class Identities:
    """Indexes over the facts of one attempt of one job. ``conflicts`` tells what contradicts itself."""

    def __init__(self, facts: Sequence[LooseFact], world_size: int | None = None) -> None:
        """``world_size``: what NCCL's communicators show, used where nothing else tells."""
        self.conflicts: list[str] = []
        self.world_size: int | None = None
        self.nodes: dict[int, str] = {}
        self.pids: dict[int, int] = {}
        self._ranks: dict[Process, int] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        self._group_ranks: dict[tuple[str, int], int] = {}
        self._namesakes: dict[str, dict[int, str]] = {}
        """name → rank → its own group, where several groups have one name."""
        self._by_pid: dict[int, list[tuple[str, int]]] = {}
        self._only_world = _only_world(facts)
        self._one_node = False
        self._read_processes(facts)
        self._read_members(facts)
        self.world_size = self._size(facts, world_size)
        self.at_least = self.world_size if self.world_size is not None else _at_least(facts)
        """All ranks below it are of the job, whether anything was read of them or not."""
        if self.world_size is not None:
            self._members[WORLD] = tuple(range(self.world_size))
        self.communicators = self._communicators(facts)
        self.unnamed = UnnamedGroups(facts, self.world_size, only_world=self._only_world)

    @property
    def only_world(self) -> bool:
        """No source names any group but that of all ranks."""
        return self._only_world

    def rank_of(self, origin: Origin) -> int | None:
        """The global rank that wrote it; None where nothing tells."""
        if origin.rank is not None:
            return origin.rank
        found = self.rank_of_process(origin.node, origin.pid)
        if found is None and self._one_node:
            return origin.local_rank
        return found

    def rank_of_process(self, node: str | None, pid: int | None) -> int | None:
        """The rank of the process; where the node is not known, of the only process with that pid."""
        if pid is None:
            return None
        known = self._ranks.get((node or "", pid))
        if known is not None:
            return known
        found = {rank for there, rank in self._by_pid.get(pid, ()) if not node or not there or there == node}
        return found.pop() if len(found) == 1 else None

    def key(self, name: str | None, desc: str | None, rank: int | None) -> str | None:
        """The group that the rank means by that name."""
        key = group_key(name, desc)
        if key is None or key not in self._namesakes:
            return key
        return self._namesakes[key].get(rank if rank is not None else -1)

    def members(self, group: str) -> tuple[int, ...] | None:
        """The group's global ranks; None where no source lists them."""
        return self._members.get(group)

    def member(self, group: str | None, group_rank: int) -> int | None:
        """The global rank of a group's rank; None where nothing tells."""
        if group is None:  # nothing names it
            group = WORLD if self._only_world else None
        if group is None:
            return None
        if group == WORLD:
            return group_rank
        known = self._group_ranks.get((group, group_rank))
        if known is not None:
            return known
        members = self._members.get(group)
        return members[group_rank] if members is not None and 0 <= group_rank < len(members) else None

    def event_rank(self, event: LogEvent) -> int | None:
        """The global rank that printed the event."""
        rank = self.rank_of(event.origin)
        if rank is None and event.group_rank is not None:
            rank = self.member(group_key(event.group, event.group_desc), event.group_rank)
        return rank

    def about(self, event: LogEvent) -> tuple[int, ...]:
        """The global ranks that the event speaks of; those that cannot be told are left out."""
        if not event.about_group_ranks:
            return event.about
        if is_unnamed(event):
            return self.unnamed.told(event)
        group = self.key(event.group, event.group_desc, self.rank_of(event.origin))
        found = (self.member(group, rank) for rank in event.about)
        return tuple(rank for rank in found if rank is not None)

    def _read_processes(self, facts: Iterable[LooseFact]) -> None:
        claims: dict[Process, set[int]] = {}
        nodes: dict[int, Counter[str]] = {}
        pids: dict[int, Counter[int]] = {}
        for fact in facts:
            if not isinstance(fact, LogEvent | FlightRecord | StackDump | ProcessState):
                continue
            origin = fact.origin
            if origin.rank is None:
                continue
            if origin.node is not None:
                nodes.setdefault(origin.rank, Counter())[origin.node] += 1
            if origin.pid is not None:
                pids.setdefault(origin.rank, Counter())[origin.pid] += 1
            if origin.pid is not None:
                claims.setdefault((origin.node or "", origin.pid), set()).add(origin.rank)
        for process, ranks in claims.items():
            if len(ranks) == 1:
                rank = next(iter(ranks))
                self._ranks[process] = rank
                self._by_pid.setdefault(process[1], []).append((process[0], rank))
            else:
                named = ", ".join(map(str, sorted(ranks)))
                self.conflicts.append(f"pid {process[1]} on {process[0]} is called rank {named}")
        self.nodes = {rank: _most(names) for rank, names in nodes.items()}
        self.pids = {rank: _most(numbers) for rank, numbers in pids.items()}

    def _read_members(self, facts: Iterable[LooseFact]) -> None:
        told: dict[str, set[tuple[int, ...]]] = {}
        seats: dict[tuple[str, int], set[int]] = {}
        for fact in facts:
            if isinstance(fact, FlightRecord):
                for group in fact.groups:
                    key = group_key(group.name, group.desc)
                    if key is None or group.members is None:
                        continue
                    told.setdefault(key, set()).add(group.members)
            elif isinstance(fact, LogEvent) and fact.group_rank is not None:
                key, rank = group_key(fact.group, fact.group_desc), self.rank_of(fact.origin)
                if key is not None and rank is not None:
                    seats.setdefault((key, fact.group_rank), set()).add(rank)
        self._group_ranks = {seat: next(iter(ranks)) for seat, ranks in seats.items() if len(ranks) == 1}
        for key in sorted(told):
            self._take_members(key, sorted(told[key]))

    def _take_members(self, key: str, told: list[tuple[int, ...]]) -> None:
        """One list of members is the group's; lists without a rank in common are groups of one name."""
        if len(told) == 1:
            self._members[key] = told[0]
        elif sum(map(len, told)) == len({rank for members in told for rank in members}):
            for members in told:
                own = f"{key} of {rank_ranges(members)}"
                self._members[own] = members
                for rank in members:
                    self._namesakes.setdefault(key, {})[rank] = own
        else:
            self.conflicts.append(f"the members of group {key} are told in two ways")

    def _size(self, facts: Iterable[LooseFact], shown: int | None) -> int | None:
        """What the sources agree on, and what holds every rank that is named."""
        sizes: set[int] = set()
        highest = -1
        if WORLD in self._members:
            sizes.add(len(self._members[WORLD]))
        for fact in facts:
            if isinstance(fact, FlightRecord):
                highest = max(highest, fact.origin.rank if fact.origin.rank is not None else -1)
                if fact.world_size:
                    sizes.add(fact.world_size)
            elif isinstance(fact, LogEvent):
                highest = max(highest, fact.origin.rank if fact.origin.rank is not None else -1)
                if fact.world_size and _tells_world(fact):
                    sizes.add(fact.world_size)
                    self._one_node |= fact.about == tuple(range(fact.world_size))
            elif isinstance(fact, RasReport):
                processes = {
                    (r.node, r.pid, r.gpu) for c in fact.communicators for r in (*c.ranks, *c.missing)
                }
                largest = max((c.size for c in fact.communicators), default=0)
                if largest and largest in (len(processes), fact.gpus):
                    sizes.add(largest)
        if len(sizes) > 1:
            self.conflicts.append("the number of ranks is told as " + " and ".join(map(str, sorted(sizes))))
            return None
        size = sizes.pop() if sizes else shown
        return size if size is not None and highest < size else None

    def _communicators(self, facts: Iterable[LooseFact]) -> dict[str, dict[int, int]]:
        """communicator → its rank → global rank. A communicator as large as the job has the job's order, as
        torch and every launcher number it; of a smaller one the processes tell."""
        found: dict[str, dict[int, int]] = {}
        sizes: dict[str, int] = {}
        for fact in facts:
            if isinstance(fact, RasReport):
                for communicator in fact.communicators:
                    sizes[communicator.hash] = communicator.size
                    table = found.setdefault(communicator.hash, {})
                    for item in (*communicator.ranks, *communicator.missing):
                        rank = self.rank_of_process(item.node, item.pid)
                        if rank is not None:
                            table[item.rank] = rank
            elif isinstance(fact, LogEvent) and fact.communicator is not None:
                if fact.world_size:
                    sizes[fact.communicator] = fact.world_size
                rank = self.rank_of(fact.origin)
                if fact.group_rank is not None and rank is not None:
                    found.setdefault(fact.communicator, {})[fact.group_rank] = rank
        for name, size in sizes.items():
            if size == self.world_size and all(key == rank for key, rank in found.get(name, {}).items()):
                found[name] = {rank: rank for rank in range(size)}
        self.communicator_sizes: Mapping[str, int] = sizes
        return found


MOST_RANKS = 1 << 17
"""A rank beyond it is not taken at its word: no job is so large."""


def _at_least(facts: Iterable[LooseFact]) -> int:
    """One more than the highest rank that any fact names."""
    highest = -1
    for fact in facts:
        origin = getattr(fact, "origin", None)
        told = [origin.rank if origin is not None else None]
        if isinstance(fact, FlightRecord) and fact.at_least is not None:
            told.append(fact.at_least - 1)
        elif isinstance(fact, LogEvent) and not fact.about_group_ranks:
            told += fact.about
        highest = max(highest, *(rank for rank in told if rank is not None and rank < MOST_RANKS), -1)
    return highest + 1


def _tells_world(event: LogEvent) -> bool:
    """Whether its size is that of the job: a launcher's, or of the first group that is made."""
    return event.kind == "restart" or (event.key or "").endswith("store_based_barrier_key:1")


def _only_world(facts: Iterable[LooseFact]) -> bool:
    """No source names any group but that of all ranks, and nobody's rank in a group is another one than its
    global rank: what names no group is about all ranks."""
    for fact in facts:
        if isinstance(fact, FlightRecord):
            if any(group_key(group.name, group.desc) != WORLD for group in fact.groups):
                return False
        elif isinstance(fact, LogEvent):
            if group_key(fact.group, fact.group_desc) not in (None, WORLD):
                return False
            told = fact.origin.rank is not None and fact.group_rank is not None and not fact.communicator
            if told and fact.origin.rank != fact.group_rank:
                return False
    return True


def _most(counts: Counter[_Value]) -> _Value:
    """The value that most facts tell; of equal ones the smallest, whatever the order of the facts."""
    top = max(counts.values())
    return min(value for value, count in counts.items() if count == top)
