"""Counts captures of a job of 4 ranks with 40 threads each, some killed at random moments.

``python -m tests.benchmarks.harmless [--count 200]``: exit status 1 when a thread of the job is left stopped
(T) or traced (t), or when a rank did not live through it.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

from hangscope.capture.launch import children_of

from .plain_job import plain_job, thread_states

RANKS = 4
THREADS = 40
KILLED_EVERY = 3
WAIT_FOR_A_KILL = 2.0
"""Seconds within which a capture that is to be killed is killed, at a random moment."""


def one_capture(pid: int, directory: str, number: int, dice: random.Random) -> str:
    """Runs one capture, or kills it (or its agent, or both) in the middle. Returns what was done."""
    command = [sys.executable, "-m", "hangscope", "capture", "-p", str(pid), "--interval", "0.1", "-q"]
    command += ["--patience", "0", "-o", f"{directory}/{number}.tar"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    what = "finished"
    if number % KILLED_EVERY == 0:
        time.sleep(dice.uniform(0.05, WAIT_FOR_A_KILL))
        children = children_of(process.pid)
        what = dice.choice(("capture killed", "agent killed", "everything killed", "interrupted"))
        if process.poll() is not None:
            what = "finished first"
        elif what == "interrupted":
            process.send_signal(signal.SIGINT)
        else:
            chosen = {"capture killed": [process.pid], "agent killed": children[-1:]}.get(what)
            for victim in [process.pid, *children] if chosen is None else chosen:
                _kill(victim)
    process.wait(timeout=120)
    return what


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, signal.SIGKILL)


def stopped(pids: list[int]) -> dict[int, str]:
    """Threads in state T or t after the kernel had a moment to end what was killed."""
    for _ in range(50):
        found = {tid: state for tid, state in thread_states(pids).items() if state in "Tt"}
        if not found:
            return {}
        time.sleep(0.1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    done: Counter[str] = Counter()
    with plain_job(RANKS, THREADS, "harmless") as pids, tempfile.TemporaryDirectory() as directory:
        for number in range(options.count):
            done[one_capture(dice.choice(pids), directory, number, dice)] += 1
            left = stopped(pids)
            if left:
                print(f"after capture {number}: threads left stopped: {left}")
                return 1
        alive = len(thread_states(pids))
    print(
        f"{options.count} captures of {RANKS} ranks × {THREADS} threads: "
        + ", ".join(f"{n} {w}" for w, n in done.items())
    )
    print(f"threads left stopped: 0; threads alive: {alive} of {RANKS * THREADS}")
    return 0 if alive >= RANKS * THREADS else 1


if __name__ == "__main__":
    sys.exit(main())
