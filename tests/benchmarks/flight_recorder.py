"""Flight Recorder dumps of large synthetic jobs: time and memory against plain ``pickle.load``, and the
answer.

``python -m tests.benchmarks.flight_recorder [--ranks 64 256 1024 4096] [--seeds 1]``: exit status 1 when a
bar is missed. 4,096 dumps of 2,000 entries take 1.6 GB in the temporary folder; they are deleted afterwards.
``--compare``: the same dumps through other analyzers, as a table (``flight_compare.py``)."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import msgspec

from .synthetic_dumps import job

BAR = 1.0
"""hangscope's wall time on two cores to that of one core that only loads all pickles."""
BAR_FROM = 1024
"""Ranks from which the bar holds: below, both are over in a second or two, and starting programs is most of
it."""
MEMORY_BAR = 250
"""MB, all processes of hangscope together."""
BYTES_A_RANK = 420_000
_PLAIN = """\
import os, pickle, sys, time
names = [os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1])]
start, cpu = time.monotonic(), time.process_time()
for name in names:
    with open(name, "rb") as file:
        pickle.load(file)
print(time.monotonic() - start, time.process_time() - cpu)
"""


class Plain(msgspec.Struct, frozen=True):
    """Seconds that loading all pickles takes."""

    wall: float
    cpu: float


class Measured(msgspec.Struct, frozen=True):
    """One analysis. Seconds, and MB over all its processes."""

    wall: float
    cpu: float
    memory: float
    verdicts: tuple[dict[str, object], ...]


def plain(folder: str) -> Plain:
    """Loads every dump with ``pickle.load``, one after the other, each dropped before the next."""
    result = subprocess.run(
        [sys.executable, "-c", _PLAIN, folder], check=True, stdout=subprocess.PIPE, text=True
    )
    wall, cpu = map(float, result.stdout.split())
    return Plain(wall, cpu)


def hangscope(folder: str) -> Measured:
    """``hangscope analyze`` on the folder, from its start to its end."""
    before = os.times()
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "hangscope", "analyze", "-q", "--json", folder],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    memory = 0.0
    with tempfile.TemporaryFile() as output:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        while process.poll() is None:
            memory = max(memory, _memory(process.pid))
            output.write(process.stdout.read() or b"")
            time.sleep(0.02)
        output.write(process.stdout.read() or b"")
        wall = time.monotonic() - start
        output.seek(0)
        text = output.read().decode()
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    if process.returncode:
        raise SystemExit(f"hangscope analyze failed with {process.returncode}")
    return Measured(wall, cpu, memory, tuple(_documents(text)))


def _documents(text: str) -> list[dict[str, object]]:
    """All JSON documents in the text."""
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(text.rstrip()):
        value, place = decoder.raw_decode(text, place)
        found += value if isinstance(value, list) else [value]
        place += len(text[place:]) - len(text[place:].lstrip())
    return found


def _memory(pid: int) -> float:
    """MB resident in a process and its children."""
    total = 0
    for one in (pid, *_children(pid)):
        try:
            total += int(pathlib.Path(f"/proc/{one}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def measure(ranks: int, seed: int) -> list[str]:
    """Generates a job's dumps, runs both, prints a line; returns the bars that were missed."""
    with tempfile.TemporaryDirectory(prefix="hangscope-benchmark-") as folder:
        if shutil.disk_usage(folder).free < 1.2 * ranks * BYTES_A_RANK:
            return [f"{ranks} ranks: no room for {ranks * BYTES_A_RANK / 1e9:.1f} GB in {folder}"]
        made = job(ranks, seed)
        size = 0
        for rank, data in made.dumps():
            size += len(data)
            pathlib.Path(folder, f"nccl_trace_rank_{rank}").write_bytes(data)
        load, own = plain(folder), hangscope(folder)
    named = [verdict["initiators"] for verdict in own.verdicts]
    ratio = own.wall / load.wall
    missed = []
    if named != [[made.lagging]]:
        missed.append(f"{ranks} ranks, seed {seed}: rank {made.lagging} lags, named {named}")
    if ranks >= BAR_FROM and ratio > BAR:
        missed.append(f"{ranks} ranks: {ratio:.2f} x pickle.load, the bar is {BAR}")
    if own.memory > MEMORY_BAR:
        missed.append(f"{ranks} ranks: {own.memory:.0f} MB, the bar is {MEMORY_BAR}")
    print(
        f"{ranks:6,} {seed:5} {size / 1e6:9,.0f} {load.wall:10.2f} {own.wall:10.2f} {ratio:7.2f} "
        f"{own.cpu / load.cpu:9.2f} {own.memory:9.0f}   {named} (lags: {made.lagging})",
        flush=True,
    )
    return missed


def main() -> int:
    """Prints a line a job; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024, 4096], metavar="N")
    parser.add_argument("--seeds", type=int, default=1, help="jobs of each size")
    parser.add_argument("--compare", action="store_true", help="print the table of analyzers instead")
    arguments = parser.parse_args()
    if arguments.compare:
        from .flight_compare import compare

        return compare()
    print(" ranks  seed  MB files  pickle, s  analyze, s   ratio  cpu ratio   MB used   named")
    missed = [
        line
        for ranks in arguments.ranks
        for seed in range(arguments.seeds)
        for line in measure(ranks, seed + 1)
    ]
    for line in missed:
        print("missed:", line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
