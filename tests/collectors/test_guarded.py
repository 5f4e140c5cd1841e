"""Calls in a child with a deadline: what blocks, fails, dies or floods."""

import errno
import os
import signal
import time

import pytest

from hangscope.collectors import guarded


def numbers_then_block():
    yield 1
    yield {"two": 2}
    time.sleep(60)
    yield 3


def children_left() -> list[int]:
    assert guarded.running == []
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]


def test_the_value_comes_back():
    outcome = guarded.call(lambda a, b: {"sum": a + b}, 1, 2, timeout=5)
    assert (outcome.status, outcome.value, outcome.reason) == ("ok", {"sum": 3}, None)
    assert 0 < outcome.seconds < 5


def test_a_generator_becomes_a_list():
    assert guarded.call(lambda: iter([1, None, "é"]), timeout=5).value == [1, None, "é"]


def test_what_was_sent_before_a_block_is_kept():
    before = children_left()
    outcome = guarded.call(numbers_then_block, timeout=0.2)
    assert (outcome.status, outcome.value) == ("timeout", [1, {"two": 2}])
    assert outcome.reason.startswith("no answer in 0.")
    assert children_left() == before


def test_an_exception_is_a_reason():
    outcome = guarded.call(os.statvfs, "/does/not/exist", timeout=5)
    assert (outcome.status, outcome.value) == ("error", [])
    assert outcome.reason.startswith("FileNotFoundError: ")


def test_a_value_that_json_cannot_carry_is_an_error():
    assert guarded.call(lambda: b"bytes", timeout=5).reason.startswith("TypeError")


def test_a_child_that_is_killed_from_outside():
    def die():
        yield "first"
        os.kill(os.getpid(), signal.SIGKILL)

    outcome = guarded.call(die, timeout=5)
    assert (outcome.status, outcome.value, outcome.reason) == ("error", ["first"], "the reading process died")


def test_too_long_an_answer_keeps_the_items_that_fit():
    outcome = guarded.call(lambda: iter(["x" * 1000] * 1000), timeout=5, cap=100_000)
    assert (outcome.status, outcome.reason) == ("error", "the answer is too long")
    assert 90 < len(outcome.value) < 300 and set(outcome.value) == {"x" * 1000}


def test_the_child_keeps_no_file_of_the_agent():
    def open_files():
        return sorted(
            os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name != "3"
        )[:9]

    read_end, write_end = os.pipe()
    try:
        links = guarded.call(open_files, timeout=5).value or []
        held = os.readlink(f"/proc/self/fd/{write_end}")
    finally:
        os.close(read_end)
        os.close(write_end)
    assert held not in links
    assert links.count("/dev/null") == 3


def test_an_interrupt_of_the_parent_ends_the_child():
    def interrupt(*_):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    before = children_left()
    try:
        with pytest.raises(KeyboardInterrupt):
            guarded.call(time.sleep, 60, timeout=30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert children_left() == before


def test_emulated_unkillable_child_is_listed_and_left(monkeypatch):
    real_waitpid, pids = os.waitpid, []
    monkeypatch.setattr(guarded, "GRACE", 0.05)
    monkeypatch.setattr(os, "kill", lambda pid, number: pids.append(pid))
    monkeypatch.setattr(os, "waitpid", lambda pid, options: (0, 0))
    start = time.monotonic()
    outcome = guarded.call(time.sleep, 60, timeout=0.1)
    monkeypatch.undo()
    try:
        assert outcome.status == "abandoned"
        assert outcome.reason.endswith("and the reader cannot be killed")
        assert time.monotonic() - start < 2
        assert guarded.abandoned == pids and len(pids) == 1
    finally:
        guarded.abandoned.clear()
        os.kill(pids[0], signal.SIGKILL)
        real_waitpid(pids[0], 0)


def test_a_child_that_somebody_else_reaped_is_gone():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert guarded.end_child(pid, kill=False) is True


@pytest.mark.parametrize(("call", "what"), [("fork", "process"), ("pipe", "pipe")])
def test_no_room_for_a_child_is_an_error(monkeypatch, call, what):
    def refuse():
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, call, refuse)
    outcome = guarded.call(os.getpid, timeout=1)
    assert outcome.status == "error"
    assert outcome.reason == f"no {what} for the reader: Resource temporarily unavailable"
    assert len(os.listdir("/proc/self/fd")) == before
