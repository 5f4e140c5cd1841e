"""The scenarios that the analysis must get right, as builders with their truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from hangscope.model.verdict import Kind
from hangscope.model.waits import WaitKind

from .builder import (
    PATIENT,
    JobBuilder,
    collective,
    fifo,
    frame,
    host_memory,
    join_thread,
    kernel,
    lock,
    point_to_point,
    running,
    service,
    signalled,
    socket_wait,
)

ZERO = "/v/lib/python3.11/site-packages/deepspeed/runtime/zero/partition_parameters.py"


@dataclasses.dataclass(frozen=True)
class Truth:
    kind: Kind
    initiators: tuple[int, ...]
    cause: str | None
    confidence: str | None = None


Scenario = Callable[[], JobBuilder]
SCENARIOS: dict[str, tuple[Scenario, Truth]] = {}


def scenario(name: str, kind: Kind, who: tuple[int, ...], cause: str | None, confidence: str | None = None):  # type: ignore[no-untyped-def]  # a decorator
    def add(make: Scenario) -> Scenario:
        SCENARIOS[name] = (make, Truth(kind, who, cause, confidence))
        return make

    return add


@scenario("1a", "rank-blocked", (2,), "deepspeed-zero-offload-memory", "high")
def flagship() -> JobBuilder:
    zero = (
        frame("AllGatherHandle.wait", ZERO, 720),
        frame("fetch_sub_module", ZERO, 344),
        frame("step", line=33),
    )
    job = JobBuilder(4, groups=3).every(collective("all_gather", callers=zero))
    job.main(2, signalled())
    job.thread(2, "python3", host_memory(), python="ds-param-offload")
    return job.full_cgroup(2)


@scenario("1b", "rank-blocked", (2,), "host-memory-limit", "high")
def plain_memory() -> JobBuilder:
    job = JobBuilder(4)
    job.main(2, signalled())
    job.thread(2, "python3", host_memory(), python="offload")
    return job.full_cgroup(2)


@scenario("1c", "rank-blocked", (2,), "thread-blocked-in-kernel", "high")
def vfork() -> JobBuilder:
    job = JobBuilder(4)
    job.main(2, signalled())
    job.thread(2, "python3", kernel(), python="offload")
    return job.full_cgroup(0, "/other")


@scenario("1d", "rank-blocked", (2,), "host-memory-limit", "high")
def transport_thread() -> JobBuilder:
    job = JobBuilder(4)
    blocked = host_memory()
    blocked.stack = ()
    job.thread(2, "gloo_tcp_loop", blocked, python=None, tid=job.pid(2) + 10)
    return job.full_cgroup(2)


@scenario("2", "rank-blocked", (1,), None, "high")
def reads_a_fifo() -> JobBuilder:
    return JobBuilder(4, times=PATIENT).main(1, fifo())


@scenario("3", "rank-diverged", (1,), "rank-skips-collective")
def skipped() -> JobBuilder:
    other = (frame("evaluate", line=70, text="dist.broadcast(x, 0)"), frame("main", line=95))
    return JobBuilder(4, times=PATIENT).main(1, collective("broadcast", callers=other))


@scenario("4-zombie", "rank-absent", (2,), "rank-killed", "high")
def killed_zombie() -> JobBuilder:
    job = JobBuilder(4)
    dead = job.of(2)
    dead.threads = {dead.pid: ("python3", None, kernel(state="Z", wchan="0"))}
    dead.exit_code = 9
    job.child(2, "orphan", service())
    return job


@scenario("4-orphan", "rank-absent", (2,), "rank-killed", "high")
def killed_orphan() -> JobBuilder:
    job = JobBuilder(4)
    job.child(2, "orphan", service())
    return job.drop(2)


@scenario("5", "rank-absent", (3,), "rank-stopped", "high")
def stopped() -> JobBuilder:
    job = JobBuilder(4)
    for tid, (comm, name, what) in list(job.of(3).threads.items()):
        halted = dataclasses.replace(what, state="T", wchan="do_signal_stop")
        job.of(3).threads[tid] = (comm, name, halted)
    return job


def two_groups(recorders: bool, world: int = 2) -> JobBuilder:
    job = JobBuilder(world, groups=3, times=PATIENT)
    for rank in range(world):
        mine, other = ("tp", "dp") if rank % 2 == 0 else ("dp", "tp")
        job.main(rank, collective("all_reduce", line=40 + rank % 2))
        if recorders:
            last = {"default_pg": 3, mine: 1, other: 0}
            job.records(rank, pending=[(mine, 1, "all_reduce")], last=last, age=60)
    return job


@scenario("6-recorder", "cycle", (0, 1), "cross-pg-order-deadlock", "high")
def crossed_with_recorder() -> JobBuilder:
    return two_groups(True)


@scenario("6-blind", "undecided", (), None)
def crossed_without() -> JobBuilder:
    return two_groups(False)


@scenario("7", "cycle", (1,), "lock-order-inversion", "high")
def inverted_locks() -> JobBuilder:
    job = JobBuilder(4).main(1, join_thread())
    job.thread(1, "python3", lock("B", ["A"], 50, address=0x10), python="first")
    job.thread(1, "python3", lock("A", ["B"], 60, address=0x20), python="second")
    return job


@scenario("8", "rank-blocked", (2,), "fork-with-threads-deadlock", "high")
def forked_worker() -> JobBuilder:
    job = JobBuilder(4, times=PATIENT)
    stack = [
        frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
        frame("train", line=30),
    ]
    from .builder import ReleasedBy, doing

    job.main(2, doing(WaitKind.CHILD, ReleasedBy.CHILDREN, stack, why="waits for a batch"))
    job.child(2, "dataloader", lock("cache_lock"))
    job.child(2, "dataloader", service())
    return job


@scenario("9", "rank-blocked", (1,), "rank-spinning", "medium")
def spinner() -> JobBuilder:
    return JobBuilder(4, times=PATIENT).main(1, running())


@scenario("10-straggler", "slow", (), "slow-not-stuck")
def straggler() -> JobBuilder:
    job = JobBuilder(4, times=(0.0, 2.0, 6.0))
    for rank in (0, 1, 3):
        job.main(rank, collective(futex=[0x5000, 0x9000, 0xD000]))
        job.of(rank).moved_bytes = [1000, 2000, 5000]
    job.main(2, running(loop=""))
    job.of(2).moved_bytes = [1000, 2000, 5000]
    return job


@scenario("10-busy", "not-stuck", (), None)
def all_busy() -> JobBuilder:
    return JobBuilder(4, times=PATIENT).every(running("matmul", loop=""))


@scenario("11-healthy", "not-stuck", (), None)
def healthy() -> JobBuilder:
    places = [
        (frame("forward", line=20 + i, text="x = layer(x)"), frame("main", line=80 + i)) for i in range(2)
    ]
    job = JobBuilder(4)
    for rank in range(4):
        job.main(rank, running("forward", loop="", stacks=places))
        job.of(rank).moved_bytes = [1000, 90000]
    return job


@scenario("11-idle", "not-stuck", (), None)
def idle_servers() -> JobBuilder:
    return JobBuilder(4).every(service())


@scenario("12-known", "rank-absent", (2,), "rank-never-started", "high")
def never_started() -> JobBuilder:
    job = JobBuilder(4, groups=1, times=PATIENT)
    job.every(collective("init_process_group", kind=WaitKind.INIT))
    del job.of(0).threads[job.pid(0) + 10]
    return job.drop(2)


@scenario("12-unknown", "undecided", (), None)
def not_seen() -> JobBuilder:
    job = never_started()
    job.single_node = None
    return job


@scenario("13", "cycle", (0, 1, 2, 3), "pp-p2p-order-cycle", "high")
def ring() -> JobBuilder:
    job = JobBuilder(4, times=PATIENT)
    for rank in range(4):
        job.main(rank, point_to_point(WaitKind.SEND, (rank + 1) % 4))
    return job


@scenario("demo", "rank-blocked", (2,), "thread-blocked-in-kernel", "high")
def demo() -> JobBuilder:
    job = JobBuilder(4, groups=0)
    job.main(0, socket_wait(job.pid(2)))
    job.main(1, socket_wait(job.pid(0)))
    job.main(3, socket_wait(job.pid(0)))
    job.main(2, signalled())
    job.thread(2, "python3", kernel(), python="offload")
    return job


@scenario("all-joined", "all-joined", (), None)
def everybody_joined() -> JobBuilder:
    return JobBuilder(4, times=PATIENT)
