"""gloo's monitored barrier: rank 0 of the group names the ranks that did not come in time.

``Rank 1 failed`` may be only the first of several (without ``wait_all_ranks`` it looks no further);
``Ranks 1, 3 failed`` is all of them. Ranks are of the group, whose name is not printed. In DETAIL mode every
collective begins with such a barrier. torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, 1.8 to 2.15.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms"
>>> (event,) = read(Line(1, text, Origin(rank=0), "x.log"))
>>> event.kind, event.about, event.about_group_ranks, event.limit, event.group_rank
('barrier-missing', (1, 3), True, 3.0, 0)
>>> text = "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv"
>>> (event,) = read(Line(2, text, Origin(rank=2), "x.log"))
>>> event.kind, event.group_rank
('stall-waiting', 2)
"""

from __future__ import annotations

import re

import msgspec

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm
from .torch_line import Message, messages, ranks

_MISSING = re.compile(
    r"\[Rank 0\]: Ranks? (?P<ranks>[\d, ]{1,60000}?) failed to pass monitoredBarrier"
    r"(?: in (?P<ms>\d{1,12}) ?ms)?"
)
_REACHED = re.compile(r"Rank (?P<rank>\d{1,7}) successfully reached monitoredBarrier, but received errors")
_LATE = re.compile(r"Rank \d{1,7} timed out in monitoredBarrier after (?P<ms>\d{1,12}) ?ms")
KEY = "monitoredBarrier"


def read(line: Line) -> Facts:
    """Who did not come, or that the printing rank came and nobody answered it."""
    return [event for message in messages(line) if (event := _event(message)) is not None]


def _event(message: Message) -> LogEvent | None:
    text = message.text
    if match := _MISSING.search(text):
        speaker = msgspec.structs.replace(message, group_rank=0)
        return speaker.event(
            "barrier-missing",
            about=ranks(match["ranks"]),
            about_group_ranks=True,
            limit=int(match["ms"]) / 1000 if match["ms"] else None,
            key=KEY,
        )
    if match := _REACHED.search(text):
        return message.event("stall-waiting", group_rank=int(match["rank"]), key=KEY)
    if match := _LATE.search(text):
        return message.event("wait-timeout", limit=int(match["ms"]) / 1000, key=KEY)
    return None


FORM = LineForm(
    name="monitored-barrier",
    title="gloo monitored barrier, torch 1.8 to 2.15",
    needles=("monitoredBarrier",),
    read=read,
)
