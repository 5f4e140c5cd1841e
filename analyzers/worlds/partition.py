"""Which ranks form one world: by where they meet, and where that is equal by who started and knows whom.

A trainer and its inference engine stand below one launcher, and an attempt may outlive its successor's
start: then one rank number occurs twice. Ranks that nothing tells apart stay together and are marked.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec
import networkx as nx

from ...model.facts import Process

MANY = 64
"""Meeting points that are told apart; ranks of further ones belong to no world."""

Group = list[Process]
Place = tuple[str, int]
"""(node, pid)"""
LOOPBACK = ("localhost", "127.0.0.1", "::1", "ip6-localhost")
GAP = 10.0
"""Seconds between the starts of two attempts, at least; the ranks of one start within a few."""


class Point(msgspec.Struct, frozen=True):
    """Where a rank meets the others, as far as it is known: WORLD_SIZE, the elastic run's id (``none`` is
    torchrun's default and says nothing) and MASTER_PORT. MASTER_ADDR may be written in several ways."""

    size: int | None = None
    run: str | None = None
    port: str | None = None

    def fits(self, other: Point) -> bool:
        """True unless something that both know differs."""
        pairs = zip(self._parts(), other._parts(), strict=True)
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)

    def with_known(self, other: Point) -> Point:
        """This point, completed by what the other one knows."""
        return Point(self.size or other.size, self.run or other.run, self.port or other.port)

    def _parts(self) -> tuple[object, ...]:
        return (self.size, self.run, self.port)

    @property
    def known(self) -> int:
        return sum(part is not None for part in self._parts())


class Meeting(msgspec.Struct):
    """A point with the ranks that meet there. A rank number that is still in it twice is one that nothing
    tells apart."""

    point: Point
    members: Group

    @property
    def ranks(self) -> set[int]:
        return {process.rank for process in self.members if process.rank is not None}


def point_of(process: Process) -> Point:
    """From the process table and the environment; unknown parts are None."""
    text = process.environment.get("WORLD_SIZE", "")
    size = process.world_size or (int(text) if text.isdecimal() and len(text) < 9 else None)
    run = process.environment.get("TORCHELASTIC_RUN_ID")
    return Point(
        size or None, None if run in (None, "", "none") else run, process.environment.get("MASTER_PORT")
    )


def meetings(ranks: Sequence[Process]) -> tuple[list[Meeting], list[Process]]:
    """Returns the worlds of these ranks, and the ranks of which nothing tells to which world they belong."""
    found: list[Meeting] = []
    later: list[tuple[Process, Point]] = []
    for process, point in sorted(((p, point_of(p)) for p in ranks), key=_most_known):
        fitting = [item for item in found if point.fits(item.point)]
        if len(fitting) == 1:
            fitting[0].members.append(process)
            fitting[0].point = fitting[0].point.with_known(point)
        elif not fitting and len(found) < MANY:
            found.append(Meeting(point, [process]))
        else:
            later.append((process, point))
    found = _one_world_after_all(found)
    ties = [ties_of(item.members) for item in found] if later else []
    homeless = [process for process, point in later if not _settle(process, point, found, ties)]
    return [part for item in found for part in _attempts(item)], homeless


def _most_known(item: tuple[Process, Point]) -> tuple[int, str, int]:
    return (-item[1].known, item[0].node, item[0].pid)


def _settle(process: Process, point: Point, found: list[Meeting], ties: list[Ties]) -> bool:
    """Puts a rank of which too little is known where it fits and belongs by its parent or connections."""
    fitting = [number for number, item in enumerate(found) if point.fits(item.point)]
    if len(fitting) > 1:
        mine = ties_of([process])
        fitting = [number for number in fitting if mine.launches & ties[number].launches] or [
            number for number in fitting if mine.connected(ties[number])
        ]
    if len(fitting) == 1:
        found[fitting[0]].members.append(process)
    return len(fitting) == 1


def _one_world_after_all(found: list[Meeting]) -> list[Meeting]:
    """Joins what differs in the port alone, has no rank number in common, and is connected: a rank that chose
    the port itself may have set it in its own environment only."""
    if len(found) < 2:
        return found
    kept: list[tuple[Meeting, Ties]] = []
    for item in found:
        ties = ties_of(item.members)
        for number, (other, others) in enumerate(kept):
            same = item.point.size == other.point.size and item.point.run == other.point.run
            if same and not item.ranks & other.ranks and ties.connected(others):
                other.members.extend(item.members)
                kept[number] = (other, ties_of(other.members))
                break
        else:
            kept.append((item, ties))
    return [item for item, _ties in kept]


