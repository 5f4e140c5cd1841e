"""``rank-local-condition-divergence``: the same operation, called from another place."""

from __future__ import annotations

from .interface import Context, Explanation, Rule
from .rank_skips_collective import divergence, parts_of


def explain(context: Context) -> Explanation | None:
    """Often the operation's name is the same: the callers above it differ."""
    parts = parts_of(context)
    if parts is None:
        return None
    majority, minority = parts
    return divergence(context, majority, minority, "calls from another place")


RULE = Rule(
    id="rank-local-condition-divergence",
    kinds=("rank-diverged",),
    needs="ranks of one group in one operation from different call chains, and a majority",
    explain=explain,
)
