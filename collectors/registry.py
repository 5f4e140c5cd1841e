"""The collectors, in the order in which evidence perishes: one line each adds one.

First what a stuck process itself may still answer, then the kernel's view of every thread, the stacks and
their source, and the slow or lasting things last. ``native`` runs only on request. Python >= 3.8.
"""

from typing import Callable, Dict, Iterable, Tuple

from ..errors import UsageError
from . import (
    environment,
    gpus,
    kernel_log,
    locks,
    memory,
    mounts,
    native,
    nccl_log,
    output,
    process,
    ras,
    recorder,
    recorder_files,
    recorder_pipe,
    sockets,
    source,
    stacks,
    threads,
)
from .interface import Collector, Context

COLLECTORS: Tuple[Collector, ...] = (
    recorder.COLLECTOR,
    ras.COLLECTOR,
    threads.COLLECTOR,
    stacks.COLLECTOR,
    source.COLLECTOR,
    sockets.COLLECTOR,
    memory.COLLECTOR,
    process.COLLECTOR,
    locks.COLLECTOR,
    environment.COLLECTOR,
    recorder_files.COLLECTOR,
    gpus.COLLECTOR,
    output.COLLECTOR,
    nccl_log.COLLECTOR,
    kernel_log.COLLECTOR,
    mounts.COLLECTOR,
    native.COLLECTOR,
    recorder_pipe.COLLECTOR,
)

ON_REQUEST = ("native",)
"""Collectors that a sample does not run: the agent is asked for them, for the processes that matter."""

AT_THE_END = ("recorder_pipe",)
"""Collectors that make a target do something: they run once, when no sample comes any more."""

DUE_IN: Dict[str, Callable[[Context], float]] = {"ras": ras.due_in}
"""Collectors whose source must rest between two questions: seconds until the next may be asked. A sample that
comes too early leaves them out; one last time is waited for at the end."""

ALL_AT_ONCE = {"stacks": stacks.dump_all, "recorder_pipe": recorder_pipe.ask_all}
"""Collectors that take the cells of several processes side by side."""

READ_AHEAD = {
    "process": process.read_ahead,
    "environment": environment.read_ahead,
    "recorder_files": recorder_files.read_ahead,
    "output": output.read_ahead,
    "nccl_log": nccl_log.read_ahead,
}
"""Collectors whose cells share one reading child."""


def selected(only: Iterable[str] = (), skip: Iterable[str] = ()) -> Tuple[Collector, ...]:
    """The collectors that ``--only-collectors`` and ``--skip-collectors`` leave, in capture order.

    Raises UsageError for a name that no collector has.
    """
    only, skip = tuple(only), tuple(skip)
    names = [collector.name for collector in COLLECTORS]
    unknown = [name for name in only + skip if name not in names]
    if unknown:
        raise UsageError(f"no collector {unknown[0]!r}", None, "one of: " + ", ".join(names))
    return tuple(
        collector
        for collector in COLLECTORS
        if (not only or collector.name in only) and collector.name not in skip
    )
