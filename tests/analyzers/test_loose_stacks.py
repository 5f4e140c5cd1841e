"""Saved dumps → a capture → a verdict: who may be named from stacks alone, and who never."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze_capture
from hangscope.analyzers.loose_ranks import proven_ranks, world_size_of
from hangscope.analyzers.loose_stacks import capture_of
from hangscope.analyzers.waits import waits_of
from hangscope.model.facts import Frame, Gpu, KernelEvent, Ref
from hangscope.model.loose import DumpedThread, LooseFact, Origin, ProcessState, StackDump
from hangscope.model.verdict import Verdict

TORCH = "torch/distributed/distributed_c10d.py"
REF = Ref("x.txt", 1)
COUNT = itertools.count(1)

CALLS = (
    Frame(function="step", file="train.py", line=40),
    Frame(function="<module>", file="train.py", line=90),
)
REDUCE = (Frame(function="all_reduce", file=TORCH, line=3252), *CALLS)
JOINED = (Frame(function="c10d::Work::wait", file="l.so", library="l.so"), *REDUCE)
OWN = (Frame(function="load", file="data.py", line=7), *CALLS)
SOCKET = (
    Frame(function="readinto", file="/usr/lib/python3.11/socket.py", line=706),
    Frame(function="fetch", file="data.py", line=7),
    *CALLS,
)


def dump(
    rank: int | None,
    frames: tuple[Frame, ...],
    *,
    pid: int | None = None,
    tool: str = "py-spy",
    active: bool = False,
    title: str = "",
    file: str | None = None,
    more: tuple[DumpedThread, ...] = (),
    wall: float | None = None,
    problem: str | None = None,
    ppid: int | None = None,
) -> StackDump:
    """A dump with one main thread; native frames make it a native one."""
    thread = DumpedThread(tid=pid, name="MainThread", main=True, frames=frames, active=active, ref=REF)
    return StackDump(
        tool=tool,
        origin=Origin(rank=rank, pid=pid, wall=wall, source="content" if rank is not None else None),
        title=title,
        ppid=ppid,
        threads=(thread, *more),
        native=any(frame.library is not None for frame in frames),
        problem=problem,
        ref=Ref(file or f"dump-{next(COUNT)}.txt", 1),
    )


def verdict(facts: list[LooseFact], world: int | None = None, age: float | None = None) -> Verdict:
    capture = capture_of(facts, world, age=age)
    assert capture is not None
    return analyze_capture(capture, waits_of(capture))


def job(last: tuple[Frame, ...], others: tuple[Frame, ...] = REDUCE, **more: object) -> list[LooseFact]:
    """Three ranks in one place, rank 3 in another."""
    waiting: list[LooseFact] = [dump(rank, others, pid=100 + rank) for rank in range(3)]
    return [*waiting, dump(3, last, pid=103, **more)]  # type: ignore[arg-type]


def test_one_look_names_nobody_and_an_age_names_the_one_outside() -> None:
    one = verdict(job(SOCKET), 4)
    assert (one.kind, one.initiators) == ("undecided", ()) and "one sample" in (one.why_not_higher or "")
    aged = verdict(job(SOCKET), 4, age=600.0)
    assert (aged.kind, aged.initiators, aged.confidence) == ("rank-blocked", (3,), "medium")
    assert aged.why_not_higher and aged.waiting == (0, 1, 2)
    assert verdict(job(SOCKET), 4, age=5.0).kind == "undecided"


@pytest.mark.parametrize("others", [REDUCE, JOINED])
def test_a_wait_that_no_frame_explains_is_unknown(others: tuple[Frame, ...]) -> None:
    found = verdict(job(OWN, others), 4, age=600.0)
    assert (found.kind, found.initiators, found.unknown) == ("undecided", (), (3,))
    assert "load (data.py:7)" in (found.deciding_fact or "") or "step (train.py:40)" in (
        found.deciding_fact or ""
    )
    assert found.missing[0].what or found.missing


def test_a_rank_that_runs_may_be_slow() -> None:
    found = verdict(job(OWN, active=True), 4, age=600.0)
    assert (found.kind, found.initiators) == ("undecided", ())
    assert "can go on" in (found.deciding_fact or "")


def test_everybody_in_communication_names_nobody() -> None:
    other = (REDUCE[0], Frame(function="evaluate", file="train.py", line=77), CALLS[1])
    for place in (REDUCE, other):
        found = verdict(job(place), 4, age=600.0)
        assert (found.kind, found.initiators) == ("undecided", ())


def test_a_rank_without_a_dump_could_be_the_one() -> None:
    assert verdict(job(SOCKET), 8, age=600.0).initiators == ()
    assert verdict(job(SOCKET)[:3], 4, age=600.0).unknown == (3,)


def test_dated_looks_are_an_age_of_their_own() -> None:
    facts: list[LooseFact] = [
        dump(rank, frames, pid=100 + rank, wall=1_767_000_000.0 + seconds, file=f"rank_{rank}.log")
        for seconds in (0.0, 300.0)
        for rank, frames in enumerate((JOINED, JOINED, JOINED, SOCKET))
    ]
    found = verdict(facts, 4)
    assert (found.kind, found.initiators, found.samples) == ("rank-blocked", (3,), 2)
    assert found.observed_seconds == 300.0
    assert verdict(facts[:-1], 4).initiators == ()


def test_looks_without_a_clock_are_no_age() -> None:
    facts: list[LooseFact] = [
        dump(rank, frames, pid=100 + rank, file=f"rank_{rank}.log")
        for _look in range(2)
        for rank, frames in enumerate((JOINED, JOINED, JOINED, SOCKET))
    ]
    found = verdict(facts, 4)
    assert (found.kind, found.samples) == ("undecided", 2) and "too short" in (found.deciding_fact or "")


def test_without_numbers_the_one_outside_is_shown_and_not_named() -> None:
    facts: list[LooseFact] = [dump(None, REDUCE, pid=100 + n, file=f"p{n}.txt") for n in range(3)]
    found = verdict([*facts, dump(None, OWN, pid=200, file="p9.txt")], 4, age=600.0)
    assert (found.kind, found.initiators) == ("undecided", ())
    assert "pid 200 at load data.py:7 stands outside" in (found.deciding_fact or "")
    assert "rank_3.txt" in found.missing[0].why


def test_neither_pid_nor_rank_is_shown_as_a_negative_number() -> None:
    facts: list[LooseFact] = [dump(None, REDUCE, file=f"p{n}.txt") for n in range(3)]
    found = verdict([*facts, dump(None, OWN, file="odd.txt")], 4)
    assert "the process of odd.txt:1" in (found.deciding_fact or "")
    ranked = verdict([dump(n, (REDUCE, REDUCE, SOCKET)[n]) for n in range(3)], 3, age=99.0)
    assert ranked.initiators == (2,) and ranked.roots[0].pid is None and ranked.roots[0].tid is None
    assert ranked.roots[0].node is None and ranked.roots[0].state is None
    for shown in (found, ranked):
        texts = (
            [e.text for e in shown.evidence] + [m.command or "" for m in shown.missing] + [str(shown.chain)]
        )
        assert not any("-1000" in text or "-2000" in text or "-3000" in text for text in texts)


def test_the_left_over_rank_is_not_one_by_elimination() -> None:
    facts = [*job(REDUCE)[:3], dump(None, SOCKET, pid=200)]
    found = verdict(facts, 4, age=600.0)
    assert found.initiators == () and 3 in found.unknown
    assert any("pid 200" in fact.what + fact.why for fact in found.missing)


def test_a_native_and_a_python_dump_are_one_sample() -> None:
    native = dump(3, JOINED[:1], pid=103, tool="gdb", file="gdb.txt")
    capture = capture_of([dump(3, REDUCE, pid=103), native])
    assert capture is not None and capture.samples == 1
    (process,) = capture.processes
    (thread,) = process.samples[0].threads
    assert thread.stack == REDUCE and thread.native == JOINED[:1]


def test_innermost_frames_only_fill_what_is_missing() -> None:
    other = DumpedThread(tid=104, frames=JOINED[:1], ref=REF)
    table = dump(3, JOINED[:1], pid=103, tool="gdb", more=(other,), problem="info threads: …", file="a.txt")
    capture = capture_of([dump(3, JOINED, pid=103, tool="gdb", file="a.txt"), table])
    assert capture is not None and capture.samples == 1
    threads = capture.processes[0].samples[0].threads
    assert [(t.tid, len(t.native or ())) for t in threads] == [(103, len(JOINED)), (104, 1)]


def test_threads_meet_by_ident() -> None:
    python = DumpedThread(ident=0x7F01, name="feeder", frames=OWN, ref=REF)
    native = DumpedThread(tid=155, ident=0x7F01, name="pt_x", frames=JOINED[:1], ref=REF)
    first = dump(3, REDUCE, pid=103, more=(python,))
    capture = capture_of([first, dump(3, JOINED[:1], pid=103, tool="gdb", more=(native,))])
    assert capture is not None
    thread = capture.processes[0].samples[0].threads[1]
    assert (thread.tid, thread.python_name, thread.comm) == (155, "feeder", "pt_x")


def test_kernel_stacks_and_ps_complete_a_process() -> None:
    kernel = StackDump(
        tool="kernel",
        origin=Origin(pid=103),
        threads=(DumpedThread(tid=103, kernel_stack=("nfs_getattr [nfs]",), wchan="rpc_wait", ref=REF),),
        ref=Ref("a.txt"),
    )
    row = ProcessState(origin=Origin(pid=103), pid=103, ppid=7, state="D", command="python x", ref=REF)
    capture = capture_of([dump(3, OWN, pid=103, file="a.txt"), kernel, row])
    assert capture is not None
    (process,) = capture.processes
    thread = process.samples[-1].threads[0]
    assert (process.ppid, thread.state, thread.wchan, thread.kernel_stack) == (
        7,
        "D",
        "rpc_wait",
        ("nfs_getattr [nfs]",),
    )
    assert (process.rank, process.title) == (3, "python x")


def test_a_child_that_is_a_zombie_is_told_by_ps() -> None:
    row = ProcessState(origin=Origin(pid=150), pid=150, ppid=103, state="Z", ref=REF)
    capture = capture_of([dump(3, OWN, pid=103, file="a.txt"), row])
    assert capture is not None
    child = capture.processes[1]
    assert (child.role, child.parent_rank, child.samples[-1].state) == ("helper", 3, "Z")


def test_roles_by_frames_and_parents() -> None:
    agent = (Frame(function="_invoke_run", file="torch/distributed/elastic/agent/server/api.py", line=9),)
    worker = (Frame(function="_worker_loop", file="torch/utils/data/_utils/worker.py", line=9),)
    capture = capture_of(
        [
            dump(None, agent, pid=50, file="a.txt"),
            dump(1, REDUCE, pid=51, ppid=50, file="a.txt"),
            dump(None, worker, pid=60, ppid=51, file="a.txt"),
            dump(None, OWN, pid=61, ppid=51, file="a.txt"),
        ]
    )
    assert capture is not None
    assert [(p.role, p.rank, p.parent_rank) for p in capture.processes] == [
        ("launcher", None, None),
        ("rank", 1, None),
        ("dataloader", None, 1),
        ("helper", None, 1),
    ]


def test_equal_pids_of_two_containers_are_two_processes() -> None:
    facts: list[LooseFact] = [dump(rank, REDUCE, pid=1, file=f"rank_{rank}.txt") for rank in range(3)]
    capture = capture_of(facts)
    assert capture is not None
    assert sorted(process.rank or 0 for process in capture.processes) == [0, 1, 2]
    assert len({process.pid for process in capture.processes}) == 3
    again = capture_of([dump(None, REDUCE, pid=1, file=f"{name}.txt") for name in "ab"])
    assert again is not None and len(again.processes) == 2


def test_a_crash_is_no_place_where_a_process_stands() -> None:
    assert capture_of([dump(3, OWN, problem="Fatal Python error: Segmentation fault")]) is None
    assert capture_of([dump(3, OWN, problem="Fatal Python error: Aborted")]) is not None


def test_a_failed_dump_and_rows_of_ps_are_no_capture() -> None:
    failed = StackDump(tool="py-spy", origin=Origin(pid=3), problem="denied", ref=REF)
    row = ProcessState(origin=Origin(rank=1, pid=4), pid=4, state="D", ref=REF)
    assert capture_of([failed, row]) is None and capture_of([]) is None


def test_gpus_and_kernel_events_come_along() -> None:
    gpu = Gpu(node="", sample=0, index=2, uuid="GPU-2", pids=(103,), ref=REF)
    event = KernelEvent(node="", kind="xid-79", seconds=None, text="…", ref=REF)
    capture = capture_of([dump(3, OWN, pid=103), gpu, event])
    assert capture is not None
    assert (capture.processes[0].gpus, capture.gpus, capture.kernel) == (("GPU-2",), (gpu,), (event,))


def test_titles_prove_ranks_only_together() -> None:
    def ranks(*titles: str, world: int | None) -> list[int | None]:
        return proven_ranks([(Origin(pid=n), title) for n, title in enumerate(titles)], world)

    assert ranks("x --rank 0", "x --rank=1", world=2) == [0, 1]
    assert ranks("x --rank 0", "x --rank 1", world=4) == [None, None]
    assert ranks("x --rank 0", "x --rank 0", world=2) == [None, None]
    assert ranks("x --rank 1", "x --rank 2", world=2) == [None, None]
    local = [(Origin(pid=9, local_rank=7), "x"), (Origin(pid=8, local_rank=2), "x")]
    assert proven_ranks(local, 8) == [7, 2] and proven_ranks(local, 16) == [None, None]
    assert proven_ranks(local, None) == [None, None]
    assert (
        world_size_of(["a --world-size 4", "b"]) == 4
        and world_size_of(["WORLD_SIZE=4", "WORLD_SIZE=8"]) is None
    )


def test_a_ring_of_receives_is_a_cycle_once_it_was_looked_at_twice() -> None:
    def recv(rank: int) -> tuple[Frame, ...]:
        wait = Frame(function="c10d::Work::wait", file="l.so", library="l.so")
        ints = (("src", (rank - 1) % 3), ("tag", 0))
        return (wait, Frame(function="recv", file=TORCH, line=2591, ints=ints), *CALLS)

    facts: list[LooseFact] = [
        dump(rank, recv(rank), pid=100 + rank, file=f"r{rank}.txt") for _look in "ab" for rank in range(3)
    ]
    found = verdict(facts, 3)
    assert found.confidence != "high"
    assert (found.kind, found.initiators) in (("cycle", (0, 1, 2)), ("undecided", ()))


def test_the_order_of_the_dumps_changes_nothing() -> None:
    facts = job(SOCKET)
    found = [verdict(list(order), 4, age=600.0) for order in itertools.permutations(facts)]
    assert {(v.kind, v.initiators, v.confidence) for v in found} == {("rank-blocked", (3,), "medium")}


def test_taking_any_dump_away_names_nobody_else() -> None:
    facts = job(SOCKET)
    for left_out in range(4):
        some = [fact for number, fact in enumerate(facts) if number != left_out]
        assert set(verdict(some, 4, age=600.0).initiators) <= {3}
        assert set(verdict(some, None, age=600.0).initiators) <= {3}


def test_a_gap_in_the_ranks_is_a_rank_that_was_not_dumped() -> None:
    facts: list[LooseFact] = [dump(rank, SOCKET if rank == 3 else REDUCE) for rank in (0, 2, 3)]
    found = verdict(facts, age=600.0)
    assert (found.kind, found.initiators) == ("undecided", ()) and 1 in found.unknown
    whole = verdict([*facts, dump(1, REDUCE)], age=600.0)
    assert (whole.initiators, whole.confidence) == ((3,), "medium")
    assert capture_of([dump(10**9, REDUCE), dump(0, REDUCE)]) is not None
    assert verdict([dump(10**9, REDUCE), dump(0, SOCKET)], age=600.0).initiators in ((), (0,))


BACKWARD = (Frame(function="backward", file="torch/autograd/__init__.py", line=353), *CALLS)


def worker(frames: tuple[Frame, ...], active: bool = False) -> DumpedThread:
    """A thread that torch started: nothing names it, and no Python code began it."""
    return DumpedThread(tid=900, frames=frames, active=active, ref=REF)


def test_in_backward_the_nameless_thread_of_autograd_tells() -> None:
    read = (Frame(function="readinto", file="/usr/lib/python3.11/socket.py", line=706), OWN[0])
    gather = (REDUCE[0], Frame(function="hook", file="zero.py", line=4))
    waiting: list[LooseFact] = [
        dump(rank, BACKWARD, pid=100 + rank, more=(worker(gather),)) for rank in range(3)
    ]
    found = verdict([*waiting, dump(3, BACKWARD, pid=103, more=(worker(read),))], 4, age=600.0)
    assert (found.kind, found.initiators, found.confidence) == ("rank-blocked", (3,), "medium")
    assert found.roots[0].tid == 900
    both = [*waiting[:2], dump(2, SOCKET, pid=102), dump(3, BACKWARD, pid=103, more=(worker(OWN[:1]),))]
    assert verdict(both, 4, age=600.0).initiators == ()


def test_dumps_that_a_timer_made_are_so_far_apart_at_least() -> None:
    def looks(seconds: float) -> list[LooseFact]:
        return [
            msgspec.structs.replace(
                dump(rank, frames, tool="faulthandler", file=f"rank_{rank}.log"), apart=seconds
            )
            for _look in range(2)
            for rank, frames in enumerate((REDUCE, REDUCE, REDUCE, SOCKET))
        ]

    found = verdict(looks(300.0), 4)
    assert (found.kind, found.initiators, found.confidence) == ("rank-blocked", (3,), "medium")
    assert found.observed_seconds == 300.0
    assert verdict(looks(2.0), 4).initiators == ()


def test_an_age_is_not_that_of_processes_that_have_just_started() -> None:
    def row(seconds: float) -> ProcessState:
        return ProcessState(origin=Origin(pid=103), pid=103, state="S", elapsed=seconds, ref=REF)

    assert verdict([*job(SOCKET), row(3600.0)], 4, age=600.0).initiators == (3,)
    assert verdict([*job(SOCKET), row(60.0)], 4, age=600.0).initiators == ()


INIT = (Frame(function="init_process_group", file=TORCH, line=1764), *CALLS)


@pytest.mark.parametrize("tool", ["py-spy", "pystack"])
def test_a_list_of_python_threads_is_no_proof_that_no_group_was_formed(tool: str) -> None:
    facts: list[LooseFact] = [dump(rank, REDUCE, pid=100 + rank, tool=tool) for rank in range(3)]
    found = verdict([*facts, dump(3, INIT, pid=103, tool=tool)], 4, age=600.0)
    assert found.initiators == ()
    assert verdict([*facts, dump(3, SOCKET, pid=103, tool=tool)], 4, age=600.0).initiators == (3,)


def test_all_joined_needs_the_threads_of_the_back_end() -> None:
    loop = DumpedThread(
        tid=990,
        name="gloo_tcp_loop",
        frames=(Frame(function="epoll_wait", file="", library="libc.so"),),
        ref=REF,
    )
    whole: list[LooseFact] = [
        dump(rank, JOINED, pid=100 + rank, tool="pystack", more=(loop,)) for rank in range(3)
    ]
    found = verdict(whole, 3, age=600.0)
    assert (found.kind, found.initiators, found.confidence) == ("all-joined", (), "medium")
    python_only: list[LooseFact] = [dump(rank, JOINED, pid=100 + rank) for rank in range(3)]
    assert verdict(python_only, 3, age=600.0).kind == "undecided"
    assert verdict([*whole[:2], dump(2, JOINED, pid=102)], 3, age=600.0).kind == "undecided"
