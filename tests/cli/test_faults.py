"""Pids that are no target, or a hard one: a clear message with the next step, or a capture that ends."""

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hangscope.bundle.reader import read_bundle
from hangscope.cli.main import main
from tests.benchmarks.plain_job import plain_job, thread_states

ROOT = pathlib.Path(__file__).parents[2]

Capsys = pytest.CaptureFixture[str]


def refused(pid: int, capsys: Capsys) -> str:
    """What ``capture -p`` says of a pid that it does not take."""
    assert main(["capture", "-p", str(pid)]) == 1
    streams = capsys.readouterr()
    assert streams.out == "" and "Traceback" not in streams.err
    assert str(pid) in streams.err and "try: " in streams.err
    return streams.err


def test_a_dead_pid(capsys: Capsys) -> None:
    assert "no process" in refused(2**22 + 1, capsys)


def test_a_zombie(capsys: Capsys) -> None:
    with subprocess.Popen(["true"]) as process:
        while thread_states([process.pid]) != {process.pid: "Z"}:
            time.sleep(0.01)
        assert "dead" in refused(process.pid, capsys)


def test_a_process_that_is_no_python(capsys: Capsys) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert "no Python process" in refused(process.pid, capsys)
        process.kill()


def test_a_thread(capsys: Capsys) -> None:
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    try:
        assert f"hangscope capture -p {os.getpid()}" in refused(thread.native_id or 0, capsys)
    finally:
        event.set()
        thread.join()


@pytest.fixture
def other_user() -> Iterator[tuple[str, ...]]:
    """The beginning of a command line that runs the rest as a user without rights."""
    if os.getuid() != 0:
        pytest.skip("changing the user needs root")
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if subprocess.run([*prefix, sys.executable, "-c", ""], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("this Python cannot be run by another user")
    yield prefix


def test_a_process_of_another_user(other_user: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    with plain_job(1, 2, "foreign") as pids:
        command = [*other_user, sys.executable, "-B", "-m", "hangscope", "capture", "-p", str(pids[0])]
        # a coverage measurement would want to write where that user may not
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert f"pid {pids[0]}" in done.stderr and "another user" in done.stderr and "root" in done.stderr


D_STATE = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
fifo = sys.argv[1].encode()
def blocked():
    if libc.vfork() == 0:
        libc.open(fifo, 0)
        libc._exit(0)
threading.Thread(target=blocked, name="offload", daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_rank_with_a_thread_in_uninterruptible_sleep(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    """A blocking dump of it would never return and would hold its other threads."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    environment = {
        **os.environ,
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29873",
    }
    rank = subprocess.Popen(
        [sys.executable, "-c", D_STATE, str(fifo)],
        env=environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert rank.stdout is not None
    try:
        rank.stdout.readline()
        until = time.monotonic() + 10
        while "D" not in thread_states([rank.pid]).values() and time.monotonic() < until:
            time.sleep(0.02)
        start = time.monotonic()
        arguments = ["--interval", "0.2", "--patience", "0", "-o", str(tmp_path / "b.tar"), "-q"]
        assert main(["capture", "-p", str(rank.pid), *arguments]) == 0
        assert time.monotonic() - start < 30
        shard = read_bundle(str(tmp_path / "b.tar")).shards[0]
        stacks = [artifact for artifact in shard.artifacts if artifact.name == "stacks.json"]
        assert stacks and all(b'"mode":"nonblocking"' in artifact.data for artifact in stacks)
        assert sorted(thread_states([rank.pid]).values()) == ["D", "S"]
        assert capsys.readouterr().out
    finally:
        os.killpg(rank.pid, 9)
        rank.stdout.close()
        rank.wait()
