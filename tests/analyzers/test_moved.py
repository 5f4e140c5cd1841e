"""Two stacks of one thread: progress only where it cannot be the same loop again."""

from __future__ import annotations

import msgspec
import pytest

from hangscope.analyzers.moved import left_its_place, loop_moved
from hangscope.model.facts import Frame

from .builder import frame

SPIN = [(54, "while not flag:")]
STEP = [(88, "for step in range(n):")]
MAIN = frame("main", line=90, loops=STEP)


def test_the_leafs_line_is_no_progress() -> None:
    first, second = (frame("spin", line=55, loops=SPIN), MAIN), (frame("spin", line=56, loops=SPIN), MAIN)
    assert loop_moved(first, second) is False
    assert left_its_place(first, second) is False


def test_a_call_below_the_loop_and_back_is_no_progress() -> None:
    looping = frame("spin", line=55, loops=SPIN)
    assert loop_moved((looping, MAIN), (frame("check", line=12), looping, MAIN)) is False


def test_two_loops_in_one_function_under_one_outer_loop_are_one_place() -> None:
    outer = (50, "while True:")
    first = (frame("poll", line=52, loops=[outer, (51, "for a in x:")]), MAIN)
    second = (frame("poll", line=56, loops=[outer, (55, "for b in y:")]), MAIN)
    assert loop_moved(first, second) is False


def test_deep_below_a_training_loop_nobody_can_tell() -> None:
    deep = tuple(frame(f"layer{i}", line=10 + i) for i in range(5))
    assert loop_moved((*deep, MAIN), (*deep[1:], MAIN)) is None
    other = tuple(frame(f"other{i}", line=10 + i, loops=[(9, "for x in y:")]) for i in range(5))
    assert loop_moved((*deep, MAIN), (*other, MAIN)) is None


def test_leaving_a_loop_or_straight_code_is_progress() -> None:
    straight = frame("main", line=30)
    assert (
        loop_moved((frame("load", line=5), straight), (frame("fit", line=9), frame("main", line=31))) is True
    )
    looping = frame("load", line=5, loops=[(4, "for f in files:")])
    assert loop_moved((looping, straight), (frame("fit", line=9), frame("main", line=31))) is True


@pytest.mark.parametrize("known", [True, False])
def test_without_sources_a_loop_cannot_be_ruled_out(known: bool) -> None:
    before: tuple[Frame, ...] = (frame("a", line=1), frame("main", line=30))
    after: tuple[Frame, ...] = (frame("b", line=2), frame("main", line=31))
    if not known:
        before = tuple(msgspec.structs.replace(f, source=None) for f in before)
    assert loop_moved(before, after) is (True if known else None)
    assert left_its_place(before, after) is True
