"""Where each rank stands in each lane. A lane is one counter of one group or communicator: torch's sequence
of a process group, NCCL's count of a communicator, RAS's count of one kind, an arrival at a barrier.

A counter is compared only with itself on other ranks. *Joined* has levels: entered (created or enqueued),
started on the device, completed. What is not known is None, and nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hangscope.model.facts import Frame, Ref

from .identities import WORLD

LaneKey = tuple[str, str]
"""(counter, group or communicator)."""

SYMMETRIC = frozenset({"allreduce", "allgather", "reducescatter", "alltoall", "barrier", "allreducebarrier"})
"""Families in which one member can finish only after all members have joined."""

UNNAMED = "?"
"""The group of lines that name none: perhaps of several groups, so that its numbers compare with nothing."""

TRANSFERRED = "-p2p"
"""Ending of the counters of point-to-point operations, which count on each rank for itself."""

_ENDINGS = ("base", "coalesced", "intotensor", "tensor", "single", "object", "v")


def family(operation: str | None) -> str | None:
    """The operation without the spellings of back ends and call variants.

    >>> family("_ALLGATHER_BASE"), family("all_gather_into_tensor"), family("ALLREDUCE"), family(None)
    ('allgather', 'allgather', 'allreduce', None)
    """
    if not operation:
        return None
    name = operation.lower().replace("_", "").replace(" ", "").rpartition(":")[2]
    for ending in _ENDINGS:
        if name.endswith(ending) and len(name) > len(ending) + 3:
            name = name[: -len(ending)]
    return name


class Occurrence(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One rank in one operation, as one source shows it. ``sequence`` as the lane counts."""

    sequence: int
    label: str | None
    sizes: str | None = None
    dtype: str | None = None
    place: tuple[Frame, ...] = ()
    started: bool = False
    finished: bool = False
    created_ns: int | None = None
    recorded: bool = False
    """From a flight recorder; else from a line of a log."""
    seconds: float | None = None
    """How long it had lasted when a watchdog spoke."""
    ref: Ref


class Standing(msgspec.Struct, kw_only=True):
    """What is known of one rank in one lane. ``bound``: nothing above it has been entered; ``firm`` where
    that is proven (a whole recorder, a count), else the call above may just not have returned."""

    entered: int | None = None
    completed: int | None = None
    started: int | None = None
    bound: int | None = None
    firm: bool = False
    past: int | None = None
    """Everything below it was entered, as the ring buffer has gone on."""
    known: bool = False
    """Some source speaks of this rank in this lane."""
    stale: str | None = None
    """Why its bound proves nothing."""
    read_at: float | None = None
    """When its recorder was written, seconds since the epoch; None where the file does not tell."""
    timed: bool = False
    """Its source tells when a device starts an operation."""
    occurrences: dict[int, Occurrence] = {}
    refs: list[Ref] = []

    def enter(self, sequence: int) -> None:
        self.known = True
        self.entered = sequence if self.entered is None else max(self.entered, sequence)
        if self.bound is not None:
            self.bound = max(self.bound, sequence)

    def complete(self, sequence: int) -> None:
        self.enter(sequence)
        self.completed = sequence if self.completed is None else max(self.completed, sequence)

    def limit(self, sequence: int, firm: bool) -> None:
        """Nothing above the sequence was entered, as one more source says: the later state counts."""
        self.known = True
        top = max(sequence, self.entered if self.entered is not None else sequence)
        if self.bound is None or top > self.bound:
            self.bound, self.firm = top, firm
        elif top == self.bound:
            self.firm = self.firm or firm

    def add(self, occurrence: Occurrence) -> None:
        """One more view of an operation; a recorder's beats a line's, a finished one an unfinished."""
        self.enter(occurrence.sequence)
        known = self.occurrences.get(occurrence.sequence)
        if known is None or (occurrence.recorded, occurrence.finished) > (known.recorded, known.finished):
            self.occurrences[occurrence.sequence] = occurrence

    def has_completed(self, sequence: int) -> bool:
        seen = self.occurrences.get(sequence)
        if seen is not None and seen.finished:
            return True
        return self.completed is not None and self.completed >= sequence

    def joined(self, sequence: int) -> bool | None:
        """Whether it has entered the operation; None when nothing tells."""
        if self.entered is not None and self.entered >= sequence:
            return True
        if self.past is not None and self.past > sequence:
            return True
        if self.bound is not None and self.stale is None and self.bound < sequence:
            return False
        return None

    def lowest_pending(self) -> int | None:
        """The lowest operation that it has entered and not completed."""
        waiting = [s for s, o in self.occurrences.items() if not o.finished and not self.has_completed(s)]
        if waiting:
            return min(waiting)
        if self.entered is None or self.completed is None or self.entered <= self.completed:
            return None
        lowest = max(self.completed, 0) + 1
        return lowest if lowest <= self.entered else self.entered


