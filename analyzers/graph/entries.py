"""The node at which others meet a rank: the thread that would have to do what they wait for."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.facts import Process
from ..job import IDLE, Job
from ..presence import ABSENT, Presence
from .draft import Draft


class Entries:
    """Draws the entry node of a rank or process on demand."""

    def __init__(self, draft: Draft, presences: Mapping[int, Presence]) -> None:
        self.draft = draft
        self.presences = presences

    def rank(self, rank: int) -> str:
        """The rank's working thread; an ``absent`` or ``unknown`` node where there is none to look at."""
        presence = self.presences.get(rank)
        if presence is None or presence.being == "unknown":
            why = presence.why if presence is not None else "outside the known world"
            refs = presence.refs if presence is not None else ()
            return self.draft.node(
                f"unknown:{rank}", "unknown", f"rank {rank}: {why}", rank=rank, sink="unknown", refs=refs
            )
        if presence.being in ABSENT:
            return self.draft.node(
                f"absent:{rank}",
                "absent",
                f"rank {rank}: {presence.why}",
                process=presence.process,
                rank=rank,
                sink="stuck",
                refs=presence.refs,
            )
        assert presence.process is not None  # a rank that is alive was captured
        return self.process(presence.process)

    def process(self, process: Process) -> str:
        """The process's working thread: the main one, unless that only serves while another works."""
        job = self.draft.job
        threads = job.threads(process)
        if not threads:
            return self.draft.node(
                f"unknown:{process.node}:{process.pid}",
                "unknown",
                f"{process.role} {process.pid}: not captured",
                process=process,
                sink="unknown",
            )
        main = threads.get(process.pid)
        if main is not None and main.state not in ("Z", "X") and not _serves(job, process):
            return self.draft.thread(process, process.pid)
        others = work_threads(job, process)
        if len(others) == 1:
            return self.draft.thread(process, others[0])
        if not others:
            return self.draft.thread(process, process.pid if main is not None else min(threads))
        id = self.draft.node(
            f"work:{process.node}:{process.pid}", "queue", "any thread that works", process=process
        )
        for tid in others:
            self.draft.edge(
                id, self.draft.thread(process, tid), mode="or", certainty="inferred", why="a working thread"
            )
        return id


def _serves(job: Job, process: Process) -> bool:
    return job.wait(process, process.pid).kind in IDLE


def work_threads(job: Job, process: Process) -> list[int]:
    """Threads besides the main one that communicate, or that are blocked after the leader died."""
    threads = job.threads(process)
    main = threads.get(process.pid)
    if main is None or main.state in ("Z", "X"):
        return sorted(tid for tid, thread in threads.items() if thread.state == "D")
    return [tid for tid in job.communicating(process) if tid != process.pid]
