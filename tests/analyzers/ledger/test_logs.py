"""Lines of logs: the rank that prints is a victim, counters are compared only with themselves."""

from __future__ import annotations

import pytest

from hangscope.analyzers.loose import analyze_facts
from hangscope.model.facts import Gpu, KernelEvent, Ref
from hangscope.model.loose import (
    LooseFact,
    Origin,
    ProcessState,
    RasCommunicator,
    RasRank,
    RasReport,
)
from hangscope.model.verdict import Verdict

from .builder import LedgerBuilder


class Log(LedgerBuilder):
    """Lines only: no rank has a dump."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self.without = set(range(ranks))

    def world(self) -> Log:
        """The launcher says how many ranks there are."""
        self.event("restart", world_size=self.ranks, origin=Origin(attempt=0))
        return self

    def fired(self, rank: int, number: int, **fields: object) -> Log:
        fields = {"group": "0", "group_desc": "default_pg", "operation": "all_reduce", **fields}
        self.event("watchdog-timeout", rank, sequence=number, seconds=600.0, limit=600.0, **fields)
        return self

    def status(
        self, rank: int, enqueued: int, completed: int, kind: str = "dump-received", **fields: object
    ) -> Log:
        fields = {"group": "0", "group_desc": "default_pg", **fields}
        self.event(kind, rank, enqueued=enqueued, completed=completed, **fields)
        return self


def verdict(job: LedgerBuilder, *more: LooseFact) -> Verdict:
    facts = [*job.facts(), *more]
    found = analyze_facts(facts)[0]
    assert analyze_facts(facts[::-1])[0].initiators == found.initiators
    return found


def test_who_was_asked_for_a_dump_and_stands_one_behind_is_the_laggard() -> None:
    job = Log(4).world()
    for rank in (0, 1, 3):
        job.fired(rank, 12).status(rank, 12, 11, "watchdog-status", sequence=12)
    found = verdict(job.status(2, 11, 11))
    assert (found.kind, found.initiators, found.cause) == ("rank-blocked", (2,), None)
    assert found.confidence == "medium"
    assert any("may stand inside of the call" in line.text for line in found.against)
    assert any(line.text.startswith("ranks 0-1,3: printed the time-out") for line in found.ruled_out)


def test_lines_of_victims_alone_name_nobody() -> None:
    job = Log(4).world().fired(0, 12).fired(1, 12).fired(3, 12)
    found = verdict(job)
    assert (found.kind, found.initiators, found.unknown) == ("undecided", (), (2,))
    assert found.waiting == (0, 1, 3)
    unknown_size = verdict(Log(4).fired(0, 12).fired(1, 12))
    assert unknown_size.kind == "undecided" and unknown_size.world_size is None


def test_all_ranks_fired_at_one_operation_is_all_joined() -> None:
    job = Log(3).world()
    for rank in range(3):
        job.fired(rank, 1).status(rank, 1, -1)
    assert verdict(job).kind == "all-joined"


def test_a_rank_that_fired_in_another_group_leads_on_to_it() -> None:
    job = Log(4).world()
    for rank in (0, 1):
        job.fired(rank, 7)
    job.status(2, 6, 6).status(3, 6, 6)
    job.fired(2, 30, group="51", group_desc="tp", group_rank=0)
    job.status(3, 29, 29, group="51", group_desc="tp", group_rank=1)
    found = verdict(job)
    assert (found.kind, found.initiators) == ("rank-blocked", (3,))


def test_group_ranks_are_no_global_ranks() -> None:
    job = Log(8).world()
    job.fired(4, 9, group="51", group_desc="tp", group_rank=0)
    job.event(
        "desync-lagging",
        4,
        about=(1,),
        about_group_ranks=True,
        sequence=8,
        group="51",
        group_desc="tp",
        counter="desync",
    )
    job.event(
        "desync-waiting",
        4,
        about=(0,),
        about_group_ranks=True,
        sequence=9,
        group="51",
        group_desc="tp",
        counter="desync",
    )
    assert verdict(job).initiators == ()
    job.status(5, 8, 8, group="51", group_desc="tp", group_rank=1)
    assert verdict(job).initiators == (5,)


def test_a_line_without_a_group_gets_it_from_the_same_ranks_status() -> None:
    job = Log(4).world()
    job.fired(0, 5, group=None, group_desc=None)
    job.status(0, 5, 4, "watchdog-status", sequence=5, group="51", group_desc="tp", group_rank=0)
    job.status(1, 4, 4, group="51", group_desc="tp", group_rank=1)
    job.fired(2, 5, group=None, group_desc=None)
    job.status(2, 5, 4, "watchdog-status", sequence=5, group="52", group_desc="tp", group_rank=0)
    job.status(3, 4, 4, group="52", group_desc="tp", group_rank=1)
    found = verdict(job)
    assert found.initiators == (1,)
    assert [other.initiators for other in found.independent] == [(3,)]


def test_counters_of_different_tools_are_not_compared() -> None:
    job = Log(2).world().fired(0, 241)
    job.event(
        "desync-waiting", 1, about=(1,), sequence=315, counter="desync", group="0", group_desc="default_pg"
    )
    assert verdict(job).initiators == ()


def test_different_operations_at_one_number_of_the_watchdogs() -> None:
    job = Log(5).world()
    for rank in (0, 1, 2, 4):
        job.fired(rank, 40)
    found = verdict(job.fired(3, 40, operation="broadcast"))
    assert (found.kind, found.initiators, found.confidence) == ("mismatch", (3,), "low")
    two = Log(4).world().fired(1, 40).fired(2, 40).fired(3, 40, operation="broadcast")
    assert verdict(two).initiators == ()


def test_a_recorder_and_a_line_are_joined_in_one_lane() -> None:
    job = LedgerBuilder(3).run(times=11).stuck(on=[0, 1])
    job.without.add(2)
    job.event("dump-received", 2, enqueued=11, completed=11, group="0", group_desc="default_pg")
    assert verdict(job).initiators == (2,)


def test_barriers_name_who_did_not_come() -> None:
    job = Log(4).world()
    found = verdict(job.event("barrier-missing", 0, about=(1, 3), about_group_ranks=True, group_rank=0))
    assert (found.kind, found.initiators) == ("rank-blocked", (1, 3))
    waits = Log(4).world().event("barrier-missing", 0, about=(1,)).fired(1, 3)
    assert 1 not in verdict(waits).initiators


def test_the_store_barrier_names_who_is_left_when_all_that_came_speak() -> None:
    job = Log(4)
    key = "store_based_barrier_key:1"
    for rank in (0, 1, 3):
        job.event("store-waiting", rank, key=key, world_size=4, code=3)
    found = verdict(job)
    assert (found.kind, found.initiators, found.cause) == ("rank-absent", (2,), "store-wait-missing-rank")
    job.events.pop()
    assert verdict(job).initiators == ()


@pytest.mark.parametrize(
    ("code", "named"), [(-9, True), (-11, True), (-6, False), (-15, False), (1, False), (0, False)]
)
def test_which_ends_prove_an_absence(code: int, named: bool) -> None:
    job = Log(4).world().fired(0, 5).fired(1, 5).fired(3, 5)
    job.event("exit", about=(2,), code=code)
    found = verdict(job)
    assert (found.initiators == (2,)) is named
    if named:
        assert found.kind == "rank-absent"


def test_a_victim_that_aborts_or_is_ended_is_no_cause() -> None:
    job = Log(3).world().fired(0, 5).fired(1, 5)
    job.event("exit-first", about=(0,), code=-6).event("exit", about=(1,), code=-9)
    job.event("terminated-by-launcher", about=(2,), code=-9).event("exit", about=(2,), code=-9)
    assert verdict(job).initiators == ()


def test_an_exception_of_its_own_is_a_cause_and_one_of_a_peer_is_none() -> None:
    job = Log(3).world().fired(0, 5).fired(1, 5)
    job.event("exception", 2, text="ValueError: bad sample").event("exit", about=(2,), code=1)
    assert verdict(job).initiators == (2,)
    peer = Log(3).world().fired(0, 5).fired(1, 5)
    peer.event("exception", 2, text="torch.distributed.DistBackendError: NCCL error").event(
        "exit", about=(2,), code=1
    )
    assert verdict(peer).initiators == ()


def test_the_first_end_wins_within_a_node_only() -> None:
    def ends(one: Origin, other: Origin) -> Verdict:
        job = Log(4).world().fired(0, 5).fired(3, 5)
        job.event("exit", about=(1,), code=-9, origin=one).event("exit", about=(2,), code=-9, origin=other)
        return verdict(job)

    assert ends(Origin(node="a", wall=100.0), Origin(node="a", wall=100.5)).initiators == (1,)
    assert ends(Origin(node="a", wall=100.0), Origin(node="b", wall=100.5)).initiators == ()
    assert ends(Origin(node="a", wall=100.0), Origin(node="b", wall=160.0)).initiators == (1,)


def _kernel(kind: str, **fields: object) -> KernelEvent:
    fields = {"node": "node-a", "seconds": 10.0, "text": kind, "ref": Ref("dmesg.txt", 3), **fields}
    return KernelEvent(kind=kind, **fields)  # type: ignore[arg-type]


def test_the_oom_killer_is_tied_to_the_rank_by_its_pid() -> None:
    job = Log(3).world().fired(0, 5).fired(1, 5)
    job.event("store-waiting", 2, origin=Origin(rank=2, node="node-a", pid=77, source="prefix"))
    found = verdict(job, _kernel("oom-kill", pid=77))
    assert (found.kind, found.initiators, found.cause) == ("rank-absent", (2,), "oom-killed-rank")
    assert verdict(job, _kernel("oom-kill", pid=78)).initiators == ()


def test_a_lost_gpu_is_the_root_though_its_rank_had_joined() -> None:
    job = LedgerBuilder(4).run(times=5).stuck()
    for rank in range(4):
        origin = Origin(rank=rank, node="node-a", pid=100 + rank, source="prefix")
        job.event("nccl-device", pci=f"0000:4{rank}:00", origin=origin)
    found = verdict(job, _kernel("xid-79", pci="0000:42:00", text="Xid 79 GPU has fallen off the bus"))
    assert (found.kind, found.initiators, found.cause) == ("rank-blocked", (2,), "gpu-lost-xid79")
    assert found.roots[0].type == "gpu" and found.confidence != "high"
    assert verdict(job).kind == "all-joined"


def test_an_xid_of_nobody_names_nobody() -> None:
    found = verdict(LedgerBuilder(2).run(times=5).stuck(), _kernel("xid-79", pci="0000:99:00"))
    assert found.initiators == ()


def test_a_lost_gpu_alone_is_shown() -> None:
    gpu = Gpu(node="node-a", sample=0, index=3, uuid=None, pci="0000:44:00", lost=True, ref=Ref("smi.txt", 4))
    found = analyze_facts([gpu])[0]
    assert found.kind == "undecided" and found.evidence


def _report(counts: list[int], wall: float, **fields: object) -> RasReport:
    ranks = tuple(
        RasRank(rank=rank, node="10.0.0.1", pid=100 + rank, gpu=rank, counts={"AllReduce": count})
        for rank, count in enumerate(counts)
    )
    one = RasCommunicator(hash="ab", size=len(counts), ranks=ranks, **fields)  # type: ignore[arg-type]
    return RasReport(wall=wall, communicators=(one,), ref=Ref(f"ras-{wall}.json", 1))


def test_unequal_launches_name_the_lower_and_not_the_listed() -> None:
    found = analyze_facts([_report([7, 7, 6, 7], 0.0)])[0]
    assert (found.kind, found.initiators, found.confidence) == ("rank-blocked", (2,), "low")
    twice = analyze_facts([_report([7, 7, 6, 7], 0.0), _report([7, 7, 6, 7], 15.0)])[0]
    assert (twice.initiators, twice.confidence) == ((2,), "medium")
    ahead = analyze_facts([_report([6, 6, 7, 6], 0.0)])[0]
    assert ahead.initiators == ()
    assert analyze_facts([_report([7, 7, 7, 7], 0.0)])[0].kind == "undecided"


def test_counts_that_move_are_no_hang() -> None:
    found = analyze_facts([_report([7, 7, 6, 7], 0.0), _report([9, 9, 8, 9], 15.0)])[0]
    assert (found.kind, found.initiators) == ("slow", ())


def test_a_text_report_lists_the_minority_only() -> None:
    ranks = tuple(RasRank(rank=5, node="10.0.0.1", pid=105) for _ in range(1))
    one = RasCommunicator(
        hash="cd", size=8, ranks=ranks, groups=(("AllReduce", 50, ()), ("AllReduce", 49, (5,)))
    )
    job = Log(8).world()
    for rank in range(8):
        job.event("nccl-device", origin=Origin(rank=rank, node="10.0.0.1", pid=100 + rank, source="prefix"))
    found = verdict(job, RasReport(communicators=(one,), ref=Ref("ras.txt", 1)))
    assert found.initiators == (5,)


def test_a_zombie_is_gone() -> None:
    job = Log(3).world().fired(0, 5).fired(1, 5)
    row = ProcessState(origin=Origin(rank=2), pid=9, state="Z", ref=Ref("ps.txt", 2))
    assert verdict(job, row).kind == "rank-absent"


def test_another_analyzers_words_are_shown_and_prove_nothing() -> None:
    job = LedgerBuilder(4).run(times=11).stuck(on=[0, 1, 3])
    job.event("stall-missing", about=(0, 1), counter="torchfrtrace", text="missing ranks: {0, 1}")
    found = verdict(job)
    assert found.initiators == (2,)
    assert any("torchfrtrace names ranks 0-1" in line.text for line in found.against)
    alone = Log(4).event("stall-missing", about=(0, 1), counter="torchfrtrace")
    assert verdict(alone).kind == "undecided"


def test_two_ranks_that_differ_by_name_are_both_shown() -> None:
    job = Log(4).world().event("fingerprint-mismatch", 2, about=(2, 0), text="ranks differ")
    found = verdict(job)
    assert (found.kind, found.initiators) == ("mismatch", ())


def test_nothing_at_all_is_undecided_and_says_so() -> None:
    found = analyze_facts([], ["x.bin is not understood"])[0]
    assert found.kind == "undecided" and found.deciding_fact
    assert any("x.bin" in line.text for line in found.against)


def test_numbers_of_unnamed_groups_are_not_compared() -> None:
    """Rank 1's line is of another group than rank 0's, as far as anybody knows."""
    job = Log(4).world().fired(2, 9, group="51", group_desc="tp").fired(3, 9, group="52", group_desc="tp")
    job.fired(0, 12, group=None, group_desc=None)
    job.status(1, 3, 3, group=None, group_desc=None)
    found = verdict(job)
    assert found.initiators == () and found.kind == "undecided"
    job.fired(1, 12, group=None, group_desc=None, operation="broadcast")
    assert verdict(job).kind == "undecided"


def test_a_receive_and_a_send_are_no_mismatch() -> None:
    job = (
        Log(3)
        .world()
        .fired(0, 7, operation="send")
        .fired(1, 7, operation="recv")
        .fired(2, 7, operation="send")
    )
    assert verdict(job).kind not in ("mismatch", "rank-diverged")


def test_a_killed_rank_is_named_though_the_number_of_ranks_is_not_known() -> None:
    job = Log(4).fired(0, 5).fired(1, 5).fired(3, 5).event("exit", about=(2,), code=-9)
    found = verdict(job)
    assert (found.kind, found.initiators, found.waiting) == ("rank-absent", (2,), (0, 1, 3))


def test_several_ends_of_one_moment_name_nobody() -> None:
    job = Log(4).world().fired(0, 5)
    for rank in (1, 2, 3):
        job.event("exit", about=(rank,), code=-9)
    found = verdict(job)
    assert found.initiators == () and "which of them first" in (found.deciding_fact or "")


def test_what_the_scheduler_ended_has_not_ended_by_itself() -> None:
    job = Log(3).world().fired(0, 5).fired(1, 5).event("exit", about=(2,), code=137)
    assert verdict(job).initiators == (2,)
    assert verdict(job.event("job-ended", key="time-limit")).initiators == ()


def test_a_kill_after_the_memory_limit_was_hit_is_the_oom_killers() -> None:
    job = Log(3).world().fired(0, 5).fired(1, 5).event("exit", about=(2,), code=-9)
    assert verdict(job).cause == "rank-killed"
    assert verdict(job.event("job-oom", key="71.0")).cause == "oom-killed-rank"


def test_what_the_named_rank_printed_itself_is_shown() -> None:
    job = LedgerBuilder(3).run(times=2).stuck(on=[0, 1]).event("cuda-error", 2, text="CUDA error: unknown")
    assert any("rank 2 printed: CUDA error" in line.text for line in verdict(job).evidence)


def test_an_actor_that_its_framework_calls_dead_is_gone_and_a_slurm_task_is_no_rank() -> None:
    job = Log(3).world().fired(0, 5).fired(1, 5)
    assert verdict(job.event("task-killed", about=(2,), group="slurm-tasks", code=-9)).initiators == ()
    found = verdict(job.event("actor-dead", about=(2,), text="actor 2 is dead"))
    assert (found.kind, found.cause) == ("rank-absent", "ray-actor-dead-peer-waits")


def test_who_does_not_answer_ras_is_unknown() -> None:
    ranks = tuple(
        RasRank(rank=rank, node="10.0.0.1", pid=100 + rank, counts={"AllReduce": 5}) for rank in (0, 1)
    )
    away = RasRank(rank=2, node="10.0.0.1", pid=102)
    one = RasCommunicator(hash="ab", size=3, ranks=ranks, missing=(away,), dead=(2,))
    found = analyze_facts([RasReport(communicators=(one,), ref=Ref("ras.json", 1))])[0]
    assert (found.kind, found.initiators, found.unknown) == ("undecided", (), (2,))
    assert "cannot reach rank 2" in (found.deciding_fact or "")
