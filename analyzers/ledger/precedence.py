"""Which of the machines' events came first, as far as lines and clocks can tell.

Within one file the lines are in order, on one node its clocks; between nodes only a measured offset orders,
and where it is not known, what can be a cause goes before what may follow from one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .placement import same_node, short

if TYPE_CHECKING:
    from .machine import MachineEvent

SURE_OFFSET = 1.0
"""Seconds beyond the measured clock offset within which events of two nodes have no order."""
HUNG_AFTER = 120.0
"""Seconds that a task has been blocked when the kernel says so for the first time (its default)."""
_BLOCKED_FOR = re.compile(r"for more than (\d{1,9}) s")


def place(event: MachineEvent) -> tuple[str, int]:
    """Where its line stands."""
    return event.ref.artifact, event.ref.line or 0


def first_of(
    events: list[MachineEvent], offsets: Mapping[tuple[str, str], float]
) -> tuple[tuple[MachineEvent, ...], str]:
    """The events that no other one precedes, and why they do not name one rank."""
    if not events:
        return (), ""
    left = [
        event
        for event in events
        if not any(other.rank != event.rank and _before(other, event, offsets) for other in events)
    ]
    strongest = min(event.weight for event in events)
    kept = [event for event in left if event.weight == strongest]
    if {event.rank for event in left} == {event.rank for event in kept} and len({e.rank for e in kept}) == 1:
        return tuple(sorted(kept, key=place)), ""
    if not kept:
        return tuple(sorted(left, key=place)), "the earliest event is not of the kind that starts a hang"
    if len({event.rank for event in kept}) > 1:
        return tuple(
            sorted(kept, key=place)
        ), "several ranks have such an event, and their order is not known"
    weaker = [event for event in left if event.weight > strongest]
    if all(same_node(event.node, kept[0].node) is not True for event in weaker):
        return tuple(sorted(kept, key=place)), ""
    return tuple(sorted(left, key=place)), "another rank's event may have come before it"


def _before(one: MachineEvent, other: MachineEvent, offsets: Mapping[tuple[str, str], float]) -> bool:
    """Whether ``one`` certainly came first: by line in one file, by clock on one node, beyond the measured
    offset elsewhere."""
    if one.ref.artifact == other.ref.artifact and same_node(one.node, other.node) is not False:
        if one.seconds is not None and other.seconds is not None:
            return _began(one, one.seconds) < _began(other, other.seconds)
        return (one.ref.line or 0) < (other.ref.line or 0)
    if same_node(one.node, other.node):
        if one.seconds is not None and other.seconds is not None:
            return _began(one, one.seconds) < _began(other, other.seconds)
        if one.wall is not None and other.wall is not None:
            return _began(one, one.wall) < _began(other, other.wall)
        return False
    if one.wall is None or other.wall is None or one.node is None or other.node is None:
        return False
    names = (short(one.node) or "", short(other.node) or "")
    offset = offsets.get(names, offsets.get((names[1], names[0])))
    if offset is None:
        return False
    return _began(one, one.wall) + abs(offset) + SURE_OFFSET < _began(other, other.wall)


def _began(event: MachineEvent, clock: float) -> float:
    """When it began: the kernel speaks of a hung task only after it was blocked for minutes."""
    if event.kind != "hung-task":
        return clock
    lasted = _BLOCKED_FOR.search(event.text)
    return clock - (float(lasted[1]) if lasted is not None else HUNG_AFTER)
