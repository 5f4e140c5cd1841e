"""The command lines that steer an agent, over a real pipe."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator

import pytest

from hangscope.collectors.agent.commands import Commands

Pipe = tuple[Commands, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read, write = os.pipe()
    yield Commands(read), write
    os.close(read)
    with contextlib.suppress(OSError):  # the test has closed it
        os.close(write)


def soon() -> float:
    return time.monotonic() + 5.0


def test_lines_become_words_in_order(pipe: Pipe) -> None:
    commands, write = pipe
    os.write(write, b"sample 4\nnative 12,13\nend\n")
    assert [commands.next(soon()) for _ in range(3)] == [("sample", "4"), ("native", "12,13"), ("end", "")]


def test_a_line_may_come_in_pieces(pipe: Pipe) -> None:
    commands, write = pipe
    os.write(write, b"samp")
    timer = threading.Timer(0.05, os.write, (write, b"le 8\n"))
    timer.start()
    assert commands.next(soon()) == ("sample", "8")
    timer.join()


def test_the_end_of_input_is_an_end(pipe: Pipe) -> None:
    commands, write = pipe
    os.close(write)
    assert commands.next(soon()) == ("end", "")


def test_the_deadline_is_an_end(pipe: Pipe) -> None:
    commands, _ = pipe
    start = time.monotonic()
    assert commands.next(start + 0.05) == ("end", "")
    assert time.monotonic() - start < 2.0


def test_a_gap_is_waited_out(pipe: Pipe) -> None:
    commands, _ = pipe
    start = time.monotonic()
    assert commands.wait(0.1, soon(), patient=False)
    assert time.monotonic() - start >= 0.1


def test_a_gap_beyond_the_deadline_is_not_begun(pipe: Pipe) -> None:
    commands, _ = pipe
    start = time.monotonic()
    assert not commands.wait(30.0, start + 5.0, patient=True)
    assert time.monotonic() - start < 1.0


def test_an_end_breaks_a_gap(pipe: Pipe) -> None:
    commands, write = pipe
    os.write(write, b"end\n")
    assert not commands.wait(30.0, time.monotonic() + 60, patient=True)


def test_a_closed_input_breaks_only_an_impatient_gap(pipe: Pipe) -> None:
    commands, write = pipe
    os.close(write)
    assert commands.wait(0.05, soon(), patient=True)
    assert not commands.wait(30.0, time.monotonic() + 60, patient=False)
