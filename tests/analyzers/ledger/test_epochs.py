"""Attempts and jobs are split before anything is joined."""

from __future__ import annotations

import msgspec

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.facts import Ref
from hangscope.model.loose import FlightRecord, LogEvent, LooseFact, Origin

from .builder import START, LedgerBuilder

HOUR = 3600 * 1_000_000_000


def moved(record: FlightRecord, folder: str, by_ns: int = 0) -> FlightRecord:
    """The dump in another folder, made at another time."""
    groups = tuple(
        msgspec.structs.replace(
            group,
            operations=tuple(
                msgspec.structs.replace(o, created_ns=(o.created_ns or 0) + by_ns) for o in group.operations
            ),
        )
        for group in record.groups
    )
    newest = (record.newest_ns or START) + by_ns
    ref = Ref(f"{folder}/rank_{record.origin.rank}")
    return msgspec.structs.replace(record, groups=groups, newest_ns=newest, ref=ref)


def test_a_dump_of_an_earlier_attempt_is_stale_and_not_joined() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    records: list[LooseFact] = list(job.records())
    records[2] = moved(job.records()[2], "dumps", -2 * HOUR)
    found = analyze_facts(records)[0]
    assert (found.kind, found.initiators, found.unknown) == ("undecided", (), (2,))
    assert any("stale" in line.text for line in found.against)


def test_the_newest_dump_of_a_rank_counts() -> None:
    old = LedgerBuilder(3).run(times=2).stuck(on=[0])
    new = LedgerBuilder(3).run(times=30).stuck(on=[0, 1])
    facts = [*(moved(r, "old", -6 * HOUR) for r in old.records()), *new.records()]
    for order in (facts, facts[::-1]):
        found = analyze_facts(order)[0]
        assert found.initiators == (2,)
        assert any("stale" in line.text for line in found.against)


def test_two_jobs_at_one_time_give_a_verdict_each() -> None:
    one = LedgerBuilder(4).run(times=5).stuck(on=[0, 1, 3])
    other = LedgerBuilder(4).run(times=6).stuck(on=[1, 2, 3])
    facts = [*(moved(r, "a") for r in one.records()), *(moved(r, "b") for r in other.records())]
    found = analyze_facts(facts)
    assert [(v.job, v.initiators) for v in found] == [("folder:a", (2,)), ("folder:b", (0,))]
    assert [v.initiators for v in analyze_facts(facts, job_key="b")] == [(0,)]


def test_facts_without_a_key_ask_for_one() -> None:
    one = LedgerBuilder(4).run(times=5).stuck(on=[0, 1, 3])
    other = LedgerBuilder(4).run(times=6).stuck(on=[1, 2, 3])
    loose = LogEvent(kind="exit", about=(1,), code=-9, text="killed", ref=Ref("elsewhere.log", 1))
    facts = [*(moved(r, "a") for r in one.records()), *(moved(r, "b") for r in other.records()), loose]
    found = analyze_facts(facts)
    assert all(any("--job-key" in line.text for line in verdict.against) for verdict in found)


def test_slurm_files_of_two_jobs_are_two_jobs() -> None:
    facts: list[LooseFact] = []
    for number in (71, 72):
        for rank in range(2):
            facts.append(
                LogEvent(
                    kind="watchdog-timeout", origin=Origin(rank=rank), sequence=number, group="0", text="x",
                    ref=Ref(f"logs/slurm-{number}.out", rank + 1),
                )
            )  # fmt: skip
    assert [verdict.job for verdict in analyze_facts(facts)] == ["slurm:71", "slurm:72"]
    assert [verdict.job for verdict in analyze_facts(facts, job_key="72")] == ["slurm:72"]


def test_what_stands_before_a_restart_is_of_the_attempt_before() -> None:
    job = LedgerBuilder(3)
    job.without = {0, 1, 2}
    job.event("restart", world_size=3, origin=Origin(attempt=0))
    job.event("exit", about=(1,), code=-9)
    job.event("restart", world_size=3, origin=Origin(attempt=1))
    for rank in (0, 1):
        job.event(
            "watchdog-timeout", rank, sequence=4, operation="all_reduce", group="0", group_desc="default_pg"
        )
    job.event("dump-received", 2, enqueued=3, completed=3, group="0", group_desc="default_pg")
    found = analyze_facts(job.facts())[0]
    assert found.initiators == (2,)
    assert any("stale" in line.text for line in found.against)


def test_unequal_restart_counts_are_told() -> None:
    job = LedgerBuilder(2)
    job.without = {0, 1}
    for node, attempt in (("a", 1), ("b", 2)):
        job.event("restart", origin=Origin(node=node, attempt=attempt), world_size=2)
    found = analyze_facts(job.facts())[0]
    assert any("restart counts differ: node a is at restart 1" in line.text for line in found.against)
    assert found.confidence == "low"


def test_a_dump_from_before_the_restart_is_stale() -> None:
    job = LedgerBuilder(3).run(times=5).stuck(on=[0, 1])
    job.event("restart", world_size=3, origin=Origin(attempt=1, wall=START / 1e9 + 3600))
    found = analyze_facts(job.facts())[0]
    assert found.initiators == () and found.kind == "undecided"
