"""Lines of logs into lanes: watchdogs, status lines, desync reports, fingerprints, barriers, arrivals.

Who prints a watchdog's line is a victim: it has joined what the line names. ``last enqueued`` rises only when
the call returns, so a rank at N-1 may stand inside call N (torch, ProcessGroupNCCL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hangscope.model.loose import LogEvent

from .arrivals import CLIENTS, add_missing_by_count
from .identities import WORLD, Identities, group_key
from .lanes import TRANSFERRED, UNNAMED, Lane, Lanes, Occurrence
from .unnamed_groups import is_unnamed

TRANSFERS = frozenset({"send", "recv", "coalesced"})
"""Their sequence is a counter of its own since torch 2.2."""

OPINIONS = frozenset({"torchfrtrace"})
"""Counters of other analyzers' words: shown where they disagree, and proof of nothing."""

STATUS = frozenset({"watchdog-status", "dump-received", "dump-sent"})
FIRED = frozenset({"watchdog-timeout", "wait-timeout"})


def add_lines(lanes: Lanes, events: Iterable[LogEvent], who: Identities) -> None:
    """Enters every event that places a rank in a lane. Events of unknown ranks are counted, not guessed."""
    ordered = sorted(events, key=lambda event: (event.ref.artifact, event.ref.line or 0, event.kind))
    groups = _Groups(ordered, who, {lane.key[1] for lane in lanes})
    groups.mixed |= {lane.key[1] for lane in lanes if lane.transfers}
    for event in ordered:
        add = _ADDERS.get(event.kind)
        if add is not None and event.counter not in OPINIONS:
            add(lanes, event, who, groups)
    add_missing_by_count(lanes, ordered, who)


class _Groups:
    """The group of lines that name none: the same rank's status lines tell it, or there is only one."""

    def __init__(self, events: Iterable[LogEvent], who: Identities, known: set[str]) -> None:
        self._who = who
        self._by_work: dict[tuple[int, int], set[str]] = {}
        named = set(known)
        for event in events:
            rank = who.event_rank(event)
            key = who.key(event.group, event.group_desc, rank)
            if key is None or event.kind not in STATUS | FIRED:
                continue
            named.add(key)
            if rank is not None and event.kind in STATUS and event.sequence is not None:
                self._by_work.setdefault((rank, event.sequence), set()).add(key)
        self._only = named.pop() if len(named) == 1 else None
        self.mixed = self._mixed(events)
        """Groups with transfers: the last work that a status line tells may be one of them, whose numbers are
        others (ProcessGroupNCCL.cpp, 2.2 and later)."""

    def _mixed(self, events: Iterable[LogEvent]) -> set[str]:
        found = set()
        for event in events:
            rank = self._who.event_rank(event)
            sent = event.kind in FIRED and (event.operation or "").lower() in TRANSFERS
            beyond = (
                event.kind == "watchdog-status"
                and event.sequence is not None
                and event.completed is not None
                and event.completed >= event.sequence
            )
            if rank is not None and (sent or beyond):
                found.add(self.of(event, rank))
        return found - {UNNAMED}

    def of(self, event: LogEvent, rank: int) -> str:
        key = self._who.key(event.group, event.group_desc, rank)
        if key is not None or event.group is not None:
            return key or UNNAMED
        told = self._by_work.get((rank, event.sequence if event.sequence is not None else -1), set())
        if len(told) == 1:
            return next(iter(told))
        if self._only is None or told or (self._only == WORLD and not self._who.only_world):
            return UNNAMED  # somebody's rank in a group is another one than his global rank
        return self._only


def _placed(lanes: Lanes, event: LogEvent, who: Identities) -> int | None:
    rank = who.event_rank(event)
    if rank is None:
        lanes.unplaced += 1
    return rank


def _lane(lanes: Lanes, event: LogEvent, who: Identities, group: str, operation: str | None = None) -> Lane:
    counter = event.counter or "torch"
    if (operation or "").lower() in TRANSFERS:
        counter += TRANSFERRED
    lane = lanes.lane(counter, group, who.members(group))
    lane.desc = lane.desc or (event.group_desc or "")
    lane.gpu = lane.gpu or event.kind not in ("fingerprint", "barrier-missing")
    return lane


