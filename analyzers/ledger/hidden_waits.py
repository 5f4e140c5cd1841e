"""Waits that a source is silent about. A rank that has not joined is the end of the waiting only where it
would be seen if it waited itself.

A whole recorder shows every wait of its rank. Counts of launches (RAS, NCCL's log) show no completion and no
transfer; a status line shows one group of its rank; a barrier's message nothing of those who did not come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.model.loose import FlightRecord, LogEvent, StackDump
from hangscope.model.ranges import ranks_phrase

from ..readers.names import origin_of_name
from .alignment import Operation
from .identities import WORLD
from .picture import Picture, is_arrival

OF_OTHERS = frozenset({"exit", "exit-first", "terminated-by-launcher", "restart", "task-killed"})
"""What a launcher says of a rank; not the rank's own words."""
IN_TROUBLE = frozenset({"gloo-timeout", "gloo-closed", "barrier-missing", "stall-waiting", "wait-timeout"})
"""Words of a rank that waited in communication itself."""


def hidden_wait(picture: Picture, ranks: Sequence[int], operations: Sequence[Operation]) -> str | None:
    """Why these ranks, which have not joined the operations, may wait for another one; None where their
    sources would show it."""
    recorded = _recorded(picture)
    silent = set(_without_transfers(picture, ranks))
    if silent:
        silent |= _candidates(picture, operations)
    groups = {lane.key[1] for lane in picture.lanes if lane.key[0] == "torch"}
    if len(silent) > 1 or (silent and len(groups) > 1):
        return f"{ranks_phrase(silent)} may wait in a send or receive, which gloo's recorder does not note"
    leading = [operation for operation in operations if set(operation.lacking) & set(ranks)]
    if recorded.keys() & set(ranks) and leading and all(operation.lane.counted for operation in leading):
        return f"the recorders of {ranks_phrase(ranks)} do not show what the launches say: another moment"
    unseen = [rank for rank in ranks if rank not in recorded]
    proof = [operation for operation in operations if set(operation.lacking) & set(unseen)]
    if not proof:
        return None
    if unread := _unread(picture, unseen):
        return f"only others speak of {ranks_phrase(unread)}: its own log is missing"
    if all(operation.lane.counted for operation in proof):
        return _of_counts(picture, unseen, proof)
    if all(is_arrival(operation) for operation in proof):
        return _of_barriers(picture, unseen, proof)
    return _of_lines(picture, proof)


def unnoted(picture: Picture, ranks: Sequence[int]) -> str | None:
    """What makes a rank that gloo's recorder shows less sure; None where its stack is there."""
    silent = _without_transfers(picture, ranks)
    if not silent:
        return None
    return f"{ranks_phrase(silent)} may wait in a send or receive, which gloo's recorder does not note"


def _without_transfers(picture: Picture, ranks: Iterable[int]) -> list[int]:
    """Those of which only gloo's recorder tells where they stand: their stacks would show a transfer."""
    recorded = _recorded(picture)
    shown = {picture.who.rank_of(fact.origin) for fact in picture.facts if isinstance(fact, StackDump)}
    return [rank for rank in ranks if recorded.get(rank) == "gloo" and rank not in shown]


def _unread(picture: Picture, ranks: Iterable[int]) -> list[int]:
    """Ranks without a word of their own, where each rank has a log of its own, or all print at a dump."""
    events = [fact for fact in picture.facts if isinstance(fact, LogEvent)]
    words = [e for e in events if e.kind not in OF_OTHERS and not e.kind.startswith("nccl-")]
    if not _apart(words) and not any(event.kind in ("dump-sent", "dump-received") for event in words):
        return []
    speaking = {picture.who.event_rank(event) for event in words}
    return [rank for rank in ranks if rank not in speaking]


def _apart(words: Iterable[LogEvent]) -> bool:
    """Whether some rank has a log of its own: its name says whose it is, and nobody else writes in it."""
    writers: dict[str, set[int | None]] = {}
    for event in words:
        writers.setdefault(event.ref.artifact, set()).add(event.origin.rank)
    named = {path: origin_of_name(path).rank for path in writers}
    return any(named[path] is not None and ranks <= {named[path], None} for path, ranks in writers.items())


def _recorded(picture: Picture) -> dict[int, str]:
    """Ranks whose recorder was read to its end, with the back end that it names."""
    found = (fact for fact in picture.facts if isinstance(fact, FlightRecord) and fact.partial is None)
    return {fact.origin.rank: fact.backend for fact in found if fact.origin.rank is not None}


def _candidates(picture: Picture, operations: Iterable[Operation]) -> set[int]:
    """Ranks that may not have come, and of which nothing shows a wait."""
    found = {rank for operation in operations for rank in (*operation.lacking, *operation.unknown)}
    return found - set(picture.waiting)


def _of_counts(picture: Picture, ranks: Sequence[int], operations: Sequence[Operation]) -> str | None:
    behind = {rank for operation in operations for rank in operation.lacking}
    if len(behind) > 1:
        return f"launches do not show which of {ranks_phrase(behind)} waits for another one of them"
    rank = ranks[0]
    if any(op.lane.key[0].startswith("ras:") and len(op.joined) + len(op.lacking) < 3 for op in operations):
        return f"of two ranks either may have left the path: counts do not show what rank {rank} is in"
    keys = {operation.lane.key[0].rpartition(":")[2] for operation in operations}
    for name, members in sorted(picture.who.communicators.items()):
        size = picture.who.communicator_sizes.get(name, 0)
        inside = rank in members.values() or len(members) < size
        if name not in keys and size > 1 and inside:
            return f"rank {rank} may wait in communicator {name}: launches do not show what is finished"
    if rank in picture.transferring:
        return f"rank {rank} sends or receives as well, and may wait there: launches do not show it"
    return None


def _of_barriers(picture: Picture, ranks: Sequence[int], operations: Sequence[Operation]) -> str | None:
    """Whoever did not come and speaks of a wait of his own is held up by somebody else."""
    if any(operation.lane.key[0].startswith(("init", "store")) for operation in operations):
        return None
    events = (f for f in picture.facts if isinstance(f, LogEvent) and f.kind in IN_TROUBLE)
    waiting = {picture.who.event_rank(event) for event in events}
    held = [rank for rank in ranks if rank in waiting]
    if not held:
        return None
    return f"{ranks_phrase(held)} did not come to {operations[0].name}, and waits in communication itself"


def _of_lines(picture: Picture, operations: Sequence[Operation]) -> str | None:
    """In a job of several groups the line of one group does not show a wait in another one."""
    candidates = _candidates(picture, operations)
    others = {
        lane.key[1] for lane in picture.lanes if not lane.counted and not lane.key[0].startswith("init")
    }
    if len(candidates) < 2 or not others - {WORLD}:
        return None
    return f"{ranks_phrase(candidates)} are in other groups too: no line tells which of them waits there"
