"""Who is at the end of the waiting: sinks, the least fixpoint of what can be released, knots, roots.

*Releasable* is the least fixpoint that starts from live sinks with evidence of progress. It tells knots
from waits with a way out; it never decides by itself that nothing hangs: a live sink without progress is
a root like a stuck one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import networkx as nx

from ..model.graph import Certainty, Edge, Node, Root, WaitGraph

CERTAINTIES: tuple[Certainty, ...] = ("observed", "inferred", "possible")


class Solution(msgspec.Struct, frozen=True):
    """``roots`` in a stable order; ``released`` are the nodes with a way out."""

    roots: tuple[Root, ...]
    released: frozenset[str]
    nodes: dict[str, Node]
    successors: dict[str, tuple[Edge, ...]]
    predecessors: dict[str, list[Edge]]


def solve(graph: WaitGraph, starts: Mapping[int, tuple[str, ...]]) -> Solution:
    """Returns every root that some rank's start node reaches. ``starts``: rank → its own nodes.

    A graph without a cycle yields none: only a strongly connected component with no way out is a knot.
    """
    nodes = {node.id: node for node in graph.nodes}
    successors: dict[str, list[Edge]] = {id: [] for id in nodes}
    for edge in graph.edges:
        successors[edge.source].append(edge)
    released = releasable(nodes, successors)
    blocked: nx.DiGraph[str] = nx.DiGraph()
    blocked.add_nodes_from(id for id in nodes if id not in released)
    for edge in graph.edges:
        if edge.source not in released and edge.target not in released:
            blocked.add_edge(edge.source, edge.target)
    reached = _reached(blocked, starts)
    blocked = blocked.subgraph(reached)
    found = _roots(blocked, nodes, successors, starts)
    predecessors: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        predecessors.setdefault(edge.target, []).append(edge)
    out = {id: tuple(edges) for id, edges in successors.items()}
    return Solution(tuple(found), frozenset(released), nodes, out, predecessors)


def releasable(nodes: Mapping[str, Node], successors: Mapping[str, list[Edge]]) -> set[str]:
    """The least fixpoint. A node with progress of its own is in it; an AND needs all, an OR one; an AND
    or OR of nothing never is."""
    released = {id for id, node in nodes.items() if node.progress is True}
    predecessors: dict[str, list[str]] = {}
    for id, edges in successors.items():
        for edge in edges:
            predecessors.setdefault(edge.target, []).append(id)
    _spread(released, successors, predecessors)
    return released


def _spread(
    released: set[str], successors: Mapping[str, list[Edge]], predecessors: Mapping[str, list[str]]
) -> None:
    """Adds every node that the released ones release, and so on."""
    queue = list(released)
    while queue:
        for source in predecessors.get(queue.pop(), ()):
            if source not in released and _free(successors[source], released):
                released.add(source)
                queue.append(source)


def held(members: Iterable[str], successors: Mapping[str, list[Edge]]) -> set[str]:
    """The nodes of a component that would still wait for one another if all that the component waits for
    outside of itself were released."""
    inside = set(members)
    edges = [edge for id in inside for edge in successors[id]]
    predecessors: dict[str, list[str]] = {}
    for edge in edges:
        predecessors.setdefault(edge.target, []).append(edge.source)
    released = {edge.target for edge in edges} - inside
    _spread(released, successors, predecessors)
    return inside - released


def _free(edges: Iterable[Edge], released: set[str]) -> bool:
    needed = [edge for edge in edges if edge.mode == "and"]
    choices = [edge for edge in edges if edge.mode == "or"]
    if not all(edge.target in released for edge in needed):
        return False
    return not choices or any(edge.target in released for edge in choices)


def _reached(graph: nx.DiGraph[str], starts: Mapping[int, tuple[str, ...]]) -> set[str]:
    seen: set[str] = set()
    queue = [id for ids in starts.values() for id in ids if id in graph]
    while queue:
        id = queue.pop()
        if id not in seen:
            seen.add(id)
            queue.extend(graph.successors(id))
    return seen


def _roots(
    blocked: nx.DiGraph[str],
    nodes: Mapping[str, Node],
    successors: Mapping[str, list[Edge]],
    starts: Mapping[int, tuple[str, ...]],
) -> list[Root]:
    condensed = nx.condensation(blocked)
    arriving = _arriving(condensed, starts)
    roots = []
    for component in condensed.nodes:
        members = condensed.nodes[component]["members"]
        parts = _knots(blocked, members, successors) if condensed.out_degree(component) else [members]
        for part in parts:
            own = {rank for id in part if (rank := nodes[id].rank) is not None}
            victims = tuple(r for r in _ranks(arriving.get(component, 0), starts) if r not in own)
            roots.append(
                Root(
                    nodes=tuple(sorted(part)),
                    ranks=tuple(sorted(own)),
                    victims=victims,
                    impact=len(victims),
                    is_cycle=any(edge.target in part for id in part for edge in successors[id]),
                )
            )
    return sorted(roots, key=lambda root: (-root.impact, root.ranks, root.nodes))


def _knots(
    blocked: nx.DiGraph[str], members: set[str], successors: Mapping[str, list[Edge]]
) -> list[set[str]]:
    """The knots in a component that also waits for something else: what would stay without that. Ranks in
    different operations of one group are none, as the missing rank alone may be why they parted."""
    if len(members) < 2 or any(id.startswith("group:") for id in members):
        return []
    left = blocked.subgraph(held(members, successors))
    return [part for part in nx.strongly_connected_components(left) if len(part) > 1]


def _arriving(condensed: nx.DiGraph[int], starts: Mapping[int, tuple[str, ...]]) -> dict[int, int]:
    """component → the ranks that reach it, as a bit set by position in the sorted starts."""
    where: dict[str, int] = condensed.graph["mapping"]
    bits: dict[int, int] = {}
    for position, rank in enumerate(sorted(starts)):
        for id in starts[rank]:
            if id in where:
                bits[where[id]] = bits.get(where[id], 0) | (1 << position)
    for component in nx.topological_sort(condensed):
        own = bits.get(component, 0)
        if own:
            for target in condensed.successors(component):
                bits[target] = bits.get(target, 0) | own
    return bits


def _ranks(bits: int, starts: Mapping[int, tuple[str, ...]]) -> list[int]:
    text = bin(bits)[:1:-1]
    return [rank for rank, bit in zip(sorted(starts), text, strict=False) if bit == "1"]


def certainty_of(root: Root, solution: Solution, starts: Mapping[int, tuple[str, ...]]) -> Root:
    """The root with the certainty of the surest way from its victims (of its own edges too, for a knot)
    and the number of inferred edges on it. Walked backwards from the root, surest edges first."""
    members = set(root.nodes)
    inside = [edge for id in members for edge in solution.successors[id] if edge.target in members]
    worst = max((CERTAINTIES.index(edge.certainty) for edge in inside), default=0)
    inferred = sum(edge.certainty == "inferred" for edge in inside)
    ranks = root.victims or tuple(starts)
    waiting = {id for rank in ranks for id in starts.get(rank, ())} - members
    cost: dict[str, tuple[int, int]] = dict.fromkeys(members, (0, 0))
    queue = list(root.nodes)
    while queue:
        following: list[str] = []
        for target in queue:
            for edge in solution.predecessors.get(target, ()):
                if edge.source in solution.released:
                    continue
                level = CERTAINTIES.index(edge.certainty)
                step = (max(cost[target][0], level), cost[target][1] + (level == 1))
                if edge.source not in cost or step < cost[edge.source]:
                    cost[edge.source] = step
                    following.append(edge.source)
        queue = following
    ways = [cost[id] for id in waiting if id in cost]
    if ways:
        level, number = min(ways)
        worst, inferred = max(worst, level), inferred + number
    return msgspec.structs.replace(root, certainty=CERTAINTIES[worst], inferred_edges=inferred)
