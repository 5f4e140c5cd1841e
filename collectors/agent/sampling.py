"""Takes one sample: every collector, every process, each cell within its budget, none of them silent.

Python >= 3.8, standard library only.
"""

import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ...bundle.writer import ShardWriter
from .. import ahead, guarded
from ..interface import ERROR, OK, PROCESS, TIMEOUT, Collector, Context, Result, Target
from . import interruption

GRACE = 1.0
"""Seconds beyond its budget that a collector may take before it is interrupted."""

Emit = Callable[..., None]
AllAtOnce = Mapping[str, Callable[[Context, Sequence[Target]], Dict[int, Result]]]
"""By collector name: a function that takes the cells of several processes side by side."""
ReadAhead = Mapping[str, Callable[[Context, Sequence[Target]], None]]
"""By collector name: a function that has one child read what several cells need (``ahead``)."""

TOGETHER = 16
"""Processes that are read ahead at a time: their cells are in the shard before the next ones are read."""


class Sampler:
    """Runs collectors and writes their cells into the shard as they arrive.

    ``emit`` is told of every cell that is not ok. A cell is written once: what the first look took is not
    taken again in sample 0.
    """

    def __init__(
        self,
        writer: ShardWriter,
        emit: Emit,
        all_at_once: Optional[AllAtOnce] = None,
        read_ahead: Optional[ReadAhead] = None,
    ) -> None:
        self.writer = writer
        self.emit = emit
        self.all_at_once = all_at_once or {}
        self.read_ahead = read_ahead or {}
        self.written: Set[Tuple[int, str, Optional[int]]] = set()

    def take(self, ctx: Context, collectors: Sequence[Collector]) -> None:
        """One sample: the collectors in their order, over all targets of ``ctx``."""
        for collector in collectors:
            if collector.once and ctx.sample > 0:
                continue
            self.run(ctx, collector)

    def run(self, ctx: Context, collector: Collector) -> None:
        """One collector over its subjects: the node, or every target."""
        if collector.scope != PROCESS:
            self.cell(ctx, collector, None)
            return
        targets = [t for t in ctx.targets if (ctx.sample, collector.name, t.pid) not in self.written]
        if collector.name in self.all_at_once and targets and ctx.remaining(collector.budget) > 0:
            self._side_by_side(ctx, collector, targets)
            targets = [t for t in targets if (ctx.sample, collector.name, t.pid) not in self.written]
        for first in range(0, len(targets), TOGETHER):
            some = targets[first : first + TOGETHER]
            share = self._ask_ahead(ctx, collector, some)
            for target in some:
                self.cell(ctx, collector, target, share)
            ahead.forget(ctx)

    def cell(self, ctx: Context, collector: Collector, target: Optional[Target], share: float = 0.0) -> None:
        """Takes one cell and writes it; what goes wrong in the collector becomes its status.

        ``share``: its part, in seconds, of what was done for several cells before.
        """
        pid = None if target is None else target.pid
        if (ctx.sample, collector.name, pid) in self.written:
            return
        start = time.monotonic()
        if ctx.remaining(collector.budget) <= 0:
            result = Result(TIMEOUT, "the capture's deadline had passed before its turn")
        else:
            limit = ctx.remaining(collector.budget) + GRACE
            result = limited(limit, lambda: collector.collect(ctx, target))
        self.write(ctx.sample, collector.name, pid, result, share + time.monotonic() - start)

    def _ask_ahead(self, ctx: Context, collector: Collector, targets: List[Target]) -> float:
        """Reads ahead where the collector can. Returns the seconds that it took for each process.

        A process for which it brings no answer is read by its own cell.
        """
        read_ahead = self.read_ahead.get(collector.name)
        if read_ahead is None or len(targets) < 2 or ctx.remaining(collector.budget) <= 0:
            return 0.0
        ask = read_ahead
        start = time.monotonic()

        def read() -> Result:
            ask(ctx, targets)
            return Result(OK)

        limited(ctx.remaining(collector.budget * len(targets)) + GRACE, read)
        return (time.monotonic() - start) / len(targets)

    def _side_by_side(self, ctx: Context, collector: Collector, targets: List[Target]) -> None:
        """Processes for which no cell came back are left to ``cell``, unless the time is up."""
        start = time.monotonic()
        limit = ctx.remaining(collector.budget * len(targets)) + GRACE
        done: Dict[int, Result] = {}

        def dump() -> Result:
            done.update(self.all_at_once[collector.name](ctx, targets))
            return Result(OK)

        whole = limited(limit, dump)
        seconds = (time.monotonic() - start) / len(targets)
        for target in targets:
            result = done.get(target.pid, whole)
            if result is not whole or whole.status != OK:
                self.write(ctx.sample, collector.name, target.pid, result, seconds)

    def write(self, sample: int, collector: str, pid: Optional[int], result: Result, seconds: float) -> None:
        """Writes one cell; a status that lacks its reason is given one. Raises OSError of the stream."""
        self.written.add((sample, collector, pid))
        reason = result.reason
        if reason is None and result.status != OK:
            reason = "the collector gave no reason"
        with interruption.undisturbed():
            self.writer.cell(collector, sample, pid, result.status, reason, seconds, result.artifacts)
        if result.status != OK:
            self.emit(
                "cell", sample=sample, collector=collector, pid=pid, status=result.status, reason=reason
            )


def limited(seconds: float, function: Callable[[], Result]) -> Result:
    """The function's result; a status instead of an exception, and of an end that does not come.

    What a collector started and left running is ended. Only ``Interrupted`` passes through.
    """
    try:
        with interruption.time_limit(seconds):
            return function()
    except interruption.Overrun:
        interruption.stop_clock()  # it may have struck while it was being stopped
        result = Result(TIMEOUT, f"interrupted after {seconds:.1f} s")
    except Exception as error:  # whatever a collector raises is its cell's status: the capture goes on
        result = Result(ERROR, f"{type(error).__name__}: {error}"[:300])
    end_children()
    return result


def end_children() -> List[int]:
    """Kills and reaps what this process started. Returns all pids that survived SIGKILL so far."""
    for pid in list(guarded.running):
        guarded.end_child(pid, kill=True)
    guarded.running.clear()
    return sorted(set(guarded.abandoned))