class Ties(msgspec.Struct, frozen=True):
    """What some processes have in common with others: starts of a launcher, and ends of connections."""

    launches: frozenset[tuple[str, int, str | None]]
    places: frozenset[Place]
    peers: frozenset[Place]

    def connected(self, other: Ties) -> bool:
        """True when a connection between the two was seen from either end."""
        return bool(self.peers & other.places or other.peers & self.places)


def ties_of(members: Iterable[Process]) -> Ties:
    """The ties of some processes; their connections as of the newest sample."""
    members = list(members)
    launches = {launch for process in members if (launch := _launch(process)) is not None}
    places = {(process.node, process.pid) for process in members}
    peers = {place for process in members for place in _peers(process)}
    return Ties(frozenset(launches), frozenset(places), frozenset(peers))


def _peers(process: Process) -> set[Place]:
    """The captured processes at the other ends of its connections."""
    return {
        (socket.peer_node or process.node, socket.peer_pid)
        for sample in process.samples[-1:]
        for socket in sample.sockets
        if socket.peer_pid is not None
    }


def _launch(process: Process) -> tuple[str, int, str | None] | None:
    """(node, parent, restart count): one start of one launcher. None for a process that init adopted."""
    restart = process.environment.get("TORCHELASTIC_RESTART_COUNT")
    return (process.node, process.ppid, restart) if process.ppid > 1 else None


def _attempts(item: Meeting) -> list[Meeting]:
    """Splits a meeting in which a rank number occurs more than once. What is split must not be connected."""
    number = _most(item.members)
    if number < 2:
        return [item]
    for split in (_by_address, _by_launch, _by_links, _by_connections, _by_start):
        parts = split(item.members)
        if len(parts) == number and all(_most(part) < 2 for part in parts) and _strangers(parts):
            return [Meeting(item.point, part) for part in parts]
    return [Meeting(item.point, item.members)]


def _most(members: Iterable[Process]) -> int:
    return max(Counter(process.rank for process in members).values(), default=0)


def _strangers(parts: list[Group]) -> bool:
    ties = [ties_of(part) for part in parts]
    return not any(one.connected(other) for one, other in itertools.combinations(ties, 2))


def _by(members: Group, key: Callable[[Process], object]) -> list[Group]:
    """[] where the key of a process is not known."""
    parts: dict[object, Group] = {}
    for process in members:
        parts.setdefault(key(process), []).append(process)
    return [] if None in parts else list(parts.values())


def _by_launch(members: Group) -> list[Group]:
    return _by(members, _launch)


def _by_address(members: Group) -> list[Group]:
    """A loopback address is one of its node; beside another address it may be the same place."""
    texts = {process.environment.get("MASTER_ADDR") for process in members}
    if texts <= set(LOOPBACK):
        return _by(members, lambda process: process.node)
    return [] if texts & set(LOOPBACK) else _by(members, lambda p: p.environment.get("MASTER_ADDR"))


def _by_connections(members: Group) -> list[Group]:
    return _by_links(members, launches=False)


def _by_links(members: Group, launches: bool = True) -> list[Group]:
    """Ranks that have a start or a connection in common, directly or by others."""
    graph: nx.Graph[object] = nx.Graph()
    places = {(process.node, process.pid): process for process in members}
    for place, process in places.items():
        graph.add_node(place)
        launch = _launch(process) if launches else None
        if launch is not None:
            graph.add_edge(place, ("launch", launch))
        graph.add_edges_from((place, peer) for peer in _peers(process) if peer in places)
    parts = [[places[node] for node in part if node in places] for part in nx.connected_components(graph)]
    return [sorted(part, key=lambda process: (process.node, process.pid)) for part in parts]


def _by_start(members: Group) -> list[Group]:
    """Two attempts, told apart by one gap in the start times that is far wider than any other."""
    ordered = sorted(members, key=lambda process: (process.start_wall or 0.0, process.node, process.pid))
    times = [process.start_wall for process in ordered]
    if None in times or len(ordered) < 2:
        return []
    gaps = [(later or 0.0) - (earlier or 0.0) for earlier, later in itertools.pairwise(times)]
    widest = max(gaps)
    rest = sorted(gaps)[-2] if len(gaps) > 1 else 0.0
    if widest < GAP or widest < 3 * rest:
        return []
    cut = gaps.index(widest) + 1
    return [ordered[:cut], ordered[cut:]]
