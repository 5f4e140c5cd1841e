"""Ray: dead actors in ``ray list actors``, in errors and in the raylet's lines; ``ray status``.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> node = "ab" * 28
>>> table = f'''    ACTOR_ID                          CLASS_NAME    STATE    JOB_ID    NAME    NODE_ID    PID
...  0  31405554844820381c2f0f8501000000  TrainWorker   ALIVE    01000000          {node}  4710
...  1  7f3c5554844820381c2f0f8501000000  TrainWorker   DEAD     01000000          {node}  4711'''
>>> lines = [Line(at, text, NOBODY, "x") for at, text in enumerate(table.splitlines(), 1)]
>>> (fact,), after = read_actors(lines, 0)
>>> fact.kind, fact.key, fact.origin.pid, after
('actor-dead', 'TrainWorker 7f3c5554844820381c2f0f8501000000', 4711, 3)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.loose import LogEvent, Origin

from .interface import BlockForm, Facts, Line, LineForm

MOST_ROWS = 20_000
ERROR_LINES = 12
_ACTOR = re.compile(
    r"^\s{0,8}(?:\d{1,6}\s{1,8})?(?P<id>[0-9a-f]{24,40})\s{1,80}(?P<name>\S{1,200})\s{1,80}"
    r"(?P<state>DEAD|ALIVE|RESTARTING|PENDING_CREATION|DEPENDENCIES_UNREADY)\b"
)
_PLACE = re.compile(r"\b[0-9a-f]{40,60}\s{1,80}(?P<pid>\d{1,9})\b")
_FIELD = re.compile(r"^\s{0,16}(?P<name>class_name|actor_id|pid|ip|name|namespace): ?(?P<value>\S{0,200})")
_ERROR = re.compile(r"\b(?:RayActorError|ActorDiedError|ActorUnavailableError)\b.{0,80}?(?::|The actor|$)")
_WORKER = re.compile(
    r"Worker IP address: (?P<ip>[\w.:-]{1,64}) Worker port: \d{1,6} Worker PID: (?P<pid>\d{1,9})"
    r"(?: Worker exit type: (?P<how>[A-Z_]{1,40}))?"
)
_MEMORY = re.compile(r"ray\.exceptions\.OutOfMemoryError|due to the node running low on memory")
_FAILED_NODE = re.compile(r"^ {1,4}(?P<type>\S{1,80}): (?P<what>\w{1,60}) \(ip: (?P<ip>[\w.:-]{1,64})\)")
_STATUS = re.compile(
    r"^(?:[ (]|-{3}|={3}|(?:Node|Resources|Total|Pending|Active|Idle|Recent|Usage|Demands|From)\b|$)"
)
_DEMAND = re.compile(r"^ {1,4}(?P<what>\{.{1,200}\}.{0,40}): (?P<count>\d{1,6})\+ pending")


def read_actors(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The dead actors of a table; its pids are those of the actors' nodes."""
    if "ACTOR_ID" not in lines[start].text or "STATE" not in lines[start].text:
        return (), start
    found: list[LogEvent] = []
    at = start + 1
    while at < min(len(lines), start + MOST_ROWS):
        row = _ACTOR.match(lines[at].text)
        if row is None:
            break
        if row["state"] == "DEAD":
            place = _PLACE.search(lines[at].text, row.end())
            pid = int(place["pid"]) if place is not None and place["pid"] != "0" else None
            found.append(_dead(lines[at], f"{row['name']} {row['id']}", pid, None))
        at += 1
    return found, at


def read_error(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """A dead actor's error, with the class, pid and address that its next lines tell."""
    if _ERROR.search(lines[start].text) is None:
        return (), start
    told: dict[str, str] = {}
    at = start + 1
    while at < min(len(lines), start + ERROR_LINES):
        field = _FIELD.match(lines[at].text)
        if field is None:
            break
        told[field["name"]] = field["value"]
        at += 1
    if not told:
        return (), start
    pid = told.get("pid", "")
    key = " ".join(told[name] for name in ("class_name", "actor_id") if told.get(name)) or None
    return (
        _dead(
            lines[start],
            key,
            int(pid) if pid.isdigit() and 0 < len(pid) < 10 else None,
            told.get("ip") or None,
        ),
    ), at


def read_status(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """``ray status``: nodes that failed, and requests that wait for resources (*stall-waiting*)."""
    if "Autoscaler status" not in lines[start].text:
        return (), start
    found: list[LogEvent] = []
    at = start + 1
    while at < min(len(lines), start + 400):
        text = lines[at].text
        if (failed := _FAILED_NODE.match(text)) is not None:
            found.append(_dead(lines[at], f"node {failed['type']}", None, failed["ip"]))
        elif (demand := _DEMAND.match(text)) is not None:
            found.append(_event(lines[at], "stall-waiting", Origin(), f"resources {demand['what']}"))
        elif _STATUS.match(text) is None:
            break
        at += 1
    return found, at


def read_line(line: Line) -> Facts:
    """The raylet's line on a worker that died, and its memory monitor's."""
    worker = _WORKER.search(line.text)
    if worker is not None:
        how = f" {worker['how']}" if worker["how"] else ""
        return (_dead(line, f"worker{how}", int(worker["pid"]), worker["ip"]),)
    if _MEMORY.search(line.text) is not None:
        return (_event(line, "job-oom", Origin(wall=line.origin.wall), "ray memory monitor"),)
    return ()


def _dead(line: Line, key: str | None, pid: int | None, node: str | None) -> LogEvent:
    """Of the actor, not of the driver that prints it."""
    return _event(line, "actor-dead", Origin(pid=pid, node=node, wall=line.origin.wall), key)


def _event(line: Line, kind: str, origin: Origin, key: str | None) -> LogEvent:
    return LogEvent(kind=kind, origin=origin, key=key, text=" ".join(line.text.split())[:400], ref=line.ref)


ACTORS = BlockForm(name="ray_actors", title="Ray: ray list actors", openers=("ACTOR_ID",), read=read_actors)
ERROR = BlockForm(
    name="ray-actor-error",
    title="Ray: error of a dead actor",
    openers=("RayActorError", "ActorDiedError", "ActorUnavailableError"),
    read=read_error,
)
STATUS = BlockForm(
    name="ray_status", title="Ray: ray status", openers=("Autoscaler status",), read=read_status
)
LINE = LineForm(
    name="ray-line",
    title="Ray: a worker that died, memory monitor",
    needles=("Worker IP address: ", "ray.exceptions.OutOfMemoryError", "node running low on memory"),
    read=read_line,
)
