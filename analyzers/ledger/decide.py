"""The choice among the findings, and how sure it is.

Evidence of logs, recorders and RAS alone is never *high*: it shows who has not come, not what holds it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from hangscope.model.loose import FlightRecord, LogEvent
from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import Confidence

from .age import doubt
from .arrivals import host_may_wait, unmet
from .finding import Cap, Finding
from .findings import findings_of
from .hidden_waits import IN_TROUBLE
from .lines import OPINIONS
from .picture import Picture, broken_devices, is_arrival

MISSING = frozenset({"stall-missing", "store-timeout", "barrier-missing"})
"""Kinds whose text names who has not come."""

LEVELS: tuple[Confidence, ...] = ("low", "medium", "high")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``finding`` is the verdict's; ``others`` stand beside it; ``unknown`` could be the root as well."""

    finding: Finding
    others: tuple[Finding, ...] = ()
    unknown: tuple[int, ...] = ()
    confidence: Confidence
    why_not_higher: str


def decide(picture: Picture) -> Decision:
    """Returns the verdict's finding. Nobody is named while counts move, nor where clocks of two nodes would
    have to decide."""
    if picture.ras.moved:
        fact = "the numbers of launched operations grew between two RAS reports"
        return _made(picture, Finding(kind="slow", fact=fact), ())
    found = findings_of(picture)
    found += [finding for finding in _unwaited(picture) if not _told(finding, found)]
    if not found:
        return _made(picture, _nothing(picture), ())
    first, rest = found[0], found[1:]
    if first.kind == "rank-absent" and picture.absences.doubt:
        first = msgspec.structs.replace(first, kind="undecided", fact=picture.absences.doubt, ranks=())
    return _made(picture, first, tuple(rest))


def _told(finding: Finding, found: list[Finding]) -> bool:
    """Whether others name all whom it names."""
    return bool(finding.ranks) and any(set(finding.ranks) <= set(other.ranks) for other in found)


def _unwaited(picture: Picture) -> list[Finding]:
    """Ends that no waiting rank leads to: proven deaths, and texts that name a mismatch by themselves."""
    found = []
    first = picture.absences.first
    for cause in sorted({item.cause for item in first}):
        same = [item for item in first if item.cause == cause]
        ranks = tuple(sorted(item.rank for item in same))
        victims = tuple(sorted(set.union(*_lost(picture).values()) - set(ranks)))
        finding = Finding(
            kind="rank-absent", ranks=ranks, cause=cause, fact="; ".join(item.text for item in same[:3]),
            victims=victims, caps=() if victims else (("low", "no rank was seen to wait for it"),),
        )  # fmt: skip
        found.append(finding)
    for rank, event in sorted(broken_devices(picture.machine).items()):
        finding = Finding(
            kind="rank-blocked", type="gpu", ranks=(rank,), cause=event.cause, hard=True, at=event.pci,
            fact=f"{event.text} (rank {rank}, by {event.tie})",
            caps=(("low", "no rank was seen to wait for it"),),
        )  # fmt: skip
        found.append(finding)
    found += [*_mismatch_texts(picture), *_missing_by_text(picture)]
    return found


def _missing_by_text(picture: Picture) -> list[Finding]:
    """A framework that says who has not come says itself that others wait, whoever they are. Lists of several
    keys name those who are in all of them."""
    events = [
        fact
        for fact in picture.facts
        if isinstance(fact, LogEvent) and fact.kind in MISSING and fact.counter not in OPINIONS and fact.about
    ]
    lists = [set(picture.who.about(event)) for event in events]
    if unmet(picture.facts) is not None:  # whom a key names may itself wait for who has not come
        return []
    keys = [event.key or "" for event in events]
    if lists and host_may_wait(picture.facts, min(set.intersection(*lists), default=-1), keys):
        return []
    if not lists or any(is_arrival(operation) for operation in picture.operations):
        return []
    ranks = tuple(sorted(set.intersection(*lists)))
    if not ranks:
        return []
    fact = f"{ranks_phrase(ranks)} did not come to {events[0].key or 'the operation'}"
    return [
        Finding(
            kind="rank-blocked", ranks=ranks, fact=fact, caps=(("low", "no rank was seen to wait for it"),)
        )
    ]


def _mismatch_texts(picture: Picture) -> list[Finding]:
    """A framework's own words that two ranks differ: whom it names first is who prints."""
    if picture.drawn.differences:
        return []
    events = [
        fact
        for fact in picture.facts
        if isinstance(fact, LogEvent)
        and fact.kind in ("fingerprint-mismatch", "nccl-mismatch")
        and fact.counter not in OPINIONS
    ]
    if not events:
        return []
    event = min(events, key=lambda item: (item.ref.artifact, item.ref.line or 0))
    ranks = {rank for item in events for rank in picture.who.about(item)}
    return [
        Finding(
            kind="mismatch",
            victims=tuple(sorted(ranks)),
            cause="collective-order-mismatch",
            fact=event.text[:160],
            caps=(("medium", "the text names two ranks that differ, not which of them left the path"),),
        )
    ]


