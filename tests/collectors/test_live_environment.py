"""The environment as getenv(3) in the target would see it, of real programs of several builds."""

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.collectors import guarded, in_turn, live_environment
from hangscope.collectors.process_memory import (
    Memory,
    NotFound,
    _gnu_chain,
    _in_symbol_table,
    _sysv_chain,
    symbol_address,
)

from .rank_processes import call_here

SETS_LATER = """
import os, time
os.environ["RANK"] = "7"
del os.environ["GONE"]
print("ready", flush=True)
time.sleep(120)
"""
C_SETS_LATER = """
#include <stdlib.h>
#include <unistd.h>
int main(void) { setenv("RANK", "7", 1); unsetenv("GONE"); write(1, "ready\\n", 6); sleep(120); }
"""
C_CLEARS = (
    '#include <stdlib.h>\n#include <unistd.h>\nint main(void) { clearenv(); write(1, "r", 1); sleep(120); }\n'
)


def interpreters() -> list[str]:
    """Every Python of this machine: pyenv's, the distribution's, the one that runs the tests."""
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    found = [str(path) for path in pyenv] + [sys.executable]
    return found + [path for path in ["/usr/bin/python3"] if os.path.exists(path)]


@pytest.fixture
def start() -> Iterator[object]:
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> int:
        env = {"PATH": os.environ["PATH"], "GONE": "1", "KEPT": "ü=1"}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None and process.stdout.read(1)
        return process.pid

    yield run
    for process in started:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarded calls run in the test's own process, where their lines are counted."""
    monkeypatch.setattr(guarded, "call", call_here)


@pytest.mark.parametrize("python", interpreters())
def test_what_python_sets_after_exec_is_seen(start, python: str) -> None:
    found = live_environment.of_process(start(python, "-c", SETS_LATER), 10)
    assert (found.source, found.reason) == ("live", None)
    assert found.variables is not None
    assert (found.variables["RANK"], found.variables["KEPT"], "GONE" in found.variables) == (
        "7",
        "ü=1",
        False,
    )


@pytest.mark.usefixtures("here")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    "flags", [["-static"], ["-static-pie"], ["-no-pie"], ["-Wl,--hash-style=sysv"], ["-pie"]]
)
def test_every_kind_of_executable_is_understood(start, tmp_path: Path, flags: list[str]) -> None:
    source, program = tmp_path / "later.c", tmp_path / "later"
    source.write_text(C_SETS_LATER)
    subprocess.run(["cc", "-w", str(source), "-o", str(program), *flags], check=True)
    found = live_environment.of_process(start(str(program)), 10)
    assert found.source == "live" and found.variables is not None
    assert found.variables["RANK"] == "7" and "GONE" not in found.variables


@pytest.mark.usefixtures("here")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_cleared_environment_is_empty_not_that_of_exec(start, tmp_path: Path) -> None:
    source, program = tmp_path / "clears.c", tmp_path / "clears"
    source.write_text(C_CLEARS)
    subprocess.run(["cc", "-w", str(source), "-o", str(program)], check=True)
    assert live_environment.of_process(start(str(program)), 10).variables == {}


@pytest.mark.usefixtures("here")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_without_symbols_the_block_of_exec_is_left(start, tmp_path: Path) -> None:
    source, program = tmp_path / "bare.c", tmp_path / "bare"
    source.write_text(C_SETS_LATER)
    subprocess.run(["cc", "-w", "-s", "-static", str(source), "-o", str(program)], check=True)
    found = live_environment.of_process(start(str(program)), 10)
    assert (found.source, found.reason) == ("static", "no symbol environ")
    assert found.variables is not None and found.variables["GONE"] == "1" and "RANK" not in found.variables


@pytest.mark.usefixtures("here")
def test_without_the_right_to_attach_the_block_of_exec_is_left(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Memory, place: str) -> None:
        raise PermissionError(13, "as under Yama")

    monkeypatch.setattr(Memory, "__init__", refuse)
    found = live_environment.of_process(start(sys.executable, "-c", SETS_LATER), 10)
    assert (found.source, found.reason) == ("static", "EACCES")
    assert found.variables is not None and "RANK" not in found.variables


def test_a_process_that_is_gone_and_one_that_never_answers() -> None:
    assert live_environment.of_process(2**22 + 1, 5).reason == "ENOENT"
    assert live_environment.of_process(os.getpid(), 0.0).variables is None


def test_a_symbol_that_nothing_defines(start) -> None:
    pid = start(sys.executable, "-c", SETS_LATER)
    memory = Memory(f"/proc/{pid}")
    try:
        with pytest.raises(NotFound):
            symbol_address(memory, f"/proc/{pid}", b"no_such_symbol_at_all")
        with pytest.raises(NotFound):
            memory.read(0, 8)
    finally:
        memory.close()


