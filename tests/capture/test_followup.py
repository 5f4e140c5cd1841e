"""What the capture asks for after its first samples."""

import json

import pytest

from hangscope.capture import followup
from hangscope.model.evidence import Artifact, Evidence, ProcessRow, ScanRecord, Shard
from hangscope.model.verdict import Action, RootEntry, Verdict

NOW = 1_000_000.0


def a_verdict(**fields: object) -> Verdict:
    given: dict[str, object] = {
        "job": None,
        "kind": "undecided",
        "initiators": (),
        "cause": None,
        "confidence": "low",
        "why_not_higher": None,
        "coverage": "3/3",
        "world_size": 3,
        "waiting": (0, 2),
        "action": Action(kind="collect-more", safe_to_kill=True, text=""),
        **fields,
    }
    return Verdict(**given)  # type: ignore[arg-type]


def evidence(*entries: dict[str, object], data: bytes | None = None) -> Evidence:
    rows = tuple(
        ProcessRow(pid=100 + rank, ppid=1, start_ticks=1, comm="python", role="rank", rank=rank)
        for rank in range(3)
    )
    artifact = Artifact(
        path="a!s0/recorder/pid-100/fr_trace.json",
        node="a",
        collector="recorder",
        sample=0,
        pid=100,
        name="fr_trace.json",
        wall=NOW,
        monotonic=0.0,
        data=json.dumps({"entries": list(entries)}).encode() if data is None else data,
    )
    scan = ScanRecord(job="j", processes=rows, complete=True)
    shard = Shard(name="a", node=None, scan=scan, artifacts=(artifact,), cells=())
    return Evidence(job="j", shards=(shard,))


def entry(age: float, timeout: float, **more: object) -> dict[str, object]:
    return {
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": int((NOW - age) * 1e9),
        "timeout_ms": timeout * 1e3,
        "retired": False,
        "state": "scheduled",
        **more,
    }


def test_gaps_grow_and_end_with_the_patience() -> None:
    assert list(followup.further_gaps(0)) == []
    assert list(followup.further_gaps(12)) == [4.0, 8.0]
    assert sum(followup.further_gaps(300)) <= 300


def test_a_high_verdict_needs_no_native_stacks() -> None:
    root = RootEntry(type="rank", rank=1, pid=101)
    assert (
        followup.native_suspects(a_verdict(kind="rank-blocked", confidence="high", roots=(root,)), evidence())
        == ()
    )


@pytest.mark.parametrize("kind", ["slow", "not-stuck", "rank-absent"])
def test_neither_does_a_job_that_is_not_stuck_or_a_rank_that_is_gone(kind: str) -> None:
    assert followup.native_suspects(a_verdict(kind=kind), evidence()) == ()


def test_the_root_of_a_weaker_verdict_is_the_suspect() -> None:
    root = RootEntry(type="rank", rank=1, pid=101)
    verdict = a_verdict(kind="rank-blocked", confidence="medium", roots=(root,))
    assert followup.native_suspects(verdict, evidence()) == (101,)


def test_without_a_root_one_waiting_rank_stands_for_its_class() -> None:
    assert followup.native_suspects(a_verdict(kind="all-joined"), evidence()) == (100,)
    assert followup.native_suspects(a_verdict(unknown=(2, 1)), evidence()) == (101, 102)


def test_the_watchdog_that_fires_first_counts() -> None:
    found = followup.watchdog_seconds(evidence(entry(1700, 1800), entry(100, 1800)), NOW)
    assert found is not None
    assert found[0] == pytest.approx(100.0)
    assert "gloo:all_reduce" in found[1] and "pid 100" in found[1]


def test_finished_operations_and_time_outs_that_passed_tell_nothing() -> None:
    done = evidence(entry(5, 10, retired=True), entry(5, 10, state="completed"), entry(50, 10), entry(1, 0))
    assert followup.watchdog_seconds(done, NOW) is None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"entries": 3}', b'{"entries": [1, {"timeout_ms": "x"}]}', b"\xff"]
)
def test_a_strange_answer_tells_nothing(data: bytes) -> None:
    assert followup.watchdog_seconds(evidence(data=data), NOW) is None


def test_the_deadline_never_grows_and_leaves_the_watchdog_its_share() -> None:
    assert followup.shrunk_deadline(60.0, 90.0, 4.0) == 54.0
    assert followup.shrunk_deadline(1.0, 90.0, 4.0) == 9.0
    assert followup.shrunk_deadline(500.0, 20.0, 4.0) == 20.0
