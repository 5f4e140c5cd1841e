"""DeepSpeed's node launcher (``deepspeed/launcher/launch.py``): what it started, how it ended.

The line *exits with return code* shows the command of the **last** local rank, whichever process failed:
nobody is read out of it. *Killing subprocess* is the launcher's own clean-up.

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> def fact(text):
...     event = read(Line(1, text, NOBODY, "x"))[0]
...     return event.kind, event.origin.pid, event.code
>>> fact("[2025-03-02 03:17:26,042] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 4062819")
('terminated-by-launcher', 4062819, None)
>>> fact("[2025-03-02 03:17:27,042] [ERROR] [launch.py:321:sigkill_handler] ['python3', '-u', 'train.py', "
...     "'--local_rank=3'] exits with return code = -9")
('exit', None, -9)
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hangscope.model.loose import LogEvent

from .interface import Facts, Line, LineForm

_KILLING = re.compile(r"\[launch\.py:\d{1,5}:\w{1,40}\] Killing subprocess (?P<pid>\d{1,9})")
_CODE = re.compile(r"\[launch\.py:\d{1,5}:\w{1,40}\] .{0,3900}exits with return code = (?P<code>-?\d{1,5})")
_WELL = re.compile(r"\[launch\.py:\d{1,5}:\w{1,40}\] Process (?P<pid>\d{1,9}) exits successfully")
_SIGNAL = re.compile(r"\[launch\.py:\d{1,5}:\w{1,40}\] Main process received (?P<signal>SIG\w{2,6}), exiting")
_RUNNER = re.compile(r"\[runner\.py:\d{1,5}:\w{1,40}\].{0,3900}return code = (?P<code>-?\d{1,5})")


def read(line: Line) -> Facts:
    """*terminated-by-launcher* and *exit*; ``origin.pid`` is the process that is spoken of."""
    text = line.text
    if (found := _KILLING.search(text)) is not None:
        return (_event(line, "terminated-by-launcher", pid=int(found["pid"])),)
    if (found := _CODE.search(text) or _RUNNER.search(text)) is not None:
        return (_event(line, "exit", code=int(found["code"])),)
    if (found := _WELL.search(text)) is not None:
        return (_event(line, "exit", pid=int(found["pid"]), code=0),)
    if (found := _SIGNAL.search(text)) is not None:
        return (_event(line, "terminated-by-launcher", key=found["signal"]),)
    return ()


def _event(line: Line, kind: str, pid: int | None = None, **fields: Any) -> LogEvent:
    origin = msgspec.structs.replace(line.origin, rank=None, local_rank=None, pid=pid, source=None)
    return LogEvent(kind=kind, origin=origin, text=line.text.strip()[-400:], ref=line.ref, **fields)


FORM = LineForm(
    name="deepspeed-launcher",
    title="DeepSpeed launcher: killed and ended processes",
    needles=("[launch.py:", "[runner.py:"),
    read=read,
)
