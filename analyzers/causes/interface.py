"""What a cause rule is: it explains a root that the graph has found, and never chooses one.

To add a rule: one file here with ``RULE``, and one line in ``causes/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ...model.facts import Frame, MemoryCgroup, Process, Ref, ThreadSample
from ...model.graph import Node
from ...model.verdict import Action, EvidenceLine, Kind, NextStep
from ...model.waits import Wait
from ..decide import Decision
from ..finding import Finding, blocked_at
from ..graph import Built
from ..graph.resources import full_cgroup
from ..job import Job
from ..membership import Membership
from ..presence import Presence
from ..solve import Solution


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """``fact`` is the one deciding fact, for the report's second line."""

    fact: str
    evidence: tuple[EvidenceLine, ...] = ()
    action: Action
    next: tuple[NextStep, ...] = ()


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule may look at."""

    job: Job
    decision: Decision
    finding: Finding | None
    built: Built
    solution: Solution
    membership: Membership
    presences: dict[int, Presence]

    def roots(self) -> list[Node]:
        """The nodes that the verdict names."""
        return [self.solution.nodes[id] for id in self.finding.nodes] if self.finding is not None else []

    def process(self, node: Node) -> Process | None:
        return self.job.by_pid.get((node.host or "", node.pid or -1))

    def thread(self, node: Node) -> ThreadSample | None:
        process = self.process(node)
        return self.job.threads(process).get(node.tid or -1) if process is not None else None

    def cgroup(self, node: Node) -> MemoryCgroup | None:
        """The memory cgroup at its limit that the node's process is in. A resource node has none."""
        process = self.process(node)
        return full_cgroup(self.job.capture, process) if process is not None else None

    def blocked(self) -> list[Node]:
        """The threads that are blocked: the roots themselves, or those at a root that is a resource."""
        found = []
        for node in self.roots():
            if node.type == "resource":
                found += blocked_at(node.id, self.solution)
            else:
                found.append(node)
        return found

    def ranks_of(self, node: Node) -> tuple[int, ...]:
        return (node.rank,) if node.rank is not None else ()

    def waits(self, ranks: tuple[int, ...]) -> list[Wait]:
        """The waits of the working threads of these ranks."""
        nodes = [self.solution.nodes[id] for rank in ranks for id in self.built.starts.get(rank, ())]
        return [node.wait for node in nodes if node.wait is not None]

    def frames(self, node: Node) -> tuple[Frame, ...]:
        """The stack of a thread node."""
        thread = self.thread(node)
        return (thread.stack or ()) if thread is not None else ()


class Rule(NamedTuple):
    """``needs`` says which facts the rule looks for, in words."""

    id: str
    kinds: tuple[Kind, ...]
    needs: str
    explain: Callable[[Context], Explanation | None]


def line(text: str, ref: Ref | None = None) -> EvidenceLine:
    return EvidenceLine(
        text=text,
        artifact=ref.artifact if ref is not None else None,
        line=ref.line if ref is not None else None,
    )


def gib(value: int | None) -> str:
    """Bytes as people read limits.

    >>> gib(1048576000), gib(68719476736)
    ('1000.0 MiB', '64.0 GiB')
    """
    if value is None:
        return "?"
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.1f} MiB"
