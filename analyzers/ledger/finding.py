"""A finding of the ledger: one root of its graph with its meaning, and the order in which findings win."""

from __future__ import annotations

from typing import get_args

import msgspec

from hangscope.model.graph import Root
from hangscope.model.verdict import Confidence, Kind, RootType

from .alignment import Operation
from .differences import Difference

PRECEDENCE: tuple[Kind, ...] = get_args(Kind)

Cap = tuple[Confidence, str]
"""The most that the verdict may be, and why."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One root with its meaning. ``operations``: those that lead to it or stand on it, nearest first."""

    kind: Kind
    type: RootType = "rank"
    ranks: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    cause: str | None = None
    fact: str = ""
    root: Root | None = None
    operations: tuple[Operation, ...] = ()
    difference: Difference | None = None
    unknown: tuple[int, ...] = ()
    caps: tuple[Cap, ...] = ()
    hard: bool = False
    """The machine itself says so."""
    at: str | None = None
    """PCI address, where a GPU is the root."""

    @property
    def named(self) -> bool:
        return self.kind != "undecided" and bool(self.ranks or self.type != "rank")


def order(finding: Finding) -> tuple[object, ...]:
    """Sort key: the larger impact first, then the kinds' precedence, then the lowest rank."""
    return (
        -len(finding.victims),
        PRECEDENCE.index(finding.kind),
        not finding.hard,
        finding.ranks,
        finding.fact,
    )
