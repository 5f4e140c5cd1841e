"""Where each rank runs: node, pid, GPU. What ties a line of the kernel or of nvidia-smi to a rank.

A pid and a PCI address mean something on their node only; every node of a cluster has the same addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hangscope.model.facts import Gpu, Ref
from hangscope.model.loose import FlightRecord, LogEvent, LooseFact, Origin, ProcessState, StackDump

from .communicator import Communicator


class Identity(msgspec.Struct, frozen=True, order=True):
    """One process of a rank. What no source tells is None; a rank may have several, one an attempt."""

    rank: int
    node: str | None = None
    pid: int | None = None
    pci: str | None = None


def identities_of(
    facts: Sequence[LooseFact], communicators: Sequence[Communicator] = ()
) -> tuple[Identity, ...]:
    """Returns who runs where: from lines and dumps whose writer is known with its pid, the members of NCCL's
    communicators whose global rank is known, and the processes that nvidia-smi lists on a GPU."""
    found: dict[tuple[int, str | None, int | None], set[str]] = {}
    for member in (member for one in communicators if not one.superseded for member in one.members):
        if member.global_rank is not None:
            addresses = found.setdefault((member.global_rank, short(member.node), member.pid), set())
            addresses.update((member.pci,) if member.pci is not None else ())
    for origin, pci in _told(facts):
        if origin.rank is not None:
            addresses = found.setdefault((origin.rank, short(origin.node), origin.pid), set())
            addresses.update((pci,) if pci is not None else ())
    _joined(found)
    rows = [
        Identity(rank, node, pid, address)
        for (rank, node, pid), addresses in found.items()
        for address in (sorted(addresses) if addresses else (None,))
    ]
    gpus = [fact for fact in facts if isinstance(fact, Gpu)]
    return tuple(sorted({_on_gpu(row, gpus) for row in rows}, key=_key))


class Tie:
    """Finds whose a line of a machine is. ``world_size``: the job's, where known."""

    def __init__(self, identities: Sequence[Identity], world_size: int | None) -> None:
        self._rows = identities
        self._nodes = {row.node for row in identities if row.node is not None}
        placed = {row.rank for row in identities if row.node is not None}
        self._world = world_size
        self._all_on_one = len(placed) == world_size and len(self._nodes) == 1

    def of(
        self, node: str | None, pid: int | None, pci: str | None, ref: Ref
    ) -> tuple[int | None, tuple[int, ...], str]:
        """(rank, ranks that it may be, how it was told)."""
        node = short(node) or self._node_in(ref.artifact)
        if node is None and self._all_on_one:
            node = next(iter(self._nodes))
        near = [row for row in self._rows if same_node(node, row.node) is not False]
        if pid is not None:
            return self._by_pid(near, node, pid, pci)
        if pci is None:
            return None, (), ""
        there = {row.rank for row in near if row.pci == pci}
        sure = {row.rank for row in near if row.pci == pci and same_node(node, row.node)}
        if len(sure) == 1 and sure == there:
            return sure.pop(), (), "pci"
        return None, tuple(sorted(there)), ""

    def knows_all(self, pid: int | None, pci: str | None) -> bool:
        """Every rank's pid (else its GPU) is known: what is none of theirs is nobody's."""
        told = {row.rank for row in self._rows if (row.pid if pid is not None else row.pci) is not None}
        return (pid is not None or pci is not None) and len(told) == self._world

    def _by_pid(
        self, near: list[Identity], node: str | None, pid: int, pci: str | None
    ) -> tuple[int | None, tuple[int, ...], str]:
        """A pid is a rank's where it is one rank's only, and its GPU is not told to be another."""
        rows = [row for row in near if row.pid == pid]
        ranks = {row.rank for row in rows}
        agree = pci is not None and all(row.pci == pci for row in rows)
        against = pci is not None and any(row.pci not in (None, pci) for row in rows)
        placed = node is not None or len(self._nodes) < 2 or agree
        if len(ranks) == 1 and placed and not against:
            return ranks.pop(), (), "pid+pci" if agree else "pid"
        on_gpu = {row.rank for row in near if pci is not None and row.pci == pci and row.pid is None}
        return None, tuple(sorted(ranks | on_gpu)), ""

    def _node_in(self, path: str) -> str | None:
        """The node of the job whose name stands in the file's path, when that is one."""
        words = set(re.split(r"[^A-Za-z0-9-]+", path.lower()))
        named = {node for node in self._nodes if node in words or _inside(node, path.lower())}
        return named.pop() if len(named) == 1 else None


