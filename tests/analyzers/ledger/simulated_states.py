"""NCCL's own logs and RAS reports of a simulated job, and its stacks as py-spy prints them."""

from __future__ import annotations

import json
import random

from hangscope.analyzers.readers.interface import Document
from hangscope.analyzers.readers.names import origin_of_name

from .nccl_job import Rank
from .simulated_dumps import groups_of_rank
from .simulated_logs import node, pid
from .simulated_run import Call
from .simulated_truth import Truth

NCCL_NAMES = {
    "all_reduce": "AllReduce", "_all_gather_base": "AllGather", "broadcast": "Broadcast",
    "_reduce_scatter_base": "ReduceScatter", "reduce": "Reduce", "send": "Send", "recv": "Recv",
}  # fmt: skip


def nccl_logs(truth: Truth, chance: random.Random, *, loss: bool) -> list[Document]:
    """INFO with INIT and COLL: a file a process, or one of all by time."""
    run = truth.run
    if not run.gpu:
        return []
    rows: list[tuple[float, int, str]] = []
    for rank in range(run.ranks):
        writer = Rank(rank, node=node(rank), pid=pid(rank)).bootstrap()
        for number, name in enumerate(groups_of_rank(run, rank)):
            members, identity = run.groups[name], 0xABC0 + list(run.groups).index(name)
            pointer = 0x5500 + 16 * number
            writer.start(pointer, len(members), identity, rank=members.index(rank))
            writer.complete(pointer, len(members), identity, rank=members.index(rank))
        rows += [(0.0, rank, line) for line in writer.lines]
        for call in run.programs[rank]:
            if call.launched > truth.now:
                break
            before = len(writer.lines)
            pointer = 0x5500 + 16 * groups_of_rank(run, rank).index(call.group)
            name = NCCL_NAMES[call.kind]
            writer.coll(pointer, len(run.groups[call.group]), name=name, count=call.size, root=call.root)
            rows += [(call.launched, rank, line) for line in writer.lines[before:]]
    rows.sort(key=lambda row: row[:2])
    files: dict[str, list[str]] = {}
    together = chance.random() < 0.5
    missing = {rank for rank in range(run.ranks) if loss and chance.random() < 0.15}
    for _time, rank, line in rows:
        if rank in missing:
            continue
        path = "nccl.log" if together else f"nccl.{node(rank)}.{pid(rank)}.log"
        files.setdefault(path, []).append((f"[rank{rank}]:" if together else "") + line)
    found = []
    for path, lines in files.items():
        data = "".join(line + "\n" for line in lines).encode()
        written = truth.now + 5
        if loss and chance.random() < 0.15:  # copied while the job still ran
            data, written = data[: chance.randrange(len(data))], truth.now - 300
        found.append(Document(path=path, data=data, mtime=written, origin=origin_of_name(path)))
    return found


def ras(truth: Truth, chance: random.Random) -> list[Document]:
    """One report in JSON, as of now; two where the job has to show that it moves."""
    run = truth.run
    if not run.gpu:
        return []
    gone = truth.guilty if truth.what == "killed" else frozenset()
    times = [truth.now - 20, truth.now] if chance.random() < 0.4 else [truth.now]
    return [
        Document(path=f"ras_{number}.json", data=_report(truth, time, gone), mtime=time)
        for number, time in enumerate(times)
    ]


def _report(truth: Truth, now: float, gone: frozenset[int]) -> bytes:
    run = truth.run
    communicators = []
    for number, (name, members) in enumerate(run.groups.items()):
        ranks = [
            {
                "rank": place, "host": f"10.0.0.{rank // 8 + 1}", "pid": pid(rank), "cuda_dev": rank % 8,
                "nvml_dev": rank % 8,
                "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
                           "abort_flag": False},
                "collective_counts": _counts(run.programs[rank], name, now),
            }
            for place, rank in enumerate(members) if rank not in gone
        ]  # fmt: skip
        missing = [
            {"rank": place, "host": f"10.0.0.{rank // 8 + 1}", "pid": pid(rank), "cuda_dev": rank % 8,
             "nvml_dev": rank % 8, "considered_dead": False, "unresponsive": True}
            for place, rank in enumerate(members) if rank in gone
        ]  # fmt: skip
        communicators.append(
            {
                "hash": f"0xc0ffee{number:02x}", "secondary_hash": "0x1:0x2", "size": len(members),
                "ranks_count": len(ranks), "missing_ranks_count": len(missing), "ranks": ranks,
                "missing_ranks": missing,
            }
        )  # fmt: skip
    stamp = f"2026-01-05 10:{int(now // 60) % 60:02}:{int(now) % 60:02}"
    value = {
        "nccl_version": "2.29.7", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": stamp, "communicators_count": len(communicators), "communicators": communicators,
        "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
    }  # fmt: skip
    return json.dumps(value, indent=1).encode()


def _counts(program: list[Call], group: str, now: float) -> dict[str, int]:
    names = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
    own = [NCCL_NAMES[c.kind] for c in program if c.group == group and c.launched <= now]
    return {name: own.count(name) for name in names}


def stacks(truth: Truth, chance: random.Random, *, loss: bool) -> list[Document]:
    """One py-spy text a living rank, whose title or file tells its rank."""
    found = []
    gone = truth.guilty if truth.what == "killed" else frozenset()
    for rank in range(truth.run.ranks):
        if rank in gone or (loss and chance.random() < 0.3):
            continue
        path = f"stacks/rank_{rank}.txt"
        data = _stack(truth, rank).encode()
        found.append(Document(path=path, data=data, mtime=truth.now, origin=origin_of_name(path)))
    return found


def _stack(truth: Truth, rank: int) -> str:
    """Of a rank that waits on its GPU only the program's own line shows."""
    run = truth.run
    pending = run.pending(rank, truth.now)
    waits = [call for call in pending if call.sync]
    last = [call for call in run.programs[rank] if call.launched <= truth.now]
    frames = ["train (train.py:9)", "main (train.py:4)", "<module> (train.py:1)"]
    status = "idle"
    if waits and not run.gpu:
        call = waits[-1]
        api = {"send": "send", "recv": "recv"}.get(call.kind, call.kind.strip("_"))
        frames = [
            f"{api} (torch/distributed/distributed_c10d.py:3100)",
            f"step (train.py:{call.place})",
            *frames,
        ]
    elif waits:
        status, frames = "active", [f"step (train.py:{waits[-1].place})", *frames]
    elif truth.inside == rank and last:
        status = "active"
        api = last[-1].kind.strip("_")
        frames = [
            f"{api} (torch/distributed/distributed_c10d.py:3100)",
            f"step (train.py:{last[-1].place})",
            *frames,
        ]
    else:
        frames = ["next_batch (feed.py:12)", *frames]
    rows = [f"Process {pid(rank)}: /opt/env/bin/python train.py", "Python v3.11.7 (/usr/bin/python3.11)", ""]
    rows.append(f'Thread {pid(rank)} ({status}): "MainThread"')
    rows += [f"    {frame}" for frame in frames]
    return "\n".join(rows) + "\n"
