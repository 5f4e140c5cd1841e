"""Evidence in a few lines: nodes, processes, threads and stacks as the collectors would have written them."""

from __future__ import annotations

import json
from typing import Any

from hangscope.model.evidence import (
    Artifact,
    Cell,
    Evidence,
    NodeRecord,
    ProcessRow,
    RawFrame,
    Role,
    ScanRecord,
    Shard,
)

STAT = (
    "{tid} ({comm}) {state} {ppid} 1 1 0 -1 0 0 0 0 0 {utime} 0 0 0 20 0 1 0 {start} 0 0"
    + " 0" * 27
    + " {code}"
)
STATUS = "State:\t{state} (x)\nTracerPid:\t0\nvoluntary_ctxt_switches:\t{voluntary}\n"

PyFrame = tuple[str, str, int]
"""(function, file, line)"""


class NodeBuilder:
    """One node's shard. Times: sample ``n`` is taken at monotonic second ``100 + 2 n``."""

    def __init__(self, name: str = "node-a", world_size: int | None = 4, machine: str = "x86_64") -> None:
        self.name = name
        self.world_size = world_size
        self.machine = machine
        self.rows: list[ProcessRow] = []
        self.artifacts: list[Artifact] = []
        self.frames: list[RawFrame] = []
        self.stacks: list[tuple[int, ...]] = []
        self.scan: dict[str, Any] = {"complete": True}

    def process(self, pid: int, role: Role = "rank", rank: int | None = None, **fields: Any) -> NodeBuilder:
        base: dict[str, Any] = {
            "ppid": 1,
            "start_ticks": 900 + pid,
            "comm": "python3",
            "title": "python3 x.py",
        }
        self.rows.append(ProcessRow(pid=pid, role=role, rank=rank, **{**base, **fields}))
        return self

    def add(
        self, collector: str, name: str, body: Any, pid: int | None = None, sample: int = 0
    ) -> NodeBuilder:
        """An artifact; ``body`` is written as JSON unless it is bytes."""
        subject = "node" if pid is None else f"pid-{pid}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.artifacts.append(
            Artifact(
                path=f"{self.name}!s{sample}/{collector}/{subject}/{name}",
                node=self.name,
                collector=collector,
                sample=sample,
                pid=pid,
                name=name,
                wall=1000.0 + 2 * sample,
                monotonic=100.0 + 2 * sample,
                data=data,
            )
        )
        return self

    def threads(self, pid: int, *rows: dict[str, Any], sample: int = 0) -> NodeBuilder:
        """``threads.json`` from rows as ``task`` makes them."""
        return self.add("threads", "threads.json", {"pid": pid, "threads": list(rows)}, pid, sample)

    def stack(
        self, pid: int, stacks: dict[int, list[PyFrame]], sample: int = 0, **fields: Any
    ) -> NodeBuilder:
        """``stacks.json``: frames by tid, innermost first; ``fields`` go to every thread."""
        threads = []
        for tid, frames in stacks.items():
            index = self.intern(frames)
            threads.append(
                {
                    "pid": pid,
                    "os_thread_id": tid,
                    "thread_id": tid + 5000,
                    "thread_name": "MainThread" if tid == pid else f"T{tid}",
                    "stack": index,
                    "active": False,
                    "owns_gil": False,
                    "torn": False,
                    **fields,
                }
            )
        return self.add("stacks", "stacks.json", {"pid": pid, "threads": threads}, pid, sample)

    def intern(self, frames: list[PyFrame], **fields: Any) -> int:
        numbers = []
        for name, file, line in frames:
            self.frames.append(RawFrame(name=name, filename=file, line=line, **fields))
            numbers.append(len(self.frames) - 1)
        self.stacks.append(tuple(numbers))
        return len(self.stacks) - 1

    def shard(self) -> Shard:
        return Shard(
            name=self.name,
            node=NodeRecord(
                host=self.name,
                boot_id="b",
                pid_namespace="pid:[1]",
                kernel="6.18",
                machine=self.machine,
                wall=1000.0,
                monotonic=100.0,
                clock_ticks=100,
                page_size=4096,
                agent_version="0",
                agent_pid=1,
                agent_uid=0,
                python="3.11",
                boot_time=900.0,
            ),
            scan=ScanRecord(job="job", processes=tuple(self.rows), world_size=self.world_size, **self.scan),
            artifacts=tuple(self.artifacts),
            cells=(Cell(node=self.name, collector="threads", sample=0, status="ok"),),
            frames=tuple(self.frames),
            stacks=tuple(self.stacks),
        )


def task(
    tid: int,
    state: str = "S",
    wchan: str = "futex_do_wait",
    syscall: str | None = "202 0xaa 0x189 0x0 0x0 0x0 0x0 0x1 0x2",
    stack: str | None = None,
    comm: str = "python3",
    run_ns: int = 0,
    voluntary: int = 5,
    code: int = 0,
) -> dict[str, Any]:
    """One thread's row of ``threads.json``, by default in a futex."""
    stat = STAT.format(tid=tid, comm=comm, state=state, ppid=1, utime=3, start=900, code=code)
    return {
        "tid": tid,
        "comm": comm + "\n",
        "stat": stat,
        "status": STATUS.format(state=state, voluntary=voluntary),
        "wchan": wchan,
        "syscall": syscall,
        "stack": stack,
        "schedstat": f"{run_ns} 0 0",
        "errors": {},
    }


def evidence(*nodes: NodeBuilder, **fields: Any) -> Evidence:
    return Evidence(job="job", shards=tuple(node.shard() for node in nodes), **fields)
