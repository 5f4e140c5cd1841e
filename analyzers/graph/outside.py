"""Waits that leave the process: for children, the other end of a socket or pipe, a file lock's holder."""

from __future__ import annotations

from ...model.facts import Process
from ...model.waits import ReleasedBy, Wait, WaitKind
from ..job import IDLE, LIVE, Job
from .draft import Draft
from .entries import Entries


class Outside:
    """Draws the edges of a thread that waits for another process."""

    def __init__(self, draft: Draft, entries: Entries) -> None:
        self._draft = draft
        self._entries = entries
        self._job: Job = draft.job

    def children(self, process: Process, source: str, pid: int | None = None) -> bool:
        """OR edges to the children that could end the wait: those that are blocked, else those that run;
        only to ``pid`` where the kernel tells which one is waited for. Idle ones (a worker that waits for
        work) are none; False when nobody is left."""
        children = [c for c in self._job.children(process) if c.role != "resource-tracker"]
        children = [child for child in children if child.pid == pid] or children
        kinds = {child.pid: self._kind(child) for child in children}
        able = [c for c in children if kinds[c.pid] not in IDLE and not self._waits_for_work(c)]
        blocked = [child for child in able if kinds[child.pid] not in LIVE]
        for child in blocked or able:
            self._draft.edge(source, self._child(child), mode="or", why=f"waits for its {child.role} process")
        return bool(able)

    def _waits_for_work(self, child: Process) -> bool:
        """A queue between processes, met from the child's side: it is the parent that must put."""
        wait = self._job.wait(child, child.pid)
        return wait.kind is WaitKind.QUEUE and wait.released_by is ReleasedBy.PEER

    def _kind(self, child: Process) -> WaitKind:
        last = child.samples[-1] if child.samples else None
        if last is not None and last.state in ("Z", "X"):
            return WaitKind.DEAD
        return self._job.wait(child, child.pid).kind

    def _child(self, child: Process) -> str:
        if self._kind(child) is WaitKind.DEAD:
            last = child.samples[-1]
            return self._draft.node(
                f"ended:{child.node}:{child.pid}",
                "process",
                f"{child.role} {child.pid} has ended",
                process=child,
                sink="stuck",
                refs=(last.ref,) if last.ref is not None else (),
            )
        return self._entries.process(child)

    def peer(self, process: Process, wait: Wait, source: str) -> bool:
        """An edge to the process at the other end of the socket or pipe, OR edges to several of them; False
        when none is captured."""
        pids = wait.peer_pids or ((wait.peer_pid,) if wait.peer_pid is not None else ())
        others = [self._peer_process(process, pid) for pid in sorted(pids)]
        found = [other for other in others if other is not None and other is not process]
        for other in found:
            target = (
                self._entries.rank(other.rank)
                if other.role == "rank"
                and other.rank is not None
                and self._job.ranks.get(other.rank) is other
                else self._entries.process(other)
            )
            why = f"waits for the other end ({wait.remote or other.title})"
            self._draft.edge(source, target, mode="or" if len(found) > 1 else "and", why=why)
        return bool(found)

    def _peer_process(self, process: Process, pid: int) -> Process | None:
        newest = self._job.newest(process)
        for socket in newest.sockets if newest is not None else ():
            if socket.peer_pid == pid and socket.peer_node is not None:
                return self._job.by_pid.get((socket.peer_node, pid))
        return self._job.by_pid.get((process.node, pid))

    def file_lock(self, process: Process, source: str) -> bool:
        """An edge to the process that /proc/locks names as the holder."""
        for lock in self._job.capture.locks:
            if lock.node != process.node or process.pid not in lock.waiter_pids:
                continue
            holder = self._job.by_pid.get((lock.node, lock.holder_pid))
            label = lock.path or lock.device_inode
            id = self._draft.node(
                f"lock:{lock.node}:file:{lock.device_inode}", "lock", f"file lock {label}", refs=(lock.ref,)
            )
            self._draft.edge(source, id, why=f"waits for the lock on {label}", refs=(lock.ref,))
            if holder is None:
                target = self._draft.node(
                    f"outside:{lock.node}:{lock.holder_pid}",
                    "process",
                    f"process {lock.holder_pid}, outside the job",
                    sink="stuck",
                )
            else:
                target = self._entries.process(holder)
            self._draft.edge(id, target, why="holds it", refs=(lock.ref,))
            return True
        return False
