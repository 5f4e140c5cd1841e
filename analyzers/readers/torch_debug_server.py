"""What torch.distributed.debug wrote or showed: stacks of every rank.

Each rank's part begins with ``=== Rank N: http://HOST:PORT… ===``; the number is the global rank. Below it
stands faulthandler's text (``stacks_*.txt``) or py-spy's (``pyspy_dump_*.txt``); saved pages of the server
have ``<h2>Rank N: …</h2>`` and ``<pre>``. A rank that did not answer has ``Error: 408``: stopped, dead, or
without its GIL. torch/distributed/debug, 2.10 to 2.13.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = '''=== Rank 0: http://node-a:41001/handler/dump_traceback? ===
... Thread 0x00007ff707404b80 (most recent call first):
...   File "/job/train.py", line 43 in step
... === Rank 1: http://node-b:41001/handler/dump_traceback? ===
... Error: 408'''
>>> lines = [Line(n, row, Origin(), "x.txt") for n, row in enumerate(text.splitlines(), 1)]
>>> (dump,), end = read(lines, 0)
>>> dump.origin.rank, dump.origin.node, dump.tool, dump.threads[0].frames[0].function, end
(0, 'node-a', 'faulthandler', 'step', 3)
>>> (dump,), end = read(lines, 3)
>>> dump.origin.rank, dump.threads, dump.problem, end
(1, (), 'torch.distributed.debug got no stacks of this rank: 408', 5)
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import msgspec

from hangscope.model.loose import LooseFact, Origin, StackDump

from . import faulthandler, py_spy_text
from .interface import BlockForm, Facts, Line

_HEAD = re.compile(
    r"\s{0,40}(?:=== |<h2>)Rank (?P<rank>\d{1,7}): https?://"
    r"(?P<host>\[[0-9A-Fa-f:.%\w]{2,60}\]|[^/:\s<]{1,255})(?::\d{1,5})?[^\s<]{0,300}(?: ===|</h2>)\s*$"
)
_ERROR = re.compile(r"(?:<p>)?\s{0,40}(?:Error|Failed to fetch: status)[:=] ?(?P<code>\d{3})")
_PAGE = re.compile(r"</?(?:pre|p|div|h2|br)>")
_MOST_LINES = 20_000


def read(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """The stacks of one rank, and the index behind them."""
    speaker = head_origin(lines[index])
    if speaker is None:
        return [], index
    section = _section(lines, index + 1, speaker)
    place, facts = 0, list[LooseFact]()
    while place < len(section):
        found, end = _stacks(section, place)
        if end <= place:
            break
        facts += [_spoken(fact, speaker) for fact in found]
        place = end
    if not facts and section and (error := _ERROR.match(section[0].text)) is not None:
        why = f"torch.distributed.debug got no stacks of this rank: {error['code']}"
        facts.append(StackDump(tool="traceback", origin=speaker, problem=why, ref=lines[index].ref))
        place = 1
    return facts, index + 1 + place


def head_origin(line: Line) -> Origin | None:
    """The rank and host whose answer follows; None when the line is no such head."""
    head = _HEAD.match(line.text[:1000])
    if head is None:
        return None
    node = head["host"].strip("[]")
    return msgspec.structs.replace(line.origin, rank=int(head["rank"]), node=node, source="content")


def _section(lines: Sequence[Line], start: int, speaker: Origin) -> list[Line]:
    """The lines up to the next rank's, as they were before a page took them."""
    found: list[Line] = []
    for index in range(start, min(len(lines), start + _MOST_LINES)):
        line = lines[index]
        if _HEAD.match(line.text[:1000]):
            break
        text = html.unescape(_PAGE.sub("", line.text)) if "<" in line.text or "&" in line.text else line.text
        found.append(Line(line.number, text, speaker, line.path))
    return found


def _stacks(section: Sequence[Line], place: int) -> tuple[Facts, int]:
    facts, end = faulthandler.read(section, place)
    return (facts, end) if end > place else py_spy_text.read(section, place)


def _spoken(fact: LooseFact, speaker: Origin) -> LooseFact:
    """The head's rank stands, whatever a process title says."""
    if not isinstance(fact, StackDump):
        return fact
    origin = msgspec.structs.replace(fact.origin, rank=speaker.rank, node=speaker.node, source="content")
    return msgspec.structs.replace(fact, origin=origin)


FORM = BlockForm(
    name="torch-debug-server",
    title="torch.distributed.debug: stacks of all ranks",
    openers=("=== Rank ", "<h2>Rank "),
    read=read,
)
