"""``analyze`` on what does not belong together, is there twice, is huge, or was copied about."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Any

import pytest

from hangscope.cli.main import main
from hangscope.loose import Window, opened
from hangscope.loose.reading import gather
from hangscope.model.loose import FlightRecord

ROOT = pathlib.Path(__file__).parents[2]
BUNDLE = ROOT / "fixtures" / "bundles" / "01c-kernel-wait" / "bundle.tar"
MIXED = ROOT / "fixtures" / "mixed"

Capsys = pytest.CaptureFixture[str]


def verdicts(capsys: Capsys, *arguments: object) -> list[dict[str, Any]]:
    assert main(["analyze", "-q", "--json", *map(str, arguments)]) == 0
    text, found, start = capsys.readouterr().out, [], 0
    while text[start:].strip():
        item, start = json.JSONDecoder().raw_decode(text, start)
        found.append(item)
        start += len(text[start:]) - len(text[start:].lstrip())
    return found


def test_a_bundle_and_a_log_of_other_processes_are_two_verdicts(capsys: Capsys) -> None:
    alone = verdicts(capsys, BUNDLE)
    both = verdicts(capsys, BUNDLE, MIXED / "killed-rank" / "torchrun.log")
    assert [found["initiators"] for found in both] == [alone[0]["initiators"], [3]]
    assert both[0]["cause"] == alone[0]["cause"] and both[1]["cause"] == "rank-killed"


def test_a_key_that_no_job_carries_is_refused(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    for number, case in ((4001, "monitored-barrier"), (4002, "killed-rank")):
        shutil.copy(MIXED / case / "torchrun.log", tmp_path / f"slurm-{number}.out")
    assert [found["job"] for found in verdicts(capsys, tmp_path)] == ["slurm:4001", "slurm:4002"]
    (found,) = verdicts(capsys, "--job-key", "4002", tmp_path)
    assert (found["job"], found["initiators"]) == ("slurm:4002", [3])
    assert main(["analyze", "--job-key", "4009", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "carries the job key 4009" in said and "slurm:4001, slurm:4002" in said


def test_a_folder_and_copies_of_it_are_one_job(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    for name in ("a", "b"):
        shutil.copytree(MIXED / "skipped-all-reduce", tmp_path / name)
    (found,) = verdicts(capsys, tmp_path)
    assert (found["kind"], found["initiators"]) == ("rank-diverged", [1])


def test_a_file_that_was_read_in_part_is_no_failure(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"step 1 loss 2.0\n" * 20_000 + (MIXED / "killed-rank" / "torchrun.log").read_bytes())
    gathered = gather(opened([str(log)], Window(whole=1 << 17, edge=1 << 14)))
    assert [item.partly for item in gathered.unread] == [True]
    assert any("was read in part: a huge log" in note for note in gathered.notes)
    assert gathered.strange == [] and gathered.facts


def test_the_date_of_a_copy_tells_no_age(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    for dump in sorted((MIXED / "skipped-all-reduce").glob("nccl_trace_rank_*")):
        shutil.copyfile(dump, tmp_path / dump.name)
    newest = max(record.newest_ns or 0 for record in dumps(tmp_path)) / 1e9
    for later, counts in ((600.0, True), (90_000.0, False)):
        for path in tmp_path.iterdir():
            os.utime(path, (newest + later, newest + later))
        assert [record.written is not None for record in dumps(tmp_path)] == [counts] * 3
        assert main(["analyze", "-q", str(tmp_path)]) == 0
        assert "stuck since 2025-03-03 " in capsys.readouterr().out


def dumps(folder: pathlib.Path) -> list[FlightRecord]:
    return [fact for fact in gather(opened([str(folder)])).facts if isinstance(fact, FlightRecord)]


def test_dumps_without_a_rank_are_asked_for_their_names(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    for rank in range(3):
        shutil.copy(MIXED / "skipped-all-reduce" / f"nccl_trace_rank_{rank}", tmp_path / f"dump{rank}.pkl")
    (found,) = verdicts(capsys, tmp_path)
    assert (found["kind"], found["initiators"]) == ("undecided", [])
    assert found["missing"][0]["what"] == "which ranks dump0.pkl, dump1.pkl, dump2.pkl are of"


def test_what_is_cited_stands_in_the_text_with_its_line(capsys: Capsys) -> None:
    assert main(["analyze", str(MIXED / "log-dumps-pastes-dmesg")]) == 0
    streams = capsys.readouterr()
    assert "(pyspy-rank2.md:8)" in streams.out and "(dmesg.txt:3)" in streams.out
    assert "4 flight records, 3 stack dumps, 1 log" in streams.err
    assert main(["analyze", str(MIXED / "cut-dump-faulthandler")]) == 0
    streams = capsys.readouterr()
    assert "4 flight records (1 of them cut short)" in streams.err
    assert "rank 3's dump was not read to its end" in streams.out
