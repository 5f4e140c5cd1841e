"""From the decision to the verdict: chain, evidence, what speaks against it, what is missing, what to do."""

from __future__ import annotations

import datetime

from hangscope.model.loose import FlightRecord, LogEvent, RasReport
from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import (
    ChainLink,
    IndependentFinding,
    RootEntry,
    Verdict,
)

from .alignment import Operation
from .decide import Decision
from .differences import Difference
from .finding import Finding
from .grounds import against, evidence, ruled_out
from .picture import Picture
from .remedies import action_of, missing_of, next_of

LINKS = 8
LATEST = 4_102_444_800.0
"""The year 2100: what is dated behind it is no date."""

LONGEST = 30 * 86400.0
"""Seconds. No hang is left alone longer: two moments further apart are of two clocks."""


def verdict_of(picture: Picture, decision: Decision) -> Verdict:
    """Returns the verdict on loose evidence. ``initiators`` are the ranks among ``roots``."""
    finding = decision.finding
    roots = (
        tuple(_root(picture, finding, rank) for rank in finding.ranks) if finding.kind != "undecided" else ()
    )
    since, source = _since(picture, finding)
    stuck = finding.kind not in ("slow", "not-stuck")
    return Verdict(
        job=picture.job,
        kind=finding.kind,
        initiators=tuple(sorted({root.rank for root in roots if root.rank is not None})),
        cause=finding.cause if finding.kind != "undecided" else None,
        confidence=decision.confidence,
        why_not_higher=decision.why_not_higher,
        coverage=f"{_covered(picture)}/{picture.world_size if picture.world_size is not None else '?'}",
        world_size=picture.world_size,
        waiting=_waiting(picture, finding) if stuck else (),
        unknown=decision.unknown,
        stuck_since=_iso(since) if since is not None and stuck else None,
        stuck_since_source=source if since is not None and stuck else None,
        roots=roots,
        chain=_chain(picture, finding),
        evidence=evidence(picture, decision),
        against=against(picture, decision),
        ruled_out=ruled_out(picture, finding),
        missing=missing_of(picture, decision),
        action=action_of(picture, finding),
        next=next_of(picture, decision),
        independent=tuple(_independent(picture, other) for other in decision.others[:5]),
        captured=tuple(
            (rank, picture.who.nodes.get(rank, "?"), picture.who.pids.get(rank, 0), None)
            for rank in sorted(picture.seen)
        ),
        deciding_fact=finding.fact or None,
        samples=1,
        captured_wall=_newest(picture, since),
    )


def _covered(picture: Picture) -> int:
    world = picture.world_size
    return len([rank for rank in picture.seen if world is None or rank < world])


def _waiting(picture: Picture, finding: Finding) -> tuple[int, ...]:
    if finding.kind == "undecided":
        return tuple(sorted({*picture.waiting, *finding.victims}))
    return tuple(rank for rank in finding.victims if rank not in finding.ranks)


def _root(picture: Picture, finding: Finding, rank: int) -> RootEntry:
    at = None
    if finding.difference is not None:
        part = next((part for part in finding.difference.parts if rank in part.ranks), None)
        at = place_of(part.place) if part is not None else None
    absence = next((item for item in picture.absences.first if item.rank == rank), None)
    return RootEntry(
        type=finding.type,
        rank=rank,
        node=picture.who.nodes.get(rank) or (absence.node if absence is not None else None),
        pid=picture.who.pids.get(rank),
        at=at,
        gpu=finding.at,
        impact=len(finding.victims),
        label=f"rank {rank}",
    )


def place_of(place: tuple[object, ...]) -> str | None:
    """``file:line`` of the innermost frame of a call site; None without one."""
    frame = place[0] if place else None
    if frame is None:
        return None
    file, line = getattr(frame, "file", ""), getattr(frame, "line", 0)
    return f"{file.rpartition('/')[2]}:{line}" if file else None


