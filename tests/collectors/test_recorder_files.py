import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangscope.collectors import dump_files, recorder_files, target_files
from hangscope.collectors.interface import ABSENT, DENIED, OK, PARTIAL, Result, Target

from . import victims
from .stack_victims import SLEEPER_AND_SPINNER

DUMP = b"\x80\x02}q\x00."


@contextmanager
def rank(**variables: str) -> Iterator[int]:
    with victims.victim(SLEEPER_AND_SPINNER, env={"PATH": os.environ["PATH"], **variables}) as pid:
        yield pid


def take(pid: int) -> Result:
    ctx = victims.context(pid)
    return recorder_files.COLLECTOR.collect(ctx, ctx.targets[0])


def rows(result: Result) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(dict(result.artifacts)["files.json"])["files"]
    return found


@pytest.mark.parametrize("variable", dump_files.VARIABLES)
def test_the_file_that_a_variable_names_with_its_time_and_size(variable: str, tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(DUMP)
    os.utime(tmp_path / "trace_0", (1000.5, 1000.5))
    with rank(**{variable: f"{tmp_path}/trace_"}) as pid:
        result = take(pid)
    assert result.status == OK, result.reason
    (row,) = rows(result)
    assert row == {
        "path": f"{tmp_path}/trace_0",
        "size": len(DUMP),
        "mtime": 1000.5,
        "error": None,
        "cut": False,
        "named": True,
        "artifact": "dump-0.pickle",
    }
    assert dict(result.artifacts)["dump-0.pickle"] == DUMP


def test_the_places_of_all_versions_where_no_variable_names_one(tmp_path: Path) -> None:
    (tmp_path / "cache" / "torch").mkdir(parents=True)
    (tmp_path / "home" / ".cache" / "torch").mkdir(parents=True)
    (tmp_path / "cache" / "torch" / "comm_lib_trace_rank_0").write_bytes(DUMP)
    (tmp_path / "home" / ".cache" / "torch" / "nccl_trace_rank_0").write_bytes(DUMP + b"old")
    with rank(HOME=str(tmp_path / "home"), XDG_CACHE_HOME=str(tmp_path / "cache")) as pid:
        result = take(pid)
    assert not any(row["named"] for row in rows(result))
    names = [str(row["path"]).rsplit("/", 1)[1] for row in rows(result) if str(tmp_path) in str(row["path"])]
    assert names == ["comm_lib_trace_rank_0", "nccl_trace_rank_0"]
    assert dump_files.paths({}, 4) == ["/tmp/nccl_trace_rank_4"]


def test_a_rank_without_dumps_is_absent(tmp_path: Path) -> None:
    with rank(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/none/trace_") as pid:
        assert take(pid) == Result(ABSENT, "no dump of this rank on disk")
    assert take(4_000_000).status == ABSENT
    ctx = victims.context()
    assert recorder_files.COLLECTOR.collect(ctx, Target(os.getpid(), 0, "dataloader")).status == ABSENT
    assert recorder_files.COLLECTOR.collect(ctx, Target(os.getpid(), 0, "rank", None)).status == ABSENT


@pytest.mark.parametrize(
    ("kind", "reason"), [("fifo", "a FIFO"), ("link", "a symbolic link"), ("folder", "a dir")]
)
def test_what_is_no_regular_file_is_not_opened(kind: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "trace_0"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.mkdir()
    with rank(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_") as pid:
        result = take(pid)
    assert result.status == DENIED
    assert reason in str(result.reason)
    assert [name for name, _ in result.artifacts] == ["files.json"]


@victims.needs_root
def test_a_dump_of_another_user_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(DUMP)
    os.chown(tmp_path / "trace_0", victims.NOBODY, victims.NOBODY)
    with rank(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_") as pid:
        assert take(pid).status == DENIED


def test_a_huge_file_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_files, "CAP", 1000)
    with open(tmp_path / "trace_0", "wb") as file:
        file.truncate(1 << 40)  # sparse
    with rank(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_") as pid:
        result = take(pid)
    assert result.status == PARTIAL
    assert len(dict(result.artifacts)["dump-0.pickle"]) == 1000
    assert rows(result)[0]["cut"] is True


def test_the_files_of_several_ranks_are_read_by_one_child(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(DUMP)
    with rank(TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_") as pid:
        ctx = victims.context(pid)
        recorder_files.rank_settings.of(ctx, ctx.targets[0], 2.0)
        recorder_files.read_ahead(ctx, ctx.targets)
        (tmp_path / "trace_0").unlink()
        assert recorder_files.COLLECTOR.collect(ctx, ctx.targets[0]).status == OK


def test_looking_again_and_again_keeps_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(DUMP)
    view = target_files.TargetRoot("/proc/self")
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            assert dump_files.look(view, f"{tmp_path}/trace_0", os.getuid()) is not None
            view.release()
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        view.close()


TORCH = """
import os, torch, torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer, _dump_fr_trace
dist.init_process_group("gloo")
server = _WorkerServer("127.0.0.1", 0)
for _ in range(3):
    dist.all_reduce(torch.ones(4))
with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "0", "wb") as file:
    file.write(_dump_fr_trace(True, False, False))
print("ready", flush=True)
import time
time.sleep(600)
"""


@pytest.mark.realjob
def test_the_dump_and_the_worker_server_of_a_real_torch_process_say_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from hangscope.analyzers.facts.flight import recorder_of
    from hangscope.analyzers.readers import recorder as live
    from hangscope.analyzers.readers import recorder_dumps
    from hangscope.collectors import recorder

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env["TORCH_FR_DUMP_TEMP_FILE"] = f"{tmp_path}/trace_"
    with victims.victim(TORCH, env=env) as pid:
        result = take(pid)
        ctx = victims.context(pid)
        answer = recorder.COLLECTOR.collect(ctx, ctx.targets[0])
    assert (result.status, answer.status) == (OK, OK), (result.reason, answer.reason)
    record = recorder_dumps.read_dump(dict(result.artifacts)["dump-0.pickle"], "x")
    dumped, told = recorder_of(record, 0), live.read(dict(answer.artifacts)["fr_trace.json"], "y")
    assert dumped.last_enqueued == told.last_enqueued == (("0", 3),)
    assert dumped.last_completed == told.last_completed
    assert (dumped.pending, dumped.groups) == (told.pending, told.groups)
