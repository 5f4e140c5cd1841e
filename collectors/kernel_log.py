"""The end of the kernel's log: out-of-memory kills, hung tasks, Xid errors, dead mounts.

By ``/dev/kmsg``, else by dmesg. The log is the whole node's: what names other users' processes is masked.
Python >= 3.8, standard library only.
"""

import os
import re
from typing import FrozenSet, Iterator, List, Match, Optional, Sequence, Set, Tuple

from . import guarded, procfs, redact, runner
from .interface import ABSENT, DENIED, ERROR, NODE, OK, TIMEOUT, Context, Result, Target

CAP = 256 << 10
"""Bytes of text that are kept, the newest."""
OTHER = "<other user>"
KERNEL_RECORD = 1 << 14
SENT_TOGETHER = 256


class KernelLog:
    """Takes ``kernel.txt``; see FORMAT.md. Lines as dmesg prints them: ``[ 1234.567890] text``."""

    name = "kernel_log"
    scope = NODE
    once = True
    budget = 3.0
    describes = "the last 256 kB of the kernel's log, masked; may need root (kernel.dmesg_restrict)"

    def __init__(self, device: str = "/dev/kmsg", command: Sequence[str] = ("dmesg",)) -> None:
        self.device = device
        self.command = tuple(command)

    def collect(self, ctx: Context, target: Optional[Target]) -> Result:
        lines, reason = self._lines(ctx)
        if lines is None:
            return Result(_status(reason or ""), reason)
        users = {one.uid for one in ctx.targets if one.uid is not None} or {os.getuid()}
        names = frozenset(one.comm for one in ctx.targets)
        mask = Strangers(users | {0}, names, ctx.proc)
        text = "\n".join(redact.scrub(mask.line(line), ctx.salt) for line in newest(lines))
        return Result(OK, None, (("kernel.txt", text.encode("utf-8", "replace")),))

    def _lines(self, ctx: Context) -> "Tuple[Optional[List[str]], Optional[str]]":
        outcome = guarded.call(_read_kmsg, self.device, timeout=ctx.remaining(self.budget / 2))
        if outcome.status == "ok":
            return [line for lines in outcome.value for line in lines], None
        done = runner.run(self.command, timeout=ctx.remaining(self.budget / 2), cap=CAP)
        if done.status == "ok":
            return done.stdout.decode("utf-8", "replace").splitlines(), None
        return None, f"{self.device}: {outcome.reason}; {self.command[0]}: {done.complaint()}"


def _status(reason: str) -> str:
    if any(word in reason for word in ("PermissionError", "Operation not permitted", "Permission denied")):
        return DENIED
    if "No such file" in reason:
        return ABSENT
    return TIMEOUT if "no answer" in reason or "killed after" in reason else ERROR


def _read_kmsg(device: str) -> Iterator[List[str]]:
    """Runs in a guarded child: all lines that there are now (a read gives one record; EAGAIN after the last),
    some hundred at a time."""
    lines: List[str] = []
    for line in _records(device):
        lines.append(line)
        if len(lines) >= SENT_TOGETHER:
            yield lines
            lines = []
    if lines:
        yield lines


def _records(device: str) -> Iterator[str]:
    descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    while True:
        try:
            data = os.read(descriptor, KERNEL_RECORD)
        except BlockingIOError:
            return
        except BrokenPipeError:
            continue  # EPIPE: the record was overwritten before it was read; the next read goes on
        if not data:
            return
        line = kmsg_line(data.decode("utf-8", "replace"))
        if line is not None:
            yield line


def kmsg_line(record: str) -> Optional[str]:
    r"""A /dev/kmsg record (Documentation/ABI/testing/dev-kmsg) as a line of dmesg; None when it is none.

    >>> kmsg_line("6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n")
    '[    5.140900] NET: Registered protocol family 10'
    """
    head, semicolon, rest = record.partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not fields[2].isdigit():
        return None
    microseconds = int(fields[2])
    text = rest.split("\n", 1)[0]
    return f"[{microseconds // 1000000:5d}.{microseconds % 1000000:06d}] {text}"


def newest(lines: List[str], cap: int = CAP) -> List[str]:
    """The last lines that together have at most ``cap`` characters."""
    size, kept = 0, []
    for line in reversed(lines):
        size += len(line) + 1
        if size > cap:
            break
        kept.append(line)
    return kept[::-1]


class Strangers:
    """Masks the names of other users' processes in lines of the kernel log.

    ``users``: the uids whose processes may be named; ``names``: thread names that are the job's own. A
    process that is gone and whose user the line does not tell is named only by such a name.
    """

    WITH_USER = (
        # Killed process 4711 (python3) total-vm:1kB, …, UID:1001 pgtables:1kB oom_score_adj:0
        re.compile(r"process (?P<pid>\d+) \((?P<name>.*?)\)(?=.*\bUID:(?P<uid>\d+))"),
        # oom-kill:constraint=…,oom_memcg=/a,task_memcg=/a/b,task=python3,pid=4711,uid=1001
        re.compile(r"(?P<path>task_memcg=[^,]*,)?task=(?P<name>.*?),pid=(?P<pid>\d+),uid=(?P<uid>\d+)"),
        # [   4711]  1001  4711   123   45   6789  0  0 python3
        re.compile(r"\] \[ *(?P<pid>\d+)\] +(?P<uid>\d+) +\d+ .* (?P<name>\S+)$"),
    )
    WITH_PID = (
        # INFO: task python3:4711 blocked for more than 120 seconds.
        re.compile(r"task:? ?(?P<name>\S+?):(?P<pid>\d+)"),
        # CPU: 1 PID: 4711 Comm: python3 Not tainted
        re.compile(r"PID: (?P<pid>\d+) (?:UID: \d+ )?Comm: (?P<name>.+?)(?= (?:Not t|T)ainted| Kdump|$)"),
        # python3[4711]: segfault at …
        re.compile(r"(?<=\] )(?P<name>[^\[\]]+)\[(?P<pid>\d+)\]:"),
    )
    NAME_ONLY = (re.compile(r"(?<=\] )(?P<name>.+?) invoked oom-killer"),)
    AUDIT = re.compile(r"(?<=\] )audit:.*")

    def __init__(self, users: Set[int], names: FrozenSet[str], proc: str = "/proc") -> None:
        self.users = users
        self.names = names
        self.proc = proc

    def line(self, line: str) -> str:
        """The line with strangers' names replaced."""
        for pattern in (*self.WITH_USER, *self.WITH_PID, *self.NAME_ONLY):
            line = pattern.sub(self._replace, line)
        return self.AUDIT.sub(f"audit: {OTHER}", line)

    def _replace(self, match: "Match[str]") -> str:
        groups = match.groupdict()
        uid = groups.get("uid")
        if uid is None and groups.get("pid") is not None:
            owner = procfs.owner(int(groups["pid"]), self.proc)
            uid = None if owner is None else str(owner)
        known = groups["name"] in self.names if uid is None else int(uid) in self.users
        if known:
            return match[0]
        found = match[0].replace(groups["name"], OTHER)
        return found.replace(groups["path"], f"task_memcg={OTHER},") if groups.get("path") else found


COLLECTOR = KernelLog()
