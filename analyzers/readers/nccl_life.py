"""NCCL: how a communicator is formed and ended (upstream src/init.cc of 2.4 → 2.32).

>>> from hangscope.model.loose import NOBODY
>>> from .interface import Line
>>> text = ("node-a:411:502 [0] NCCL INFO ncclCommSplit comm 0x7f01 rank 1 nranks 2 cudaDev 1 nvmlDev 1 "
...   "busId ad000 parent 0x5500 splitCount 3 color 7 key 0- Init START")
>>> event = read(Line(9, text, NOBODY, "x.log"))[0]
>>> event.kind, event.group_rank, event.pci, event.communicator
('nccl-init-start', 1, '0000:ad:00', None)
>>> event.key
'comm 0x7f01 nranks 2 cudaDev 1 nvmlDev 1 parent 0x5500 split 3 color 7 key 0'

A line knows its communicator by a *pointer*, which means something in its own process only and is used again
after the end; ``communicator`` is the commId, equal on all ranks, where the line has one (16 hexadecimal
digits; from 2.27 it equals RAS's hash). ``key`` is words, a name and its value in turn. From 2.23 START
precedes the bootstrap; before, it follows the first all-gather of all ranks.
"""

from __future__ import annotations

import re

import msgspec

from hangscope.model.loose import LogEvent

from .interface import Line, LineForm
from .nccl_line import NcclLine, messages

_INIT = re.compile(
    r"(?:\[Rank \d{1,7}\] )?(?:(?P<api>nccl\w{1,60}) )?"
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,7}) n[rR]anks (?P<nranks>\d{1,7}) "
    r"cudaDev (?P<cudaDev>-?\d{1,5})(?: nvmlDev (?P<nvmlDev>-?\d{1,5}))?(?: busId (?P<bus>[0-9a-f]{1,16}))?"
    r"(?: commId 0x(?P<id>[0-9a-f]{1,16}))?"
    r"(?: parent (?P<parent>\S{1,20})(?: (?:splitCount|childCount) (?P<split>\d{1,9}))?"
    r" color (?P<color>-?\d{1,11}) key (?P<key>-?\d{1,11}))?(?: commId 0x(?P<late>[0-9a-f]{1,16}))?"
    r" ?- (?P<what>Init|Destroy|Abort|Finalize|Revoke) (?P<how>START|COMPLETE)"
)
_PLACED = re.compile(
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,7}) nRanks (?P<nranks>\d{1,7}) nNodes \d{1,6} "
    r"localRanks (?P<localRanks>\d{1,5}) localRank (?P<localRank>\d{1,5})"
)
_VERSION = re.compile(r"(?:NCCL|RCCL) version ?:? ?(?P<version>\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)\S{0,60}")
_WORDS = ("nranks", "cudaDev", "nvmlDev", "parent", "split", "color", "key", "localRanks", "localRank")
_KINDS = {
    ("Init", "START"): "nccl-init-start",
    ("Init", "COMPLETE"): "nccl-init-complete",
    ("Destroy", "COMPLETE"): "nccl-comm-end",
    ("Abort", "COMPLETE"): "nccl-comm-end",
    ("Abort", "START"): "nccl-comm-end",
    ("Revoke", "COMPLETE"): "nccl-comm-end",
}


def read(line: Line) -> list[LogEvent]:
    """What the line says of a communicator's life, or which NCCL a process runs."""
    if " compiled with CUDA" in line.text:  # the head of a RAS report
        return []
    found = []
    for said in messages(line):
        event = _life(said) or _placed(said)
        if event is not None:
            found.append(event)
    version = None if found else _VERSION.search(line.text[:300])
    if version is None:
        return found
    origin = next((said.origin for said in messages(line)), line.origin)
    shown = line.text[version.start() : version.end()]
    return [LogEvent(kind="nccl-version", origin=origin, key=version["version"], text=shown, ref=line.ref)]


def communicator(digits: str) -> str:
    """A commId or RAS hash in the one form in which facts carry it.

    >>> communicator("27A079b828ff1a75"), communicator("0xbeef")
    ('27a079b828ff1a75', '000000000000beef')
    """
    return f"{int(digits, 16):016x}"


def _life(said: NcclLine) -> LogEvent | None:
    match = _INIT.match(said.text)
    if match is None:
        return None
    kind = _KINDS.get((match["what"], match["how"]))
    if kind is None:
        return None
    identity = match["id"] or match["late"]
    return LogEvent(
        kind=kind,
        origin=said.origin,
        group_rank=int(match["rank"]),
        communicator=communicator(identity) if identity else None,
        world_size=int(match["nranks"]) if identity else None,
        operation=match["api"] if kind.startswith("nccl-init") else match["what"].lower(),
        pci=_pci(match["bus"]),
        key=_key(match),
        text=said.shown,
        ref=said.line.ref,
    )


def _placed(said: NcclLine) -> LogEvent | None:
    """The topology is agreed: this rank has heard from all others, the bootstrap is over (from 2.20)."""
    match = _PLACED.match(said.text)
    if match is None:
        return None
    event = LogEvent(kind="nccl-init-placed", origin=said.origin, text=said.shown, ref=said.line.ref)
    return msgspec.structs.replace(event, group_rank=int(match["rank"]), key=_key(match))


def _key(match: re.Match[str]) -> str:
    values = match.groupdict()
    told = [f"{word} {values[word]}" for word in _WORDS if values.get(word) is not None]
    return " ".join([f"comm {match['comm']}", *told])


def _pci(bus: str | None) -> str | None:
    """``busId`` is the address's hexadecimal digits as one number, function last (src/misc/utils.cc).

    >>> _pci("ad000"), _pci("1e0"), _pci("1000901000"), _pci(None)
    ('0000:ad:00', '0000:00:1e', '10009:01:00', None)
    """
    if not bus:
        return None
    number = int(bus, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}"


FORM = LineForm(
    name="nccl-life",
    title="NCCL log: communicators formed and ended",
    needles=("- Init ", "- Destroy ", "- Abort ", "- Revoke ", " localRanks ", "CCL version "),
    read=read,
)
