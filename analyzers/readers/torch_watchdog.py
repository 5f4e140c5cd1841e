"""ProcessGroupNCCL's watchdog: time-outs, and what the group had enqueued and completed by then.

Texts of torch 1.9 (no SeqNum) to 2.15 and of the nccl2 back end, c10d/ProcessGroupNCCL.cpp. The rank that
prints them is a victim. Work of other vendors (WorkHCCL, WorkXCCL) reads the same.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = ("[E814 13:15:55.5 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
...   "timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran "
...   "for 600077 milliseconds before timing out.")
>>> (event,) = read(Line(1, text, Origin(rank=4), "x.log"))
>>> event.kind, event.sequence, event.operation, event.sizes, event.seconds
('watchdog-timeout', 42, 'all_reduce', '8 -> 8', 600.077)
>>> event.group_rank, event.origin.rank
(0, 4)
>>> text = "[PG 0 Rank 3] Timeout at NCCL work: 8, last enqueued NCCL work: 9, last completed NCCL work: 7."
>>> (event,) = read(Line(1, text, Origin(), "x.log"))
>>> event.kind, event.sequence, event.enqueued, event.completed, event.origin.rank
('watchdog-status', 8, 9, 7, 3)
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.model.loose import NOBODY, LogEvent

from .interface import Facts, Line, LineForm
from .torch_line import Message, counter, messages, operation

_WORK = re.compile(
    r"Work[A-Z]{3,6}\((?:SeqNum=(?P<seq>\d{1,19}), ?)?OpType=(?P<op>\w{1,60})(?=[,) ])"
    r"(?:, ?TensorShape=\[(?P<shape>[^\]]{0,200})\])?"
    r"(?:, ?NumelIn=(?P<numel_in>\d{1,19}), ?NumelOut=(?P<numel_out>\d{1,19})(?=[,)]))?"
    r"(?:, ?Timeout\(ms\)=(?P<limit>\d{1,15})\))?"
)
_RAN = re.compile(r"ran for ?(?P<ms>\d{1,15}) ?milliseconds")
_STATUS = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: ?(?P<enqueued>-?\d{1,20})(?: \(\w{0,60}\))?"
    r"(?:, last started (?:NCCL )?work: ?(?P<started>-?\d{1,20})(?: \((?P<op>\w{0,60})\))?)?"
    r", ?last completed (?:NCCL )?work: ?(?P<completed>-?\d{1,20})"
)
_AT = re.compile(r"(?:watchdog at work(?: sequence id)?|Timeout at NCCL work): ?(?P<seq>\d{1,19})")
_ASYNC = (
    "found async exception when checking for NCCL errors",
    "raised the following async exception",
)
_ENDED = (
    "watchdog thread terminated with exception",
    "NCCL operations have failed or timed out",
    "watchdog thread terminated with an unknown exception",
)
_TIMED_OUT = (
    "Watchdog caught collective operation timeout",
    "NCCL operation timed out",
    "timeout - collective operation timed out",
)
_CUT = re.compile(r"Watchdog caught|detected by watchdog|Timeout at NCCL work|dump signal due to")
_WHOLE = re.compile(
    r"before timing out|last completed (?:NCCL work: ?-?\d{1,20}\.|work: ?-?\d{1,20}(?:\D|$))"
)
"""Ends of these messages; a full stop stands behind the old form, so that a number cut in two is seen."""
_NARROWEST, _WIDEST = 40, 200
"""Characters of a line that a terminal may have wrapped."""


def read(line: Line) -> Facts:
    """The watchdog's events in a line; none where the line was wrapped (``torch_wrapped`` has it)."""
    return [] if is_cut(line.text) else understood(line)


def understood(line: Line) -> list[LogEvent]:
    """The watchdog's events in a whole line."""
    return [event for message in messages(line) for event in _events(message)]


def _events(message: Message) -> list[LogEvent]:
    text = message.text
    if "dump signal" in text:
        return []
    found = []
    if message.group_rank is not None and (status := status_of(text)) is not None:
        at = _AT.search(text)
        found.append(message.event("watchdog-status", sequence=int(at["seq"]) if at else None, **status))
    if (kind := _kind(text)) is not None:
        found.append(message.event(kind, **_work(text)))
    return found


def _kind(text: str) -> str | None:
    if any(ended in text for ended in _ENDED):
        return "watchdog-ended"
    if any(words in text for words in _ASYNC):
        return (
            "nccl-network" if "remote process exited or there was a network error" in text else "nccl-warning"
        )
    if any(words in text for words in _TIMED_OUT):
        return "watchdog-timeout"
    if "timed out in blocking wait" in text:
        return "wait-timeout"
    return None


def _work(text: str) -> dict[str, Any]:
    """The operation that a message is about; seconds."""
    facts: dict[str, Any] = {}
    if (ran := _RAN.search(text)) is not None:
        facts["seconds"] = int(ran["ms"]) / 1000
    work = _WORK.search(text)
    if work is None:
        return facts
    kind = operation(work["op"])
    facts |= {"operation": kind, "counter": counter(kind)}
    if work["seq"]:
        facts["sequence"] = int(work["seq"])
    if work["numel_in"]:
        facts["sizes"] = f"{work['numel_in']} -> {work['numel_out']}"
    elif work["shape"] is not None:
        facts["sizes"] = f"[{work['shape']}]"
    if work["limit"]:
        facts["limit"] = int(work["limit"]) / 1000
    return facts


def status_of(text: str) -> dict[str, Any] | None:
    """``last enqueued …, last started …, last completed …`` as fields of a LogEvent; None when it has none.
    What never happened is printed as -1, and by 2.3 as any large number; both become -1."""
    match = _STATUS.search(text)
    if match is None:
        return None
    enqueued, started, completed = (
        None if number is None else int(number) for number in match.group("enqueued", "started", "completed")
    )
    if enqueued is None or completed is None or enqueued >= 1 << 63:
        return None
    if completed > enqueued:
        completed = -1
    facts = {"enqueued": enqueued, "completed": completed}
    if started is not None and started <= enqueued:
        facts["started"] = started
    return facts


def is_cut(text: str) -> bool:
    """Whether such a message ends too early: a terminal or a pager wrapped its line."""
    if not _NARROWEST <= len(text) <= _WIDEST:
        return False
    last = messages(Line(0, text, NOBODY, ""))[-1].text
    return _CUT.search(last) is not None and not is_whole(last)


def is_whole(text: str) -> bool:
    """Whether the end of such a message is in the text."""
    return _WHOLE.search(text) is not None


FORM = LineForm(
    name="torch-watchdog",
    title="torch ProcessGroupNCCL watchdog, 1.9 to 2.15",
    needles=(
        "atchdog",
        "ast enqueued ",
        "NCCL operations have failed",
        "NCCL operation timed out",
        "collective operation timed out",
        "timed out in blocking wait",
        "async exception",
    ),
    read=read,
)
