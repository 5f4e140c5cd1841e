import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangscope.collectors import attach
from hangscope.collectors.attach import Task

from . import victims
from .stack_victims import SLEEPER_AND_SPINNER, tasks, traced


def task(state: str = "S", clock: bytes = b"1", tracer: int = 0, pending: bool = False) -> Task:
    return Task(state, (clock,), tracer, 7, pending)


def asleep(pid: int) -> None:
    victims.wait_until(lambda: all(victims.state(pid, tid) == "S" for tid in tasks(pid)))


@pytest.mark.parametrize(
    ("before", "after", "still"),
    [
        (task(), task(), True),
        (task("D"), task("D"), True),
        (task(), task(clock=b"2"), False),
        (task("R"), task("R"), False),
        (task(), task("R"), False),
        (None, task(), False),
        (task(), None, False),
    ],
)
def test_a_thread_is_still_when_it_cannot_have_run(
    before: Task | None, after: Task | None, still: bool
) -> None:
    assert attach.still(before, after) is still


def test_a_sleeping_thread_is_still_and_a_busy_one_is_not() -> None:
    with victims.victim(SLEEPER_AND_SPINNER, "spin") as pid:

        def told_apart() -> bool:
            before = attach.read_tasks(pid)
            time.sleep(0.05)
            after = attach.read_tasks(pid)
            still = [attach.still(before.get(tid), task) for tid, task in sorted(after.items())]
            return still == [True, True, False]

        victims.wait_until(told_apart)


@pytest.mark.parametrize(
    "wait",
    [
        "threading.Event().wait(600)",
        "select.select([0], [], [], 600)",
        "select.epoll().poll(600)",
        "time.sleep(600)",
        "os.read(os.pipe()[0], 1)",
        "socket.create_server(('127.0.0.1', 0)).accept()",
        "a, b = socket.socketpair(); a.recv(1)",
        "signal.pause()",
        "signal.sigwait([signal.SIGUSR1])",
        "p = subprocess.Popen(['sleep', '1.5']); p.wait(); p.wait()",
    ],
)
def test_ordinary_waits_may_be_interrupted(wait: str) -> None:
    code = f"""
import os, select, signal, socket, subprocess, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
{wait}
"""
    with victims.victim(code) as pid:
        asleep(pid)
        assert attach.refusal(pid) is None


def test_running_threads_may_be_stopped() -> None:
    with victims.victim(SLEEPER_AND_SPINNER, "spin") as pid:
        assert attach.refusal(pid) is None


@pytest.mark.parametrize(
    "wchan",
    [
        "request_wait_answer",
        "fuse_dev_do_write",
        "rpc_wait_bit_killable",
        "handle_userfault",
        "pipe",
        "futex_",
        "",
    ],
)
def test_waits_that_are_not_known_to_be_interruptible_refuse(wchan: str) -> None:
    assert attach.INTERRUPTIBLE.fullmatch(wchan) is None


@pytest.mark.parametrize(
    "wchan",
    [
        "futex_wait_queue_me",
        "futex_do_wait",
        "poll_schedule_timeout.constprop.0",
        "ep_poll",
        "anon_pipe_read",
        "do_wait",
    ],
)
def test_names_of_older_and_newer_kernels_are_known(wchan: str) -> None:
    assert attach.INTERRUPTIBLE.fullmatch(wchan) is not None


class FakeProc:
    """A /proc of one process with one thread, for what cannot be made on every machine."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "7" / "task" / "7"
        self.place.mkdir(parents=True)
        self.proc = str(directory)
        self.write("S", "futex_do_wait")

    def write(self, state: str, wchan: str | None) -> None:
        (self.place / "stat").write_text(f"7 (a) b) {state} " + " ".join(["0"] * 49))
        (self.place / "status").write_text(
            f"State:\t{state} (x)\nTracerPid:\t0\nNSpid:\t7\t3\nSigPnd:\t0000000000040000\n"
        )
        (self.place / "wchan").unlink(missing_ok=True)
        if wchan is not None:
            (self.place / "wchan").write_text(wchan)


def test_an_unreadable_or_unknown_wait_channel_refuses(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    assert attach.refusal(7, fake.proc) is None
    assert attach.read_tasks(7, fake.proc)[7][3:] == (3, True)
    fake.write("S", None)
    assert "unreadable wait channel (ENOENT)" in str(attach.refusal(7, fake.proc))
    fake.write("S", "0")
    assert "unreadable wait channel (hidden)" in str(attach.refusal(7, fake.proc))
    fake.write("S", "request_wait_answer")
    assert "sleeps in request_wait_answer" in str(attach.refusal(7, fake.proc))
    fake.write("R", "0")
    assert attach.refusal(7, fake.proc) is None
    (fake.place / "status").unlink()
    assert "just ended" in str(attach.refusal(7, fake.proc))


def test_dead_stopped_and_traced_processes_refuse() -> None:
    with victims.victim(SLEEPER_AND_SPINNER) as pid:
        with traced(pid) as tracer:
            assert f"traced by process {tracer}" in str(attach.refusal(pid))
        os.kill(pid, signal.SIGSTOP)
        victims.wait_until(lambda: all(victims.state(pid, tid) == "T" for tid in tasks(pid)))
        assert "state T" in str(attach.refusal(pid))
    assert attach.refusal(pid) == "the process has ended"


def test_what_a_dump_left_stopped_is_found() -> None:
    before = {1: "S", 2: "T", 3: "S"}
    after = {1: task("t"), 2: task("T"), 3: task(), 4: task("T")}
    assert attach.newly_stopped(before, after) == [1, 4]
    assert attach.states(after) == {1: "t", 2: "T", 3: "S", 4: "T"}


def test_a_process_that_our_tool_stopped_is_set_going_again() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        before = {child.pid: task()}
        os.kill(child.pid, signal.SIGSTOP)
        victims.wait_until(lambda: victims.state(child.pid) == "T")
        after = attach.settled(child.pid, before, patience=0.02)
        assert "SIGCONT" in str(attach.set_going(child.pid, before, after))
        victims.wait_until(lambda: victims.state(child.pid) != "T")
    finally:
        child.kill()
        child.wait()
    assert "SIGCONT failed: ESRCH" in str(attach.set_going(child.pid, before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (task("T"), task("T")),
        (task(pending=True), task("T")),
        (task(tracer=5), task("T")),
        (task(), task("t", tracer=5)),
        (task(), task()),
    ],
)
def test_what_we_did_not_stop_stays_as_it_is(
    before: Task, after: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("a signal was sent"))
    assert attach.set_going(1, {1: before}, {1: after}) is None
