"""``pp-p2p-order-cycle``: every rank of a ring sends (or receives) and none does the other half."""

from __future__ import annotations

from ...model.verdict import Action
from ...model.waits import WaitKind
from ..places import place, shown
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    finding = context.finding
    if finding is None:
        return None
    nodes = [context.solution.nodes[id] for id in finding.root.nodes]
    threads = [n for n in nodes if n.type == "thread" and n.wait is not None]
    transfers = [n for n in threads if n.wait is not None and n.wait.kind in (WaitKind.SEND, WaitKind.RECV)]
    if not transfers or len(transfers) != len(threads):
        return None
    texts = []
    for node in transfers:
        wait = node.wait
        assert wait is not None
        verb = "sends to" if wait.kind is WaitKind.SEND else "receives from"
        texts.append((f"rank {node.rank} {verb} rank {wait.peer} at {place(shown(wait))}", wait.ref))
    return Explanation(
        fact=" → ".join(str(node.rank) for node in transfers[:8])
        + ": a ring of transfers, none with its other half",
        evidence=tuple(line(text, ref) for text, ref in texts[:8]),
        action=Action(
            kind="fix-code",
            safe_to_kill=True,
            text="let half of the ranks receive first, or use batch_isend_irecv",
        ),
    )


RULE = Rule(
    id="pp-p2p-order-cycle",
    kinds=("cycle",),
    needs="the peers of every send and receive on the ring",
    explain=explain,
)
