"""``device-side-wedge``: every host has launched its work, and one device does not do it."""

from __future__ import annotations

from ...model.graph import Node
from ...model.verdict import Action, NextStep
from ...model.waits import WaitKind
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    node = next((node for node in context.roots() if _is_device(node)), None)
    if node is None or context.finding is None or context.finding.type != "gpu":
        return None
    fact = node.label
    if node.wait is not None:
        fact = f"rank {node.rank} waits for its device, and no operation that it launched is unfinished"
    return Explanation(
        fact=fact,
        evidence=tuple(line(fact, ref) for ref in node.refs[:1]),
        action=Action(
            kind="restart",
            safe_to_kill=True,
            text=f"restart without this GPU of {node.host}; drain the node should it lag again",
        ),
        next=(
            NextStep(
                text="power, utilisation and errors of the GPUs of that node",
                command="nvidia-smi -q -d POWER,UTILIZATION,ECC; dmesg -T | grep -iE 'xid|nvrm'",
            ),
        ),
    )


def _is_device(node: Node) -> bool:
    """A device behind its peers', or a thread that waits for a device with nothing unfinished."""
    waits = node.wait is not None and node.wait.kind is WaitKind.DEVICE
    return node.id.startswith("device:") or waits


RULE = Rule(
    id="device-side-wedge",
    kinds=("rank-blocked",),
    needs="flight-recorder states: started on the peers, only scheduled here; or all complete",
    explain=explain,
)
