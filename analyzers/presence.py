"""Is each rank there? Alive, stopped, dead, never started, or simply not seen.

*Absent* needs proof: this node should host the rank, its scan was complete, and no process has the
rank's identity; or an orphan of the rank is seen. Everything else that is not seen is *unknown*.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..model.facts import Process, Ref, ThreadSample
from .job import Job
from .membership import formed_groups, is_store, store_ports
from .naming import process_text

Being = Literal["alive", "stopped", "frozen", "dead", "gone", "never", "unknown"]
ABSENT: frozenset[Being] = frozenset({"stopped", "frozen", "dead", "gone", "never"})


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """``gone``: it was there and no process is left; ``never``: nothing shows that it ever came."""

    rank: int
    being: Being
    why: str
    process: Process | None = None
    node: str | None = None
    exit_code: int | None = None
    """Wait status, as the kernel keeps it for a zombie."""
    transient: bool = False
    """It ended between two samples of this capture."""
    refs: tuple[Ref, ...] = ()


def presences(job: Job) -> dict[int, Presence]:
    """Returns the presence of every member of the job, by rank."""
    orphans: dict[int, list[Process]] = {}
    for process in job.processes:
        if process.role == "orphan" and process.parent_rank is not None:
            orphans.setdefault(process.parent_rank, []).append(process)
    hosts = _hosts(job)
    formed = any(formed_groups(job, process) for process in job.ranks.values())
    stranger = _stranger(job)
    found: dict[int, Presence] = {}
    for rank in job.members:
        own = job.ranks.get(rank)
        if own is not None:
            found[rank] = _captured(job, rank, own)
        else:
            found[rank] = _not_captured(rank, orphans.get(rank, []), hosts, formed, stranger)
            if found[rank].being == "unknown":
                found[rank] = _perhaps(job, found[rank])
    return found


def _captured(job: Job, rank: int, process: Process) -> Presence:
    newest = job.newest(process)
    if _vanished(job, process):
        return _presence(rank, process, "dead", "it ended while it was being captured", transient=True)
    last = process.samples[-1] if process.samples else None
    if newest is None:
        if last is not None and last.state in ("Z", "X"):
            return _dead(rank, process, last.exit_code)
        return _presence(rank, process, "unknown", _why_not_captured(job, process))
    if newest.frozen:
        return _presence(rank, process, "frozen", "its cgroup is frozen")
    threads = job.threads(process)
    main = threads.get(process.pid)
    alive = [thread for thread in threads.values() if thread.state not in ("Z", "X")]
    leader_dead = main is None or main.state in ("Z", "X")
    if not alive or (leader_dead and not any(thread.state == "D" for thread in alive)):
        if main is None and alive:
            return _presence(rank, process, "unknown", "its main thread was not captured")
        return _dead(rank, process, newest.exit_code)
    if _stopped(main, alive):
        return _presence(rank, process, "stopped", "stopped by a signal (state T, nobody traces it)")
    return _presence(rank, process, "alive", "captured")


def _presence(
    rank: int, process: Process, being: Being, why: str, code: int | None = None, transient: bool = False
) -> Presence:
    refs = [sample.ref for sample in process.samples[-1:] if sample.ref is not None]
    main = [t.ref for sample in process.samples[-1:] for t in sample.threads if t.tid == process.pid]
    return Presence(
        rank=rank,
        being=being,
        why=why,
        process=process,
        node=process.node,
        exit_code=code,
        transient=transient,
        refs=tuple(main or refs or ([process.ref] if process.ref is not None else [])),
    )


def _dead(rank: int, process: Process, code: int | None) -> Presence:
    why = "the process is a zombie"
    if code is not None and code & 0x7F:
        why = f"killed by signal {code & 0x7F}, not yet reaped"
    elif code is not None:
        why = f"ended with status {code >> 8}, not yet reaped"
    return _presence(rank, process, "dead", why, code)


def _stopped(main: ThreadSample | None, alive: list[ThreadSample]) -> bool:
    """A stop signal stops the whole process; a tracer's stop is another state (t) and has a tracer."""
    if main is not None and main.state not in ("Z", "X"):
        return main.state == "T" and main.tracer == 0
    return all(thread.state == "T" and thread.tracer == 0 for thread in alive)


