"""Schedulers, launchers, frameworks and inference engines: whom their lines speak of, and whom not."""

from __future__ import annotations

import random

import pytest

from hangscope.analyzers.readers import (
    deepspeed_launcher,
    gpustat_text,
    horovod_text,
    inference_watchdog,
    nvidia_smi_q,
    nvidia_smi_table,
    ray_text,
    sacct_table,
    slurm_text,
    vendor_text,
    xla_text,
)
from hangscope.analyzers.readers.documents import read_document
from hangscope.analyzers.readers.interface import BlockForm, Document, Line
from hangscope.model.loose import NOBODY, LogEvent, Origin
from tests.forms.cases import CASES, FIXTURES


def events(path: str) -> list[LogEvent]:
    data = (FIXTURES / path).read_bytes()
    return [
        fact for fact in read_document(Document(path=path, data=data)).facts if isinstance(fact, LogEvent)
    ]


def line(text: str, **origin: int) -> Line:
    return Line(1, text, Origin(**origin) if origin else NOBODY, "x")  # type: ignore[arg-type]  # field names


def lines(text: str) -> list[Line]:
    return [Line(at, row, NOBODY, "x") for at, row in enumerate(text.splitlines(), 1)]


# --- Slurm


def test_slurm_says_why_a_job_ended_and_where() -> None:
    ended = events("slurm-line/ended.log")
    assert [event.key for event in ended] == [
        "time-limit", "cancelled", "node-failure", "preempted", "node-failure", "aborted",
    ]  # fmt: skip
    assert [event.origin.node for event in ended] == ["node-a"] * 4 + ["node-b", None]
    assert ended[0].origin.wall == 1741079565.0


def test_slurms_tasks_are_not_called_ranks() -> None:
    killed = events("slurm-line/tasks.log")
    assert killed[0].about == tuple(range(8)) and killed[1].about == (8, 9, 10, 12)
    assert {(event.group, event.about_group_ranks) for event in killed} == {(slurm_text.TASKS, True)}
    assert [event.code for event in killed] == [-9, -15, 1, -11, -6]


def test_slurm_lines_in_a_ranks_output_are_not_the_ranks() -> None:
    text = "slurmstepd: error: *** STEP 7.0 ON node-a CANCELLED AT 2025-03-04T09:12:45 ***"
    (event,) = slurm_text.read(line(text, rank=3, pid=9))
    assert isinstance(event, LogEvent) and (event.origin.rank, event.origin.pid) == (None, None)
    assert slurm_text.read(line("srun: error: something else")) == ()
    assert slurm_text.read(line("the memory limit of my model")) == ()
    assert [event.kind for event in events("slurm-line/oom.log")] == ["job-oom"] * 4


def test_sacct_in_columns_and_parsable() -> None:
    plain = [(event.kind, event.key, event.code) for event in events("sacct_table/plain.txt")]
    assert plain == [("job-ended", "failed", 1), ("job-ended", "cancelled", None), ("job-oom", "71.0", None)]
    assert [event.key for event in events("sacct_table/parsable.txt")] == [
        "time-limit", "cancelled", "node-failure",
    ]  # fmt: skip
    assert sacct_table.read(lines("JobID and State of the job\nnothing"), 0) == ((), 0)
    assert sacct_table.read(lines("the JobID"), 0) == ((), 0)


# --- Horovod, XLA, DeepSpeed


def test_horovod_tells_who_has_come_where_the_lists_are_whole() -> None:
    said = [
        (event.kind, event.about, event.key)
        for event in events("horovod-stalled-ranks/everybody-lacks-something.log")
    ]
    assert said == [
        ("stall-missing", (0,), "Optimizer.grad_fc1"), ("stall-waiting", (1,), "Optimizer.grad_fc1"),
        ("stall-missing", (1,), "Optimizer.grad_fc2"), ("stall-waiting", (0,), "Optimizer.grad_fc2"),
    ]  # fmt: skip
    cut, _after = horovod_text.read_table(lines("Stalled ranks:\n1: [a, b ...]\n2: [c]"), 0)
    waiting = {
        (fact.key, fact.about) for fact in cut if isinstance(fact, LogEvent) and fact.kind == "stall-waiting"
    }
    assert waiting == {("a", (0, 2)), ("b", (0, 2)), ("c", (0,))}


def test_horovods_ready_ranks_are_who_waits() -> None:
    ready = events("horovod-stalled-ops/ready.log")
    assert [(event.kind, event.about) for event in ready] == [
        ("stall-waiting", (3,)),
        ("stall-waiting", (0, 1, 2)),
    ]
    assert [event.about for event in events("horovod-stalled-ops/missing.log")] == [(0,), (0,)]
    assert horovod_text.read_table(lines("Stalled ranks:\nnone"), 0) == ([], 0)
    assert horovod_text.read_table(lines("no Stalled ranks: here"), 0) == ((), 0)
    assert horovod_text.read_operations(lines("[missing ranks: of x]"), 0) == ([], 0)


def test_xlas_numbers_are_devices() -> None:
    (missing,) = events("xla-participants/one-missing.log")
    assert (missing.about, missing.about_group_ranks, missing.group) == ((2,), True, xla_text.DEVICES)
    (part,) = events("xla-participants/several-processes.log")
    assert (part.kind, part.about) == ("stall-waiting", (0,))
    first, second = events("xla-rendezvous/initialize-clique.log")
    assert (first.about, first.seconds, first.world_size, second.about) == ((6,), 10.0, 8, (3,))
    (acquire,) = events("xla-rendezvous/acquire-clique.log")
    assert (acquire.about, acquire.world_size, acquire.seconds) == ((), 4, 40.0)
    assert [event.key for event in events("xla-rendezvous/tpu-and-megascale.log")] == [
        "TPU initialization", "INCONSISTENT_TPU_PROGRAM",
    ]  # fmt: skip
    (other,) = xla_text.read_line(line("waiting on `Acquire clique: devices=4:[1,2,3,5]; is_p2p=0`"))
    assert isinstance(other, LogEvent) and other.world_size == 4
    assert xla_text.read_line(line("Potential cause: BAD_LUCK")) == ()
    assert xla_text.read_participants(lines("participant for device ordinal x"), 0) == ((), 0)


