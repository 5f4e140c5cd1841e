"""NCCL's log into lanes: collectives launched per communicator, and communicators that were never formed.

A launch is no completion: only unequal counts show who waits, and a log that may have been cut names nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, LogEvent, LooseFact

from .communicator import Communicator, Member
from .identities import WORLD
from .lanes import Lane, Lanes, Occurrence
from .nccl import communicators


def communicators_of(facts: Sequence[LooseFact]) -> tuple[Communicator, ...]:
    """The communicators of this attempt that the logs show."""
    events = [fact for fact in facts if isinstance(fact, LogEvent) and fact.kind.startswith("nccl-")]
    if not events:
        return ()
    written = {
        fact.ref.artifact: fact.written for fact in facts if isinstance(fact, FlightRecord) and fact.written
    }
    return tuple(one for one in communicators(events, written) if not one.superseded)


def add_launches(lanes: Lanes, found: Sequence[Communicator]) -> None:
    """Enters every communicator whose ranks' global numbers are known."""
    for one in found:
        if one.forming and not _formed(one):
            _add_forming(lanes, one)
        _add_difference(lanes, one)
        if one.lag is not None and not one.lag.doubts:
            _add_lag(lanes, one)


def _formed(one: Communicator) -> bool:
    return any(member.complete or member.launched for member in one.members)


def _lane(lanes: Lanes, one: Communicator, counter: str, *, counted: bool) -> Lane:
    members = tuple(one.global_rank(rank) for rank in range(one.size))
    known = None if None in members else tuple(rank for rank in members if rank is not None)
    lane = lanes.lane(f"{counter}:{one.key}", WORLD if one.world else one.key, known, counted=counted)
    lane.gpu = True
    return lane


def _add_forming(lanes: Lanes, one: Communicator) -> None:
    """Everybody must begin to form it. Before 2.23 START follows the first exchange of all, so that a rank
    without it may have come."""
    lane = _lane(lanes, one, "init", counted=False)
    for rank in one.forming:
        member = one.member(rank)
        where = one.global_rank(rank)
        if member is not None and where is not None:
            label = f"the forming of communicator {one.key}"
            lane.standing(where).add(Occurrence(sequence=1, label=label, ref=member.ref))
    if not one.start_is_early or one.joined_by not in ("commId", "split"):
        return
    spoken = set(one.outsiders)
    for rank in one.absent:
        where = one.global_rank(rank)
        if where is not None and len(spoken) >= len(one.absent):
            standing = lane.standing(where)
            standing.limit(0, firm=False)
            standing.refs.append(one.members[0].ref)


def _add_lag(lanes: Lanes, one: Communicator) -> None:
    lag = one.lag
    assert lag is not None
    lane = _lane(lanes, one, "nccl", counted=True)
    for member in one.members:
        where = one.global_rank(member.rank)
        if where is None or member.position is None:
            continue
        standing = lane.standing(where)
        standing.limit(member.position, firm=True)
        standing.refs.append(member.last.ref if member.last is not None else member.ref)
        if member.rank in lag.behind:
            standing.complete(member.position)
        else:
            standing.completed = lag.sequence - 1
            label = lag.missing.operation if lag.missing is not None else None
            standing.add(Occurrence(sequence=lag.sequence, label=label, ref=_ref(member)))
            standing.enter(member.position)


def _add_difference(lanes: Lanes, one: Communicator) -> None:
    """Launches that differ at one place: each party's view as one operation."""
    found = one.difference
    if found is None:
        return
    lane = _lane(lanes, one, "nccl", counted=True)
    for text, ranks in found.views:
        for rank in ranks:
            where, member = one.global_rank(rank), one.member(rank)
            if where is not None and member is not None:
                lane.standing(where).add(
                    Occurrence(sequence=found.position, label=text, ref=_ref(member), recorded=True)
                )


def _ref(member: Member) -> Ref:
    return member.last.ref if member.last is not None else member.ref
