"""A finding: a root of the graph with its meaning, and how findings are merged and ordered."""

from __future__ import annotations

from typing import get_args

import msgspec

from ..model.graph import Node, Root
from ..model.verdict import Confidence, Kind, RootType
from ..model.waits import WaitKind
from .graph.draft import CERTAINTIES
from .single_group import Split
from .solve import Solution

PRECEDENCE: tuple[Kind, ...] = get_args(Kind)
"""The type lists the kinds in the order in which they win."""

Cap = tuple[Confidence, str]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A root with its meaning. ``nodes`` are the graph nodes that become the verdict's roots."""

    kind: Kind
    type: RootType
    root: Root
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    """The initiators."""
    victims: tuple[int, ...]
    wait: WaitKind | None = None
    live: bool = False
    hard: bool = False
    """Needs no further samples: dead, stopped, absent, a knot of locks, or still in the kernel."""
    split: Split | None = None
    unknown: tuple[int, ...] = ()
    why: str = ""
    """For undecided: what is not known."""
    caps: tuple[Cap, ...] = ()

    @property
    def impact(self) -> int:
        return len(self.victims)


def order(finding: Finding) -> tuple[object, ...]:
    """Sort key: the larger impact first, then the kinds' precedence, then what is surer, then the rank."""
    return (
        -finding.impact,
        PRECEDENCE.index(finding.kind),
        not finding.hard,
        finding.live,
        CERTAINTIES.index(finding.root.certainty),
        finding.ranks,
        finding.root.nodes,
    )


def merged(findings: list[Finding]) -> list[Finding]:
    """Findings under the same victims, of equal kind and wait, are one."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.kind, finding.type, finding.wait, finding.victims, finding.split is None)
        groups.setdefault(key, []).append(finding)
    result = []
    for members in groups.values():
        first = members[0]
        if len(members) > 1:
            first = msgspec.structs.replace(
                first,
                nodes=tuple(id for finding in members for id in finding.nodes),
                ranks=tuple(sorted({rank for finding in members for rank in finding.ranks})),
                unknown=tuple(sorted({rank for finding in members for rank in finding.unknown})),
                hard=all(finding.hard for finding in members),
            )
        result.append(first)
    return sorted(result, key=order)


def blocked_at(resource: str, solution: Solution) -> list[Node]:
    """The threads that are blocked at a resource, those that have moved left out."""
    edges = solution.predecessors.get(resource, ())
    return [solution.nodes[edge.source] for edge in edges if edge.source not in solution.released]
