"""Rendezvous through a store: who waits for whom before the first collective, and keys that did not come.

The rank that prints is waiting. Python's store based barrier (distributed_c10d.py, 1.8 to 2.15), TCPStore and
socket.cpp of c10d, ProcessGroupNCCL's exchange of the communicator's id, elastic's rendezvous.

``code`` is the number of ranks or clients that had come, ``world_size`` of how many.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = ("Waiting in store based barrier to initialize process group for rank: 3, key: "
...   "store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)")
>>> (event,) = read(Line(1, text, Origin(), "x.log"))
>>> event.kind, event.origin.rank, event.key, event.code, event.world_size, event.limit
('store-waiting', 3, 'store_based_barrier_key:1', 7, 8, 1800.0)
>>> text = "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: /default_pg/0//cpu//0/2"
>>> (event,) = read(Line(2, text, Origin(rank=0), "x.log"))
>>> event.kind, event.about, event.group, event.key, event.limit
('store-timeout', (2,), '0', '/default_pg/0//cpu//0/2', 3.0)
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm
from .torch_line import DEFAULT_GROUP, Message, messages

_BARRIER = re.compile(
    r"(?P<what>Waiting|Timed out initializing process group) in store based barrier"
    r"[^\n]{0,80}?rank:? (?P<rank>\d{1,7}),[^\n]{0,10}? key: (?P<key>\S{1,200})"
    r"(?: \(world_size=(?P<world>\d{1,7}), (?:worker_count|num_workers_joined)=(?P<come>\d{1,7})"
    r"(?:, timeout=(?P<timeout>[\d:]{1,20}(?: days?, [\d:]{1,12})?))?)?"
)
_CLIENTS = re.compile(
    r"Timed out after (?P<seconds>\d{1,9}) seconds waiting for clients\. "
    r"(?P<come>\d{1,7})/(?P<all>\d{1,7}) clients"
)
_CLIENT = re.compile(
    r"client socket has timed out after (?P<number>\d{1,12}) ?(?P<unit>ms|s) while trying to connect to "
    r"\((?P<host>[^,()\s]{1,255}), (?P<port>\d{1,5})\)"
)
_NOT_FOUND = re.compile(
    r"(?:client socket has failed to connect to any network address of|network addresses of) "
    r"\((?P<host>[^,()\s]{1,255}), (?P<port>\d{1,5})\)"
)
_KEYS = re.compile(r"[Ww]ait timeout after (?P<ms>\d{1,12}) ?ms, keys: (?P<key>[^\s'`]{1,400})")
_KEY = re.compile(r"Timeout waiting for key: (?P<key>[^\s'`]{1,400}) after (?P<ms>\d{1,12}) ?ms")
_UNIQUE_ID = re.compile(
    r"\[(?P<rank>\d{1,7})\] is setting up NCCL communicators? and retrieving ncclUniqueIds? from "
    r"(?:\[(?P<root>\d{1,7})\]|roots) [^\n]{0,80}?by key '(?P<key>[^']{0,200})', but "
    r"store->get\('[^']{0,200}'\) (?:got|timed out|failed)"
)
_GROUP = re.compile(r"/?default_pg/0//(?:(?P<name>[^/]{1,200})//)?\w{1,20}//\d")
"""Keys of a process group: the default group's, or those of the group ``name``, on a device type."""
_MESH = re.compile(r"//cpu//\d{1,6}/(?P<rank>\d{1,7})$")
"""gloo's connectFullMesh: each rank of the group publishes its address under its rank and reads theirs."""
_LOST = re.compile(
    r"node '(?P<node>[^'\s]{1,300})' has failed to send a keep-alive heartbeat to the rendezvous"
)
_REMOVED = re.compile(r"(?P<nodes>'[^\n]{1,400}?) ha(?:s|ve) been removed from the rendezvous")
_RENDEZVOUS = re.compile(r"\bRendezvous(?P<what>Timeout|Closed|Connection)Error\b")
_PORT = re.compile(r"failed to listen on any local network address[^\n]{0,40}?port: (?P<port>\d{1,5})")
_CLOCK = re.compile(r"(?:(?P<days>\d{1,4}) days?, )?(?P<h>\d{1,4}):(?P<m>\d\d):(?P<s>\d\d)")


def read(line: Line) -> Facts:
    """The store's event in each message of a line."""
    return [event for message in messages(line) if (event := _event(message)) is not None]


