"""Flight-recorder dumps of captured processes → the ``Recorder`` that the graph works with, or why not.

A dump that the rank wrote for this capture is of now. One that was found on disk is of the moment at which it
was written: it counts only when that moment provably lies in this hang. So: not before the process began; not
beside answers of now; written while some rank had been stuck for a while, within two minutes of that rank's,
and nobody's output has grown since.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Operation, Process, Recorder
from hangscope.model.loose import FlightRecord, GroupRecord, RecordedOperation

from ..readers.recorder_dumps import DumpTable
from .parsed import ParsedShard

CLOCK = 2.0
"""Seconds by which a start time from boot time and ticks can be wrong."""
STUCK = 30.0
"""An operation that was unfinished for so many seconds when the dump was written was stuck then."""
TOGETHER = 120.0
"""Seconds within which the dumps of one hang are written: the first that times out asks the others."""
OUTPUT = 60.0
"""Output that much younger than the dump says that the process went on after it."""


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One dump of one process. ``written``: wall seconds; ``asked``: for this capture; ``own``: from a place
    that is this job's alone."""

    process: Process
    record: FlightRecord
    asked: bool
    own: bool
    written: float | None


def join_dumps(
    processes: Sequence[Process], shards: Sequence[ParsedShard]
) -> tuple[tuple[Process, ...], tuple[str, ...]]:
    """The processes with the recorders that their dumps amount to, and notes on dumps that do not count."""
    notes: list[str] = []
    owners = {(process.node, process.pid): process for process in processes}
    dumps = [dump for shard in shards for dump in _dumps(shard, owners)]
    if not dumps:
        return tuple(processes), ()
    fresh = [dump for dump in dumps if _belongs(dump, notes)]
    now = [dump for dump in fresh if dump.asked]
    if now or any(process.recorders for process in processes):
        _note(notes, [dump for dump in fresh if not dump.asked], "ranks have told their state of now")
        counted = now
    else:
        counted = _of_this_hang(fresh, notes)
    by_process: dict[tuple[str, int], Dump] = {}
    for dump in sorted(counted, key=lambda item: item.written or 0.0):
        by_process[dump.process.node, dump.process.pid] = dump
    return tuple(_with(process, by_process.get((process.node, process.pid))) for process in processes), tuple(
        notes
    )


def _dumps(shard: ParsedShard, owners: dict[tuple[str, int], Process]) -> list[Dump]:
    files = {
        (artifact.pid, file.artifact): file
        for artifact, table in shard.every(DumpTable)
        for file in table.files
    }
    found = []
    for artifact, record in shard.every(FlightRecord):
        owner = owners.get((shard.node, artifact.pid or -1))
        asked = artifact.collector == "recorder_pipe"
        file = files.get((artifact.pid, artifact.name))
        time = artifact.wall if asked else file.mtime if file is not None else None
        own = asked or (file is not None and file.named)
        if owner is not None and owner.rank is not None:
            found.append(Dump(process=owner, record=record, asked=asked, own=own, written=time))
    return found


def _belongs(dump: Dump, notes: list[str]) -> bool:
    """Whether the dump is whole, and of this process."""
    record, process = dump.record, dump.process
    began = process.start_wall
    newest = record.newest_ns / 1e9 if record.newest_ns is not None else None
    told = record.origin.rank if record.origin.source == "content" else None
    why = None
    if record.partial is not None:
        why = f"not whole ({record.partial}): what is missing in it says nothing"
    elif told is not None and told != process.rank:
        why = f"the dump of rank {told}"
    elif record.world_size and process.world_size and record.world_size != process.world_size:
        why = f"of a job of {record.world_size} ranks"
    elif not dump.own and (record.world_size is None or record.world_size != process.world_size):
        why = "in a place that all jobs share, and not known to be of this one"
    elif not dump.asked and (dump.written is None or began is None):
        why = "of unknown time"
    elif began is not None and dump.written is not None and dump.written < began - CLOCK:
        why = "stale: written before the process began"
    elif began is not None and newest is not None and newest < began - CLOCK:
        why = "stale: its newest entry is older than the process"
    if why is not None:
        notes.append(f"{record.ref.artifact}: {why}; not used")
    return why is None


