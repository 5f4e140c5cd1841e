"""Several worlds in one capture: one verdict each, and rank numbers that occur twice are never mixed up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze_capture
from hangscope.analyzers.worlds import worlds_of
from hangscope.model.facts import Capture, Process, ProcessSample
from hangscope.model.verdict import Verdict
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

from .builder import PATIENT, WALL, JobBuilder, collective, doing, fifo, frame, kernel, running, service
from .scenarios import SCENARIOS
from .test_removal import of_capture, of_process

replace = msgspec.structs.replace
Facts = tuple[Capture, dict[tuple[str, int, int], Wait]]
SHIFT = 50000


def engine(world: int = 2, **environment: str) -> JobBuilder:
    """Another job for the same capture, at port 29501."""
    job = JobBuilder(world)
    for process in job.processes.values():
        process.environment = {"MASTER_PORT": "29501", **environment}
    return job


def shifted(sample: ProcessSample, by: int) -> ProcessSample:
    return replace(
        sample,
        threads=tuple(replace(t, tid=t.tid + by) for t in sample.threads),
        sockets=tuple(
            replace(s, pid=s.pid + by, peer_pid=(s.peer_pid or 0) + by, inode=s.inode + by * 1000)
            for s in sample.sockets
        ),
    )


def moved(process: Process, by: int, **changes: Any) -> Process:
    """The process with other pids; its parent stays, unless it is one of the ranks."""
    ppid = process.ppid if process.ppid < 1000 else process.ppid + by
    samples = tuple(shifted(sample, by) for sample in process.samples)
    return replace(process, **{"pid": process.pid + by, "ppid": ppid, "samples": samples, **changes})


def beside(first: JobBuilder, second: JobBuilder, **changes: Any) -> Facts:
    """Both jobs in one capture; ``changes`` go to the processes of the second."""
    (one, waits), (other, more) = first.build(), second.build()
    processes = (*one.processes, *(moved(p, SHIFT, **changes) for p in other.processes))
    waits = {**waits, **{(n, p + SHIFT, t + SHIFT): wait for (n, p, t), wait in more.items()}}
    return replace(one, processes=processes, world_size=None), waits


def answer(verdict: Verdict) -> tuple[str, tuple[int, ...]]:
    return verdict.kind, verdict.initiators


def test_a_trainer_and_its_engine_have_one_verdict_each() -> None:
    verdict = analyze_capture(*beside(JobBuilder(4).main(1, kernel()), engine().every(service())))
    assert answer(verdict) == ("rank-blocked", (1,))
    assert (verdict.world_size, verdict.coverage, verdict.waiting) == (4, "4/4", (0, 2, 3))
    assert verdict.confidence == "high"
    assert [(other.kind, other.initiators) for other in verdict.independent] == [("not-stuck", ())]
    assert verdict.independent[0].text == "the world of 2 ranks at port 29501: not-stuck"


def test_the_world_that_is_stuck_is_the_answer_however_small() -> None:
    moving = JobBuilder(4).every(running("forward", loop="", stacks=[(frame("a"),), (frame("b"),)]))
    verdict = analyze_capture(*beside(moving, engine(2).main(0, fifo())))
    assert (answer(verdict), verdict.world_size) == (("rank-blocked", (0,)), 2)
    assert verdict.roots[0].pid == 1000 + SHIFT
    assert [other.kind for other in verdict.independent] == ["not-stuck"]


def test_of_two_stuck_worlds_the_larger_impact_is_the_answer_and_both_are_told() -> None:
    facts = beside(JobBuilder(4).main(3, kernel()), engine(3).main(3 - 1, fifo()))
    verdict = analyze_capture(*facts)
    assert answer(verdict) == ("rank-blocked", (3,))
    told = verdict.independent[0]
    assert (told.kind, told.initiators, told.roots[0].pid) == ("rank-blocked", (2,), 1200 + SHIFT)
    assert "rank 2" in told.text and "ranks 0-1 wait" in told.text


def test_equal_sizes_are_told_apart_by_the_port_and_the_run() -> None:
    for name, value in (("MASTER_PORT", "29501"), ("TORCHELASTIC_RUN_ID", "b")):
        first, second = JobBuilder(4).main(1, fifo()), JobBuilder(4)
        for job, text in ((first, "a" if name != "MASTER_PORT" else "29500"), (second, value)):
            for process in job.processes.values():
                process.environment = {"MASTER_PORT": "29500", name: text}
        verdict = analyze_capture(*beside(first, second))
        assert answer(verdict) == ("rank-blocked", (1,))
        assert verdict.roots[0].pid == 1100


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_processes_means_nothing(seed: int) -> None:
    capture, waits = beside(JobBuilder(4).main(1, fifo()), engine(3).main(0, kernel()))
    whole = analyze_capture(capture, waits)
    mixed = list(capture.processes)
    random.Random(seed).shuffle(mixed)
    assert analyze_capture(replace(capture, processes=tuple(mixed)), waits) == whole


def test_a_rank_missing_from_its_world_is_not_made_up_from_another() -> None:
    """Rank 1 of the engine lives; rank 1 of the trainer is gone."""
    trainer = JobBuilder(4, times=PATIENT).drop(1)
    for process in trainer.processes.values():
        process.environment = {"MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4"}
    verdict = analyze_capture(*beside(trainer, engine(2).every(service())))
    assert answer(verdict) == ("rank-absent", (1,))
    for process in trainer.processes.values():
        process.environment = {"MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "2"}
    verdict = analyze_capture(*beside(trainer, engine(2).every(service())))
    assert (answer(verdict), verdict.unknown) == (("undecided", ()), (1,))


def test_a_rank_that_could_be_of_either_world_is_asked_for() -> None:
    trainer = JobBuilder(4, times=PATIENT).drop(1)
    for process in trainer.processes.values():
        process.environment = {"MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4"}
    other = engine(4)
    lost = other.of(1)
    lost.environment, lost.ppid = {}, 1
    other.connections = False
    verdict = analyze_capture(*beside(trainer, other))
    assert verdict.initiators == () and verdict.kind == "undecided"
    assert verdict.missing[0].what == f"to which world rank 1 (pid {1100 + SHIFT}) belongs"


def test_a_rank_without_environment_belongs_to_those_of_its_start_or_its_connections() -> None:
    for parent in (900, 1):
        trainer = JobBuilder(4).main(1, fifo())
        trainer.of(1).environment = {}
        trainer.of(1).ppid = parent
        capture, waits = beside(trainer, engine(4).every(service()), ppid=901)
        capture = replace(
            capture,
            processes=tuple(replace(p, world_size=None) if p.pid == 1100 else p for p in capture.processes),
        )
        assert answer(analyze_capture(capture, waits)) == ("rank-blocked", (1,))


def test_a_rank_that_chose_the_port_itself_is_still_of_the_world() -> None:
    job = JobBuilder(4).main(1, fifo())
    job.of(0).environment = {"MASTER_PORT": "41234"}
    verdict = job.verdict()
    assert (answer(verdict), verdict.coverage, verdict.independent) == (("rank-blocked", (1,)), "4/4", ())
    job.connections = False
    apart = job.verdict()
    assert apart.initiators in ((), (1,)) and apart.kind != "rank-absent"


def test_a_process_left_by_an_earlier_attempt_is_another_world() -> None:
    """Equal environments: told apart by the parent, by connections, or by the time of the start."""
    left = JobBuilder(4, times=PATIENT).main(1, running())
    for rank in (0, 2, 3):
        left.drop(rank)
    now = JobBuilder(4, times=PATIENT).main(2, fifo())
    changes: tuple[dict[str, Any], ...] = ({"ppid": 800}, {"ppid": 1}, {"start_wall": WALL - 9000})
    for change in changes:
        verdict = analyze_capture(*beside(now, left, **change))
        assert answer(verdict) == ("rank-blocked", (2,)), change
        assert verdict.captured[1][2] == 1100
        assert [other.kind for other in verdict.independent] == ["undecided"]
        assert f"rank 1 of which is pid {1100 + SHIFT}" in verdict.independent[0].text


def test_two_whole_attempts_that_nothing_tells_apart_name_nobody() -> None:
    one, two = JobBuilder(4).main(1, fifo()), JobBuilder(4)
    one.connections = two.connections = False
    verdict = analyze_capture(*beside(one, two))
    assert answer(verdict) == ("undecided", ())
    assert verdict.missing[0].what.startswith("which of pid 1000, 51000 is rank 0")


def test_the_restart_count_tells_attempts_of_one_agent_apart() -> None:
    one, two = JobBuilder(4).main(1, fifo()), JobBuilder(4)
    for job, count in ((one, "1"), (two, "0")):
        for process in job.processes.values():
            process.environment = {"MASTER_PORT": "29500", "TORCHELASTIC_RESTART_COUNT": count}
    assert len(worlds_of(beside(one, two)[0])) == 2


def test_an_address_of_the_host_beside_a_loopback_one_tells_nothing() -> None:
    job = JobBuilder(2)
    for rank, address in ((0, "localhost"), (1, "node-a")):
        job.of(rank).environment = {"MASTER_PORT": "29500", "MASTER_ADDR": address}
    assert len(worlds_of(job.build()[0])) == 1
    twins = beside(job, job)
    assert len(worlds_of(twins[0])) == 2  # by their connections, not by the address
    addresses = ("10.0.0.1", "10.0.0.2")
    parts = [JobBuilder(2), JobBuilder(2)]
    for part, address in zip(parts, addresses, strict=True):
        part.connections = False
        for process in part.processes.values():
            process.environment = {"MASTER_PORT": "29500", "MASTER_ADDR": address}
    assert [len(w.capture.processes) for w in worlds_of(beside(*parts)[0])] == [4, 4]


def test_a_child_and_an_orphan_stay_with_their_world() -> None:
    trainer = JobBuilder(4, times=PATIENT)
    for process in trainer.processes.values():
        process.environment = {"MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4"}
    orphan = trainer.child(2, "orphan", service())
    trainer.processes[orphan].environment = {"MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    trainer.processes[orphan].ppid = 1
    trainer.drop(2)
    other = engine(3).every(service())
    other.child(2, "dataloader", running())
    facts = beside(trainer, other)
    assert (answer(analyze_capture(*facts)), analyze_capture(*facts).cause) == (
        ("rank-absent", (2,)),
        "rank-killed",
    )
    views = {len(w.capture.processes): w.capture for w in worlds_of(facts[0])}
    (view,) = views.values()
    assert sorted(p.role for p in view.processes).count("outside") >= 1
    trainer.processes[orphan].environment = {}
    assert answer(analyze_capture(*beside(trainer, other))) == ("undecided", ())


def test_a_trainer_that_waits_for_the_engine_ends_at_its_process() -> None:
    """The engine's rank is a process outside of the trainer's world, and never one of its numbers."""
    stack = [frame("generate", line=44, text="sock.recv(4096)")]
    asks = doing(WaitKind.SOCKET, ReleasedBy.REMOTE, stack, wchan="sk_wait_data", peer_pid=1100 + SHIFT)
    trainer = JobBuilder(4, times=PATIENT).main(0, asks)
    stuck = engine(2).every(collective()).main(1, kernel())
    verdict = analyze_capture(*beside(trainer, stuck))
    assert answer(verdict) == ("rank-blocked", (0,))
    assert (verdict.roots[0].type, verdict.roots[0].pid) == ("process", 1100 + SHIFT)
    assert verdict.independent[0].initiators == (1,)


@pytest.mark.parametrize("name", SCENARIOS)
def test_side_by_side_each_world_keeps_its_answer(name: str) -> None:
    for other in ("2", "13"):
        first, second = SCENARIOS[name][0](), SCENARIOS[other][0]()
        second.times = first.times
        for job, port in ((first, "29500"), (second, "29501")):
            size = {"LOCAL_WORLD_SIZE": str(job.world)} if job.single_node else {}
            for process in job.processes.values():
                process.environment = {"MASTER_PORT": port, **size}
        apart = sorted([first.verdict().initiators, second.verdict().initiators])
        verdict = analyze_capture(*beside(first, second))
        told = [found.initiators for found in verdict.independent if found.text.startswith("the world of")]
        assert sorted([verdict.initiators, *told]) == apart


def left_over() -> Facts:
    old = JobBuilder(4, times=PATIENT).main(1, running())
    for rank in (0, 2, 3):
        old.drop(rank)
    return beside(JobBuilder(4, times=PATIENT).main(2, fifo()), old, ppid=800)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: beside(JobBuilder(4).main(1, kernel()), engine(4).every(service())), id="two"),
        pytest.param(
            lambda: beside(JobBuilder(4).main(1, kernel()), engine(4).main(2, kernel())), id="two stuck"
        ),
        pytest.param(left_over, id="left over"),
    ],
)
def test_no_single_fact_mixes_two_worlds_up(make: Callable[[], Facts]) -> None:
    """Without any one fact the same processes are named, or none."""
    job = make()
    whole = analyze_capture(*job)
    truth = {root.pid for root in whole.roots}
    truth |= {root.pid for other in whole.independent for root in other.roots}
    wrong = []
    variants = list(of_capture(job))
    for process in job[0].processes:
        variants += [(f"pid {process.pid}: {what}", variant) for what, variant in of_process(job, process)]
    for what, variant in variants:
        verdict = analyze_capture(*variant)
        named = {root.pid for root in verdict.roots}
        named |= {root.pid for other in verdict.independent for root in other.roots}
        if not named <= truth:
            wrong.append((what, verdict.kind, named - truth))
    assert wrong == []


def test_no_more_worlds_are_judged_than_a_real_job_can_have() -> None:
    job = JobBuilder(80)
    for rank in range(80):
        job.of(rank).environment = {"MASTER_PORT": str(30000 + rank)}
    job.connections = False
    assert len(worlds_of(job.build()[0])) == 32
    assert job.verdict().initiators == ()
