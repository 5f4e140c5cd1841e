"""``store-wait-missing-rank``: ranks wait at the rendezvous store for one that does not come."""

from __future__ import annotations

from ...model.verdict import Action
from ...model.waits import WaitKind
from .interface import Context, Explanation, Rule, line

STORE = (WaitKind.STORE, WaitKind.RENDEZVOUS)


def explain(context: Context) -> Explanation | None:
    finding = context.finding
    if finding is None or not finding.ranks:
        return None
    waits = context.waits(finding.victims[:64])
    if not waits or not all(wait.kind in STORE for wait in waits):
        return None
    ranks = ", ".join(str(rank) for rank in finding.ranks)
    fact = f"the others wait at the store for what rank {ranks} should write"
    return Explanation(
        fact=fact,
        evidence=(line(fact, waits[0].ref),),
        action=Action(kind="restart", safe_to_kill=True, text=f"look at rank {ranks} first"),
    )


RULE = Rule(
    id="store-wait-missing-rank",
    kinds=("rank-blocked",),
    needs="victims that wait at the store",
    explain=explain,
)
