"""Each lane's lowest unfinished operations: who has joined, who provably not, of whom nothing is known.

Who finished an operation is innocent of it. One member that finished a symmetric collective proves that all
have joined it; a dump that says otherwise was taken earlier, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .identities import WORLD
from .lanes import SYMMETRIC, Lane, Lanes, Occurrence, family

MOMENT = 1.0
"""Seconds within which the clocks of two nodes tell no order."""

YOUNG = 2.0
"""Seconds for which a rank waits now and then in a job that runs well."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation in which somebody waits. All ranks are global and sorted."""

    id: str
    lane: Lane
    sequence: int
    label: str
    waiting: tuple[int, ...]
    """It is their lowest unfinished operation of the lane."""
    joined: tuple[int, ...]
    lacking: tuple[int, ...]
    """Proven not to have entered it."""
    unknown: tuple[int, ...]
    """Members of which nothing is known here."""
    finished: tuple[int, ...]
    open_ended: bool
    """Who the members are is not known: others may have to join."""
    started: tuple[int, ...] = ()
    queued: tuple[int, ...] = ()
    """Entered, and not started on the device, where their source would tell."""
    created_ns: int | None = None
    """When the last of those who wait entered it."""

    @property
    def name(self) -> str:
        """``all_reduce #12 of group tp (51)``."""
        where = self.lane.label
        number = f" #{self.sequence}" if not _arrival(self.lane) else ""
        return f"{self.label}{number}" + (f" of {where}" if where else "")


def _arrival(lane: Lane) -> bool:
    return lane.key[0].partition(":")[0] in ("barrier", "stall", "store", "init")


def operations_of(lanes: Lanes) -> list[Operation]:
    """Every operation that is some rank's lowest unfinished one, by lane and sequence."""
    found = []
    for lane in lanes:
        mark_stale(lane)
        pending: dict[int, list[int]] = {}
        for rank in sorted(lane.standings):
            lowest = lane.standings[rank].lowest_pending()
            if lowest is not None:
                pending.setdefault(lowest, []).append(rank)
        found += [_operation(lane, sequence, pending[sequence]) for sequence in sorted(pending)]
    return found


def mark_stale(lane: Lane) -> None:
    """Marks the bounds that others contradict: whoever finished a symmetric collective had all with it; and
    a dump that was written before the operation began cannot say who has not joined it."""
    proven = -1
    for standing in lane.standings.values():
        for sequence, seen in standing.occurrences.items():
            if seen.recorded and seen.finished and sequence > proven and family(seen.label) in SYMMETRIC:
                proven = sequence
    lane.proven = proven
    for standing in lane.standings.values():
        if standing.bound is not None and standing.bound < proven and not lane.counted:
            standing.stale = f"another rank finished #{proven}, which nobody finishes before all have joined"


def _operation(lane: Lane, sequence: int, waiting: list[int]) -> Operation:
    members = _members(lane)
    joined, lacking, unknown, finished = [], [], [], []
    begun = _begun(lane, sequence, waiting)
    young = _is_young(lane, sequence, waiting)
    for rank in members:
        standing = lane.standings.get(rank)
        state = standing.joined(sequence) if standing is not None else None
        if state is None and sequence <= lane.proven:
            state = True
        if state is True:
            joined.append(rank)
            if standing is not None and standing.has_completed(sequence):
                finished.append(rank)
        elif state is False and not young and not _too_early(lane, rank, begun):
            lacking.append(rank)
        else:
            unknown.append(rank)
    seen = [(rank, item) for rank, item in lane.occurrences(sequence)]
    started, queued = _levels(lane, sequence, joined, finished, begun)
    times = [item.created_ns for _rank, item in seen if item.created_ns is not None and not item.finished]
    return Operation(
        id=f"op:{lane.key[0]}:{lane.key[1]}:{sequence}",
        lane=lane,
        sequence=sequence,
        label=_label([item for _rank, item in seen]),
        waiting=tuple(waiting),
        joined=tuple(joined),
        lacking=tuple(lacking),
        unknown=tuple(unknown),
        finished=tuple(finished),
        open_ended=lane.members is None and not _arrival(lane),
        started=started,
        queued=queued,
        created_ns=max(times, default=None),
    )


def _begun(lane: Lane, sequence: int, waiting: Iterable[int]) -> float | None:
    """When the first of those who wait entered it, seconds since the epoch."""
    seen = (lane.standings[rank].occurrences.get(sequence) for rank in waiting)
    times = [item.created_ns / 1e9 for item in seen if item is not None and item.created_ns]
    return min(times, default=None)


def _is_young(lane: Lane, sequence: int, waiting: Iterable[int]) -> bool:
    """Whether all who wait had only just begun when they were read: so looks every job that runs."""
    for rank in waiting:
        standing = lane.standings[rank]
        seen = standing.occurrences.get(sequence)
        created = seen.created_ns / 1e9 if seen is not None and seen.created_ns else None
        if not too_early(standing.read_at, created, YOUNG):
            return False
    return True


def too_early(read_at: float | None, begun: float | None, seconds: float = MOMENT) -> bool:
    """Whether a dump written then (seconds since the epoch) tells nothing of what began at ``begun``, so few
    ``seconds`` before."""
    return begun is not None and read_at is not None and read_at <= begun + seconds


def _too_early(lane: Lane, rank: int, begun: float | None) -> bool:
    """The rank's dump was written before the operation began, or within the clocks' doubt of it."""
    standing = lane.standings[rank]
    if not too_early(standing.read_at, begun):
        return False
    standing.stale = "its dump was written before the others began to wait"
    return True


def _members(lane: Lane) -> tuple[int, ...]:
    """The members that are known: listed by some source, else those of whom the lane speaks."""
    if lane.members is not None:
        return lane.members
    return tuple(sorted({*lane.standings, *lane.expected}))


def _levels(
    lane: Lane, sequence: int, joined: Iterable[int], finished: Iterable[int], begun: float | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Whose device has started it, and whose has it in its queue: by a look that saw the rank in it, and that
    was not taken before the others were in it."""
    started: list[int] = []
    queued: list[int] = []
    done = set(finished)
    for rank in joined:
        standing = lane.standings.get(rank)
        if rank in done or standing is None or not standing.timed:
            continue
        if standing.entered is None or standing.entered < sequence or standing.stale is not None:
            continue
        seen = standing.occurrences.get(sequence)
        running = (standing.started is not None and standing.started >= sequence) or (
            seen is not None and seen.started
        )
        if running:
            started.append(rank)
        elif not _too_early(lane, rank, begun):
            queued.append(rank)
    return tuple(started), tuple(queued)


def _label(seen: list[Occurrence]) -> str:
    """The name that most give it, a recorder's before a line's."""
    names: dict[tuple[bool, str], int] = {}
    for item in seen:
        if item.label:
            key = (item.recorded, item.label)
            names[key] = names.get(key, 0) + 1
    if not names:
        return "operation"
    return min(names, key=lambda key: (not key[0], -names[key], key[1]))[1]


def is_world(lane: Lane) -> bool:
    """The group of all ranks."""
    return lane.key[1] == WORLD
