"""``rank-died-peers-wait``: a rank ended, by itself or by a signal other than SIGKILL, and its peers wait."""

from __future__ import annotations

from ...model.verdict import Action
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.roots():
        presence = context.presences.get(node.rank) if node.rank is not None else None
        if presence is None or presence.being not in ("dead", "gone"):
            continue
        ref = presence.refs[0] if presence.refs else None
        return Explanation(
            fact=presence.why,
            evidence=(line(f"rank {node.rank}: {presence.why}", ref),),
            action=Action(
                kind="restart",
                safe_to_kill=True,
                text="read the end of that rank's output for the reason, then restart",
            ),
        )
    return None


RULE = Rule(
    id="rank-died-peers-wait",
    kinds=("rank-absent",),
    needs="a rank whose process has ended",
    explain=explain,
)
