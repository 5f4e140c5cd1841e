"""``collective-order-mismatch``: one place in the code, different operations or sizes."""

from __future__ import annotations

from ...model.ranges import ranks_phrase
from ...model.verdict import Action
from ..places import place, shown
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    finding = context.finding
    if finding is None or finding.split is None:
        return None
    described = []
    for part in finding.split.parts[:4]:
        size = f" {part.shape[0]}" if part.shape[0] else ""
        kind = f" {part.shape[1]}" if part.shape[1] else ""
        described.append((f"{ranks_phrase(part.ranks)}: {part.label}{size}{kind}", part.joiners[0]))
    where = place(shown(finding.split.parts[0].joiners[0].wait))
    return Explanation(
        fact=f"at {where}: " + "; ".join(text for text, _joiner in described),
        evidence=tuple(
            line(text, joiner.entry.ref if joiner.entry is not None else joiner.wait.ref)
            for text, joiner in described
        ),
        action=Action(
            kind="fix-code",
            safe_to_kill=True,
            text="make every rank issue the same operation with equal sizes",
        ),
    )


RULE = Rule(
    id="collective-order-mismatch",
    kinds=("mismatch",),
    needs="ranks of one group at one place with different operations, sizes or types",
    explain=explain,
)
