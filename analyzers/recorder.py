"""Flight-recorder entries of all ranks, aligned per process group by sequence number.

Never by record id, never against the rank that was read first. That an entry N exists means that N was
entered, whatever the rank's counter says; a sequence below a rank's low-water mark was dropped by its
ring buffer, so the rank is past it. gloo's recorder marks completion by ``retired`` alone (torch 2.13).
"""

from __future__ import annotations

import msgspec

from ..model.facts import Operation, Recorder
from .job import Job
from .membership import Membership

UNRECORDED = frozenset({"monitored_barrier", "send", "recv", "batch_isend_irecv"})
"""Operations that gloo's recorder does not write down (torch 2.13): no entry says nothing about them."""

ALIASES = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_object": "all_gather",
    "_all_gather_base": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast_object_list": "broadcast",
    "gather_object": "gather",
    "scatter_object_list": "scatter",
}


def same_operation(frame: str | None, entry: str) -> bool:
    """True when the function that a stack shows can have written the recorder's entry.

    >>> same_operation("all_gather_into_tensor", "all_gather"), same_operation("barrier", "broadcast")
    (True, False)
    """
    return frame is not None and ALIASES.get(frame, frame) == ALIASES.get(entry, entry)


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """The newest recorder answer of every rank that gave one in its newest sample."""

    by_rank: dict[int, Recorder]
    listed: dict[str, frozenset[int]]
    """group → ranks whose recorder knows it."""
    proven: dict[str, frozenset[int]]
    """group → ranks that sockets prove to be members, beyond the listed ones."""
    inferred: dict[str, frozenset[int]]
    """group → ranks that must be members, as they have as many groups as the job has names."""

    def pending(self, rank: int, operation: str | None) -> Operation | None:
        """The unfinished entry that the rank's wait stands for: one of the operation seen on its
        stack, else the oldest. None when the operation is in no recorder."""
        recorder = self.by_rank.get(rank)
        if recorder is None or operation in UNRECORDED:
            return None
        waiting = [entry for entry in recorder.pending if not entry.retired and not entry.p2p]
        matching = [entry for entry in waiting if same_operation(operation, entry.kind)]
        return next(iter(matching or waiting), None)

    def joined(self, rank: int, group: str, sequence: int) -> bool | None:
        """Whether the rank has entered the operation; None when its recorder cannot tell."""
        recorder = self.by_rank.get(rank)
        if recorder is None:
            return None
        if any(entry.group == group and entry.sequence == sequence for entry in recorder.pending):
            return True
        if sequence < dict(recorder.low_water).get(group, 0):
            return True
        last = max(dict(recorder.last_enqueued).get(group, -1), dict(recorder.last_completed).get(group, -1))
        return last >= sequence

    def all_complete(self, rank: int) -> bool:
        """True when the rank's recorder shows operations, and none that is unfinished: what its device does
        not come back from is none of them."""
        recorder = self.by_rank.get(rank)
        if recorder is None or recorder.pending or not recorder.last_completed:
            return False
        return dict(recorder.last_completed) == dict(recorder.last_enqueued)

    def completed(self, rank: int, group: str, sequence: int) -> bool:
        """True when the rank has finished the operation: it is innocent of it."""
        recorder = self.by_rank.get(rank)
        return recorder is not None and dict(recorder.last_completed).get(group, -1) >= sequence


def records_of(job: Job, membership: Membership) -> Records:
    """Aligns the recorders of the job. Empty tables when no rank answered."""
    by_rank = {}
    for rank, process in job.ranks.items():
        newest = job.newest(process)
        answers = [r for r in process.recorders if newest is not None and r.sample == newest.sample]
        if answers:
            by_rank[rank] = answers[-1]
    listed: dict[str, set[int]] = {}
    for rank, recorder in by_rank.items():
        for group in names(recorder):
            listed.setdefault(group, set()).add(rank)
    proven = {group: _proven(membership, ranks) - ranks for group, ranks in listed.items()}
    inferred = {group: _inferred(membership, by_rank, listed, group) for group in listed}
    return Records(
        by_rank=by_rank,
        listed={group: frozenset(ranks) for group, ranks in listed.items()},
        proven={group: frozenset(ranks) for group, ranks in proven.items()},
        inferred={group: frozenset(inferred[group] - proven[group]) for group in listed},
    )


def names(recorder: Recorder) -> set[str]:
    """The groups that the rank's recorder knows."""
    named = {group for group, _sequence in (*recorder.last_enqueued, *recorder.last_completed)}
    return {*recorder.groups, *named, *(entry.group for entry in recorder.pending)} - {""}


def _proven(membership: Membership, ranks: set[int]) -> set[int]:
    found: set[int] = set()
    for rank in ranks:
        found |= membership.shares.get(rank, frozenset())
    return found


def _inferred(
    membership: Membership, by_rank: dict[int, Recorder], listed: dict[str, set[int]], group: str
) -> set[int]:
    """Ranks that do not list the group, but have exactly as many groups as there are. Recorders list a group
    from its first operation on: without one that all list, the world's own is there beside the names."""
    count = len(listed) + (not any(ranks >= by_rank.keys() for ranks in listed.values()))
    return {rank for rank in by_rank if rank not in listed[group] and membership.groups.get(rank, 0) == count}
