"""Names of files → who wrote them; never a rank out of a date, a job, a node or a rotation."""

from __future__ import annotations

import pytest

from hangscope.analyzers.readers.names import origin_of_name
from hangscope.model.loose import Origin

RANKS = [
    ("/tmp/nccl_trace_rank_3", 3),
    ("/tmp/nccl_trace_rank_node-a.cluster_12", 12),
    ("comm_lib_trace_rank_7", 7),
    ("dumps.zip!run/comm_lib_trace_rank_7.pkl", 7),
    ("nccl_trace_rank_3.gz", 3),
    ("rank_3.log", 3),
    ("rank-3.txt", 3),
    ("rank3.out", 3),
    ("logs/rank.5/stdout", 5),
    ("global_rank_9.err", 9),
    ("stdout.3", 3),
    ("stderr-4.log", 4),
    ("run_20260102/job-4242/rank_1/py.txt", 1),
]
NONE = [
    "train-20260102.log",
    "slurm-4242.out",
    "slurm-4242_3.out",
    "run.log.3",
    "worker-3.log",
    "node3.txt",
    "ranking_5.txt",
    "prank3.log",
    "rank_0_to_rank_7.log",
    "rank_0-7.log",
    "rank_7_experiments/run.log",
    "x/rank_0..7/a.log",
    "dump-202601.txt",
    "local_rank_3.log",
    "my-local_rank_3.log",
    "mp_rank_00_model_states.pt",
    "tp_rank_1/stderr.txt",
    "node_rank-2.log",
    "epoch_3.log",
    "core.4711",
    "",
    "/",
    "12345",
]


@pytest.mark.parametrize(("path", "rank"), RANKS)
def test_a_rank(path: str, rank: int) -> None:
    origin = origin_of_name(path)
    assert (origin.rank, origin.source) == (rank, "name")


@pytest.mark.parametrize("path", NONE)
def test_no_rank(path: str) -> None:
    origin = origin_of_name(path)
    assert (origin.rank, origin.source) == (None, None)


def test_other_things_in_a_name() -> None:
    assert origin_of_name("local_rank_3.log").local_rank == 3
    assert origin_of_name("nccl_trace_rank_node-a_12").node == "node-a"
    torchrun = origin_of_name("/tmp/logs/none_x1/attempt_2/5/stderr.log")
    assert (torchrun.attempt, torchrun.local_rank, torchrun.rank) == (2, 5, None)
    nccl = origin_of_name("nccl.node-b.4711.log")
    assert (nccl.node, nccl.pid, nccl.rank) == ("node-b", 4711, None)
    assert origin_of_name("pyspy-4242.txt").pid == origin_of_name("py-spy_pid_4242.json").pid == 4242
    assert origin_of_name("stack_pid4242.txt").pid == 4242 and origin_of_name("worker-3.log") == Origin()
    assert origin_of_name("logs/llama-worker-3.log").node == "llama-worker-3"
