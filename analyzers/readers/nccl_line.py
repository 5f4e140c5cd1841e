"""The grammar of one NCCL line (upstream src/debug.cc, 2.4 → 2.32; RCCL alike), for its forms.

>>> from hangscope.model.loose import NOBODY
>>> from .interface import Line
>>> text = "node-a:411:502 [3] transport/net.cc:1298 (netSendProxyProgress) NCCL WARN request failed"
>>> for said in messages(Line(1, text, NOBODY, "x.log")):
...     print(said.node, said.pid, said.device, said.level, said.place, "|", said.text)
node-a 411 3 WARN transport/net.cc:1298 | request failed

``host`` is gethostname() up to its first dot, pid and tid are of the process's own pid namespace, and the
number in brackets is the current CUDA device of the *thread that logs*: no local rank. From 2.26 a time may
stand in front, of WARN lines by default. Ranks that share one pipe tear each other's lines:

>>> text = "node-a:411:50node-a:412:503 [4] NCCL INFO Connected all ringsnode-a:413:504 [5] NCCL INFO ok"
>>> [(said.node, said.pid, said.torn) for said in messages(Line(1, text, NOBODY, "x.log"))]
[(None, 412, True), (None, 413, True)]

Where a head does not begin the line, nobody knows where the name of the host begins: it is None.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import msgspec

from hangscope.model.loose import Origin

from .clocks import dated
from .interface import MOST_LINE, Line

MOST_TEXT = 400
"""Characters of a line that an event carries."""
_LEVELS = r"INFO|WARN|TRACE|CALL|ATTN|DIAG|VERSION|ABORT"
_HEAD = re.compile(
    r"(?:(?P<stamp>\[[^\]\n]{1,40}\]|\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d\S{0,16}) {1,4})?"
    r"(?P<node>[\w.-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) {1,4}(?:\[(?P<device>-?\d{1,4})\] {1,4})?"
    r"(?:\d{1,20}\.\d{1,9} )?(?:(?P<place>[\w./+-]{1,160}:\d{1,7})(?: \([^()\n]{1,120}\))? )?"
    rf"NCCL (?P<level>{_LEVELS})(?: |$)"
)
_BARE = re.compile(rf"(?:(?P<place>[\w./+-]{{1,160}}:\d{{1,7}}) )?NCCL (?P<level>{_LEVELS})(?: |$)")
"""A message whose head was cut away."""
_WINDOW = 360
"""Characters before ``NCCL`` in which its head can stand."""
_BOUNDARY = re.compile(r"(?:^|[\])>|]|:(?=\s)|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\s)\s{0,8}$")
"""What may stand before a head that was written in one piece: another prefix, a time."""


class NcclLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message. ``place``: file and line of NCCL's source, in warnings. ``torn``: the head did not begin
    the line, so that ``node`` is None and the line's prefix may be another process's."""

    node: str | None
    pid: int | None
    device: int | None
    level: str
    place: str | None
    wall: float | None
    text: str
    torn: bool
    line: Line

    @property
    def origin(self) -> Origin:
        """The process that wrote it; of the line's prefix only what is surely of the same writer."""
        return _origin(self.line.origin, self.node, self.pid, self.wall, self.torn)

    @property
    def shown(self) -> str:
        """The message as an event's text: with its level and place where it is no plain INFO."""
        head = "" if self.level == "INFO" else f"{self.place + ' ' if self.place else ''}NCCL {self.level} "
        return (head + self.text)[:MOST_TEXT]


@functools.lru_cache(maxsize=1 << 13)
def _origin(told: Origin, node: str | None, pid: int | None, wall: float | None, torn: bool) -> Origin:
    wall = told.wall if told.wall is not None else wall
    if torn:
        return Origin(node=node, pid=pid, attempt=told.attempt, wall=wall)
    node = node if node is not None else told.node
    return msgspec.structs.replace(told, node=node, pid=pid if pid is not None else told.pid, wall=wall)


def messages(line: Line) -> Iterator[NcclLine]:
    """The NCCL messages in one line, mostly one; several where ranks ran into each other."""
    text = line.text[:MOST_LINE]
    match = _HEAD.match(text)
    if match is None or "NCCL " in text[match.end() :]:
        yield from _apart(line, text)
        return
    yield _message(line, match, text[match.end() :], torn=False)


def _apart(line: Line, text: str) -> Iterator[NcclLine]:
    """Heads found by the level word; each message reaches to the next head."""
    found: list[re.Match[str]] = []
    place = 0
    while (at := text.find("NCCL ", place)) >= 0:
        begin = max(found[-1].end() if found else 0, at - _WINDOW)
        match = _HEAD.search(text, begin, at + 16) or _BARE.search(text, max(begin, at - 170), at + 16)
        if match is not None and match.start() <= at < match.end():
            found.append(match)
        place = at + 5
    for index, match in enumerate(found):
        end = found[index + 1].start() if index + 1 < len(found) else len(text)
        torn = "pid" not in match.groupdict() or not _begins(text, match.start(), first=index == 0)
        yield _message(line, match, text[match.end() : end], torn)


def _begins(text: str, start: int, first: bool) -> bool:
    """Whether a head that starts there was written in one piece with what stands before it."""
    return first and _BOUNDARY.search(text[max(0, start - 80) : start]) is not None


def _message(line: Line, match: re.Match[str], text: str, torn: bool) -> NcclLine:
    fields = match.groupdict()
    stamp = fields.get("stamp")
    time = dated(stamp.strip("[]")) if stamp else None
    device = fields.get("device")
    return NcclLine(
        node=None if torn else fields["node"].split(".")[0],
        pid=int(fields["pid"]) if fields.get("pid") else None,
        device=int(device) if device else None,
        level=fields["level"],
        place=fields.get("place"),
        wall=time.wall if time else None,
        text=text.strip(),
        torn=torn,
        line=line,
    )
