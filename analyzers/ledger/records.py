"""Flight-recorder dumps into lanes: the best evidence there is of who joined what.

That an entry N exists means that N was entered, whatever the counter says; below a rank's low-water mark its
ring buffer has dropped entries, so the rank is past them. A dump that was cut proves nothing of what is not
in it. Flight Recorder schema 2.x, torch 2.1 to 2.15.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, GroupRecord, RecordedOperation

from .identities import WORLD, Identities
from .lanes import Lanes, Occurrence, Standing


def add_records(lanes: Lanes, records: Iterable[FlightRecord], who: Identities) -> None:
    """Enters every dump whose rank is known. A rank with a dump stands in the group of all ranks even where
    its recorder is empty: it has entered nothing. The numbers of a group are left aside where point-to-point
    batches took some of them on any rank: they are then not comparable."""
    records = list(records)
    unaligned = _unaligned(records, who)
    for record in records:
        rank = record.origin.rank
        if rank is None:
            lanes.unplaced += 1
            continue
        gpu = bool(record.backend) and record.backend != "gloo"
        seen = set()
        for group in record.groups:
            key = who.key(group.name, group.desc, rank)
            if key is not None:
                seen.add(key)
                if key in unaligned:
                    lane = lanes.lane("torch", key, who.members(key))
                    lane.listed.add(rank)
                    lane.standing(rank).refs.append(record.ref)
                    continue
                _add_group(lanes, who, rank, key, group, record, gpu)
        if WORLD not in seen and record.partial is None and not _wrapped(record):
            _limit(lanes.lane("torch", WORLD, who.members(WORLD)).standing(rank), 0, record.ref)


def _unaligned(records: Iterable[FlightRecord], who: Identities) -> set[str]:
    """Groups whose collective numbers mean different operations on different ranks."""
    keys = (
        who.key(group.name, group.desc, record.origin.rank)
        for record in records
        for group in record.groups
        if not group.aligned and record.origin.rank is not None
    )
    return {key for key in keys if key is not None}


def _add_group(
    lanes: Lanes,
    who: Identities,
    rank: int,
    key: str,
    group: GroupRecord,
    record: FlightRecord,
    gpu: bool,
) -> None:
    lane = lanes.lane("torch", key, who.members(key))
    lane.desc = lane.desc or group.desc
    lane.gpu = lane.gpu or gpu
    lane.listed.add(rank)
    standing = lane.standing(rank)
    standing.refs.append(record.ref)
    standing.known = True
    standing.read_at = record.written
    numbers = [operation for operation in group.operations if not operation.p2p]
    lane.transfers = lane.transfers or len(numbers) < len(group.operations)
    standing.timed = standing.timed or (record.partial is None and _tells_starts(record))
    for operation in numbers:
        standing.add(_occurrence(operation, record.ref))
    if record.partial is not None and not record.entries:
        return  # counters without any entry: nothing tells of which moment they are
    if group.enqueued is not None and group.enqueued >= 0:
        standing.enter(group.enqueued)
    if group.started is not None and group.started >= 0:
        standing.started = max(standing.started or 0, group.started)
        standing.timed = standing.timed or (gpu and record.partial is None)
    if group.completed is not None and group.completed >= 0:
        standing.complete(group.completed)
    if group.low_water is not None:
        standing.past = max(standing.past or 0, group.low_water)
    told = group.enqueued is not None or bool(numbers) or not _wrapped(record)
    if record.partial is None and told:
        _limit(standing, standing.entered if standing.entered is not None else 0, record.ref)


def _wrapped(record: FlightRecord) -> bool:
    """Its ring buffer has dropped entries: a group without any may have had some."""
    return any((group.low_water or 0) > 1 for group in record.groups)


def _tells_starts(record: FlightRecord) -> bool:
    """Whether the back end notes when a device starts an operation, in whatever group."""
    return any(
        operation.started_ns is not None or operation.state == "started"
        for group in record.groups
        for operation in group.operations
    )


def _limit(standing: Standing, sequence: int, ref: Ref) -> None:
    standing.limit(sequence, firm=True)
    if ref not in standing.refs:
        standing.refs.append(ref)


def _occurrence(operation: RecordedOperation, ref: Ref) -> Occurrence:
    return Occurrence(
        sequence=operation.sequence,
        label=operation.kind,
        sizes=operation.sizes,
        dtype=operation.dtype,
        place=operation.place,
        started=operation.state == "started" or operation.started_ns is not None,
        finished=operation.finished,
        created_ns=operation.created_ns,
        recorded=True,
        ref=ref,
    )