@pytest.mark.usefixtures("here")
def test_one_look_at_many_keeps_only_what_is_wanted(start) -> None:
    pids = [start(sys.executable, "-c", SETS_LATER), 2**22 + 1]
    found = live_environment.glimpses(pids, ("RANK", "GONE"), time.monotonic() + 10)
    seen = found[pids[0]]
    assert (seen.variables, seen.exec_variables, seen.source) == ({"RANK": "7"}, {"GONE": "1"}, "live")
    assert seen.cmdline is not None and seen.cmdline[1] == "-c"
    assert found[pids[1]].reason in ("ENOENT", "ESRCH") and found[pids[1]].variables is None


def test_a_stuck_process_loses_only_its_own_answer(start, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = [start(sys.executable, "-c", SETS_LATER) for _ in range(3)]
    read = live_environment._read

    def read_unless_stuck(pid: int, proc: str) -> live_environment.Environment:
        if pid == pids[1]:
            time.sleep(60)
        return read(pid, proc)

    monkeypatch.setattr(live_environment, "_read", read_unless_stuck)
    before = time.monotonic()
    found = live_environment.glimpses(pids, ("RANK",), before + 20, patience=0.4)
    assert time.monotonic() - before < 5
    assert [found[pid].variables for pid in pids] == [{"RANK": "7"}, None, {"RANK": "7"}]
    assert "no answer" in (found[pids[1]].reason or "")


def test_items_not_reached_before_the_deadline_say_so() -> None:
    outcomes = in_turn.each(lambda item: time.sleep(item) or item, [0, 30, 0, 0], time.monotonic() + 0.5, 5.0)
    assert [outcome.status for outcome in outcomes] == ["ok", "timeout", "timeout", "timeout"]
    assert outcomes[-1].reason == "not reached before the deadline"


def test_an_error_of_one_item_is_its_own() -> None:
    outcomes = in_turn.each(lambda item: 1 // item, [1, 0], time.monotonic() + 5, 2.0)
    assert [outcome.status for outcome in outcomes] == ["ok", "error"]
    outcomes = in_turn.each(lambda item: [][item], [0, 1], time.monotonic() + 5, 2.0)
    assert [outcome.reason for outcome in outcomes] == ["IndexError: list index out of range"] * 2


def elf(**fields: int) -> bytes:
    """The head of an ELF file with a section table of nothing."""
    head = struct.pack(
        "<6s34xQ10xHH2x",
        b"\x7fELF\x02\x01",
        fields.get("at", 64),
        fields.get("size", 64),
        fields.get("count", 0),
    )
    return head + fields.get("tail", 0) * b"\0"


@pytest.mark.parametrize(
    "data",
    [b"", b"#!/bin/sh\n" * 9, elf(), elf(size=3, count=9), elf(count=3, tail=64), elf(at=1 << 62, count=9)],
)
def test_a_broken_executable_has_no_symbol(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken"
    path.write_bytes(data)
    with pytest.raises((NotFound, OSError)):
        _in_symbol_table(str(path), b"environ")


class Invented(Memory):
    """Memory with these bytes at an address, and nothing elsewhere."""

    def __init__(self, base: int, data: bytes) -> None:
        self.base = base
        self.data = data

    def read(self, address: int, size: int) -> bytes:
        if not self.base <= address < self.base + len(self.data):
            raise OSError(5, "nothing is mapped there")
        return self.data[address - self.base :][:size]


def test_hostile_tables_end() -> None:
    ones = Invented(4096, b"\1" * 4096)
    for walk in (_gnu_chain, _sysv_chain):
        with pytest.raises(OSError):
            list(walk(ones, 4096, b"environ"))
    zeros = Invented(4096, bytes(4096))
    assert list(_gnu_chain(zeros, 4096, b"environ")) == list(_sysv_chain(zeros, 4096, b"environ")) == []
    loop = Invented(4096, struct.pack("<8I", 1, 9, 1, 1, 1, 1, 1, 1))
    assert list(_sysv_chain(loop, 4096, b"environ")) == [1] * 9
    with pytest.raises(NotFound, match="no end"):
        live_environment._addresses(Invented(4096, b"\1" * 7), 4096)
    assert ones.string(4096, 300) == b"\1" * 300


@pytest.mark.usefixtures("here")
def test_an_environ_that_points_to_nonsense_is_not_believed(start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_environment, "_addresses", lambda memory, pointer: [pointer])
    found = live_environment.of_process(start(sys.executable, "-c", SETS_LATER), 10)
    assert (found.source, found.reason) == ("static", "environ points to no variables")
