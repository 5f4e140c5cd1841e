"""``wait_counter_values`` of torch's worker server: which store waits go on in a process right now.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = ('{"pytorch.wait_counter.TCPStore__init":{"active_count":0,"max_time_us":9,"total_calls":1},'
...   '"pytorch.wait_counter.TCPStore__wait":{"active_count":1,"max_time_us":0,"total_calls":1}}')
>>> (event,), end = read([Line(1, text, Origin(rank=2), "x.json")], 0)
>>> event.kind, event.key, event.origin.rank, end
('store-waiting', 'TCPStore__wait', 2, 1)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.model.loose import LogEvent

from .interface import BlockForm, Facts, Line
from .torch_debug_server import head_origin

_COUNTER = re.compile(
    r'"pytorch\.wait_counter\.(?P<name>\w{1,80})" ?: ?\{[^{}]{0,200}?"active_count" ?: ?(?P<active>\d{1,9})'
)
_JSON = re.compile(r'\s{0,40}(?:<pre>)?["{}]')
_MOST_LINES = 2_000
_LOOK_BACK = 3
STORE = ("TCPStore__", "init_process_group")


def read(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """``store-waiting`` for every store counter with a wait in progress. The counters of other things are
    left out: their waits are too short to say anything."""
    first, end = lines[index], index
    while end < len(lines) and end - index < _MOST_LINES and _JSON.match(lines[end].text):
        end += 1
    if end == index:
        return [], index
    origin = first.origin
    for before in range(index - 1, max(-1, index - 1 - _LOOK_BACK), -1):
        told = head_origin(lines[before])
        if told is not None:
            origin = told
            break
    facts = []
    for match in _COUNTER.finditer("".join(line.text for line in lines[index:end])):
        if match["name"].startswith(STORE) and int(match["active"]) > 0:
            text = f"{match['name']}: {match['active']} waiting"
            facts.append(
                LogEvent(kind="store-waiting", origin=origin, key=match["name"], text=text, ref=first.ref)
            )
    return facts, end


FORM = BlockForm(
    name="torch-wait-counters",
    title="torch worker server: wait counters",
    openers=('"pytorch.wait_counter.',),
    read=read,
)
