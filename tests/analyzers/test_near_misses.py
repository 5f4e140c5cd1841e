"""Cases beside the scenarios: the same look with another truth, and what must stay undecided."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze_capture
from hangscope.model.evidence import Cell
from hangscope.model.facts import FileLock, KernelEvent, MemoryCgroup, Mount, OpenFile
from hangscope.model.verdict import Verdict
from hangscope.model.waits import ReleasedBy, WaitKind

from .builder import (
    NODE,
    PATIENT,
    SHORT,
    THREADING,
    WALL,
    Doing,
    JobBuilder,
    Proc,
    collective,
    doing,
    fifo,
    frame,
    host_memory,
    join_thread,
    kernel,
    lock,
    opaque,
    point_to_point,
    ref,
    running,
    service,
    signalled,
    sleeping,
    socket_wait,
)


def named(verdict: Verdict) -> tuple[str, tuple[int, ...], str | None]:
    return verdict.kind, verdict.initiators, verdict.cause


def answer(verdict: Verdict) -> tuple[str, tuple[int, ...]]:
    return verdict.kind, verdict.initiators


# --- the kernel, memory, samples


def offloading(what: object = None, times: tuple[float, ...] = (0.0, 2.0)) -> JobBuilder:
    job = JobBuilder(4, times=times).main(2, signalled())
    job.thread(2, "python3", what or kernel(), python="offload")  # type: ignore[arg-type]  # a Doing or the default
    return job


def test_memory_is_not_named_when_the_kernel_waits_for_something_else() -> None:
    assert named(offloading().full_cgroup(2).verdict()) == ("rank-blocked", (2,), "thread-blocked-in-kernel")


def test_host_memory_without_its_cgroup_has_no_cause_and_says_what_is_missing() -> None:
    verdict = offloading(host_memory()).verdict()
    assert named(verdict) == ("rank-blocked", (2,), None)
    assert any("memory cgroup" in fact.what for fact in verdict.missing)


def test_one_sample_of_a_blocked_thread_decides_nothing() -> None:
    for what in (kernel(), fifo()):
        verdict = offloading(what, times=(0.0,)).verdict()
        assert answer(verdict) == ("undecided", ())
        assert verdict.more_samples_would_decide


def test_one_sample_of_a_cgroup_out_of_memory_decides_but_never_high() -> None:
    verdict = offloading(host_memory(), times=(0.0,)).full_cgroup(2).verdict()
    assert named(verdict) == ("rank-blocked", (2,), "host-memory-limit")
    assert verdict.confidence == "medium"


def test_memory_high_needs_its_events_to_rise() -> None:
    for counts, cause in (((5, 20), "host-memory-limit"), ((5, 5), None)):
        job = offloading(host_memory(switches=[7, 90]), (0.0, 30.0))
        job.of(2).cgroups = ("/j",)
        job.cgroups = [
            MemoryCgroup(
                path="/j", version=2, sample=i, level=0, pids=(job.pid(2),), high=100, usage=101,
                high_events=count, ref=ref("memory.json"),
            )
            for i, count in enumerate(counts)
        ]  # fmt: skip
        verdict = job.verdict()
        assert named(verdict) == ("rank-blocked", (2,), cause)


def test_a_thread_that_switched_meanwhile_needs_more_samples() -> None:
    verdict = JobBuilder(4, times=SHORT).main(1, fifo(switches=[7, 9])).verdict()
    assert answer(verdict) == ("undecided", ())
    assert verdict.more_samples_would_decide
    later = JobBuilder(4, times=PATIENT).main(1, fifo(switches=[7, 9, 11, 13, 15])).verdict()
    assert (later.confidence, later.more_samples_would_decide) == ("high", False)


def test_an_old_last_line_of_output_is_an_age() -> None:
    job = JobBuilder(4).main(1, fifo(switches=[7, 9]))
    for rank in range(4):
        job.of(rank).output = [(100, WALL - 120)]
    verdict = job.verdict()
    assert (verdict.confidence, verdict.more_samples_would_decide) == ("high", False)
    assert verdict.stuck_since == "2025-12-29T09:18:00Z"
    assert verdict.stuck_since_source is not None and "output" in verdict.stuck_since_source


def test_a_reader_that_gets_data_is_no_root() -> None:
    stacks = [(frame("parse", line=22), frame("main", line=90)), fifo().stack]
    verdict = JobBuilder(4).main(1, fifo(stacks=stacks, switches=[7, 30])).verdict()
    assert verdict.initiators == ()
    assert verdict.kind in ("slow", "not-stuck")


def test_a_job_that_nobody_waits_for_is_not_named_for_its_idle_reads() -> None:
    assert answer(JobBuilder(4).every(fifo()).verdict()) == ("undecided", ())
    assert answer(JobBuilder(4).every(socket_wait(None)).verdict()) == ("undecided", ())


# --- threads of one process


def test_two_threads_blocked_differently_leave_it_open() -> None:
    job = offloading()
    job.thread(2, "python3", socket_wait(None, remote="10.0.0.9:443"), python="upload")
    verdict = job.verdict()
    assert answer(verdict) == ("undecided", ())
    assert "several of them" in (verdict.deciding_fact or "")


def test_a_blocked_thread_of_another_file_is_medium() -> None:
    job = offloading(kernel(file="/job/other.py")).main(2, signalled("Trainer.step"))
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert verdict.confidence == "medium"
    assert "inferred" in (verdict.why_not_higher or "")


def test_a_running_bystander_does_not_hide_the_blocked_thread() -> None:
    job = offloading()
    job.thread(2, "python3", sleeping(), python="heartbeat")
    assert answer(job.verdict()) == ("rank-blocked", (2,))


def test_an_event_that_no_thread_can_set_blocks_its_rank() -> None:
    job = JobBuilder(4, times=PATIENT).main(2, signalled())
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (2,), None)
    assert verdict.roots[0].wait == "signalled"
    job.thread(2, "python3", signalled("Other.wait", 80), python="idle")
    assert answer(job.verdict()) == ("rank-blocked", (2,))


def test_locks_of_other_files_or_instances_are_not_one_lock() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, join_thread())
    job.thread(1, "python3", lock("B", ["A"], 50), python="first")
    second = lock("A", ["B"], 60)
    moved = (
        msgspec.structs.replace(second.wait.frame, file="/job/elsewhere.py") if second.wait.frame else None
    )
    second.wait = msgspec.structs.replace(second.wait, frame=moved)
    job.thread(1, "python3", second, python="second")
    verdict = job.verdict()
    assert verdict.kind == "rank-blocked" and verdict.cause != "lock-order-inversion"


def test_locks_of_instances_are_inferred() -> None:
    job = JobBuilder(4).main(1, join_thread())
    job.thread(1, "python3", lock("self.b", ["self.a"], 50, address=1), python="first")
    job.thread(1, "python3", lock("self.a", ["self.b"], 60, address=2), python="second")
    verdict = job.verdict()
    assert named(verdict) == ("cycle", (1,), "lock-order-inversion")
    assert verdict.confidence == "medium"


def test_two_waiters_at_one_address_do_not_hold_each_others_lock() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, join_thread())
    job.thread(1, "python3", lock("B", ["A"], 50, address=9), python="first")
    job.thread(1, "python3", lock("A", ["B"], 60, address=9), python="second")
    assert job.verdict().cause != "lock-order-inversion"


def test_a_thread_that_keeps_the_gil_holds_up_the_others() -> None:
    job = JobBuilder(4).main(2, signalled())
    stack = [frame("fill", "/job/native.py", 5)]
    keeper = doing(
        WaitKind.HOST_MEMORY,
        ReleasedBy.KERNEL,
        stack,
        state="D",
        wchan="mem_cgroup_oom_synchronize",
        gil=True,
    )
    job.thread(2, "python3", keeper, python="offload")
    job.thread(2, "python3", signalled("Other.wait"), python="other")
    verdict = job.full_cgroup(2).verdict()
    assert named(verdict) == ("rank-blocked", (2,), "host-memory-limit")
    assert verdict.confidence == "high"


def test_a_gil_owner_that_waits_for_a_thread_without_the_gil_is_a_cycle() -> None:
    mutex = doing(WaitKind.LOCK, ReleasedBy.IN_PROCESS, [frame("launch", line=15)], caller=0, gil=True)
    wants = doing(WaitKind.GIL, ReleasedBy.THREAD, [frame("callback", line=70)], caller=0)
    job = JobBuilder(4, times=PATIENT).main(2, mutex)
    job.thread(2, "python3", wants, python="callback")
    verdict = job.verdict()
    assert named(verdict) == ("cycle", (2,), "gil-lock-inversion")
    assert verdict.confidence != "low"


def test_a_wait_for_the_gil_leads_to_its_owner() -> None:
    wants = doing(WaitKind.GIL, ReleasedBy.THREAD, [frame("step", line=70)], caller=0)
    job = JobBuilder(4, times=PATIENT).main(2, wants)
    job.thread(2, "python3", running(gil=True), python="hog")
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (2,), "rank-spinning")


def test_a_queue_leads_to_the_thread_that_feeds_it() -> None:
    stack = [frame("Queue.get", "/usr/lib/python3.11/queue.py", 171), frame("train", line=30)]
    waits = doing(WaitKind.QUEUE, ReleasedBy.THREAD, stack, thread_pattern="^feeder")
    job = JobBuilder(4).main(2, waits)
    job.thread(2, "python3", kernel(), python="feeder-0")
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (2,), "thread-blocked-in-kernel")
    assert verdict.confidence == "high"


# --- other processes


def loads_a_batch() -> object:
    stack = [
        frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
        frame("train", line=30),
    ]
    return doing(WaitKind.CHILD, ReleasedBy.CHILDREN, stack, why="waits for a batch")


def test_the_worker_that_is_stuck_is_named_beneath_its_rank() -> None:
    job = JobBuilder(4).main(2, loads_a_batch())  # type: ignore[arg-type]  # a Doing
    pid = job.child(2, "dataloader", fifo())
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (2,), "dataloader-worker-stuck")
    root = verdict.roots[0]
    assert (root.type, root.rank, root.pid, root.role) == ("process", 2, pid, "dataloader")


def test_two_workers_at_one_lock_are_one_finding() -> None:
    job = JobBuilder(4, times=PATIENT).main(2, loads_a_batch())  # type: ignore[arg-type]  # a Doing
    pids = {job.child(2, "dataloader", lock("cache_lock")) for _ in range(2)}
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (2,), "fork-with-threads-deadlock")
    assert {root.pid for root in verdict.roots} == pids


def test_a_spawned_worker_at_a_lock_did_not_inherit_it() -> None:
    job = JobBuilder(4, times=PATIENT).main(2, loads_a_batch())  # type: ignore[arg-type]  # a Doing
    job.child(2, "dataloader", lock("cache_lock"), forked=False)
    assert named(job.verdict()) == ("rank-blocked", (2,), "dataloader-worker-stuck")


def test_a_dead_worker_is_the_root() -> None:
    job = JobBuilder(4, times=PATIENT).main(2, loads_a_batch())  # type: ignore[arg-type]  # a Doing
    pid = job.child(2, "dataloader", fifo())
    job.processes[pid].threads = {pid: ("pt_data_worker", None, kernel(state="Z", wchan="0"))}
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert verdict.roots[0].pid == pid


def test_idle_workers_cannot_end_the_wait() -> None:
    job = JobBuilder(4, times=PATIENT).main(2, loads_a_batch())  # type: ignore[arg-type]  # a Doing
    job.child(2, "dataloader", service())
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert verdict.roots[0].type == "rank"


def test_a_stopped_reader_of_one_ranks_output_is_the_root() -> None:
    job = JobBuilder(4)
    job.processes[77] = Proc(pid=77, ppid=1, role="outside")
    job.processes[77].threads[77] = ("tee", None, kernel(state="T", wchan="do_signal_stop"))
    stack = [frame("print_loss", line=33)]
    writes = doing(
        WaitKind.PIPE, ReleasedBy.REMOTE, stack, wchan="anon_pipe_write", peer_pid=77, remote="pipe:[9]"
    )
    verdict = job.main(0, writes).verdict()
    assert answer(verdict) == ("rank-blocked", (0,))
    assert (verdict.roots[0].type, verdict.roots[0].pid) == ("process", 77)


def test_a_stopped_launcher_that_several_ranks_write_to_names_no_rank() -> None:
    job = JobBuilder(4)
    job.processes[900] = Proc(pid=900, ppid=1, role="launcher")
    job.processes[900].threads[900] = ("pt_elastic", "MainThread", kernel(state="T", wchan="do_signal_stop"))
    stack = [frame("print_loss", line=33)]
    for rank in (0, 1):
        writes = doing(WaitKind.PIPE, ReleasedBy.REMOTE, stack, wchan="anon_pipe_write", peer_pid=900)
        job.main(rank, writes)
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", ())
    assert verdict.roots[0].type == "launcher"
    assert verdict.waiting == (0, 1, 2, 3)


def flock(pid: int, holder: int) -> FileLock:
    return FileLock(
        node=NODE,
        kind="FLOCK",
        holder_pid=holder,
        waiter_pids=(pid,),
        device_inode="8:1:5",
        path="/x/lock",
        ref=ref("locks.json"),
    )


def waits_for_file(**more: object) -> object:
    stack = [frame("acquire", line=12)]
    return doing(WaitKind.FILE_LOCK, ReleasedBy.REMOTE, stack, wchan="locks_lock_inode_wait", **more)  # type: ignore[arg-type]  # field values


def test_a_file_lock_leads_to_its_holder() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, waits_for_file())  # type: ignore[arg-type]  # a Doing
    job.locks = [flock(job.pid(1), job.pid(3))]
    job.main(3, fifo())
    assert answer(job.verdict()) == ("rank-blocked", (3,))
    job.locks = [flock(job.pid(1), 4242)]
    job.main(3, collective())
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (1,), "file-lock-stuck")
    assert verdict.roots[0].type == "process"
    job.locks = []
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (1,), "file-lock-stuck")
    assert verdict.confidence == "medium"


def test_a_file_lock_that_the_process_holds_itself() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, waits_for_file())  # type: ignore[arg-type]  # a Doing
    job.locks = [flock(job.pid(1), job.pid(1))]
    assert answer(job.verdict()) == ("rank-blocked", (1,))
    job.thread(1, "python3", running(), python="writer")
    assert answer(job.verdict()) == ("undecided", ())


def blocked_on_nfs(**more: object) -> object:
    stack = [frame("torch_save", line=66), frame("save_checkpoint", line=70)]
    return doing(
        WaitKind.FILESYSTEM,
        ReleasedBy.KERNEL,
        stack,
        caller=0,
        state="D",
        wchan="rpc_wait_bit_killable",
        **more,  # type: ignore[arg-type]  # field values
    )


def with_mount(job: JobBuilder, ranks: tuple[int, ...]) -> JobBuilder:
    job.mounts = [Mount(node=NODE, path="/ckpt", fstype="nfs4", source="srv:/x", responsive=False)]
    for rank in ranks:
        job.main(rank, blocked_on_nfs())  # type: ignore[arg-type]  # a Doing
        job.of(rank).files = (OpenFile(fd=9, target="/ckpt/model.pt", position=5),)
    return job


def test_one_rank_on_a_dead_mount_is_named() -> None:
    assert named(with_mount(JobBuilder(4), (1,)).verdict()) == ("rank-blocked", (1,), "checkpoint-fs-blocked")


def test_several_ranks_on_a_dead_mount_are_its_victims() -> None:
    verdict = with_mount(JobBuilder(4), (1, 2)).verdict()
    assert named(verdict) == ("rank-blocked", (), "checkpoint-fs-blocked")
    assert verdict.roots[0].type == "mount" and "/ckpt" in (verdict.roots[0].label or "")
    assert verdict.waiting == (0, 1, 2, 3)


def test_several_ranks_in_one_full_cgroup_are_its_victims() -> None:
    job = JobBuilder(4).main(1, host_memory()).main(2, host_memory())
    job.full_cgroup(1)
    job.of(2).cgroups = ("/job/r",)
    verdict = job.verdict()
    assert named(verdict) == ("rank-blocked", (), "host-memory-limit")
    assert verdict.roots[0].type == "node"


def test_a_driver_and_one_remote_address_are_shared_resources() -> None:
    driver = kernel("uvm_wait", WaitKind.DRIVER)
    verdict = JobBuilder(4).main(1, driver).main(2, driver).verdict()
    assert named(verdict) == ("rank-blocked", (), "gpu-or-driver-stuck")
    outside = socket_wait(None, remote="10.0.0.9:443")
    verdict = JobBuilder(4, times=PATIENT).main(1, outside).main(2, outside).verdict()
    assert answer(verdict) == ("rank-blocked", ())
    assert verdict.roots[0].type == "link"


# --- presence


def test_a_killed_leader_with_a_thread_in_the_kernel_is_blocked() -> None:
    job = JobBuilder(4)
    dead = job.of(2)
    dead.threads[dead.pid] = ("python3", None, kernel(state="Z", wchan="0"))
    job.thread(2, "python3", kernel(), python=None)
    assert answer(job.verdict()) == ("rank-blocked", (2,))


def test_exits_and_the_kernels_killing_have_their_own_causes() -> None:
    job = JobBuilder(4)
    dead = job.of(2)
    dead.threads = {dead.pid: ("python3", None, kernel(state="Z", wchan="0"))}
    dead.exit_code = 256
    assert named(job.verdict()) == ("rank-absent", (2,), "rank-died-peers-wait")
    dead.exit_code = 9
    job.kernel_events = [
        KernelEvent(
            node=NODE,
            kind="oom-kill",
            seconds=5.0,
            pid=dead.pid,
            text="Killed process",
            ref=ref("kernel.txt"),
        )
    ]
    assert named(job.verdict()) == ("rank-absent", (2,), "oom-killed-rank")


def test_a_rank_that_ends_during_the_capture_is_gone_and_never_high() -> None:
    job = JobBuilder(4)
    job.of(2).last_sample = 0
    job.cells = [
        Cell(node=NODE, collector="threads", sample=1, pid=job.pid(2), status="absent", reason="gone")
    ]
    verdict = job.verdict()
    assert answer(verdict) == ("rank-absent", (2,))
    assert verdict.confidence == "medium"


def test_a_frozen_rank_is_absent() -> None:
    job = JobBuilder(4)
    job.of(1).frozen = True
    assert named(job.verdict()) == ("rank-absent", (1,), "rank-stopped")


def test_a_traced_rank_is_blocked_not_stopped() -> None:
    job = JobBuilder(4).main(1, kernel(state="t", wchan="ptrace_stop"))
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (1,))
    assert verdict.roots[0].wait == "traced"


def test_a_rank_that_came_and_went_is_not_one_that_never_started() -> None:
    assert named(JobBuilder(4).drop(2).verdict()) == ("rank-absent", (2,), "rank-died-peers-wait")


def test_denied_processes_make_unknown_ranks_not_dead_ones() -> None:
    job = JobBuilder(4).drop(2)
    job.complete = False
    verdict = job.verdict()
    assert answer(verdict) == ("undecided", ())
    assert verdict.unknown == (2,)
    assert verdict.missing and verdict.missing[0].command


def test_the_nodes_own_ranks_prove_absence() -> None:
    job = JobBuilder(4).drop(2)
    job.single_node = None
    job.expected = ((NODE, (0, 1, 2, 3)),)
    assert answer(job.verdict()) == ("rank-absent", (2,))


def test_two_processes_of_one_rank_that_nothing_tells_apart_name_nobody() -> None:
    job = JobBuilder(4).main(1, fifo())
    twin = dataclasses.replace(job.of(1), pid=5000, threads={5000: ("python3", "MainThread", fifo())})
    job.processes[5000] = twin
    verdict = job.verdict()
    assert answer(verdict) == ("undecided", ())
    assert verdict.missing[0].what == "which of pid 1100, 5000 is rank 1"


# --- ranks that were not captured


def test_an_uncaptured_rank_beside_a_blocked_one() -> None:
    job = JobBuilder(4).main(1, fifo())
    job.of(3).captured = False
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (1,))
    assert verdict.unknown == (3,) and verdict.confidence == "medium" and verdict.coverage == "3/4"
    running_one = JobBuilder(4, times=PATIENT).main(1, running())
    running_one.of(3).captured = False
    assert answer(running_one.verdict()) == ("undecided", ())


def test_an_uncaptured_rank_is_never_named() -> None:
    job = JobBuilder(4)
    job.of(3).captured = False
    verdict = job.verdict()
    assert (verdict.kind, verdict.initiators, verdict.unknown) == ("undecided", (), (3,))


def test_a_wait_that_no_row_knows_is_undecided_and_printed() -> None:
    verdict = JobBuilder(4, times=PATIENT).main(1, opaque()).verdict()
    assert answer(verdict) == ("undecided", ())
    assert verdict.unknown == (1,)
    assert verdict.unresolved == ("mystery (/job/ext.py:5)",)
    assert any("native" in (fact.command or "") for fact in verdict.missing)


def test_entering_is_neither_joined_nor_innocent() -> None:
    entering = collective("all_reduce", kind=WaitKind.ENTERING)
    verdict = JobBuilder(4, times=PATIENT).main(1, entering).verdict()
    assert answer(verdict) == ("undecided", ())
    job = JobBuilder(4, times=PATIENT).main(1, entering)
    for rank in range(4):
        job.records(rank, pending=[("g", 5, "all_reduce")], last={"g": 5})
    assert answer(job.verdict()) == ("all-joined", ())


# --- groups


def test_the_only_rank_outside_communication_is_nameable_over_unknown_groups() -> None:
    job = JobBuilder(4, groups=3).main(1, fifo())
    job.connections = False
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (1,))
    assert verdict.confidence == "medium"
    job.main(2, running())
    assert answer(job.verdict()) == ("undecided", ())


def test_a_transport_thread_is_not_named_over_unknown_groups() -> None:
    job = JobBuilder(4, groups=3, times=PATIENT)
    job.connections = False
    blocked = host_memory()
    job.thread(2, "gloo_tcp_loop", blocked, python=None, tid=job.pid(2) + 10)
    assert answer(job.full_cgroup(2).verdict()) == ("undecided", ())


def test_a_stopped_rank_is_named_over_unknown_groups() -> None:
    job = JobBuilder(4, groups=3).main(1, kernel(state="T", wchan="do_signal_stop")).main(0, running())
    job.connections = False
    assert answer(job.verdict()) == ("rank-absent", (1,))


def test_majority_does_not_apply_over_several_groups() -> None:
    job = JobBuilder(4, groups=2, times=PATIENT).main(1, collective("broadcast", line=70))
    verdict = job.verdict()
    assert answer(verdict) == ("undecided", ())
    assert any("flight recorder" in fact.what for fact in verdict.missing)


def elsewhere(name: str, *, order: bool = False) -> object:
    callers = (frame("evaluate", line=70), frame("main", line=95 if order else 80))
    return collective(name, callers=callers)


def test_two_ranks_have_no_majority() -> None:
    job = JobBuilder(2, times=PATIENT).main(1, elsewhere("broadcast"))  # type: ignore[arg-type]  # a Doing
    assert answer(job.verdict()) == ("undecided", ())


def test_an_uncaptured_rank_may_break_the_majority() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, elsewhere("broadcast"))  # type: ignore[arg-type]  # a Doing
    job.of(0).captured = False
    assert answer(job.verdict()) == ("undecided", ())


def test_the_same_operation_from_another_place_is_a_local_condition() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, elsewhere("all_reduce"))  # type: ignore[arg-type]  # a Doing
    assert named(job.verdict()) == ("rank-diverged", (1,), "rank-local-condition-divergence")


def test_one_place_and_another_operation_is_a_mismatch() -> None:
    place = (frame("train", line=40, text="op(x)"),)
    job = JobBuilder(4, times=PATIENT).every(collective("all_reduce", callers=place))
    job.main(1, collective("all_gather", callers=place))
    assert named(job.verdict()) == ("mismatch", (1,), "collective-order-mismatch")
    pair = JobBuilder(2, times=PATIENT).every(collective("all_reduce", callers=place))
    pair.main(1, collective("all_gather", callers=place))
    verdict = pair.verdict()
    assert answer(verdict) == ("mismatch", ())
    assert verdict.confidence != "high"


def test_program_order_outside_loops_supports_the_majority() -> None:
    straight = (frame("run", line=20), frame("main", line=30))
    job = JobBuilder(4, times=PATIENT).every(collective("all_reduce", callers=straight))
    job.main(1, collective("broadcast", callers=(frame("run", line=25), frame("main", line=30))))
    verdict = job.verdict()
    assert named(verdict) == ("rank-diverged", (1,), "rank-skips-collective")
    assert verdict.confidence == "medium"


def recorded(world: int, last: dict[int, int], times: tuple[float, ...] = PATIENT) -> JobBuilder:
    job = JobBuilder(world, times=times)
    for rank in range(world):
        job.records(rank, pending=[("g", last[rank], "all_reduce")], last={"g": last[rank]}, age=60)
    return job


def test_the_recorder_tells_joined_from_not() -> None:
    job = recorded(4, {0: 6, 1: 6, 2: 6, 3: 6}, times=(0.0, 2.0)).main(2, fifo(switches=[7, 9]))
    job.records(2, pending=[], last={"g": 5})
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert verdict.confidence == "high" and not verdict.more_samples_would_decide
    assert "recorder" in (verdict.stuck_since_source or "")


def test_a_rank_that_has_joined_is_innocent_wherever_it_stands() -> None:
    job = recorded(4, {0: 6, 1: 6, 2: 6, 3: 6}).main(2, fifo())
    verdict = job.verdict()
    assert verdict.initiators == ()
    assert verdict.kind in ("all-joined", "undecided")


def test_what_fell_out_of_the_ring_buffer_was_joined() -> None:
    job = recorded(4, {0: 6, 1: 6, 2: 6, 3: 6}).main(2, fifo())
    capture, waits = job.build()
    changed = []
    for process in capture.processes:
        if process.rank == 2:
            records = tuple(
                msgspec.structs.replace(
                    r, pending=(), last_enqueued=(), last_completed=(), low_water=(("g", 9),)
                )
                for r in process.recorders
            )
            process = msgspec.structs.replace(process, recorders=records)
        changed.append(process)
    verdict = analyze_capture(msgspec.structs.replace(capture, processes=tuple(changed)), waits)
    assert verdict.initiators == ()


def test_an_operation_finished_elsewhere_names_nobody() -> None:
    verdict = recorded(4, {0: 6, 1: 5, 2: 6, 3: 6}).verdict()
    assert answer(verdict) == ("undecided", ())
    assert "finished on other ranks" in (verdict.deciding_fact or "")


def test_different_kinds_at_one_sequence_show_in_the_recorders() -> None:
    job = recorded(4, {0: 6, 1: 6, 2: 6, 3: 6}).main(1, elsewhere("broadcast"))  # type: ignore[arg-type]  # a Doing
    job.records(1, pending=[("g", 6, "broadcast")], last={"g": 6}, age=60)
    verdict = job.verdict()
    assert named(verdict) == ("rank-diverged", (1,), "rank-skips-collective")
    assert verdict.confidence == "medium"


def test_a_group_whose_members_are_not_proven_names_nobody() -> None:
    job = JobBuilder(2, groups=4, times=PATIENT)
    job.connections = False
    for rank, (mine, last) in enumerate((("tp", {"d": 3, "tp": 1}), ("dp", {"d": 3, "dp": 1}))):
        job.records(rank, pending=[(mine, 1, "all_reduce")], last=last, age=60)
    assert answer(job.verdict()) == ("undecided", ())


def test_groups_that_must_be_shared_by_their_number_are_inferred() -> None:
    job = JobBuilder(2, groups=3, times=PATIENT)
    job.connections = False
    for rank, (mine, last) in enumerate((("tp", {"d": 3, "tp": 1}), ("dp", {"d": 3, "dp": 1}))):
        job.records(rank, pending=[(mine, 1, "all_reduce")], last=last, age=60)
    verdict = job.verdict()
    assert named(verdict) == ("cycle", (0, 1), "cross-pg-order-deadlock")
    assert verdict.confidence == "medium"


def test_a_world_that_no_recorder_lists_is_a_group_too() -> None:
    job = JobBuilder(4, groups=2, times=PATIENT)
    job.connections = False
    for rank in range(4):
        mine, last = ("a", 5 if rank == 0 else 4) if rank < 2 else ("b", 5 if rank == 3 else 4)
        pending = [(mine, 5, "all_reduce")] if rank in (0, 3) else []
        job.records(rank, pending=pending, last={mine: last}, age=60)
    job.main(1, fifo()).main(2, fifo())
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (1,))
    assert [other.initiators for other in verdict.independent] == [(2,)]


# --- point to point


def test_a_pipeline_ends_at_the_stage_that_waits_for_nobody() -> None:
    job = JobBuilder(4).main(0, fifo())
    for rank in (1, 2, 3):
        job.main(rank, point_to_point(WaitKind.RECV, rank - 1))
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (0,))
    assert verdict.roots[0].impact == 3
    assert len(verdict.chain) == 4


def test_both_halves_of_a_transfer_in_place_name_nobody() -> None:
    job = JobBuilder(2, times=PATIENT)
    job.main(0, point_to_point(WaitKind.SEND, 1)).main(1, point_to_point(WaitKind.RECV, 0))
    assert answer(job.verdict()) == ("all-joined", ())


def test_a_transfer_with_an_unknown_peer_asks_for_it() -> None:
    job = JobBuilder(4, times=PATIENT)
    for rank in range(4):
        job.main(rank, point_to_point(WaitKind.SEND, (rank + 1) % 4 if rank else None))
    verdict = job.verdict()
    assert answer(verdict) == ("undecided", ())
    assert any("--locals" in (fact.command or "") for fact in verdict.missing)


def test_sockets_in_a_ring_are_a_cycle() -> None:
    job = JobBuilder(3, groups=0, times=PATIENT)
    for rank in range(3):
        job.main(rank, socket_wait(job.pid((rank + 1) % 3)))
    assert answer(job.verdict()) == ("cycle", (0, 1, 2))


# --- progress


def test_a_recorder_that_advances_means_slow() -> None:
    job = JobBuilder(4, times=(0.0, 2.0, 6.0)).main(2, sleeping())
    for rank in (0, 1, 3):
        job.of(rank).recorder = [[("g", n, int(WALL * 1e9), [("g", n, "all_reduce")])] for n in (5, 6, 8)]
    verdict = job.verdict()
    assert answer(verdict) == ("slow", ())
    assert verdict.stragglers == (2,)


def test_output_that_ranks_share_is_nobodys_progress() -> None:
    job = JobBuilder(4, times=PATIENT).main(1, running())
    for rank in range(4):
        job.of(rank).output = [(100, WALL), (200, WALL + 2)]
        job.of(rank).files = (OpenFile(fd=1, target="/job/out.log", position=9),)
    assert answer(job.verdict()) == ("rank-blocked", (1,))
    for rank in range(4):
        job.of(rank).files = (OpenFile(fd=1, target=f"/job/out{rank}.log", position=9),)
    assert job.verdict().initiators == ()


def test_a_file_position_that_moves_is_progress() -> None:
    job = JobBuilder(4).main(1, running())
    capture, waits = job.build()
    changed = []
    for process in capture.processes:
        if process.rank == 1:
            samples = tuple(
                msgspec.structs.replace(s, files=(OpenFile(fd=9, target="/data/x", position=100 * s.sample),))
                for s in process.samples
            )
            process = msgspec.structs.replace(process, samples=samples)
        changed.append(process)
    verdict = analyze_capture(msgspec.structs.replace(capture, processes=tuple(changed)), waits)
    assert verdict.kind in ("slow", "not-stuck")


def test_a_spinner_needs_patience() -> None:
    verdict = JobBuilder(4, times=SHORT).main(1, running()).verdict()
    assert answer(verdict) == ("undecided", ())
    assert verdict.more_samples_would_decide


def test_a_training_loop_is_not_taken_for_a_spin() -> None:
    deep = [frame(f"layer{i}", line=10 + i, text="x = f(x)") for i in range(6)]
    stacks = [(*deep[:n], MAIN) for n in (6, 4, 5, 6, 4)]
    verdict = JobBuilder(4, times=PATIENT).main(1, running(stacks=stacks)).verdict()
    assert answer(verdict) == ("undecided", ())


MAIN = frame("main", line=90, loops=[(88, "for step in range(n):")])


def test_a_late_rank_beside_a_blocked_one_is_told() -> None:
    job = JobBuilder(4).main(1, fifo()).main(3, running())
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (1,))
    assert verdict.against and verdict.confidence == "medium"


def test_an_idle_server_that_others_wait_for_is_undecided() -> None:
    assert answer(JobBuilder(4, times=PATIENT).main(0, service()).verdict()) == ("undecided", ())


# --- one rank, and nothing at all


@pytest.mark.parametrize("count", [1, 2])
def test_a_job_of_one_rank(count: int) -> None:
    job = JobBuilder(1, groups=0, times=PATIENT).main(0, fifo())
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (0,))


def test_backward_waits_for_autograds_thread() -> None:
    stack = [
        frame("_engine_run_backward", "/v/site-packages/torch/autograd/graph.py", 979),
        frame("train", line=50),
    ]
    backward = doing(WaitKind.AUTOGRAD, ReleasedBy.THREAD, stack)
    job = JobBuilder(4, times=PATIENT).every(backward).main(3, fifo())
    job.thread(0, "pt_autograd_0", collective("all_gather"), python="")
    assert answer(job.verdict()) == ("rank-blocked", (3,))
    diverged = JobBuilder(4, times=PATIENT).every(backward).main(3, elsewhere("barrier"))  # type: ignore[arg-type]  # a Doing
    assert answer(diverged.verdict()) == ("rank-diverged", (3,))


def test_an_empty_capture_is_undecided_or_calm_and_never_raises() -> None:
    job = JobBuilder(1).drop(0)
    job.single_node, job.complete = None, False
    verdict = job.verdict()
    assert answer(verdict) == ("undecided", ())
    capture, _waits = job.build()
    bare = msgspec.structs.replace(capture, world_size=None, nodes=(), samples=0, sample_times=())
    assert analyze_capture(bare, {}).initiators == ()


def test_a_thread_pool_wait_without_its_threads_blocks_the_rank() -> None:
    stack = [frame("Thread.join", THREADING, 1119), frame("close", line=12)]
    waits = doing(WaitKind.JOIN_THREAD, ReleasedBy.THREAD, stack, thread_pattern="ThreadPoolExecutor-")
    assert answer(JobBuilder(4, times=PATIENT).main(2, waits).verdict()) == ("rank-blocked", (2,))


def test_ranks_that_have_ended_are_no_hang_while_nobody_waits_for_them() -> None:
    job = JobBuilder(4).drop(0).drop(1).main(2, running()).main(3, running())
    assert answer(job.verdict()) == ("undecided", ())
    for rank in (2, 3):
        job.of(rank).moved_bytes = [1000, 5000]
    assert job.verdict().kind in ("not-stuck", "slow")


def test_a_stopped_rank_is_named_even_before_anybody_waits_for_it() -> None:
    job = JobBuilder(4).every(running()).main(1, kernel(state="T", wchan="do_signal_stop"))
    assert named(job.verdict()) == ("rank-absent", (1,), "rank-stopped")


def test_a_slow_file_system_needs_patience_a_dead_mount_does_not() -> None:
    job = JobBuilder(4, times=SHORT).main(1, blocked_on_nfs())  # type: ignore[arg-type]  # a Doing
    assert job.verdict().more_samples_would_decide
    assert not with_mount(JobBuilder(4), (1,)).verdict().more_samples_would_decide


def test_a_wait_for_the_device_never_makes_a_minority() -> None:
    stack = [frame("item", line=61, text="loss.item()"), MAIN]
    job = JobBuilder(4, times=PATIENT).every(doing(WaitKind.DEVICE, ReleasedBy.MEMBERS, stack, caller=0))
    job.main(1, collective("barrier", line=70))
    assert job.verdict().initiators == ()
    assert answer(job.main(2, fifo()).verdict()) == ("rank-blocked", (2,))


def test_a_child_that_waits_for_work_cannot_end_the_wait() -> None:
    stack = [frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), frame("loop", line=7)]
    job = JobBuilder(4, times=PATIENT).main(2, loads_a_batch())  # type: ignore[arg-type]  # a Doing
    job.child(2, "helper", doing(WaitKind.QUEUE, ReleasedBy.PEER, stack))
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert verdict.roots[0].type == "rank"


def test_a_pipe_with_several_other_ends_and_a_child_known_by_its_pid() -> None:
    job = JobBuilder(4, times=PATIENT)
    first, second = job.child(2, "helper", fifo()), job.child(2, "helper", running())
    stack = [frame("read", line=21)]
    reads = doing(WaitKind.PIPE, ReleasedBy.REMOTE, stack, wchan="anon_pipe_read", peer_pids=(first, second))
    verdict = job.main(2, reads).verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    wait = doing(WaitKind.CHILD, ReleasedBy.CHILDREN, stack, peer_pid=first)
    verdict = job.main(2, wait).verdict()
    assert [root.pid for root in verdict.roots] == [first]


def test_every_rule_is_listed_once_and_says_what_it_needs() -> None:
    from hangscope.analyzers.causes import RULES

    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    assert all(rule.needs and rule.kinds for rule in RULES)


def test_a_train_thread_beside_a_serving_main_thread_is_the_rank() -> None:
    job = JobBuilder(4).main(1, service())
    job.thread(1, "python3", collective(), python="TrainingThread")
    job.main(2, fifo())
    assert answer(job.verdict()) == ("rank-blocked", (2,))
    job.thread(1, "python3", collective("barrier", line=77), python="Checkpoint")
    assert answer(job.verdict()) == ("rank-blocked", (2,))


def test_refused_reading_is_among_the_missing_facts() -> None:
    job = JobBuilder(4, times=SHORT).main(1, opaque())
    job.cells = [
        Cell(node=NODE, collector="stacks", sample=1, pid=job.pid(1), status="denied", reason="EPERM")
    ]
    capture, waits = job.build()
    refused = msgspec.structs.replace(capture, missing_ptrace=((NODE, "ptrace_scope is 2"),))
    verdict = analyze_capture(refused, waits)
    assert any("ptrace_scope" in fact.why for fact in verdict.missing)
    assert not any(fact.why == "denied: EPERM" for fact in verdict.missing), "said once, with what lifts it"


def test_host_memory_that_is_healthy_is_ruled_out_with_its_figures() -> None:
    from hangscope.model.facts import HostMemory

    job = JobBuilder(4).main(1, fifo())
    job.memory = [
        HostMemory(node=NODE, sample=1, total=64 << 30, available=60 << 30, ref=ref("memory.json")),
    ]
    texts = [line.text for line in job.verdict().ruled_out]
    assert any("60.0 GiB of 64.0 GiB" in text for text in texts)


def test_two_independent_roots_are_told_apart() -> None:
    job = JobBuilder(6, groups=0, times=PATIENT)
    for rank in (0, 1):
        job.main(rank, socket_wait(job.pid(2)))
    job.main(2, fifo())
    job.main(3, socket_wait(job.pid(4)))
    job.main(4, kernel())
    job.main(5, socket_wait(job.pid(2)))
    verdict = job.verdict()
    assert answer(verdict) == ("rank-blocked", (2,))
    assert [finding.initiators for finding in verdict.independent] == [(4,)]
    assert verdict.waiting == (0, 1, 5)


def test_peers_that_wait_at_the_store() -> None:
    stack = [frame("get_key", line=18, text="store.wait([key])"), MAIN]
    store = doing(WaitKind.STORE, ReleasedBy.MEMBERS, stack, caller=0)
    job = JobBuilder(3, groups=0, times=PATIENT).every(store)
    assert named(job.main(1, fifo()).verdict()) == ("rank-blocked", (1,), "store-wait-missing-rank")
    job.main(1, kernel(state="T", wchan="do_signal_stop"))
    assert named(job.verdict()) == ("rank-absent", (1,), "rank-stopped")
    late = JobBuilder(3, groups=1, times=PATIENT).main(0, store)
    assert answer(late.verdict()) == ("undecided", ())


def test_a_cycle_over_locks_and_another_over_transfers_have_their_own_causes() -> None:
    from hangscope.analyzers.causes import gil_lock_inversion, lock_order_inversion

    job = JobBuilder(2, groups=0, times=PATIENT)
    job.main(0, socket_wait(job.pid(1))).main(1, socket_wait(job.pid(0)))
    verdict = job.verdict()
    assert named(verdict) == ("cycle", (0, 1), None)
    assert {lock_order_inversion.RULE.kinds, gil_lock_inversion.RULE.kinds} == {("cycle",)}


def test_a_save_that_waits_for_a_disk() -> None:
    stack = [frame("write", line=9), frame("save_checkpoint", line=70)]
    disk = doing(WaitKind.DISK, ReleasedBy.KERNEL, stack, caller=0, state="D", wchan="io_schedule")
    verdict = JobBuilder(4, times=PATIENT).main(1, disk).verdict()
    assert named(verdict) == ("rank-blocked", (1,), "checkpoint-fs-blocked")
    other = doing(WaitKind.DISK, ReleasedBy.KERNEL, stack[:1], caller=0, state="D", wchan="io_schedule")
    assert named(JobBuilder(4, times=PATIENT).main(1, other).verdict()) == ("rank-blocked", (1,), None)


def test_the_stores_own_traffic_is_no_progress() -> None:
    from hangscope.model.facts import Socket

    for port, environment in (("29511", {"MASTER_PORT": "29511"}), ("41000", {})):
        job = JobBuilder(4, times=PATIENT).main(1, fifo())
        job.thread(0, "pt_tcpstore_uv", service(), python=None)
        capture, waits = job.build()
        changed = []
        for process in capture.processes:
            extra = [
                msgspec.structs.replace(
                    sample,
                    sockets=(
                        *sample.sockets,
                        Socket(
                            inode=5,
                            pid=process.pid,
                            fd=5,
                            family="tcp",
                            state="ESTABLISHED",
                            local=f"127.0.0.1:{port}",
                            remote="127.0.0.1:50000",
                            peer_pid=job.pid(2),
                            peer_node=NODE,
                            listening_owner=True,
                            bytes_acked=100 * sample.sample,
                        ),
                    ),
                )
                for sample in process.samples
            ]
            samples = tuple(extra) if process.rank == 0 else process.samples
            changed.append(msgspec.structs.replace(process, samples=samples, environment=environment))
        verdict = analyze_capture(msgspec.structs.replace(capture, processes=tuple(changed)), waits)
        assert answer(verdict) == ("rank-blocked", (1,))


def test_ranks_without_numbers_are_said_to_be_there() -> None:
    capture, waits = JobBuilder(3).main(1, fifo()).build()
    bare = tuple(msgspec.structs.replace(p, rank=None, world_size=None) for p in capture.processes)
    capture = msgspec.structs.replace(capture, processes=bare, world_size=None)
    verdict = analyze_capture(capture, waits)
    assert answer(verdict) == ("undecided", ())
    assert verdict.why_not_higher is not None and verdict.why_not_higher.startswith("3 ranks were captured")


def ahead_of_a_gather(*outside: int) -> JobBuilder:
    """Rank 0 waits in a gather, to which the others only send; those that have gone on are elsewhere."""
    job = JobBuilder(4, times=PATIENT).main(0, collective("gather"))
    for rank in outside:
        job.main(rank, fifo() if rank == 1 else sleeping())
    return job


def test_a_rank_may_be_past_an_operation_that_others_still_wait_in() -> None:
    assert answer(ahead_of_a_gather(3).verdict()) == ("rank-blocked", (3,))
    verdict = ahead_of_a_gather(1, 3).verdict()
    assert answer(verdict) == ("undecided", ())
    assert "ranks 1,3" in (verdict.why_not_higher or "")
    assert answer(ahead_of_a_gather(1, 3).main(0, collective()).verdict()) == ("rank-blocked", (1,))
    unseen = ahead_of_a_gather(1, 3)
    unseen.of(2).captured = False
    assert answer(unseen.verdict()) == ("undecided", ())


def test_a_wait_that_may_be_a_receive_makes_no_minority() -> None:
    user = (frame("exchange", line=60, text="request.wait()"), frame("main", line=70))
    issued = doing(WaitKind.COLLECTIVE, ReleasedBy.PEER, user, caller=0, futex=[0x5000])
    verdict = JobBuilder(4, times=PATIENT).every(collective("barrier")).main(3, issued).verdict()
    assert answer(verdict) == ("undecided", ())
    assert "rank 3 wait" in (verdict.why_not_higher or "")


def test_the_other_end_of_a_socket_may_be_a_rank_that_was_not_captured() -> None:
    job = JobBuilder(4, times=PATIENT).main(2, socket_wait(None))
    assert answer(job.verdict()) == ("rank-blocked", (2,))
    job.of(1).captured = False
    assert answer(job.verdict()) == ("undecided", ())


@pytest.mark.parametrize("open_ended", [fifo(), socket_wait(None), sleeping()])
def test_a_survivor_is_not_named_while_a_rank_is_missing_that_it_may_wait_for(open_ended: Doing) -> None:
    job = JobBuilder(3, times=PATIENT).main(0, open_ended).main(1, socket_wait(JobBuilder.pid(0)))
    assert answer(job.main(2, service()).verdict()) == ("rank-blocked", (0,))
    verdict = job.drop(2).verdict()
    assert answer(verdict) == ("undecided", ())
    assert "rank 2 has ended" in (verdict.why_not_higher or "")
    assert [finding.initiators for finding in verdict.independent] == [(2,)]


def test_a_missing_rank_does_not_hide_one_that_the_kernel_holds() -> None:
    job = JobBuilder(3, times=PATIENT).main(0, host_memory()).full_cgroup(0)
    verdict = job.main(1, socket_wait(JobBuilder.pid(0))).drop(2).verdict()
    assert answer(verdict) == ("rank-blocked", (0,))
    assert [finding.initiators for finding in verdict.independent] == [(2,)]


def test_a_crossing_in_which_others_stand_too_may_be_a_skipped_operation() -> None:
    job = JobBuilder(4, groups=2, times=PATIENT)
    job.connections = False
    for rank in range(4):
        pending = ("b", 6) if rank == 3 else ("w", 6)
        last = {"w": 6 - (rank == 3), ("b" if rank > 1 else "a"): 5 + (rank == 3)}
        job.records(rank, pending=[(*pending, "all_reduce")], last=last, age=60)
    verdict = job.verdict()
    assert answer(verdict) == ("cycle", (2, 3))
    assert verdict.confidence == "medium" and "skipped" in (verdict.why_not_higher or "")
