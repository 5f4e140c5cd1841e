"""``kernel_log/node/kernel.txt``: the lines of the kernel log that mean something for a hang.

Loose files with kernel lines go through the same patterns, see ``kernel_text``.

>>> sample = b'''[  721.02] INFO: task python3:15277 blocked for more than 120 seconds.
... [  722.00] systemd[1]: hello
... [ 1843.30] NVRM: Xid (PCI:0000:44:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
... [ 1900.10] Memory cgroup out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:8kB
... '''
>>> [(event.kind, event.pid, event.seconds) for event in read(sample, "x").events]
[('hung-task', 15277, 721.02), ('xid-79', 1234, 1843.3), ('oom-kill', 4711, 1900.1)]
"""

from __future__ import annotations

import re

import msgspec

from hangscope.model.facts import KernelEvent, Ref

from . import kernel_patterns, pci
from .kernel_clock import KernelLine, split
from .raw import number

LONGEST = 2000
SHOWN = 400

THE_GPU = re.compile(
    r"NVRM: The NVIDIA (?P<gpu>GPU [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
)
"""The first of the lines that the driver writes on a GPU off the bus: the address stands in it alone."""
GPU_LINES = 4
"""How many lines after that the driver says what is wrong."""


class KernelTable(msgspec.Struct, frozen=True):
    """Events in the order of the log; the node is set by the caller."""

    events: tuple[KernelEvent, ...]


def read(data: bytes, path: str) -> KernelTable:
    """The events. Seconds since boot where the line starts with the kernel's clock, else None."""
    events = []
    gpu: tuple[int, str] | None = None
    for index, raw in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if "NVRM" not in raw and not kernel_patterns.may_mean_something(raw):
            continue
        line = split(raw[:LONGEST])
        named = THE_GPU.search(line.text)
        gpu = (index, named["gpu"]) if named is not None else gpu
        event = understand(line, Ref(path, index))
        if event is None:
            continue
        if event.kind == "gpu-lost" and named is None and gpu is not None and index - gpu[0] <= GPU_LINES:
            event = of_gpu(event, gpu[1])
        events.append(event)
    return KernelTable(tuple(events))


def understand(line: KernelLine, ref: Ref) -> KernelEvent | None:
    """The event of one line, None when it means nothing for a hang. Node "": the line tells none."""
    said = kernel_patterns.match(line.text)
    if said is None:
        return None
    pattern, found = said
    groups = found.groupdict()
    return KernelEvent(
        node=line.node or "",
        kind=f"{pattern.kind}-{groups['code']}" if groups.get("code") else pattern.kind,
        seconds=line.seconds,
        wall=line.wall,
        pid=number(groups.get("pid")),
        pci=pci.normal(line.text) if pattern.device else None,
        task=groups.get("task"),
        text=line.text[:SHOWN],
        ref=ref,
    )


def of_gpu(event: KernelEvent, gpu: str) -> KernelEvent:
    """The event with the address that only a line before it shows."""
    return msgspec.structs.replace(event, pci=pci.normal(gpu), text=f"{gpu}: {event.text}"[:SHOWN])
