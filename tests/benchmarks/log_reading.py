"""How fast logs are read: ``python -m tests.benchmarks.log_reading [--lines 1000000]``.

The log is made of ordinary lines of eight ranks (steps, NCCL INFO, Python logging) with one line in fifty
from the forms' own fixtures. Prints MB/min of CPU time for two sizes; the bar is 200 MB/min at both.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from hangscope.analyzers.readers.documents import read_document
from hangscope.analyzers.readers.interface import Document
from tests.forms.cases import CASES

BAR = 200.0
"""MB/min."""


def rows_of_fixtures() -> list[bytes]:
    """Lines of all fixtures that are texts."""
    rows: list[bytes] = []
    for case in CASES:
        for document in case.documents():
            if b"\0" not in document.data[:1000]:
                rows += document.data[:20_000].splitlines()
    return [row for row in rows if row.strip()] or [b"no fixtures"]


def make_log(lines: int, seed: int = 7) -> bytes:
    """A log of so many lines, the same for the same seed."""
    chance = random.Random(seed)
    odd = rows_of_fixtures()
    rows = []
    for number in range(lines):
        rank = number % 8
        kind = number % 50
        if kind == 49:
            rows.append(chance.choice(odd))
        elif kind % 3 == 0:
            rows.append(
                b"[rank%d]:[I814 13:15:55.54%07d ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 9 Rank %d] "
                b"step %d loss 1.2345 lr 0.0001 throughput 1234.5 tokens/s" % (rank, number, rank, number)
            )
        elif kind % 3 == 1:
            rows.append(
                b"2026-01-02 21:28:%02d,123 - trainer - INFO - epoch 3 step %d, loader waited 0.0023 s"
                % (number % 60, number)
            )
        else:
            rows.append(
                b"node-a:%d:%d [%d] NCCL INFO Channel 0%d/0 : 7[7] -> 15[7] [send] via NET/IB/8/GDRDMA"
                % (4000 + rank, 5000 + rank, rank, rank)
            )
    return b"\n".join(rows) + b"\n"


def seconds(data: bytes) -> tuple[float, int]:
    """CPU seconds that reading takes, and the number of facts."""
    start = time.process_time()
    reading = read_document(Document(path="x.log", data=data, mtime=1_767_225_600.0))
    return time.process_time() - start, len(reading.facts)


def main() -> int:
    """Prints the two measurements. Exit status 1 below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    arguments = parser.parse_args()
    speeds = []
    for lines in (arguments.lines // 4, arguments.lines):
        data = make_log(lines)
        took, facts = seconds(data)
        speeds.append(len(data) / 1e6 / took * 60)
        size = f"{lines:>9,} lines  {len(data) / 1e6:6.1f} MB"
        print(f"{size}  {took:6.1f} s  {speeds[-1]:6.0f} MB/min  {facts:,} facts")
    return 0 if min(speeds) >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
