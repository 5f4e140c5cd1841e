"""Records Flight Recorder dumps of small real gloo jobs that hang: ``python -m
tests.benchmarks.record_flight_dumps OUT``.

Each rank dumps from a second thread while its first one is stuck. Paths of this machine are replaced.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import pickle
import socket
import sys
import threading
import time
from typing import Any

from .c10d_pickler import pickled, shared_frames

RANKS = 4
AFTER = 8.0
"""Seconds from the last step to the dump."""


def _skipped(rank: int, dist: Any, torch: Any) -> None:
    """Rank 2 never calls the all_gather of step 12."""
    halves = [dist.new_group([0, 1], group_desc="tp-0"), dist.new_group([2, 3], group_desc="tp-1")]
    for step in range(20):
        dist.all_reduce(torch.ones(64))
        dist.all_reduce(torch.ones(8), group=halves[rank // 2])
        if not (rank == 2 and step == 12):
            dist.all_gather([torch.ones(16) for _ in range(RANKS)], torch.ones(16))


def _odd(rank: int, dist: Any, torch: Any) -> None:
    """From step 9 on rank 3 waits in an operation of its own."""
    for step in range(20):
        if rank == 3 and step == 9:
            dist.all_gather([torch.ones(4) for _ in range(RANKS)], torch.ones(4))
        dist.all_reduce(torch.ones(32))


def _cycle(rank: int, dist: Any, torch: Any) -> None:
    """Ranks 0 and 1 enter two groups in opposite order; 2 and 3 wait for both."""
    one, two = dist.new_group([0, 1], group_desc="ring-a"), dist.new_group([0, 1], group_desc="ring-b")
    for step in range(8):
        dist.all_reduce(torch.ones(32))
        if rank < 2:
            order = (two, one) if rank == 1 and step == 5 else (one, two)
            for group in order:
                dist.all_reduce(torch.ones(8), group=group)


def _straggler(rank: int, dist: Any, torch: Any) -> None:
    """Rank 1 is a minute late for step 6."""
    for step in range(8):
        if rank == 1 and step == 6:
            time.sleep(60)
        dist.all_reduce(torch.ones(32))


JOBS = {"skipped": _skipped, "odd-operation": _odd, "two-group-cycle": _cycle, "straggler": _straggler}


def _rank(rank: int, name: str, port: int, folder: str) -> None:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(RANKS))

    def dump() -> None:
        time.sleep(AFTER)
        data = _dump_fr_trace_json()
        (pathlib.Path(folder) / f"{name}.{rank}.json").write_bytes(
            data if isinstance(data, bytes) else data.encode()
        )
        (pathlib.Path(folder) / f"{name}.{rank}.pickle").write_bytes(_dump_fr_trace())
        os._exit(0)

    dist.init_process_group("gloo")
    import torch._dynamo  # the dump with stacks would import it, while the others already wait

    dist.barrier()
    threading.Thread(target=dump, daemon=True).start()
    JOBS[name](rank, dist, torch)
    time.sleep(120)


def anonymous(data: bytes) -> bytes:
    """The dump with the paths of a container instead of this machine's."""
    dump = pickle.loads(data)  # our own
    assert pickled(shared_frames(pickle.loads(data))) == data, "c10d_pickler.py writes otherwise than torch"
    for entry in dump["entries"]:
        frames = [frame for frame in entry["frames"] if "multiprocessing" not in frame["filename"]]
        for frame in frames:
            before, found, after = frame["filename"].partition("/site-packages/")
            own = frame["filename"] == __file__
            frame["filename"] = (
                "/workspace/train.py"
                if own
                else f"/opt/venv/lib/python3.11/site-packages/{after}"
                if found
                else before
            )
        entry["frames"] = [dict(frame) for frame in frames if not frame["filename"].startswith("<")]
        entry["thread_name"] = "python3"
    return pickled(shared_frames(dump))


def main() -> None:
    """Runs each job and writes a folder a job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", choices=sorted(JOBS), action="append")
    arguments = parser.parse_args()
    import tempfile

    import torch.multiprocessing as torch_multiprocessing

    for name in arguments.only or JOBS:
        with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            probe.close()
            torch_multiprocessing.spawn(_rank, (name, port, folder), nprocs=RANKS)
            out = arguments.out / name
            out.mkdir(parents=True, exist_ok=True)
            for rank in range(RANKS):
                raw = pathlib.Path(folder) / f"{name}.{rank}.pickle"
                (out / f"nccl_trace_rank_{rank}").write_bytes(anonymous(raw.read_bytes()))
                (out / f"fr_trace_rank_{rank}.json").write_bytes(raw.with_suffix(".json").read_bytes())
            sys.stderr.write(f"{name}: {out}\n")


if __name__ == "__main__":
    main()
