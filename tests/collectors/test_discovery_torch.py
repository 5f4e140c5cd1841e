"""A real torchrun job with gloo and data-loader workers: who is what."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.collectors.ranks import discovery

from .rank_processes import Processes, by_pid, eventually, jobs_of, processes, roles_of, the_job

TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        time.sleep(120 if index else 0)
        return index

def main():
    dist.init_process_group("gloo")
    loader = DataLoader(Slow(), batch_size=1, num_workers=2, multiprocessing_context=sys.argv[1])
    batches = iter(loader)
    next(batches)
    print("child", os.getpid(), flush=True)
    print("stuck", flush=True)
    time.sleep(120)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        yield started


@pytest.mark.realjob
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_torchrun_with_data_loaders(running: Processes, context: str) -> None:
    pytest.importorskip("torch")
    script = running.script("torch_train.py", TRAIN)
    options = ["--nproc-per-node=2", "--master-addr=127.0.0.1", "--master-port=0", "--standalone"]
    agent = running.start(
        "-m", "torch.distributed.run", *options, script, context, wait=False, OMP_NUM_THREADS="1"
    )
    try:
        for _ in range(2):
            running.line(agent, "stuck")
        eventually(lambda: len([row for row in the_job(script).rows if row["role"] == "dataloader"]) == 4)
        job = the_job(script)
        found = roles_of(job)
        ranks = {pid: role[1] for pid, role in found.items() if role[0] == "rank"}
        assert set(ranks) == set(running.others) and sorted(ranks.values()) == [0, 1]
        assert all("thread " in by_pid(job)[pid]["why"] for pid in ranks)
        loaders = sorted(role[2] for role in found.values() if role[0] == "dataloader")
        assert loaders == [0, 0, 1, 1]
        assert found[agent.pid] == ("launcher", None, None) and job.launcher == "torchrun"
        assert (job.single_node, job.expected_local, job.complete) == (True, (0, 1), True)
        assert {role[0] for role in found.values()} <= {"rank", "dataloader", "launcher", "resource-tracker"}
        cheap = discovery.cheap_tree(running.others[0])
        assert set(found) <= set(cheap)
        running.others += list(found)
    finally:
        for job in jobs_of(script):
            running.others += [pid for pid in by_pid(job) if pid != agent.pid]
