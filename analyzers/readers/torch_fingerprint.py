"""Collective fingerprints of TORCH_DISTRIBUTED_DEBUG=DETAIL: what each rank runs, and where two differ.

``Detected mismatch``: the rank named first is the one that *prints* it, no more guilty than the other. Ranks
are of the group, and the counter is the wrapper's own. torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp:
1.9 names one rank and no number, 1.11 has no commas, 1.13 and newer name two.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = ("RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running collective: "
...   "CollectiveFingerPrint(SequenceNumber=7, OpType=BROADCAST, TensorShape=[4]), but Rank 0 is running "
...   "collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[4])."
...   "Collectives differ in the following aspects:   Op type: BROADCASTvs ALLREDUCE")
>>> mismatch, own, other = read(Line(1, text, Origin(rank=6), "x.log"))
>>> mismatch.kind, mismatch.about, mismatch.sequence, mismatch.operation, mismatch.key
('fingerprint-mismatch', (2, 0), 7, 'broadcast, all_reduce', 'Op type: BROADCASTvs ALLREDUCE')
>>> for event in (own, other):
...     print(event.kind, event.operation, event.group_rank, event.origin.rank)
fingerprint broadcast 2 6
fingerprint all_reduce 0 None
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm
from .torch_line import Message, messages, operation

_PRINT = re.compile(
    r"(?:Rank (?P<rank>\d{1,7}) is running (?:inconsistent )?collective: ?)?"
    r"CollectiveFingerPrint\((?:SequenceNumber=(?P<seq>\d{1,19}),? ?)?OpType=(?P<op>\w{1,60}?)"
    r"(?=TensorShape|TensorDtypes|[,)])(?:,? ?TensorShape=\[(?P<shape>[^\]]{0,300})\])?"
    r"(?:,? ?TensorDtypes=(?P<dtype>\w{1,30}))?"
)
_NOT_THE_PRINTER: dict[str, Any] = {
    "rank": None,
    "local_rank": None,
    "pid": None,
    "node": None,
    "source": None,
}
_ASPECTS = re.compile(r"Collectives differ in the following aspects:\s{0,9}(?P<what>[^\n]{1,300})")


def read(line: Line) -> Facts:
    """A mismatch and the fingerprints in it, or one rank's own fingerprint. A fingerprint's ``origin`` and
    ``group_rank`` are those of the rank that runs it, which is not always the one that prints it."""
    return [event for message in messages(line) for event in _events(message)]


def _events(message: Message) -> list[LogEvent]:
    prints = list(_PRINT.finditer(message.text))[:2]
    if not prints:
        return []
    if "Detected mismatch between collectives" not in message.text:
        # "Running collective: …", and "Monitored Barrier encountered error running collective: …"
        return [message.event("fingerprint", **_told(prints[0]))]
    if message.group_rank is None and prints[0]["rank"]:
        message = msgspec.structs.replace(message, group_rank=int(prints[0]["rank"]))
    if len(prints) == 2 and _garbage(*prints):
        prints = prints[:1]
    own = message.event("fingerprint", **_told(prints[0]))
    found = [_mismatch(message, prints), own]
    if len(prints) == 2 and prints[1]["rank"]:
        other = msgspec.structs.replace(message.origin, **_NOT_THE_PRINTER)
        found.append(
            message.event("fingerprint", origin=other, group_rank=int(prints[1]["rank"]), **_told(prints[1]))
        )
    return found


def _mismatch(message: Message, prints: list[re.Match[str]]) -> LogEvent:
    told = _told(prints[0])
    told["operation"] = ", ".join(operation(one["op"]) for one in prints)
    if len(prints) == 2 and prints[0]["seq"] != prints[1]["seq"]:
        told.pop("sequence", None)
    aspects = _ASPECTS.search(message.text)
    return message.event(
        "fingerprint-mismatch",
        about=tuple(int(one["rank"]) for one in prints if one["rank"]),
        about_group_ranks=True,
        key=aspects["what"].strip() if aspects else None,
        **told,
    )


def _told(match: re.Match[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {"counter": "fingerprint", "operation": operation(match["op"])}
    if match["seq"]:
        facts["sequence"] = int(match["seq"])
    if match["shape"] is not None:
        facts["sizes"] = f"[{match['shape']}]"
    if match["dtype"]:
        facts["dtype"] = match["dtype"]
    return facts


def _garbage(own: re.Match[str], other: re.Match[str]) -> bool:
    """``SequenceNumber=0, OpType=GATHER`` of a peer that was in another phase: no fingerprint, but whatever
    bytes it sent."""
    return bool(own["seq"] and own["seq"] != "0" and other["seq"] == "0" and not other["shape"])


FORM = LineForm(
    name="torch-fingerprint",
    title="torch collective fingerprints (DETAIL), 1.9 to 2.15",
    needles=("CollectiveFingerPrint(",),
    read=read,
)
