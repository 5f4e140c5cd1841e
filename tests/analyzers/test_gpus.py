"""GPUs and drivers as roots, and devices that lag behind their peers'."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hangscope.analyzers.analysis import analyze, analyze_capture
from hangscope.analyzers.devices import troubles
from hangscope.analyzers.facts import read_capture
from hangscope.analyzers.job import Job
from hangscope.analyzers.readers.recorder import read as read_recorder
from hangscope.model.facts import Capture, Gpu, KernelEvent, Operation, Process, Recorder
from hangscope.model.verdict import Verdict
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

from .builder import (
    NODE,
    PATIENT,
    Doing,
    JobBuilder,
    collective,
    doing,
    fifo,
    frame,
    kernel,
    ref,
    running,
    transport,
)
from .evidence_builder import NodeBuilder, evidence, task
from .test_removal import of_capture, of_process

replace = msgspec.structs.replace
Facts = tuple[Capture, dict[tuple[str, int, int], Wait]]


def device(**more: Any) -> Doing:
    stack = (frame("train", line=50, text="loss.item()"), frame("main", line=90))
    return doing(WaitKind.DEVICE, ReleasedBy.KERNEL, stack, caller=0, futex=[0x8000], **more)


def driver() -> Doing:
    return kernel("uvm_wait", WaitKind.DRIVER)


def nccl(world: int = 4, *, groups: int = 1, times: tuple[float, ...] = (0.0, 2.0)) -> JobBuilder:
    """A job on GPUs: a watchdog thread a group in place of gloo's."""
    job = JobBuilder(world, groups=groups, times=times)
    job.connections = False
    for rank in range(world):
        for number in range(groups):
            tid = job.pid(rank) + 10 + number
            job.thread(rank, "pt_nccl_watchdg", transport(), python=None, tid=tid)
            del job.of(rank).threads[job.pid(rank) + 30 + number]
    return job


def gpu(rank: int, **fields: Any) -> Gpu:
    base: dict[str, Any] = {
        "node": NODE, "sample": 1, "index": rank, "uuid": f"GPU-{rank}", "utilization": 100,
        "pci": f"00000000:{0x40 + rank:02X}:00.0", "ref": ref("nvml.json"),
    }  # fmt: skip
    return Gpu(**{**base, **fields})


def on_gpus(job: JobBuilder, *, gpus: tuple[Gpu, ...] = (), shared: bool = False, **capture: Any) -> Facts:
    """The job with a GPU a rank (all GPUs in every rank when ``shared``)."""
    facts, waits = job.build()
    everyone = tuple(sorted(f"GPU-{rank}" for rank in range(job.world)))
    processes = tuple(
        replace(p, gpus=everyone if shared else (f"GPU-{p.rank}",)) if p.rank is not None else p
        for p in facts.processes
    )
    changed = {one.index for one in gpus}
    rest = tuple(gpu(rank) for rank in range(job.world) if rank not in changed)
    return replace(facts, processes=processes, gpus=(*gpus, *rest), **capture), waits


def xid(number: int, rank: int, seconds: float | None = 500.0, kind: str | None = None) -> KernelEvent:
    text = f"NVRM: Xid (PCI:0000:{0x40 + rank:02x}:00): {number}, pid=1, name=python3, what it says"
    return KernelEvent(
        node=NODE, kind=kind or f"xid-{number}", seconds=seconds, text=text, ref=ref("kernel.txt")
    )


def told(verdict: Verdict) -> tuple[str, tuple[int, ...], str | None]:
    return verdict.kind, verdict.initiators, verdict.cause


def test_a_gpu_that_nvml_calls_lost_is_the_root() -> None:
    lost = gpu(2, lost=True, utilization=None)
    verdict = analyze_capture(*on_gpus(nccl(), gpus=(lost,)))
    assert told(verdict) == ("rank-blocked", (2,), "gpu-lost-xid79")
    root = verdict.roots[0]
    assert (root.type, root.rank, root.gpu, root.node, root.pid) == ("gpu", 2, "GPU-2", NODE, 1200)
    assert verdict.action.kind == "drain-node"
    assert verdict.confidence == "medium" and "real hangs" in (verdict.why_not_higher or "")
    assert verdict.waiting == (0, 1, 3)
    assert "whose data is carried by GPU-2 of node-a" in verdict.chain[0].waits_for
    assert any("is lost" in line.text and line.artifact for line in verdict.evidence)


