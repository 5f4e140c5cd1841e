"""Did RAS's counts move between two reports? Then the job is alive, however equal its stacks look.

The counts are of launches: one that stood still shows nothing (send, receive and replayed graphs are not
counted). A report names processes by their pid in their own namespace.
"""

from __future__ import annotations

import msgspec

from ..model.facts import Capture, Process, Ref
from ..model.loose import RasCommunicator, RasReport


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """``more``: operations launched between the first and the last report in which a process stands."""

    more: int
    ref: Ref


def launched(capture: Capture) -> dict[tuple[str, int], Launched]:
    """(node, pid) of captured ranks that launched operations between two reports."""
    found: dict[tuple[str, int], Launched] = {}
    known = _by_inner_pid(capture.processes)
    for earlier, later in _pairs(capture.ras):
        before, after = _counts(earlier), _counts(later)
        for key, count in after.items():
            process = known.get(key[2])
            more = count - before.get(key, count)
            if process is None or more <= 0:
                continue
            place = (process.node, process.pid)
            sum_so_far = found[place].more if place in found else 0
            found[place] = Launched(more=sum_so_far + more, ref=later.ref)
    return found


def _pairs(reports: tuple[RasReport, ...]) -> list[tuple[RasReport, RasReport]]:
    """First and last report of each node that asked."""
    by_node: dict[str, list[RasReport]] = {}
    for report in reports:
        by_node.setdefault(report.ref.artifact.partition("!")[0], []).append(report)
    ordered = [sorted(items, key=lambda item: item.wall or 0.0) for items in by_node.values()]
    return [(items[0], items[-1]) for items in ordered if len(items) > 1]


def _counts(report: RasReport) -> dict[tuple[str, str, int], int]:
    """(communicator, kind, pid) → launched operations."""
    counts: dict[tuple[str, str, int], int] = {}
    for communicator in report.communicators:
        for rank in communicator.ranks:
            for kind, count in rank.counts.items() if rank.pid is not None else ():
                counts[communicator.hash, kind, rank.pid or 0] = count
        counts.update(_of_text(communicator))
    return counts


def _of_text(communicator: RasCommunicator) -> dict[tuple[str, str, int], int]:
    """A text report gives a count for the ranks that it lists."""
    pids = {rank.rank: rank.pid for rank in communicator.ranks if rank.pid is not None}
    return {
        (communicator.hash, kind, pids[rank]): count
        for kind, count, ranks in communicator.groups
        for rank in ranks
        if rank in pids
    }


def _by_inner_pid(processes: tuple[Process, ...]) -> dict[int, Process]:
    """Ranks by the pid that they know themselves by; one that two of them have names neither."""
    found: dict[int, list[Process]] = {}
    for process in processes:
        if process.rank is not None:
            inner = process.nspid[-1] if process.nspid else process.pid
            found.setdefault(inner, []).append(process)
    return {pid: items[0] for pid, items in found.items() if len(items) == 1}
