"""From the entries of a Flight Recorder dump to one ``FlightRecord``.

What decides here (torch's FlightRecorder.hpp, FlightRecorderDetail.hpp, ProcessGroupNCCL.cpp; TraceUtils.h up
to 2.5):

- Numbers are compared within a group only, and groups by ``process_group[0]``.
- The parts of a coalesced region have no state of their own: the ``coalesced`` entry behind them, of the same
  collective number, has theirs. A batch of point-to-point operations consumes a *collective* number: in such
  a group the numbers of two ranks are not comparable (``aligned`` is false).
- An entry N exists as soon as N was called, when ``last_enqueued_collective`` may still say N-1: the status
  is used only where a group has no entries.
- A ring outlives its groups: where a number falls back, the group was made again.
- A process of NCCL configures the groups that it is a member of, so its rank is in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, GroupRecord, Origin, RecordedOperation

from .flight_choice import KEPT, counts_apart, restart
from .flight_entry import Entry
from .flight_header import Header
from .interface import Document

COPIED = 86_400.0
"""Seconds between the newest entry and the file's date beyond which the date is that of a copy: downloads and
checkouts date files anew, and hardly a hang is left alone for a day."""
MOST_UNFINISHED = 256
"""Unfinished operations that are kept, a group: half from the oldest, half from the newest."""


def flight_record(
    document: Document, header: Header, entries: Sequence[Entry], count: int, partial: str | None
) -> FlightRecord:
    """The record of one dump. ``entries`` in ring order: everything unfinished, everything coalesced, and the
    oldest and newest of the rest; ``count`` is how many the dump has."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    backends = sorted({entry.title.backend for entry in entries} - {""})
    members = _members(header, "c10d" in backends)
    records = [_group(name, desc, items, members.get(name)) for (name, desc), items in groups.items()]
    records += _without_entries(header, entries, members)
    times = [time for entry in entries for time in (entry.created, entry.started, entry.completed) if time]
    return FlightRecord(
        origin=_origin(document.origin, header, entries, members),
        backend=",".join(backends),
        version=header.version[:40],
        groups=tuple(sorted(records, key=lambda record: (record.name, record.desc))),
        entries=count,
        newest_ns=max(times, default=None),
        written=_written(document.mtime, max(times, default=None)),
        world_size=_world_size(header, members),
        at_least=max((max(ranks) + 1 for _, ranks in header.configured.values() if ranks), default=None),
        partial=partial,
        ref=Ref(document.path),
    )


def _written(mtime: float | None, newest: int | None) -> float | None:
    """The file's date, unless it is so much later than all that is in the dump that it is a copy's."""
    if mtime is None or newest is None or mtime - newest / 1e9 <= COPIED:
        return mtime
    return None


def _members(header: Header, hook: bool) -> dict[str, tuple[int, ...]]:
    """Global ranks by group name. gloo configures one group without a name; the hook of other back ends
    writes 0 … n-1 for a group whose ranks it does not know."""
    sound = {name: ranks for name, (_, ranks) in header.configured.items() if name and ranks}
    if not hook:
        return sound
    return {
        name: ranks
        for name, ranks in sound.items()
        if ranks != tuple(range(len(ranks))) or header.configured[name][0] == "default_pg"
    }


def _world_size(header: Header, members: dict[str, tuple[int, ...]]) -> int | None:
    sizes = {len(ranks) for name, ranks in members.items() if header.configured[name][0] == "default_pg"}
    return sizes.pop() if len(sizes) == 1 else None


def _group(name: str, desc: str, entries: list[Entry], members: tuple[int, ...] | None) -> GroupRecord:
    entries = entries[restart([None if counts_apart(item) else item.number for item in entries]) :]
    folded, aligned = fold_regions(entries)
    collectives = [item for item in folded if not item.p2p and item.number is not None]
    collectives.sort(key=lambda item: item.number or 0)
    numbers = [item.number for item in collectives] if aligned else []
    running = [item.number for item in collectives if item.started or item.state != "scheduled"]
    finished = [item.number for item in collectives if item.finished and item.title.backend != "c10d"]
    kept = [*_kept(collectives), *_kept([item for item in folded if item.p2p])]
    return GroupRecord(
        name=name,
        desc=desc,
        members=members,
        enqueued=numbers[-1] if numbers else None,
        started=running[-1] if running and aligned else None,
        completed=finished[-1] if finished and aligned else None,
        low_water=numbers[0] if numbers else None,
        aligned=aligned,
        operations=tuple(_operation(item) for item in kept),
    )


