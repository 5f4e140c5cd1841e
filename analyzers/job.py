"""One job's facts, indexed: who is which rank, who is whose child, and what each thread waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model.facts import Capture, Process, ProcessSample, ThreadSample
from ..model.waits import ReleasedBy, Wait, WaitKind

Key = tuple[str, int]
"""(node, pid)."""

WaitMap = Mapping[tuple[str, int, int], Wait]

TRANSPORT_NAMES = ("gloo_tcp_loop", "pt_gloo_runloop", "NCCL", "ncclProxy")
"""Thread names (prefixes) that carry a back end's traffic: gloo's own, and NCCL's progress, service and
proxy threads (names set by gloo and NCCL themselves)."""

COMMUNICATION = frozenset(
    {
        WaitKind.COLLECTIVE,
        WaitKind.BARRIER,
        WaitKind.SEND,
        WaitKind.RECV,
        WaitKind.INIT,
        WaitKind.RENDEZVOUS,
        WaitKind.STORE,
        WaitKind.DEVICE,
        WaitKind.AUTOGRAD,
        WaitKind.ENTERING,
    }
)
"""Waits in which a rank waits for other ranks, or for its own device."""

BLOCKED = frozenset(
    {
        WaitKind.HOST_MEMORY,
        WaitKind.FILESYSTEM,
        WaitKind.DISK,
        WaitKind.DRIVER,
        WaitKind.KERNEL,
        WaitKind.PIPE,
        WaitKind.FIFO,
        WaitKind.SOCKET,
        WaitKind.POLL,
        WaitKind.FILE_LOCK,
    }
)
"""Blocked by something outside the process."""

INSIDE = frozenset(
    {
        WaitKind.LOCK,
        WaitKind.SIGNALLED,
        WaitKind.QUEUE,
        WaitKind.FUTURE,
        WaitKind.JOIN_THREAD,
        WaitKind.GIL,
    }
)
"""Waits that some thread of the same process ends (a queue's producer may be a child)."""

LIVE = frozenset({WaitKind.RUNNING, WaitKind.SLEEP, WaitKind.COMPILE})

GONE = frozenset({WaitKind.STOPPED, WaitKind.TRACED, WaitKind.DEAD})

IDLE = frozenset({WaitKind.SERVICE, WaitKind.TRANSPORT_IDLE, WaitKind.RUNTIME})


ENDED = {"T": WaitKind.STOPPED, "t": WaitKind.TRACED, "Z": WaitKind.DEAD, "X": WaitKind.DEAD}
"""States that decide by themselves, whatever the frames say."""

MOST_RANKS = 1 << 17
"""No job has more; a larger number in a saved dump is no rank."""

UNCLASSIFIED = Wait(kind=WaitKind.UNKNOWN, released_by=ReleasedBy.NOBODY, resolved=False)


class Job:
    """Indexes over one ``Capture`` and its waits. Nothing here is changed after it was made.

    ``ranks`` maps global rank → process, ``members`` are all ranks the job has (the world where its size
    is known, else the captured ones).
    """

    def __init__(self, capture: Capture, waits: WaitMap) -> None:
        self.capture = capture
        self._waits = waits
        self.processes = tuple(sorted(capture.processes, key=lambda p: (p.node, p.pid)))
        self.by_pid: dict[Key, Process] = {(p.node, p.pid): p for p in self.processes}
        self.ranks, self.doubled = _ranks(self.processes)
        self.world_size = capture.world_size or _agreed_world(self.ranks)
        self.members = tuple(range(self.world_size)) if self.world_size else _members(capture, self.ranks)
        self._children: dict[Key, list[Process]] = {}
        for process in self.processes:
            self._children.setdefault((process.node, process.ppid), []).append(process)
        self._threads: dict[Key, dict[int, ThreadSample]] = {}
        self._communicating: dict[Key, tuple[int, ...]] = {}
        self.observed = _observed(capture)

    def newest(self, process: Process) -> ProcessSample | None:
        """The last sample in which the process's threads were seen; None when in none."""
        for sample in reversed(process.samples):
            if sample.threads:
                return sample
        return None

    def threads(self, process: Process) -> dict[int, ThreadSample]:
        """tid → thread, of the newest sample; empty when the process was not captured."""
        key = (process.node, process.pid)
        found = self._threads.get(key)
        if found is None:
            newest = self.newest(process)
            found = {thread.tid: thread for thread in newest.threads} if newest else {}
            self._threads[key] = found
        return found

    def wait(self, process: Process, tid: int) -> Wait:
        """What the thread waits for. A stopped, traced or dead thread is that, whatever its frames say;
        one that nobody could classify is ``UNKNOWN``."""
        thread = self.threads(process).get(tid)
        known = self._waits.get((process.node, process.pid, tid))
        kind = ENDED.get(thread.state) if thread is not None else None
        if kind is not None and thread is not None and (known is None or known.kind is not kind):
            why = f"state {thread.state}"
            return Wait(kind=kind, released_by=ReleasedBy.NOBODY, why=why, ref=thread.ref)
        if known is None:
            return UNCLASSIFIED
        return known

    def communicating(self, process: Process) -> tuple[int, ...]:
        """Threads of the process that wait for other ranks or for its own device, by tid."""
        key = (process.node, process.pid)
        found = self._communicating.get(key)
        if found is None:
            threads = self.threads(process)
            found = tuple(sorted(tid for tid in threads if self.wait(process, tid).kind in COMMUNICATION))
            self._communicating[key] = found
        return found

    def children(self, process: Process) -> tuple[Process, ...]:
        """Captured child processes, by pid."""
        return tuple(self._children.get((process.node, process.pid), ()))

    def owner(self, process: Process) -> int | None:
        """The rank that the process is, or belongs to."""
        return process.rank if process.role == "rank" else process.parent_rank

    def rank_threads(self) -> Iterator[tuple[int, Process, ThreadSample]]:
        """Every captured thread of every rank, by rank and tid."""
        for rank in sorted(self.ranks):
            process = self.ranks[rank]
            for tid in sorted(self.threads(process)):
                yield rank, process, self.threads(process)[tid]


def _ranks(processes: tuple[Process, ...]) -> tuple[dict[int, Process], tuple[int, ...]]:
    """Two processes that claim one rank are two attempts: the younger one is the rank."""
    ranks: dict[int, Process] = {}
    doubled: set[int] = set()
    for process in processes:
        if process.role != "rank" or process.rank is None:
            continue
        other = ranks.get(process.rank)
        if other is not None:
            doubled.add(process.rank)
            if _age_key(process) <= _age_key(other):
                continue
        ranks[process.rank] = process
    return ranks, tuple(sorted(doubled))


def _members(capture: Capture, ranks: Mapping[int, Process]) -> tuple[int, ...]:
    """The captured ranks. Of saved dumps, of which somebody chose some, the lower ones must be there too."""
    if capture.loose and ranks and max(ranks) < MOST_RANKS:
        return tuple(range(max(ranks) + 1))
    return tuple(sorted(ranks))


def _age_key(process: Process) -> tuple[float, int, int]:
    return (process.start_wall or 0.0, process.start_ticks, process.pid)


def _agreed_world(ranks: Mapping[int, Process]) -> int | None:
    """The world size that every rank that knows one agrees on, and that holds every rank."""
    sizes = {process.world_size for process in ranks.values() if process.world_size}
    if len(sizes) != 1:
        return None
    size = sizes.pop()
    return size if all(rank < size for rank in ranks) else None


def _observed(capture: Capture) -> float:
    """Seconds between the first and the last sample, on the node that was watched the shortest."""
    spans: dict[str, list[float]] = {}
    for node, _sample, when in capture.sample_times:
        spans.setdefault(node, []).append(when)
    return min((max(times) - min(times) for times in spans.values()), default=0.0)


def is_transport(comm: str) -> bool:
    """True for the name of a thread that carries a communication back end's traffic.

    >>> is_transport("gloo_tcp_loop"), is_transport("NCCL Progress 0"), is_transport("python3")
    (True, True, False)
    """
    return comm.startswith(TRANSPORT_NAMES)
