"""Dumps of captured ranks: which count, which are of another moment, attempt or job."""

from __future__ import annotations

import json
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze
from hangscope.analyzers.facts import flight
from hangscope.analyzers.facts.capture import read_capture
from hangscope.analyzers.progress import _recorders
from hangscope.analyzers.readers import recorder_dumps
from hangscope.bundle.reader import read_bundle
from hangscope.errors import UnreadableEvidence
from hangscope.model.evidence import Artifact, Evidence
from hangscope.model.facts import Capture, Recorder

from .evidence_builder import NodeBuilder

BUNDLE = pathlib.Path(__file__).parents[2] / "fixtures" / "bundles" / "06a-two-groups-recorder" / "bundle.tar"
BOOT = 500_000.0
NOW = BOOT + 4000.0
"""Start of the processes: boot + 900 + pid in hundredths of a second."""


def entry(sequence: int, *, finished: bool, created: float = NOW - 100, **fields: Any) -> dict[str, Any]:
    base = {
        "frames": [],
        "record_id": sequence,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": int(created * 1e9),
        "input_sizes": ((8,),),
        "input_dtypes": ["Float"],
        "state": "completed" if finished else "started",
        "time_discovered_started_ns": int(created * 1e9) + 1,
        "time_discovered_completed_ns": int(created * 1e9) + 2 if finished else None,
        "retired": finished,
        "is_p2p": False,
    }
    return {**base, **fields}


def dump(*entries: dict[str, Any], world: int | None = 2) -> bytes:
    ranks = str(list(range(world or 0)))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}} if world else {}
    value = {"version": "2.5", "pg_config": config, "pg_status": {}, "entries": list(entries)}
    return pickle.dumps(value, protocol=2)


STUCK = dump(entry(6, finished=True), entry(7, finished=False))
BEHIND = dump(entry(6, finished=True))


class Job:
    """Two ranks, pids 10 and 11, that began long before NOW."""

    def __init__(self) -> None:
        self.node = NodeBuilder(world_size=2)
        for rank in (0, 1):
            self.node.process(10 + rank, rank=rank, world_size=2)
            self.node.threads(10 + rank, {"tid": 10 + rank, "comm": "python3"})

    def on_disk(self, rank: int, data: bytes, mtime: float | None, named: bool = True) -> Job:
        row = {
            "path": "/job/t",
            "size": len(data),
            "mtime": mtime,
            "artifact": "dump-0.pickle",
            "named": named,
        }
        self.node.add("recorder_files", "files.json", {"files": [row]}, 10 + rank)
        self.node.add("recorder_files", "dump-0.pickle", data, 10 + rank)
        return self

    def asked(self, rank: int, data: bytes) -> Job:
        self.node.add("recorder_pipe", "dump.pickle", data, 10 + rank)
        self.node.artifacts[-1] = msgspec.structs.replace(self.node.artifacts[-1], wall=NOW)
        return self

    def output(self, rank: int, mtime: float) -> Job:
        files = [{"fd": 1, "path": "/job/out", "size": 5, "mtime": mtime, "position": 5, "tail": None}]
        self.node.add("output", "output.json", {"files": files}, 10 + rank)
        return self

    def capture(self) -> Capture:
        shard = self.node.shard()
        assert shard.node is not None
        shard = msgspec.structs.replace(shard, node=msgspec.structs.replace(shard.node, boot_time=BOOT))
        return read_capture(Evidence(job=None, shards=(shard,)))


def recorders(capture: Capture) -> list[list[Recorder]]:
    return [list(process.recorders) for process in capture.processes]


def test_dumps_written_when_asked_are_of_now() -> None:
    capture = Job().asked(0, STUCK).asked(1, BEHIND).capture()
    ((first,), (second,)) = recorders(capture)
    assert (first.last_enqueued, first.last_completed) == ((("0", 7),), (("0", 6),))
    assert [(item.group, item.sequence, item.kind) for item in first.pending] == [("0", 7, "all_reduce")]
    assert (second.last_enqueued, second.pending, second.live) == ((("0", 6),), (), False)
    assert first.timed and first.ref.artifact.endswith("recorder_pipe/pid-10/dump.pickle")
    assert capture.notes == ()


def test_dumps_on_disk_that_were_written_while_somebody_was_stuck_count() -> None:
    capture = Job().on_disk(0, STUCK, NOW).on_disk(1, BEHIND, NOW + 3).capture()
    assert [len(found) for found in recorders(capture)] == [1, 1]


def test_a_dump_in_a_shared_place_counts_where_it_is_of_a_job_of_this_size() -> None:
    capture = Job().on_disk(0, STUCK, NOW, named=False).capture()
    assert [len(found) for found in recorders(capture)] == [1, 0]


@pytest.mark.parametrize(
    ("job", "why", "joined"),
    [
        (
            lambda: Job().on_disk(0, STUCK, BOOT - 50).on_disk(1, BEHIND, BOOT - 50),
            "stale: written before",
            0,
        ),
        (
            lambda: Job().on_disk(0, dump(entry(7, finished=False, created=BOOT - 9)), NOW),
            "stale: its newest entry",
            0,
        ),
        (lambda: Job().on_disk(0, STUCK, None), "of unknown time", 0),
        (lambda: Job().on_disk(0, STUCK, NOW - 90), "no operation had been stuck", 0),
        (lambda: Job().on_disk(0, STUCK, NOW).on_disk(1, BEHIND, NOW - 500), "at another time", 1),
        (lambda: Job().on_disk(0, STUCK, NOW).output(0, NOW + 500), "output of rank 0 grew", 0),
        (lambda: Job().on_disk(0, STUCK[:-20], NOW), "not whole", 0),
        (lambda: Job().on_disk(0, dump(entry(7, finished=False), world=8), NOW), "job of 8 ranks", 0),
        (lambda: Job().on_disk(0, STUCK, NOW).asked(1, BEHIND), "ranks have told their state of now", 1),
        (
            lambda: Job().on_disk(0, dump(entry(7, finished=False), world=None), NOW, named=False),
            "in a place that all jobs share",
            0,
        ),
        (lambda: Job().on_disk(0, b"not a pickle", NOW), "no flight-recorder dump", 0),
    ],
)
def test_dumps_that_do_not_count_are_named(job: Callable[[], Job], why: str, joined: int) -> None:
    capture = job().capture()
    assert sum(len(found) for found in recorders(capture)) == joined
    assert any(why in note for note in capture.notes), capture.notes


