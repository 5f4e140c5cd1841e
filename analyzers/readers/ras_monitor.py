"""NCCL RAS: lines of the monitor mode (``ncclras -m``, from 2.29).

>>> from hangscope.model.loose import NOBODY
>>> from .interface import Line
>>> text = "[2026-01-05 10:07:07] PEER_DEAD: Process 4020 on node 10.0.0.1 managing GPU 2 no answer for 60s"
>>> [(event.kind, event.key) for event in read(Line(1, text, NOBODY, "x.log"))]
[('nccl-network', 'process 4020 on 10.0.0.1')]

A process that RAS calls dead does not answer: it is gone, stopped, or cannot be reached.
"""

from __future__ import annotations

import re

from hangscope.model.loose import LogEvent

from .interface import Line, LineForm
from .nccl_line import MOST_TEXT

_EVENT = re.compile(
    r"(?:^|\] )(?P<event>PEER_(?:DEAD|UNRESPONSIVE|SEND_STUCK|TIMEOUT_DEAD|KEEPALIVE_TIMEOUT)): "
    r"Process (?P<pid>\d{1,10}) on node (?P<node>\S{1,80})"
)


def read(line: Line) -> list[LogEvent]:
    """A process that does not answer RAS; the monitor itself is no rank."""
    match = _EVENT.search(line.text)
    if match is None:
        return []
    key = f"process {match['pid']} on {match['node']}"
    text = line.text[match.start("event") :][:MOST_TEXT]
    return [LogEvent(kind="nccl-network", key=key, text=text, ref=line.ref)]


FORM = LineForm(
    name="ras-monitor",
    title="NCCL RAS monitor",
    needles=(
        "PEER_DEAD:",
        "PEER_UNRESPONSIVE:",
        "PEER_SEND_STUCK:",
        "PEER_TIMEOUT_DEAD:",
        "PEER_KEEPALIVE_TIMEOUT:",
    ),
    read=read,
)
