"""The wait-for graph as a value: nodes, edges, and what was decided about the sinks."""

from __future__ import annotations

from typing import Literal

import msgspec

from .facts import Ref
from .waits import Wait

NodeType = Literal["thread", "operation", "lock", "queue", "process", "resource", "absent", "unknown"]
Certainty = Literal["observed", "inferred", "possible"]
Mode = Literal["and", "or"]
SinkClass = Literal["stuck", "live", "service", "unknown"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A vertex. ``id`` is unique and stable under relabelling of everything but its own identity."""

    id: str
    type: NodeType
    label: str
    host: str | None = None
    rank: int | None = None
    pid: int | None = None
    tid: int | None = None
    wait: Wait | None = None
    sink: SinkClass | None = None
    progress: bool | None = None
    """For sinks: True with evidence of progress, False with evidence of none, None when not known."""
    refs: tuple[Ref, ...] = ()


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """``source`` cannot go on before ``target``. All AND edges of a node must be released; of its OR
    edges one is enough."""

    source: str
    target: str
    mode: Mode = "and"
    certainty: Certainty = "observed"
    why: str = ""
    refs: tuple[Ref, ...] = ()


class WaitGraph(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """An end of the waiting: one sink, or one strongly connected component with no way out."""

    nodes: tuple[str, ...]
    """Node ids: one for a sink, the members of the component for a knot."""
    ranks: tuple[int, ...]
    """Global ranks that the root stands for (its own, not its victims)."""
    victims: tuple[int, ...]
    """Ranks that reach it, its own not counted."""
    impact: int
    is_cycle: bool = False
    certainty: Certainty = "observed"
    """The weakest edge on the way from the victims."""
    inferred_edges: int = 0
