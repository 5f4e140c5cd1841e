"""The desync report that TORCH_NCCL_DESYNC_DEBUG=1 adds to a watchdog's exception.

Its ranks are those *of the group*, its numbers count collectives from 1 in a counter of their own. Ranks that
"joined but didn't finish" are waiting; those that "finished, but didn't join" the next one are what the
others wait for. torch/csrc/distributed/c10d/TraceUtils.h and DesyncDebugger, 1.11 to 2.14, same words.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = '''[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5) ran
... \t - [0] Timeout at collective: ALLREDUCE, #5
... \t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
... \t   - [0, 1] joined but didn't finish collective #5 (count from 1)
... \t     [2] finished collective #4, but didn't join collective #5 (count from 1)'''
>>> lines = [Line(n, row, Origin(rank=8), "x.log") for n, row in enumerate(text.splitlines(), 1)]
>>> facts, end = read(lines, 1)
>>> for fact in facts:
...     print(fact.kind, fact.about, fact.sequence, fact.operation)
desync-waiting (0,) 5 all_reduce
desync-waiting (0, 1) 5 None
desync-lagging (2,) 4 None
>>> end
5
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.loose import LogEvent

from .interface import BlockForm, Facts, Line
from .torch_line import Message, messages, operation, ranks

_LIST = r"\[(?P<ranks>[\d, ]{1,60000})\]"
_AT = re.compile(r"- \[(?P<ranks>\d{1,7})\] Timeout at collective: (?P<op>\w{1,60}), #(?P<seq>\d{1,15})")
_NEVER = re.compile(rf"ranks {_LIST} are the lagging ranks that caused this timeout")
_JOINED = re.compile(rf"{_LIST} joined but didn't finish collective #(?P<seq>\d{{1,15}})")
_LAGGING = re.compile(rf"{_LIST} finished collective #(?P<seq>\d{{1,15}}), but didn't join collective #")
_STATE = re.compile(r"#(?P<seq>\d{1,15}) (?P<state>started|finished) ranks:")
_STARTED = re.compile(rf"{_LIST} started (?P<op>\w{{1,60}})")
_PLAIN = re.compile(
    r"\s{0,20}(?:- )?(?:To our best knowledge|Snapshot of ranks' latest states|#\d{1,15} finished ranks:"
    r"|\[[\d, ]{1,4000}\] finished \w)"
)
_LOOK_BACK = 3
_ESCAPED = "\\n\\t"


def read(lines: Sequence[Line], index: int) -> tuple[Facts, int]:
    """The report's events. Who prints it stands in the message before it: these lines have no prefix."""
    facts: list[LogEvent] = []
    speaker = _speaker(lines, index)
    end, started = index, None
    while end < len(lines):
        parts = lines[end].text.split(_ESCAPED)
        known = False
        for part in parts:
            heading = _STATE.search(part)
            if heading is not None:
                started = int(heading["seq"]) if heading["state"] == "started" else None
            event = _event(part, started, _at(speaker, lines[end], part))
            known = known or heading is not None or event is not None or _PLAIN.match(part) is not None
            if event is not None:
                facts.append(event)
        if not known:
            break
        end += 1
    return facts, end


def _event(text: str, started: int | None, message: Message) -> LogEvent | None:
    told = {"about_group_ranks": True, "counter": "desync"}
    if match := _AT.search(text):
        kind = operation(match["op"])
        return message.event(
            "desync-waiting", about=ranks(match["ranks"]), sequence=int(match["seq"]), operation=kind, **told
        )
    if match := _NEVER.search(text):
        return message.event("desync-lagging", about=ranks(match["ranks"]), sequence=0, **told)
    if match := _JOINED.search(text):
        return message.event(
            "desync-waiting", about=ranks(match["ranks"]), sequence=int(match["seq"]), **told
        )
    if match := _LAGGING.search(text):
        return message.event(
            "desync-lagging", about=ranks(match["ranks"]), sequence=int(match["seq"]), **told
        )
    if started is not None and (match := _STARTED.search(text)):
        kind = operation(match["op"])
        return message.event(
            "desync-waiting", about=ranks(match["ranks"]), sequence=started, operation=kind, **told
        )
    return None


def _speaker(lines: Sequence[Line], index: int) -> Message:
    """The nearest message in front of the report in which a process group speaks."""
    own = messages(lines[index])[-1]
    for before in range(index, max(-1, index - _LOOK_BACK - 1), -1):
        said = messages(lines[before])[-1]
        if said.group_rank is not None:
            return said
    return own


def _at(speaker: Message, line: Line, text: str) -> Message:
    return msgspec.structs.replace(speaker, text=text.strip(), line=line)


FORM = BlockForm(
    name="torch-desync",
    title="torch desync report, 1.11 to 2.14",
    openers=(
        "Timeout at collective: ",
        "the lagging/dead/mismatched ranks",
        "are the lagging ranks that caused",
    ),
    read=read,
)