def _chain(picture: Picture, finding: Finding) -> tuple[ChainLink, ...]:
    """From the victims over operations to the root: each operation with those that wait in it."""
    if finding.kind in ("slow", "not-stuck"):
        return ()
    operations = _ways(picture, finding)
    links = []
    if finding.difference is not None:
        links += _parts(finding.difference)
        operations = [operation for operation in operations if operation not in finding.operations]
    for operation in operations[: LINKS - len(links)]:
        links.append(
            ChainLink(
                ranks=operation.waiting,
                waits_for=operation.name,
                at=_place(operation),
                certainty="observed",
            )
        )
    if finding.ranks and finding.kind != "cycle" and finding.difference is None:
        what = "not known: no stack of it was read" if finding.kind == "rank-blocked" else finding.fact
        if finding.type == "gpu":
            what = finding.fact
        who = f"{ranks_phrase(finding.ranks)} "
        links.append(ChainLink(ranks=finding.ranks, waits_for=what.removeprefix(who) or "not known"))
    return tuple(links)


def _parts(difference: Difference) -> list[ChainLink]:
    """Each part of the members with the operation that it is in."""
    where = f" of {difference.lane.label}" if difference.lane.label else ""
    return [
        ChainLink(
            ranks=part.ranks,
            waits_for=f"{part.label} #{difference.sequence}{where}",
            at=place_of(part.place),
            certainty="observed",
        )
        for part in difference.parts[:4]
    ]


def _ways(picture: Picture, finding: Finding) -> list[Operation]:
    """Operations between the victims and the root, the far ones first."""
    near = {operation.id for operation in finding.operations}
    victims = set(finding.victims)
    far = [op for op in picture.operations if op.id not in near and victims & set(op.waiting)]
    far.sort(key=lambda op: (-len(op.waiting), op.id))
    return [*far[: LINKS - 2], *finding.operations[:2]]


def _place(operation: Operation) -> str | None:
    for _rank, seen in operation.lane.occurrences(operation.sequence):
        if seen.place:
            return place_of(seen.place)
    return None


def _since(picture: Picture, finding: Finding) -> tuple[float | None, str | None]:
    """When the last rank entered the operation next to the root, by the recorders; else when the first
    watchdog spoke, less what it waited."""
    operations = finding.operations or picture.operations
    times = [operation.created_ns for operation in operations if operation.created_ns]
    if times:
        return min(times) / 1e9, "flight recorder: when the last waiting rank entered its operation"
    spoken = [
        fact.origin.wall - fact.seconds
        for fact in picture.facts
        if isinstance(fact, LogEvent)
        and fact.kind in ("watchdog-timeout", "wait-timeout")
        and fact.origin.wall is not None
        and fact.seconds is not None
    ]
    if spoken:
        return min(spoken), "the first watchdog's time, less how long it had waited (the writer's clock)"
    return None, None


def _newest(picture: Picture, since: float | None) -> float | None:
    """The newest moment that the evidence itself tells, seconds since the epoch: ages are reckoned from it.
    None where nothing is later than ``since``. A file's own date is none: copying changes it."""
    times: list[float | None] = []
    for fact in picture.facts:
        if isinstance(fact, FlightRecord):
            times.append(fact.newest_ns / 1e9 if fact.newest_ns else None)
        elif isinstance(fact, LogEvent):
            times.append(fact.origin.wall)
        elif isinstance(fact, RasReport):
            times.append(fact.wall)
    newest = max((time for time in times if time is not None and 0 < time < LATEST), default=None)
    if newest is None or (since is not None and not 1.0 <= newest - since < LONGEST):
        return None
    return newest


def _iso(wall: float) -> str | None:
    try:
        moment = datetime.datetime.fromtimestamp(wall, datetime.timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _independent(picture: Picture, finding: Finding) -> IndependentFinding:
    who = ranks_phrase(finding.ranks) if finding.ranks else "nobody"
    verb = "wait" if len(finding.victims) > 1 else "waits"
    text = f"{finding.kind}: {who}: {finding.fact}"
    if finding.victims:
        text += f"; {ranks_phrase(finding.victims)} {verb}"
    roots = tuple(_root(picture, finding, rank) for rank in finding.ranks)
    return IndependentFinding(
        kind=finding.kind, initiators=finding.ranks, cause=finding.cause, roots=roots, text=text
    )
