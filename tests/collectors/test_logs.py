"""What is taken of the files that a target names, and what is refused."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangscope.collectors import environment, guarded, nccl_log, output, procfs, tails, target_files
from hangscope.collectors.interface import Context, Result, Target

from .rank_processes import call_here, eventually

SLEEP = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(120)"
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process of another user")
Start = Callable[..., Target]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str = SLEEP, role: str = "rank", uid: int | None = None, **env: Any) -> Target:
        options = {name: env.pop(name) for name in ("stdout", "stderr", "cwd") if name in env}
        options.setdefault("stdout", subprocess.DEVNULL)
        waits = "stderr" not in options
        options.setdefault("stderr", subprocess.PIPE)
        if uid is not None:
            options.update(user=uid, group=uid, extra_groups=[])
        kept = {"PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", code]
        if uid is not None:
            # another user may not be allowed to reach the Python that runs the tests
            command = ["sleep", "120"]
        process = subprocess.Popen(command, env={**kept, **env}, **options)
        started.append(process)
        if waits and uid is None:
            assert process.stderr is not None and process.stderr.readline() == b"ready\n"
        elif uid is not None:
            eventually(lambda: "nanosleep" in (procfs.read_text(f"/proc/{process.pid}/wchan")[0] or ""))
        ticks = procfs.start_ticks(process.pid)
        assert ticks is not None
        return Target(process.pid, ticks, role, 0)

    yield run
    for process in started:
        process.kill()
        process.wait(10)
        if process.stderr is not None:
            process.stderr.close()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarded calls run in the test's own process, where their lines are counted."""
    monkeypatch.setattr(guarded, "call", call_here)


def files(result: Result) -> list[dict[str, Any]]:
    ((_, data),) = result.artifacts
    found: list[dict[str, Any]] = json.loads(data)["files"]
    return found


def take(collector: Any, target: Target, sample: int = 0, shared: dict[str, Any] | None = None) -> Result:
    ctx = Context([target], sample)
    if shared is not None:
        ctx.shared = shared
    result: Result = collector.collect(ctx, target)
    return result


