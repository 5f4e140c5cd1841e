"""Facts → waits: what every thread waits for, by the frame dictionary."""

from __future__ import annotations

from hangscope.model.facts import Capture, Frame
from hangscope.model.waits import Wait

from . import activity
from .decide import decide, thread_wait
from .stack import Reading, read_stack

__all__ = ["thread_wait", "waits_of"]


def waits_of(capture: Capture) -> dict[tuple[str, int, int], Wait]:
    """The wait of every thread in its process's newest sample, by (node, pid, tid).

    Each distinct stack is read once; a process without a sample has no entry.
    """
    readings: dict[int, Reading] = {}
    kept: list[tuple[Frame, ...]] = []
    found: dict[tuple[str, int, int], Wait] = {}
    for process in capture.processes:
        if not process.samples:
            continue
        sample = process.samples[-1]
        owner = activity.gil_owner(process, sample)
        for thread in sample.threads:
            reading = None
            if thread.stack:
                reading = readings.get(id(thread.stack))
                if reading is None:
                    reading = readings[id(thread.stack)] = read_stack(thread.stack)
                    kept.append(thread.stack)
            found[process.node, process.pid, thread.tid] = decide(process, sample, thread, reading, owner)
    return found
