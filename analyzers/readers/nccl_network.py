"""NCCL: the interfaces, networks and transports that a process has chosen (2.4 → 2.32).

>>> from hangscope.model.loose import NOBODY
>>> from .interface import Line
>>> def key(text: str) -> str | None:
...     return read(Line(1, "node-a:411:502 [0] NCCL INFO " + text, NOBODY, "x.log"))[0].key
>>> key("Bootstrap : Using eth0:10.0.0.7<0>")
'bootstrap eth0:10.0.0.7'
>>> key("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.7<0>")
'IB mlx5_0:1/IB mlx5_1:1/RoCE OOB eth0:10.0.0.7'
>>> key("NCCL_SOCKET_IFNAME set by environment to eth,ib"), key("Using network Socket")
('NCCL_SOCKET_IFNAME eth,ib', 'network Socket')
>>> key("Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/2/GDRDMA")
'NET/IB/2/GDRDMA'

Nodes that chose unlike interfaces cannot reach each other. Of channels only number 0 is told: the others
have the same transport, and a large job has tens of thousands.
"""

from __future__ import annotations

import re

from hangscope.model.loose import LogEvent

from .interface import Line, LineForm
from .nccl_line import NcclLine, messages

_BOOTSTRAP = re.compile(r"Bootstrap ?: Using ?(?P<rest>\S.{0,300})")
_NET = re.compile(r"NET/(?P<net>IB|Socket|OFI|[\w-]{1,40}) ?: (?:Using|Selected) ?(?P<rest>\S.{0,400})")
_NONE = re.compile(r"NET/(?P<net>[\w-]{1,40}) ?: No (?:device|IP interface|interface) found")
_NETWORK = re.compile(r"Using (?:non-device net plugin version \d{1,3}|network (?P<name>\S.{0,60}))")
_SET = re.compile(r"(?P<name>NCCL_[A-Z0-9_]{1,60}) set (?:by environment )?to (?P<value>.{0,200}?)\.?\s*$")
_SETTINGS = (
    *(
        "NCCL_SOCKET",
        "NCCL_OOB_NET",
        "NCCL_IB_",
        "NCCL_NET",
        "NCCL_COMM_ID",
        "NCCL_P2P",
        "NCCL_SHM",
        "NCCL_CROSS_NIC",
    ),
    *(
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_NSOCKS",
        "NCCL_LAUNCH_MODE",
        "NCCL_MNNVL",
        "NCCL_NVLS",
        "NCCL_MAX_",
        "NCCL_MIN_",
    ),
)
"""Settings that must agree between ranks, or that choose a way between them (docs, env.rst)."""
_CHANNEL = re.compile(
    r"Channel 00(?:/0{1,2})? ?: (?P<from>\d{1,7})\[[0-9a-f]{1,16}\] -> (?P<to>\d{1,7})\[[0-9a-f]{1,16}\]"
    r"(?: \[(?P<way>send|receive)\])? via (?P<via>\S.{0,60})"
)
_PORT_ZERO = re.compile(r"<0>")
_INDEX = re.compile(r"\[(?:\d{1,3}|RO)\]")


def read(line: Line) -> list[LogEvent]:
    """What one line tells of the network."""
    found = []
    for said in messages(line):
        event = _event(said) if said.level == "INFO" else None
        if event is not None:
            found.append(event)
    return found


def _event(said: NcclLine) -> LogEvent | None:
    if said.text.startswith("Channel 00"):
        return _channel(said)
    key = _choice(said.text)
    if key is None:
        return None
    return LogEvent(kind="nccl-interface", origin=said.origin, key=key, text=said.shown, ref=said.line.ref)


def _choice(text: str) -> str | None:
    """The choice in a few words, equal where two ranks chose the same, addresses aside."""
    match = _BOOTSTRAP.match(text)
    if match is not None:
        return f"bootstrap {_list(match['rest'])}"
    match = _SET.match(text)
    if match is not None:
        return f"{match['name']} {match['value']}" if match["name"].startswith(_SETTINGS) else None
    match = _NONE.match(text)
    if match is not None:
        return f"{match['net']} none"
    match = _NET.match(text)
    if match is not None:
        return f"{match['net']} {_list(match['rest'])}"
    match = _NETWORK.match(text)
    if match is not None and match["name"] is not None:
        return f"network {match['name'].strip()}"
    return None


def _list(text: str) -> str:
    return " ".join(_PORT_ZERO.sub("", _INDEX.sub(" ", text.replace(";", " "))).split())


def _channel(said: NcclLine) -> LogEvent | None:
    match = _CHANNEL.match(said.text)
    if match is None:
        return None
    receives = match["way"] == "receive"
    return LogEvent(
        kind="nccl-channel",
        origin=said.origin,
        group_rank=int(match["to"] if receives else match["from"]),
        peer=int(match["from"] if receives else match["to"]),
        key=match["via"].strip(),
        text=said.shown,
        ref=said.line.ref,
    )


FORM = LineForm(
    name="nccl-network",
    title="NCCL log: interfaces, networks, transports",
    needles=(
        "Bootstrap : Using",
        "Bootstrap: Using",
        "NET/",
        "Using network ",
        " set by environment to ",
        " set to ",
        "Channel 00",
    ),
    read=read,
)
