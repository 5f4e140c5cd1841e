"""One child reads for several cells: the cells are what they would be without, and one that blocks loses
only its own."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangscope.bundle.reader import read_bundle_bytes
from hangscope.bundle.writer import ShardWriter
from hangscope.collectors import (
    ahead,
    environment,
    guarded,
    live_environment,
    nccl_log,
    output,
    process,
    procfs,
    recorder_files,
    registry,
    target_files,
)
from hangscope.collectors.agent import sampling
from hangscope.collectors.interface import Context, Target

RANKS = 4
COLLECTORS = (
    process.COLLECTOR,
    environment.COLLECTOR,
    recorder_files.COLLECTOR,
    output.COLLECTOR,
    nccl_log.COLLECTOR,
)
SLEEP = "import time; print('ready', flush=True); time.sleep(120)"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[Target]]:
    """Ranks that print to files, the first of which has an NCCL log."""
    started, targets = [], []
    for rank in range(RANKS):
        log = tmp_path / f"rank{rank}.log"
        env = {"PATH": os.environ["PATH"], "RANK": str(rank), "HOME": str(tmp_path)}
        if rank == 0:
            (tmp_path / "nccl.log").write_text("NCCL INFO\n")
            env["NCCL_DEBUG_FILE"] = str(tmp_path / "nccl.log")
        with log.open("wb") as file:
            one = subprocess.Popen([sys.executable, "-c", SLEEP], env=env, stdout=file, stderr=file)
        started.append(one)
        until = time.monotonic() + 20
        while not log.stat().st_size and time.monotonic() < until:
            time.sleep(0.01)
        targets.append(Target(one.pid, procfs.start_ticks(one.pid) or 0, "rank", rank))
    yield targets
    for one in started:
        one.kill()
        one.wait(10)


def sampled(
    targets: list[Target], together: bool, samples: int = 1, budget: float | None = None
) -> dict[tuple[str, int, int | None], Any]:
    """{(collector, sample, pid): (status, reason, artifact or None)} of the collectors that read ahead."""
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    sampler = sampling.Sampler(
        writer, lambda *_, **__: None, read_ahead=registry.READ_AHEAD if together else None
    )
    shared: dict[str, Any] = {}
    for sample in range(samples):
        ctx = Context(targets, sample, salt=b"salt")
        ctx.shared = shared
        sampler.take(ctx, COLLECTORS)
        assert ahead.ANSWERS not in shared
    writer.seal(samples, [], [])
    shard = read_bundle_bytes(stream.getvalue()).shards[0]
    data = {(a.collector, a.sample, a.pid): json.loads(a.data) for a in shard.artifacts}
    keys = {(c.collector, c.sample, c.pid): c for c in shard.cells}
    return {key: (cell.status, cell.reason, data.get(key)) for key, cell in keys.items()}


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """One entry for each guarded child that was started."""
    started: list[float] = []
    plain = guarded.call

    def counted(*args: Any, **limits: Any) -> guarded.Outcome:
        started.append(limits["timeout"])
        return plain(*args, **limits)

    monkeypatch.setattr(guarded, "call", counted)
    return started


def without_counters(cells: dict[Any, Any]) -> dict[Any, Any]:
    """What stays the same from look to look."""
    for status, _, data in cells.values():
        assert status in ("ok", "absent", "partial")
        for name in ("stat", "status", "io", "statm"):
            if data is not None:
                data.pop(name, None)
    return cells


def test_every_collector_that_reads_ahead_is_tested() -> None:
    assert {collector.name for collector in COLLECTORS} == set(registry.READ_AHEAD)


def test_the_cells_are_the_same_and_most_children_are_saved(
    ranks: list[Target], children: list[float]
) -> None:
    alone = without_counters(sampled(ranks, together=False, samples=2))
    single = len(children)
    children.clear()
    assert without_counters(sampled(ranks, together=True, samples=2)) == alone
    first = ranks[0].pid
    assert alone["nccl_log", 0, first][2]["files"][0]["tail"] == "NCCL INFO\n"
    assert alone["nccl_log", 1, ranks[1].pid][:2] == ("absent", "NCCL_DEBUG_FILE is not set")
    assert alone["output", 0, first][2]["files"][0]["tail"] == "ready\n"
    assert alone["process", 1, first][2]["cmdline"][1:] == ["-c", SLEEP]
    assert alone["environment", 0, first][2]["variables"]["RANK"] == "0"
    # process and output twice, environment and recorder_files once; nccl_log again only of who has one
    assert (single, len(children)) == (7 * RANKS + 1, 8)


def test_one_that_blocks_loses_only_its_own(ranks: list[Target], monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = ranks[1].pid
    plain_read, plain_lock, plain_find = (
        live_environment._read,
        process._behind_lock,
        target_files.entries,
    )

    def block(pid: int) -> None:
        if pid == stuck:
            time.sleep(60)

    monkeypatch.setattr(live_environment, "_read", lambda pid, proc: block(pid) or plain_read(pid, proc))
    monkeypatch.setattr(
        process, "_behind_lock", lambda place, gpu: block(int(place[6:])) or plain_lock(place, gpu)
    )
    monkeypatch.setattr(target_files, "entries", lambda pid, *more: block(pid) or plain_find(pid, *more))
    monkeypatch.setattr(process, "WAIT", 0.3)
    for collector in (environment.EnvironmentCollector, output.Output):
        monkeypatch.setattr(collector, "budget", 0.3)
    before = time.monotonic()
    cells = sampled(ranks, together=True)
    assert time.monotonic() - before < 8
    for name in ("process", "environment", "output"):
        fine = [cells[name, 0, target.pid][0] for target in ranks if target.pid != stuck]
        assert fine == ["ok"] * (RANKS - 1), name
    assert cells["environment", 0, stuck][0] == cells["output", 0, stuck][0] == "timeout"
    assert cells["process", 0, stuck][:2] == ("partial", "timeout: cmdline")


def test_files_of_another_user_are_left_to_a_child_of_their_own(
    ranks: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_files, "is_own", lambda pid, proc: pid != ranks[2].pid)
    ctx = Context(ranks)
    output.read_ahead(ctx, ranks)
    taken = [ahead.take(ctx, "output", target.pid) is not None for target in ranks]
    assert taken == [True, True, False, True]
    assert ahead.take(ctx, "output", ranks[0].pid) is None  # once


def test_whose_files_this_user_may_share_a_child_for() -> None:
    assert target_files.is_own(os.getpid()) and not target_files.is_own(2**22 + 1)


def test_reading_ahead_that_fails_costs_nobody_its_cell(ranks: list[Target]) -> None:
    def broken(ctx: Context, targets: object) -> None:
        raise OSError("no more processes")

    stream = io.BytesIO()
    sampler = sampling.Sampler(ShardWriter(stream), lambda *_, **__: None, read_ahead={"output": broken})
    sampler.run(Context(ranks), output.COLLECTOR)
    sampler.writer.seal(1, [], [])
    shard = read_bundle_bytes(stream.getvalue()).shards[0]
    assert [cell.status for cell in shard.cells] == ["ok"] * RANKS


def test_a_look_through_many_files_leaves_none_open(tmp_path: Path) -> None:
    def numbers() -> list[str]:
        return sorted(os.listdir("/proc/self/fd"))

    before = numbers()
    settings = {"NCCL_DEBUG_FILE": str(tmp_path / "a" / "b" / "nccl.%h.%p")}
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert len(list(nccl_log._files(os.getpid(), "/proc", settings, {}))) == 1
    assert len(list(target_files.entries(os.getpid(), "/proc", [0, 1, 2], {}))) == 3
    assert numbers() == before
