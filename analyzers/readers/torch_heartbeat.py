"""ProcessGroupNCCL's heartbeat monitor: a stuck watchdog, and the signal that makes all ranks dump.

``from this local rank`` means that the printing rank timed out itself; ``from rank X`` that X did, and that
the printing rank had not: its own last enqueued work is then the best line in the log. Every rank prints its
default group's counters. torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 2.2 to 2.15.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = ("[PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal due to a collective timeout from "
...   " rank 4 and we will try our best to dump the debug info. Last enqueued NCCL work: 41, last completed "
...   "NCCL work: 41.")
>>> (event,) = read(Line(1, text, Origin(), "x.log"))
>>> event.kind, event.origin.rank, event.about, event.enqueued, event.completed
('dump-received', 5, (4,), 41, 41)
>>> text = "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress"
>>> (event,) = read(Line(2, text, Origin(rank=1), "x.log"))
>>> event.kind, event.seconds
('heartbeat-stuck', 480.0)
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm
from .torch_line import Message, messages
from .torch_watchdog import is_cut, status_of

_SIGNAL = re.compile(
    r"[Rr]eceived a (?:global )?dump signal (?:due to an? (?:collective timeout|exception) )?from\s{1,3}"
    r"(?:(?P<own>this local rank)|rank (?P<rank>\d{1,7}))"
)
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds")
_REMOTE = re.compile(r"remote error detected from rank: ?(?P<rank>\d{1,7})")
_BY_WORDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Heartbeat monitor timed out!", "heartbeat-stuck", {}),
    ("NCCL monitor thread timeout", "heartbeat-stuck", {}),
    ("monitoring thread detects no heartbeat", "heartbeat-stuck", {}),
    ("due to ProcessGroupNCCL watchdog hang", "heartbeat-stuck", {}),
    ("Could not acquire GIL within", "heartbeat-stuck", {"key": "GIL"}),
    ("First PG on this rank to signal dumping", "dump-sent", {}),
    ("Broadcasting flight recorder dump signal", "dump-sent", {}),
    ("Observed flight recorder dump signal from another rank", "dump-received", {}),
    ("destroy_process_group() was not called before program exit", "exit", {}),
)
"""The last one is printed by a process that comes to its regular end, with or without an exception."""


def read(line: Line) -> Facts:
    """The heartbeat monitor's events in a line; none in a wrapped one."""
    if "dump signal due to" in line.text and is_cut(line.text):
        return []
    return understood(line)


def understood(line: Line) -> list[LogEvent]:
    """The heartbeat monitor's events in a whole line."""
    return [event for message in messages(line) if (event := event_of(message)) is not None]


def event_of(message: Message) -> LogEvent | None:
    """What the heartbeat monitor says in a message; None when it says nothing of a hang."""
    text = message.text
    if (signal := _SIGNAL.search(text)) is not None:
        status = status_of(text) or {}
        if signal["own"]:
            return message.event("dump-sent", **status)
        return message.event("dump-received", about=(int(signal["rank"]),), **status)
    if (stuck := _STUCK.search(text)) is not None:
        return message.event("heartbeat-stuck", seconds=float(stuck["seconds"]))
    if (remote := _REMOTE.search(text)) is not None:
        return message.event("dump-received", about=(int(remote["rank"]),))
    for words, kind, facts in _BY_WORDS:
        if words in text:
            return message.event(kind, **facts)
    return None


FORM = LineForm(
    name="torch-heartbeat",
    title="torch heartbeat monitor and dump signals, 2.2 to 2.15",
    needles=(
        "dump signal",
        "watchdog got stuck",
        "remote error detected from rank",
        "to signal dumping",
        *(words for words, _, _ in _BY_WORDS),
    ),
    read=read,
)
