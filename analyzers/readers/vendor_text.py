"""Lines of vendors' transports that say that a kernel polls for a peer: ACCL, userbuffers, DeepEP.

Each prints who waits, in its own numbering; none says for whom.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> def fact(text):
...     event = read(Line(1, text, NOBODY, "x"))[0]
...     return event.kind, event.about, event.group, event.sequence, event.completed
>>> fact("[W StateMonitor:77] StateMonitor:check:Rank1 : kernel begins at work 55731 may hang in polling")
('stall-waiting', (1,), 'accl', 55731, None)
>>> fact("NVONLY RSBAR:SM 1 [7]:expecting 67547 got 67546")
('stall-waiting', (7,), 'userbuffers', 67547, 67546)
>>> fact("DeepEP dispatch timeout, scale-out: 6/8, scale-up: 8/8")
('stall-waiting', (), 'deep-ep', None, 6)
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm
from .raw import number

_ACCL = re.compile(
    r"StateMonitor:.{0,120}?[Rr]ank ?(?P<rank>\d{1,7}) ?: kernel begins at work (?P<work>\d{1,15}) may hang"
)
_USERBUFFERS = re.compile(
    r"(?P<what>[A-Z][A-Z0-9 _-]{2,30}):SM (?P<sm>\d{1,4}) \[(?P<rank>\d{1,7})\]: ?"
    r"expecting (?P<want>\d{1,15}) got (?P<got>\d{1,15})"
)
_DEEPEP = re.compile(r"(?:DeepEP|deep_ep).{0,200}?[Tt]imeout|[Tt]imeout.{0,200}?scale-(?:out|up): ?\d")
_ARRIVED = re.compile(r"scale-(?:out|up): ?(?P<come>\d{1,6})/(?P<all>\d{1,6})")


def read(line: Line) -> Facts:
    """*stall-waiting*; ``completed``: what has come so far, where the line counts it."""
    text = line.text[:2000]
    if (found := _ACCL.search(text)) is not None:
        return (_event(line, "accl", about=(int(found["rank"]),), sequence=int(found["work"])),)
    if (found := _USERBUFFERS.search(text)) is not None:
        return (
            _event(
                line,
                "userbuffers",
                about=(int(found["rank"]),),
                sequence=int(found["want"]),
                completed=int(found["got"]),
                operation=found["what"].strip().lower(),
            ),
        )
    if _DEEPEP.search(text) is not None:
        short = next((f for f in _ARRIVED.finditer(text) if number(f["come"]) != number(f["all"])), None)
        come = {} if short is None else {"completed": int(short["come"]), "world_size": int(short["all"])}
        return (_event(line, "deep-ep", operation="all_to_all", **come),)
    return ()


def _event(line: Line, group: str, **fields: Any) -> LogEvent:
    return LogEvent(
        kind="stall-waiting",
        origin=line.origin,
        about_group_ranks=True,
        group=group,
        counter=group,
        text=line.text.strip()[:400],
        ref=line.ref,
        **fields,
    )


FORM = LineForm(
    name="vendor-transport",
    title="ACCL, userbuffers, DeepEP: a kernel that polls for a peer",
    needles=("may hang in polling", "]:expecting ", "]: expecting ", "DeepEP", "deep_ep", "scale-out: "),
    read=read,
)
