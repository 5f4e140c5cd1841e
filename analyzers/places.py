"""How a place in the code and a thread are written for people."""

from __future__ import annotations

from ..model.facts import Frame, Process
from ..model.graph import Node
from ..model.verdict import RootEntry, RootType
from ..model.waits import Wait, WaitKind
from .devices import gpu_name
from .finding import Finding
from .graph.draft import thread_name
from .job import Job
from .naming import known
from .presence import Presence
from .solve import Solution

LONG = 60


def place(frame: Frame | None) -> str | None:
    """``file:line``; what stands before ``site-packages`` and before the last four folders is cut.

    >>> place(Frame(function="f", file="/a/lib/python3.11/site-packages/torch/x.py", line=7))
    'torch/x.py:7'
    """
    if frame is None:
        return None
    file = frame.file
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            file = file.rpartition(mark)[2]
    if len(file) > LONG:
        file = "…/" + "/".join(file.split("/")[-4:])
    return f"{file}:{frame.line}" if frame.line else file


def shown(wait: Wait | None) -> Frame | None:
    """The frame that a person should look at: the caller of the wait, else the frame that decided."""
    if wait is None:
        return None
    return wait.caller or wait.frame


def source_text(frame: Frame | None) -> str | None:
    """The source line of the frame, stripped."""
    if frame is None or frame.source is None or not frame.source.text.strip():
        return None
    return frame.source.text.strip()


def root_entries(
    job: Job, finding: Finding, solution: Solution, presences: dict[int, Presence]
) -> tuple[RootEntry, ...]:
    """The ends of the waiting as the verdict lists them, by rank and thread."""
    entries = []
    for id in finding.nodes:
        node = solution.nodes[id]
        if node.type == "absent" and node.rank is not None:
            entries.append(_absent(job, finding, presences[node.rank]))
        elif node.type == "resource":
            label = node.label
            wait = finding.wait.value if finding.wait is not None else None
            host = node.host or _resource_host(node, finding, solution)
            owner = job.ranks.get(node.rank) if node.rank is not None else None
            entries.append(
                RootEntry(
                    type=finding.type,
                    rank=node.rank,
                    node=host,
                    pid=node.pid,
                    role=owner.role if owner is not None else None,
                    wait=wait,
                    gpu=gpu_name(node) or gpu_of(owner),
                    label=label,
                    impact=finding.impact,
                )
            )
        else:
            entries.append(_thread(job, finding, node))
    unique = {(entry.rank, entry.node, entry.pid, entry.tid, entry.label): entry for entry in entries}
    return tuple(unique[key] for key in sorted(unique, key=lambda key: tuple(str(part) for part in key)))


def _absent(job: Job, finding: Finding, presence: Presence) -> RootEntry:
    process = presence.process
    state = None
    if process is not None and process.samples:
        last = process.samples[-1]
        state = next((t.state for t in last.threads if t.tid == process.pid), last.state)
    return RootEntry(
        type="rank",
        rank=presence.rank,
        node=presence.node or None,
        pid=known(process.pid) if process is not None else None,
        role=process.role if process is not None else None,
        state=state,
        wait=presence.being,
        gpu=gpu_of(process),
        impact=finding.impact,
        label=presence.why,
    )


def _thread(job: Job, finding: Finding, node: Node) -> RootEntry:
    process = job.by_pid.get((node.host or "", node.pid or -1))
    tid = node.tid
    thread = job.threads(process).get(tid or -1) if process is not None else None
    frame = shown(node.wait)
    type: RootType = finding.type
    rank = node.rank
    if rank is None and len(finding.ranks) == 1 and type in ("process", "launcher"):
        rank = finding.ranks[0]
    wait = node.wait.kind if node.wait is not None else (WaitKind.DEAD if node.type == "process" else None)
    return RootEntry(
        type=type,
        rank=rank,
        node=node.host or None,
        pid=known(node.pid),
        tid=known(tid),
        thread=thread_name(process, tid, job) if process is not None and tid is not None else None,
        role=process.role if process is not None else "outside",
        state=thread.state if thread is not None and thread.state != "?" else None,
        wait=wait.value if wait is not None else None,
        at=place(frame),
        source=source_text(frame),
        gpu=gpu_of(process),
        impact=finding.impact,
        label=node.label if type != "rank" else None,
    )


def _resource_host(node: Node, finding: Finding, solution: Solution) -> str | None:
    """The one node whose ranks are blocked at the resource; None when there are several."""
    hosts = {solution.nodes[edge.source].host for edge in solution.predecessors.get(node.id, ())}
    return hosts.pop() if len(hosts) == 1 else None


def gpu_of(process: Process | None) -> str | None:
    return process.gpus[0] if process is not None and process.gpus else None
