"""``rank-never-started``: the others wait for a rank of which no process was ever there, on a node that
should host it and whose scan was complete."""

from __future__ import annotations

from ...model.ranges import ranks_phrase
from ...model.verdict import Action
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    missing = [
        context.presences[node.rank]
        for node in context.roots()
        if node.rank is not None and context.presences[node.rank].being == "never"
    ]
    if not missing:
        return None
    ranks = ranks_phrase([presence.rank for presence in missing])
    size = context.job.world_size
    there = len(context.job.ranks)
    return Explanation(
        fact=f"{there} of {size} ranks exist; {ranks} never came",
        evidence=tuple(line(f"rank {presence.rank}: {presence.why}") for presence in missing[:4]),
        action=Action(
            kind="fix-config",
            safe_to_kill=True,
            text=f"start {ranks}, or set the world size to what is started",
        ),
    )


RULE = Rule(
    id="rank-never-started",
    kinds=("rank-absent",),
    needs="a complete scan of the node that should host the rank",
    explain=explain,
)
