"""What the ledger's verdict rests on, what speaks against it, who was excluded, each with its artifact."""

from __future__ import annotations

import re

from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, LogEvent
from hangscope.model.ranges import ranks_phrase
from hangscope.model.verdict import EvidenceLine

from .alignment import Operation
from .decide import Decision
from .finding import Finding
from .lanes import Lane
from .lines import OPINIONS
from .picture import Picture

MOST = 8
_SOURCE = re.compile(r"\[/\S{1,300}?:\d{1,6}\] ")
"""``[/build/gloo/transport/tcp/pair.cc:537] ``, with which gloo begins what it says."""


def evidence(picture: Picture, decision: Decision) -> tuple[EvidenceLine, ...]:
    """The deciding facts first: the difference or the death, then who stands in what, then who does not."""
    finding = decision.finding
    lines: list[EvidenceLine] = []
    for item in picture.absences.first:
        if item.rank in finding.ranks or not finding.ranks:
            lines.append(_line(item.text, item.ref))
    for rank in finding.ranks[:4]:
        for event in picture.machine.by_rank.get(rank, ())[:2]:
            lines.append(_line(f"rank {rank}, by {event.tie}: {event.text}", event.ref))
    lines += [*_ends_of_somebody(picture, finding), *_own_words(picture, finding)]
    if finding.difference is not None:
        difference = finding.difference
        for part in difference.parts[:4]:
            where = place_text(part.place)
            text = f"#{difference.sequence}: {ranks_phrase(part.ranks)} {part.label}"
            text += f" {part.sizes}" if part.sizes and difference.aspect == "size" else ""
            text += f" {part.dtype}" if part.dtype and difference.aspect == "dtype" else ""
            lines.append(_line(text + (f" at {where}" if where else ""), part.ref))
    operations = finding.operations or picture.operations[:3]
    for operation in operations[:3]:
        if finding.difference is None or operation not in finding.operations:
            lines += _of_operation(operation, finding)
    for transfer in picture.transfers[:3]:
        if set(transfer.waiting) & {*finding.victims, *finding.ranks}:
            text = f"{ranks_phrase(transfer.waiting)} in {transfer.name}"
            if transfer.lacking:
                text += f"; {ranks_phrase(transfer.lacking)} has not come to it"
            lines.append(_line(text, transfer.refs[0] if transfer.refs else None))
    if not finding.named:
        events = [*picture.machine.first, *picture.machine.context]
        lines += [_line(event.text, event.ref) for event in events[:3]]
    if not lines and finding.fact:
        lines.append(_line(finding.fact))
    return tuple(dict.fromkeys(lines))[:MOST]


def _ends_of_somebody(picture: Picture, finding: Finding) -> list[EvidenceLine]:
    """Where nobody is named: processes that a launcher saw end first, and of which nothing tells the rank."""
    events = [fact for fact in picture.facts if isinstance(fact, LogEvent) and fact.kind == "exit-first"]
    lines = []
    for event in () if finding.named else events:
        pid, local, code = event.origin.pid, event.origin.local_rank, event.code or 0
        if pid is None or picture.who.about(event) or picture.who.event_rank(event) is not None:
            continue
        who = f"pid {pid}" + (f", local rank {local}," if local is not None else "")
        lines.append(_line(f"{who} ended with " + (f"signal {-code}" if code < 0 else f"exit code {code}"),
                           event.ref))  # fmt: skip
    return lines[:2]


OWN_WORDS = frozenset(
    {"exception", "cuda-error", "cuda-oom", "heartbeat-stuck", "nccl-shared-memory", "engine-stuck"}
)
"""Kinds in which a rank speaks of itself."""


def _own_words(picture: Picture, finding: Finding) -> list[EvidenceLine]:
    """What the named ranks printed themselves; anybody's where nobody is named."""
    lines = []
    for fact in picture.facts:
        if isinstance(fact, LogEvent) and fact.kind in OWN_WORDS:
            rank = picture.who.event_rank(fact)
            if rank in finding.ranks or not finding.ranks:
                who = f"rank {rank}" if rank is not None else "somebody"
                text = _SOURCE.sub("", fact.text, count=1)
                lines.append(_line(f"{who} printed: {text[:160]}", fact.ref))
    return lines[:3]


def _of_operation(operation: Operation, finding: Finding) -> list[EvidenceLine]:
    lines = []
    if operation.waiting:
        first = operation.waiting[0]
        lines.append(
            _line(f"{ranks_phrase(operation.waiting)} joined {operation.name}, and did not finish it",
                  _ref(operation.lane, first, operation.sequence))
        )  # fmt: skip
    for rank in [rank for rank in operation.lacking if rank in finding.ranks or not finding.ranks][:3]:
        standing = operation.lane.standings[rank]
        last = standing.bound if standing.bound is not None else standing.entered
        text = (
            f"rank {rank} has entered nothing above #{last}" if last else f"rank {rank} has entered nothing"
        )
        if operation.lane.key[0].partition(":")[0] in ("barrier", "stall", "store", "init"):
            text = f"rank {rank} did not come to {operation.name}"
        lines.append(_line(text, _ref(operation.lane, rank, operation.sequence)))
    return lines


