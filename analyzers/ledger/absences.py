"""Ranks that are proven gone: exits, kills, what the kernel or the scheduler ended. First cause first.

An abort after a watchdog's line, a signal from the launcher, an exception about a peer: these follow from the
hang, and prove nothing about its start. First event wins only within one node, or beyond a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from hangscope.model.facts import Ref
from hangscope.model.loose import LogEvent, LooseFact, ProcessState
from hangscope.model.ranges import ranks_phrase

from .identities import Identities
from .machine import Machine

FOLLOWING_CODES = frozenset({-15, -6, -2, -1, 143, 134, 130, 129})
"""SIGTERM, SIGABRT, SIGINT and SIGHUP, and the same as shells tell them: the end of a victim."""

SIGKILL = frozenset({-9, 137})

_OF_A_PEER = re.compile(
    r"NCCL|mismatch|collective|Dist(?:Backend|Network|Store)?Error|gloo|[Ww]atchdog|[Tt]imed? ?out"
    r"|[Bb]roken pipe|TCPStore|[Cc]onnection (?:closed|reset|refused)|monitoredBarrier|[Rr]endezvous"
    r"|ChildFailedError|SignalException|KeyboardInterrupt"
)
_FIRED = frozenset(
    {"watchdog-timeout", "wait-timeout", "gloo-timeout", "gloo-closed", "store-timeout", "barrier-missing"}
)

_TROUBLE = _FIRED | {
    "fingerprint-mismatch", "nccl-mismatch", "nccl-network", "connect-timeout", "rendezvous-timeout",
    "stall-waiting", "watchdog-ended", "heartbeat-stuck", "dump-sent", "dump-received",
}  # fmt: skip
"""After one of these, a program that ends with an ordinary exit code has mostly given up waiting."""

CLOCK_OFFSET = 1.0
"""Seconds within which events of two nodes have no order."""


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """One rank that is gone. ``cause`` is an id of the catalogue."""

    rank: int
    cause: str
    text: str
    node: str | None = None
    wall: float | None = None
    first: bool = False
    """The launcher calls this end the first one."""
    sure: bool = True
    ref: Ref


class Absences(msgspec.Struct, frozen=True, kw_only=True):
    """``first``: those whose end nothing precedes; ``followers``: ends that another may have brought about.
    ``doubt`` tells why none of several candidates is the first."""

    first: tuple[Absence, ...] = ()
    followers: tuple[Absence, ...] = ()
    doubt: str = ""


def absences_of(facts: Sequence[LooseFact], who: Identities, machine: Machine) -> Absences:
    """Every rank with proof that it is gone, ordered by cause and, where clocks allow, by time. A rank that
    RAS calls dead is one that RAS cannot reach: stopped or cut off as well, and no proof."""
    events = [fact for fact in facts if isinstance(fact, LogEvent)]
    victims = _victims(events, who)
    ended = _ended_by_launcher(events, who)
    killed = _memory_kills(machine)
    found: dict[int, Absence] = {}
    for absence in (*_exits(events, who, victims, ended, killed), *killed.values(), *_named(events, who)):
        known = found.get(absence.rank)
        if known is None or _strength(absence) > _strength(known):
            found[absence.rank] = absence
    for fact in facts:
        if isinstance(fact, ProcessState) and fact.state.startswith(("Z", "X")):
            zombie = (
                fact.origin.rank
                if fact.origin.rank is not None
                else who.rank_of_process(fact.origin.node, fact.pid)
            )
            if zombie is not None and zombie not in found and zombie not in victims:
                text = f"rank {zombie} (pid {fact.pid}) is a zombie"
                found[zombie] = Absence(
                    rank=zombie, cause="rank-died-peers-wait", text=text, node=fact.origin.node, ref=fact.ref
                )
    return _ordered(list(found.values()))


def _victims(events: Iterable[LogEvent], who: Identities) -> set[int]:
    """Ranks that themselves ran into a time limit: their end follows from that."""
    found = {who.event_rank(event) for event in events if event.kind in _FIRED}
    return {rank for rank in found if rank is not None}


def _ended_by_launcher(events: Iterable[LogEvent], who: Identities) -> set[int]:
    found: set[int] = set()
    for event in events:
        if event.kind == "terminated-by-launcher":
            found.update(_ranks(event, who))
    return found


def _ranks(event: LogEvent, who: Identities) -> tuple[int, ...]:
    """Of whom the event speaks; else who wrote it."""
    about = who.about(event)
    if about:
        return about
    rank = who.event_rank(event)
    return (rank,) if rank is not None else ()


def _exits(
    events: Iterable[LogEvent],
    who: Identities,
    victims: set[int],
    ended: set[int],
    killed: dict[int, Absence],
) -> list[Absence]:
    found = []
    excused, own = _tracebacks(events, who)
    trouble = any(event.kind in _TROUBLE for event in events)
    memory = any(event.kind == "job-oom" for event in events)
    ended_by_scheduler = any(event.kind == "job-ended" for event in events)
    for event in events:
        if event.kind not in ("exit", "exit-first") or event.code in (None, 0):
            continue
        for rank in _ranks(event, who):
            assert event.code is not None
            if rank in victims or event.code in FOLLOWING_CODES:
                continue
            if (
                event.code > 0
                and event.code not in SIGKILL
                and rank not in own
                and (rank in excused or trouble or event.code == 1)
                and not _own_error(event)
            ):
                continue  # 1 is Python's code for any exception, that of a time-out too
            if event.code in SIGKILL and ended_by_scheduler:
                continue
            if rank in ended and event.code in SIGKILL and event.kind != "exit-first":
                continue
            if rank in killed:
                continue
            how = f"signal {-event.code}" if event.code < 0 else f"exit code {event.code}"
            found.append(
                Absence(
                    rank=rank,
                    cause=_cause(event.code, memory),
                    text=f"rank {rank} ended with {how}",
                    node=event.origin.node,
                    wall=event.origin.wall,
                    first=event.kind == "exit-first",
                    ref=event.ref,
                )
            )
    return found


def _cause(code: int, memory: bool) -> str:
    """``memory``: the scheduler saw the memory limit hit."""
    if code not in SIGKILL:
        return "rank-died-peers-wait"
    return "oom-killed-rank" if memory else "rank-killed"


def _own_error(event: LogEvent) -> bool:
    """The launcher's table has the last line of the rank's traceback, and it speaks of no peer."""
    _before, found, error = event.text.partition(" · error ")
    return bool(found) and _OF_A_PEER.search(error) is None


def _tracebacks(events: Iterable[LogEvent], who: Identities) -> tuple[set[int], set[int]]:
    """Ranks whose tracebacks speak of a peer, a time limit or the launcher only, and those with one of their
    own."""
    own: set[int] = set()
    other: set[int] = set()
    for event in events:
        if event.kind == "exception":
            for rank in _ranks(event, who):
                (other if _OF_A_PEER.search(event.text) else own).add(rank)
    return other - own, own


def _memory_kills(machine: Machine) -> dict[int, Absence]:
    """Ranks that the kernel ended, tied by node and pid: the OOM killer's, and faults of their own."""
    found = {}
    for rank, events in machine.by_rank.items():
        for event in events:
            if event.kind not in ("oom-kill", "segfault") or rank in found:
                continue
            what = (
                "the kernel's OOM killer ended" if event.kind == "oom-kill" else "a segmentation fault ended"
            )
            found[rank] = Absence(
                rank=rank,
                cause=event.cause or "rank-died-peers-wait",
                text=f"{what} rank {rank} (pid {event.pid})",
                node=event.node,
                wall=event.wall,
                first=event in machine.first or not machine.first,
                ref=event.ref,
            )
    return found


