"""torchrun's tables: the failures of one node at the end, and who is who when an attempt starts.

The table of failures is of one node. Its root cause is the failure with the least time (whole seconds); exits
-15 and -6 after another one are its consequences. torch/distributed/elastic/multiprocessing/errors and
agent/server/api.py, 1.9 to 2.15.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = '''Root Cause (first observed failure):
... [0]:
...   time      : 2026-03-04_05:06:07
...   host      : node-b
...   rank      : 9 (local_rank: 1)
...   exitcode  : -9 (pid: 4712)
...   error_file: <N/A>
...   traceback : Signal 9 (SIGKILL) received by PID 4712
... ======'''
>>> lines = [Line(n, row, Origin(), "x.log") for n, row in enumerate(text.splitlines(), 1)]
>>> (event,), end = read_failures(lines, 0)
>>> who = event.origin
>>> event.kind, event.code, who.rank, who.local_rank, who.node, who.pid, end
('exit-first', -9, 9, 1, 'node-b', 4712, 8)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.loose import LogEvent, Origin

from .clocks import dated
from .interface import BlockForm, Facts, Line
from .torch_line import messages, ranks

_ROW = re.compile(
    r"\s{0,12}(?P<name>time|host|rank|exitcode|error_file|traceback)\s{0,12}: ?(?P<value>.{0,500})"
)
_NUMBER = re.compile(r"\s{0,8}\[\d{1,6}\]:\s*$")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)")
_EXIT = re.compile(r"(?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,9})\)")
_ROOT = "Root Cause (first observed failure):"
_FAILURES = "Failures:"
_LAST = re.compile(r"  [A-Za-z_][\w.]{0,120}(?:: |$)")
"""The last line of a recorded traceback, which the table indents by two."""
_EMPTY = re.compile(r"\s*(?:[-=*]{3,}|<NO_OTHER_FAILURES>)?\s*$")
_FIELD = re.compile(r"\s{0,8}(?P<name>[a-z_]{3,24})=(?P<value>.{0,60000})")
_COMPLETE = "Rendezvous complete for workers. Result:"
_MOST_TRACEBACK = 200


def read_failures(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """``exit`` for each failure, ``exit-first`` for the root cause. A recorded traceback is skipped."""
    first = messages(lines[index])[-1].text.strip()
    if first not in (_ROOT, _FAILURES):
        return [], index
    kind = "exit-first" if first == _ROOT else "exit"
    facts: list[LogEvent] = []
    rows: dict[str, str] = {}
    end, start, skipped = index + 1, index + 1, 0
    while end < len(lines):
        text = messages(lines[end])[-1].text if lines[end].text[:1] in "[EWI" else lines[end].text
        row = _ROW.match(text)
        if row is not None:
            rows[row["name"]] = row["value"].strip()
            skipped = 0
        elif _NUMBER.match(text) or _EMPTY.match(text):
            facts += _failure(kind, rows, lines[start])
            rows, start = {}, end
        elif "traceback" not in rows or text.strip() in (_ROOT, _FAILURES) or skipped >= _MOST_TRACEBACK:
            break
        else:
            skipped += 1
            if _LAST.match(text):
                rows["error"] = text.strip()
        if text.startswith("===="):
            break
        end += 1
    return facts + _failure(kind, rows, lines[start] if start < len(lines) else lines[index]), end


def _failure(kind: str, rows: dict[str, str], line: Line) -> list[LogEvent]:
    """The rows of one failure; none when they do not say how it ended."""
    exited = _EXIT.match(rows.get("exitcode", ""))
    if exited is None:
        return []
    who = _RANK.match(rows.get("rank", ""))
    stamp = dated(rows.get("time", ""))
    host = rows.get("host")
    origin = Origin(
        rank=int(who["rank"]) if who else None,
        local_rank=int(who["local"]) if who else None,
        node=line.origin.node if host in (None, "", "localhost") else host,
        pid=int(exited["pid"]),
        attempt=line.origin.attempt,
        wall=stamp.wall if stamp else None,
        source="content" if who else None,
    )
    words = " · ".join(
        f"{name} {rows[name]}" for name in ("rank", "exitcode", "traceback", "error") if rows.get(name)
    )
    return [LogEvent(kind=kind, origin=origin, code=int(exited["code"]), text=words[:400], ref=line.ref)]


def read_start(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """``restart`` of an attempt: ``about`` are the ranks that this node hosts, ``world_size`` of how many."""
    said = messages(lines[index])[-1]
    if _COMPLETE not in said.text:
        return [], index
    fields: dict[str, str] = {}
    end = index + 1
    while end < len(lines) and (row := _FIELD.match(messages(lines[end])[-1].text)) is not None:
        if row["name"] in fields:
            break
        fields[row["name"]] = row["value"]
        end += 1
    if "restart_count" not in fields or not fields["restart_count"].isdecimal():
        return [], index
    worlds = ranks(fields.get("global_world_sizes", ""))
    event = said.event(
        "restart",
        origin=msgspec.structs.replace(said.origin, attempt=int(fields["restart_count"][:9])),
        about=ranks(fields.get("global_ranks", "")),
        world_size=worlds[0] if worlds else None,
        key=f"{fields.get('master_addr', '?')}:{fields.get('master_port', '?')}"[:300],
        group_rank=int(fields["group_rank"][:9]) if fields.get("group_rank", "").isdecimal() else None,
    )
    return [event], end


FAILURES_FORM = BlockForm(
    name="elastic-table",
    title="torch elastic's table of failures, 1.9 to 2.15",
    openers=(_ROOT, _FAILURES),
    read=read_failures,
)
START_FORM = BlockForm(
    name="elastic-start",
    title="torch elastic's table of ranks at the start of an attempt",
    openers=(_COMPLETE,),
    read=read_start,
)