def _event(message: Message) -> LogEvent | None:
    for understand in (_barrier, _unique_id, _key, _clients, _connection, _rendezvous):
        event = understand(message)
        if event is not None:
            return event
    return None


def _barrier(message: Message) -> LogEvent | None:
    match = _BARRIER.search(message.text)
    if match is None:
        return None
    facts: dict[str, Any] = {"key": match["key"].rstrip(","), "limit": _seconds(match["timeout"])}
    if match["world"]:
        facts |= {"world_size": int(match["world"]), "code": int(match["come"])}
    facts["origin"] = msgspec.structs.replace(message.origin, rank=int(match["rank"]), source="content")
    return message.event("store-waiting" if match["what"] == "Waiting" else "store-timeout", **facts)


def _unique_id(message: Message) -> LogEvent | None:
    """The first rank of the group did not make the id: it is not in that communicator's first operation."""
    match = _UNIQUE_ID.search(message.text)
    if match is None:
        return None
    waited = _KEY.search(message.text) or _KEYS.search(message.text)
    key = waited["key"].rstrip(".,") if waited else match["key"]
    return message.event(
        "store-timeout",
        group_rank=int(match["rank"]),
        about=(int(match["root"]),) if match["root"] else (),
        about_group_ranks=True,
        key=key,
        limit=int(waited["ms"]) / 1000 if waited else None,
        **_group(key),
    )


def _group(key: str) -> dict[str, str]:
    """The process group whose set-up waits for the key."""
    match = _GROUP.match(key)
    return {} if match is None else {"group": match["name"] or DEFAULT_GROUP}


def _key(message: Message) -> LogEvent | None:
    match = _KEYS.search(message.text) or _KEY.search(message.text)
    if match is None:
        return None
    facts: dict[str, Any] = {"key": match["key"].rstrip(".,"), "limit": int(match["ms"]) / 1000}
    if mesh := _MESH.search(facts["key"]):
        facts |= {"about": (int(mesh["rank"]),), "about_group_ranks": True, **_group(facts["key"])}
    return message.event("store-timeout", **facts)


def _clients(message: Message) -> LogEvent | None:
    match = _CLIENTS.search(message.text)
    if match is None:
        return None
    come, expected = int(match["come"]), int(match["all"])
    return message.event(
        "rendezvous-timeout",
        code=come,
        world_size=expected,
        limit=float(match["seconds"]),
        key="store clients",
    )


def _connection(message: Message) -> LogEvent | None:
    """The store's host could not be reached. A try that is repeated is no event: starts look like that."""
    text = message.text
    if "- retrying (try=" in text:
        return None
    if match := _CLIENT.search(text):
        limit = int(match["number"]) / (1000 if match["unit"] == "ms" else 1)
        return message.event("connect-timeout", key=f"{match['host']}:{match['port']}", limit=limit)
    if match := _NOT_FOUND.search(text):
        return message.event("connect-timeout", key=f"{match['host']}:{match['port']}")
    if match := _PORT.search(text):
        return message.event("exception", key=f"port {match['port']} in use")
    return None


def _rendezvous(message: Message) -> LogEvent | None:
    text = message.text
    for lost in (_LOST, _REMOVED):
        if match := lost.search(text):
            return message.event("stall-missing", key=match.group(1).replace("'", ""), counter="elastic")
    if match := _RENDEZVOUS.search(text):
        return message.event("connect-timeout" if match["what"] == "Connection" else "rendezvous-timeout")
    return None


def _seconds(text: str | None) -> float | None:
    """``0:30:00`` or ``1 day, 0:00:00`` in seconds."""
    match = _CLOCK.search(text or "")
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.group("days", "h", "m", "s"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


FORM = LineForm(
    name="torch-store",
    title="torch stores and rendezvous: barrier, keys, clients, elastic, 1.8 to 2.15",
    needles=(
        "in store based barrier",
        "waiting for clients",
        "client socket has timed out",
        "to connect to any network address",
        "network addresses of (",
        "ait timeout after ",
        "Timeout waiting for key: ",
        "and retrieving ncclUniqueId",
        "keep-alive heartbeat to the rendezvous",
        "been removed from the rendezvous",
        "RendezvousTimeoutError",
        "RendezvousClosedError",
        "RendezvousConnectionError",
        "failed to listen on any local network address",
    ),
    read=read,
)
