"""What must hold whatever the job: names follow the ranks, order means nothing, no cycle without a cycle."""

from __future__ import annotations

import random
import time

import msgspec
import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.analyzers.analysis import analyze_capture
from hangscope.analyzers.solve import certainty_of, solve
from hangscope.model.facts import Capture
from hangscope.model.graph import Edge, Node, WaitGraph
from hangscope.model.verdict import Verdict
from hangscope.model.waits import Wait

from .builder import JobBuilder, kernel, signalled
from .scenarios import SCENARIOS

replace = msgspec.structs.replace
Job = tuple[Capture, dict[tuple[str, int, int], Wait]]


def relabelled(job: Job, new: dict[int, int]) -> Job:
    capture, waits = job
    processes = tuple(
        replace(
            p,
            rank=new[p.rank] if p.rank is not None else None,
            parent_rank=new[p.parent_rank] if p.parent_rank is not None else None,
        )
        for p in capture.processes
    )
    return replace(capture, processes=processes), {
        key: replace(wait, peer=new[wait.peer]) if wait.peer is not None else wait
        for key, wait in waits.items()
    }


def essence(verdict: Verdict) -> tuple[object, ...]:
    return verdict.kind, verdict.cause, verdict.confidence, verdict.more_samples_would_decide


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SCENARIOS)), st.randoms(use_true_random=False))
def test_relabelling_the_ranks_relabels_the_names(name: str, chance: random.Random) -> None:
    job = SCENARIOS[name][0]().build()
    before = analyze_capture(*job)
    labels = list(range(job[0].world_size or 0))
    chance.shuffle(labels)
    new = dict(enumerate(labels))
    after = analyze_capture(*relabelled(job, new))
    assert essence(after) == essence(before)
    assert set(after.initiators) == {new[rank] for rank in before.initiators}
    assert set(after.waiting) == {new[rank] for rank in before.waiting}
    assert set(after.unknown) == {new[rank] for rank in before.unknown}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(SCENARIOS)), st.randoms(use_true_random=False))
def test_the_order_of_processes_threads_and_waits_means_nothing(name: str, chance: random.Random) -> None:
    capture, waits = SCENARIOS[name][0]().build()
    before = analyze_capture(capture, waits)
    processes = list(capture.processes)
    chance.shuffle(processes)
    mixed = []
    for process in processes:
        samples = []
        for sample in process.samples:
            threads = list(sample.threads)
            chance.shuffle(threads)
            samples.append(replace(sample, threads=tuple(threads), sockets=sample.sockets[::-1]))
        mixed.append(replace(process, samples=tuple(samples)))
    items = list(waits.items())
    chance.shuffle(items)
    changed = replace(
        capture, processes=tuple(mixed), cgroups=capture.cgroups[::-1], cells=capture.cells[::-1]
    )
    assert analyze_capture(changed, dict(items)) == before


def with_twin(job: Job, rank: int) -> Job:
    """One more rank that does exactly what the given one does."""
    capture, waits = job
    original = next(p for p in capture.processes if p.rank == rank)
    pid = 70000
    world = (capture.world_size or 0) + 1
    moved = {t.tid: t.tid - original.pid + pid for s in original.samples for t in s.threads}
    samples = tuple(
        replace(s, sockets=(), threads=tuple(replace(t, tid=moved[t.tid]) for t in s.threads))
        for s in original.samples
    )
    twin = replace(original, pid=pid, rank=world - 1, samples=samples, world_size=world)
    others = tuple(replace(p, world_size=world) if p.role == "rank" else p for p in capture.processes)
    more = {(k[0], pid, moved[k[2]]): w for k, w in waits.items() if k[1] == original.pid}
    return replace(capture, processes=(*others, twin), world_size=world), {**waits, **more}


@pytest.mark.parametrize(
    ("name", "healthy"),
    [
        ("1b", 0),
        ("1c", 1),
        ("1d", 3),
        ("2", 0),
        ("3", 3),
        ("4-zombie", 0),
        ("5", 0),
        ("7", 2),
        ("8", 3),
        ("9", 0),
        ("demo", 3),
    ],
)
def test_one_more_healthy_rank_changes_nothing(name: str, healthy: int) -> None:
    job = SCENARIOS[name][0]().build()
    before, after = analyze_capture(*job), analyze_capture(*with_twin(job, healthy))
    assert (after.kind, after.initiators, after.cause) == (before.kind, before.initiators, before.cause)
    assert after.confidence == before.confidence
    assert len(after.waiting) == len(before.waiting) + 1


@st.composite
def graphs(draw: st.DrawFn, acyclic: bool) -> WaitGraph:
    count = draw(st.integers(1, 12))
    pairs = [(a, b) for a in range(count) for b in range(count) if (a < b if acyclic else a != b)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=30, unique=True)) if pairs else []
    alive = draw(st.sets(st.integers(0, count - 1)))
    sources = {a for a, _b in chosen}
    nodes = tuple(
        Node(id=f"n{i}", type="thread", label=str(i), rank=i, sink=None if i in sources else "live",
             progress=True if i in alive and i not in sources else None)
        for i in range(count)
    )  # fmt: skip
    modes = [draw(st.sampled_from(("and", "or"))) for _pair in chosen]
    edges = tuple(
        Edge(source=f"n{a}", target=f"n{b}", mode=mode) for (a, b), mode in zip(chosen, modes, strict=True)
    )
    return WaitGraph(nodes=nodes, edges=edges)


def starts(graph: WaitGraph) -> dict[int, tuple[str, ...]]:
    return {node.rank: (node.id,) for node in graph.nodes if node.rank is not None}


@settings(max_examples=200, deadline=None)
@given(graphs(acyclic=True))
def test_a_graph_without_a_cycle_reports_none(graph: WaitGraph) -> None:
    solution = solve(graph, starts(graph))
    assert not any(root.is_cycle for root in solution.roots)
    for root in solution.roots:
        assert len(root.nodes) == 1 and not solution.successors[root.nodes[0]]


@settings(max_examples=200, deadline=None)
@given(graphs(acyclic=False))
def test_roots_are_what_no_rank_that_waits_can_get_past(graph: WaitGraph) -> None:
    solution = solve(graph, starts(graph))
    whole = nx.DiGraph([(edge.source, edge.target) for edge in graph.edges])
    whole.add_nodes_from(node.id for node in graph.nodes)
    for node in graph.nodes:
        if node.id in solution.released:
            continue
        reachable = {node.id, *nx.descendants(whole, node.id)}
        assert any(set(root.nodes) <= reachable for root in solution.roots)
    for root in solution.roots:
        assert not set(root.nodes) & solution.released
        assert certainty_of(root, solution, starts(graph)).certainty == "observed"
        assert root.impact == len(root.victims) and not set(root.victims) & set(root.ranks)


def test_four_thousand_ranks_take_seconds() -> None:
    job = JobBuilder(4096, groups=2).main(7, signalled())
    job.thread(7, "python3", kernel(), python="offload")
    capture, waits = job.build()
    began = time.process_time()
    verdict = analyze_capture(capture, waits)
    assert (verdict.kind, verdict.initiators) == ("rank-blocked", (7,))
    assert time.process_time() - began < 8