def _fired(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
    rank = _placed(lanes, event, who)
    if rank is None or event.sequence is None:
        return
    lane = _lane(lanes, event, who, groups.of(event, rank), event.operation)
    standing = lane.standing(rank)
    standing.refs.append(event.ref)
    standing.add(
        Occurrence(
            sequence=event.sequence,
            label=event.operation,
            sizes=event.sizes,
            dtype=event.dtype,
            seconds=event.seconds,
            ref=event.ref,
        )
    )
    if lane.key[1] not in groups.mixed:
        _counts(lane, event, rank)


def _status(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
    rank = _placed(lanes, event, who)
    if rank is None:
        return
    group = groups.of(event, rank)
    if (event.enqueued is None and event.completed is None) or group in groups.mixed:
        return
    _counts(_lane(lanes, event, who, group), event, rank)


def _counts(lane: Lane, event: LogEvent, rank: int) -> None:
    standing = lane.standing(rank)
    if event.completed is not None and event.completed >= 0:
        standing.complete(event.completed)
    if event.started is not None and event.started >= 0:
        standing.started = max(standing.started or 0, event.started)
    if event.enqueued is not None and lane.key[1] != UNNAMED:
        enqueued = max(event.enqueued, 0)
        if event.enqueued >= 0:
            standing.enter(enqueued)
        if event.completed is None or event.completed < 0:
            standing.completed = standing.completed or 0
        standing.limit(enqueued, firm=False)
        standing.refs.append(event.ref)


def _report_group(event: LogEvent, who: Identities) -> str:
    """The group that a report is about; one that names none is about all ranks, unless it may be another."""
    key = group_key(event.group, event.group_desc)
    if key is not None:
        return key
    if not is_unnamed(event) or who.only_world or who.unnamed.is_world(event):
        return WORLD
    return f"of rank {event.origin.rank} without a name"


def _lagging(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
    """``about`` finished ``sequence`` and did not join the next; without a sequence they joined nothing."""
    lane = _lane(lanes, event, who, _report_group(event, who))
    done = event.sequence if event.sequence is not None else 0
    for rank in who.about(event):
        standing = lane.standing(rank)
        standing.complete(done)
        standing.limit(done, firm=True)
        standing.refs.append(event.ref)


def _waiting(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
    """``about`` joined ``sequence`` and did not finish it."""
    lane = _lane(lanes, event, who, _report_group(event, who))
    for rank in who.about(event):
        if event.sequence is not None:
            lane.standing(rank).add(Occurrence(sequence=event.sequence, label=event.operation, ref=event.ref))
            lane.standing(rank).refs.append(event.ref)


def _fingerprint(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
    """What a rank runs at a sequence number, from the wrapper of ``TORCH_DISTRIBUTED_DEBUG=DETAIL``."""
    ranks = who.about(event) or tuple(r for r in (who.event_rank(event),) if r is not None)
    if event.sequence is None or not ranks or event.operation is None:
        return
    key = group_key(event.group, event.group_desc) or (WORLD if who.only_world else None)
    if key is None:
        return
    lane = lanes.lane("detail", key, who.members(key))
    for rank in ranks[:1]:
        if event.sequence > 0:
            lane.standing(rank).complete(event.sequence - 1)
        lane.standing(rank).add(
            Occurrence(
                sequence=event.sequence,
                label=event.operation,
                sizes=event.sizes,
                dtype=event.dtype,
                ref=event.ref,
            )
        )


def _refused(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
    """The wrapper compared what the members would run, sizes included, and ran nothing."""
    key = group_key(event.group, event.group_desc) or (WORLD if who.only_world else None)
    if key is not None and event.sequence is not None:
        lanes.lane("detail", key, who.members(key)).refused.add(event.sequence)


def _arrival(counter: str) -> Callable[[Lanes, LogEvent, Identities, _Groups], None]:
    """An event whose printer waits for ``about``, who have not come. Nobody else is spoken of."""

    def add(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
        missing = who.about(event)
        waiting = who.event_rank(event)
        group = _report_group(event, who)
        if not missing and (waiting is None or event.about):
            return
        lane = lanes.lane(f"{counter}:{event.key or ''}", group)
        for rank in missing:
            standing = lane.standing(rank)
            standing.limit(0, firm=True)
            standing.refs.append(event.ref)
        if waiting is not None and waiting not in missing:
            lane.standing(waiting).add(
                Occurrence(sequence=1, label=event.operation or _arrival_name(counter, event), ref=event.ref)
            )

    return add


def _arrival_name(counter: str, event: LogEvent) -> str:
    if counter != "store" or not event.key:
        return _NAMES[counter]
    return "the store" if event.key == CLIENTS else f"key {event.key} of the store"


def _ready(lanes: Lanes, event: LogEvent, who: Identities, groups: _Groups) -> None:
    """Ranks that a framework lists as waiting at ``key``."""
    ranks = who.about(event) if event.key is not None else ()
    for rank in ranks:
        lane = lanes.lane(f"stall:{event.key}", group_key(event.group, event.group_desc) or WORLD)
        lane.standing(rank).add(
            Occurrence(sequence=1, label=event.operation or _NAMES["stall"], ref=event.ref)
        )


_NAMES: Mapping[str, str] = {
    "barrier": "monitored_barrier",
    "stall": "the framework's rendezvous",
    "store": "a key of the store",
}

_ADDERS: Mapping[str, Callable[[Lanes, LogEvent, Identities, _Groups], None]] = {
    **dict.fromkeys(FIRED, _fired),
    **dict.fromkeys(STATUS, _status),
    "desync-lagging": _lagging,
    "desync-waiting": _waiting,
    "fingerprint": _fingerprint,
    "fingerprint-mismatch": _refused,
    "barrier-missing": _arrival("barrier"),
    "stall-missing": _arrival("stall"),
    "stall-waiting": _ready,
    "store-timeout": _arrival("store"),
    "store-waiting": _arrival("store"),
    "rendezvous-timeout": _arrival("store"),
}
