"""``gpu-lost-xid79``: the GPU of a rank is off the bus, by NVML or by the kernel."""

from __future__ import annotations

from ...model.verdict import Action, NextStep
from ..devices import gpu_name, troubles
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.roots():
        if not node.id.startswith("gpu:lost:"):
            continue
        known = next((trouble for trouble in troubles(context.job) if trouble.id == node.id), None)
        facts = known.facts if known is not None else ()
        owner = f" (rank {node.rank})" if node.rank is not None else ""
        return Explanation(
            fact=f"GPU {gpu_name(node)}{owner} is lost: " + (facts[0][0] if facts else node.label),
            evidence=tuple(line(text, ref) for text, ref in facts),
            action=Action(
                kind="drain-node",
                safe_to_kill=True,
                text=f"take {node.host or 'the node'} out of service: the GPU needs a reset or reboot",
            ),
            next=(
                NextStep(text="the kernel's lines on the GPU", command="dmesg -T | grep -iE 'xid|nvrm|aer'"),
            ),
        )
    return None


RULE = Rule(
    id="gpu-lost-xid79",
    kinds=("rank-blocked",),
    needs="a GPU that NVML calls lost, or that fell off the bus by the kernel's log",
    explain=explain,
)
