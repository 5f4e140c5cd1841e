"""A wait-for graph while it is being drawn. Only what lies on some rank's wait path gets a node."""

from __future__ import annotations

import msgspec

from ...model.facts import Process, Ref
from ...model.graph import Certainty, Edge, Mode, Node, NodeType, SinkClass, WaitGraph
from ...model.waits import Wait
from ..job import Job


class Draft:
    """Nodes and edges by id; the first of two equal edges stays unless the second is more certain."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], Edge] = {}
        self.out: dict[str, list[str]] = {}
        self.queue: list[tuple[Process, int]] = []
        """Threads whose own waits are still to be drawn."""

    def node(
        self,
        id: str,
        type: NodeType,
        label: str,
        *,
        process: Process | None = None,
        rank: int | None = None,
        tid: int | None = None,
        wait: Wait | None = None,
        sink: SinkClass | None = None,
        refs: tuple[Ref, ...] = (),
    ) -> str:
        if id not in self.nodes:
            self.nodes[id] = Node(
                id=id,
                type=type,
                label=label,
                host=process.node if process is not None else None,
                rank=rank if rank is not None else (self.job.owner(process) if process is not None else None),
                pid=process.pid if process is not None else None,
                tid=tid,
                wait=wait,
                sink=sink,
                refs=refs,
            )
        return id

    def thread(self, process: Process, tid: int) -> str:
        """The node of a thread; its waits are drawn later, once."""
        id = thread_id(process, tid)
        if id not in self.nodes:
            wait = self.job.wait(process, tid)
            thread = self.job.threads(process).get(tid)
            refs = (thread.ref,) if thread is not None else ()
            name = thread_name(process, tid, self.job)
            self.node(id, "thread", name, process=process, tid=tid, wait=wait, refs=refs)
            self.queue.append((process, tid))
        return id

    def edge(
        self,
        source: str,
        target: str,
        *,
        mode: Mode = "and",
        certainty: Certainty = "observed",
        why: str = "",
        refs: tuple[Ref, ...] = (),
    ) -> None:
        known = self.edges.get((source, target))
        if known is not None and CERTAINTIES.index(known.certainty) <= CERTAINTIES.index(certainty):
            return
        if known is None:
            self.out.setdefault(source, []).append(target)
        self.edges[(source, target)] = Edge(
            source=source, target=target, mode=mode, certainty=certainty, why=why, refs=refs
        )

    def classify(self, id: str, sink: SinkClass, progress: bool | None = None) -> None:
        """Decides what a node is once nothing more leaves it."""
        self.nodes[id] = msgspec.structs.replace(self.nodes[id], sink=sink, progress=progress)

    def finished(self) -> WaitGraph:
        """The graph as a value, in an order that does not depend on the order of the input."""
        nodes = tuple(self.nodes[id] for id in sorted(self.nodes))
        edges = tuple(self.edges[key] for key in sorted(self.edges))
        return WaitGraph(nodes=nodes, edges=edges)


CERTAINTIES: tuple[Certainty, ...] = ("observed", "inferred", "possible")


def thread_id(process: Process, tid: int) -> str:
    return f"thread:{process.node}:{process.pid}:{tid}"


def thread_name(process: Process, tid: int, job: Job) -> str:
    """The name that a person knows the thread by: Python's, else the kernel's."""
    thread = job.threads(process).get(tid)
    number = f"thread {tid}" if tid > 0 else "unnamed thread"
    if thread is None:
        return number
    if tid == process.pid:
        return thread.python_name or "MainThread"
    return thread.python_name or thread.comm or number
