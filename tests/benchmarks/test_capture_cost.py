"""The benchmark's arithmetic: it compares neighbours, shrugs off one bad round, and can fail."""

import pytest

from . import capture_cost
from .capture_cost import Cost, compared


def good(bares: list[float], costs: list[Cost]) -> list[bool]:
    return [line.good for line in compared(bares, costs)]


def test_every_capture_is_compared_with_its_neighbours() -> None:
    stacks, evidence, command = compared([1.0, 3.0, 1.0], [Cost(2.0, 4.0, 5.0), Cost(4.0, 8.0, 7.0)])
    assert (stacks.value, stacks.spread, stacks.seconds) == (1.5, (1.0, 2.0), 3.0)
    assert (evidence.value, evidence.spread) == (3.0, (2.0, 4.0))
    assert (command.value, command.spread) == (6.0, (5.0, 7.0))


def test_one_spoiled_round_does_not_count() -> None:
    fine = Cost(1.2, 2.5, 4.0)
    assert good([1.0] * 4, [fine, fine, Cost(9.0, 90.0, 900.0)]) == [True, True, True]
    assert good([1.0, 1.0, 5.0, 1.0], [fine, fine, fine]) == [True, True, True]


@pytest.mark.parametrize(
    ("cost", "bars"),
    [
        (Cost(1.31, 2.0, 3.0), [False, True, True]),
        (Cost(1.0, 3.01, 4.0), [True, False, True]),
        (Cost(1.0, 2.0, 10.1), [True, True, False]),
    ],
)
def test_over_a_bar(
    cost: Cost, bars: list[bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert good([1.0] * 4, [cost] * 3) == bars
    monkeypatch.setattr("sys.argv", ["capture_cost"])
    monkeypatch.setattr(capture_cost.py_spy, "find", lambda: "py-spy")
    monkeypatch.setattr(capture_cost, "measure", lambda *_: ([1.0] * 4, [cost] * 3))
    assert capture_cost.main() == 1
    assert capsys.readouterr().out.count("TOO MUCH") == 1


def test_below_every_bar_or_without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["capture_cost"])
    monkeypatch.setattr(capture_cost, "measure", lambda *_: ([1.0] * 4, [Cost(1.0, 2.0, 3.0)] * 3))
    monkeypatch.setattr(capture_cost.py_spy, "find", lambda: "py-spy")
    assert capture_cost.main() == 0
    monkeypatch.setattr(capture_cost.py_spy, "find", lambda: None)
    assert capture_cost.main() == 1
