"""``network-or-device-stall``: everybody joined, and a connection between two of them loses its data."""

from __future__ import annotations

from ...model.verdict import Action, NextStep
from ..graph.links import stalled
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    ids = {node.id for node in context.roots() if node.id.startswith("link:")}
    found = [item for item in stalled(context.job) if item.id in ids] if ids else []
    if not found:
        return None
    nodes = sorted({node for item in found for node in item.nodes})
    where = f"between {' and '.join(nodes[:4])}" if len(nodes) > 1 else f"on {nodes[0]}"
    return Explanation(
        fact=found[0].text,
        evidence=tuple(line(item.text, item.ref) for item in found[:4]),
        action=Action(
            kind="restart",
            safe_to_kill=True,
            text=f"test the network {where} before restarting; no rank is to blame",
        ),
        next=(
            NextStep(text="the connections as the kernel sees them", command="ss -tinop state established"),
        ),
    )


RULE = Rule(
    id="network-or-device-stall",
    kinds=("rank-blocked",),
    needs="tcp_info of the connections between ranks in two samples",
    explain=explain,
)
