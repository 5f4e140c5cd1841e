import os
import pickle
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hangscope.collectors import recorder, recorder_pipe, stacks
from hangscope.collectors.interface import ABSENT, DENIED, OK, PARTIAL, TIMEOUT, Result, Target

from . import victims
from .armed_process import ARMED


@contextmanager
def armed(folder: Path, how: str = "answers", rank: int = 0, **variables: str) -> Iterator[int]:
    env = {
        **os.environ,
        "RANK": str(rank),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "trigger_"),
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "trace_"),
        **variables,
    }
    with victims.victim(ARMED, how, env=env) as pid:
        yield pid


def ask(*pids: int) -> list[Result]:
    targets = [victims.target(pid)._replace(rank=rank) for rank, pid in enumerate(pids)]
    results = recorder_pipe.ask_all(victims.context(*pids), targets)
    return [results[pid] for pid in pids]


def test_armed_emulation_is_asked_once_and_its_whole_dump_taken(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(b"what an earlier attempt left.")
    with armed(tmp_path) as pid:
        ctx = victims.context(pid)
        result = recorder_pipe.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == OK, result.reason
        ((name, data),) = result.artifacts
        assert name == "dump.pickle"
        assert pickle.loads(data)["entries"] == [1]
        again = recorder_pipe.COLLECTOR.collect(ctx, ctx.targets[0])
        assert (again.status, again.reason) == (ABSENT, "asked already in this capture")


def test_armed_emulations_write_side_by_side(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pids = [stack.enter_context(armed(tmp_path, rank=rank)) for rank in range(4)]
        start = time.monotonic()
        results = ask(*pids)
        assert [result.status for result in results] == [OK] * 4, results
        assert time.monotonic() - start < 4.0


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("mute", TIMEOUT, "wrote no dump"),
        ("cut", PARTIAL, "not whole"),
        ("nothing", ABSENT, "there is no such FIFO"),
        ("file", DENIED, "it is no FIFO"),
        ("unread", DENIED, "the rank does not hold it open"),
    ],
)
def test_armed_emulations_that_do_not_answer(
    how: str, status: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_pipe, "WAIT", 0.6)
    with armed(tmp_path, how) as pid:
        (result,) = ask(pid)
    assert result.status == status, result
    assert reason in str(result.reason)
    assert bool(result.artifacts) == (how == "cut")


def test_a_fifo_that_another_process_reads_gets_nothing(tmp_path: Path) -> None:
    with armed(tmp_path, "unread") as pid:
        fifo = tmp_path / "trigger_0.pipe"
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        try:
            (result,) = ask(pid)
            assert (result.status, os.read(reader, 10)) == (DENIED, b"")
        finally:
            os.close(reader)


def test_a_link_in_place_of_the_fifo_is_not_followed(tmp_path: Path) -> None:
    with armed(tmp_path) as pid:
        real = tmp_path / "elsewhere"
        (tmp_path / "trigger_0.pipe").rename(real)
        (tmp_path / "trigger_0.pipe").symlink_to(real)
        (result,) = ask(pid)
        assert (result.status, "no FIFO" in str(result.reason)) == (DENIED, True)
        assert not (tmp_path / "trace_0").exists()


@victims.needs_root
def test_a_fifo_of_another_user_is_not_written_to(tmp_path: Path) -> None:
    with armed(tmp_path) as pid:
        os.chown(tmp_path / "trigger_0.pipe", victims.NOBODY, victims.NOBODY)
        (result,) = ask(pid)
        assert (result.status, "belongs to uid" in str(result.reason)) == (DENIED, True)


def test_a_dump_path_that_leads_to_a_device_or_fifo_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_pipe, "WAIT", 0.5)
    (tmp_path / "trace_0").symlink_to("/dev/zero")
    with armed(tmp_path, "mute") as pid:
        assert ask(pid)[0].status == TIMEOUT
    (tmp_path / "trace_0").unlink()
    (tmp_path / "trigger_0.pipe").unlink()
    os.mkfifo(tmp_path / "trace_0")
    with armed(tmp_path, "mute") as pid:
        assert ask(pid)[0].status == TIMEOUT


def test_a_stopped_process_is_never_asked(tmp_path: Path) -> None:
    with armed(tmp_path) as pid:
        os.kill(pid, signal.SIGSTOP)
        victims.wait_until(lambda: victims.state(pid) == "T")
        (result,) = ask(pid)
        assert (result.status, "state T" in str(result.reason)) == (ABSENT, True)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
        assert not (tmp_path / "trace_0").exists()


@pytest.mark.parametrize(
    ("owners", "status"), [([7, 7], ABSENT), ([7], ABSENT), ([7, None], OK), ([7, 8], OK)]
)
def test_a_process_in_which_one_thread_keeps_the_gil_is_not_asked(
    owners: list[int | None], status: str, tmp_path: Path
) -> None:
    with armed(tmp_path) as pid:
        ctx = victims.context(pid)
        ctx.shared[stacks.GIL_OWNERS] = {ctx.targets[0][:2]: owners}
        result = recorder_pipe.COLLECTOR.collect(ctx, ctx.targets[0])
    assert result.status == status
    assert status == OK or result.reason == "not asked: its thread 7 holds the GIL"


def test_a_process_whose_leader_has_exited_is_never_asked(tmp_path: Path) -> None:
    with victims.exited_leader(tmp_path / "held") as pid:
        assert recorder_pipe.standing_still(pid) == "its main thread has ended"


def test_a_frozen_cgroup_or_a_tracer_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorder_pipe.standing_still(os.getpid()) is None
    monkeypatch.setattr(recorder_pipe.cgroups, "freezer_state", lambda pid, text, mounts: "FROZEN")
    assert recorder_pipe.standing_still(os.getpid()) == "its cgroup is FROZEN"
    monkeypatch.setattr(recorder_pipe.procfs, "status_fields", lambda pid, proc: {"TracerPid": "7"})
    assert recorder_pipe.standing_still(os.getpid()) == "it is being traced"


def test_who_is_not_armed_or_has_told_already_is_not_asked(tmp_path: Path) -> None:
    with armed(tmp_path, "nothing", TORCH_NCCL_DEBUG_INFO_PIPE_FILE="") as pid:
        (result,) = ask(pid)
        assert (result.status, "not armed" in str(result.reason)) == (ABSENT, True)
    with armed(tmp_path, rank=1) as pid:
        ctx = victims.context(pid)
        ctx.shared[recorder.ANSWERED] = {ctx.targets[0][:2]}
        result = recorder_pipe.COLLECTOR.collect(ctx, ctx.targets[0])
        assert (result.status, "not needed" in str(result.reason)) == (ABSENT, True)
        assert not stat.S_ISREG(os.stat(tmp_path / "trigger_1.pipe").st_mode)
    ctx = victims.context()
    assert recorder_pipe.COLLECTOR.collect(ctx, Target(os.getpid(), 0, "helper")).status == ABSENT
    assert recorder_pipe.COLLECTOR.collect(ctx, Target(4_000_000, 1, "rank", 0)).status == ABSENT
