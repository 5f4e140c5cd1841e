"""GPUs in the graph: those that are out of order, and a device that lags behind its peers'.

An operation of a group on GPUs waits for the GPU of every member; so does a thread that waits for its
device, or sits in the driver. With NCCL a call that returned was only launched: entries of the flight
recorder that peers have *started* and one rank has only *scheduled* put that rank's device behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model.facts import Process
from ...model.graph import Certainty
from ...model.waits import WaitKind
from ..devices import Trouble, stuck_in_driver, troubles
from ..job import Job
from ..membership import Membership
from ..recorder import Records
from .draft import Draft
from .slots import INIT, STORE, UNNAMED, WORLD, Slot

CARRIES = "carries the data of"
"""How an edge to what an operation's data passes through begins."""

SITS = {
    WaitKind.DRIVER: "observed",
    WaitKind.DEVICE: "observed",
    WaitKind.UNKNOWN: "inferred",
    WaitKind.RUNNING: "inferred",
}
"""Waits of a rank's thread that its GPU can be behind, and how sure that is."""


class Devices:
    """Draws the edges to GPUs."""

    def __init__(self, draft: Draft, membership: Membership, records: Records) -> None:
        self._draft = draft
        self._job: Job = draft.job
        self._membership = membership
        self._records = records
        self._troubles = troubles(draft.job)
        self._in_driver = self._driver_threads()
        self._states: dict[tuple[str, int], dict[int, str]] = {}
        for rank, recorder in records.by_rank.items():
            for entry in recorder.pending:
                self._states.setdefault((entry.group, entry.sequence), {})[rank] = entry.state

    def operation(self, slot: Slot, slots: Iterable[Slot]) -> None:
        """Edges of an operation to the GPUs that keep it from ending."""
        if self._membership.gpu:
            for trouble in self._troubles:
                how = self._member(slot, trouble.owners)
                if how is not None:
                    who = " or ".join(map(str, trouble.owners[:4]))
                    self._draft.edge(slot.id, self._node(trouble), certainty=how, why=f"{CARRIES} rank {who}")
            for rank, tids in self._in_driver.items():
                how = self._member(slot, (rank,))
                for tid in tids if how is not None else ():
                    target = self._draft.thread(self._job.ranks[rank], tid)
                    sure: Certainty = "possible" if how == "possible" else "inferred"
                    self._draft.edge(slot.id, target, certainty=sure, why=f"{CARRIES} rank {rank}")
        self._behind(slot, list(slots))

    def thread(self, process: Process, tid: int, source: str) -> None:
        """An edge of a rank's thread that waits for the device, or for the driver."""
        kind = self._job.wait(process, tid).kind
        rank = self._job.owner(process)
        if kind not in SITS or process.role != "rank" or rank is None:
            return
        main = tid == process.pid
        mine = [t for t in self._troubles if rank in t.owners and (main or kind is not WaitKind.RUNNING)]
        if kind is WaitKind.DRIVER and not mine:
            asked = stuck_in_driver(self._job, process)
            mine = [asked] if asked is not None else []
        for trouble in mine:
            sure = len(trouble.owners) == 1 and SITS[kind] == "observed"
            how: Certainty = "observed" if sure else "inferred"
            self._draft.edge(source, self._node(trouble), certainty=how, why="its GPU does not answer")

    def _driver_threads(self) -> dict[int, list[int]]:
        """rank → its threads in the driver, whatever they are for: a watchdog or an event handler that does
        not come back from the driver shows that the driver does not answer the process."""
        found: dict[int, list[int]] = {}
        for rank, process, thread in self._job.rank_threads() if self._membership.gpu else ():
            if self._job.wait(process, thread.tid).kind is WaitKind.DRIVER:
                found.setdefault(rank, []).append(thread.tid)
        return found

    def _member(self, slot: Slot, ranks: tuple[int, ...]) -> Certainty | None:
        """How sure it is that the GPU's rank is in the operation's group."""
        owners = set(ranks)
        if slot.group == INIT:
            return None
        if slot.group in (UNNAMED, STORE):
            return "observed" if self._membership.everyone else "possible"
        if slot.group == WORLD or self._membership.everyone:
            members = set(self._job.members)
        else:
            listed = self._records.listed.get(slot.group, frozenset())
            members = set(slot.ranks | listed | self._records.proven.get(slot.group, frozenset()))
        if not owners & members:
            return None
        return "observed" if owners <= members else "inferred"

    def _node(self, trouble: Trouble) -> str:
        sole = trouble.owners[0] if len(trouble.owners) == 1 else None
        process = self._job.ranks[sole] if sole is not None else None
        state = "is lost" if trouble.lost else "does not go on"
        id = self._draft.node(
            trouble.id,
            "resource",
            f"{trouble.name} of {trouble.node}, which {state}",
            process=process,
            rank=sole,
            sink="stuck",
            refs=tuple(ref for _text, ref in trouble.facts),
        )
        return id

    def _behind(self, slot: Slot, slots: list[Slot]) -> None:
        """Peers have started the operation on their devices and one rank has only scheduled it."""
        entry = next((j.entry for j in slot.joiners if j.entry is not None), None)
        if entry is None or slot.sequence is None:
            return
        late = self._late(entry.group, slot.sequence)
        if late is None or late not in self._job.ranks:
            return
        process = self._job.ranks[late]
        first = next((e for e in self._records.by_rank[late].pending if not e.p2p), None)
        label = f"the device of rank {late}, which has not started {slot.label} #{slot.sequence}"
        refs = (first.ref,) if first is not None else ()
        id = f"device:{process.node}:{process.pid}"
        own = first is None or (first.group, first.sequence) == (entry.group, slot.sequence)
        kept = self._draft.node(
            id, "resource", label, process=process, rank=late, sink="stuck" if own else None, refs=refs
        )
        self._draft.edge(slot.id, kept, why="its peers have started the operation")
        if own or first is None:
            return
        other = next((s for s in slots if s.sequence == first.sequence and _group(s) == first.group), None)
        target = other.id if other is not None else self._unseen(first.group, first.sequence)
        self._draft.edge(
            kept, target, certainty="inferred", why="its lowest unfinished operation is another one"
        )

    def _late(self, group: str, sequence: int) -> int | None:
        """The only rank whose device has not started the operation while a peer's has, or has finished it;
        None when there is none or there are several. A recorder without a single start time does not tell
        starts: torch writes them with TORCH_NCCL_ENABLE_TIMING alone, and gloo never does."""
        states = self._states.get((group, sequence), {})
        waiting = [rank for rank, state in states.items() if state == "scheduled"]
        if len(waiting) != 1 or not self._records.by_rank[waiting[0]].timed:
            return None
        members = self._records.listed.get(group, frozenset()) - set(waiting)
        started = "started" in states.values() or any(
            self._records.completed(rank, group, sequence) for rank in members
        )
        return waiting[0] if started else None

    def _unseen(self, group: str, sequence: int) -> str:
        return self._draft.node(
            f"unknown:operation:{group}:{sequence}",
            "unknown",
            f"who is missing in operation #{sequence} of group {group} is not known",
            sink="unknown",
        )


def _group(slot: Slot) -> str | None:
    return next((joiner.entry.group for joiner in slot.joiners if joiner.entry is not None), None)