def test_the_end_of_a_ranks_output_is_taken_masked_and_again_when_grown(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    with log.open("wb") as file:
        file.write(b"first line\n" * 9000 + b"hf_token=abcdefghij0123456789\n")
        file.flush()
        target = start(stdout=file)
    shared: dict[str, Any] = {}
    (row,) = files(take(output.COLLECTOR, target, 0, shared))
    assert (row["fd"], row["path"], row["size"], row["error"]) == (1, str(log), log.stat().st_size, None)
    assert row["position"] == log.stat().st_size and abs(row["mtime"] - log.stat().st_mtime) < 0.01
    assert len(row["tail"]) <= target_files.TAIL + 100 and row["tail"].startswith("first line\n")
    assert "abcdefghij0123456789" not in row["tail"] and "hf_token" in row["tail"]
    (row,) = files(take(output.COLLECTOR, target, 1, shared))
    assert row["tail"] is None and row["size"] == log.stat().st_size
    with log.open("ab") as file:
        file.write(b"and more\n")
    (row,) = files(take(output.COLLECTOR, target, 2, shared))
    assert row["tail"].endswith("and more\n")


def test_a_log_that_ranks_share_is_carried_once(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "all.log"
    with log.open("ab") as file:
        first, second = (start(stdout=file, stderr=file) for _ in range(2))
    eventually(lambda: log.read_bytes() == b"ready\nready\n")
    shared: dict[str, Any] = {}
    (row,) = files(take(output.COLLECTOR, first, 0, shared))
    assert (row["fd"], row["tail"]) == (1, "ready\nready\n")
    (row,) = files(take(output.COLLECTOR, second, 0, shared))
    assert (row["tail"], row["same_as"], row["size"]) == (None, first.pid, 12)


@pytest.mark.usefixtures("here")
def test_a_deleted_log_is_still_read(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "gone.log"
    with log.open("wb") as file:
        file.write(b"last words\n")
        file.flush()
        target = start(stdout=file)
    log.unlink()
    (row,) = files(take(output.COLLECTOR, target))
    assert row["tail"] == "last words\n" and "gone.log" in row["path"]


def test_output_that_is_no_file_is_absent_and_a_process_that_is_gone_too(start: Start) -> None:
    assert take(output.COLLECTOR, start())[:2] == ("absent", "standard output and error go to no file")
    for collector in (output.COLLECTOR, nccl_log.COLLECTOR, environment.COLLECTOR):
        assert take(collector, Target(2**22 + 1, 5, "rank"))[:2] == ("absent", "the process has ended")
        assert collector.collect(Context([]), None).status == "error"


@pytest.mark.usefixtures("here")
def test_a_fifo_as_output_is_not_opened(start: Start, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDWR)
    target = start(stdout=descriptor)
    os.close(descriptor)
    result = take(output.COLLECTOR, target)
    assert result.status == "denied" and "a FIFO: not opened" in (result.reason or "")


@needs_root
def test_output_to_a_file_of_somebody_else_gives_only_its_size(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "roots.log").open("wb") as file:
        file.write(b"not for nobody\n")
        file.flush()
        target = start(stdout=file, uid=NOBODY)
    result = take(output.COLLECTOR, target)
    (row,) = files(result)
    assert result.status == "denied" and row["tail"] is None and row["size"] == 15
    assert "a file of uid 0" in row["error"]


@pytest.mark.usefixtures("here")
def test_the_nccl_log_is_found_by_its_pattern(start: Start, tmp_path: Path) -> None:
    target = start(NCCL_DEBUG_FILE=f"{tmp_path}/nccl.%h.%p.log")
    host = os.uname().nodename.split(".")[0]
    log = tmp_path / f"nccl.{host}.{target.pid}.log"
    missing = take(nccl_log.COLLECTOR, target)
    assert missing.status == "denied" and "ENOENT" in (missing.reason or "")
    other = tmp_path / f"nccl.inner-name.{target.pid}.log"
    other.write_text("NCCL INFO of a container\n")
    (row,) = files(take(nccl_log.COLLECTOR, target))
    assert (row["path"], row["tail"]) == (str(other), "NCCL INFO of a container\n")
    log.write_text("NCCL INFO Init\n")
    (row,) = files(take(nccl_log.COLLECTOR, target))
    assert (row["path"], row["tail"], row["fd"]) == (str(log), "NCCL INFO Init\n", None)


@pytest.mark.usefixtures("here")
def test_a_relative_name_starts_where_the_rank_stands(start: Start, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "nccl.log").write_text("here\n")
    target = start(cwd=tmp_path, NCCL_DEBUG_FILE="./logs//nccl.log")
    assert files(take(nccl_log.COLLECTOR, target))[0]["tail"] == "here\n"
    target = start(cwd=tmp_path / "logs", NCCL_DEBUG_FILE="../secret")
    assert "leaves the working directory" in (take(nccl_log.COLLECTOR, target).reason or "")


@pytest.mark.usefixtures("here")
def test_the_name_may_stand_in_nccls_own_files(start: Start, tmp_path: Path) -> None:
    (tmp_path / "nccl.log").write_text("by file\n")
    (tmp_path / ".nccl.conf").write_text(
        f"# settings\nNCCL_DEBUG=INFO\nNCCL_DEBUG_FILE={tmp_path}/nccl.log\n"
    )
    assert files(take(nccl_log.COLLECTOR, start(HOME=str(tmp_path))))[0]["tail"] == "by file\n"
    target = start(HOME="/nonexistent", NCCL_CONF_FILE=f"{tmp_path}/.nccl.conf")
    assert files(take(nccl_log.COLLECTOR, target))[0]["tail"] == "by file\n"


@pytest.mark.usefixtures("here")
def test_without_a_name_there_is_no_nccl_log(start: Start) -> None:
    assert take(nccl_log.COLLECTOR, start(HOME="/nonexistent"))[:2] == (
        "absent",
        "NCCL_DEBUG_FILE is not set",
    )
    assert take(nccl_log.COLLECTOR, start(role="dataloader"))[:2] == ("absent", "only ranks write one")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", ["fifo", "link", "device", "directory", "socket", "proc", "loop"])
def test_what_is_no_regular_file_is_never_opened(start: Start, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "named"
    words = {"fifo": "a FIFO", "link": "a symbolic link", "directory": "a directory", "socket": "a socket"}
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        (tmp_path / "real").write_text("elsewhere\n")
        path.symlink_to(tmp_path / "real")
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "loop":
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        path = tmp_path / "a" / "x"
    elif kind == "proc":
        path = Path("/proc/self/environ")
    else:
        path = Path("/dev/zero")
    words.update(device="a device", proc="of the kernel", loop="too many links")
    before = time.monotonic()
    result = take(nccl_log.COLLECTOR, start(NCCL_DEBUG_FILE=str(path)))
    assert time.monotonic() - before < 2
    assert result.status == "denied" and words[kind] in (result.reason or ""), result
    assert files(result)[0].get("tail") is None


@needs_root
def test_files_of_others_are_refused_even_to_root(start: Start, tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    secret, closed = tmp_path / "secret", tmp_path / "closed" / "log"
    secret.write_text("root's\n")
    closed.parent.mkdir(mode=0o700)
    closed.write_text("root's\n")
    top = Path("/")
    parents = [parent for parent in tmp_path.parents if parent != top]
    reachable = all(parent.stat().st_mode & 0o001 for parent in parents)
    result = take(nccl_log.COLLECTOR, start(uid=NOBODY, NCCL_DEBUG_FILE=str(secret)))
    assert result.status == "denied"
    assert ("a file of uid 0" if reachable else "EACCES") in (result.reason or "")
    result = take(nccl_log.COLLECTOR, start(uid=NOBODY, NCCL_DEBUG_FILE=str(closed)))
    assert result.status == "denied" and "EACCES" in (result.reason or "")


@needs_root
def test_the_log_of_another_user_is_read_with_that_users_ids(start: Start) -> None:
    log = Path(f"/tmp/hangscope-test-{os.getpid()}.log")
    log.write_text("mine\n")
    try:
        os.chown(log, NOBODY, NOBODY)
        os.chmod(log, 0o600)
        (row,) = files(take(nccl_log.COLLECTOR, start(uid=NOBODY, NCCL_DEBUG_FILE=str(log))))
        assert row["tail"] == "mine\n" and row["error"] is None
    finally:
        log.unlink()


@needs_root
def test_links_on_the_way_lead_into_the_targets_own_root(tmp_path: Path) -> None:
    inside = tmp_path / "jail"
    (inside / "logs").mkdir(parents=True)
    (inside / "logs" / "nccl.log").write_text("inside\n")
    (inside / "way").symlink_to("/logs")
    (inside / "up").symlink_to("../../../../logs")
    child = os.fork()
    if child == 0:
        os.chroot(inside)
        os.chdir("/")
        time.sleep(120)
        os._exit(0)
    try:
        while os.readlink(f"/proc/{child}/root") == "/":
            time.sleep(0.01)
        view = target_files.TargetRoot(f"/proc/{child}")
        for path in ("/way/nccl.log", "/up/nccl.log", "/../../logs/./nccl.log"):
            assert target_files.read_tail(view.find(path), 7) == b"inside\n"
        os.close(view.root)
        os.close(view.cwd)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_ids_that_cannot_be_taken_are_a_refusal() -> None:
    def as_nobody() -> str:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        try:
            target_files.become(target_files.Ids(1, 1, ()))
        except target_files.Refused as error:
            return str(error)
        return "taken"

    assert "whose ids this user cannot take" in guarded.call(as_nobody, timeout=5).value
    assert target_files.ids_of(2**22 + 1) is None


@pytest.mark.parametrize(
    ("status", "rows", "cell"),
    [
        ("timeout", [], "timeout"),
        ("timeout", [{"fd": 1, "path": "/a"}], "partial"),
        ("error", [], "error"),
        ("ok", [], "absent"),
    ],
)
def test_how_a_look_ended_is_the_cells_status(status: str, rows: list[Any], cell: str) -> None:
    target = Target(1, 1, "rank")
    outcome = guarded.Outcome(status, rows, None if status == "ok" else "no answer in 1.5 s")
    assert tails.result(Context([target]), target, "x.json", outcome).status == cell


def test_the_environment_is_live_and_its_secrets_are_masked(start: Start) -> None:
    code = "import os; os.environ['RANK'] = '3'\n" + SLEEP.replace("; ", "\n")
    target = start(code, AWS_SECRET_ACCESS_KEY="abcdefgh12345678", NCCL_DEBUG="INFO")
    result = take(environment.COLLECTOR, target)
    ((name, data),) = result.artifacts
    found = json.loads(data)
    assert (result.status, name, found["source"]) == ("ok", "environment.json", "live")
    assert found["variables"]["RANK"] == "3" and found["variables"]["NCCL_DEBUG"] == "INFO"
    assert found["variables"]["AWS_SECRET_ACCESS_KEY"].startswith("<redacted") and b"abcdefgh1234" not in data


def test_an_environment_of_exec_is_partial_and_none_is_denied(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start()
    answers = {
        "partial": environment.live_environment.Environment({"A": "1"}, "static", "EACCES"),
        "denied": environment.live_environment.Environment(None, None, "EACCES"),
        "timeout": environment.live_environment.Environment(None, None, "no answer in 2.0 s"),
        "absent": environment.live_environment.Environment(None, None, "ESRCH"),
        "error": environment.live_environment.Environment(None, None, "the reading process died"),
    }
    for status, answer in answers.items():
        monkeypatch.setattr(environment.live_environment, "of_process", lambda *_, found=answer: found)
        assert take(environment.COLLECTOR, target).status == status
    monkeypatch.setattr(environment.live_environment, "of_process", lambda *_: answers["denied"])
    assert take(nccl_log.COLLECTOR, target).status == "denied"


def test_a_directory_that_cannot_be_listed_matches_nothing(tmp_path: Path) -> None:
    view = target_files.TargetRoot("/proc/self")
    try:
        assert view.matching(str(tmp_path / "none"), re.compile(".*")) == []
        assert target_files.ids_of(os.getpid()) == (os.geteuid(), os.getegid(), tuple(sorted(os.getgroups())))
        assert list(target_files.entries(2**22 + 1, "/proc", [1], {})) == []
        (row,) = target_files.entries(os.getpid(), "/proc", [4090], {})
        assert (row["fd"], row["error"]) == (4090, "ENOENT")
    finally:
        os.close(view.root)
        os.close(view.cwd)


def test_a_file_that_may_not_be_opened_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "no")

    monkeypatch.setattr(target_files, "read_tail", refuse)
    (tmp_path / "log").write_text("x")
    found = os.open(tmp_path / "log", os.O_PATH)
    assert target_files.entry(found, "log", os.geteuid(), None)["error"] == "EACCES"
    os.close(found)