def _named(events: Iterable[LogEvent], who: Identities) -> list[Absence]:
    """Tasks that the scheduler or a framework names."""
    found = []
    for event in events:
        if event.kind not in ("task-killed", "actor-dead") or event.group is not None:
            continue  # Slurm's task numbers are no ranks
        for rank in _ranks(event, who):
            cause = "rank-killed" if event.kind == "task-killed" else "ray-actor-dead-peer-waits"
            found.append(
                Absence(
                    rank=rank, cause=cause, text=event.text[:200], node=event.origin.node,
                    wall=event.origin.wall, ref=event.ref,
                )
            )  # fmt: skip
    return found


def _strength(absence: Absence) -> tuple[bool, bool, str]:
    return (absence.cause == "oom-killed-rank", absence.first, absence.text)


def _ordered(found: list[Absence]) -> Absences:
    """What the launcher or the kernel calls first, else the earliest where clocks can tell."""
    if not found:
        return Absences()
    ordered = sorted(found, key=lambda item: item.rank)
    first = [item for item in ordered if item.first] or ordered
    if len(first) > 1 and all(item.wall is not None for item in first):
        earliest = min(first, key=lambda item: (item.wall or 0.0, item.rank))
        kept = [item for item in first if _not_after(item, earliest)]
    else:
        kept = first
    followers = tuple(item for item in ordered if item not in kept)
    doubt = ""
    if len(kept) > 1 and any(item.cause != "oom-killed-rank" for item in kept):
        doubt = f"{ranks_phrase(item.rank for item in kept)} ended, and which of them first is not known"
    return Absences(first=tuple(kept), followers=followers, doubt=doubt)


def _not_after(item: Absence, earliest: Absence) -> bool:
    """It ended at the same moment, as far as the clocks can tell."""
    gap = (item.wall or 0.0) - (earliest.wall or 0.0)
    one_clock = item.node is not None and item.node == earliest.node
    return gap <= (0.0 if one_clock else CLOCK_OFFSET)
