"""``slow-not-stuck``: progress was seen, and the same few ranks come last in every sample."""

from __future__ import annotations

from ...model.ranges import ranks_phrase
from ...model.verdict import Action, NextStep
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    rested = context.decision.calm
    if rested is None or not rested.moves:
        return None
    late = ranks_phrase(rested.stragglers)
    text, ref = rested.texts[0]
    return Explanation(
        fact=f"{text}; the others wait for {late} in most samples",
        evidence=tuple(line(found, where) for found, where in rested.texts[:4]) or (line(text, ref),),
        action=Action(kind="wait", safe_to_kill=False, text=f"do not kill it; profile {late}"),
        next=tuple(
            NextStep(text=f"where rank {rank} spends its time", command=f"py-spy top --pid {process.pid}")
            for rank in rested.stragglers[:1]
            if (process := context.job.ranks.get(rank)) is not None
        ),
    )


RULE = Rule(
    id="slow-not-stuck",
    kinds=("slow",),
    needs="evidence of progress",
    explain=explain,
)
