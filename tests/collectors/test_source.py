import os
import time
from pathlib import Path
from typing import Any

import pytest

from hangscope.collectors import guarded, source, stacks
from hangscope.collectors.interface import ABSENT, DENIED, OK, PARTIAL, TIMEOUT

from . import victims
from .stack_victims import SLEEPER_AND_SPINNER, body, context

CODE = """\
import threading
def main():
    while True:
        with open("x") as held:
            threading.Event().wait(600)
"""


def rows(ctx: Any, pid: int, *frames: tuple[str, int]) -> tuple[Any, list[dict[str, Any]]]:
    ctx.shared["frames"] = {(pid, file, line) for file, line in frames}
    result = source.COLLECTOR.collect(ctx, ctx.targets[0])
    return result, body(result, "source.json")["frames"] if result.artifacts else []


def old(path: Path, text: str) -> Path:
    """A file written long before any process of the test began."""
    path.write_text(text)
    os.utime(path, (1e9, 1e9))
    return path


def test_a_line_comes_with_its_function_with_and_loop_once_a_shard(tmp_path: Path) -> None:
    path = old(tmp_path / "job.py", CODE)
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = context(pid)
        result, found = rows(ctx, pid, (str(path), 5), ("<string>", 3), (str(tmp_path / "gone.py"), 1))
        assert result.status == OK
        assert found == [
            {
                "file": str(path),
                "line": 5,
                "text": "threading.Event().wait(600)",
                "function": "def main()",
                "withs": [[4, 'open("x") as held']],
                "loops": [[3, "while True"]],
            }
        ]
        _, again = rows(ctx, pid, (str(path), 5), (str(path), 3))
        assert [row["line"] for row in again] == [3]


def test_the_frames_of_the_stacks_are_what_is_looked_up() -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = context(pid)
        stacks.COLLECTOR.collect(ctx, ctx.targets[0])
        result = source.COLLECTOR.collect(ctx, ctx.targets[0])
        assert result.status == OK
        found = body(result, "source.json")["frames"]
        assert any(row["function"] == "def run(self)" for row in found)
        assert all(row["file"].endswith(".py") for row in found)


def test_secrets_in_source_are_masked(tmp_path: Path) -> None:
    path = old(
        tmp_path / "job.py", 'def f(x, password="hunter2hunter2"):\n    login(password="hunter2hunter2")\n'
    )
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        _, found = rows(context(pid), pid, (str(path), 2))
        assert "login" in found[0]["text"]
        assert "hunter2" not in repr(found)


def test_of_a_file_changed_since_the_start_only_the_text_is_told(tmp_path: Path) -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        path = tmp_path / "job.py"
        path.write_text(CODE)
        os.utime(path, (time.time() + 60, time.time() + 60))
        _, found = rows(context(pid), pid, (str(path), 5))
        assert found[0]["changed"] is True
        assert (found[0]["function"], found[0]["withs"], found[0]["loops"]) == (None, [], [])


def test_only_plain_files_of_decent_size_are_read(tmp_path: Path) -> None:
    secret = old(tmp_path / "other.py", CODE)
    (tmp_path / "link.py").symlink_to(secret)
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "folder.py").mkdir()
    large = tmp_path / "large.py"
    with large.open("wb") as file:
        file.truncate(source.CAP + 1)
    names = ["link.py", "fifo.py", "folder.py", "large.py", "nul\0.py"]
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        result, found = rows(context(pid), pid, *[(str(tmp_path / name), 1) for name in names])
        assert (result.status, found) == (OK, [])


def test_relative_names_are_looked_up_in_the_targets_directory(tmp_path: Path) -> None:
    old(tmp_path / "job.py", "first = 'caf\u00e9'\r\nsecond = 2\r\n")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    with victims.victim(SLEEPER_AND_SPINNER, cwd=str(tmp_path)) as pid:
        _, found = rows(
            context(pid), pid, ("job.py", 1), ("job.py", 2), ("job.py", 3), ("job.py", 9), ("latin.py", 1)
        )
        assert [row["text"] for row in found] == ["first = 'café'", "second = 2", "", "x = 'é'"]


@victims.needs_root
def test_root_reads_with_the_rights_of_the_target(tmp_path: Path) -> None:
    mine = old(tmp_path / "mine.py", CODE)
    mine.chmod(0o600)
    theirs = old(tmp_path / "theirs.py", CODE)
    for folder in [tmp_path, *tmp_path.parents][:3]:
        folder.chmod(folder.stat().st_mode | 0o011)
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        pytest.skip("needs a Python that everybody may run")
    import subprocess

    process = subprocess.Popen(
        [python, "-c", SLEEPER_AND_SPINNER], stdout=subprocess.PIPE, preexec_fn=victims.become_nobody, cwd="/"
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        result, found = rows(context(process.pid), process.pid, (str(mine), 5), (str(theirs), 5))
        assert [row["file"] for row in found] == [str(theirs)]
        assert result.status == OK
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_file_that_blocks_is_given_up_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(old(tmp_path / name, CODE)) for name in ("a.py", "b.py", "c.py")]
    real = source.read_file

    def blocks_on_b(name: str, *rest: Any) -> Any:
        if name == names[1]:
            time.sleep(60)
        return real(name, *rest)

    monkeypatch.setattr(source, "read_file", blocks_on_b)
    monkeypatch.setattr(source, "ONE_LOOK", 0.3)
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        result, found = rows(context(pid), pid, *[(name, 5) for name in names])
        assert [row["file"] for row in found] == [names[0], names[2]]
        assert result.status == PARTIAL
        assert "b.py: no answer" in str(result.reason)
        result, _ = rows(context(pid), pid, (names[1], 5))
        assert result.status == TIMEOUT
        late = context(pid, deadline=time.monotonic())
        assert rows(late, pid, (names[0], 5))[0].status == TIMEOUT
    assert guarded.running == []


def test_a_target_whose_root_may_not_be_entered_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(source, "become", refused)
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        result, _ = rows(context(pid), pid, ("/x.py", 5), ("/y.py", 1))
        assert result.status == DENIED


def test_a_dead_target_is_absent_and_no_frames_are_no_work() -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        ctx = context(pid)
        assert rows(ctx, pid)[0].status == OK
    assert rows(ctx, pid, ("/x.py", 1))[0].status == ABSENT
