"""The rules of the wait-for graph, one test a sentence: sinks, transport threads, classes, levels of having
joined, membership, progress, and what a verdict must never do."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze, analyze_capture
from hangscope.analyzers.classes import rank_classes
from hangscope.analyzers.graph import Built, build
from hangscope.analyzers.graph.sinks import sink_class
from hangscope.analyzers.job import Job
from hangscope.analyzers.membership import membership_of
from hangscope.analyzers.presence import presences
from hangscope.analyzers.progress import Progress
from hangscope.analyzers.recorder import records_of
from hangscope.analyzers.solve import Solution, solve
from hangscope.model.facts import OpenFile
from hangscope.model.graph import Edge, Node, SinkClass, WaitGraph
from hangscope.model.verdict import Verdict
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

from .builder import (
    NODE,
    PATIENT,
    SHORT,
    TORCH,
    WALL,
    Doing,
    JobBuilder,
    collective,
    doing,
    fifo,
    frame,
    host_memory,
    kernel,
    opaque,
    point_to_point,
    running,
    service,
    signalled,
    sleeping,
    socket_wait,
    transport,
)
from .evidence_builder import NodeBuilder, evidence, task

replace = msgspec.structs.replace


def answer(verdict: Verdict) -> tuple[str, tuple[int, ...]]:
    return verdict.kind, verdict.initiators


def built(job: JobBuilder) -> tuple[Job, Built, Solution]:
    facts = Job(*job.build())
    seen, membership = presences(facts), membership_of(facts)
    made = build(facts, seen, membership, records_of(facts, membership), Progress(facts))
    return facts, made, solve(made.graph, made.starts)


# --- graphs by hand: "a>b a>c" are AND edges, "a|b" OR edges; names of ranks' threads end in their number


def graph(edges: str, *, moves: str = "", ranks: str = "", alone: str = "") -> WaitGraph:
    made = [
        Edge(source=text[0], target=text[2], mode="or" if text[1] == "|" else "and") for text in edges.split()
    ]
    names = sorted({name for edge in made for name in (edge.source, edge.target)} | set(alone))
    nodes = tuple(
        Node(
            id=name,
            type="thread",
            label=name,
            rank=ranks.index(name) if name in ranks else None,
            progress=True if name in moves else None,
        )
        for name in names
    )
    return WaitGraph(nodes=nodes, edges=tuple(made))


def roots(made: WaitGraph, ranks: str) -> list[tuple[str, bool, tuple[int, ...]]]:
    solution = solve(made, {number: (name,) for number, name in enumerate(ranks)})
    return [("".join(root.nodes), root.is_cycle, root.victims) for root in solution.roots]


# --- Sinks decide


@pytest.mark.parametrize(
    ("kind", "released_by", "expected"),
    [
        (WaitKind.KERNEL, ReleasedBy.KERNEL, "stuck"),
        (WaitKind.DEAD, ReleasedBy.NOBODY, "stuck"),
        (WaitKind.STOPPED, ReleasedBy.REMOTE, "stuck"),
        (WaitKind.LOCK, ReleasedBy.IN_PROCESS, "stuck"),
        (WaitKind.QUEUE, ReleasedBy.THREAD, "stuck"),
        (WaitKind.RUNNING, ReleasedBy.ITSELF, "live"),
        (WaitKind.SLEEP, ReleasedBy.ITSELF, "live"),
        (WaitKind.COMPILE, ReleasedBy.ITSELF, "live"),
        (WaitKind.SERVICE, ReleasedBy.REMOTE, "service"),
        (WaitKind.UNKNOWN, ReleasedBy.NOBODY, "unknown"),
        (WaitKind.ENTERING, ReleasedBy.NOBODY, "unknown"),
    ],
)
def test_a_sink_is_stuck_live_service_or_unknown(
    kind: WaitKind, released_by: ReleasedBy, expected: SinkClass
) -> None:
    node = Node(id="t", type="thread", label="t", wait=Wait(kind=kind, released_by=released_by))
    assert sink_class(node) == expected


def test_an_and_or_an_or_of_nothing_is_never_releasable() -> None:
    assert roots(graph("a>b c>d", alone="bd"), "ac") == [("b", False, (0,)), ("d", False, (1,))]
    _job, made, _solution = built(JobBuilder(4, times=PATIENT))
    (operation,) = [node for node in made.graph.nodes if node.type == "operation"]
    assert operation.sink == "stuck"


def test_releasable_starts_from_live_sinks_with_progress_only() -> None:
    assert roots(graph("a>b", moves="b"), "a") == []
    assert roots(graph("a>b"), "a") == [("b", False, (0,))]
    waits = JobBuilder(4, times=PATIENT)
    moving = [(frame("forward", line=20 + i), frame("main", line=80 + i)) for i in range(5)]
    assert waits.main(1, running(stacks=moving)).verdict().initiators == ()
    assert answer(JobBuilder(4, times=PATIENT).main(1, running()).verdict()) == ("rank-blocked", (1,))


def test_an_and_needs_all_an_or_needs_one() -> None:
    assert roots(graph("a>b a>c", moves="b"), "a") == [("c", False, (0,))]
    assert roots(graph("a|b a|c", moves="b"), "a") == []


def test_releasable_is_the_least_fixpoint_so_that_a_knot_does_not_free_itself() -> None:
    assert roots(graph("a>b b>a"), "ab") == [("ab", True, (0, 1))]
    assert roots(graph("a>b b>a b|c", moves="c"), "ab") == [("ab", True, (0, 1))]
    assert roots(graph("a>b b|a b|c", moves="c"), "ab") == []


def test_the_fixpoint_never_decides_that_nothing_hangs() -> None:
    """Everything is released, and nothing shows that the job moves: not called slow or healthy for it."""
    job = JobBuilder(4, times=(0.0, 2.0)).main(1, sleeping())
    verdict = job.verdict()
    assert answer(verdict) == ("undecided", ()) and verdict.more_samples_would_decide


def test_impact_is_the_number_of_ranks_that_reach_the_root() -> None:
    job = JobBuilder(4).main(0, kernel())
    for rank in (1, 2, 3):
        job.main(rank, point_to_point(WaitKind.RECV, rank - 1))
    assert [root.impact for root in job.verdict().roots] == [3]


def test_roots_under_the_same_victims_with_equal_kind_and_wait_merge() -> None:
    verdict = JobBuilder(4).main(1, kernel()).main(2, kernel()).verdict()
    assert answer(verdict) == ("rank-blocked", (1, 2))
    assert (verdict.waiting, verdict.independent) == ((0, 3), ())


def test_roots_of_another_wait_stand_under_independent_the_lowest_rank_first() -> None:
    verdict = JobBuilder(4).main(2, kernel()).main(1, host_memory()).full_cgroup(1).verdict()
    assert answer(verdict) == ("rank-blocked", (1,))
    assert [found.initiators for found in verdict.independent] == [(2,)]


def test_the_larger_impact_is_the_verdict() -> None:
    job = JobBuilder(5, groups=0)
    for rank, peer in ((1, 0), (3, 2), (4, 2)):
        job.main(rank, socket_wait(job.pid(peer)))
    verdict = job.main(0, kernel()).main(2, kernel()).verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert [found.initiators for found in verdict.independent] == [(0,)]


def crossed(third: Doing) -> JobBuilder:
    """Ranks 0 and 1 in operations of two groups, each waiting for the other; both wait for rank 2 too."""
    job = JobBuilder(3, groups=3, times=PATIENT)
    for rank in (0, 1):
        mine, other = ("tp", "dp") if rank == 0 else ("dp", "tp")
        job.main(rank, collective("all_reduce", line=40 + rank))
        job.records(rank, pending=[(mine, 1, "all_reduce")], last={"d": 3, mine: 1, other: 0}, age=60)
    job.records(2, pending=[], last={"d": 3, "tp": 0, "dp": 0}, age=60)
    return job.main(2, third)


def test_a_cycle_that_itself_waits_for_another_root_is_a_root_as_well() -> None:
    assert roots(graph("a>b b>a b>c"), "ab") == [("ab", True, (0, 1)), ("c", False, (0, 1))]
    verdict = crossed(kernel()).verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert [(found.kind, found.initiators) for found in verdict.independent] == [("cycle", (0, 1))]
    moving = [(frame("forward", line=20 + i), frame("main", line=80 + i)) for i in range(5)]
    assert answer(crossed(running(stacks=moving)).verdict()) == ("cycle", (0, 1))


def test_a_component_with_a_way_out_is_no_root() -> None:
    assert roots(graph("a>b b|a b|c"), "ab") == [("c", False, (0, 1))]
    assert roots(graph("a>b b|a b|c", moves="c"), "ab") == []


def test_an_scc_of_one_group_is_no_cycle() -> None:
    other = (frame("evaluate", line=70), frame("main", line=80))
    job = JobBuilder(4, times=PATIENT).main(1, collective("broadcast", callers=other))
    _facts, _made, solution = built(job)
    assert [root.is_cycle for root in solution.roots] == [True]
    assert answer(job.verdict()) == ("rank-diverged", (1,))


def test_a_strict_majority_of_three_members_or_nobody() -> None:
    other = (frame("evaluate", line=70), frame("main", line=80))
    for world, minority, expected in (
        (3, (1,), ("rank-diverged", (1,))),
        (4, (1, 2), ("undecided", ())),
        (2, (1,), ("undecided", ())),
        (5, (1, 2), ("rank-diverged", (1, 2))),
    ):
        job = JobBuilder(world, times=PATIENT)
        for rank in minority:
            job.main(rank, collective("broadcast", callers=other))
        assert answer(job.verdict()) == expected


def test_an_unknown_sink_yields_undecided_the_rank_and_the_command() -> None:
    job = JobBuilder(4, times=PATIENT)
    job.of(2).captured = False
    verdict = job.verdict()
    assert (answer(verdict), verdict.unknown) == (("undecided", ()), (2,))
    assert any("hangscope capture -p 1200" in (fact.command or "") for fact in verdict.missing)
    opaque_one = JobBuilder(4, times=PATIENT).main(2, opaque()).verdict()
    assert (answer(opaque_one), opaque_one.unknown) == (("undecided", ()), (2,))


@pytest.mark.parametrize(
    "lacking", ["the scan was not complete", "the node need not host it", "a denied pid"]
)
def test_absent_needs_proof(lacking: str) -> None:
    job = JobBuilder(4, times=PATIENT).drop(2)
    assert answer(job.verdict()) == ("rank-absent", (2,))
    if lacking == "the node need not host it":
        job.single_node = None
    else:
        job.complete = False
    verdict = job.verdict()
    assert (answer(verdict), verdict.unknown) == (("undecided", ()), (2,))


def test_an_orphan_of_a_rank_proves_that_it_is_gone() -> None:
    job = JobBuilder(4, times=PATIENT)
    job.single_node = None
    job.child(2, "orphan", service())
    assert answer(job.drop(2).verdict()) == ("rank-absent", (2,))


def test_ranks_of_nodes_that_were_not_captured_are_unknown() -> None:
    capture, waits = JobBuilder(4, times=PATIENT).drop(3).build()
    verdict = analyze_capture(replace(capture, missing_nodes=(("node-b", "no answer"),)), waits)
    assert (answer(verdict), verdict.unknown) == (("undecided", ()), (3,))


def test_idle_servers_with_nothing_pending_are_not_stuck() -> None:
    assert answer(JobBuilder(4).every(service()).verdict()) == ("not-stuck", ())


# --- Transport threads


def carrier(what: Doing) -> JobBuilder:
    job = JobBuilder(4, times=PATIENT)
    what.stack = ()
    job.thread(2, "gloo_tcp_loop", what, python=None, tid=job.pid(2) + 10)
    return job


def test_the_normal_poll_of_a_transport_thread_is_no_edge() -> None:
    _facts, made, _solution = built(JobBuilder(4))
    assert not [edge for edge in made.graph.edges if ":1210" in edge.target]


@pytest.mark.parametrize("state", ["D", "T", "Z"])
def test_a_transport_thread_in_d_or_t_or_dead_is_the_root(state: str) -> None:
    verdict = carrier(kernel(state=state)).verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert (verdict.roots[0].tid, verdict.waiting) == (1210, (0, 1, 3))


def test_all_joined_only_without_such_a_thread() -> None:
    assert answer(carrier(transport()).verdict()) == ("all-joined", ())


def lossy(rank: int, peer: int, **fields: Any) -> tuple[Any, Any]:
    """All have joined; the connection from one rank to another retransmits."""
    capture, waits = JobBuilder(4, times=PATIENT).build()
    change = {"timer": "retrans", "retransmits": 6, "tx_queue": 4096, **fields}
    processes = []
    for process in capture.processes:
        if process.rank == rank:
            far = JobBuilder.pid(peer)
            samples = tuple(
                replace(s, sockets=tuple(replace(k, **change) if k.peer_pid == far else k for k in s.sockets))
                for s in process.samples
            )
            process = replace(process, samples=samples)
        processes.append(process)
    return replace(capture, processes=tuple(processes)), waits


def test_when_all_joined_sockets_may_still_place_a_link() -> None:
    verdict = analyze_capture(*lossy(1, 3))
    assert (answer(verdict), verdict.cause) == (("rank-blocked", ()), "network-or-device-stall")
    assert (verdict.roots[0].type, verdict.roots[0].rank, verdict.confidence) == ("link", None, "medium")
    assert verdict.waiting == (0, 1, 2, 3)
    for change in ({"retransmits": 1}, {"timer": None}, {"tx_queue": 0}, {"bytes_acked": None}):
        assert answer(analyze_capture(*lossy(1, 3, **change))) == ("all-joined", ())


# --- Classes


def classes(job: JobBuilder) -> list[tuple[int, ...]]:
    facts, made, _solution = built(job)
    return sorted(item.ranks for item in rank_classes(facts, made, presences(facts)))


def test_equal_ranks_are_one_class() -> None:
    assert classes(JobBuilder(4).main(2, fifo())) == [(0, 1, 3), (2,)]


def test_classes_never_cross_groups_sequences_stacks_or_states() -> None:
    by_group = JobBuilder(4, groups=3)
    by_number = JobBuilder(4)
    for rank in range(4):
        group = "tp" if rank < 2 else "dp"
        by_group.records(rank, pending=[(group, 1, "all_reduce")], last={group: 1})
        by_number.records(rank, pending=[("g", 5 + rank // 2, "all_reduce")], last={"g": 5 + rank // 2})
    by_stack = JobBuilder(4).main(2, collective(line=70)).main(3, collective(line=70))
    by_state = JobBuilder(4)
    for rank in (2, 3):
        by_state.main(rank, collective(state="R"))
    for job in (by_group, by_number, by_stack, by_state):
        assert classes(job) == [(0, 1), (2, 3)]


def test_the_report_follows_classes_not_ranks() -> None:
    small, large = (JobBuilder(world, times=PATIENT).main(1, opaque()).verdict() for world in (4, 200))
    assert len(large.evidence) == len(small.evidence)
    assert any("ranks 0,2-199" in line.text for line in large.evidence)


# --- Joined has levels (those of devices stand in test_gpus.py)


def test_a_rank_on_the_issuing_line_is_neither_joined_nor_innocent() -> None:
    """The recorder decides; without it nobody is named."""
    entering = collective("all_reduce", kind=WaitKind.ENTERING)
    job = JobBuilder(4, times=PATIENT).main(1, entering)
    assert answer(job.verdict()) == ("undecided", ())
    for rank in (0, 2, 3):
        job.records(rank, pending=[("g", 6, "all_reduce")], last={"g": 6}, age=60)
    job.records(1, pending=[], last={"g": 5}, age=60)
    assert job.verdict().initiators in ((), (1,))
    job.records(1, pending=[("g", 6, "all_reduce")], last={"g": 6}, age=60)
    assert answer(job.verdict()) == ("all-joined", ())


def test_a_rank_that_waits_for_the_work_has_joined() -> None:
    _facts, made, _solution = built(JobBuilder(4))
    (slot,) = made.slots.values()
    assert slot.ranks == {0, 1, 2, 3}


def test_backward_waits_for_autograds_threads_or_the_reducer_and_is_in_communication() -> None:
    stack = (frame("_engine_run_backward", "/v/site-packages/torch/autograd/graph.py", 841), frame("train"))
    waits = doing(WaitKind.AUTOGRAD, ReleasedBy.THREAD, stack, operation="backward")
    job = JobBuilder(4, times=PATIENT).every(waits).main(2, fifo())
    assert answer(job.verdict()) == ("rank-blocked", (2,))
    assert answer(JobBuilder(4, times=PATIENT).every(waits).verdict()) == ("all-joined", ())
    works = JobBuilder(4, times=PATIENT).main(2, waits)
    works.thread(2, "pt_autograd_0", kernel(), python="")
    verdict = works.verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert verdict.roots[0].thread == "pt_autograd_0"
    busy = JobBuilder(4, times=(0.0, 2.0)).main(2, waits)
    busy.thread(2, "pt_autograd_0", running(), python="")
    assert answer(busy.verdict()) == ("undecided", ())


# --- Membership from stacks


def test_one_group_thread_a_rank_makes_the_members_the_world() -> None:
    facts = Job(*JobBuilder(4).build())
    assert membership_of(facts).single
    several = JobBuilder(4, groups=3)
    several.connections = False
    found = membership_of(Job(*several.build()))
    assert (found.single, found.everyone, found.groups[0]) == (False, False, 3)


def unnamed(world: int = 4) -> JobBuilder:
    job = JobBuilder(world, groups=3, times=PATIENT)
    job.connections = False
    return job


def test_over_a_possible_edge_no_rank_in_communication_is_named() -> None:
    for what in (collective("broadcast", line=70), point_to_point(WaitKind.RECV, None)):
        assert unnamed().main(1, what).verdict().initiators == ()


def test_over_possible_edges_the_only_rank_in_no_communication_is_nameable_at_most_medium() -> None:
    verdict = unnamed().main(1, kernel()).verdict()
    assert (answer(verdict), verdict.confidence) == (("rank-blocked", (1,)), "medium")
    assert answer(unnamed().main(1, kernel()).main(2, fifo()).verdict()) == ("undecided", ())


def test_majority_does_not_apply_to_groups_that_nothing_names() -> None:
    """Pipeline stages are legitimately in different operations."""
    other = (frame("recv_forward", line=70), frame("main", line=80))
    job = unnamed(8).main(7, collective("broadcast", callers=other))
    assert answer(job.verdict()) == ("undecided", ())


# --- Progress


def waiting_with(**change: Any) -> JobBuilder:
    """All ranks wait but 1, which runs in a loop; ``change`` is what moves in the waiting ones."""
    job = JobBuilder(4, times=PATIENT).main(1, running())
    for rank in (0, 2, 3):
        job.main(rank, collective(**change))
    return job


def test_another_instance_of_the_waiting_call_is_progress() -> None:
    assert waiting_with(futex=[0x5000, 0x9000, 0xD000, 0x11000, 0x15000]).verdict().initiators == ()


def test_other_frames_above_the_wait_are_progress() -> None:
    leaf = collective().stack[0]
    stacks = [(leaf, frame("train", line=40 + i), frame("main", line=90)) for i in range(5)]
    assert waiting_with(stacks=stacks).verdict().initiators == ()


def test_a_sequence_that_advances_is_progress() -> None:
    job = waiting_with()
    for rank in (0, 2, 3):
        job.of(rank).recorder = [[("g", 5 + i, 0, [("g", 5 + i, "all_reduce")])] for i in range(5)]
    assert job.verdict().initiators == ()


def test_bytes_between_ranks_and_output_are_progress_of_the_rank_that_runs() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, running(loop=""))
    job.of(1).output = [(100 * i, WALL + i) for i in range(5)]
    assert job.verdict().initiators == ()
    sends = JobBuilder(4, times=PATIENT).main(1, running(loop=""))
    sends.of(1).moved_bytes = [1000 * i for i in range(1, 6)]
    assert sends.verdict().initiators == ()


def test_ticks_switches_and_the_leafs_line_are_no_progress() -> None:
    loop = [(54, "while not flag:")]
    stacks = [
        (frame("spin", line=55 + i % 2, text="n += 1", loops=loop), frame("main", line=90, text="spin()"))
        for i in range(5)
    ]
    verdict = JobBuilder(4, times=PATIENT).main(1, running(stacks=stacks)).verdict()
    assert answer(verdict) == ("rank-blocked", (1,))
    ticking = collective(ticks=[100, 900, 2000, 4000, 9000], switches=[7, 900, 3000, 9000, 20000])
    assert answer(JobBuilder(4, times=PATIENT).every(ticking).main(1, kernel()).verdict()) == (
        "rank-blocked",
        (1,),
    )


def test_a_live_root_or_equal_stacks_without_an_age_take_further_samples() -> None:
    for what in (running(), fifo()):
        assert JobBuilder(4, times=SHORT).main(1, what).verdict().more_samples_would_decide
    aged = JobBuilder(4, times=SHORT).main(1, fifo())
    for rank in range(4):
        aged.of(rank).output = [(100, WALL - 300)]
    assert not aged.verdict().more_samples_would_decide


def test_no_evidence_either_way_is_undecided_and_never_high() -> None:
    for what in (running(), fifo(), sleeping()):
        verdict = JobBuilder(4, times=(0.0,)).main(1, what).verdict()
        assert (verdict.kind, verdict.confidence) == ("undecided", "low")


# --- What it must never do


def test_a_rank_that_finished_the_operation_is_not_guilty() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, fifo())
    for rank in (0, 2, 3):
        job.records(rank, pending=[("g", 6, "all_reduce")], last={"g": 6}, age=60)
    job.records(1, pending=[], last={"g": 6}, age=60)
    assert job.verdict().initiators == ()


def test_the_rank_that_printed_the_message_is_not_guilty() -> None:
    job = JobBuilder(4).main(1, kernel())
    capture, waits = job.build()
    text = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE)"
    processes = tuple(
        replace(p, output_tail=text, nccl_tail=text) if p.rank == 3 else p for p in capture.processes
    )
    assert answer(analyze_capture(replace(capture, processes=processes), waits)) == ("rank-blocked", (1,))
    nobody, waits = JobBuilder(4, times=PATIENT).build()
    processes = tuple(replace(p, output_tail=text) if p.rank == 3 else p for p in nobody.processes)
    assert answer(analyze_capture(replace(nobody, processes=processes), waits)) == ("all-joined", ())


def test_nobody_is_guilty_for_want_of_data() -> None:
    for missing in range(4):
        job = JobBuilder(4, times=PATIENT)
        job.of(missing).captured = False
        assert job.verdict().initiators == ()


def test_nobody_is_guilty_because_it_is_the_minority() -> None:
    """Three wait for one that has gone on to the next operation: it is ahead, and the recorders say so."""
    job = JobBuilder(4, times=PATIENT).main(1, collective("broadcast", line=45))
    for rank in (0, 2, 3):
        job.records(rank, pending=[("g", 6, "all_reduce")], last={"g": 6}, age=60)
    job.records(1, pending=[("g", 7, "broadcast")], last={"g": 7}, age=60)
    assert job.verdict().initiators == ()


def test_nobody_is_guilty_for_waiting_in_a_collective_that_somebody_else_did_not_join() -> None:
    for blocked in range(4):
        verdict = JobBuilder(4).main(blocked, kernel()).verdict()
        assert answer(verdict) == ("rank-blocked", (blocked,))
        assert verdict.waiting == tuple(rank for rank in range(4) if rank != blocked)


def test_nobody_is_named_when_all_joined() -> None:
    verdict = JobBuilder(4, times=PATIENT).verdict()
    assert (answer(verdict), verdict.roots) == (("all-joined", ()), ())


def test_a_slow_job_is_not_called_stuck() -> None:
    job = JobBuilder(4, times=PATIENT).main(2, running(loop=""))
    for rank in (0, 1, 3):
        job.main(rank, collective(futex=[0x5000 + 0x4000 * i for i in range(5)]))
    assert job.verdict().kind in ("slow", "not-stuck")


def test_undecided_lists_the_missing_fact_and_the_command() -> None:
    for job in (unnamed(), JobBuilder(4, times=PATIENT).main(1, opaque())):
        verdict = job.verdict()
        assert verdict.kind == "undecided" and verdict.action.kind == "collect-more"
        assert any(fact.command for fact in verdict.missing)


# --- Peers outside of the job, in the whole way from the waits


def test_a_stopped_reader_of_the_output_is_a_process_outside_of_the_job() -> None:
    """The wait's other end is found by the pipe, and the reader's own state makes it the root."""
    job = JobBuilder(4)
    stack = [frame("print_loss", line=33)]
    writes = doing(
        WaitKind.PIPE, ReleasedBy.REMOTE, stack, wchan="anon_pipe_write", peer_pid=77, remote="pipe:[9]"
    )
    job.main(0, writes)
    job.of(0).files = (OpenFile(fd=1, target="pipe:[9]", peers=(77,)),)
    reader = dataclasses.replace(
        job.of(0), pid=77, ppid=1, role="outside", rank=None, files=(), environment={}
    )
    reader.threads = {77: ("tee", None, kernel(state="T", wchan="do_signal_stop"))}
    job.processes[77] = reader
    verdict = job.verdict()
    root = verdict.roots[0]
    assert answer(verdict) == ("rank-blocked", (0,))
    assert (root.type, root.role, root.pid, root.node, root.state) == ("process", "outside", 77, NODE, "T")


def test_a_signalled_wait_with_one_blocked_thread_is_one_inferred_edge() -> None:
    job = JobBuilder(4).main(2, signalled())
    job.thread(2, "python3", kernel(), python="offload")
    assert (answer(job.verdict()), job.verdict().confidence) == (("rank-blocked", (2,)), "high")


def test_the_reader_of_a_pipe_is_found_in_the_artifacts() -> None:
    """From /proc alone: rank 0 writes to a pipe, and the other end is held by a stopped process."""
    node = NodeBuilder(world_size=2)
    node.scan = {"complete": True, "single_node": True}
    for rank, pid in ((0, 41), (1, 42)):
        node.process(pid, rank=rank, world_size=2)
    node.process(77, role="outside", comm="tee", title="tee log")
    writes = task(41, wchan="anon_pipe_write", syscall="1 0x1 0x7f00 0x40 0x0 0x0 0x0 0x1 0x2")
    for sample in (0, 1):
        node.threads(41, writes, task(410, comm="gloo_tcp_loop", wchan="ep_poll"), sample=sample)
        node.threads(42, task(42), task(420, comm="gloo_tcp_loop", wchan="ep_poll"), sample=sample)
        node.threads(77, task(77, state="T", wchan="do_signal_stop", comm="tee"), sample=sample)
        for pid, flags in ((41, 1), (77, 0)):
            fds = [{"fd": 1, "target": "pipe:[9]", "pos": 0, "flags": flags}]
            node.add("process", "process.json", {"pid": pid, "fds": fds}, pid, sample)
        work = [("all_reduce", TORCH, 3252), ("train", "/job/train.py", 40)]
        node.stack(41, {41: [("print_loss", "/job/train.py", 33)]}, sample)
        node.stack(42, {42: work}, sample)
        line = {"file": TORCH, "line": 3252, "text": "work.wait()", "function": "f", "withs": [], "loops": []}
        node.add("source", "source.json", {"frames": [line]}, 42, sample)
    verdict = analyze(evidence(node))
    root = verdict.roots[0]
    assert answer(verdict) == ("rank-blocked", (0,))
    assert (root.type, root.role, root.pid) == ("process", "outside", 77)
    assert verdict.waiting == (1,)
