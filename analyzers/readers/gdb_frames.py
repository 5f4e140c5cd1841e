r"""One line of gdb's backtrace → a frame, in all short forms; prompts and the pager's questions taken off.

>>> frame = frame_of("#1  0x00007f41 in c10d::Work::wait(std::ratio<1l>) (this=0x1, t=...) from /v/torch.so")
>>> frame.function, frame.library
('c10d::Work::wait(std::ratio<1l>)', '/v/torch.so')
>>> frame_of("#0 __lll_lock_wait (futex=0x7f76, private=0x0) at lowlevellock.c:52").line
52
>>> frame_of("#3 0x9 in ?? ()").function, frame_of("#0 all_reduce from x/distributed_c10d.py:3174")
('??', None)
>>> cleaned("(gdb) --Type <RET> for more, q to quit, c to continue without paging--#2  main ()")
'#2  main ()'
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.facts import Frame

from .interface import MOST_LINE, Line

LONGEST = 500
WRAPPED = ("    ", "\t")
"""What gdb begins the rest of a wrapped line with."""

_PAGER = re.compile(r"-{2,3}Type <(?:RET|return)> (?:for more|to continue)[^-]{0,80}-{2,3}(?:c$|c(?=#))?")
_PROMPT = re.compile(r"^(?:\((?:cuda-)?gdb\) ?)+")
_FRAME = re.compile(r"#(?P<number>\d{1,5})\s{1,3}(?:(?P<address>0x[0-9a-f]{1,16}) in )?(?P<rest>\S.*)")
_PLACE = re.compile(r" (?P<how>at|from) (?P<file>\S{1,1000}?)(?::(?P<line>\d{1,9}))?$")
_ANY_FRAME = re.compile(r"#\d{1,5}\s")


def cleaned(text: str) -> str:
    """The line without gdb's prompts and its pager's questions."""
    text = _PROMPT.sub("", text)
    if "-Type <" in text:
        text = _PAGER.sub("", text)
    return _PROMPT.sub("", text)


def frame_of(text: str) -> Frame | None:
    """The frame; None when the line is none. Frames without debug information have their library as file."""
    found = _FRAME.fullmatch(text.rstrip())
    if found is None:
        return None
    rest, file, number, library = found["rest"], "", 0, "?"
    place = _PLACE.search(rest[-1200:])
    if place is not None:
        file = place["file"]
        number = int(place["line"] or 0)
        library = file if place["how"] == "from" or place["line"] is None else "?"
        rest = rest[: len(rest) - len(place[0])]
    function = _function(rest)
    if function is None:
        return None
    return Frame(function=function[:LONGEST], file=file, line=number, library=library)


def _function(text: str) -> str | None:
    """The function of ``f(int) (x=1, y=...)``: what stands before the last group of parentheses, whose
    strings may hold any. None when there is no such group."""
    if text.startswith("<signal handler called>"):
        return "<signal handler called>"
    if not text.endswith(")"):
        cut = text.find(" (")
        return text[:cut].strip() or None if cut > 0 else None
    depth, quoted = 0, False
    for index in range(len(text) - 1, 0, -1):
        if text[index] == '"' and text[index - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += (text[index] == ")") - (text[index] == "(")
        if depth == 0:
            return text[:index].rstrip() or None if text[index - 1] == " " else None
    cut = text.find(" (")
    return text[:cut].strip() or None if cut > 0 else None


def frames_of(lines: Sequence[Line], start: int, most: int = 3000) -> tuple[list[Frame], int]:
    """The frames from ``start`` on, innermost first, and the index behind them. gdb wraps its lines: what
    is indented belongs to the line before. A second ``#0`` is another stack's."""
    frames: list[Frame] = []
    index, number = start, -1
    while index < len(lines) and len(frames) < most:
        text = cleaned(lines[index].text)
        if not text.strip():
            index += 1
            continue
        found = _FRAME.fullmatch(text)
        if found is None or int(found["number"]) <= number:
            break
        text, end = _whole(lines, index, text)
        frame = frame_of(text)
        if frame is None:
            break
        number, index = int(found["number"]), end
        frames.append(frame)
    return frames, index


def _whole(lines: Sequence[Line], index: int, text: str) -> tuple[str, int]:
    """The frame's line with those that it was wrapped to."""
    index += 1
    while index < len(lines) and len(text) < MOST_LINE:
        following = cleaned(lines[index].text)
        if following.startswith(WRAPPED) and not _ANY_FRAME.match(following.lstrip()):
            text = f"{text.rstrip()} {following.strip()}"
        elif following.strip():
            break
        index += 1
    return text, index
