"""``Stack trace of the failed collective:``: where the operation that timed out was issued.

Printed with the watchdog's lines when the flight recorder runs (torch 2.6 to 2.15, ProcessGroupNCCL.cpp). It
is the place of the call in that rank's program, kept by the recorder; the thread may stand elsewhere by now.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = '''[rank1]:[E812 09:00:01.5 ProcessGroupNCCL.cpp:801] Stack trace of the failed collective:
... #0 all_reduce from /env/torch/distributed/distributed_c10d.py:3174
... #1 step from /job/train.py:88
... done'''
>>> lines = [Line(n, row, Origin(), "x.log") for n, row in enumerate(text.splitlines(), 1)]
>>> (dump,), end = read(lines, 0)
>>> dump.origin.rank, [(f.function, f.line) for f in dump.threads[0].frames], end
(1, [('all_reduce', 3174), ('step', 88)], 3)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import Frame
from hangscope.model.loose import DumpedThread, StackDump

from .interface import BlockForm, Facts, Line
from .torch_line import messages

TITLE = "stack trace of the failed collective"
_FRAME = re.compile(
    r"\s{0,8}#(?P<index>\d{1,4}) (?P<function>.{1,300}) from (?P<file>\S{1,1000}):(?P<line>\d{1,9})\s*$"
)
_OPENER = re.compile(
    r"[Ss]tack trace of the (?:failed|timedout|timed out) collective(?: operation)?: *(?P<rest>#0 .*)?$"
)
_MOST_FRAMES = 200


def read(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """The stack as a dump of one thread, innermost first; nothing when no frame follows."""
    said = messages(lines[index])[-1]
    opener = _OPENER.search(said.text)
    if opener is None:
        return [], index
    frames: list[Frame] = []
    if opener["rest"] and (frame := _frame(opener["rest"], 0)):
        frames.append(frame)
    end = index + 1
    while end < len(lines) and len(frames) < _MOST_FRAMES:
        following = _frame(lines[end].text, len(frames))
        if following is None:
            break
        frames.append(following)
        end += 1
    if not frames:
        return [], index
    thread = DumpedThread(frames=tuple(frames), main=None, ref=lines[index].ref)
    origin = msgspec.structs.replace(said.origin)
    return [
        StackDump(tool="traceback", origin=origin, title=TITLE, threads=(thread,), ref=lines[index].ref)
    ], end


def _frame(text: str, expected: int) -> Frame | None:
    match = _FRAME.match(text[:1500])
    if match is None or int(match["index"]) != expected:
        return None
    native = not match["file"].endswith((".py", ">"))
    return Frame(
        function=match["function"],
        file=match["file"],
        line=int(match["line"]),
        library="?" if native else None,
    )


FORM = BlockForm(
    name="torch-failed-stack",
    title="torch stack trace of the failed collective, 2.6 to 2.15",
    openers=("tack trace of the failed collective:", "tack trace of the timedout collective"),
    read=read,
)
