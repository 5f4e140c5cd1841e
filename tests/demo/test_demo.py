"""The demo hangs for real, is explained, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator

import pytest

from hangscope import demo
from hangscope.collectors import procfs
from hangscope.demo import rank
from hangscope.demo.job import BLOCKED_RANK, DemoJob
from hangscope.errors import CaptureFailed, UsageError


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """Temporary directories are made here; afterwards none may be left, nor a process that works in one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert [path for path in tmp_path.glob("hangscope-demo-*") if path.is_dir()] == []
    deadline = time.monotonic() + 3  # the blocked thread's own child was let go, and still has to end
    while processes_below(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_below(tmp_path) == []


def processes_below(folder: pathlib.Path) -> list[int]:
    found = []
    for pid in procfs.list_pids():
        target, _ = procfs.read_link(f"/proc/{pid}/cwd")
        if target is not None and target.startswith(f"{folder}/hangscope-demo-"):
            found.append(pid)
    return found


def test_the_demo_names_the_rank_that_it_blocked(place: pathlib.Path) -> None:
    told: list[str] = []
    result = demo.run(progress=told.append)
    verdict = result.verdict
    assert (verdict.kind, verdict.initiators) == ("rank-blocked", (BLOCKED_RANK,))
    assert verdict.cause == "thread-blocked-in-kernel"
    assert verdict.world_size == 4 and verdict.waiting == (0, 1, 3)
    assert any(root.thread == "param-offload" for root in verdict.roots)
    assert result.saved is None
    assert result.seconds < 60
    assert any("starting 4 ranks" in line for line in told)


@pytest.mark.realjob
def test_the_demo_with_torch(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(place)
    result = demo.run(torch=True, keep=True)
    assert (result.verdict.kind, result.verdict.initiators) == ("rank-blocked", (BLOCKED_RANK,))
    assert result.saved is not None and os.path.dirname(result.saved) == str(place)


def test_without_torch_the_demo_says_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs no torch"):
        demo.run(torch=True)


def test_the_job_hangs_as_it_says(place: pathlib.Path) -> None:
    with DemoJob(torch=False) as job:
        job.wait_until_stuck()
        states = [
            sorted(stat.state for tid in procfs.tasks(pid) if (stat := procfs.stat_fields(pid, tid=tid)))
            for pid in job.pids
        ]
        assert states == [["S", "S"], ["S", "S"], ["D", "S"], ["S", "S"]]
        assert len(processes_below(place)) == 5  # with the child that never comes to exec
    job.end()


def test_a_rank_that_ends_is_told_with_its_last_words(place: pathlib.Path) -> None:
    with DemoJob(torch=False) as job:
        os.kill(job.pids[1], signal.SIGKILL)
        with pytest.raises(CaptureFailed, match=r"rank \d of the demo ended: "):
            job.wait_until_stuck()


def test_a_job_that_does_not_hang_in_time_is_told(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangscope.demo.job.PATIENCE", 0.3)
    monkeypatch.setattr(DemoJob, "_blocked", lambda self: False)
    with pytest.raises(CaptureFailed, match="did not get stuck"), DemoJob(torch=False) as job:
        job.wait_until_stuck()


def test_a_start_that_fails_leaves_nothing(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError), DemoJob(torch=False):
        pytest.fail("there is no such Python")


PROGRAM = """
import time
from hangscope.demo.job import DemoJob
with DemoJob(torch=False) as job:
    job.wait_until_stuck()
    print("stuck", *job.pids, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_the_demo(place: pathlib.Path, number: signal.Signals) -> None:
    """Ctrl-C cleans up; after a SIGKILL the kernel ends the ranks, and only the blocked child stays."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()[1:]]
        assert len(pids) == 4
        process.send_signal(number)
    deadline = time.monotonic() + 10
    while any(procfs.stat_fields(pid) is not None for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in pids if procfs.stat_fields(pid) is not None] == []
    if number == signal.SIGKILL:
        _tidy(place)


def _tidy(place: pathlib.Path) -> None:
    for folder in place.glob("hangscope-demo-*"):
        with contextlib.suppress(OSError):
            os.close(os.open(folder / "store.fifo", os.O_WRONLY | os.O_NONBLOCK))
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    deadline = time.monotonic() + 5
    while processes_below(place) and time.monotonic() < deadline:
        time.sleep(0.02)


class Enough(Exception):
    """Ends the rank's loop in a test."""


def test_one_rank_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank's code in this process: a ring of two whose next rank is itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("RING_PORTS", f"{port},{port}")
        monkeypatch.setenv("RING_LISTENER", str(os.dup(listener.fileno())))
        monkeypatch.setattr(rank, "SIZE", 2)
        ring = rank.Ring()
    try:
        assert ring.all_gather(b"ab") == [b"ab", b"ab"]
        ring.next.shutdown(socket.SHUT_WR)
        with pytest.raises(SystemExit, match="previous rank is gone"):
            ring.receive(1)
    finally:
        ring.next.close()
        ring.previous.close()


def test_the_all_gather_of_torch_gets_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rank hands to torch; the real one runs in ``test_the_demo_with_torch``."""
    gathered: list[tuple[int, object]] = []
    distributed = types.ModuleType("torch.distributed")
    distributed.__dict__["init_process_group"] = lambda backend: gathered.append((0, backend))
    distributed.__dict__["all_gather"] = lambda outputs, shard: gathered.append((len(outputs), shard))
    torch = types.ModuleType("torch")
    torch.__dict__.update(distributed=distributed, uint8="uint8", empty=lambda count, dtype: count)
    torch.__dict__["frombuffer"] = lambda data, dtype: bytes(data)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    monkeypatch.setattr(rank, "SIZE", 4)
    rank.gloo_all_gather()(b"ab")
    assert gathered == [(0, "gloo"), (4, b"ab")]


def test_the_loop_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    class Two:
        def all_gather(self, shard: bytes) -> None:
            seen.append(shard)
            if len(seen) == 2:
                raise Enough

    class NoPrctl:
        def __getattr__(self, name: str) -> object:
            return (lambda *arguments: 0) if name == "prctl" else getattr(libc, name)

    libc = rank.LIBC
    monkeypatch.setattr(rank, "LIBC", NoPrctl())
    monkeypatch.setattr(rank, "Ring", Two)
    monkeypatch.setattr(sys, "argv", ["rank.py", os.devnull])
    with pytest.raises(Enough):
        rank.main()
    assert [len(shard) for shard in seen] == [rank.SHARD, rank.SHARD]