def against(picture: Picture, decision: Decision) -> tuple[EvidenceLine, ...]:
    """What a reader should weigh: sources that contradict, stale dumps, ranks that could be the root too."""
    finding = decision.finding
    lines = [_line(text) for text in picture.who.conflicts[:4]]
    if picture.unequal is not None:
        lines.append(_line(f"restart counts differ: {picture.unequal}"))
    lines += _opinions(picture, finding)
    for lane in picture.lanes:
        for rank, standing in sorted(lane.standings.items()):
            if standing.stale is not None:
                ref = standing.refs[0] if standing.refs else None
                lines.append(_line(f"rank {rank} was read at another moment: {standing.stale}", ref))
    lines += _cut_short(picture)
    for absence in picture.absences.followers[:3]:
        if absence.rank not in finding.ranks:
            lines.append(_line(f"{absence.text}, after another end", absence.ref))
    if finding.named:
        possible = [rank for other in decision.others for rank in other.ranks] + [
            rank for rank in decision.unknown if rank not in picture.silent
        ]
        for rank in possible[:3]:
            if rank not in finding.ranks:
                lines.append(_line(f"rank {rank} could be the root as well"))
        lines += _inside(finding)
    lines += [_line(note) for note in picture.notes[:4]]
    return tuple(dict.fromkeys(lines))[:MOST]


def _cut_short(picture: Picture) -> list[EvidenceLine]:
    """Dumps that were not read to their end."""
    cut = [fact for fact in picture.facts if isinstance(fact, FlightRecord) and fact.partial is not None]
    lines = []
    for fact in cut[:3]:
        rank = picture.who.rank_of(fact.origin)
        whose = f"rank {rank}'s dump" if rank is not None else "a dump"
        lines.append(_line(f"{whose} was not read to its end: {fact.partial}", fact.ref))
    return lines


def _opinions(picture: Picture, finding: Finding) -> list[EvidenceLine]:
    """Other analyzers that name other ranks."""
    lines = []
    for fact in picture.facts:
        if isinstance(fact, LogEvent) and fact.counter in OPINIONS and fact.about:
            named = set(fact.about)
            if named != set(finding.ranks):
                lines.append(
                    _line(f"{fact.counter} names {ranks_phrase(named)}: {fact.text[:120]}", fact.ref)
                )
    return lines[:3]


def _inside(finding: Finding) -> list[EvidenceLine]:
    """The rank may stand inside of the call that its counter does not show yet."""
    if finding.kind != "rank-blocked":
        return []
    lines = []
    for operation in finding.operations[:1]:
        for rank in finding.ranks:
            standing = operation.lane.standings.get(rank)
            soft = standing is not None and not standing.firm and standing.bound == operation.sequence - 1
            if soft and rank in operation.lacking:
                text = f"rank {rank} may stand inside of the call of {operation.name}: its end is counted"
                lines.append(_line(text, standing.refs[0] if standing and standing.refs else None))
    return lines[:2]


def ruled_out(picture: Picture, finding: Finding) -> tuple[EvidenceLine, ...]:
    """Who joined and waits, who finished, who printed a message."""
    if not finding.named:
        return ()
    lines = []
    for operation in finding.operations[:2]:
        innocent = [rank for rank in operation.joined if rank not in finding.ranks]
        if innocent:
            lines.append(_line(f"{ranks_phrase(innocent)}: joined {operation.name}"))
        if operation.finished:
            lines.append(_line(f"{ranks_phrase(operation.finished)}: finished {operation.name}"))
    printed = {
        rank
        for fact in picture.facts
        if getattr(fact, "kind", "") == "watchdog-timeout"
        and (rank := picture.who.event_rank(fact)) is not None  # type: ignore[arg-type]
    } - set(finding.ranks)
    if printed:
        lines.append(_line(f"{ranks_phrase(printed)}: printed the time-out, as who waits does"))
    return tuple(lines)


def place_text(place: tuple[object, ...]) -> str | None:
    """``file:line`` of the innermost frame."""
    frame = place[0] if place else None
    file = getattr(frame, "file", "")
    return f"{file.rpartition('/')[2]}:{getattr(frame, 'line', 0)}" if file else None


def _ref(lane: Lane, rank: int, sequence: int) -> Ref | None:
    standing = lane.standings.get(rank)
    if standing is None:
        return None
    seen = standing.occurrences.get(sequence)
    if seen is not None:
        return seen.ref
    return standing.refs[-1] if standing.refs else None


def _line(text: str, ref: Ref | None = None) -> EvidenceLine:
    return EvidenceLine(
        text=text,
        artifact=ref.artifact if ref is not None else None,
        line=ref.line if ref is not None else None,
    )