def test_of_two_dumps_of_a_rank_the_newer_counts() -> None:
    job = Job().on_disk(0, STUCK, NOW)
    later = dump(entry(7, finished=True), entry(8, finished=False))
    row = [
        {"path": f"/job/{n}", "mtime": NOW + n, "named": True, "artifact": f"dump-{n}.pickle"} for n in (0, 1)
    ]
    job.node.artifacts[-2] = msgspec.structs.replace(
        job.node.artifacts[-2], data=json.dumps({"files": row}).encode()
    )
    job.node.add("recorder_files", "dump-1.pickle", later, 10)
    ((found,), _) = recorders(job.capture())
    assert found.last_enqueued == (("0", 8),)


def test_a_dump_of_another_rank_is_not_taken_for_this_one() -> None:
    send = entry(3, finished=False, is_p2p=True, p2p_seq_id=3, profiling_name="nccl:send 1->0")
    capture = Job().asked(0, dump(send)).capture()
    assert recorders(capture) == [[], []]
    assert "the dump of rank 1" in capture.notes[0]


def test_point_to_point_operations_count_apart_and_mixed_counters_not_at_all() -> None:
    send = entry(0, finished=False, is_p2p=True, p2p_seq_id=4, profiling_name="nccl:send 0->1")
    ((found,), _) = recorders(Job().asked(0, dump(entry(7, finished=False), send)).capture())
    assert found.last_enqueued == (("0", 7), ("0/p2p", 4))
    batch = [
        entry(8, finished=False, is_p2p=True, profiling_name="nccl:send 0->1", state="scheduled"),
        entry(8, finished=False, is_p2p=True, profiling_name="nccl:coalesced"),
    ]
    record = recorder_dumps.read_dump(dump(*batch), "x")
    if not record.groups[0].aligned:
        assert flight.recorder_of(record, 0).groups == ()


def test_a_dump_that_has_not_changed_is_no_proof_that_nothing_moved() -> None:
    record = recorder_dumps.read_dump(STUCK, "x")
    same = (flight.recorder_of(record, 0), flight.recorder_of(record, 1))
    assert _recorders(same).moved is None
    assert _recorders(tuple(msgspec.structs.replace(item, live=True) for item in same)).moved is False


def test_what_is_no_dump_is_unreadable() -> None:
    for data in (b"", b"x" * 100, pickle.dumps([1, 2])):
        with pytest.raises(UnreadableEvidence):
            recorder_dumps.read_dump(data, "x")
    as_json = json.dumps({"version": "2.10", "pg_config": {}, "entries": [entry(7, finished=False)]})
    assert recorder_dumps.read_dump(as_json.encode(), "x").groups[0].enqueued == 7


def as_dumps(evidence: Evidence, collector: str, written: float | None = None) -> Evidence:
    """The same capture, had its ranks been armed with a FIFO, or written dumps, instead of a server."""

    def change(artifact: Artifact) -> list[Artifact]:
        if artifact.collector != "recorder":
            return [artifact]
        if artifact.name != "fr_trace.json":
            return []
        data = pickle.dumps(json.loads(artifact.data), protocol=2)
        base = artifact.path.replace("/recorder/", f"/{collector}/").rpartition("/")[0]
        name = "dump.pickle" if collector == "recorder_pipe" else "dump-0.pickle"
        made = msgspec.structs.replace(
            artifact, collector=collector, name=name, data=data, path=f"{base}/{name}"
        )
        row = {
            "path": "/t",
            "mtime": written or artifact.wall + flight.STUCK,
            "named": True,
            "artifact": name,
        }
        table = msgspec.structs.replace(
            made, name="files.json", path=f"{base}/files.json", data=json.dumps({"files": [row]}).encode()
        )
        return [made] if collector == "recorder_pipe" else [table, made]

    shards = tuple(
        msgspec.structs.replace(shard, artifacts=tuple(new for old in shard.artifacts for new in change(old)))
        for shard in evidence.shards
    )
    return msgspec.structs.replace(evidence, shards=shards)


@pytest.mark.parametrize("collector", ["recorder_pipe", "recorder_files"])
def test_a_recorded_cycle_is_found_from_dumps_as_from_worker_servers(collector: str) -> None:
    evidence = read_bundle(str(BUNDLE))
    whole, verdict = analyze(evidence), analyze(as_dumps(evidence, collector))
    assert (verdict.kind, verdict.initiators) == (whole.kind, whole.initiators) == ("cycle", (2, 3))


def test_stale_dumps_never_name_anybody_and_the_verdict_says_that_they_were_there() -> None:
    evidence = as_dumps(read_bundle(str(BUNDLE)), "recorder_files", written=1.0)
    verdict = analyze(evidence)
    assert (verdict.kind, verdict.initiators) == ("undecided", ())
    (told,) = [fact for fact in verdict.missing if "flight recorder" in fact.what]
    assert "dumps were found, but stale: written before the process began" in told.why
