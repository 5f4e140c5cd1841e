"""The Flight Recorder benchmark: its dumps are what torch writes, and hangscope never wrong in its table."""

from __future__ import annotations

import pathlib

import pytest

from hangscope.analyzers.readers.flight_opcodes import PlainPickle
from tests.benchmarks import flight_compare, flight_recorder
from tests.benchmarks.c10d_pickler import pickled, shared_frames
from tests.benchmarks.flight_compare import CASES, Case
from tests.benchmarks.flight_recorder import Measured, Plain
from tests.benchmarks.synthetic_dumps import job, layout


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_hangscope_is_right_or_undecided_in_any_order(case: Case) -> None:
    cell, good = flight_compare.cell_of_hangscope(case, flight_compare.hangscope(case.files()))
    assert good, cell


def test_a_wrong_or_wavering_answer_fails() -> None:
    case = Case("x", dict, (2,))
    judge = flight_compare.cell_of_hangscope
    assert judge(case, {("rank-blocked", (2,))}) == ("right: 2 (rank-blocked)", True)
    assert judge(case, {("undecided", ())}) == ("undecided (undecided)", True)
    assert judge(case, {("rank-blocked", (1,))}) == ("**wrong**: 1 (rank-blocked)", False)
    assert not judge(case, {("rank-blocked", (2,)), ("undecided", ())})[1]
    assert not judge(case, {("not-stuck", ())})[1]
    assert not judge(Case("x", dict, (0, 1), cycle=True), {("rank-blocked", (0, 1))})[1]
    assert judge(Case("x", dict), {("not-stuck", ())}) == ("right: nobody (not-stuck)", True)


def test_what_torch_s_analyzer_says_is_judged() -> None:
    one = "Not all ranks joining collective 5 at entry 4\nmissing ranks: {1}\n"
    odd = "error msg: Culprit rank 0; Error type\nerror msg: Culprit rank 2; Error type\n"
    judge = flight_compare.cell_of_torch
    assert judge(Case("x", dict, (1,)), [(None, one), (None, one)]) == "right: 1"
    assert judge(Case("x", dict, (1,)), [(None, one), ("KeyError", "")]) == (
        "fails (KeyError) in 1 of 2 orders; right: 1 in 1 of 2 orders"
    )
    assert judge(Case("x", dict, (1,)), [(None, odd)]) == "**wrong**: 0,2 (2 unrelated reports)"
    assert judge(Case("x", dict, (0, 2), cycle=True), [(None, odd)]) == "no cycle: 0,2 (2 unrelated reports)"
    assert judge(Case("x", dict), [(None, "")]) == "nothing"
    assert judge(Case("x", dict), [(None, "We cannot decide what's wrong")]) == "undecided"


def test_the_synthetic_dumps_are_written_as_torch_writes() -> None:
    made = job(64, 1)
    for rank, data in made.dumps():
        if rank in (0, made.lagging):
            assert pickled(shared_frames(PlainPickle(data, "x").run()[0])) == data


def test_every_rank_is_blocked_behind_the_lagging_one() -> None:
    made = job(64, 4)
    stops = made.stops()
    assert stops[made.lagging] == made.missed == min(stops) and max(stops) - min(stops) < 22
    assert sorted(len(group[2]) for group in layout(64).groups(9).values()) == [2, 4, 8, 64]


def test_bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = job(64, 1)
    monkeypatch.setattr(flight_recorder, "BAR_FROM", 64)
    monkeypatch.setattr(type(made), "dumps", lambda made: iter(()))

    def missed(wall: float, memory: float, *named: list[int]) -> list[str]:
        verdicts = tuple({"initiators": ranks} for ranks in named)
        monkeypatch.setattr(flight_recorder, "plain", lambda folder: Plain(10.0, 10.0))
        monkeypatch.setattr(
            flight_recorder, "hangscope", lambda folder: Measured(wall, 1.0, memory, verdicts)
        )
        return flight_recorder.measure(64, 1)

    assert missed(9.9, 249, [made.lagging]) == []
    assert "the bar is 1.0" in missed(10.1, 100, [made.lagging])[0]
    assert "the bar is 250" in missed(1, 251, [made.lagging])[0]
    assert len(missed(1, 1, [made.lagging], [3])) == len(missed(1, 1)) == len(missed(1, 1, [])) == 1
    assert "named" not in capsys.readouterr().err


def test_the_benchmark_measures(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, data in job(64, 2).dumps():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data)
    load, own = flight_recorder.plain(str(tmp_path)), flight_recorder.hangscope(str(tmp_path))
    assert load.wall > 0 and own.cpu > 0 and 10 < own.memory < flight_recorder.MEMORY_BAR
    assert [verdict["initiators"] for verdict in own.verdicts] == [[job(64, 2).lagging]]
