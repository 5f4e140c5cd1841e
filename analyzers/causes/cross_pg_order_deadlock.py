"""``cross-pg-order-deadlock``: ranks enter operations of two process groups in different order."""

from __future__ import annotations

from ...model.ranges import ranks_phrase
from ...model.verdict import Action
from ..graph.operations import slot_label
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    finding = context.finding
    if finding is None:
        return None
    slots = [context.built.slots[id] for id in finding.root.nodes if id in context.built.slots]
    if len({slot.group for slot in slots}) < 2:
        return None
    texts = [f"{ranks_phrase(slot.ranks)} in {slot_label(slot)}" for slot in slots]
    refs = [next((j.entry.ref for j in slot.joiners if j.entry is not None), None) for slot in slots]
    return Explanation(
        fact="; ".join(texts[:3]) + ": each waits for the other's ranks",
        evidence=tuple(line(text, ref) for text, ref in zip(texts, refs, strict=True)),
        action=Action(
            kind="fix-code",
            safe_to_kill=True,
            text="call the operations of both groups in the same order on every rank",
        ),
    )


RULE = Rule(
    id="cross-pg-order-deadlock",
    kinds=("cycle",),
    needs="the pending operations of two or more process groups",
    explain=explain,
)
