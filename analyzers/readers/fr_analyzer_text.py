"""What torch's own flight-recorder analyzer (torchfrtrace, fr_trace.py) printed, torch 2.5 to 2.13.

It compares every rank with the first dump that it happened to read, and names innocent ranks when that one
is the odd one out, in cycles, under a wrapped ring, and from some hundred ranks on. So its words are events
of the counter ``torchfrtrace``: shown where they disagree, proof of nothing.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = '''Not all ranks joining collective, sequence number: 5
... internal record id: 4
... group info: 0:default_pg
... collective: gloo:all_reduce
... missing ranks: {1, 3}
... input sizes: [[16]]
... collective state: scheduled'''
>>> lines = [Line(n, row, Origin(), "x.log") for n, row in enumerate(text.splitlines(), 1)]
>>> (event,), end = read(lines, 0)
>>> event.kind, event.about, event.sequence, event.group, event.group_desc, event.counter, end
('stall-missing', (1, 3), 5, '0', 'default_pg', 'torchfrtrace', 7)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hangscope.model.loose import LogEvent

from .interface import BlockForm, Facts, Line
from .torch_line import ranks

COUNTER = "torchfrtrace"
_OPENER = re.compile(
    r"(?:Not all ranks joining collective(?:, sequence number:)? (?P<missing>\d{1,15})"
    r"|Input/output mismatch in the collective(?: sequence number:)? (?P<sizes>\d{1,15})"
    r"|Collective (?:sequence number: )?(?P<errors>\d{1,15}) (?:at entry \d{1,15} )?(?:has )?errors)"
)
_FIELD = re.compile(
    r"(?P<name>internal record id|group info|collective|missing ranks|total input numel|total output numel"
    r"|input sizes|output sizes|world size|expected ranks|collective state|error msg"
    r"|collective stack trace): ?(?P<value>[^\n]{0,3900})"
)
_CULPRIT = re.compile(r"Culprit rank (?P<rank>\d{1,7}); Error type: (?P<type>\w{1,60})")
_MOST_LINES = 40


def read(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """One report: ``stall-missing`` of ranks it misses, ``fingerprint-mismatch`` of its culprits."""
    opener = _OPENER.search(lines[index].text)
    if opener is None:
        return [], index
    fields: dict[str, str] = {}
    end = index + 1
    while end < len(lines) and end - index < _MOST_LINES:
        field = _FIELD.match(lines[end].text)
        if field is None or field["name"] in fields:
            break
        fields[field["name"]] = field["value"].strip()
        end += 1
    if not fields:
        return [], index
    return _events(opener, fields, lines[index]), end


def _events(opener: re.Match[str], fields: dict[str, str], line: Line) -> list[LogEvent]:
    group, _, desc = fields.get("group info", "").partition(":")
    sequence = opener["missing"] or opener["sizes"] or opener["errors"]
    told: dict[str, Any] = {
        "sequence": int(sequence),
        "counter": COUNTER,
        "group": group or None,
        "group_desc": desc or None,
        "operation": fields.get("collective", "").partition(":")[2].split(" ")[0] or None,
        "sizes": fields.get("input sizes"),
        "ref": line.ref,
    }
    missing, said = fields.get("missing ranks", ""), fields.get("error msg", "")
    if opener["missing"]:
        text = f"torchfrtrace: {line.text.strip()}, missing ranks: {missing}"[:400]
        return [LogEvent(kind="stall-missing", about=ranks(missing), key="collective", text=text, **told)]
    culprits = {int(match["rank"]) for match in _CULPRIT.finditer(said)}
    text = f"torchfrtrace: {line.text.strip()}, {said}"[:400]
    return [LogEvent(kind="fingerprint-mismatch", about=tuple(sorted(culprits)), text=text, **told)]


FORM = BlockForm(
    name="fr-analyzer-text",
    title="torchfrtrace's printed report (shown, never believed)",
    openers=("Not all ranks joining collective", "Input/output mismatch in the collective", "Collective "),
    read=read,
)
