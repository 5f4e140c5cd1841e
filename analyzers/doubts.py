"""Why a finding may be another one than it looks: each returns the reason as a clause, or an empty text."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.ranges import ranks_phrase
from ..model.waits import WaitKind
from .finding import Finding
from .graph.operations import UNKNOWN_MEMBERS
from .solve import Solution

OPEN_ENDED = frozenset(
    {
        WaitKind.SOCKET,
        WaitKind.POLL,
        WaitKind.PIPE,
        WaitKind.FIFO,
        WaitKind.FILE_LOCK,
        WaitKind.STORE,
        WaitKind.RENDEZVOUS,
        WaitKind.UNKNOWN,
    }
)
"""Waits that any process could end: who should have is not known once no other end was captured."""


def left_by_absent(first: Finding, absent: Iterable[Finding]) -> str:
    """Why a missing rank may be the one: who should end a wait that leaves the process is not known (a
    connection that nobody makes, a file that nobody writes); it may have been the missing rank."""
    missing = {rank for finding in absent for rank in finding.ranks} - set(first.ranks)
    if first.kind != "rank-blocked" or not missing or not (first.live or first.wait in OPEN_ENDED):
        return ""
    ended = f"{ranks_phrase(missing)} {'has' if len(missing) == 1 else 'have'} ended, stopped or never come"
    return f"{ended}, and may be what {ranks_phrase(first.ranks)} waits for"


def unknown_members(first: Finding, same: Iterable[Finding]) -> str:
    """Why it may be another one: an operation waits for somebody who cannot be told, and several ranks that
    have their own reason not to come are outside of it."""
    others = [finding for finding in same if finding is not first]
    rivals = [finding for finding in others if finding.kind != "undecided" and finding.ranks]
    if not rivals or not any(UNKNOWN_MEMBERS in finding.root.nodes for finding in others):
        return ""
    ranks = {rank for finding in (first, *rivals) for rank in finding.ranks}
    return f"{ranks_phrase(ranks)} are outside the operation, and which of them it waits for is not known"


def ambiguous(first: Finding, findings: Iterable[Finding], solution: Solution) -> str:
    """Why the finding cannot be told from another one: a wait for *some thread* of a process leads to
    several different roots."""
    mine = set(first.root.nodes) | set(first.nodes)
    foreign = {
        id
        for finding in findings
        if finding is not first and finding.root.nodes != first.root.nodes
        for id in finding.root.nodes
    } - mine
    if not foreign:
        return ""
    for id, node in solution.nodes.items():
        if not id.startswith("inside:") or id in solution.released:
            continue
        ends = _reachable(id, solution)
        if ends & mine and ends & foreign:
            return (
                f"rank {node.rank} waits for one of its threads, and several of them are blocked differently"
            )
    return ""


def _reachable(start: str, solution: Solution) -> set[str]:
    seen: set[str] = set()
    queue = [start]
    while queue:
        id = queue.pop()
        if id not in seen and id not in solution.released:
            seen.add(id)
            queue.extend(edge.target for edge in solution.successors[id])
    return seen
