"""RAS reports that a capture holds: read, kept, and compared with themselves. The reports are a FAKE's."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from hangscope.analyzers.facts.capture import read_capture
from hangscope.analyzers.job import Job
from hangscope.analyzers.progress import Progress
from hangscope.analyzers.ras_moved import launched
from hangscope.analyzers.readers import ras_artifacts
from hangscope.errors import UnreadableEvidence
from hangscope.model.evidence import Evidence
from hangscope.model.facts import Capture
from tests.collectors.fake_ras_server import FakeJob

from .evidence_builder import NodeBuilder

PID = 40


class Clocked(FakeJob):
    """A fake job whose count of operations is said."""

    def __init__(self, version: tuple[int, ...], scenario: str, count: int) -> None:
        super().__init__(version, scenario, 4, PID, 0.0)
        self._count = count

    def operations(self) -> int:
        return self._count


def a_capture(version: tuple[int, ...], scenario: str, *counts: int, **rank: object) -> Capture:
    """Four ranks, one report a sample."""
    node = NodeBuilder(world_size=4)
    for number in range(4):
        node.process(PID + number, rank=number, **rank)
    for sample, count in enumerate(counts):
        job = Clocked(version, scenario, count)
        in_json = version >= (2, 28, 7)
        body = (job.json() if in_json else job.text()).encode()
        node.add("ras", "ras.json" if in_json else "ras.txt", body, sample=sample)
    return read_capture(Evidence(job=None, shards=(node.shard(),)))


@pytest.mark.parametrize("version", [(2, 26, 2), (2, 27, 7), (2, 28, 7), (2, 29, 1), (2, 29, 7), (2, 30, 7)])
@pytest.mark.parametrize("scenario", ["healthy", "lagging", "missing", "none"])
def test_reports_of_every_version_are_read(version: tuple[int, ...], scenario: str) -> None:
    capture = a_capture(version, scenario, 700, 700)
    assert capture.notes == ()
    assert [report.wall for report in capture.ras] == [1000.0, 1002.0]
    first = capture.ras[0]
    assert first.nccl_version == ".".join(map(str, version))
    if scenario == "missing":
        assert [rank.rank for rank in first.communicators[0].missing] == [1]
    if scenario == "lagging" and version < (2, 28, 7):
        assert ("AllReduce", 699, (1,)) in first.communicators[0].groups
    if scenario == "lagging" and version >= (2, 28, 7):
        assert [rank.counts["AllReduce"] for rank in first.communicators[0].ranks] == [700, 699, 700, 700]


def test_counts_that_moved_are_progress() -> None:
    capture = a_capture((2, 29, 7), "healthy", 700, 706)
    assert {place: found.more for place, found in launched(capture).items()} == {
        ("node-a", PID + number): 6 for number in range(4)
    }
    progress = Progress(Job(capture, {}))
    assert progress.rank(2).moved is True
    assert progress.rank(2).text == "RAS: it launched 6 more operations"
    assert progress.rank(2).ref == capture.ras[1].ref


@pytest.mark.parametrize("counts", [(700, 700), (700,), ()])
def test_counts_that_stood_still_prove_nothing(counts: tuple[int, ...]) -> None:
    capture = a_capture((2, 29, 7), "lagging", *counts)
    assert launched(capture) == {}
    assert Progress(Job(capture, {})).rank(0).moved is None


def test_a_text_report_moves_what_it_lists() -> None:
    capture = a_capture((2, 27, 7), "lagging", 700, 703)
    assert {place: found.more for place, found in launched(capture).items()} == {("node-a", PID + 1): 3}


def test_processes_are_known_by_their_own_pid_and_two_of_one_pid_by_none() -> None:
    inside = a_capture((2, 29, 7), "healthy", 700, 701, nspid=(9000, PID))
    assert launched(inside) == {}
    twin = msgspec.structs.replace(inside, processes=inside.processes[:1])
    assert list(launched(twin)) == [("node-a", PID)]


def test_what_is_no_report_is_unreadable() -> None:
    readers = (ras_artifacts.read_json, ras_artifacts.read_text)
    for read, data in itertools.product(readers, (b"", b"{}", b"[1, 2", b"\xff" * 50, b"OK\n" * 9)):
        with pytest.raises(UnreadableEvidence):
            read(data, "x")
