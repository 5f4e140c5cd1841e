"""Is the thread that is blocked the one that another waits for? A shared source file or class says so."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model.facts import Frame
from ..model.graph import Node
from .job import Job
from .solve import Solution

STANDARD = re.compile(r"/python3\.\d+/(?!site-packages/|dist-packages/)|^<")
"""Files of the standard library: every thread passes through threading.py."""


def related(caller: Frame | None, frames: Iterable[Frame]) -> bool:
    """True when one of the frames stands in the caller's source file, or in its class."""
    if caller is None or STANDARD.search(caller.file):
        return False
    owner = _class(caller)
    return any(
        frame.file == caller.file or (owner is not None and _class(frame) == owner)
        for frame in frames
        if not STANDARD.search(frame.file)
    )


def _class(frame: Frame) -> str | None:
    owner = frame.function.rpartition(".")[0]
    return owner if owner and not owner.endswith("<locals>") else None


def kin_of_root(job: Job, solution: Solution, root_nodes: Iterable[str]) -> bool:
    """For each thread on the way to the root that waits for *some thread* of its process: does one that
    leads to the root share the waiting caller's source? False when there is no such wait on the way."""
    members = set(root_nodes)
    before = _before(members, solution)
    hubs = [id for id in before if id.startswith("inside:")]
    answers = []
    for hub in hubs:
        ends = [edge.target for edge in solution.successors[hub] if edge.target in before | members]
        for edge in solution.predecessors.get(hub, ()):
            waiter = solution.nodes[edge.source]
            if edge.source in members or not _on_the_way(edge.source, hub, solution):
                continue
            others = [solution.nodes[id] for id in ends if id != edge.source]
            answers.append(any(related(_caller(waiter), _stack(job, end)) for end in others))
    return bool(answers) and all(answers)


def _on_the_way(id: str, hub: str, solution: Solution) -> bool:
    """True for the main thread, and for a thread that something else than the hub waits for."""
    node = solution.nodes[id]
    sources = {edge.source for edge in solution.predecessors.get(id, ())} - {hub}
    return node.tid == node.pid or bool(sources)


def _caller(node: Node) -> Frame | None:
    if node.wait is None:
        return None
    if node.wait.caller is not None and not STANDARD.search(node.wait.caller.file):
        return node.wait.caller
    return next((frame for frame in node.wait.chain if not STANDARD.search(frame.file)), None)


def _stack(job: Job, node: Node) -> tuple[Frame, ...]:
    process = job.by_pid.get((node.host or "", node.pid or -1))
    thread = job.threads(process).get(node.tid or -1) if process is not None else None
    return (thread.stack or ()) if thread is not None else ()


def _before(members: set[str], solution: Solution) -> set[str]:
    seen: set[str] = set()
    queue = list(members)
    while queue:
        for edge in solution.predecessors.get(queue.pop(), ()):
            if edge.source not in seen and edge.source not in solution.released:
                seen.add(edge.source)
                queue.append(edge.source)
    return seen