def _vanished(job: Job, process: Process) -> bool:
    """True when the process was seen, and was no more there in the job's last sample."""
    if not process.samples or process.samples[-1].sample >= job.capture.samples - 1:
        return False
    return any(
        cell.pid == process.pid
        and cell.node == process.node
        and cell.collector == "threads"
        and cell.status == "absent"
        and cell.sample > process.samples[-1].sample
        for cell in job.capture.cells
    )


def _why_not_captured(job: Job, process: Process) -> str:
    for cell in job.capture.cells:
        if cell.pid == process.pid and cell.node == process.node and cell.status != "ok" and cell.reason:
            return f"{cell.collector}: {cell.status}, {cell.reason}"
    return "its threads were not captured"


def _perhaps(job: Job, presence: Presence) -> Presence:
    """Says which captured process may be the rank: one whose number could not be read."""
    nameless = [process for process in job.processes if process.role == "rank" and process.rank is None]
    if not nameless:
        return presence
    pids = ", ".join(process_text(process) for process in nameless[:4])
    known = {(process.node, process.pid) for process in nameless}
    said = [c.reason for c in job.capture.cells if (c.node, c.pid) in known and c.collector == "stacks"]
    because = next((f" ({reason})" for reason in said if reason), "")
    why = f"it may be {pids}, whose rank could not be read{because}"
    refs = tuple(process.ref for process in nameless if process.ref is not None)
    return msgspec.structs.replace(presence, why=why, refs=refs, node=nameless[0].node)


class _Hosts(msgspec.Struct, frozen=True):
    by_rank: dict[int, str]
    only_node: str | None


def _hosts(job: Job) -> _Hosts:
    """Nodes whose complete scan proves that a rank which should be there is not there."""
    capture = job.capture
    complete = set(capture.complete_nodes)
    by_rank = {rank: node for node, ranks in capture.expected_ranks if node in complete for rank in ranks}
    nodes = set(capture.nodes) or {process.node for process in job.processes}
    whole = (
        capture.single_node is True and not capture.missing_nodes and len(nodes) == 1 and nodes <= complete
    )
    return _Hosts(by_rank, next(iter(nodes)) if whole else None)


def _stranger(job: Job) -> str | None:
    """A living connection to a port of the job from a process that was not seen: in another container or PID
    namespace of the host, a rank may live that no scan of this one shows. A dead rank's would be closed."""
    ports = store_ports(job)
    for rank, process in sorted(job.ranks.items()):
        newest = job.newest(process)
        for socket in newest.sockets if newest is not None else ():
            unseen = socket.state == "ESTABLISHED" and socket.peer_pid is None and socket.remote is not None
            if unseen and (socket.listening_owner or is_store(ports, socket.local, socket.remote)):
                return f"rank {rank} has a living connection to {socket.remote}, whose process was not seen"
    return None


def _not_captured(
    rank: int, orphans: list[Process], hosts: _Hosts, formed: bool, stranger: str | None
) -> Presence:
    if orphans:
        first = orphans[0]
        refs = tuple(o.ref for o in orphans if o.ref is not None)
        pids = ", ".join(str(o.pid) for o in orphans)
        why = f"its process is gone; its child (pid {pids}) lives on"
        return Presence(rank=rank, being="gone", why=why, node=first.node, refs=refs)
    node = hosts.by_rank.get(rank) or hosts.only_node
    if node is None:
        return Presence(rank=rank, being="unknown", why="no process of it was seen on the captured nodes")
    if stranger is not None:
        return Presence(rank=rank, being="unknown", why=stranger, node=node)
    if formed:
        why = f"its process group was formed, and no process of it is left on {node}"
        return Presence(rank=rank, being="gone", why=why, node=node)
    return Presence(rank=rank, being="never", why=f"no process on {node} has its identity", node=node)
