"""Host resources at which several ranks end: a dead mount, a full memory cgroup, one remote address.

Such a resource gets a node as soon as two ranks are blocked at it: then it is the root, and the ranks
are its victims. One rank alone stays the root itself.
"""

from __future__ import annotations

from ...model.facts import Capture, MemoryCgroup, Mount, Process
from ...model.waits import Wait, WaitKind
from ..job import Job
from .draft import Draft

NETWORK = ("nfs", "nfs4", "lustre", "cifs", "smb3", "gpfs", "beegfs", "ceph", "wekafs", "9p", "afs")
SLACK = 0.01
"""A cgroup counts as full within one percent of its limit: the kernel charges in batches."""


def share_resources(draft: Draft) -> None:
    """Adds the resource nodes, and edges from the threads that are blocked at them."""
    users: dict[tuple[str, str], dict[int, list[str]]] = {}
    for id, node in list(draft.nodes.items()):
        if node.type != "thread" or node.wait is None or draft.out.get(id) or node.rank is None:
            continue
        process = draft.job.by_pid.get((node.host or "", node.pid or -1))
        key = _resource(draft.job, process, node.wait) if process is not None else None
        if key is not None:
            users.setdefault(key, {}).setdefault(node.rank, []).append(id)
    for (id, label), by_rank in sorted(users.items()):
        if len(by_rank) < 2:
            continue
        draft.node(id, "resource", label, sink="stuck")
        for threads in by_rank.values():
            for thread in threads:
                draft.edge(thread, id, why=f"blocked at {label}")


def _resource(job: Job, process: Process, wait: Wait) -> tuple[str, str] | None:
    """(node id, label) of the shared thing behind the wait."""
    capture = job.capture
    if wait.kind is WaitKind.FILESYSTEM:
        mount = blocked_mount(capture, job, process)
        if mount is None:
            return (f"mount:{process.node}:?", "a file system (which one is not known)")
        wide = mount.fstype in NETWORK
        place = mount.source if wide else f"{process.node}:{mount.path}"
        return (f"mount:{place}", f"{mount.path} ({mount.fstype} {mount.source})")
    if wait.kind is WaitKind.HOST_MEMORY:
        cgroup = full_cgroup(capture, process)
        if cgroup is not None:
            return (f"memory:{process.node}:{cgroup.path}", f"memory cgroup {cgroup.path}")
    if wait.kind is WaitKind.DRIVER:
        return (f"driver:{process.node}", f"a device driver of {process.node}")
    if wait.kind is WaitKind.SOCKET and wait.remote and wait.peer_pid is None:
        return (f"remote:{wait.remote}", f"remote address {wait.remote}")
    return None


def blocked_mount(capture: Capture, job: Job, process: Process) -> Mount | None:
    """The mount that the process can be blocked on: one that does not answer, else the only network file
    system, among those that hold a file or directory of the process. None when that is not one mount."""
    newest = job.newest(process)
    paths = [file.target for file in newest.files] if newest is not None else []
    paths += [process.cwd] if process.cwd else []
    mounts = [m for m in capture.mounts if m.node == process.node]
    used = [m for m in mounts if any(_below(path, m.path) for path in paths)] or mounts
    dead = [m for m in used if m.responsive is False]
    network = [m for m in used if m.fstype.startswith(NETWORK) or m.fstype.startswith("fuse")]
    for choice in (dead, network):
        if len({m.path for m in choice}) == 1:
            return choice[0]
    return None


def _below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def full_cgroup(capture: Capture, process: Process) -> MemoryCgroup | None:
    """The innermost memory cgroup of the process that stands at its limit, newest sample first."""
    rows = [c for c in capture.cgroups if c.path in process.cgroups or process.pid in c.pids]
    if not rows:
        return None
    newest = max(row.sample for row in rows)
    rows = sorted((r for r in rows if r.sample == newest), key=lambda row: (row.level, row.path))
    return next((row for row in rows if is_full(capture, row)), None)


def is_full(capture: Capture, row: MemoryCgroup) -> bool:
    """Usage at the limit and a task waiting for memory (v1), or throttled above ``memory.high`` (v2)."""
    usage = row.usage
    if usage is None:
        return False
    at_limit = row.limit is not None and usage >= row.limit * (1 - SLACK)
    if at_limit and (row.under_oom or row.failcnt or row.max_events):
        return True
    if row.high is not None and usage >= row.high * (1 - SLACK):
        counts = [c.high_events for c in capture.cgroups if c.path == row.path and c.high_events is not None]
        return len(counts) > 1 and max(counts) > min(counts)
    return False
