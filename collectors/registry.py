"""The collectors, in the order in which evidence perishes: one line each adds one.

First what a stuck process itself may still answer, then the kernel's view of every thread, the stacks and
their source, and the slow or lasting things last. ``native`` runs only on request. Python >= 3.8.
"""

from typing import Iterable, Tuple

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
    recorder,
    sockets,
    source,
    stacks,
    threads,
)
from .interface import Collector

COLLECTORS: Tuple[Collector, ...] = (
    recorder.COLLECTOR,
    threads.COLLECTOR,
    stacks.COLLECTOR,
    source.COLLECTOR,
    sockets.COLLECTOR,
    memory.COLLECTOR,
    process.COLLECTOR,
    locks.COLLECTOR,
    environment.COLLECTOR,
    gpus.COLLECTOR,
    output.COLLECTOR,
    nccl_log.COLLECTOR,
    kernel_log.COLLECTOR,
    mounts.COLLECTOR,
    native.COLLECTOR,
)

ON_REQUEST = ("native",)
"""Collectors that a sample does not run: the agent is asked for them, for the processes that matter."""


ALL_AT_ONCE = {"stacks": stacks.dump_all}
"""Collectors that take the cells of several processes side by side."""

READ_AHEAD = {
    "process": process.read_ahead,
    "environment": environment.read_ahead,
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
