"""What a capture costs, against the same py-spy dumps run bare: 8 ranks of 40 threads, 2 samples.

``python -m tests.benchmarks.capture_cost``: exit status 1 when it is over a bar. Gaps between samples and
native stacks count on neither side. Bare dumps and captures take turns, A B A B A; every capture is compared
with the mean of the dumps before and after it, and the median of these ratios counts: what else the machine
does meanwhile slows both, or spoils one round.
"""

from __future__ import annotations

import argparse
import compileall
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import hangscope
from hangscope.bundle.reader import read_bundle
from hangscope.collectors import py_spy, stacks
from hangscope.model.evidence import Shard

from .plain_job import plain_job

STACKS_BAR = 1.3
EVIDENCE_BAR = 3.0
COMMAND_SECONDS = 10.0
SAMPLES = 2
GAP = 2.0
"""Seconds between the samples: as a user gets them."""


class Cost(NamedTuple):
    """Seconds of one capture, gaps left out."""

    stacks: float
    """The stack stage: from the first py-spy to the last, over the samples."""
    evidence: float
    """From the agent's first act to its last artifact."""
    command: float
    """The whole command, with its start, analysis and report."""


class Line(NamedTuple):
    """One row of the result: ``value`` and ``bar`` are ratios, or seconds."""

    what: str
    seconds: float
    value: float
    bar: float
    spread: tuple[float, float]

    @property
    def good(self) -> bool:
        return self.value <= self.bar


def bare(program: str, pids: Sequence[int], at_once: int) -> float:
    """Seconds that ``xargs -P`` takes for one dump of every process, twice."""
    command = ["xargs", "-n1", f"-P{at_once}", program, "dump", "--nonblocking", "--json", "--pid"]
    start = time.monotonic()
    for _ in range(SAMPLES):
        subprocess.run(
            command, input="\n".join(map(str, pids)), text=True, check=True, stdout=subprocess.DEVNULL
        )
    return time.monotonic() - start


def captured(pid: int, directory: str) -> Cost:
    """Captures the job of ``pid``."""
    path = os.path.join(directory, "bundle.tar")
    command = [sys.executable, "-m", "hangscope", "capture", "-p", str(pid), "-o", path, "-q"]
    command += ["--samples", str(SAMPLES), "--interval", str(GAP), "--patience", "0"]
    command += ["--skip-collectors", "native"]
    gaps = GAP * (SAMPLES - 1)
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - start - gaps
    shard = read_bundle(path).shards[0]
    os.unlink(path)
    assert shard.node is not None
    dumped = [cell for cell in shard.cells if cell.collector == "stacks"]
    assert {cell.status for cell in dumped} <= {"ok", "partial"}, "stacks that failed cost nothing"
    evidence = max(artifact.monotonic for artifact in shard.artifacts) - shard.node.monotonic - gaps
    return Cost(stack_stage(shard), evidence, whole)


def stack_stage(shard: Shard) -> float:
    """Seconds from the first py-spy to the last, summed over the samples."""
    spans: dict[int, list[float]] = {}
    for artifact in shard.artifacts:
        if artifact.collector == "stacks":
            spans.setdefault(artifact.sample, []).extend(json.loads(artifact.data)["dumped"])
    return sum(max(moments) - min(moments) for moments in spans.values())


def compared(bares: Sequence[float], costs: Sequence[Cost]) -> list[Line]:
    """The result of n captures between n + 1 runs of the bare dumps."""
    around = [(before + after) / 2 for before, after in itertools.pairwise(bares)]
    lines = []
    for what, index, bar in (
        ("stack stage of a capture", 0, STACKS_BAR),
        ("all evidence of a capture", 1, EVIDENCE_BAR),
    ):
        ratios = [cost[index] / base for cost, base in zip(costs, around, strict=True)]
        seconds = statistics.median(cost[index] for cost in costs)
        lines.append(Line(what, seconds, statistics.median(ratios), bar, (min(ratios), max(ratios))))
    commands = [cost.command for cost in costs]
    median = statistics.median(commands)
    spread = (min(commands), max(commands))
    return [*lines, Line("the whole command (seconds)", median, median, COMMAND_SECONDS, spread)]


def measure(ranks: int, threads: int, rounds: int, program: str) -> tuple[list[float], list[Cost]]:
    """(seconds of the bare dumps, costs of the captures), in turn and after one uncounted turn of each.

    As many bare dumps run at once as in a capture: on a busy machine more at once would get a larger share.
    """
    # as the package is when pip has installed it: the agent itself leaves no compiled files anywhere
    compileall.compile_dir(os.path.dirname(hangscope.__file__), quiet=2)
    with plain_job(ranks, threads) as pids, tempfile.TemporaryDirectory() as directory:
        captured(pids[0], directory)
        bare(program, pids, stacks.AT_ONCE)
        bares, costs = [bare(program, pids, stacks.AT_ONCE)], []
        for _ in range(rounds):
            costs.append(captured(pids[0], directory))
            bares.append(bare(program, pids, stacks.AT_ONCE))
    return bares, costs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--threads", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    program = py_spy.find()
    if program is None:
        print("py-spy is not installed: pip install py-spy")
        return 1
    bares, costs = measure(options.ranks, options.threads, options.rounds, program)
    lines = compared(bares, costs)
    print(f"{options.ranks} ranks of {options.threads} threads, {SAMPLES} samples, {options.rounds} rounds")
    print(
        f"{'bare py-spy, xargs -P':<28} {statistics.median(bares):5.2f} s  "
        f"({min(bares):.2f} to {max(bares):.2f})"
    )
    for line in lines:
        low, high = line.spread
        print(
            f"{line.what:<28} {line.seconds:5.2f} s  {line.value:5.2f} ({low:.2f} to {high:.2f}), "
            f"bar {line.bar:g}: {'ok' if line.good else 'TOO MUCH'}"
        )
    return 0 if all(line.good for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
