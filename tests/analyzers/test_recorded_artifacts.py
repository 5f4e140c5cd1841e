"""The artifacts in ``recorded``: one real flight-recorder dump, and reports of the fake RAS server."""

from __future__ import annotations

import pathlib

import pytest

from hangscope.analyzers.facts.flight import recorder_of
from hangscope.analyzers.readers import reader_for
from hangscope.model.loose import FlightRecord, RasReport

RECORDED = pathlib.Path(__file__).with_name("recorded")


def read(name: str, collector: str, artifact: str) -> object:
    reader = reader_for(collector, artifact)
    assert reader is not None
    return reader.read((RECORDED / name).read_bytes(), name)


@pytest.mark.parametrize(
    ("collector", "artifact"), [("recorder_pipe", "dump.pickle"), ("recorder_files", "dump-0.pickle")]
)
def test_a_real_dump_of_gloo(collector: str, artifact: str) -> None:
    record = read("gloo-2.13-rank0.pickle", collector, artifact)
    assert isinstance(record, FlightRecord)
    assert (record.backend, record.entries, record.partial) == ("gloo", 4, None)
    recorder = recorder_of(record, 1)
    assert (recorder.sample, recorder.pending) == (1, ())
    assert recorder.last_enqueued == recorder.last_completed == (("0", 4),)
    kinds = [operation.kind for group in record.groups for operation in group.operations]
    assert kinds == ["all_reduce"] * 3 + ["barrier"]


def test_reports_of_the_fake_ras_server() -> None:
    lagging = read("fake-ras-2.27.7-lagging.txt", "ras", "ras.txt")
    missing = read("fake-ras-2.29.1-missing.json", "ras", "ras.json")
    healthy = read("fake-ras-2.29.7-healthy.json", "ras", "ras.json")
    assert (
        isinstance(lagging, RasReport) and isinstance(missing, RasReport) and isinstance(healthy, RasReport)
    )
    assert ("AllReduce", 699, (1,)) in lagging.communicators[0].groups
    assert [rank.rank for rank in missing.communicators[0].missing] == [1]
    assert {rank.counts["AllReduce"] for rank in healthy.communicators[0].ranks} == {700}
