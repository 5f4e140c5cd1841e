"""Who belongs to which process group, as far as threads and sockets tell.

Stacks do not say which group an operation belongs to. What they leave: each gloo group runs one
``gloo_tcp_loop`` thread in every member, each NCCL group one ``pt_nccl_watchdg`` (torch 2.x), so their
number is the number of groups that a rank is in. And every gloo group connects each pair of its members
by one TCP connection, so that a pair with as many connections as one of the two has groups shares every
group of that one.
"""

from __future__ import annotations

import msgspec

from ..model.facts import Process
from ..model.waits import WaitKind
from .job import Job

GROUP_THREADS = ("gloo_tcp_loop", "pt_nccl_watchdg")
FORMING = (WaitKind.INIT, WaitKind.RENDEZVOUS)
GPU_GROUP_THREAD = "pt_nccl_watchdg"
STORE_THREAD = "pt_tcpstore"


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """``groups``: rank → number of its groups; ``shares``: rank → ranks that are in every group of it."""

    groups: dict[int, int]
    shares: dict[int, frozenset[int]]
    single: bool
    """Every captured rank is in exactly one group: its members are the world."""
    everyone: bool
    """Every group has the whole world as members (a single one does)."""
    gpu: bool
    source: str
    past_start: frozenset[int] = frozenset()
    """Ranks whose threads cannot be counted, and which stand in an operation of some group."""

    @property
    def formed_anywhere(self) -> bool:
        """True once any captured rank has made a group."""
        return any(self.groups.values()) or bool(self.past_start)

    def formed(self, rank: int) -> bool:
        """True once the rank has made its first group."""
        return self.groups.get(rank, 0) > 0 or rank in self.past_start


def formed_groups(job: Job, process: Process) -> int:
    """The number of groups that the process has formed, by its threads' names. gloo starts its thread
    before it connects (torch 2.13), so that a process which is forming a group has one more."""
    count = sum(thread.comm.startswith(GROUP_THREADS) for thread in job.threads(process).values())
    forming = any(job.wait(process, tid).kind in FORMING for tid in job.communicating(process))
    return max(0, count - forming)


def membership_of(job: Job) -> Membership:
    """Counts groups and connections of every captured rank."""
    groups = {
        rank: formed_groups(job, process) for rank, process in job.ranks.items() if job.threads(process)
    }
    formed = {rank: count for rank, count in groups.items() if count}
    blind = _blind(job)
    single = bool(formed) and set(formed.values()) == {1} and not blind
    gpu = any(
        thread.comm.startswith(GPU_GROUP_THREAD)
        for process in job.ranks.values()
        for thread in job.threads(process).values()
    )
    shares = {} if single else _shares(job, formed)
    others = set(job.members)
    everyone = single or (
        bool(formed) and not blind and all(shares[rank] >= others - {rank} for rank in formed)
    )
    if blind:
        source = "a dump without native threads does not tell which process groups there are"
    elif single:
        source = "one group thread in every rank: a single process group"
    elif everyone:
        source = "each pair of ranks has one connection a group: every group has all ranks"
    elif formed:
        low, high = min(formed.values()), max(formed.values())
        source = f"{low if low == high else f'{low}-{high}'} process groups a rank, their members unknown"
    else:
        source = "no process group has been formed"
    return Membership(
        groups=groups,
        shares=shares,
        single=single,
        everyone=everyone,
        gpu=gpu,
        source=source,
        past_start=frozenset(rank for rank in blind if _operates(job, job.ranks[rank])),
    )


def _blind(job: Job) -> frozenset[int]:
    """Ranks of saved dumps that list Python's threads only: a back end's threads are never among those."""
    if not job.capture.loose:
        return frozenset()
    return frozenset(
        rank
        for rank, process in job.ranks.items()
        if not any(
            thread.native and not thread.stack and thread.tid != process.pid
            for thread in job.threads(process).values()
        )
    )


def _operates(job: Job, process: Process) -> bool:
    """It stands in an operation, which only a rank with a formed group can."""
    kinds = {job.wait(process, tid).kind for tid in job.communicating(process)}
    return bool(kinds - {*FORMING, WaitKind.STORE, WaitKind.DEVICE})


def _shares(job: Job, formed: dict[int, int]) -> dict[int, frozenset[int]]:
    """For each rank, the ranks with exactly as many connections to it as it has groups."""
    connections = _connections(job)
    result = {}
    for rank, count in formed.items():
        peers = connections.get(rank, {})
        result[rank] = frozenset(peer for peer, number in peers.items() if number == count)
    return result


def _connections(job: Job) -> dict[int, dict[int, int]]:
    """rank → peer rank → established TCP connections, without those to the rendezvous store. Counted
    on both ends: the end that shows more counts, as one side's sockets may not have been captured."""
    rank_of = {(p.node, p.pid): rank for rank, p in job.ranks.items()}
    ports = store_ports(job)
    counts: dict[int, dict[int, int]] = {}
    for rank, process in job.ranks.items():
        newest = job.newest(process)
        own: dict[int, int] = {}
        for socket in newest.sockets if newest is not None else ():
            peer = rank_of.get((socket.peer_node or process.node, socket.peer_pid or -1))
            if peer is None or peer == rank or not socket.family.startswith("tcp"):
                continue
            if is_store(ports, socket.local, socket.remote):
                continue
            own[peer] = own.get(peer, 0) + 1
        counts[rank] = own
    both: dict[int, dict[int, int]] = {rank: dict(own) for rank, own in counts.items()}
    for rank, own in counts.items():
        for peer, number in own.items():
            theirs = both.setdefault(peer, {})
            theirs[rank] = max(theirs.get(rank, 0), number)
    return both


def store_ports(job: Job) -> frozenset[str]:
    """Ports of the rendezvous store, which heartbeats and polls in every hang: MASTER_PORT where any process
    tells it, else every port on which a process with a store's thread (``pt_tcpstore_uv``) listens."""
    told = {p.environment["MASTER_PORT"] for p in job.processes if "MASTER_PORT" in p.environment}
    if told:
        return frozenset(told)
    return frozenset(
        _port(socket.local)
        for process in job.ranks.values()
        if any(thread.comm.startswith(STORE_THREAD) for thread in job.threads(process).values())
        for sample in process.samples
        for socket in sample.sockets
        if socket.listening_owner
    )


def is_store(ports: frozenset[str], local: str, remote: str | None) -> bool:
    """True for a connection to the job's rendezvous store."""
    return _port(local) in ports or (remote is not None and _port(remote) in ports)


def _port(address: str) -> str:
    return address.rpartition(":")[2]
