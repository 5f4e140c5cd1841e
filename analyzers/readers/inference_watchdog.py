"""Watchdogs of inference engines: SGLang's scheduler, vLLM's message queue and engine processes.

vLLM prints the same sentence from both ends of its queue: a reader waits for the writer, a writer for the
slowest reader. Only the line number in ``shm_broadcast.py`` tells them apart, and only in known builds.
``EngineCore … died unexpectedly`` also comes at an ordinary end.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> def fact(text):
...     event = read(Line(1, text, NOBODY, "x"))[0]
...     return event.kind, event.key, event.operation, event.limit or event.seconds
>>> fact("[2026-02-03 13:12:37 PP1 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=0)")
('engine-stuck', 'Scheduler PP1 TP1', None, 300.0)
>>> queue = "[shm_broadcast.py:{}] No available shared memory broadcast block found in 60 seconds."
>>> fact(queue.format(681))
('stall-waiting', 'shm_broadcast', None, 60.0)
>>> fact(queue.format(802))
('stall-waiting', 'shm_broadcast', 'read', 60.0)
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm
from .raw import real

SIDES = {682: "write", 802: "read"}
"""Line of the sentence in vLLM's shm_broadcast.py → which side printed it (the build of vLLM issue 51921)."""
_SGLANG = re.compile(
    r"(?:\[[^\]]{0,40}?(?P<place>(?: (?:DP|PP|TP|EP|CP)\d{1,5}){1,6})\] )?"
    r"(?:(?P<who>\w{1,40}) )?[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<limit>\d{1,9}(?:\.\d{1,3})?)"
)
_BLOCK = re.compile(
    r"No available (?:shared memory broadcast )?block found in (?P<seconds>\d{1,9}(?:\.\d{1,3})?) ?s"
)
_BLOCK_LINE = re.compile(r"shm_broadcast\.py:(?P<line>\d{1,5})\]")
_DIED = re.compile(
    r"(?:Engine core proc|Worker proc) (?P<name>[\w.-]{1,80}) died unexpectedly"
    r"|EngineDeadError: EngineCore encountered"
)
_CALL = re.compile(r"RPC call to (?P<call>\w{1,60}) timed out|EngineCore encountered a fatal error")
_START = re.compile(
    r"Waiting for (?P<count>\d{1,5} local(?:, \d{1,5} remote)?) core engine proc\(s\) to (?:start|connect)"
)


def read(line: Line) -> Facts:
    """*engine-stuck*, *actor-dead* and *stall-waiting*; ``operation`` of the queue: read, write or None."""
    text = line.text[:2000]
    if (found := _SGLANG.search(text)) is not None:
        who = f"{found['who'] or 'Scheduler'}{found['place'] or ''}"
        return (_event(line, "engine-stuck", key=who, limit=real(found["limit"])),)
    if (found := _BLOCK.search(text)) is not None:
        number = _BLOCK_LINE.search(text)
        side = SIDES.get(int(number["line"])) if number is not None else None
        seconds = real(found["seconds"])
        return (_event(line, "stall-waiting", key="shm_broadcast", operation=side, seconds=seconds),)
    if (found := _DIED.search(text)) is not None:
        return (_event(line, "actor-dead", key=found["name"] or "EngineCore"),)
    if (found := _CALL.search(text)) is not None:
        return (_event(line, "engine-stuck", key=found["call"] or "EngineCore"),)
    if (found := _START.search(text)) is not None:
        return (_event(line, "stall-waiting", key=f"start of {found['count']} engine processes"),)
    return ()


def _event(line: Line, kind: str, **fields: Any) -> LogEvent:
    origin = line.origin
    if kind == "actor-dead":  # printed by a watcher: of the dead one only the name is known
        origin = msgspec.structs.replace(origin, rank=None, local_rank=None, pid=None, source=None)
    return LogEvent(kind=kind, origin=origin, text=line.text.strip()[:400], ref=line.ref, **fields)


FORM = LineForm(
    name="inference-watchdog",
    title="SGLang and vLLM: watchdogs, message queue, engine processes",
    needles=(
        "atchdog timeout (self",
        "No available shared memory broadcast block",
        "No available block found",
        "died unexpectedly",
        "EngineDeadError",
        "EngineCore encountered",
        "RPC call to ",
        "core engine proc(s)",
    ),
    read=read,
)