def test_a_rank_in_a_wait_for_its_lost_device_ends_there_too() -> None:
    lost = gpu(2, lost=True, utilization=None)
    for groups in (1, 3):
        job = nccl(groups=groups).main(2, device())
        assert told(analyze_capture(*on_gpus(job, gpus=(lost,))))[1] == (2,)


def test_the_kernels_line_on_a_gpu_names_the_rank_at_that_address() -> None:
    silent = gpu(1, utilization=None, error="Unknown")
    verdict = analyze_capture(*on_gpus(nccl(), gpus=(silent,), kernel=(xid(79, 1),)))
    assert told(verdict) == ("rank-blocked", (1,), "gpu-lost-xid79")
    assert any(line.text.startswith("kernel: NVRM: Xid") for line in verdict.evidence)
    verdict = analyze_capture(*on_gpus(nccl(), kernel=(xid(119, 3),)))
    assert told(verdict) == ("rank-blocked", (3,), "gpu-or-driver-stuck")
    assert (verdict.action.kind, verdict.confidence) == ("drain-node", "medium")


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(xid(79, 1), id="NVML reads it: it is on the bus"),
        pytest.param(xid(119, 1, seconds=0.5), id="older than the rank"),
        pytest.param(xid(31, 1), id="a program's own fault"),
        pytest.param(xid(45, 1), id="clean-up"),
        pytest.param(xid(79, 0x20, seconds=500.0), id="no GPU of the job"),
    ],
)
def test_kernel_lines_that_prove_nothing(event: KernelEvent) -> None:
    facts = on_gpus(nccl(times=PATIENT), kernel=(event,))
    assert troubles(Job(*facts)) == ()
    assert analyze_capture(*facts).initiators == ()


def test_a_lost_gpu_that_several_ranks_have_open_names_none_of_them() -> None:
    verdict = analyze_capture(*on_gpus(nccl(), gpus=(gpu(2, lost=True),), shared=True))
    assert told(verdict) == ("rank-blocked", (), "gpu-lost-xid79")
    assert (verdict.roots[0].type, verdict.roots[0].rank, verdict.roots[0].gpu) == ("gpu", None, "GPU-2")


def test_a_gpu_out_of_order_that_is_nobodys_is_asked_for() -> None:
    for changes in ({"gpus": (gpu(9, lost=True, uuid=None),)}, {"kernel": (xid(79, 0x20),)}):
        verdict = analyze_capture(*on_gpus(nccl(times=PATIENT), **changes))  # type: ignore[arg-type]  # fields
        assert verdict.initiators == ()
        asked = [fact for fact in verdict.missing if "out of order" in fact.what]
        assert len(asked) == 1 and "nvidia-smi" in (asked[0].command or "")


def test_a_lost_gpu_says_nothing_of_a_job_on_cpus() -> None:
    verdict = analyze_capture(*on_gpus(JobBuilder(4).main(1, fifo()), gpus=(gpu(2, lost=True),)))
    assert verdict.initiators == (1,)


def test_a_thread_in_the_driver_is_medium_at_most() -> None:
    verdict = analyze_capture(*on_gpus(nccl().main(1, driver())))
    assert told(verdict) == ("rank-blocked", (1,), "gpu-or-driver-stuck")
    assert (verdict.roots[0].type, verdict.roots[0].gpu, verdict.confidence) == ("rank", "GPU-1", "medium")
    assert verdict.action.kind == "drain-node"


def test_a_watchdog_that_does_not_come_back_from_the_driver_is_the_root() -> None:
    job = nccl()
    stuck = driver()
    stuck.stack = ()
    job.thread(2, "pt_nccl_watchdg", stuck, python=None, tid=job.pid(2) + 10)
    verdict = analyze_capture(*on_gpus(job))
    assert told(verdict) == ("rank-blocked", (2,), "gpu-or-driver-stuck")
    assert (verdict.roots[0].tid, verdict.confidence) == (1210, "medium")


