"""One sample: every cell written once, whatever its collector does."""

import io
import json
import os
import signal
import time
from collections.abc import Callable

import pytest

from hangscope.bundle.reader import read_bundle_bytes
from hangscope.bundle.writer import ShardWriter
from hangscope.collectors import guarded
from hangscope.collectors.agent import interruption
from hangscope.collectors.agent.sampling import Sampler, end_children, limited
from hangscope.collectors.interface import NODE, PROCESS, Context, Result, Target
from hangscope.model.evidence import Cell

ME = Target(os.getpid(), 1, "rank", 0)
OTHER = Target(1, 1, "helper")


class Fake:
    """A collector that does what the test says."""

    describes = "for a test"

    def __init__(
        self,
        name: str,
        does: Callable[[], Result],
        scope: str = PROCESS,
        once: bool = False,
        budget: float = 1.0,
    ) -> None:
        self.name, self.scope, self.once, self.budget = name, scope, once, budget
        self.does = does

    def collect(self, ctx: Context, target: Target | None) -> Result:
        return self.does()


def raising() -> Result:
    raise RuntimeError("out of order")


def sampled(*collectors: Fake, samples: int = 1, deadline: float = 30.0, **more: object) -> list[Cell]:
    """The cells that a reader finds after these collectors ran over two targets."""
    stream = io.BytesIO()
    events: list[str] = []
    sampler = Sampler(ShardWriter(stream), lambda event, **fields: events.append(event), **more)  # type: ignore[arg-type]
    until = time.monotonic() + deadline
    for sample in range(samples):
        sampler.take(Context([ME, OTHER], sample, until), collectors)
    sampler.writer.seal(samples, [], [])
    shard = read_bundle_bytes(stream.getvalue()).shards[0]
    assert shard.problem is None
    assert len(events) == sum(cell.status != "ok" for cell in shard.cells)
    return list(shard.cells)


def test_every_target_and_sample_has_its_cell() -> None:
    cells = sampled(Fake("threads", lambda: Result("ok")), samples=2)
    assert sorted((cell.sample, cell.pid) for cell in cells) == sorted(
        (sample, target.pid) for sample in (0, 1) for target in (ME, OTHER)
    )


def test_node_scope_and_once() -> None:
    cells = sampled(Fake("mounts", lambda: Result("ok"), scope=NODE, once=True), samples=3)
    assert [(cell.pid, cell.sample) for cell in cells] == [(None, 0)]


def test_a_collector_that_raises_is_an_error_cell_and_the_next_one_runs() -> None:
    cells = sampled(Fake("process", raising), Fake("locks", lambda: Result("ok"), scope=NODE))
    assert [(c.collector, c.status, c.reason) for c in cells] == [
        ("process", "error", "RuntimeError: out of order"),
        ("process", "error", "RuntimeError: out of order"),
        ("locks", "ok", None),
    ]


def test_a_collector_that_never_returns_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangscope.collectors.agent.sampling.GRACE", 0.05)

    def for_ever() -> Result:
        while True:
            time.sleep(60)

    start = time.monotonic()
    cells = sampled(
        Fake("gpus", for_ever, scope=NODE, budget=0.1), Fake("locks", lambda: Result("ok"), scope=NODE)
    )
    assert time.monotonic() - start < 5.0
    assert [(c.collector, c.status) for c in cells] == [("gpus", "timeout"), ("locks", "ok")]
    assert "interrupted after" in (cells[0].reason or "")


def test_what_an_interrupted_collector_had_started_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangscope.collectors.agent.sampling.GRACE", 0.05)
    seen: list[int] = []

    def starts_a_child() -> Result:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        guarded.running.append(child)
        seen.append(child)
        time.sleep(60)
        return Result("ok")

    result = limited(0.2, starts_a_child)
    assert result.status == "timeout"
    assert not os.path.exists(f"/proc/{seen[0]}")
    assert guarded.running == []


def test_past_the_deadline_each_cell_says_so() -> None:
    cells = sampled(Fake("threads", lambda: Result("ok")), deadline=-1.0)
    assert {cell.status for cell in cells} == {"timeout"}
    assert "deadline" in (cells[0].reason or "")


def test_side_by_side_cells_come_from_one_call() -> None:
    calls: list[int] = []

    def all_of(ctx: Context, targets: object) -> dict[int, Result]:
        calls.append(1)
        return {ME.pid: Result("partial", "torn")}

    stacks = Fake("stacks", lambda: Result("ok"))
    cells = {cell.pid: cell.status for cell in sampled(stacks, all_at_once={"stacks": all_of})}
    assert calls == [1]
    assert cells == {ME.pid: "partial", OTHER.pid: "ok"}


def test_side_by_side_that_fails_marks_every_process() -> None:
    def all_of(ctx: Context, targets: object) -> dict[int, Result]:
        raise OSError("no more processes")

    cells = sampled(Fake("stacks", lambda: Result("ok")), all_at_once={"stacks": all_of})
    assert [cell.status for cell in cells] == ["error", "error"]


def test_a_status_without_reason_is_given_one() -> None:
    assert sampled(Fake("locks", lambda: Result("absent"), scope=NODE))[0].reason


def test_no_signal_arrives_while_the_shard_is_written() -> None:
    order: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: order.append("signal"))
    try:
        with interruption.undisturbed():
            os.kill(os.getpid(), signal.SIGTERM)
            order.append("written")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert order == ["written", "signal"]


def test_children_that_are_gone_already_are_no_problem() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    guarded.running.append(child)
    assert child not in end_children()
    assert guarded.running == []


def test_interned_stacks_pass_through_the_table() -> None:
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    frame = {
        "name": "f",
        "filename": "/x.py",
        "module": None,
        "short_filename": "x.py",
        "line": 3,
        "locals": None,
    }
    table = interruption.StackTable(writer)
    assert [table.stack([frame]), table.stack([frame])] == [0, 0]
    writer.member("processes.json", json.dumps({}).encode())
    assert read_bundle_bytes(stream.getvalue()).shards[0].frames[0].line == 3
