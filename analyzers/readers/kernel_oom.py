"""The kernel's out-of-memory report: who was killed, and for which memory cgroup's limit.

A report has many lines (who asked, the memory's state, a table of tasks), and other lines may stand between.
The killed process is in the line ``Killed process``; since Linux 5.0 a line shortly before it names the
constraint and the cgroup. Linux 4 also announces the killing (``Kill process … or sacrifice child``).

>>> from .interface import Line
>>> from hangscope.model.loose import NOBODY
>>> report = '''python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
... oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/jobs/7,task_memcg=/jobs/7/a,task=python3,pid=321,uid=0
... Memory cgroup out of memory: Killed process 321 (python3) total-vm:9000kB, UID:0'''
>>> lines = [Line(at, text, NOBODY, "x") for at, text in enumerate(report.splitlines(), 1)]
>>> facts = [fact for at in range(3) for fact in read(lines, at)[0]]
>>> [(fact.kind, fact.pid, fact.task) for fact in facts]
[('oom-invoked', None, 'python3'), ('oom-kill', 321, 'python3')]
>>> facts[1].text
'Memory cgroup out of memory: Killed process 321 (python3) total-vm:9000kB, UID:0 [limit of /jobs/7]'
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import KernelEvent

from .interface import BlockForm, Facts, Line
from .kernel_log import SHOWN
from .kernel_text import event_of

NEAR = 12
"""Lines between the constraint and the killing: other lines of the kernel may come between."""
_CONSTRAINT = re.compile(r"oom-kill:constraint=(?P<constraint>[A-Z_]{1,40})")
_VICTIM = re.compile(r"task=(?P<task>.{1,64}?),pid=(?P<pid>\d{1,9}),uid=")
_CGROUP = re.compile(r"[,]oom_memcg=(?P<path>[^,]{1,400})")
_OLD_CGROUP = re.compile(r"Task in (?P<task>\S{1,400}) killed as a result of limit of (?P<path>\S{1,400})")


def read(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """The event of the one line at ``start``: lines of a report stand among others."""
    text = lines[start].text
    said = _CONSTRAINT.search(text)
    if said is not None:
        return _constraint(lines, start, text)
    event = event_of(lines[start])
    if event is None or event.kind not in ("oom-kill", "oom-invoked"):
        return (), start
    if event.kind == "oom-kill":
        event = _with_limit(event, lines, start)
    return (event,), start + 1


def _constraint(lines: Sequence[Line], start: int, text: str) -> tuple[Facts, int]:
    """The killing itself, where its own line was cut off behind this one."""
    victim = _VICTIM.search(text)
    behind = lines[start + 1 : start + 1 + NEAR]
    if victim is None or any(f"process {victim['pid']} (" in line.text for line in behind):
        return (), start + 1
    first = lines[start]
    killed = f"Killed process {victim['pid']} ({victim['task']})"
    event = event_of(msgspec.structs.replace(first, text=text[: text.find("oom-kill:")] + killed))
    if event is None:
        return (), start + 1
    return (_with_limit(event, lines, start + 1),), start + 1


def _with_limit(event: KernelEvent, lines: Sequence[Line], at: int) -> KernelEvent:
    """The event, its text naming the cgroup whose limit was reached, or that the host had no memory."""
    for line in reversed(lines[max(0, at - NEAR) : at]):
        said = _CONSTRAINT.search(line.text)
        if said is not None and f"pid={event.pid}," in line.text:
            cgroup = _CGROUP.search(line.text)
            if cgroup is not None:
                return _note(event, f"limit of {cgroup['path']}")
            return _note(event, "the host's memory" if "global_oom" in line.text else said["constraint"])
        old = _OLD_CGROUP.search(line.text)
        if old is not None:
            return _note(event, f"limit of {old['path']}")
    return event


def _note(event: KernelEvent, note: str) -> KernelEvent:
    return msgspec.structs.replace(event, text=f"{event.text[: SHOWN - 100]} [{note[:98]}]")


FORM = BlockForm(
    name="kernel-oom",
    title="kernel log: out-of-memory killer, of the host and of a memory cgroup",
    openers=("invoked oom-killer", "oom-kill:constraint=", "Killed process "),
    read=read,
)