def test_an_nvml_call_that_hung_counts_with_a_thread_in_the_driver_alone() -> None:
    hung = gpu(1, utilization=None, error="no answer: nvmlDeviceGetName never returned")
    verdict = analyze_capture(*on_gpus(nccl().main(1, driver()), gpus=(hung,)))
    assert told(verdict) == ("rank-blocked", (1,), "gpu-or-driver-stuck")
    assert (verdict.roots[0].type, verdict.roots[0].gpu) == ("gpu", "GPU-1")
    assert any("nvmlDeviceGetName never returned" in line.text for line in verdict.evidence)
    alone = analyze_capture(*on_gpus(nccl(times=PATIENT), gpus=(hung,)))
    assert alone.initiators == ()


def test_a_wait_for_the_device_is_no_root_while_some_operation_may_be_unfinished() -> None:
    for groups in (1, 2):
        verdict = analyze_capture(*on_gpus(nccl(groups=groups, times=PATIENT).main(2, device())))
        assert (verdict.kind, verdict.initiators) == ("undecided", ())


# --- the recorder's levels


def test_the_readers_levels_are_scheduled_started_and_completed() -> None:
    entry = {"process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce", "retired": False}
    entries = [
        {**entry, "collective_seq_id": 1, "state": "completed", "time_discovered_started_ns": 7},
        {**entry, "collective_seq_id": 2, "state": "started", "time_discovered_started_ns": 9},
        {**entry, "collective_seq_id": 3, "state": "scheduled", "time_discovered_started_ns": None},
    ]
    found = read_recorder(json.dumps({"version": "2.10", "entries": entries}).encode(), "x")
    assert found.timed and found.last_completed == (("0", 1),) and found.last_enqueued == (("0", 3),)
    assert [(op.sequence, op.state) for op in found.pending] == [(2, "started"), (3, "scheduled")]
    assert not read_recorder(json.dumps({"entries": entries[2:]}).encode(), "x").timed


def operation(number: int, state: str = "started", group: str = "g", created: int = 0) -> Operation:
    return Operation(
        group=group, sequence=number, kind="all_reduce", state=state, retired=False,
        created_ns=created or 1_766_999_900_000_000_000 + number, ref=ref("fr_trace.json"),
    )  # fmt: skip


def recorder(
    sample: int, *pending: Operation, done: int = 5, timed: bool = True, group: str = "g"
) -> Recorder:
    last = max([done, *(entry.sequence for entry in pending if entry.group == group)])
    groups = tuple(sorted({group, *(entry.group for entry in pending)}))
    others = tuple((e.group, e.sequence) for e in pending if e.group != group)
    return Recorder(
        sample=sample, groups=groups, last_enqueued=((group, last), *others), last_completed=((group, done),),
        pending=pending, timed=timed, ref=ref("fr_trace.json"),
    )  # fmt: skip


def recorded(job: JobBuilder, by_rank: dict[int, tuple[Operation, ...]], **fields: Any) -> Facts:
    def with_it(process: Process) -> Process:
        if process.rank not in by_rank:
            return process
        entries = by_rank[process.rank]
        return replace(
            process, recorders=tuple(recorder(i, *entries, **fields) for i in range(len(job.times)))
        )

    facts, waits = on_gpus(job)
    return replace(facts, processes=tuple(map(with_it, facts.processes))), waits


def test_peers_have_started_and_one_device_has_only_scheduled_it() -> None:
    entries = {rank: (operation(6, "scheduled" if rank == 2 else "started"),) for rank in range(4)}
    verdict = analyze_capture(*recorded(nccl(times=PATIENT).every(device()), entries))
    assert told(verdict) == ("rank-blocked", (2,), "device-side-wedge")
    assert (verdict.roots[0].type, verdict.roots[0].gpu, verdict.confidence) == ("gpu", "GPU-2", "medium")
    assert "has not started all_reduce #6" in (verdict.deciding_fact or "")


