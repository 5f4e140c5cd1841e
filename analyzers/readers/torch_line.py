"""What all of torch's C++ messages have in common: a c10 head, and the process group that speaks.

``[Rank 1]`` inside a message is the rank inside that process group (WorkNCCL's own lines name no group); the
global rank stands in the ``[rank9]:`` in front of it (c10/util/Logging.cpp, torch 2.2 and newer). Only in the
default group are both the same.

>>> from .interface import Line
>>> text = "[E820 10:11:12.01 ProcessGroupNCCL.cpp:2241] [PG ID 5 PG GUID 37(TENSOR_GROUP) Rank 1] Hello"
>>> (said,) = messages(Line(7, text, Origin(rank=9, source="prefix"), "x.log"))
>>> said.text, said.group, said.group_desc, said.group_rank, said.origin.rank
('[PG ID 5 PG GUID 37(TENSOR_GROUP) Rank 1] Hello', '37', 'TENSOR_GROUP', 1, 9)
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hangscope.model.loose import LogEvent, Origin

from .interface import MOST_LINE, Line

MOST_TEXT = 400
DEFAULT_GROUP = "0"
"""The GUID of the group that init_process_group makes (torch/distributed/distributed_c10d.py)."""

_HEAD = re.compile(
    r"(?:\[rank(?P<rank>\d{1,7})\]:)?"
    r"(?:\[[IWEF](?P<date>\d{3,4} \d\d:\d\d:\d\d\.\d{1,9})? ?[\w/.-]{1,200}\.(?:cpp|hpp|h|py):\d{1,6}\]"
    r"|(?<![A-Za-z\d])[IWEF](?P<glog>\d{4} \d\d:\d\d:\d\d\.\d{1,9}) {1,8}\d{1,9} [\w/.-]{1,200}:\d{1,6}\])"
)
"""c10: ``[E ProcessGroupNCCL.cpp:458]`` (2.3 and older), ``[E1206 18:44:12.7 ProcessGroupNCCL.cpp:607]``
(month without padding); glog builds, and Python's elastic logger: ``I0820 14:27:21.4 4030 file:1669]``."""
_EXCEPTHOOK = re.compile(r"(?:\[rank(?P<rank>\d{1,7})\]: ?){1,2}")
_GROUP = re.compile(
    r"\[(?:PG (?:ID \d{1,9} PG GUID (?P<guid>[^\s(\]]{1,200})(?:\((?P<desc>[^)\]]{0,200})\))?"
    r"|(?P<name>[^\s\]]{1,200})(?: \((?P<name_desc>[^)\]]{0,200})\))?) )?Rank (?P<rank>\d{1,7})\]"
)

_CONTINUED = re.compile(
    r"#\d{1,4} .{1,300} from \S{1,1000}:\d{1,9}$"
    r"|\s{1,12}(?:- )?(?:\[[\d, ]{1,4000}\] (?:joined|finished|started|Timeout at) |To our best knowledge"
    r"|Snapshot of ranks' latest|#\d{1,15} (?:started|finished) ranks:)"
)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of one writer: a line, or a part of one in which several stand."""

    text: str
    """Without head and prefixes."""
    origin: Origin
    """``rank``: from ``[rankN]:``, from the line's prefix, or the group's where that is the default group."""
    group: str | None = None
    group_desc: str | None = None
    group_rank: int | None = None
    line: Line

    def event(self, kind: str, **facts: Any) -> LogEvent:
        """A LogEvent of this message; ``facts`` override what the message tells of its writer."""
        told: dict[str, Any] = {
            "origin": self.origin,
            "group": self.group,
            "group_desc": self.group_desc,
            "group_rank": self.group_rank,
            "text": self.text[:MOST_TEXT],
            "ref": self.line.ref,
        }
        return LogEvent(kind=kind, **(told | facts))


def messages(line: Line) -> list[Message]:
    """The messages of a line in their order, at least one: ranks that share a pipe glue theirs together."""
    text = line.text[:MOST_LINE]
    heads = list(_HEAD.finditer(text))
    starts = [head.start() for head in heads] + [len(text)]
    found = [_message(text[: starts[0]], None, line)] if text[: starts[0]].strip() or not heads else []
    for head, end in zip(heads, starts[1:], strict=True):
        found.append(_message(text[head.end() : end], head, line))
    return found


def _message(text: str, head: re.Match[str] | None, line: Line) -> Message:
    text = text.strip()
    rank = head["rank"] if head else None
    if head is None and (told := _EXCEPTHOOK.match(text)):
        rank, text = told["rank"], text[told.end() :]
    origin = line.origin
    if rank is not None:
        origin = msgspec.structs.replace(origin, rank=int(rank), source="content")
    place = _GROUP.search(text[:1000])
    if place is None:
        return Message(text=text, origin=origin, line=line)
    numbered_locally = head is not None and not (head["date"] or head["glog"])
    group, desc = _named(place, numbered_locally)
    group_rank = int(place["rank"])
    if origin.rank is None and (group == DEFAULT_GROUP or desc == "default_pg"):
        origin = msgspec.structs.replace(origin, rank=group_rank, source="content")
    return Message(text=text, origin=origin, group=group, group_desc=desc, group_rank=group_rank, line=line)


def _named(place: re.Match[str], numbered_locally: bool) -> tuple[str | None, str | None]:
    """(name equal on all members, description). ``[PG 1 Rank 0]`` of torch 2.3, whose heads have no date,
    counts the groups of the process that prints it: only its 0 means the same group everywhere."""
    if place["guid"] is not None:
        return place["guid"], place["desc"] or None
    name, desc = place["name"], place["name_desc"] or None
    if numbered_locally and desc is None and name != DEFAULT_GROUP:
        return None, None
    return name, desc


def continues(text: str) -> bool:
    """Whether a line without a prefix belongs to the message of the line before it: a stack or a desync
    report, which c10's logger writes in one piece and prefixes once.

    >>> continues("#0 all_reduce from /env/torch/distributed_c10d.py:3174"), continues("step 4")
    (True, False)
    """
    return text[:1] in "#\t " and text != "" and _CONTINUED.match(text) is not None


def operation(name: str) -> str:
    """An OpType as the flight recorder writes it (c10d/Types.cpp → profiling names).

    >>> operation("ALLREDUCE"), operation("_ALLGATHER_BASE"), operation("SEND"), operation("NEW_ONE")
    ('all_reduce', '_all_gather_base', 'send', 'new_one')
    """
    return _OPERATIONS.get(name, name.lower())


_OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "allreduce_coalesced",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "_all_gather_base",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "_reduce_scatter_base",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
    "RECVANYSOURCE": "recv",
}

POINT_TO_POINT = frozenset({"send", "recv"})


def counter(kind: str | None) -> str:
    """Which counter a sequence of torch belongs to: point-to-point operations are not counted with the
    collectives (ProcessGroupNCCL.cpp, seqP2P_), and coalesced ones by either, as their first operation is."""
    if kind in POINT_TO_POINT:
        return "torch-p2p"
    return "torch-coalesced" if kind == "coalesced" else "torch"


def ranks(text: str) -> tuple[int, ...]:
    """``0, 1, 5`` (at most 100,000 of them), in their order.

    >>> ranks("3, 1"), ranks(" "), ranks("0,1,x")
    ((3, 1), (), (0, 1))
    """
    return tuple(int(word) for word in re.findall(r"\d{1,7}", text)[:100_000])
