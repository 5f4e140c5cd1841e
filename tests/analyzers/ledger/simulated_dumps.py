"""Flight Recorder dumps of a simulated job, as torch writes them."""

from __future__ import annotations

import random
from typing import Any

from hangscope.analyzers.readers.interface import Document
from hangscope.analyzers.readers.names import origin_of_name
from tests.analyzers.readers.flight_dumps import SECOND, Dump, Group

from .simulated_run import NEVER, Call, Run
from .simulated_truth import Truth


class TimedDump(Dump):
    """A dump whose counters leave out the last call: its rank stands inside of it."""

    inside = False

    def _status(self, name: str) -> dict[str, int]:
        found = super()._status(name)
        if self.inside and self.entries and self.entries[-1]["process_group"][0] == name:
            found["last_enqueued_collective"] -= 1
            found["last_started_collective"] = found["last_enqueued_collective"]
        if self.backend == "gloo":
            return found
        own = [item for item in self.entries if item["process_group"][0] == name and not item["is_p2p"]]
        started = [item["collective_seq_id"] for item in own if item["state"] != "scheduled"]
        found["last_started_collective"] = max(started, default=-1)
        return found


def groups_of_rank(run: Run, rank: int) -> list[str]:
    """The groups that the rank is in, in the order of their making."""
    return [name for name, members in run.groups.items() if rank in members]


def dump_of(truth: Truth, rank: int, now: float, *, ring: int = 2000, frames: bool = True) -> TimedDump:
    """What the rank's recorder holds at that time."""
    run = truth.run
    names = groups_of_rank(run, rank)
    groups = [Group(*_named(name), run.groups[name]) for name in names]
    dump = TimedDump(rank, groups, "nccl" if run.gpu else "gloo")
    dump.inside = truth.inside == rank
    for call in run.programs[rank]:
        if call.launched > now:
            break
        if call.p2p and not run.gpu:
            continue  # gloo's transfers are in no recorder
        _record(dump, call, names.index(call.group), rank, run, now)
    if not frames:
        for entry in dump.entries:
            entry["frames"] = []
    dump.wrapped(ring)
    return dump


def _named(group: str) -> tuple[str, str]:
    """GUID and description."""
    name, _, desc = group.partition(" ")
    return name, desc


def _record(dump: TimedDump, call: Call, group: int, rank: int, run: Run, now: float) -> None:
    state = "completed" if call.finished <= now else "started" if call.started <= now else "scheduled"
    kind = call.kind
    if call.peer is not None:
        members = run.groups[call.group]
        arrow = "->" if kind == "send" else "<-"
        kind = f"{kind} {members.index(rank)}{arrow}{members.index(call.peer)}"
    dump.call(kind, group, state=state, line=call.place, sizes=((call.size,),), p2p=call.p2p)
    entry: dict[str, Any] = dump.entries[-1]
    entry["input_dtypes"] = entry["output_dtypes"] = [call.dtype]
    entry["time_created_ns"] = int(call.launched * SECOND)
    if run.gpu:
        entry["time_discovered_started_ns"] = _nanoseconds(call.started, now)
        entry["time_discovered_completed_ns"] = _nanoseconds(call.finished, now)


def _nanoseconds(time: float, now: float) -> int | None:
    return int(time * SECOND) if time <= now and time < NEVER else None


def dumps(
    truth: Truth, chance: random.Random, *, loss: bool, skew: float = 2.0, folder: str = "dumps"
) -> list[Document]:
    """A document a rank; with ``loss`` some are missing, cut, stale, wrapped or without a time."""
    found = []
    version = chance.choice(["2.10", "2.10", "2.5", "2.2"]) if truth.run.gpu else "2.10"
    ring = chance.choice([2000, 2000, 30, 12]) if loss else 2000
    frames = not loss or chance.random() < 0.85
    times = chance.choice(["told", "told", "none", "copied"]) if loss else "told"
    if truth.what in ("slow", "healthy"):
        times = "told"  # nothing else tells such a dump from one of a hang
    for rank in range(truth.run.ranks):
        if truth.what == "killed" and rank in truth.guilty:
            continue
        if loss and chance.random() < 0.2:
            continue
        now = truth.now + chance.uniform(0.0, skew)
        stale = loss and chance.random() < 0.06
        dump = dump_of(truth, rank, now - 590.0 if stale else now, ring=ring, frames=frames)
        data = dump.pickle(version)
        if loss and chance.random() < 0.1:
            data = data[: chance.randrange(len(data))]
        written = now - 590.0 if stale else now
        mtime = {"told": written, "none": None, "copied": truth.now + 4000.0}[times]
        if stale and times != "told":
            continue
        path = f"{folder}/nccl_trace_rank_{rank}"
        found.append(Document(path=path, data=data, mtime=mtime, origin=origin_of_name(path)))
    return found