def _inside(node: str | None, path: str) -> bool:
    """``dmesg-node-a.txt``: the name between characters that cannot belong to it, or behind a dash."""
    return node is not None and re.search(rf"(?:^|[^a-z0-9]){re.escape(node)}(?![a-z0-9-])", path) is not None


def short(node: str | None) -> str | None:
    """The host's own name: some tools print the domain too. An IP address stays whole.

    >>> short("node-a.cluster.example"), short("10.0.0.7"), short("")
    ('node-a', '10.0.0.7', None)
    """
    if not node:
        return None
    return node if node.replace(".", "").isdigit() else node.partition(".")[0].lower()


def same_node(left: str | None, right: str | None) -> bool | None:
    """Whether two names mean one host; None where one of them is not told."""
    first, second = short(left), short(right)
    return None if first is None or second is None else first == second


def _told(facts: Iterable[LooseFact]) -> Iterator[tuple[Origin, str | None]]:
    ranks: dict[tuple[str | None, int], set[int]] = {}
    late: list[tuple[Origin, str]] = []
    for fact in facts:
        if not isinstance(fact, LogEvent | FlightRecord | StackDump | ProcessState):
            continue
        origin = fact.origin
        pci = fact.pci if isinstance(fact, LogEvent) and fact.kind.startswith("nccl-") else None
        if origin.rank is not None:
            yield origin, pci
            if origin.pid is not None:
                ranks.setdefault((short(origin.node), origin.pid), set()).add(origin.rank)
        elif pci is not None and origin.pid is not None:
            late.append((origin, pci))
    for origin, pci in late:
        assert origin.pid is not None
        known = ranks.get((short(origin.node), origin.pid)) or ranks.get((None, origin.pid)) or set()
        if len(known) == 1:
            yield msgspec.structs.replace(origin, rank=next(iter(known))), pci


def _joined(found: dict[tuple[int, str | None, int | None], set[str]]) -> None:
    """Rows of a rank that tell less than its only full one are that one."""
    for rank in {key[0] for key in found}:
        nodes = {node for of, node, _pid in found if of == rank and node is not None}
        pids = {pid for of, _node, pid in found if of == rank and pid is not None}
        for key in [key for key in found if key[0] == rank]:
            node = next(iter(nodes)) if key[1] is None and len(nodes) == 1 else key[1]
            pid = next(iter(pids)) if key[2] is None and len(pids) == 1 else key[2]
            if (rank, node, pid) != key:
                found.setdefault((rank, node, pid), set()).update(found.pop(key))


def _on_gpu(row: Identity, gpus: Sequence[Gpu]) -> Identity:
    """The row with the GPU on which its pid is listed, when that is one."""
    if row.pci is not None or row.pid is None:
        return row
    here = [gpu for gpu in gpus if row.pid in gpu.pids and same_node(gpu.node, row.node) is not False]
    places = {(short(gpu.node), gpu.pci) for gpu in here if gpu.pci is not None}
    if len(places) != 1:
        return row
    node, pci = next(iter(places))
    return msgspec.structs.replace(row, pci=pci, node=row.node or node)


def _key(row: Identity) -> tuple[int, str, int, str]:
    return row.rank, row.node or "", row.pid or 0, row.pci or ""