def test_deepspeeds_exit_line_names_nobody() -> None:
    *killed, ended = events("deepspeed-launcher/killed.log")
    assert [event.origin.pid for event in killed] == [40022, 40023, 40024]
    assert (ended.code, ended.origin.rank, ended.origin.pid, ended.about) == (-9, None, None, ())
    assert [(e.kind, e.code) for e in events("deepspeed-launcher/interrupted.log")] == [
        ("exit", 0), ("terminated-by-launcher", None), ("exit", 1),
    ]  # fmt: skip
    assert deepspeed_launcher.read(line("[launch.py:256:main] process 7 spawned")) == ()


# --- Ray, inference engines, vendors


def test_ray_tells_pid_and_address_of_the_dead() -> None:
    (listed,) = events("ray_actors/list-actors.txt")
    assert (listed.origin.pid, listed.origin.node) == (40023, None)
    (died,) = events("ray-actor-error/actor-died.log")
    assert (died.key, died.origin.pid, died.origin.node) == (
        "TrainWorker 7f3c5554844820381c2f0f8501000000", 40023, "10.0.0.7",
    )  # fmt: skip
    failed, pending = events("ray_status/pending.txt")
    assert (failed.origin.node, pending.key) == ("10.0.0.9", "resources {'GPU': 1.0} * 8 (PACK)")
    worker, memory = events("ray-line/raylet.log")
    assert (worker.key, worker.origin.pid, memory.kind) == ("worker SYSTEM_ERROR", 40023, "job-oom")


def test_rays_driver_is_not_the_dead_actor() -> None:
    rows = [line("RayActorError: The actor died", rank=0, pid=7), line("  pid: x", rank=0)]
    (event,), after = ray_text.read_error(rows, 0)
    assert isinstance(event, LogEvent) and (event.origin.rank, event.origin.pid, after) == (None, None, 2)
    assert ray_text.read_error(rows[:1], 0) == ((), 0)
    assert ray_text.read_error(lines("class RayActorErrors:"), 0) == ((), 0)
    assert ray_text.read_actors(lines("ACTOR_ID"), 0) == ((), 0)
    assert ray_text.read_status(lines("no status"), 0) == ((), 0)
    assert ray_text.read_line(line("Worker IP address: none")) == ()


def test_the_ends_of_vllms_queue_are_told_by_known_lines_only() -> None:
    found = events("inference-watchdog/vllm.log")
    assert [event.operation for event in found[:4]] == [None, "read", "write", None]
    dead = [event for event in found if event.kind == "actor-dead"]
    assert [event.key for event in dead] == ["EngineCore_DP0", "VllmWorker-3"]
    assert {event.origin.pid for event in dead} == {None}
    (event,) = inference_watchdog.read(line("EngineDeadError: EngineCore encountered an issue", rank=0))
    assert isinstance(event, LogEvent) and event.origin.rank is None
    assert inference_watchdog.read(line("the child died unexpectedly")) == ()


def test_sglangs_places_are_not_ranks() -> None:
    assert [(event.key, event.limit, event.about) for event in events("inference-watchdog/sglang.log")] == [
        ("Scheduler PP1 TP1", 300.0, ()), ("Scheduler TP0", 300.0, ()), ("TokenizerManager", 120.0, ()),
    ]  # fmt: skip


def test_vendors_print_who_polls() -> None:
    accl, buffers, deep_ep = events("vendor-transport/polling.log")
    assert (accl.sequence, buffers.sequence, buffers.completed, deep_ep.completed) == (55810, 41022, 41021, 6)
    assert {event.about_group_ranks for event in (accl, buffers, deep_ep)} == {True}
    assert vendor_text.read(line("DeepEP is installed")) == ()


# --- all of them, cut and mutated

MINE = (
    "nvidia",
    "gpu",
    "kernel",
    "slurm",
    "sacct",
    "horovod",
    "xla",
    "deepspeed",
    "ray",
    "inference",
    "vendor",
)
BLOCKS: list[BlockForm] = [
    nvidia_smi_table.FORM, nvidia_smi_q.FORM, gpustat_text.FORM, sacct_table.FORM,
    horovod_text.TABLE, horovod_text.OPERATIONS, xla_text.PARTICIPANTS, ray_text.ACTORS, ray_text.STATUS,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_cut_and_mutated_fixtures_raise_nothing(seed: int) -> None:
    chance = random.Random(seed)
    documents = [d for case in CASES if case.form.startswith(MINE) for d in case.documents()]
    for document in documents:
        data = bytearray(document.data)
        for _ in range(chance.randrange(12)):
            place = chance.randrange(len(data))
            data[place : place + chance.randrange(6)] = chance.randbytes(chance.randrange(6))
        rows = bytes(data[: chance.randrange(len(data)) or None]).splitlines(keepends=True)
        if chance.random() < 0.3:
            chance.shuffle(rows)
        read_document(Document(path="x", data=b"".join(rows)))


@pytest.mark.parametrize("form", BLOCKS, ids=[form.name for form in BLOCKS])
def test_a_block_of_nothing_but_openers_ends(form: BlockForm) -> None:
    rows = [Line(at, form.openers[0], NOBODY, "x") for at in range(50)]
    _facts, after = form.read(rows, 0)
    assert 0 <= after <= 50
