"""What is left for the end of a capture: the second RAS report, and asking armed ranks for a dump."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hangscope.collectors import ras, registry
from hangscope.collectors.agent import node_capture
from hangscope.collectors.interface import OK, Context, Result, Target

from .agent_process import RunningAgent, status_of
from .test_recorder_pipe import armed


class Sampler:
    """Notes which cells are asked for, and which are written without being asked."""

    all_at_once: Any = None
    read_ahead: Any = None

    def __init__(self) -> None:
        self.cells: list[tuple[int, str]] = []
        self.left_out: list[tuple[int, str]] = []

    def take(self, ctx: Context, collectors: list[Any]) -> None:
        for collector in collectors:
            self.run(ctx, collector)

    def run(self, ctx: Context, collector: Any) -> None:
        self.cells.append((ctx.sample, collector.name))
        if collector.name == "ras":
            ctx.shared[ras.LAST] = node_capture.time.monotonic()

    def write(self, sample: int, name: str, pid: int | None, result: Result, seconds: float) -> None:
        assert result.status != OK and result.reason
        self.left_out.append((sample, name))


def a_capture(monkeypatch: pytest.MonkeyPatch, deadline: float = 60.0) -> Any:
    """A NodeCapture whose agent is a stand-in, so that nothing is read and time passes only in sleeps."""
    clock = [1000.0]
    stand_in = SimpleNamespace(
        monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    )
    monkeypatch.setattr(node_capture, "time", stand_in)
    monkeypatch.setattr(ras, "time", stand_in)
    monkeypatch.setattr(node_capture, "emit", lambda *event, **fields: None)
    monkeypatch.setattr(node_capture.NodeCapture, "rescan", lambda self: None)
    shared: dict[str, Any] = {}
    agent = SimpleNamespace(only=("ras", "recorder_pipe", "threads"), skip=(), samples=0, targets=[])
    agent.sampler, agent.deadline, agent.options = Sampler(), 1000.0 + deadline, SimpleNamespace()

    def context(sample: int) -> Context:
        ctx = Context([Target(os.getpid(), 0, "rank")], sample, 1e9)
        ctx.shared = shared
        return ctx

    agent.context = context
    capture = node_capture.NodeCapture(agent)
    return capture, agent, stand_in


def test_the_second_ras_report_is_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    capture, agent, clock = a_capture(monkeypatch)
    capture.sample()
    clock.sleep(2.0)
    capture.sample()
    assert agent.sampler.cells == [(0, "ras"), (0, "threads"), (1, "threads")]
    capture.finish()
    assert agent.sampler.cells[3:] == [(1, "recorder_pipe"), (1, "ras")]
    assert clock.monotonic() == pytest.approx(1000.0 + ras.APART)
    capture.finish()
    assert (len(agent.sampler.cells), agent.sampler.left_out) == (5, [])


def test_samples_ten_seconds_apart_have_a_report_each(monkeypatch: pytest.MonkeyPatch) -> None:
    capture, agent, clock = a_capture(monkeypatch)
    for _ in range(3):
        capture.sample()
        clock.sleep(6.0)
    assert [sample for sample, name in agent.sampler.cells if name == "ras"] == [0, 2]
    assert agent.sampler.left_out == [(1, "ras")]


def test_no_wait_that_the_deadline_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    capture, agent, clock = a_capture(monkeypatch, deadline=12.0)
    capture.sample()
    capture.sample()
    capture.finish()
    assert clock.monotonic() == 1000.0
    assert agent.sampler.left_out == [(1, "ras")]
    assert (1, "recorder_pipe") in agent.sampler.cells


def test_nothing_is_left_for_the_end_without_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    capture, agent, _ = a_capture(monkeypatch)
    capture.finish()
    assert agent.sampler.cells == []


def test_collectors_of_the_end_are_known_ones() -> None:
    names = {collector.name for collector in registry.COLLECTORS}
    assert set(registry.AT_THE_END) | set(registry.DUE_IN) <= names
    assert not set(registry.AT_THE_END) & set(registry.ON_REQUEST)


def test_an_armed_emulation_is_asked_at_the_end_of_a_real_capture(tmp_path: Path) -> None:
    with armed(tmp_path, LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="1") as pid:
        running = RunningAgent(pid, "--samples", "2", "--interval", "0.05", "--skip", "stacks")
        running.wait_for("ready")
        assert not (tmp_path / "trace_0").exists()
        running.send("finish")
        running.wait_for("ready", 2)
        shard = running.finish()
    assert status_of(shard, "recorder_pipe", pid, 1) == "ok", running.events
    (dump,) = [item for item in shard.artifacts if item.collector == "recorder_pipe"]
    assert (dump.sample, dump.name, dump.data[-1:]) == (1, "dump.pickle", b".")
