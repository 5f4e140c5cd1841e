"""Who is at the other end: TCP sockets by their two addresses, pipes by their inode."""

from __future__ import annotations

import msgspec

from hangscope.model.facts import OpenFile, Socket

from ..readers.process import ProcessFacts
from ..readers.sockets import Owner, SocketLine, SocketTable
from .parsed import ParsedShard

Place = tuple[str, int]
"""(node, pid)"""


class End(msgspec.Struct, frozen=True):
    """One end of a connection on a captured node."""

    node: str
    net: str
    line: SocketLine
    owners: tuple[Owner, ...]


class Connections:
    """All socket ends of one sample over all nodes, and the processes that hold them."""

    def __init__(self, shards: list[ParsedShard], sample: int, order: dict[Place, tuple[int, int]]) -> None:
        """``order`` ranks the processes of a node: the lowest is taken for the user of a shared socket."""
        self._order = order
        self._ends: dict[tuple[str, str], list[End]] = {}
        self._sockets: dict[Place, list[Socket]] = {}
        tables = [(shard.node, shard.one(SocketTable, None, sample)) for shard in shards]
        for node, table in tables:
            if table is not None:
                self._index(node, table)
        for node, table in tables:
            if table is not None:
                self._build(node, table)

    def of(self, node: str, pid: int) -> tuple[Socket, ...]:
        """The sockets of a process by descriptor number."""
        return tuple(sorted(self._sockets.get((node, pid), ()), key=lambda item: item.fd))

    def _index(self, node: str, table: SocketTable) -> None:
        owners = _owners(table)
        for line in table.lines:
            if line.remote is not None:
                end = End(node, line.net, line, tuple(owners.get(line.inode, ())))
                self._ends.setdefault((line.local, line.remote), []).append(end)

    def _build(self, node: str, table: SocketTable) -> None:
        owners = _owners(table)
        listening = {
            (owner.pid, line.net, line.local.rpartition(":")[2])
            for line in table.lines
            if line.state == "LISTEN" and line.family == "tcp"
            for owner in owners.get(line.inode, ())
        }
        for line in table.lines:
            info = table.info.get(line.inode)
            peer = self._peer(node, line)
            for owner in owners.get(line.inode, ()):
                port = line.local.rpartition(":")[2]
                self._sockets.setdefault((node, owner.pid), []).append(
                    Socket(
                        inode=line.inode,
                        pid=owner.pid,
                        fd=owner.fd,
                        family=line.family,
                        state=line.state,
                        local=line.local,
                        remote=line.remote,
                        peer_pid=peer[1] if peer else None,
                        peer_node=peer[0] if peer else None,
                        listening_owner=(owner.pid, line.net, port) in listening,
                        tx_queue=line.tx_queue,
                        rx_queue=line.rx_queue,
                        timer=line.timer,
                        retransmits=line.retransmits,
                        bytes_acked=info.bytes_acked if info else None,
                        bytes_received=info.bytes_received if info else None,
                        last_data_sent_ms=info.last_data_sent_ms if info else None,
                        last_data_received_ms=info.last_data_recv_ms if info else None,
                        unacked=info.unacked if info else None,
                        notsent=info.notsent if info else None,
                    )
                )

    def _peer(self, node: str, line: SocketLine) -> Place | None:
        """The process with the mirrored addresses: in the same namespace, else on the same node, else the
        only one anywhere. Loopback addresses never leave their namespace."""
        if line.remote is None:
            return None
        ends = [end for end in self._ends.get((line.remote, line.local), ()) if end.owners]
        same = [end for end in ends if end.node == node and end.net == line.net]
        if not same and not _loopback(line.local) and not _loopback(line.remote):
            same = [end for end in ends if end.node == node] or ends
        if len({(end.node, end.line.inode) for end in same}) != 1:
            return None
        end = same[0]
        places = [(end.node, owner.pid) for owner in end.owners]
        return min(places, key=lambda place: self._order.get(place, (1 << 62, place[1])))


def _owners(table: SocketTable) -> dict[int, list[Owner]]:
    found: dict[int, list[Owner]] = {}
    for owner in table.owners:
        found.setdefault(owner.inode, []).append(owner)
    return found


def _loopback(address: str) -> bool:
    return address.startswith(("127.", "[::1]"))


class Pipes:
    """The pipe ends of one node in one sample, by the pipe's name ``pipe:[inode]``."""

    def __init__(self, shard: ParsedShard, sample: int) -> None:
        self._ends: dict[str, list[tuple[int, int | None]]] = {}
        for artifact, facts in shard.every(ProcessFacts):
            if artifact.sample == sample:
                for item in facts.files:
                    if item.target.startswith("pipe:["):
                        self._ends.setdefault(item.target, []).append((facts.pid, _mode(item)))

    def join(self, pid: int, item: OpenFile) -> OpenFile:
        """The file with the other captured processes that hold the opposite end of the pipe."""
        ends = self._ends.get(item.target)
        if not ends:
            return item
        mine = _mode(item)
        peers = {
            other for other, mode in ends if other != pid and (mode != mine or mode is None or mode == 2)
        }
        return msgspec.structs.replace(item, peers=tuple(sorted(peers)))


def _mode(item: OpenFile) -> int | None:
    """0 reads, 1 writes, 2 both; None when fdinfo was not readable."""
    return None if item.flags is None else item.flags & 3
