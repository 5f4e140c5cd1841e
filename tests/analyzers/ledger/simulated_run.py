"""Executes programs of collectives and transfers in time: when each rank called what, when its device started
and finished it, and who really waits for whom in the end.

A host calls in order and waits at synchronous calls; a device works through its streams in order. A
collective finishes when all members have started the same; a transfer when both ends have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import networkx

NEVER = float("inf")
EAGER = frozenset({"broadcast", "reduce"})
"""Operations that a member may finish before all others have come."""


class Call(msgspec.Struct, kw_only=True):
    """One line of a rank's program. ``place`` is where the program calls it."""

    group: str
    kind: str
    place: int
    size: int = 1024
    dtype: str = "Float"
    root: int = 0
    peer: int | None = None
    """Global rank of the other end of a transfer."""
    sync: bool = True
    """The host waits for it, and for all before it."""
    think: float = 0.05
    """Seconds that the host works before it calls."""
    halt: bool = False
    """The host stands still in front of it, for ever."""
    dead_device: bool = False
    """The device never starts it."""
    lost: bool = False
    """All start it, and it never finishes."""
    launched: float = NEVER
    started: float = NEVER
    finished: float = NEVER
    number: int = 0
    """Of the calls of this rank in the group, from 1; transfers count for themselves."""

    @property
    def p2p(self) -> bool:
        return self.peer is not None

    @property
    def signature(self) -> tuple[object, ...]:
        root = self.root if self.kind in EAGER else 0
        return self.kind, self.size, self.dtype, root

    def copy(self) -> Call:
        return msgspec.structs.replace(self)


class Run(msgspec.Struct, kw_only=True):
    """A job: programs by rank, members by group. ``one_stream``: a device does one operation at a time;
    ``ahead``: calls that a host may have launched and not finished."""

    programs: list[list[Call]]
    groups: dict[str, tuple[int, ...]]
    one_stream: bool = True
    ahead: int = 1000
    lenient: bool = False
    """A member whose size differs may finish: what it moved is garbage."""
    gpu: bool = True

    @property
    def ranks(self) -> int:
        return len(self.programs)

    def members(self, group: str) -> tuple[int, ...]:
        return self.groups[group]

    def execute(self, begin: float) -> Run:
        """Fills in all times; returns itself."""
        for program in self.programs:
            counts: dict[tuple[str, bool], int] = {}
            for call in program:
                key = (call.group, call.p2p)
                call.number = counts[key] = counts.get(key, 0) + 1
        instances = list(self._instances())
        moved = True
        while moved:
            advanced = [self._advance(program, begin) for program in self.programs]
            completed = [self._complete(calls) for calls in instances]
            moved = any(advanced) or any(completed)
            instances = [calls for calls in instances if not _is_through(calls)]
        return self

    def _advance(self, program: Sequence[Call], begin: float) -> bool:
        """Launches and starts of one rank, as far as what has finished allows."""
        moved = False
        now, through = begin, 0.0
        streams: dict[str, float] = {}
        for place, call in enumerate(program):
            ready = max(now, program[place - self.ahead].finished if place >= self.ahead else 0.0)
            if call.halt or ready == NEVER:
                break
            if call.launched == NEVER:
                call.launched, moved = ready + call.think, True
            stream = "" if self.one_stream else f"{call.group} {call.p2p}"
            free = streams.get(stream, 0.0)
            if call.started == NEVER and free < NEVER and not call.dead_device:
                call.started, moved = max(call.launched, free), True
            streams[stream] = call.finished
            now = call.launched
            through = max(through, call.finished)
            if call.sync:
                now = max(now, through)
        return moved

    def _instances(self) -> Iterator[dict[int, Call]]:
        """Calls that belong together, by rank; a transfer's with its two ends."""
        found: dict[tuple[object, ...], dict[int, Call]] = {}
        turns: dict[tuple[object, ...], int] = {}
        for rank, program in enumerate(self.programs):
            for call in program:
                if call.peer is None:
                    key: tuple[object, ...] = (call.group, call.number)
                else:
                    ends = (rank, call.peer) if call.kind == "send" else (call.peer, rank)
                    side = (rank, call.group, ends)
                    turns[side] = turns.get(side, 0) + 1
                    key = (call.group, ends, turns[side])
                found.setdefault(key, {})[rank] = call
        yield from found.values()

    def _complete(self, calls: dict[int, Call]) -> bool:
        first = next(iter(calls.values()))
        if all(call.finished < NEVER for call in calls.values()):
            return False
        if first.peer is not None:
            return len(calls) == 2 and _finish(calls.values(), max(call.started for call in calls.values()))
        if any(call.lost for call in calls.values()):
            return False
        members = self.members(first.group)
        everybody = len(calls) == len(members) and all(call.started < NEVER for call in calls.values())
        equal = len({call.signature for call in calls.values()}) == 1
        if everybody and equal:
            return _finish(calls.values(), max(call.started for call in calls.values()))
        if everybody and self.lenient and len({call.kind for call in calls.values()}) == 1:
            small = min(call.size for call in calls.values())
            few = [call for call in calls.values() if call.size == small]
            if len(few) < len(calls):
                return _finish(few, max(call.started for call in calls.values()))
        if first.kind == "broadcast" and equal and first.size < 64:
            root = calls.get(members[first.root % len(members)])
            if root is not None and root.started < NEVER:
                moved = _finish([root], root.started)
                for call in calls.values():
                    if call is not root and call.started < NEVER:
                        moved |= _finish([call], max(call.started, root.started))
                return moved
        return False

    def pending(self, rank: int, now: float) -> list[Call]:
        """Launched and not finished at that time."""
        return [call for call in self.programs[rank] if call.launched <= now < call.finished]

    @property
    def last(self) -> float:
        """When the last thing happened."""
        times = [t for p in self.programs for c in p for t in (c.launched, c.started, c.finished)]
        return max((time for time in times if time < NEVER), default=0.0)

    @property
    def stuck(self) -> bool:
        return any(call.launched < NEVER <= call.finished for program in self.programs for call in program)

    @property
    def ended(self) -> set[int]:
        """Ranks that came to the end of their program."""
        return {r for r, p in enumerate(self.programs) if not p or p[-1].finished < NEVER}

    def knots(self) -> set[int]:
        """Ranks that really wait for one another, over any number of groups."""
        graph: networkx.DiGraph[int] = networkx.DiGraph()
        for calls in self._instances():
            first = next(iter(calls.values()))
            if first.peer is not None:
                rank = next(iter(calls))
                ends = {rank, first.peer}
            else:
                ends = set(self.members(first.group))
            waiting = {r for r, call in calls.items() if call.launched < NEVER <= call.finished}
            lacking = {r for r in ends if r not in calls or calls[r].started == NEVER}
            graph.add_edges_from((one, other) for one in waiting for other in lacking if one != other)
        parts = networkx.strongly_connected_components(graph)
        return {rank for part in parts if len(part) > 1 for rank in part}


def _is_through(calls: dict[int, Call]) -> bool:
    return all(call.finished < NEVER for call in calls.values())


def _finish(calls: object, start: float) -> bool:
    moved = False
    for call in calls:  # type: ignore[attr-defined]
        if call.started < NEVER and call.finished == NEVER and start < NEVER:
            call.finished, moved = start + 0.02, True
    return moved


__all__ = ["NEVER", "Call", "Run"]
