"""``kernel_log/node/kernel.txt``: the lines of the kernel log that mean something for a hang.

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

from .raw import number, real

_CLOCK = re.compile(r"^(?:<\d{1,3}>)?.{0,80}?\[\s*(?P<seconds>\d{1,12}\.\d{1,9})\]\s?")

PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("oom-kill", re.compile(r"Killed process (?P<pid>\d{1,9}) \(")),
    ("oom-invoked", re.compile(r"\binvoked oom-killer\b")),
    (
        "hung-task",
        re.compile(r"INFO: task .{1,64}?:(?P<pid>\d{1,9}) blocked (?:in I/O wait )?for more than \d+ s"),
    ),
    ("soft-lockup", re.compile(r"soft lockup - CPU#\d+ stuck for \d+s! \[.{1,64}?:(?P<pid>\d{1,9})\]")),
    ("hard-lockup", re.compile(r"(?:hard LOCKUP|rcu.{0,40}(?:detected|self-detected) stall)")),
    ("xid", re.compile(r"NVRM: Xid \([^)]{1,64}\): (?P<code>\d{1,4})\b(?:, pid='?(?P<pid>\d{1,9}))?")),
    ("gpu-lost", re.compile(r"NVRM:.*(?:(?:GPU has |NVRM: )?fallen off the bus|not responding to commands)")),
    ("sxid", re.compile(r"nvidia-nvswitch\d*: SXid \([^)]{1,64}\): (?P<code>\d{1,6})")),
    ("nfs-not-responding", re.compile(r"nfs: server \S{1,200} not responding")),
    ("segfault", re.compile(r"\[(?P<pid>\d{1,9})\]: segfault at ")),
    ("link-down", re.compile(r"(?:NIC Link is Down|Link is Down|link becomes not ready)")),
)
"""First match wins; ``code`` is appended to the kind."""


THE_GPU = re.compile(
    r"NVRM: The NVIDIA (?P<gpu>GPU [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
)
"""The first of the lines that the driver writes on a GPU off the bus: the address stands in it alone."""


class KernelTable(msgspec.Struct, frozen=True):
    """Events in the order of the log; the node is set by the caller."""

    events: tuple[KernelEvent, ...]


def read(data: bytes, path: str) -> KernelTable:
    """The events. Seconds since boot where the line starts with the kernel's clock, else None."""
    events = []
    gpu: tuple[int, str] | None = None
    for index, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        named = THE_GPU.search(line[:2000])
        gpu = (index, named["gpu"]) if named is not None else gpu
        event = _event(line[:2000], Ref(path, index))
        if event is None:
            continue
        if event.kind == "gpu-lost" and named is None and gpu is not None and index - gpu[0] <= 4:
            event = msgspec.structs.replace(event, text=f"{gpu[1]}: {event.text}")
        events.append(event)
    return KernelTable(tuple(events))


def _event(line: str, ref: Ref) -> KernelEvent | None:
    for kind, pattern in PATTERNS:
        found = pattern.search(line)
        if found is None:
            continue
        groups = found.groupdict()
        clock = _CLOCK.match(line)
        return KernelEvent(
            node="",
            kind=f"{kind}-{groups['code']}" if groups.get("code") else kind,
            seconds=real(clock["seconds"]) if clock else None,
            pid=number(groups.get("pid")),
            text=line[clock.end() :] if clock else line,
            ref=ref,
        )
    return None
