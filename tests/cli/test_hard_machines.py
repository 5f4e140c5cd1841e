"""Captures where the machine itself is in trouble: dead mounts, a locked memory map, a full memory cgroup,
another pid namespace. Each takes seconds and root."""

import contextlib
import os
import pathlib
import re
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hangscope.capture.launch import children_of
from hangscope.collectors import procfs
from tests.benchmarks.plain_job import thread_states
from tests.collectors import stack_victims
from tests.collectors.agent_process import status_of
from tests.collectors.test_agent import HOARDER, MEMORY
from tests.collectors.victims import needs_root, state, wait_until

from .test_captures_in_trouble import COMMAND, ROOT, capture, ranks, shard_of

pytestmark = [pytest.mark.realjob, needs_root]

WAITS = "import threading; print('ready', flush=True); threading.Event().wait()"
RANK = {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29881", "WORLD_SIZE": "1", "RANK": "0"}


@contextlib.contextmanager
def file_system(directory: pathlib.Path) -> Iterator[tuple[pathlib.Path, int]]:
    """A FUSE mount whose reads are never answered, and its server's pid: stopped, nothing is answered."""
    mount = directory / "mount"
    mount.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-u", "-c", stack_victims.FUSE_SERVER, str(mount)], stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    try:
        if not server.stdout.readline():
            pytest.skip("no FUSE file system can be mounted here")
        yield mount, server.pid
    finally:
        server.kill()
        server.wait(10)
        server.stdout.close()
        subprocess.run(["umount", "-l", str(mount)], check=False)


def test_a_job_on_a_dead_mount_and_a_capture_from_it(tmp_path: pathlib.Path) -> None:
    with file_system(tmp_path) as (mount, server), ranks(WAITS, tmp_path) as pids:
        inside = os.open(mount, os.O_PATH | os.O_DIRECTORY)
        stand = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WAITS],
            preexec_fn=lambda: os.fchdir(inside),
            stdout=subprocess.PIPE,
            env={**os.environ, **RANK, "MASTER_PORT": "29882", "LOCAL_WORLD_SIZE": "1"},
        )
        assert stand.stdout is not None and stand.stdout.readline() == b"ready\n"
        # as the installed command starts: python -m, and the finder of an editable install, would look for
        # modules in the dead directory
        places = [str(ROOT), *site.getsitepackages()]
        start_it = (
            f"import sys; sys.path += {places!r}; from hangscope.__main__ import main; sys.exit(main())"
        )
        tool = [sys.executable, "-I", "-S", "-c", start_it]
        command = [*tool, "capture", "-p", str(stand.pid), "--patience", "0", "--interval", "0.1"]
        waiting = subprocess.Popen(
            ["sh", "-c", 'echo there && read go && exec "$@"', "sh", *command],
            preexec_fn=lambda: os.fchdir(inside),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert waiting.stdout is not None and waiting.stdout.readline() == "there\n"
        os.kill(server, signal.SIGSTOP)
        try:
            start = time.monotonic()
            out, err = waiting.communicate("go\n", timeout=50)
            assert time.monotonic() - start < 30 and waiting.returncode == 0, err
            assert re.search(rf"not saved in {re.escape(str(mount))}: .*a dead mount\?", err)
            saved = re.search(r"saved to (\S+\.tar)", out)
            assert saved is not None and saved[1].startswith(str(tmp_path))
            shard = shard_of(saved[1])
            assert shard.sealed and all(state(pid) == "D" for pid in shard.abandoned)
            assert b'"responsive":false' in next(a.data for a in shard.artifacts if a.name == "mounts.json")
            assert status_of(shard, "stacks", stand.pid, 1) == "ok"
            again = capture(pids[0], "-o", str(tmp_path / "b.tar"))
            assert again.returncode == 0 and "left behind" not in again.stderr
        finally:
            os.kill(server, signal.SIGCONT)
            os.close(inside)
            stand.kill()
            stand.wait(10)
            stand.stdout.close()


def test_a_rank_whose_memory_map_is_locked(tmp_path: pathlib.Path) -> None:
    """Its environment cannot be read, so its number is not known: it is captured, and named as what may be
    the missing rank, and the others are not blamed."""
    with file_system(tmp_path) as (mount, _):
        (tmp_path / "job").mkdir()
        with ranks(WAITS, tmp_path / "job", 2, (), WORLD_SIZE="3", LOCAL_WORLD_SIZE="3") as pids:
            # two of three ranks: the third is the one that nobody can read
            environment = {**os.environ, **RANK, "RANK": "2", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
            locked = subprocess.Popen(
                [sys.executable, "-c", stack_victims.LOCKS_ITS_MEMORY_MAP, str(mount / "slow")],
                env=environment,
                stdout=subprocess.PIPE,
            )
            try:
                wait_until(
                    lambda: any(state(locked.pid, tid) == "D" for tid in stack_victims.tasks(locked.pid))
                )
                start = time.monotonic()
                done = capture(pids[0], "-o", str(tmp_path / "b.tar"), timeout=60)
                assert time.monotonic() - start < 40 and done.returncode == 0, done.stderr
            finally:
                locked.kill()
                if locked.stdout is not None:
                    locked.stdout.close()
    locked.wait(10)
    shard = shard_of(tmp_path / "b.tar")
    assert shard.scan is not None and locked.pid in [row.pid for row in shard.scan.processes]
    assert status_of(shard, "threads", locked.pid) == "ok"
    assert done.stdout.startswith("undecided") and f"it may be pid {locked.pid}" in re.sub(
        r"\s+", " ", done.stdout
    )
    assert "its memory map is locked" in re.sub(r"\s+", " ", done.stdout)


def test_inside_the_full_memory_cgroup_of_its_job_the_rank_lives(tmp_path: pathlib.Path) -> None:
    group = f"{MEMORY}/hangscope-test-{os.getpid()}"
    try:
        os.mkdir(group)
        with open(f"{group}/memory.limit_in_bytes", "w") as limit:
            limit.write(str(96 << 20))
    except OSError as error:
        pytest.skip(f"no v1 memory cgroup to be used here: {error}")
    inside = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    try:
        with subprocess.Popen(
            [*inside, sys.executable, "-c", HOARDER, group, str(8 << 20)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **RANK, "LOCAL_WORLD_SIZE": "1"},
        ) as rank:
            assert rank.stdout is not None and rank.stdout.readline() == b"ready\n"
            done = capture(rank.pid, "-o", str(tmp_path / "b.tar"), prefix=inside)
            alive = rank.poll() is None
            outside = capture(rank.pid, "-o", str(tmp_path / "c.tar"))
            rank.kill()
        assert alive and done.returncode == -signal.SIGKILL
        assert outside.returncode == 0, outside.stderr
    finally:
        os.rmdir(group)


PRINTS_AND_CAPTURES = """
import subprocess, sys
rank = subprocess.Popen(["env", *sys.argv[3:], sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
rank.stdout.readline()
print(rank.pid, flush=True)
sys.stdin.readline()
done = subprocess.run(
    [sys.executable, "-m", "hangscope", "capture", "-p", str(rank.pid), "--patience", "0",
     "--interval", "0.1", "-q", "-o", sys.argv[2]],
    stdout=subprocess.DEVNULL)
rank.kill()
sys.exit(done.returncode)
"""


def test_a_pid_namespace_from_outside_and_from_inside(tmp_path: pathlib.Path) -> None:
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no pid namespace can be made here")
    variables = [f"{name}={value}" for name, value in {**RANK, "LOCAL_WORLD_SIZE": "1"}.items()]
    with subprocess.Popen(
        [
            *unshare,
            sys.executable,
            "-c",
            PRINTS_AND_CAPTURES,
            WAITS,
            str(tmp_path / "inside.tar"),
            *variables,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as job:
        assert job.stdout is not None and job.stdin is not None
        inner = int(job.stdout.readline())
        outer = _outer_pid(job.pid, inner)
        done = capture(outer, "-o", str(tmp_path / "outside.tar"))
        job.stdin.write("\n")
        job.stdin.close()
        assert (done.returncode, job.wait(60)) == (0, 0)
    for name, pid in (("outside.tar", outer), ("inside.tar", inner)):
        shard = shard_of(tmp_path / name)
        assert shard.scan is not None
        (row,) = [row for row in shard.scan.processes if row.role == "rank"]
        assert (row.pid, row.rank) == (pid, 0) and row.nspid[-1] == inner
        assert status_of(shard, "stacks", pid) == "ok"
        stacks = next(a.data for a in shard.artifacts if a.name == "stacks.json" and a.pid == pid)
        assert b'"os_thread_id":%d' % pid in stacks


def _outer_pid(ancestor: int, inner: int) -> int:
    """The pid, as seen from here, of the descendant that its own namespace calls ``inner``."""
    waiting = [ancestor]
    while waiting:
        pid = waiting.pop()
        with open(f"/proc/{pid}/status") as status:
            ids = next(line for line in status if line.startswith("NSpid")).split()[1:]
        if len(ids) > 1 and int(ids[-1]) == inner:
            return pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            waiting += [int(child) for child in children.read().split()]
    raise AssertionError(f"no process has the inner pid {inner}")


def test_two_captures_of_one_job_at_once_in_a_read_only_directory(tmp_path: pathlib.Path) -> None:
    read_only = tmp_path / "ro"
    read_only.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(read_only)], check=True)
    (tmp_path / "job").mkdir()
    try:
        with ranks(WAITS, tmp_path / "job") as pids:
            environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
            command = [*COMMAND, "capture", "-p", str(pids[0]), "--patience", "0", "--interval", "0.1"]
            both = [
                subprocess.Popen(
                    command,
                    cwd=read_only,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for _ in range(2)
            ]
            said = [process.communicate(timeout=60) for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        assert all(f"not saved in {read_only}: Read-only file system" in notes for _, notes in said)
        saved = {path for path in tmp_path.iterdir() if path.name.startswith("hangscope-")}
        assert len(saved) == 2 and all(shard_of(path).sealed for path in saved)
        for path in saved:
            assert [status_of(shard_of(path), "stacks", pid, 1) for pid in pids] == ["ok", "ok"]
    finally:
        subprocess.run(["umount", str(read_only)], check=True)


def test_interrupted_while_a_reader_cannot_be_killed(tmp_path: pathlib.Path) -> None:
    """A rank's output lies on a file system that takes requests and answers none: whoever reads it stays in
    uninterruptible sleep, SIGKILL or not. It is listed by pid; nothing else is left."""
    with file_system(tmp_path) as (mount, _):
        output = os.open(mount / "slow", os.O_RDONLY)
        rank = subprocess.Popen(
            [sys.executable, "-c", "import threading; threading.Event().wait()"],
            stdout=output,
            env={**os.environ, **RANK, "LOCAL_WORLD_SIZE": "1"},
        )
        os.close(output)
        try:
            command = [*COMMAND, "capture", "-p", str(rank.pid), "-o", str(tmp_path / "b.tar")]
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
            readers: list[int] = []
            wait_until(lambda: bool(readers.extend(_waiting_for_fuse(process.pid)) or readers), 30)
            time.sleep(1)  # until the file system has taken the request, its reader can still be killed
            started = children_of(process.pid)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
            assert process.returncode == 130, said
            assert (
                f"left behind, they cannot be killed before the kernel answers them: readers {readers[0]}"
                in said
            )
            assert {pid for pid in started if state(pid) not in (None, "Z")} == {readers[0]}
            assert state(readers[0]) == "D"
            shard = shard_of(tmp_path / "b.tar")
            assert shard.sealed and shard.abandoned == (readers[0],)
            assert status_of(shard, "stacks", rank.pid) == "ok"
            assert set(thread_states([rank.pid]).values()) == {"S"}
        finally:
            rank.kill()
            rank.wait(10)


def _waiting_for_fuse(ancestor: int) -> list[int]:
    found = []
    for pid in children_of(ancestor):
        wchan, _ = procfs.read_text(f"/proc/{pid}/wchan", 64)
        if wchan == "request_wait_answer":
            found.append(pid)
    return found
