"""The first act: before any child, and before anything that may block."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import pytest

from hangscope.bundle.reader import read_bundle_bytes
from hangscope.bundle.writer import ShardWriter
from hangscope.collectors.agent import first_look
from hangscope.collectors.agent.sampling import Sampler
from hangscope.collectors.interface import Context
from hangscope.model.evidence import NodeRecord


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process.pid
        process.kill()


def test_the_node_record_is_what_the_reader_expects(sleeper: int) -> None:
    record = first_look.node_record([sleeper], ["a note"])
    node = msgspec.convert(record, NodeRecord)
    assert node.host == os.uname().nodename
    assert node.ptrace is None
    assert node.notes == ("a note",)
    assert node.boot_time is not None and node.boot_time < node.wall
    assert abs(node.monotonic - time.monotonic()) < 5.0


def test_the_agent_offers_itself_to_the_oom_killer() -> None:
    code = (
        "from hangscope.collectors.agent import first_look\n"
        "print(first_look.offer_itself(), open('/proc/self/oom_score_adj').read().strip())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "1000"]


def test_a_score_that_cannot_be_raised_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("builtins.open", refuse)
    assert first_look.offer_itself() == "oom_score_adj stayed as it was: Read-only file system"


def test_the_first_look_takes_threads_then_memory_and_starts_no_child(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_child() -> int:
        raise AssertionError("a child was started")

    monkeypatch.setattr(os, "fork", no_child)
    stream = io.BytesIO()
    sampler = Sampler(ShardWriter(stream), lambda event, **fields: None)
    ctx = Context(first_look.targets_of([sleeper, 2**22 + 1]))
    for collector in first_look.COLLECTORS:
        sampler.run(ctx, collector)
    monkeypatch.undo()
    cells = read_bundle_bytes(stream.getvalue()).shards[0].cells
    assert [(cell.collector, cell.pid) for cell in cells] == [("threads", sleeper), ("memory", None)]
    assert cells[0].status == "ok"


def test_a_process_that_is_gone_is_no_target() -> None:
    assert first_look.targets_of([2**22 + 1]) == []


def refusing(monkeypatch: pytest.MonkeyPatch, uid: int, scope: str | None) -> None:
    def read(path: str, cap: int = 0) -> tuple[str | None, str | None]:
        if path.endswith("/syscall"):
            return None, "EPERM"
        if path.endswith("ptrace_scope"):
            return scope, None if scope else "ENOENT"
        return f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n", None

    monkeypatch.setattr(first_look.procfs, "read_text", read)


def test_yama_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, os.getuid(), "1\n")
    assert "sysctl kernel.yama.ptrace_scope=0" in (first_look.ptrace_refusal([7]) or "")


def test_without_yama_it_is_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, os.getuid(), None)
    assert "CAP_SYS_PTRACE" in (first_look.ptrace_refusal([7]) or "")


def test_another_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, os.getuid() + 1, None)
    assert "another user" in (first_look.ptrace_refusal([7]) or "")


def test_one_process_that_can_be_traced_is_enough(sleeper: int) -> None:
    assert first_look.ptrace_refusal([2**22 + 1, sleeper]) is None
