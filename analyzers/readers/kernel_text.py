"""Lines of the kernel log in loose files: dmesg in all its clocks, syslog, the journal, pasted lines.

The patterns are those of ``kernel_log``, which reads the kernel log of a bundle; here the lines come among
others, from a node that only the line or the file may know.

>>> from .interface import Line
>>> from hangscope.model.loose import Origin
>>> def lines(*texts):
...     return [Line(at, text, Origin(node="node-a"), "dmesg.txt") for at, text in enumerate(texts, 1)]
>>> facts, after = read_gpu(lines(
...     "[  +0.000316] NVRM: Xid (PCI:0000:44:00): 45, pid='<unknown>', name=<unknown>, Ch 00000001",
...     "[  +0.000002] NVRM: Xid (PCI:0000:44:00): 45, pid='<unknown>', name=<unknown>, Ch 00000002",
... ), 0)
>>> [(fact.kind, fact.pci, fact.pid, fact.node) for fact in facts], after
([('xid-45', '0000:44:00', None, 'node-a')], 2)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hangscope.model.facts import KernelEvent

from . import kernel_clock, kernel_log, kernel_patterns, pci
from .interface import BlockForm, Facts, Line, LineForm

MOST_LINES = 10_000
"""Lines of one storm that are folded into one event."""
GPU_KINDS = ("xid", "sxid", "gpu-lost", "nvlink", "driver-")
_AER_DETAIL = re.compile(rf"{pci.ADDRESS}:\s{{1,8}}(?:device \[|\[ {{0,2}}\d{{1,2}}\])")


def event_of(line: Line) -> KernelEvent | None:
    """The line's event, on the node that the line itself or the file tells ("" where nobody does)."""
    if not kernel_patterns.may_mean_something(line.text):
        return None
    said = kernel_clock.split(line.text[: kernel_log.LONGEST])
    event = kernel_log.understand(said, line.ref)
    if event is None:
        return None
    return msgspec.structs.replace(
        event,
        node=event.node or line.origin.node or "",
        wall=event.wall if event.wall is not None else line.origin.wall,
    )


def read_gpu(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """Xid, SXid and *off the bus* lines: the first of a run of equal ones, with its address."""
    event = event_of(lines[start])
    named = kernel_log.THE_GPU.search(lines[start].text)
    if named is not None and (event is None or event.kind == "gpu-lost"):
        return _off_the_bus(lines, start, named["gpu"])
    if event is None or not event.kind.startswith(GPU_KINDS):
        return (), start
    return _run(lines, start, event)


def _run(lines: Sequence[Line], start: int, first: KernelEvent) -> tuple[Facts, int]:
    """Lines on GPUs one after the other: the first of each kind, device and process, as a dying GPU repeats
    itself for every channel."""
    found = {_subject(first): first}
    known = {_without_channel(lines[start].text)}
    after = start + 1
    while after < len(lines) and after - start < MOST_LINES:
        text = lines[after].text
        same = _without_channel(text)
        if same not in known:
            event = event_of(lines[after])
            if event is None or not event.kind.startswith(GPU_KINDS) or kernel_log.THE_GPU.search(text):
                break
            found.setdefault(_subject(event), event)
            if len(known) < MOST_LINES:
                known.add(same)
        after += 1
    return list(found.values()), after


def _subject(event: KernelEvent) -> tuple[object, ...]:
    return event.node, event.kind, event.pci, event.pid


def _without_channel(text: str) -> tuple[str, str]:
    """The host, and the Xid with its process: without the clock in front and the channel behind."""
    begin = max(text.find("NVRM: "), 0)
    return _host(text[:begin]), text[begin:].partition(", Ch ")[0]


def _host(before: str) -> str:
    return before.partition(" kernel")[0].rpartition(" ")[2] if " kernel" in before else ""


def _off_the_bus(lines: Sequence[Line], start: int, gpu: str) -> tuple[Facts, int]:
    """The driver's sentence over several lines, whose first names the GPU and a later one says it is lost."""
    for at in range(start, min(start + 1 + kernel_log.GPU_LINES, len(lines))):
        if at > start and "NVRM" not in lines[at].text:
            break
        event = event_of(lines[at])
        if event is not None and event.kind == "gpu-lost":
            return (kernel_log.of_gpu(event, gpu),), at + 1
    return (), start


def read_aer(lines: Sequence[Line], start: int) -> tuple[Facts, int]:
    """PCIe errors. A storm of corrected ones is one event; its text counts the reports."""
    event = event_of(lines[start])
    if event is None or not event.kind.startswith("aer-"):
        return (), start
    after, reports = start + 1, 1
    same = _behind_clock(lines[start].text)
    while after < len(lines) and after - start < MOST_LINES:
        text = lines[after].text
        if _behind_clock(text) != same and _AER_DETAIL.search(text[:300]) is None:
            other = event_of(lines[after])
            if other is None or _subject(other) != _subject(event):
                break
        reports += "AER:" in text
        after += 1
    if reports > 1:
        event = msgspec.structs.replace(event, text=f"{event.text} ({reports} such reports)")
    return (event,), after


def _behind_clock(text: str) -> tuple[str, str]:
    begin = text.find("] ") + 1
    return _host(text[:begin]), text[begin:]


def read_host(line: Line) -> Facts:
    """Lock-ups, storage, network and hardware lines: one event a line."""
    event = event_of(line)
    return (event,) if event is not None and event.kind in _HOST_KINDS else ()


HOST_LINES = tuple(
    pattern
    for pattern in (*kernel_patterns.TASKS, *kernel_patterns.STORAGE, *kernel_patterns.DEVICES)
    if not pattern.kind.startswith(("oom-", "hung-task", "aer-"))
)
_HOST_KINDS = frozenset(pattern.kind for pattern in HOST_LINES)
XID = BlockForm(
    name="kernel-xid",
    title="kernel log: NVIDIA Xid, SXid and lost GPUs",
    openers=("NVRM: ", ": SXid ("),
    read=read_gpu,
)
AER = BlockForm(
    name="kernel-aer",
    title="kernel log: PCIe errors (AER)",
    openers=("AER: ", "PCIe Bus Error: severity=", "DPC: containment event"),
    read=read_aer,
)
HOST = LineForm(
    name="kernel-host",
    title="kernel log: lock-ups, storage, network adapters, machine checks, heat",
    needles=kernel_patterns.literals_of(HOST_LINES),
    read=read_host,
)