def _of_this_hang(dumps: list[Dump], notes: list[str]) -> list[Dump]:
    """The dumps on disk that were written in one go while somebody was stuck, if nothing has moved since."""
    stuck = [dump.written for dump in dumps if dump.written is not None and _was_stuck(dump)]
    if not stuck:
        _note(notes, dumps, "no operation had been stuck when it was written")
        return []
    moment = max(stuck)
    together = [dump for dump in dumps if abs((dump.written or 0.0) - moment) <= TOGETHER]
    _note(notes, [dump for dump in dumps if dump not in together], "written at another time than the others")
    went_on = [dump for dump in together if _went_on(dump.process, moment)]
    if went_on:
        ranks = ", ".join(str(dump.process.rank) for dump in went_on)
        _note(notes, together, f"the output of rank {ranks} grew after it was written")
        return []
    return together


def _was_stuck(dump: Dump) -> bool:
    written = (dump.written or 0.0) * 1e9
    return any(
        not operation.finished
        and operation.created_ns is not None
        and operation.created_ns + STUCK * 1e9 <= written
        for group in dump.record.groups
        for operation in group.operations
    )


def _went_on(process: Process, moment: float) -> bool:
    times = [sample.output_mtime for sample in process.samples if sample.output_mtime is not None]
    return bool(times) and max(times) > moment + OUTPUT


def _note(notes: list[str], dumps: Sequence[Dump], why: str) -> None:
    notes += [f"{dump.record.ref.artifact}: {why}; not used" for dump in dumps]


def _with(process: Process, dump: Dump | None) -> Process:
    if dump is None:
        return process
    seen = [sample.sample for sample in process.samples if sample.threads]
    recorder = recorder_of(dump.record, seen[-1] if seen else 0)
    return msgspec.structs.replace(process, recorders=(recorder, *process.recorders))


def recorder_of(record: FlightRecord, sample: int) -> Recorder:
    """A dump in the form in which a worker server's answer comes. Groups whose numbers cannot be compared
    between ranks are left out; point-to-point operations count in a group of their own, ``<name>/p2p``."""
    groups = [group for group in record.groups if group.name and group.aligned]
    enqueued: dict[str, int] = {}
    completed: dict[str, int] = {}
    lowest: dict[str, int] = {}
    pending: list[Operation] = []
    for group in groups:
        _collectives(group, enqueued, completed, lowest)
        for item in group.operations:
            name = f"{group.name}/p2p" if item.p2p else group.name
            enqueued[name] = max(item.sequence, enqueued.get(name, item.sequence))
            if item.p2p:
                lowest[name] = min(item.sequence, lowest.get(name, item.sequence))
            if item.finished:
                completed[name] = max(item.sequence, completed.get(name, item.sequence))
            else:
                pending.append(_operation(name, item, record))
    return Recorder(
        sample=sample,
        groups=tuple(sorted({group.name for group in groups} | set(enqueued))),
        last_enqueued=tuple(sorted(enqueued.items())),
        last_completed=tuple(sorted(completed.items())),
        pending=tuple(sorted(pending, key=lambda item: item.created_ns or 0)),
        low_water=tuple(sorted(lowest.items())),
        timed=any(item.started_ns is not None for group in groups for item in group.operations),
        live=False,
        ref=record.ref,
    )


def _collectives(
    group: GroupRecord, enqueued: dict[str, int], completed: dict[str, int], lowest: dict[str, int]
) -> None:
    """The group's own numbers; -1 and None stand for none."""
    for table, number in (
        (enqueued, group.enqueued),
        (completed, group.completed),
        (lowest, group.low_water),
    ):
        if number is not None and number >= 0:
            table[group.name] = number


def _operation(name: str, item: RecordedOperation, record: FlightRecord) -> Operation:
    return Operation(
        group=name,
        sequence=item.sequence,
        kind=item.kind,
        state=item.state,
        retired=False,
        created_ns=item.created_ns,
        sizes=item.sizes,
        dtype=item.dtype,
        p2p=item.p2p,
        ref=record.ref,
    )
