"""The way from the victims to the root, one link a wait."""

from __future__ import annotations

from ..model.graph import Edge, Node
from ..model.verdict import ChainLink
from .finding import Finding
from .graph import Built
from .graph.devices import CARRIES
from .graph.operations import UNKNOWN_MEMBERS
from .graph.slots import Slot
from .job import Job
from .naming import known, pid_text
from .places import place, shown, source_text
from .solve import Solution

LINKS = 12


def chain(job: Job, finding: Finding, built: Built, solution: Solution) -> tuple[ChainLink, ...]:
    """Links from the largest class of victims to the root; for a knot, once around it."""
    if finding.split is not None:
        return _parts(finding)
    root = set(finding.root.nodes)
    links: list[ChainLink] = []
    path = _path(finding, built, solution)
    for edge, following in zip(path, [*path[1:], None], strict=False):
        link = _link(edge, following, built, solution, job)
        if link is not None:
            links.append(link)
    if finding.root.is_cycle:
        links.extend(_around(finding, built, solution, job))
    else:
        end = path[-1].target if path else finding.root.nodes[0]
        last = _end(solution.nodes[end], job)
        if last is not None and end in root:
            links.append(last)
    return tuple(links[:LINKS])


def _parts(finding: Finding) -> tuple[ChainLink, ...]:
    assert finding.split is not None
    links = []
    for part in finding.split.parts:
        frame = shown(part.joiners[0].wait)
        what = f"{part.label}, in which the other ranks of the group do not stand"
        links.append(ChainLink(ranks=part.ranks, waits_for=what, at=place(frame), source=source_text(frame)))
    return tuple(links[:LINKS])


def _path(finding: Finding, built: Built, solution: Solution) -> list[Edge]:
    """The edges from a victim's thread to the root: breadth first from the root, from the victims that
    are farthest away."""
    distance: dict[str, int] = dict.fromkeys(finding.root.nodes, 0)
    step: dict[str, Edge] = {}
    queue = list(finding.root.nodes)
    while queue:
        following = []
        for id in queue:
            for edge in solution.predecessors.get(id, ()):
                if edge.source not in distance and edge.source not in solution.released:
                    distance[edge.source] = distance[id] + 1
                    step[edge.source] = edge
                    following.append(edge.source)
        queue = following
    ranks = finding.root.victims or finding.root.ranks
    ends = [id for rank in ranks for id in built.starts.get(rank, ()) if distance.get(id)]
    if not ends:
        return []
    start = min(ends, key=lambda id: (-distance[id], solution.nodes[id].rank or 0, id))
    path = []
    while start in step:
        path.append(step[start])
        start = step[start].target
    return path


def _link(edge: Edge, following: Edge | None, built: Built, solution: Solution, job: Job) -> ChainLink | None:
    """An edge out of a thread; the one behind it (an operation, a lock, *some thread*) is told with it."""
    source, target = solution.nodes[edge.source], solution.nodes[edge.target]
    if source.type != "thread" and not (source.type == "queue" and source.id.startswith("work:")):
        return None
    frame = shown(source.wait)
    ranks: tuple[int, ...] = (source.rank,) if source.rank is not None else ()
    certainty = edge.certainty
    slot = built.slots.get(target.id)
    if target.type in ("operation", "lock", "queue") and following is not None:
        if certainty == "observed":
            certainty = following.certainty
        end = solution.nodes[following.target]
        if (
            target.type == "queue"
            and end.type == "thread"
            and (end.host, end.pid) == (source.host, source.pid)
        ):
            what = f"its own thread {end.label}"
        elif end.id == UNKNOWN_MEMBERS:
            what = f"{_what(target, slot)}; {end.label}"
        else:
            what = f"{_what(target, slot)}, {_missing(target, following)} {_name(end, job)}"
    else:
        what = _name(target, job)
    if slot is not None:
        ranks = tuple(sorted(slot.ranks))
    who = None if slot is not None else _who(source, job)
    return ChainLink(
        ranks=ranks, waits_for=what, at=place(frame), source=source_text(frame), who=who, certainty=certainty
    )


def _missing(target: Node, following: Edge) -> str:
    if following.why.startswith(CARRIES):
        return "whose data is carried by"
    if following.target.startswith(("link:", "device:")):
        return "which is held up by"
    if target.id.startswith("p2p:"):
        return "whose other half is missing at"
    return {"operation": "not joined by", "lock": "held by"}.get(target.type, "that is")


def _what(node: Node, slot: Slot | None) -> str:
    if node.type == "lock":
        return f"lock {node.label}"
    if node.type == "queue":
        return "another thread of the process"
    return (
        node.label if slot is None or slot.group not in ("init",) else f"{node.label} (process group set-up)"
    )


def _name(node: Node, job: Job) -> str:
    if node.type == "thread":
        return _who(node, job)
    return node.label


def _who(node: Node, job: Job) -> str:
    """``rank 2, thread offload (pid 4711)``, ``rank 2's dataloader (pid 4805)`` or ``pid 71, tee``."""
    if node.rank is None:
        return f"{pid_text(node.pid)}, {node.label}"
    process = job.by_pid.get((node.host or "", node.pid or -1))
    number = f" ({pid_text(node.pid)})" if known(node.pid) is not None else ""
    if process is not None and process.role != "rank":
        return f"rank {node.rank}'s {process.role}{number}"
    return f"rank {node.rank}, thread {node.label}{number}"


def _end(node: Node, job: Job) -> ChainLink | None:
    """What the root itself is blocked on."""
    if node.type != "thread" or node.wait is None:
        return None
    frame = shown(node.wait)
    what = node.wait.why or node.wait.kind.value.replace("-", " ")
    ranks = (node.rank,) if node.rank is not None else ()
    return ChainLink(
        ranks=ranks, waits_for=what, at=place(frame), source=source_text(frame), who=_who(node, job)
    )


def _around(finding: Finding, built: Built, solution: Solution, job: Job) -> list[ChainLink]:
    """Once around the knot, from its first thread."""
    members = set(finding.root.nodes)
    threads = [id for id in finding.root.nodes if solution.nodes[id].type == "thread"]
    links: list[ChainLink] = []
    here, seen = (threads or list(finding.root.nodes))[0], set[str]()
    while here not in seen and len(links) < LINKS:
        seen.add(here)
        edge = next((e for e in solution.successors[here] if e.target in members), None)
        if edge is None:
            break
        following = next((e for e in solution.successors[edge.target] if e.target in members), None)
        link = _link(edge, following, built, solution, job)
        if link is not None:
            links.append(link)
        here = edge.target
    return links
