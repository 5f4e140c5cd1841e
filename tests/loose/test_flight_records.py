"""Flight Recorder files read by several processes: the same answers, in order, whatever happens to a
process."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from hangscope.loose import flight_records
from hangscope.loose.flight_records import is_flight_record, read_flight_records
from hangscope.loose.flight_wire import Packer, Unpacker
from hangscope.loose.interface import Unread
from hangscope.model.loose import FlightRecord
from tests.analyzers.readers import flight_scenarios as jobs
from tests.benchmarks.synthetic_dumps import job


@pytest.fixture(autouse=True)
def any_size_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_records, "MUCH", 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Dumps of 64 ranks, a JSON one, one that is none, and one that is not there."""
    folder = tmp_path_factory.mktemp("dumps")
    for dump in jobs.in_subgroup() * 8:
        name = len(list(folder.iterdir()))
        (folder / f"nccl_trace_rank_{name}").write_bytes(dump.pickle())
    (folder / "fr_trace_rank_90.json").write_bytes(jobs.lagging()[0].json())
    (folder / "text").write_text("step 1\n")
    (folder / "hostile").write_bytes(b"\x80\x02}(X\x09\x00\x00\x00pg_configcos\nsystem\n.")
    return [*sorted(str(path) for path in folder.iterdir()), str(folder / "gone"), str(folder)]


def test_two_processes_answer_as_one_does(files: list[str]) -> None:
    one, two = list(read_flight_records(files, 1)), list(read_flight_records(files, 2))
    assert one == two and len(one) == len(files)
    assert [item.ref.artifact if isinstance(item, FlightRecord) else item.path for item in one] == files
    assert sum(isinstance(item, FlightRecord) for item in one) == 65
    reasons = {os.path.basename(item.path): item.why for item in one if isinstance(item, Unread)}
    assert reasons["text"] == "no Flight Recorder dump" and reasons["gone"] == "No such file or directory"
    assert "not executed" in reasons["hostile"] and reasons[os.path.basename(files[-1])]


def test_what_ranks_share_is_one_object(files: list[str]) -> None:
    records = [item for item in read_flight_records(files, 2) if isinstance(item, FlightRecord)]
    worlds = [group.members for record in records for group in record.groups if group.name == "0"]
    assert len({id(members) for members in worlds if members == tuple(range(8))}) == 1
    places = [item.place for record in records for group in record.groups for item in group.operations]
    assert len({id(place) for place in places}) == len(set(places))


def test_few_bytes_start_no_process(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_records, "MUCH", 1 << 20)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    assert len(list(read_flight_records(files[:10], 2))) == 10


def test_where_no_process_can_be_had_this_one_reads(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert sum(isinstance(item, FlightRecord) for item in read_flight_records(files, 2)) == 65
    monkeypatch.setattr(sys, "executable", "")
    assert sum(isinstance(item, FlightRecord) for item in read_flight_records(files, 2)) == 65


def test_a_process_that_dies_costs_one_file(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    original = flight_records._started

    def remembered(count: int) -> list[subprocess.Popen[bytes]]:
        started.extend(original(count))
        os.kill(started[1].pid, signal.SIGKILL)
        started[1].wait()
        return started

    monkeypatch.setattr(flight_records, "_started", remembered)
    found = list(read_flight_records(files, 2))
    assert len(found) == len(files)
    lost = [
        item.path
        for item in found
        if isinstance(item, Unread) and item.why == "the process that read it ended"
    ]
    assert lost == [files[1]]
    assert all(child.returncode is not None for child in started)


def test_the_processes_end_with_the_iterator(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    original = flight_records._started

    def remembered(count: int) -> list[subprocess.Popen[bytes]]:
        started.extend(original(count))
        return started

    monkeypatch.setattr(flight_records, "_started", remembered)
    reading = read_flight_records(files, 2)
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert len(started) == 2 and all(child.returncode is not None for child in started)


def test_modules_in_the_working_directory_are_not_imported(
    files: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evidence's folder is a likely working directory."""
    (tmp_path / "json.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    (tmp_path / "msgspec.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert sum(isinstance(item, FlightRecord) for item in read_flight_records(files, 2)) == 65
    assert not (tmp_path / "executed").exists()


def test_the_wire_keeps_everything() -> None:
    packer, unpacker = Packer(), Unpacker()
    records = list(read_flight_records([], 2))
    assert records == []
    for found in (Unread("a", "b"), *(_records())):
        assert unpacker.unpacked(packer.packed(found)) == found


def _records() -> list[FlightRecord]:
    from hangscope.analyzers.readers.flight_pickle import read
    from hangscope.analyzers.readers.interface import Document

    dumps = [*jobs.batched_receive(), *jobs.lagging("gloo"), *jobs.sizes_differ()]
    return [read(Document(path="x", data=dump.pickle(), mtime=1.5))[0] for dump in dumps]


def test_a_large_job_through_the_command_line_s_own_way(tmp_path: pathlib.Path) -> None:
    from hangscope.analyzers.loose import analyze_facts

    made = job(64, 2)
    for rank, data in made.dumps():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data)
    assert all(is_flight_record(path.read_bytes()[: 1 << 16]) for path in tmp_path.iterdir())
    paths = sorted(map(str, tmp_path.iterdir()), reverse=True)
    facts = [item for item in read_flight_records(paths, 2) if isinstance(item, FlightRecord)]
    [verdict] = analyze_facts(facts)
    assert verdict.initiators == (made.lagging,)