def fold_regions(entries: list[Entry]) -> tuple[list[Entry], bool]:
    """Entries with each coalesced region made one (of collectives) or its parts given its state
    (point-to-point); and whether the collective numbers of this group can be compared between ranks."""
    aligned = not any(item.shared_counter and item.p2p for item in entries)
    open_parts: dict[int | None, list[Entry]] = {}
    dropped: set[int] = set()
    for item in entries:
        if item.title.kind != "coalesced":
            if item.untold:
                open_parts.setdefault(item.number, []).append(item)
            continue
        parts = open_parts.pop(item.number, [])
        if item.p2p or any(part.p2p for part in parts):
            aligned = False
            dropped.add(id(item))
            for part in parts:
                part.p2p, part.p2p_number = True, item.number
                part.state, part.retired = item.state, item.retired
                part.started, part.completed = item.started, item.completed
        elif parts:
            dropped.update(id(part) for part in parts)
            item.sizes, item.dtype = item.sizes or parts[0].sizes, item.dtype or parts[0].dtype
            item.place = item.place or parts[0].place
    return [item for item in entries if id(item) not in dropped], aligned


def _kept(entries: list[Entry]) -> list[Entry]:
    """All that did not finish (of very many the oldest and the newest), and the last few that did."""
    unfinished = [index for index, item in enumerate(entries) if not item.finished]
    if len(unfinished) > MOST_UNFINISHED:
        unfinished = unfinished[: MOST_UNFINISHED // 2] + unfinished[-MOST_UNFINISHED // 2 :]
    finished = [index for index, item in enumerate(entries) if item.finished][-KEPT:]
    return [entries[index] for index in sorted(unfinished + finished)]


def _operation(entry: Entry) -> RecordedOperation:
    number = entry.p2p_number if entry.p2p and entry.p2p_number is not None else entry.number
    return RecordedOperation(
        sequence=number if number is not None else -1,
        kind=entry.title.kind,
        state=entry.state,
        finished=entry.finished,
        p2p=entry.p2p,
        source=entry.title.source,
        target=entry.title.target,
        sizes=entry.sizes,
        dtype=entry.dtype,
        created_ns=entry.created,
        started_ns=entry.started,
        place=entry.place,
    )


def _without_entries(
    header: Header, entries: Sequence[Entry], members: dict[str, tuple[int, ...]]
) -> list[GroupRecord]:
    """The default group, where only the status speaks of it: the ids of other groups are a process's own."""
    status = header.status.get("0")
    default = next((name for name in members if header.configured[name][0] == "default_pg"), None)
    if (
        status is None
        or default is None
        or any(item.pg_id == 0 or item.group[0] == default for item in entries)
    ):
        return []
    enqueued, started, completed = (
        number if number is not None and number >= 0 else None for number in status
    )
    return [
        GroupRecord(
            name=default,
            desc="default_pg",
            members=members[default],
            enqueued=enqueued,
            started=started,
            completed=completed,
        )
    ]


def _origin(
    named: Origin, header: Header, entries: Sequence[Entry], members: dict[str, tuple[int, ...]]
) -> Origin:
    """The rank that the content tells, else the one that the file's name tells and the content does not deny
    (it does: no rank, source ``content``)."""
    possible = _possible_ranks(header, entries, members)
    if possible is not None and len(possible) == 1:
        return msgspec.structs.replace(named, rank=next(iter(possible)), source="content")
    if possible is not None and named.rank is not None and named.rank not in possible:
        return msgspec.structs.replace(named, rank=None, source="content")
    return named


def _possible_ranks(
    header: Header, entries: Sequence[Entry], members: dict[str, tuple[int, ...]]
) -> set[int] | None:
    """Ranks that the dump can be of; None when it says nothing of it, or contradicts itself."""
    if header.rank is not None:
        return {header.rank}
    told = [set(ranks) for ranks in members.values()]
    for entry in entries:
        own = entry.title.source if entry.title.kind == "send" else entry.title.target
        ranks = members.get(entry.group[0])
        if entry.title.kind in ("send", "recv") and own is not None and ranks and own < len(ranks):
            told.append({ranks[own]})
    return (set.intersection(*told) or None) if told else None
