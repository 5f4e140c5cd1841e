"""Point-to-point operations: a send and its receive are one transfer, matched by (group, source, target).

Sequences of point-to-point operations count per rank, and join nothing. A rank waits in its lowest unfinished
ones (a coalesced batch has one number); a peer that has the matching side further back must first get through
what stands before it. Only NCCL and its kin record them: gloo's recorder does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, GroupRecord, RecordedOperation

from .alignment import YOUNG, too_early
from .identities import Identities


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer in which somebody waits. Ranks are global."""

    id: str
    name: str
    source: int
    target: int
    waiting: tuple[int, ...]
    lacking: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    created_ns: int | None = None
    refs: tuple[Ref, ...] = ()


class _Side(msgspec.Struct, frozen=True, gc=False):
    rank: int
    head: bool
    created_ns: int | None
    ref: Ref


def transfers_of(records: Iterable[FlightRecord], who: Identities) -> list[Transfer]:
    """Every transfer that is among some rank's lowest unfinished ones."""
    pending: dict[tuple[str, int, int], dict[int, _Side]] = {}
    whole: dict[int, float | None] = {}
    descriptions: dict[str, str] = {}
    for record in records:
        rank = record.origin.rank
        if rank is None:
            continue
        if record.partial is None:
            whole[rank] = record.written
        for group in record.groups:
            key = who.key(group.name, group.desc, rank)
            if key is not None:
                descriptions.setdefault(key, group.desc)
                _read(pending, who, key, group, rank, record.ref)
    return [
        _transfer(key, sides, whole, descriptions.get(key[0], ""))
        for key, sides in sorted(pending.items())
        if any(side.head for side in sides.values())
    ]


def _read(
    pending: dict[tuple[str, int, int], dict[int, _Side]],
    who: Identities,
    key: str,
    group: GroupRecord,
    rank: int,
    ref: Ref,
) -> None:
    done = {item.sequence for item in group.operations if item.finished and item.p2p and item.source is None}
    waiting = [
        item for item in group.operations if item.p2p and not item.finished and item.sequence not in done
    ]
    if not waiting:
        return
    lowest = min(item.sequence for item in waiting)
    for item in waiting:
        ends = _ends(who, key, item)
        if ends is None or rank not in ends:
            continue
        side = _Side(rank, item.sequence == lowest, item.created_ns, ref)
        known = pending.setdefault((key, *ends), {}).get(rank)
        if known is None or (side.head and not known.head):
            pending[key, ends[0], ends[1]][rank] = side


def _ends(who: Identities, key: str, item: RecordedOperation) -> tuple[int, int] | None:
    if item.source is None or item.target is None:
        return None
    source, target = who.member(key, item.source), who.member(key, item.target)
    return (source, target) if source is not None and target is not None else None


def _transfer(
    key: tuple[str, int, int], sides: dict[int, _Side], whole: Mapping[int, float | None], description: str
) -> Transfer:
    """``whole``: rank → when its dump was written, of dumps that were read to their end."""
    group, source, target = key
    waiting = tuple(sorted(rank for rank, side in sides.items() if side.head))
    others = [rank for rank in (source, target) if rank not in sides]
    begun = min((side.created_ns / 1e9 for side in sides.values() if side.created_ns), default=None)
    sure = {rank for rank, written in whole.items() if not too_early(written, begun)}
    if all(
        too_early(whole.get(rank), side.created_ns / 1e9 if side.created_ns else None, YOUNG)
        for rank, side in sides.items()
        if side.head
    ):
        sure = set()  # it had only just begun when those who wait were read: the other end may be through
    where = f" of group {description or group}" if group != "world" else ""
    return Transfer(
        id=f"p2p:{group}:{source}:{target}",
        name=f"the transfer from rank {source} to rank {target}{where}",
        source=source,
        target=target,
        waiting=waiting,
        lacking=tuple(rank for rank in others if rank in sure),
        behind=tuple(sorted(rank for rank, side in sides.items() if not side.head)),
        unknown=tuple(rank for rank in others if rank not in sure),
        created_ns=max((side.created_ns for side in sides.values() if side.created_ns), default=None),
        refs=tuple(side.ref for _rank, side in sorted(sides.items())),
    )
