"""``rank-skips-collective``: the ranks that left the path stand in another operation than the majority."""

from __future__ import annotations

from ...model.ranges import ranks_phrase
from ...model.verdict import Action
from ..places import place, shown
from ..single_group import Part
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    """Another operation from another place: one of theirs was skipped, or one was added."""
    parts = parts_of(context)
    if parts is None:
        return None
    majority, minority = parts
    if all(part.label == majority.label for part in minority):
        return None
    return divergence(context, majority, minority, "is in another operation, from another place")


def parts_of(context: Context) -> tuple[Part, list[Part]] | None:
    """The majority's part and the others, of a group whose ranks took different paths."""
    finding = context.finding
    if finding is None or finding.split is None or finding.split.majority is None:
        return None
    majority = finding.split.majority
    return majority, [part for part in finding.split.parts if part is not majority]


def divergence(context: Context, majority: Part, minority: list[Part], how: str) -> Explanation:
    finding = context.finding
    assert finding is not None and finding.split is not None
    first = minority[0]
    here, there = place(shown(first.joiners[0].wait)), place(shown(majority.joiners[0].wait))
    who = ranks_phrase(finding.ranks)
    fact = f"{who} {how}: {first.label} at {here}; the others {majority.label} at {there}"
    evidence = [
        line(
            f"{ranks_phrase(part.ranks)} in {part.label} at {place(shown(part.joiners[0].wait))}",
            part.joiners[0].wait.ref,
        )
        for part in finding.split.parts[:5]
    ]
    if finding.split.recorded:
        entry = first.joiners[0].entry
        evidence.append(
            line(
                "the flight recorders show different operations at one sequence number",
                entry.ref if entry is not None else None,
            )
        )
    if finding.split.ordered:
        evidence.append(line("in the common function its line lies after the majority's: it went past it"))
    return Explanation(
        fact=fact,
        evidence=tuple(evidence),
        action=Action(
            kind="fix-code",
            safe_to_kill=True,
            text=f"find the condition that led {who} another way; every rank must make the same calls",
        ),
    )


RULE = Rule(
    id="rank-skips-collective",
    kinds=("rank-diverged",),
    needs="ranks of one group in different operations, and a majority",
    explain=explain,
)