def test_who_has_started_tells_nothing_without_start_times_or_of_several() -> None:
    late = {rank: (operation(6, "scheduled" if rank == 2 else "started"),) for rank in range(4)}
    job = nccl(times=PATIENT).every(device())
    assert analyze_capture(*recorded(job, late, timed=False)).initiators == ()
    two = {rank: (operation(6, "scheduled" if rank in (1, 2) else "started"),) for rank in range(4)}
    assert analyze_capture(*recorded(job, two)).initiators == ()
    none = {rank: (operation(6, "scheduled"),) for rank in range(4)}
    assert analyze_capture(*recorded(job, none)).initiators == ()


def test_a_device_that_is_held_up_in_an_earlier_operation_is_not_the_root() -> None:
    entries = {rank: (operation(6),) for rank in range(4)}
    entries[2] = (operation(3, "started", "other", created=1), operation(6, "scheduled"))
    verdict = analyze_capture(*recorded(nccl(groups=3, times=PATIENT).every(device()), entries))
    assert (verdict.kind, verdict.initiators) == ("undecided", ())
    shared = analyze_capture(*recorded(nccl(groups=2, times=PATIENT).every(device()), entries))
    assert told(shared) == ("cycle", (0, 1, 2, 3), "cross-pg-order-deadlock")
    assert shared.confidence == "medium"


def test_a_rank_that_completed_it_is_innocent() -> None:
    entries: dict[int, tuple[Operation, ...]] = {rank: (operation(6),) for rank in (0, 1, 3)}
    facts, waits = recorded(nccl(times=PATIENT).main(2, fifo()), entries)
    done = tuple(recorder(i, done=6) for i in range(len(PATIENT)))
    processes = tuple(replace(p, recorders=done) if p.rank == 2 else p for p in facts.processes)
    assert analyze_capture(replace(facts, processes=processes), waits).initiators == ()


def test_an_entry_means_entered_though_the_counter_says_one_less() -> None:
    entries = {rank: (operation(6),) for rank in range(4)}
    facts, waits = recorded(nccl(times=PATIENT).main(2, fifo()), entries)
    behind = tuple(
        replace(p, recorders=tuple(replace(r, last_enqueued=(("g", 5),)) for r in p.recorders))
        if p.rank == 2
        else p
        for p in facts.processes
    )
    assert analyze_capture(replace(facts, processes=behind), waits).initiators == ()


def test_a_wait_for_the_device_with_all_operations_complete_is_the_devices() -> None:
    entries: dict[int, tuple[Operation, ...]] = {rank: (operation(6),) for rank in (0, 1, 3)}
    facts, waits = recorded(nccl(times=PATIENT).main(2, device()), entries)
    done = tuple(recorder(i) for i in range(len(PATIENT)))
    complete = tuple(replace(p, recorders=done) if p.rank == 2 else p for p in facts.processes)
    verdict = analyze_capture(replace(facts, processes=complete), waits)
    assert told(verdict) == ("rank-blocked", (2,), "device-side-wedge")
    assert (verdict.roots[0].type, verdict.confidence) == ("gpu", "medium")
    assert verdict.deciding_fact is not None and "no operation that it launched" in verdict.deciding_fact


def test_the_device_wait_of_a_rank_leads_to_its_lowest_unfinished_operation() -> None:
    """Rank 2 waits for its device in operation 6, which rank 1 has not entered."""
    entries: dict[int, tuple[Operation, ...]] = {rank: (operation(6), operation(7)) for rank in (0, 2, 3)}
    entries[1] = ()
    verdict = analyze_capture(*recorded(nccl(times=PATIENT).every(device()).main(1, fifo()), entries))
    assert (verdict.kind, verdict.initiators) == ("rank-blocked", (1,))
    assert verdict.waiting == (0, 2, 3)


# --- from the artifacts


def node_with_gpus(*rows: dict[str, Any], devices: dict[int, list[str]]) -> NodeBuilder:
    node = NodeBuilder(world_size=len(devices))
    for rank, (pid, names) in enumerate(devices.items()):
        fds = [{"fd": 30 + i, "target": name} for i, name in enumerate(names)]
        node.process(pid, rank=rank).threads(pid, task(pid))
        node.add("process", "process.json", {"pid": pid, "fds": fds}, pid)
    return node.add("gpus", "nvml.json", {"count": len(rows), "gpus": list(rows)})


