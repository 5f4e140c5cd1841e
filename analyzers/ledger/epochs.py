"""One attempt of a job: what an earlier one left is stale, told and not joined.

Attempts are told apart by the restart count in a path or behind a launcher's line, and by time: a dump that
was written before the others' newest operation began is of another moment, whatever it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from hangscope.model.loose import FlightRecord, LogEvent, LooseFact, Origin
from hangscope.model.ranges import ranks_phrase

WRITTEN_BEFORE = 60.0
"""Seconds by which a dump's file may be older than the others' newest operation."""

OLDER = 3600.0
"""Seconds between the newest entries of two dumps, where files have no times."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of the newest attempt. ``notes``: what was left out; ``unequal``: nodes or ranks that
    stand at different restart counts."""

    facts: tuple[LooseFact, ...]
    notes: tuple[str, ...] = ()
    unequal: str | None = None
    number: int | None = None


def newest_attempt(facts: Sequence[LooseFact]) -> Attempt:
    """Splits off everything that provably belongs to an earlier attempt."""
    numbers = _numbers(facts)
    known = [number for number in numbers if number is not None]
    newest = max(known, default=None)
    kept = [f for f, n in zip(facts, numbers, strict=True) if n is None or n == newest]
    older = [f for f, n in zip(facts, numbers, strict=True) if n is not None and n != newest]
    notes = []
    if older:
        notes.append(f"{len(older)} facts are stale: they are of an attempt before restart {newest}")
        ends = [f.text for f in older if isinstance(f, LogEvent) and f.kind == "exit-first"]
        notes += [f"an earlier attempt ended so: {text[:120]}" for text in dict.fromkeys(ends[:2])]
    begun = _begun(facts, newest)
    kept, stale = _fresh(kept, begun)
    if stale:
        ranks = {fact.origin.rank for fact in stale if fact.origin.rank is not None}
        notes.append(
            f"the flight-recorder dumps of {ranks_phrase(ranks)} are stale: an earlier attempt left them"
        )
    kept, doubled = _one_a_rank(kept)
    if doubled:
        notes.append(f"older dumps of {ranks_phrase(doubled)} are stale: a newer one is there")
    return Attempt(facts=tuple(kept), notes=tuple(notes), unequal=_unequal(facts, numbers), number=newest)


def _numbers(facts: Sequence[LooseFact]) -> list[int | None]:
    """The restart count of every fact: what stands behind a restart in a launcher's log is of it."""
    told = [_origin(fact).attempt for fact in facts]
    restarts: dict[str, list[tuple[int, int]]] = {}
    for fact in facts:
        if isinstance(fact, LogEvent) and fact.kind == "restart" and fact.origin.attempt is not None:
            restarts.setdefault(fact.ref.artifact, []).append((fact.ref.line or 0, fact.origin.attempt))
    for rows in restarts.values():
        rows.sort()
    found: list[int | None] = []
    for fact, number in zip(facts, told, strict=True):
        rows = restarts.get(fact.ref.artifact, [])
        if number is None and rows and fact.ref.line is not None:
            before = [attempt for line, attempt in rows if line <= fact.ref.line]
            number = before[-1] if before else max(rows[0][1] - 1, 0)
        found.append(number)
    return found


def _origin(fact: LooseFact) -> Origin:
    return getattr(fact, "origin", Origin())


def _begun(facts: Iterable[LooseFact], newest: int | None) -> float | None:
    """Wall time at which the newest attempt began, as the first launcher says."""
    if not newest:
        return None
    walls = [
        fact.origin.wall
        for fact in facts
        if isinstance(fact, LogEvent)
        and fact.kind == "restart"
        and fact.origin.attempt == newest
        and fact.origin.wall is not None
    ]
    return min(walls, default=None)


def _fresh(facts: Sequence[LooseFact], begun: float | None) -> tuple[list[LooseFact], list[FlightRecord]]:
    """Without the dumps that are older than the attempt, or than what the other dumps show."""
    records = [fact for fact in facts if isinstance(fact, FlightRecord)]
    newest = [record.newest_ns / 1e9 for record in records if record.newest_ns]
    middle = median(newest) if len(newest) > 2 else max(newest, default=None)
    stale = [record for record in records if _is_stale(record, begun, middle)]
    left = {id(record) for record in stale}
    return [fact for fact in facts if id(fact) not in left], stale


def _is_stale(record: FlightRecord, begun: float | None, middle: float | None) -> bool:
    own = record.newest_ns / 1e9 if record.newest_ns else None
    if begun is not None and own is not None and own < begun - 1.0:
        return True
    if middle is None:
        return False
    if record.written is not None and record.written < middle - WRITTEN_BEFORE:
        return True
    return own is not None and own < middle - OLDER


def _one_a_rank(facts: Sequence[LooseFact]) -> tuple[list[LooseFact], set[int]]:
    """The newest dump of every rank. Equal ones count once."""
    best: dict[int, FlightRecord] = {}
    for fact in facts:
        if isinstance(fact, FlightRecord) and fact.origin.rank is not None:
            known = best.get(fact.origin.rank)
            if known is None or _age(fact) > _age(known):
                best[fact.origin.rank] = fact
    kept: list[LooseFact] = []
    doubled: set[int] = set()
    for fact in facts:
        if isinstance(fact, FlightRecord) and fact.origin.rank is not None:
            winner = best[fact.origin.rank]
            if fact is not winner:
                if _age(fact)[:2] != _age(winner)[:2]:
                    doubled.add(fact.origin.rank)
                continue
        kept.append(fact)
    return kept, doubled


def _age(record: FlightRecord) -> tuple[int, float, bool, int, str]:
    whole = record.partial is None
    return (record.newest_ns or 0, record.written or 0.0, whole, record.entries, record.ref.artifact)


def _unequal(facts: Sequence[LooseFact], numbers: Sequence[int | None]) -> str | None:
    """Nodes, else ranks, whose newest attempts differ."""
    for name in ("node", "rank"):
        newest: dict[object, int] = {}
        for fact, number in zip(facts, numbers, strict=True):
            owner = getattr(_origin(fact), name)
            if owner is not None and number is not None:
                newest[owner] = max(newest.get(owner, number), number)
        if len(set(newest.values())) > 1:
            low, high = min(newest.values()), max(newest.values())
            behind = sorted(str(owner) for owner, number in newest.items() if number < high)
            return f"{name} {', '.join(behind[:4])} is at restart {low}, others at {high}"
    return None