class Lane:
    """All ranks in one lane."""

    def __init__(self, key: LaneKey, *, members: tuple[int, ...] | None, counted: bool = False) -> None:
        self.key = key
        self.members = members
        """Global ranks; None where no source lists them."""
        self.counted = counted
        """Launches are counted and completions are not: unequal counts alone show who waits."""
        self.listed: set[int] = set()
        """Ranks whose recorder knows the group."""
        self.desc = ""
        self.proven = -1
        """Everybody has joined it and all before it, as somebody finished it."""
        self.unseen = 0
        """Of how many ranks nothing was read: where no source lists the members, each may be one."""
        self.expected: set[int] = set()
        """Ranks that the group of all ranks must have, where no source lists its members."""
        self.tallied = False
        """Who is missing follows from the number of those who came: no word of his own is needed."""
        self.refused: set[int] = set()
        """Numbers at which the framework itself compared all arguments, and refused to run."""
        self.transfers = False
        """Some recorder shows point-to-point operations in the group."""
        self.gpu = False
        """NCCL and its kin carry it."""
        self.standings: dict[int, Standing] = {}

    @property
    def comparable(self) -> bool:
        """Whether one number means one operation on all its ranks."""
        return self.key[1] != UNNAMED and not self.key[0].endswith(TRANSFERRED)

    @property
    def label(self) -> str:
        """As people read it: ``group tp (51)``; empty for the group of all ranks."""
        counter, group = self.key
        if group == WORLD:
            return ""
        name = f"{self.desc} ({group})" if self.desc and self.desc != group else group
        if counter in ("torch", "desync", "detail", "torch-p2p"):
            return f"group {name}"
        return f"communicator {name}" if counter in ("nccl", "init") or self.counted else name

    def standing(self, rank: int) -> Standing:
        """The rank's standing, made where there was none."""
        found = self.standings.get(rank)
        if found is None:
            found = self.standings[rank] = Standing(occurrences={}, refs=[])
        return found

    def occurrences(self, sequence: int) -> Iterator[tuple[int, Occurrence]]:
        """Every rank's view of the operation, by rank."""
        for rank in sorted(self.standings):
            seen = self.standings[rank].occurrences.get(sequence)
            if seen is not None:
                yield rank, seen


class Lanes:
    """All lanes of a job's attempt, by key."""

    def __init__(self) -> None:
        self.by_key: dict[LaneKey, Lane] = {}
        self.notes: list[str] = []
        self.unplaced: int = 0
        """Events whose rank nobody can tell."""

    def lane(
        self, counter: str, group: str, members: tuple[int, ...] | None = None, *, counted: bool = False
    ) -> Lane:
        key = (counter, group)
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = Lane(key, members=members, counted=counted)
        elif found.members is None:
            found.members = members
        return found

    def __iter__(self) -> Iterator[Lane]:
        for key in sorted(self.by_key):
            yield self.by_key[key]