def row(index: int, **fields: Any) -> dict[str, Any]:
    return {"index": index, "lost": False, "uuid": f"GPU-{index}", "minor": index, "processes": [], **fields}


def test_the_rank_of_a_gpu_without_a_name_is_found_by_elimination() -> None:
    lost = {"index": 1, "lost": True, "error": "GpuIsLost"}
    node = node_with_gpus(
        row(0), lost, devices={41: ["/dev/nvidia0"], 42: ["/dev/nvidia1", "/dev/nvidiactl"]}
    )
    assert [p.gpus for p in read_capture(evidence(node)).processes] == [("GPU-0",), ("index 1",)]
    both = node_with_gpus(row(0), lost, devices={41: ["/dev/nvidia0", "/dev/nvidia1"], 42: []})
    assert [p.gpus for p in read_capture(evidence(both)).processes] == [("GPU-0",), ()]


def test_of_several_open_gpus_those_count_on_which_nvml_lists_the_process() -> None:
    every = ["/dev/nvidia0", "/dev/nvidia1"]
    rows = (row(0), row(1, processes=[{"pid": 41, "kind": "compute", "memory": 1}]))
    found = read_capture(evidence(node_with_gpus(*rows, devices={41: every, 42: every}))).processes
    assert [p.gpus for p in found] == [("GPU-1",), ("GPU-0", "GPU-1")]


def test_a_call_that_never_returned_is_the_gpus_error() -> None:
    hung = {"index": 0, "lost": False, "uuid": "GPU-0", "no_answer": "nvmlDeviceGetPowerUsage"}
    capture = read_capture(evidence(node_with_gpus(hung, devices={41: []})))
    assert capture.gpus[0].error == "no answer: nvmlDeviceGetPowerUsage never returned"
    analyze(evidence(node_with_gpus(hung, devices={41: []})))


def test_the_address_of_a_gpu_off_the_bus_may_stand_lines_before() -> None:
    lines = (
        b"[ 700.0] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        b"[ 700.0] NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        b"[ 700.0] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    capture = read_capture(evidence(NodeBuilder().add("kernel_log", "kernel.txt", lines)))
    assert [(e.kind, e.text.split(":")[2]) for e in capture.kernel] == [("gpu-lost", "00.0")]
    assert capture.kernel[0].text.startswith("GPU 0000:b3:00.0: ")


@pytest.mark.parametrize("name", ["lost", "xid", "driver", "behind"])
def test_no_single_fact_turns_a_gpu_verdict_to_another_name(name: str) -> None:
    lost = gpu(2, lost=True, utilization=None)
    late = {rank: (operation(6, "scheduled" if rank == 2 else "started"),) for rank in range(4)}
    job = {
        "lost": lambda: on_gpus(nccl(groups=3), gpus=(lost,)),
        "xid": lambda: on_gpus(nccl(), gpus=(replace(lost, lost=False),), kernel=(xid(79, 2),)),
        "driver": lambda: on_gpus(nccl().main(2, driver())),
        "behind": lambda: recorded(nccl(times=PATIENT).every(device()), late),
    }[name]()
    whole = analyze_capture(*job)
    assert whole.initiators == (2,) or name == "lost"
    variants = [*of_capture(job), ("gpus", (replace(job[0], gpus=()), job[1]))]
    for process in job[0].processes:
        variants += [(f"pid {process.pid}: {what}", variant) for what, variant in of_process(job, process)]
    named = {(what, analyze_capture(*variant).initiators) for what, variant in variants}
    assert [item for item in named if item[1] not in ((), (2,))] == []


def test_a_running_rank_on_a_lost_gpu_is_the_gpus_and_not_a_spinner() -> None:
    lost = gpu(2, lost=True, utilization=None)
    verdict = analyze_capture(*on_gpus(nccl(times=PATIENT).main(2, running()), gpus=(lost,)))
    assert told(verdict) == ("rank-blocked", (2,), "gpu-lost-xid79")
    assert analyze_capture(*on_gpus(nccl().every(collective()), gpus=(lost,))).initiators == (2,)
