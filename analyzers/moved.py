"""Two stacks of one thread: has it moved on, is it where it was, or can nobody tell?

A thread that runs, sleeps or polls shows other lines in every sample though it never leaves its loop. So
only what lies outside the innermost loop counts; and where two stacks part below a loop that both share,
a training loop and a livelock look alike: that is *unknown*, never progress.
"""

from __future__ import annotations

import re

from ..model.facts import Frame

Stack = tuple[Frame, ...]
Loop = tuple[str, str, int, str]
"""(function, file, line, header) of a loop that encloses a frame's line."""

LOOP = re.compile(r"(?:async\s+)?(?:while|for)\b")
WHILE = re.compile(r"while\b")
SHALLOW = 2
"""Frames below its loop within which a spinning thread may be seen, now here, now there."""


def loops_of(stack: Stack) -> list[Loop]:
    """The loops around the lines of a stack, innermost first; [] where no source was captured. A line that is
    a loop's header is in that loop."""
    return [
        (frame.function, frame.file, line, text)
        for frame in stack
        if frame.source is not None
        for line, text in reversed((*frame.source.loops, (frame.line, frame.source.text)))
        if LOOP.match(text)
    ]


def waits_in_loop(before: Stack | None, private: list[Loop]) -> bool:
    """True for a thread that is provably in loops that only a condition ends. ``private``: the loops around
    it that it can pass without its peers, innermost first. A ``for`` takes its next item meanwhile, and so
    does one call that computes: those are slow or stuck, and no stack tells which."""
    earlier = {loop[:3] for loop in loops_of(before or ())}
    return bool(private) and private[-1][:3] in earlier and all(WHILE.match(loop[3]) for loop in private)


def left_its_place(before: Stack, after: Stack) -> bool:
    """For a blocked thread: True when anything but the leaf's line differs, so that it is another call."""
    if before is after:
        return False
    return _places(before) != _places(after)


def loop_moved(before: Stack, after: Stack) -> bool | None:
    """For a thread that runs, sleeps or polls: True when it left its innermost loop (or, outside any
    loop, its place), False when it provably did not, None when that cannot be told."""
    if before is after or _places(before) == _places(after):
        return False
    if not _sources_known(before) or not _sources_known(after):
        return None
    shared = _common(before, after)
    first, second = _innermost_loop(before), _innermost_loop(after)
    if first is None and second is None:
        return True
    if first is not None and first == second:
        depth = max(len(before), len(after)) - first[0]
        return False if depth <= SHALLOW + 1 or _functions(before) == _functions(after) else None
    around = _loop_around(before, after, shared)
    if around is None:
        return True
    return False if max(len(before), len(after)) - around <= SHALLOW + 1 else None


def _places(stack: Stack) -> list[tuple[str, str, int]]:
    """(function, file, line), the leaf's line left out."""
    return [(f.function, f.file, f.line if index else 0) for index, f in enumerate(stack)]


def _functions(stack: Stack) -> list[tuple[str, str]]:
    return [(frame.function, frame.file) for frame in stack]


def _sources_known(stack: Stack) -> bool:
    return bool(stack) and all(
        f.library is not None or (f.source is not None and not f.source.alone) for f in stack
    )


def _innermost_loop(stack: Stack) -> tuple[int, int] | None:
    """(frame number from the outermost, line of the loop's header)."""
    for index, frame in enumerate(stack):
        if frame.source is not None and frame.source.loops:
            return (len(stack) - 1 - index, frame.source.loops[-1][0])
    return None


def _common(before: Stack, after: Stack) -> int:
    """The number of outer frames that are equal, lines too."""
    count = 0
    for first, second in zip(reversed(before), reversed(after), strict=False):
        if (first.function, first.file, first.line) != (second.function, second.file, second.line):
            break
        count += 1
    return count


def _loop_around(before: Stack, after: Stack, shared: int) -> int | None:
    """The number (from the outermost) of the innermost frame with a loop that holds both stacks."""
    if shared < min(len(before), len(after)):
        first, second = before[-1 - shared], after[-1 - shared]
        if (first.function, first.file) == (second.function, second.file) and _headers(first) & _headers(
            second
        ):
            return shared
    for number in range(shared - 1, -1, -1):
        if _headers(before[-1 - number]):
            return number
    return None


def _headers(frame: Frame) -> set[int]:
    return {line for line, _text in frame.source.loops} if frame.source is not None else set()
