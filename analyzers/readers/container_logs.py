"""Container runtimes' log files as plain lines: docker's JSON, and the parts of long lines in CRI's format.

Docker's json-file driver writes ``{"log": "…\\n", "stream": "stderr", "time": "…"}``; the kubelet's CRI
format is ``TIME stderr F TEXT``, with ``P`` for a part that the next line of that stream goes on with.

>>> plain(['2026-01-31T10:00:00.5Z stderr P [rank1]: Time', '2026-01-31T10:00:00.6Z stderr F out (0:02:00)!'])
['', '2026-01-31T10:00:00.6Z stderr F [rank1]: Timeout (0:02:00)!']
>>> plain(['{"log":"step 1\\\\n","stream":"stdout","time":"2026-01-31T10:00:00.5Z"}'])
['2026-01-31T10:00:00.5Z step 1']
"""

from __future__ import annotations

import re

import msgspec

_JSON = '{"log":"'
_CRI = re.compile(r"(\d{4}-\d\d-\d\dT[^ ]{8,26} (stdout|stderr)) ([FP]) ?")
_LOOK = 20
"""Rows by which the format is told."""
_MOST_PART = 16_000
"""Characters that parts of one line are joined to: behind that nothing is looked at."""


class _Entry(msgspec.Struct):
    log: str
    time: str = ""


def plain(rows: list[str]) -> list[str]:
    """The same number of rows; those that belong to a later one are empty."""
    head = [row for row in rows[:_LOOK] if row]
    if any(row.startswith(_JSON) for row in head):
        return [_unpacked(row) for row in rows]
    if any(_CRI.match(row) for row in head):
        return _whole(rows)
    return rows


def _unpacked(row: str) -> str:
    if not row.startswith(_JSON):
        return row
    try:
        entry = msgspec.json.decode(row, type=_Entry)
    except msgspec.DecodeError:
        return row
    return f"{entry.time} {entry.log}".strip().replace("\n", " ")


def _whole(rows: list[str]) -> list[str]:
    found: list[str] = []
    parts: dict[str, str] = {}
    for row in rows:
        match = _CRI.match(row)
        if match is None:
            found.append(row)
            continue
        text = parts.pop(match[2], "") + row[match.end() :]
        if match[3] == "P" and len(text) < _MOST_PART:
            parts[match[2]] = text
            found.append("")
        else:
            found.append(f"{match[1]} F {text}")
    return found