def _nothing(picture: Picture) -> Finding:
    """No wait leads anywhere: all dumps are whole and nothing is unfinished, or nothing tells."""
    if picture.seen and not picture.waiting and _all_at_rest(picture):
        return Finding(kind="not-stuck", fact="no recorded operation is unfinished on any rank")
    away = tuple(sorted({*picture.ras.dead, *picture.ras.silent}))
    if away:
        fact = f"NCCL's RAS cannot reach {ranks_phrase(away)}: stopped, dead or cut off"
        return Finding(kind="undecided", fact=fact, unknown=away)
    store = unmet(picture.facts)
    if store is not None:
        fact = f"only {store.code} of {store.world_size} ranks came to the store: which did not is not told"
        return Finding(kind="undecided", fact=fact)
    gave_up = _gave_up(picture)
    if gave_up is not None:
        return gave_up
    if not picture.seen and not picture.lanes.unplaced:
        return Finding(kind="undecided", fact="nothing in it tells which rank waits for which")
    if not picture.seen:
        dumps = any(isinstance(fact, FlightRecord) for fact in picture.facts)
        what = "which ranks the dumps are of" if dumps else "which ranks the lines come from"
        return Finding(kind="undecided", fact=f"{what} is not known")
    return Finding(kind="undecided", fact="nothing in it tells what the ranks wait for")


LOST = {"gloo-timeout": "waited in vain for a peer", "gloo-closed": "lost the connection to a peer"}


def _lost(picture: Picture) -> dict[str, set[int]]:
    """Ranks by what their transport said of a peer."""
    told: dict[str, set[int]] = {kind: set() for kind in LOST}
    for fact in picture.facts:
        if isinstance(fact, LogEvent) and fact.kind in LOST:
            rank = picture.who.event_rank(fact)
            if rank is not None:
                told[fact.kind].add(rank)
    return told


def _gave_up(picture: Picture) -> Finding | None:
    """Ranks whose transport gave up on some peer: which one, its address does not tell. Those that printed
    nothing of the kind are where to look, and no more than that."""
    told = _lost(picture)
    ranks = set.union(*told.values())
    if not ranks:
        return None
    parts = [f"{ranks_phrase(told[kind])} {what}" for kind, what in LOST.items() if told[kind]]
    others = tuple(rank for rank in range(picture.who.at_least) if rank not in ranks)
    if others:
        parts.append(f"{ranks_phrase(others)} printed nothing of the kind")
    return Finding(kind="undecided", victims=tuple(sorted(ranks)), fact="; ".join(parts), unknown=others)


def _all_at_rest(picture: Picture) -> bool:
    """Every rank of the job has a whole dump, and all stand at the same operation of every group."""
    lanes = [lane for lane in picture.lanes if lane.key[0] == "torch"]
    if any(isinstance(fact, LogEvent) and fact.kind in IN_TROUBLE for fact in picture.facts):
        return False
    if not all(lane.gpu for lane in lanes):
        return False  # gloo's recorder does not note sends and receives
    if picture.silent or picture.world_size is None or not lanes or len(lanes) != len(picture.lanes.by_key):
        return False
    for lane in lanes:
        standings = list(lane.standings.values())
        if not all(standing.firm for standing in standings):
            return False
        if len({standing.bound for standing in standings}) > 1:
            return False
    return True


def _made(picture: Picture, finding: Finding, rest: tuple[Finding, ...]) -> Decision:
    unknown = set(finding.unknown)
    for other in rest:
        if set(other.victims) & set(finding.victims) or not finding.victims:
            unknown |= set(other.unknown)
    unknown -= set(finding.ranks)
    others = tuple(other for other in rest if other.kind != "undecided" and not _told(other, [finding]))
    rivals = [other for other in others if other.named and set(other.victims) & set(finding.victims)]
    caps = [*finding.caps, *_caps(picture, finding, unknown)]
    if rivals and finding.named:
        caps.append(("low", f"{rivals[0].fact} as well"))
    confidence, why = min(caps, key=lambda cap: LEVELS.index(cap[0]))
    if finding.kind == "undecided":
        confidence, why = "low", finding.fact
    return Decision(
        finding=finding,
        others=others,
        unknown=tuple(sorted(unknown | set(picture.silent) - set(finding.ranks))),
        confidence=confidence,
        why_not_higher=why,
    )


def _caps(picture: Picture, finding: Finding, unknown: set[int]) -> list[Cap]:
    caps: list[Cap] = []
    if unknown:
        caps.append(
            ("low", f"{ranks_phrase(unknown)} could be the root as well: nothing tells where {they(unknown)}")
        )
    root = finding.root
    if root is not None and root.certainty == "possible":
        caps.append(("low", "what some rank on the way has joined is not known"))
    collective = [operation for operation in finding.operations if not is_arrival(operation)]
    if any(operation.lane.counted for operation in collective) and picture.ras.moved is None:
        caps.append(("low", "one report cannot tell a rank that stands from one that is late"))
    if (
        finding.kind == "rank-blocked"
        and collective
        and all(not _firm(op, finding.ranks) for op in collective)
    ):
        caps.append(("medium", "the counter rises when the call returns: it may stand inside of the call"))
    if picture.unequal is not None:
        caps.append(("low", f"restart counts differ: {picture.unequal}"))
    if picture.who.conflicts:
        caps.append(("low", picture.who.conflicts[0]))
    if picture.silent:
        caps.append(("medium", f"nothing was read of {ranks_phrase(picture.silent)}"))
    if finding.kind == "rank-blocked" and not finding.hard:
        young = doubt(picture, finding)
        if young is not None:
            caps.append(("low", young))
    if finding.kind == "rank-blocked":
        caps.append(("medium", "what it does instead was not captured"))
    caps.append(("medium", "dumps and logs show who has not come, not what holds it"))
    return caps


def they(ranks: Collection[int]) -> str:
    """``it stands`` or ``they stand``."""
    return "it stands" if len(ranks) == 1 else "they stand"


def _firm(operation: object, ranks: tuple[int, ...]) -> bool:
    standings = operation.lane.standings  # type: ignore[attr-defined]
    return all(rank not in standings or standings[rank].firm for rank in ranks)
