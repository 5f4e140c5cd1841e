"""``JobBuilder``: an N-rank stuck job in three lines, as facts and waits.

>>> job = JobBuilder(4)                 # every rank waits in one all_reduce
>>> job.main(2, fifo())                 # rank 2 reads a FIFO instead
>>> job.verdict().initiators
(2,)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from hangscope.analyzers.analysis import analyze_capture
from hangscope.model.evidence import Cell, Role
from hangscope.model.facts import (
    Capture,
    FileLock,
    Frame,
    HostMemory,
    KernelEvent,
    MemoryCgroup,
    Mount,
    OpenFile,
    Operation,
    Process,
    ProcessSample,
    Recorder,
    Ref,
    Socket,
    SourceLine,
    Syscall,
    ThreadSample,
)
from hangscope.model.verdict import Verdict
from hangscope.model.waits import ReleasedBy, Wait, WaitKind

NODE = "node-a"
WALL = 1_767_000_000.0
SHORT = (0.0, 2.0)
PATIENT = (0.0, 2.0, 6.0, 14.0, 29.0)
TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
THREADING = "/usr/lib/python3.11/threading.py"


def frame(
    function: str,
    file: str = "/job/train.py",
    line: int = 10,
    *,
    text: str = "",
    withs: Sequence[tuple[int, str]] = (),
    loops: Sequence[tuple[int, str]] = (),
) -> Frame:
    """A Python frame whose source was captured."""
    source = SourceLine(text=text or f"{function}()", withs=tuple(withs), loops=tuple(loops))
    return Frame(function=function, file=file, line=line, source=source)


MAIN_LOOP = frame("main", line=90, text="train(step)", loops=[(88, "for step in range(steps):")])


@dataclasses.dataclass
class Doing:
    """What one thread does: its wait, and how /proc shows it. Lists hold one value a sample; a shorter
    one repeats its last."""

    wait: Wait
    stack: tuple[Frame, ...]
    state: str = "S"
    wchan: str = "futex_do_wait"
    futex: list[int] = dataclasses.field(default_factory=list)
    stacks: list[tuple[Frame, ...]] = dataclasses.field(default_factory=list)
    states: list[str] = dataclasses.field(default_factory=list)
    switches: list[int] = dataclasses.field(default_factory=lambda: [7])
    ticks: list[int] = dataclasses.field(default_factory=lambda: [100])
    gil: bool = False


def doing(
    kind: WaitKind,
    released_by: ReleasedBy,
    stack: Sequence[Frame],
    *,
    why: str = "",
    caller: int = 1,
    state: str = "S",
    wchan: str = "futex_do_wait",
    futex: Sequence[int] = (),
    stacks: Sequence[Sequence[Frame]] = (),
    switches: Sequence[int] = (7,),
    ticks: Sequence[int] = (100,),
    gil: bool = False,
    **more: Any,
) -> Doing:
    frames = tuple(stack)
    wait = Wait(
        kind=kind,
        released_by=released_by,
        frame=frames[0] if frames else None,
        caller=frames[min(caller, len(frames) - 1)] if frames else None,
        chain=frames[1:],
        why=why or kind.value,
        **more,
    )
    return Doing(
        wait=wait,
        stack=frames,
        state=state,
        wchan=wchan,
        futex=list(futex),
        stacks=[tuple(s) for s in stacks],
        switches=list(switches),
        ticks=list(ticks),
        gil=gil,
    )


def collective(
    name: str = "all_reduce", line: int = 40, *, callers: Sequence[Frame] = (), **more: Any
) -> Doing:
    above = tuple(callers) or (frame("train", line=line, text=f"dist.{name}(grad)"), MAIN_LOOP)
    leaf = frame(name, TORCH, 3252, text="work.wait()")
    more.setdefault("futex", [0x5000])
    more.setdefault("kind", WaitKind.COLLECTIVE)
    kind = more.pop("kind")
    return doing(
        kind,
        ReleasedBy.MEMBERS,
        (leaf, *above),
        operation=name,
        framework="torch",
        why=f"in work.wait() of {name}",
        **more,
    )


def point_to_point(kind: WaitKind, peer: int | None, line: int = 60, **more: Any) -> Doing:
    leaf = frame(kind.value, TORCH, 2500, text="work.wait()")
    above = (frame("exchange", line=line, text=f"dist.{kind.value}(x, {peer})"), MAIN_LOOP)
    return doing(
        kind, ReleasedBy.PEER, (leaf, *above), operation=kind.value, peer=peer, futex=[0x6000], **more
    )


def fifo(**more: Any) -> Doing:
    stack = (frame("read_sample", line=20, text="data = pipe.read()"), MAIN_LOOP)
    return doing(
        WaitKind.FIFO,
        ReleasedBy.REMOTE,
        stack,
        caller=0,
        wchan="wait_for_partner",
        why="opens a FIFO",
        **more,
    )


def signalled(function: str = "Offloader.wait", line: int = 31, **more: Any) -> Doing:
    stack = (
        frame("Condition.wait", THREADING, 327, text="waiter.acquire()"),
        frame("Event.wait", THREADING, 629, text="signaled = self._cond.wait(timeout)"),
        frame(function, line=line, text="self.done.wait()"),
        MAIN_LOOP,
    )
    return doing(
        WaitKind.SIGNALLED,
        ReleasedBy.IN_PROCESS,
        stack,
        caller=2,
        futex=[0x7000],
        why="waits for an event",
        **more,
    )


def join_thread(line: int = 70, **more: Any) -> Doing:
    stack = (
        frame("Thread.join", THREADING, 1119),
        frame("run_both", line=line, text="worker.join()"),
        MAIN_LOOP,
    )
    return doing(WaitKind.JOIN_THREAD, ReleasedBy.THREAD, stack, why="joins a thread", **more)


def lock(
    text: str, held: Sequence[str] = (), line: int = 50, address: int | None = None, **more: Any
) -> Doing:
    withs = [(line - 1 - i, item) for i, item in enumerate(held)]
    stack = (frame("worker", line=line, text=f"with {text}:", withs=withs),)
    return doing(
        WaitKind.LOCK,
        ReleasedBy.IN_PROCESS,
        stack,
        caller=0,
        lock=text,
        held=tuple(held),
        address=address,
        why=f"waits for {text}",
        **more,
    )


def kernel(
    wchan: str = "kernel_clone", kind: WaitKind = WaitKind.KERNEL, file: str = "/job/train.py", **more: Any
) -> Doing:
    stack = (frame("Offloader.copy", file, 14, text="spawn()"), frame("Offloader.run", file, 18))
    more.setdefault("state", "D")
    return doing(
        kind, ReleasedBy.KERNEL, stack, caller=0, wchan=wchan, why=f"in the kernel at {wchan}", **more
    )


def host_memory(**more: Any) -> Doing:
    return kernel("mem_cgroup_oom_synchronize", WaitKind.HOST_MEMORY, **more)


def running(function: str = "spin", line: int = 55, *, loop: str = "while not flag:", **more: Any) -> Doing:
    loops = [(line - 1, loop)] if loop else []
    stack = (frame(function, line=line, text="n += 1", loops=loops), MAIN_LOOP)
    more.setdefault("ticks", [100, 300, 700, 1500, 3000])
    more.setdefault("switches", [7, 9, 12, 20, 40])
    return doing(
        WaitKind.RUNNING, ReleasedBy.ITSELF, stack, caller=0, state="R", wchan="0", why="runs", **more
    )


def sleeping(**more: Any) -> Doing:
    stack = (frame("poll", line=56, text="time.sleep(1)", loops=[(55, "while not exists(path):")]), MAIN_LOOP)
    return doing(WaitKind.SLEEP, ReleasedBy.ITSELF, stack, caller=0, wchan="hrtimer_nanosleep", **more)


def service(**more: Any) -> Doing:
    stack = (frame("serve_forever", "/usr/lib/python3.11/socketserver.py", 232),)
    return doing(WaitKind.SERVICE, ReleasedBy.REMOTE, stack, caller=0, wchan="do_poll", **more)


def opaque(**more: Any) -> Doing:
    stack = (frame("mystery", "/job/ext.py", 5),)
    return doing(WaitKind.UNKNOWN, ReleasedBy.NOBODY, stack, caller=0, resolved=False, **more)


def socket_wait(peer_pid: int | None, remote: str = "127.0.0.1:9000", **more: Any) -> Doing:
    stack = (frame("gather", line=44, text="sock.recv(4096)"), MAIN_LOOP)
    return doing(
        WaitKind.SOCKET,
        ReleasedBy.REMOTE,
        stack,
        caller=0,
        wchan="sk_wait_data",
        peer_pid=peer_pid,
        remote=remote,
        why="receives from a socket",
        **more,
    )


@dataclasses.dataclass
class Proc:
    """A process under construction; ``threads``: tid → (comm, Python name, what it does)."""

    pid: int
    ppid: int
    role: Role
    rank: int | None = None
    parent_rank: int | None = None
    node: str = NODE
    threads: dict[int, tuple[str, str | None, Doing]] = dataclasses.field(default_factory=dict)
    recorder: list[list[tuple[str, int, int, list[tuple[str, int, str]]]]] | None = None
    forked: bool = False
    frozen: bool = False
    exit_code: int | None = None
    cgroups: tuple[str, ...] = ()
    files: tuple[OpenFile, ...] = ()
    cwd: str | None = None
    output: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=lambda: {"MASTER_PORT": "29500"})
    moved_bytes: list[int] = dataclasses.field(default_factory=lambda: [1000])
    captured: bool = True
    last_sample: int | None = None


def at(values: Sequence[Any], index: int, default: Any = None) -> Any:
    return values[min(index, len(values) - 1)] if values else default


class JobBuilder:
    """A job of ``world`` ranks on one node. Every rank waits in one all_reduce of one gloo group until
    told otherwise; nothing moves between the samples, which span 29 s."""

    def __init__(self, world: int = 4, *, groups: int = 1, times: Sequence[float] = PATIENT) -> None:
        self.world = world
        self.times = tuple(times)
        self.groups = groups
        self.processes: dict[int, Proc] = {}
        self.cgroups: list[MemoryCgroup] = []
        self.memory: list[HostMemory] = []
        self.locks: list[FileLock] = []
        self.mounts: list[Mount] = []
        self.kernel_events: list[KernelEvent] = []
        self.cells: list[Cell] = []
        self.single_node: bool | None = True
        self.complete = True
        self.expected: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self.connections = True
        self._next = 90000
        for rank in range(world):
            self._rank(rank)

    def _rank(self, rank: int) -> None:
        pid = self.pid(rank)
        process = Proc(pid=pid, ppid=900, role="rank", rank=rank)
        self.processes[pid] = process
        process.threads[pid] = ("python3", "MainThread", collective())
        for number in range(self.groups):
            self.thread(rank, "gloo_tcp_loop", transport(), python=None, tid=pid + 10 + number)
            self.thread(rank, "pt_gloo_runloop", transport(), python=None, tid=pid + 30 + number)

    @staticmethod
    def pid(rank: int) -> int:
        return 1000 + 100 * rank

    def of(self, rank: int) -> Proc:
        return self.processes[self.pid(rank)]

    def main(self, rank: int, what: Doing) -> JobBuilder:
        self.of(rank).threads[self.pid(rank)] = ("python3", "MainThread", what)
        return self

    def every(self, what: Doing) -> JobBuilder:
        for rank in range(self.world):
            self.main(rank, what)
        return self

    def thread(
        self, rank: int, comm: str, what: Doing, *, python: str | None = "", tid: int | None = None
    ) -> int:
        """Adds (or replaces) a thread of the rank; returns its tid. ``python``: its Python name."""
        process = self.of(rank)
        number = tid if tid is not None else self.pid(rank) + 50 + len(process.threads)
        process.threads[number] = (comm, comm if python == "" else python, what)
        return number

    def child(
        self, rank: int, role: Role, what: Doing, *, pid: int | None = None, forked: bool = True
    ) -> int:
        """Adds a child process of the rank; returns its pid."""
        self._next += 10
        number = pid if pid is not None else self._next
        child = Proc(pid=number, ppid=self.pid(rank), role=role, parent_rank=rank, forked=forked)
        child.threads[number] = ("pt_data_worker" if role == "dataloader" else "python3", "MainThread", what)
        self.processes[number] = child
        return number

    def drop(self, rank: int) -> JobBuilder:
        """No process of the rank exists."""
        del self.processes[self.pid(rank)]
        return self

    def full_cgroup(self, rank: int, path: str = "/job/r", limit: int = 1048576000) -> JobBuilder:
        """A v1 memory cgroup of the rank at its limit, its OOM killer off."""
        self.of(rank).cgroups = (path, "/")
        for sample in range(len(self.times)):
            self.cgroups.append(
                MemoryCgroup(
                    path=path,
                    version=1,
                    sample=sample,
                    level=0,
                    pids=(self.pid(rank),),
                    limit=limit,
                    usage=limit,
                    failcnt=2110,
                    oom_kill_disable=True,
                    under_oom=True,
                    ref=ref("memory.json"),
                )
            )
        return self

    def records(
        self, rank: int, *, pending: Sequence[tuple[str, int, str]], last: dict[str, int], age: float = 2.0
    ) -> JobBuilder:
        """The rank's flight recorder, equal in every sample: (group, sequence, kind) unfinished, and the
        last enqueued sequence of each group. ``age``: seconds between an entry and the first sample."""
        self.of(rank).recorder = [
            [
                (group, number, int((WALL - age) * 1e9), [p for p in pending if p[0] == group])
                for group, number in last.items()
            ]
        ]
        return self

    def build(self) -> tuple[Capture, dict[tuple[str, int, int], Wait]]:
        """Returns the facts and the waits."""
        waits = {
            (process.node, process.pid, tid): what.wait
            for process in self.processes.values()
            if process.captured
            for tid, (_comm, _name, what) in process.threads.items()
        }
        nodes = sorted({process.node for process in self.processes.values()} or {NODE})
        capture = Capture(
            job="job",
            world_size=self.world,
            processes=tuple(self._process(process) for process in self.processes.values()),
            samples=len(self.times),
            sample_times=tuple((node, i, t) for node in nodes for i, t in enumerate(self.times)),
            cgroups=tuple(self.cgroups),
            memory=tuple(self.memory),
            locks=tuple(self.locks),
            mounts=tuple(self.mounts),
            kernel=tuple(self.kernel_events),
            cells=tuple(self.cells),
            nodes=tuple(nodes),
            complete_nodes=tuple(nodes) if self.complete else (),
            expected_ranks=self.expected,
            single_node=self.single_node,
        )
        return capture, waits

    def verdict(self) -> Verdict:
        capture, waits = self.build()
        return analyze_capture(capture, waits)

    def _process(self, process: Proc) -> Process:
        last = len(self.times) if process.last_sample is None else process.last_sample + 1
        samples = tuple(self._sample(process, i) for i in range(last)) if process.captured else ()
        return Process(
            node=process.node,
            pid=process.pid,
            ppid=process.ppid,
            start_ticks=100,
            start_wall=WALL - 600,
            comm="python3",
            title="python3 train.py",
            role=process.role,
            rank=process.rank,
            parent_rank=process.parent_rank,
            world_size=self.world if process.role == "rank" else None,
            environment=process.environment,
            cgroups=process.cgroups,
            samples=samples,
            recorders=self._recorders(process) if process.captured else (),
            forked=process.forked,
            cwd=process.cwd,
            ref=ref(f"pid-{process.pid}/process.json"),
        )

    def _sample(self, process: Proc, index: int) -> ProcessSample:
        threads = tuple(self._thread(tid, *rest, index) for tid, rest in process.threads.items())
        size, mtime = at(process.output, index, (None, None))
        main = process.threads.get(process.pid)
        return ProcessSample(
            sample=index,
            wall=WALL + self.times[index],
            monotonic=self.times[index],
            state=threads[0].state if threads else (main[2].state if main else "Z"),
            threads=threads,
            files=process.files,
            sockets=self._sockets(process, index),
            frozen=process.frozen,
            exit_code=process.exit_code,
            output_size=size,
            output_mtime=mtime,
            ref=ref(f"pid-{process.pid}/process.json"),
        )

    def _thread(self, tid: int, comm: str, name: str | None, what: Doing, index: int) -> ThreadSample:
        stack = at(what.stacks, index, what.stack) if what.stacks else what.stack
        address = at(what.futex, index)
        return ThreadSample(
            tid=tid,
            comm=comm,
            sample=index,
            state=at(what.states, index, what.state),
            wchan=what.wchan,
            syscall=Syscall(number=202, args=(address, 0x189)) if address is not None else None,
            utime=at(what.ticks, index),
            stime=0,
            voluntary=at(what.switches, index),
            involuntary=0,
            python_name=name,
            stack=stack if name is not None else None,
            owns_gil=what.gil,
            ref=ref(f"tid-{tid}/threads.json"),
            stack_ref=ref(f"tid-{tid}/stacks.json"),
        )

    def _sockets(self, process: Proc, index: int) -> tuple[Socket, ...]:
        """One connection a group between each pair of captured ranks (small jobs only)."""
        if process.rank is None or not self.connections or self.world > 64:
            return ()
        peers = [p for p in self.processes.values() if p.rank is not None and p is not process]
        return tuple(
            Socket(
                inode=process.pid * 1000 + peer.pid * 10 + group,
                pid=process.pid,
                fd=20 + number * self.groups + group,
                family="tcp",
                state="ESTABLISHED",
                local=f"127.0.0.1:{process.pid}",
                remote=f"127.0.0.1:{peer.pid}",
                peer_pid=peer.pid,
                peer_node=peer.node,
                bytes_acked=at(process.moved_bytes, index),
                bytes_received=1000,
            )
            for number, peer in enumerate(peers)
            for group in range(self.groups)
        )

    def _recorders(self, process: Proc) -> tuple[Recorder, ...]:
        if process.recorder is None:
            return ()
        made = []
        for index in range(len(self.times)):
            rows = at(process.recorder, index)
            pending = tuple(
                Operation(
                    group=group,
                    sequence=sequence,
                    kind=kind,
                    state="scheduled",
                    retired=False,
                    created_ns=created,
                    ref=ref(f"pid-{process.pid}/fr_trace.json"),
                )
                for _name, _last, created, entries in rows
                for group, sequence, kind in entries
            )
            unfinished = {(p.group, p.sequence) for p in pending}
            made.append(
                Recorder(
                    sample=index,
                    groups=tuple(row[0] for row in rows),
                    last_enqueued=tuple((row[0], row[1]) for row in rows),
                    last_completed=tuple(
                        (r[0], r[1] - 1 if (r[0], r[1]) in unfinished else r[1]) for r in rows
                    ),
                    pending=pending,
                    ref=ref(f"pid-{process.pid}/fr_trace.json"),
                )
            )
        return tuple(made)


def transport() -> Doing:
    """A transport thread in its normal poll."""
    wait = Wait(kind=WaitKind.TRANSPORT_IDLE, released_by=ReleasedBy.REMOTE, why="polls")
    return Doing(wait=wait, stack=(), wchan="ep_poll", switches=[7, 900, 3000, 9000, 20000])


def ref(name: str) -> Ref:
    return Ref(artifact=f"{NODE}!{name}")


def without(job: tuple[Capture, Any], **changes: Any) -> tuple[Capture, Any]:
    """The same facts with some fields of the capture replaced."""
    return msgspec.structs.replace(job[0], **changes), job[1]
