"""Which threads need no further samples to be called blocked."""

from __future__ import annotations

from ..model.facts import Process
from ..model.graph import Node
from ..model.waits import WaitKind
from .graph.resources import blocked_mount, full_cgroup
from .graph.sinks import HARD, still
from .job import Job
from .solve import Solution


def hard_nodes(job: Job, solution: Solution) -> frozenset[str]:
    """Threads that need no further samples: still in the kernel from the first sample to the last, or
    waiting for memory in a cgroup that the kernel calls out of memory."""
    found = set()
    for id, node in solution.nodes.items():
        if node.type != "thread" or node.wait is None or node.wait.kind not in HARD:
            continue
        process = job.by_pid.get((node.host or "", node.pid or -1))
        if process is None:
            continue
        seen = [t for s in process.samples for t in s.threads if t.tid == node.tid]
        if (still(seen) and _lasts(job, node, process)) or _out_of_memory(job, node):
            found.add(id)
    return frozenset(found)


def _lasts(job: Job, node: Node, process: Process) -> bool:
    """One request to a file system may take long without a context switch: only a mount that does not
    answer makes such a wait last."""
    if node.wait is None or node.wait.kind is not WaitKind.FILESYSTEM:
        return True
    mount = blocked_mount(job.capture, job, process)
    return mount is not None and mount.responsive is False


def _out_of_memory(job: Job, node: Node) -> bool:
    process = job.by_pid.get((node.host or "", node.pid or -1))
    if process is None or node.wait is None or node.wait.kind is not WaitKind.HOST_MEMORY:
        return False
    cgroup = full_cgroup(job.capture, process)
    return cgroup is not None and bool(cgroup.under_oom)
