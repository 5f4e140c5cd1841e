"""Many items in one child: what blocks, fails or goes on for ever loses only its own answer."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from hangscope.collectors import guarded, in_turn

from .rank_processes import call_here


def rows(item: Any) -> Iterator[Any]:
    """Rows of what the item says: ``[rows before, what then]``."""
    yield from range(item[0])
    if item[1] == "block":
        time.sleep(60)
    elif item[1] == "fail":
        raise PermissionError(13, "no")
    while item[1] == "go on":
        time.sleep(0.02)
        yield "more"


ITEMS = [(2, "end"), (1, "block"), (0, "fail"), (1, "fail"), (0, "go on"), (0, "end"), (3, "end")]


def test_rows_that_came_before_the_end_are_kept() -> None:
    before = time.monotonic()
    found = in_turn.streams(rows, ITEMS, before + 20, 0.3)
    assert time.monotonic() - before < 5
    assert [end.status for end in found] == ["ok", "timeout", "error", "error", "timeout", "ok", "ok"]
    assert [end.value for end in found if "more" not in end.value] == [[0, 1], [0], [], [0], [], [0, 1, 2]]
    assert "no answer" in (found[1].reason or "") and "PermissionError" in (found[2].reason or "")
    assert found[4].reason == "not finished after 0.3 s" and set(found[4].value) == {"more"}


def test_the_deadline_of_all_is_kept() -> None:
    before = time.monotonic()
    found = in_turn.streams(rows, [(1, "block")] * 5, before + 0.5, 0.2)
    assert time.monotonic() - before < 2
    assert {end.status for end in found} == {"timeout"}
    assert found[-1] == guarded.Outcome("timeout", [], "not reached before the deadline")


def test_one_child_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(function: Any, *args: Any, **limits: Any) -> guarded.Outcome:
        calls.append(1)
        return call_here(function, *args)

    monkeypatch.setattr(guarded, "call", counted)
    found = in_turn.streams(rows, [(1, "end"), (1, "fail"), (2, "end")], time.monotonic() + 5, 1.0)
    assert [end.status for end in found] == ["ok", "error", "ok"] and calls == [1]
    assert in_turn.streams(rows, [], time.monotonic() + 5, 1.0) == []
