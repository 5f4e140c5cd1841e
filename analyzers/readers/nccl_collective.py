"""NCCL: one line for every collective that the host asks for (COLL subsystem, src/enqueue.cc, 2.4 → 2.32).

>>> from hangscope.model.loose import NOBODY
>>> from .interface import Line
>>> text = ("node-a:411:502 [0] NCCL INFO AllReduce: opCount 2c sendbuff 0x7f0 recvbuff 0x7f0 count 1024 "
...   "datatype 9 op 0 root 0 comm 0x5500 [nranks=4] stream 0x9100")
>>> event = read(Line(9, text, NOBODY, "x.log"))[0]
>>> event.operation, event.sequence, event.counter, event.sizes, event.dtype, event.key
('AllReduce', 44, 'nccl', '1024', 'bfloat16', 'comm 0x5500 nranks 4 op 0 root 0')

opCount is hexadecimal and counts launched plans: the members of one group share it, so that the number of
lines tells more. The line is written on the calling thread before the launch. For Send and Recv ``root`` is
the peer. A line that was torn or cut has no ``sequence``: some launch is missing from the count, and where
not even the head is left, of nobody knows which process.

RCCL's trace of the device (``KL``: a kernel began, ``KE``: it ended) has the rank in its brackets:

>>> text = "node-a:411:502 [0] NCCL INFO ## [ 1004.466647] [03:01] 00028c KL hwid 42802110 funcIndex 1508"
>>> event = read(Line(9, text, NOBODY, "x.log"))[0]
>>> event.kind, event.operation, event.group_rank, event.sequence, event.counter
('nccl-kernel', 'begin', 3, 652, 'rccl')
"""

from __future__ import annotations

import re

from hangscope.model.loose import NOBODY, LogEvent

from .interface import MOST_LINE, Line, LineForm
from .nccl_line import MOST_TEXT, NcclLine, messages

_COLL = re.compile(
    r"(?P<name>[A-Za-z]\w{1,40}): opCount (?P<count>[0-9a-f]{1,16}) sendbuff \S{1,20} recvbuff \S{1,20} "
    r"count (?P<size>\d{1,20}) datatype (?P<dtype>\d{1,3}) op (?P<op>-?\d{1,12}) root (?P<root>-?\d{1,9}) "
    r"comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<nranks>\d{1,7})\]"
)
_KERNEL = re.compile(
    r"## \[ {0,12}\d{1,12}\.\d{1,9}\] \[(?P<rank>\d{1,7}):\d{1,5}\] "
    r"(?P<count>[0-9a-f]{6,16}) (?P<what>KL|KE)\b"
)
_FRAGMENT = re.compile(r"\bopCount [0-9a-f]|\[nranks=\d")
DTYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
)
"""ncclDataType_t (nccl.h), with torch's names."""


def read(line: Line) -> list[LogEvent]:
    """The launches in one line, and one more event for what is left of others."""
    found = []
    whole = 0
    owner: NcclLine | None = None
    for said in messages(line):
        event = _launch(said) or _kernel(said)
        if event is not None:
            whole += event.kind == "nccl-collective"
            found.append(event)
        elif _FRAGMENT.search(said.text) is not None:
            owner = said
    if line.text.count("opCount ") + line.text.count("[nranks=") > 2 * whole and _has_fragments(line, whole):
        found.append(_damaged(line, owner))
    return found


def _has_fragments(line: Line, whole: int) -> bool:
    return len(_FRAGMENT.findall(line.text[:MOST_LINE])) > 2 * whole


def _damaged(line: Line, owner: NcclLine | None) -> LogEvent:
    known = owner is not None and not owner.torn and owner.text.find(": opCount ") > 0
    return LogEvent(
        kind="nccl-collective",
        origin=owner.origin if owner is not None and known else NOBODY,
        counter="nccl",
        text=line.text[:MOST_TEXT],
        ref=line.ref,
    )


def _launch(said: NcclLine) -> LogEvent | None:
    match = _COLL.match(said.text)
    if match is None or said.pid is None:
        return None
    number = int(match["dtype"])
    return LogEvent(
        kind="nccl-collective",
        origin=said.origin,
        sequence=int(match["count"], 16),
        counter="nccl",
        operation=match["name"],
        sizes=match["size"],
        dtype=DTYPES[number] if number < len(DTYPES) else f"datatype {number}",
        peer=int(match["root"]) if match["name"] in ("Send", "Recv") else None,
        key=f"comm {match['comm']} nranks {match['nranks']} op {match['op']} root {match['root']}",
        text=said.shown,
        ref=said.line.ref,
    )


def _kernel(said: NcclLine) -> LogEvent | None:
    match = _KERNEL.match(said.text)
    if match is None:
        return None
    return LogEvent(
        kind="nccl-kernel",
        origin=said.origin,
        group_rank=int(match["rank"]),
        sequence=int(match["count"], 16),
        counter="rccl",
        operation="begin" if match["what"] == "KL" else "end",
        text=said.shown,
        ref=said.line.ref,
    )


FORM = LineForm(
    name="nccl-collective",
    title="NCCL log: collectives launched (COLL)",
    needles=("opCount ", "[nranks=", "NCCL INFO ## ["),
    read=read,
)
