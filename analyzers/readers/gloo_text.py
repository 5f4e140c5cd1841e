"""gloo's errors: a buffer that did not come, a connection that a peer closed, sizes that differ.

All are printed by victims, and the peer is an address. third_party/gloo/gloo/transport/tcp; its line numbers
drift. After one local time-out gloo closes every pair (``Application timeout caused pair closure``).

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.1.0.2]:4711"
>>> (event,) = read(Line(1, text, Origin(rank=3), "x.log"))
>>> event.kind, event.key
('gloo-closed', '10.1.0.2:4711')
>>> text = "[/gloo/transport/tcp/buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"
>>> (event,) = read(Line(2, text, Origin(), "x.log"))
>>> event.kind, event.limit, event.operation
('gloo-timeout', 1800.0, 'recv')
"""

from __future__ import annotations

import re

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm
from .torch_line import Message, messages

_PEER = r"\[(?P<ip>[0-9A-Fa-f.:%\w]{2,60})\]:(?P<port>\d{1,5})"
_TIMEOUT = re.compile(r"Timed out waiting (?P<ms>\d{1,12}) ?ms for (?P<op>recv|send) operation to complete")
_CLOSED = re.compile(rf"(?:Connection closed by peer|Read error|Write error|writev|readv) {_PEER}")
_CONNECT = re.compile(rf"(?:Connect timeout|\bconnect) {_PEER}")
_SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d{1,19}) vs (?P<want>\d{1,19})")
_FULL_MESH = "connectFullMesh failed"
_CLOSURE = "Application timeout caused pair closure"


def read(line: Line) -> Facts:
    """gloo's event in each message of a line."""
    if not any(place in line.text for place in ("gloo", "Gloo", _CLOSURE)):
        return []  # NCCL has the same words for its sockets
    return [event for message in messages(line) if (event := _event(message)) is not None]


def _event(message: Message) -> LogEvent | None:
    text = message.text
    if match := _TIMEOUT.search(text):
        return message.event("gloo-timeout", limit=int(match["ms"]) / 1000, operation=match["op"])
    if _FULL_MESH in text:
        peer = _CONNECT.search(text)
        return message.event("connect-timeout", key=_address(peer) if peer else None)
    if match := _CLOSED.search(text):
        return message.event("gloo-closed", key=_address(match))
    if match := _CONNECT.search(text):
        return message.event("connect-timeout", key=_address(match))
    if match := _SIZES.search(text):
        sizes = f"{match['got']} bytes, {match['want']} expected"
        return message.event("fingerprint-mismatch", sizes=sizes, counter="gloo")
    if _CLOSURE in text:
        return message.event("gloo-timeout")
    return None


def _address(match: re.Match[str]) -> str:
    return f"{match['ip']}:{match['port']}"


FORM = LineForm(
    name="gloo-text",
    title="gloo time-outs, closed connections and size errors",
    needles=(
        "Timed out waiting ",
        "Connection closed by peer",
        "Read error [",
        "Write error [",
        "/gloo/transport/",
        "Connect timeout ",
        "op.preamble.length",
        _FULL_MESH,
        _CLOSURE,
    ),
    read=read,
)
