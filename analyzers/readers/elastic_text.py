"""torchrun's agent: the processes it saw end, the ones it ended itself, attempts.

Exit lines and restarts; the table at the end is read by ``elastic_table``. ``origin`` is the process that is
spoken of (local rank, pid), not the agent. torch/distributed/elastic, 1.9 to 2.15.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> text = ("E1201 10:00:01.000000 2600 torch/distributed/elastic/multiprocessing/api.py:1002] "
...   "failed (exitcode: -9) local_rank: 5 (pid: 2630) of binary: /env/bin/python3")
>>> (event,) = read(Line(1, text, Origin(node="node-a"), "x.log"))
>>> event.kind, event.code, event.origin.local_rank, event.origin.pid, event.origin.node
('exit-first', -9, 5, 2630, 'node-a')
>>> text = "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 812 closing signal SIGTERM"
>>> (event,) = read(Line(2, text, Origin(), "x.log"))
>>> event.kind, event.code, event.origin.pid
('terminated-by-launcher', -15, 812)
"""

from __future__ import annotations

import re
import signal

import msgspec

from hangscope.model.loose import LogEvent, Origin, ProcessState

from .interface import Facts, Line, LineForm
from .torch_line import Message, messages

_FAILED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,5}) \(pid: (?P<pid>\d{1,9})\)"
)
_SIGNAL = re.compile(r"Sending process (?P<pid>\d{1,9}) closing signal (?P<signal>[A-Z0-9]{2,12})")
_FORCED = re.compile(
    r"Unable to shutdown process (?P<pid>\d{1,9}) via [\w.]{1,20}, forceful\w{0,2} exit\w{2,6} via"
)
_ASLEEP = re.compile(
    r"Worker pid=(?P<pid>\d{1,9}) stuck in uninterruptible sleep \(D-state\) for (?P<seconds>[\d.]{1,12})s"
)
_ATTEMPTS = re.compile(
    r"Worker group (?P<state>[A-Z]{3,20})\. (?P<left>\d{1,6})/(?P<all>\d{1,6}) attempts left; will restart"
)
_NODES = re.compile(
    r"Detected (?P<count>\d{1,6}) new nodes from group_rank=\d{1,6}; will restart worker group"
)
_DEATH = re.compile(
    r"(?:Received (?P<number>\d{1,3}) death signal|Process \d{1,9} got signal: (?P<got>\d{1,3}))"
)
_FINISHED = "worker group successfully finished. Waiting "


def read(line: Line) -> Facts:
    """The agent's event in each message of a line."""
    found = []
    for message in messages(line):
        event = _ended(message) or _group(message)
        if event is not None:
            found.append(event)
    return found


def _ended(message: Message) -> LogEvent | ProcessState | None:
    """One worker process. A worker that the agent had to kill did not answer the polite signal: it was
    blocked in the kernel, or deaf to it."""
    text = message.text
    if match := _FAILED.search(text):
        origin = _worker(message, match["pid"], int(match["local"]))
        return message.event("exit-first", origin=origin, code=int(match["code"]))
    if match := _SIGNAL.search(text):
        number = getattr(signal, match["signal"], None)
        code = -int(number) if isinstance(number, signal.Signals) else None
        return message.event("terminated-by-launcher", origin=_worker(message, match["pid"]), code=code)
    if match := _FORCED.search(text):
        origin = _worker(message, match["pid"])
        return message.event("terminated-by-launcher", origin=origin, code=-9, key="forced")
    if match := _ASLEEP.search(text):
        pid = int(match["pid"])
        return ProcessState(origin=_worker(message, match["pid"]), pid=pid, state="D", ref=message.line.ref)
    return None


def _group(message: Message) -> LogEvent | None:
    """All workers of a node."""
    text = message.text
    if match := _ATTEMPTS.search(text):
        attempt = int(match["all"]) - int(match["left"]) + 1
        origin = msgspec.structs.replace(message.origin, attempt=attempt) if attempt > 0 else message.origin
        return message.event("restart", origin=origin, key=f"worker group {match['state']}")
    if match := _NODES.search(text):
        return message.event("restart", key=f"{match['count']} new nodes")
    if match := _DEATH.search(text):
        return message.event("job-ended", code=int(match["number"] or match["got"]), key="launcher")
    if _FINISHED in text:
        return message.event("exit", code=0, key="worker group")
    return None


def _worker(message: Message, pid: str, local_rank: int | None = None) -> Origin:
    """The worker spoken of: nothing of the agent's own identity but its node and attempt."""
    return Origin(
        local_rank=local_rank,
        node=message.origin.node,
        pid=int(pid),
        attempt=message.origin.attempt,
        wall=message.origin.wall,
        source="content",
    )


FORM = LineForm(
    name="elastic-text",
    title="torch elastic agent: exits, signals, restarts, 1.9 to 2.15",
    needles=(
        "failed (exitcode: ",
        " closing signal ",
        "Unable to shutdown process ",
        "stuck in uninterruptible sleep",
        "will restart worker group",
        " death signal, shutting down",
        " got signal: ",
        _FINISHED,
    ),
    read=read,
)
