"""From a root of the graph to a finding: which kind of hang it is, and which ranks it names."""

from __future__ import annotations

import msgspec

from ..model.graph import Node, Root
from ..model.ranges import ranks_phrase
from ..model.verdict import Kind, RootType
from ..model.waits import Wait, WaitKind
from .devices import is_gpu
from .finding import Finding, blocked_at
from .graph import Built
from .graph.slots import INIT, STORE, UNNAMED, Slot
from .job import GONE, IDLE, LIVE, Job
from .recorder import Records
from .single_group import Split, split
from .solve import Solution


class Classifier:
    """Turns roots into findings. One instance an analysis."""

    def __init__(
        self, job: Job, built: Built, solution: Solution, records: Records, hard: frozenset[str]
    ) -> None:
        """``hard``: thread nodes that are provably still in the kernel."""
        self._job = job
        self._built = built
        self._solution = solution
        self._records = records
        self._hard = hard

    def finding(self, root: Root) -> Finding:
        """What the root means."""
        if root.is_cycle:
            return self._knot(root)
        node = self._solution.nodes[root.nodes[0]]
        if node.type == "absent":
            stopped = node.sink == "stuck" and self._stopped(node)
            return self._make(root, "rank-absent", wait=WaitKind.STOPPED if stopped else None, hard=True)
        if node.type == "operation":
            return self._operation(root, node)
        if node.type == "unknown" or node.sink == "unknown":
            ranks = (node.rank,) if node.rank is not None else ()
            return self._undecided(root, node.label if node.type != "thread" else _opaque(node), ranks)
        if node.type == "resource":
            return self._resource(root, node)
        return self._thread(root, node)

    def _stopped(self, node: Node) -> bool:
        """A stopped rank is there, and can be made to go on: it is named even while nobody waits for it."""
        process = self._job.by_pid.get((node.host or "", node.pid or -1))
        newest = self._job.newest(process) if process is not None else None
        return newest is not None and (newest.frozen or any(t.state == "T" for t in newest.threads))

    def _resource(self, root: Root, node: Node) -> Finding:
        """Where several ranks end in it, the resource is the root; with one left, that rank is."""
        if is_gpu(node):
            return self._gpu(root, node)
        if node.id.startswith("link:"):
            return self._make(root, "rank-blocked", type="link", ranks=(), wait=WaitKind.SOCKET)
        threads = blocked_at(node.id, self._solution)
        ranks = {thread.rank for thread in threads}
        wait = next((thread.wait.kind for thread in threads if thread.wait is not None), None)
        hard = all(thread.id in self._hard for thread in threads)
        if len(ranks) == 1:
            nodes = tuple(thread.id for thread in threads)
            named = tuple(rank for rank in ranks if rank is not None)
            return self._make(root, "rank-blocked", ranks=named, nodes=nodes, wait=wait, hard=hard)
        return self._make(root, "rank-blocked", type=_resource_type(node), ranks=(), wait=wait, hard=hard)

    def _gpu(self, root: Root, node: Node) -> Finding:
        """A GPU names its rank where only one works on it. One that is lost needs no further samples."""
        ranks = (node.rank,) if node.rank is not None else ()
        hard = node.id.startswith("gpu:")
        return self._make(
            root, "rank-blocked", type="gpu", ranks=ranks, nodes=(node.id,), wait=WaitKind.DEVICE, hard=hard
        )

    def _thread(self, root: Root, node: Node) -> Finding:
        wait = (
            node.wait.kind if node.wait is not None else (WaitKind.DEAD if node.type == "process" else None)
        )
        if wait in IDLE:
            what = "stands idle in its server loop" if node.rank is not None else "is idle"
            return self._undecided(root, f"rank {node.rank} {what}", ())
        process = self._job.by_pid.get((node.host or "", node.pid or -1))
        role = process.role if process is not None else "outside"
        kind: RootType = "rank" if role == "rank" else ("launcher" if role == "launcher" else "process")
        ranks = (node.rank,) if node.rank is not None else self._direct_ranks(node.id)
        if kind != "rank" and len(ranks) != 1:
            ranks = ()
        if wait is WaitKind.DEVICE and kind == "rank":
            kind = "gpu"  # nothing that it launched is unfinished, and its device does not come back
        hard = node.id in self._hard or wait in GONE
        live = wait in LIVE or node.sink == "live"
        return self._make(root, "rank-blocked", type=kind, ranks=ranks, wait=wait, hard=hard, live=live)

    def _direct_ranks(self, id: str) -> tuple[int, ...]:
        """Ranks that wait for a process outside the job, through at most a lock between them."""
        found: set[int] = set()
        for edge in self._solution.predecessors.get(id, ()):
            source = self._solution.nodes[edge.source]
            if source.type == "lock":
                found |= set(self._direct_ranks(source.id))
            elif source.rank is not None:
                found.add(source.rank)
        return tuple(sorted(found))

    def _operation(self, root: Root, node: Node) -> Finding:
        slot = self._built.slots.get(node.id)
        if slot is None:
            return self._make(root, "all-joined", ranks=(), nodes=())
        if slot.group in (UNNAMED, STORE, INIT):
            why = "which ranks the operation waits for is not known"
            if slot.group == UNNAMED:
                why = "every rank waits in communication, and which process group each waits in is not known"
            return self._undecided(root, why, ())
        finished = self._finished_elsewhere(slot)
        if finished:
            why = f"{slot.label} is finished on other ranks and not here"
            return self._undecided(root, why, ())
        parts = split([slot], len(self._job.members))
        if len({part.shape for part in parts.parts}) > 1:
            return self._split(root, parts)
        return self._make(root, "all-joined", ranks=(), nodes=())

    def _finished_elsewhere(self, slot: Slot) -> bool:
        groups = {joiner.entry.group for joiner in slot.joiners if joiner.entry is not None}
        return slot.sequence is not None and any(
            self._records.completed(rank, group, slot.sequence)
            for rank in self._job.members
            for group in groups
            if rank not in slot.ranks
        )

    def _knot(self, root: Root) -> Finding:
        nodes = [self._solution.nodes[id] for id in root.nodes]
        inside = {e for id in root.nodes for e in self._solution.successors[id] if e.target in root.nodes}
        if any(edge.certainty == "possible" for edge in inside):
            return self._undecided(root, "the ranks may wait for one another, over groups not known", ())
        threads = [node for node in nodes if node.type == "thread"]
        slots = [self._built.slots[id] for id in root.nodes if id in self._built.slots]
        others = [n for n in nodes if n.type != "thread" and n.id not in self._built.slots]
        if len({slot.group for slot in slots}) == 1 and all(n.id.startswith("group:") for n in others):
            joined = {joiner.node for slot in slots for joiner in slot.joiners}
            if all(node.id in joined for node in threads):
                return self._split(root, split(slots, len(self._job.members)))
        sides = [*threads, *(node for node in others if is_gpu(node))]
        ranks = tuple(sorted({node.rank for node in sides if node.rank is not None}))
        local = len({(node.host, node.pid) for node in threads}) == 1
        owned = any(n.type == "lock" for n in others) or any(
            n.wait is not None and n.wait.kind is WaitKind.GIL for n in threads
        )
        if local and not slots and not owned:
            return self._no_producer(root, threads)
        if len(sides) == 1 and owned and self._alone(threads[0]):
            return self._no_producer(root, threads)
        if len(sides) < 2:
            return self._undecided(root, "a wait that leads back to itself", ())
        ids = tuple(node.id for node in sides)
        return self._make(
            root, "cycle", ranks=ranks, nodes=ids, wait=_knot_wait(threads), hard=local and owned
        )

    def _alone(self, node: Node) -> bool:
        """No other thread of the process does anything: the lock that it waits for and its process holds, it
        holds itself."""
        process = self._job.by_pid.get((node.host or "", node.pid or -1))
        others = [tid for tid in self._job.threads(process) if tid != node.tid] if process is not None else []
        return process is not None and all(self._job.wait(process, tid).kind in IDLE for tid in others)

    def _no_producer(self, root: Root, threads: list[Node]) -> Finding:
        """Threads of one process that all wait for *some thread* of it: nobody is left to end the wait."""
        main = next((node for node in threads if node.tid == node.pid), threads[0])
        wait = main.wait.kind if main.wait is not None else None
        return self._make(root, "rank-blocked", nodes=(main.id,), wait=wait)

    def _split(self, root: Root, parts: Split) -> Finding:
        if parts.kind == "undecided":
            why = "the ranks stand in different operations of one group, without a majority in any"
            vague = tuple(rank for part in parts.parts if part.vague for rank in part.ranks)
            if vague:
                why = f"whether {ranks_phrase(vague)} wait for a collective or for a transfer is not known"
            return self._undecided(root, why, (), split=parts)
        nodes = tuple(
            joiner.node for part in parts.parts for joiner in part.joiners if joiner.rank in parts.initiators
        )
        everyone = {rank for part in parts.parts for rank in part.ranks} | set(root.victims) | set(root.ranks)
        victims = tuple(sorted(everyone - set(parts.initiators)))
        made = self._make(root, parts.kind, ranks=parts.initiators, nodes=nodes, victims=victims)
        return msgspec.structs.replace(made, split=parts)

    def _undecided(
        self, root: Root, why: str, unknown: tuple[int, ...], split: Split | None = None
    ) -> Finding:
        made = self._make(root, "undecided", ranks=(), nodes=())
        return msgspec.structs.replace(made, why=why, unknown=unknown, split=split)

    def _make(
        self,
        root: Root,
        kind: Kind,
        *,
        type: RootType = "rank",
        ranks: tuple[int, ...] | None = None,
        nodes: tuple[str, ...] | None = None,
        victims: tuple[int, ...] | None = None,
        wait: WaitKind | None = None,
        hard: bool = False,
        live: bool = False,
    ) -> Finding:
        named = root.ranks if ranks is None else ranks
        waiting = set(root.victims if victims is None else victims)
        if kind != "undecided":
            waiting |= set(root.ranks)
        return Finding(
            kind=kind,
            type=type,
            root=root,
            nodes=root.nodes if nodes is None else nodes,
            ranks=named,
            victims=tuple(sorted(waiting - set(named))),
            wait=wait,
            live=live,
            hard=hard,
        )


def _opaque(node: Node) -> str:
    wait = node.wait
    if wait is None or wait.kind is WaitKind.UNKNOWN:
        return f"what rank {node.rank} waits for{_at(wait)} could not be told"
    if wait.kind is WaitKind.ENTERING:
        return f"whether rank {node.rank} has joined {wait.operation or 'the operation'} could not be told"
    return f"rank {node.rank}: {wait.why or wait.kind.value}, whom that waits for is not known"


def _at(wait: Wait | None) -> str:
    frame = (wait.caller or wait.frame) if wait is not None else None
    return f" in {frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})" if frame is not None else ""


def _resource_type(node: Node) -> RootType:
    kinds: dict[str, RootType] = {"mount": "mount", "memory": "node", "driver": "node", "remote": "link"}
    return kinds.get(node.id.partition(":")[0], "node")


def _knot_wait(threads: list[Node]) -> WaitKind | None:
    kinds = sorted({node.wait.kind for node in threads if node.wait is not None}, key=lambda kind: kind.value)
    return kinds[0] if kinds else None
