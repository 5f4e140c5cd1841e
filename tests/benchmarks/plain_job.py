"""A job of plain Python ranks that hangs, for benchmarks and tests."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

RANK = pathlib.Path(__file__).with_name("rank_program.py")


@contextlib.contextmanager
def plain_job(ranks: int, threads: int, name: str = "plain") -> Iterator[list[int]]:
    """Starts the ranks, waits until each hangs, and yields their pids by rank; ends them all at last."""
    environment = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29871",
        "TORCHELASTIC_RUN_ID": f"{name}-{os.getpid()}",
    }
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            started.append(
                subprocess.Popen(
                    [sys.executable, str(RANK), str(threads)],
                    env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            )
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def thread_states(pids: list[int]) -> dict[int, str]:
    """The state letter of every thread of the processes, by thread id."""
    states = {}
    for pid in pids:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/stat") as stat:
                states[int(tid)] = stat.read().rpartition(")")[2].split()[0]
    return states
