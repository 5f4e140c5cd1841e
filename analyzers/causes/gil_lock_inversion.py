"""``gil-lock-inversion``: a thread keeps the GIL while it waits in C for one that needs the GIL."""

from __future__ import annotations

from ...model.verdict import Action
from ..graph.inside import gil_keepers
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    finding = context.finding
    if finding is None:
        return None
    nodes = [context.solution.nodes[id] for id in finding.root.nodes]
    threads = [node for node in nodes if node.type == "thread"]
    for node in threads:
        process = context.process(node)
        if process is None or node.tid not in gil_keepers(context.job, process):
            continue
        others = [other for other in threads if other.id != node.id]
        if not others:
            continue
        names = ", ".join(other.label for other in others)
        fact = f"{node.label} keeps the GIL while it waits; {names} needs it to go on"
        return Explanation(
            fact=fact,
            evidence=(line(fact, node.refs[0] if node.refs else None),),
            action=Action(
                kind="fix-code",
                safe_to_kill=True,
                text="the C call must release the GIL before it waits (Py_BEGIN_ALLOW_THREADS)",
            ),
        )
    return None


RULE = Rule(
    id="gil-lock-inversion",
    kinds=("cycle",),
    needs="the owner of the GIL in two samples, blocked, and a thread that waits for the GIL",
    explain=explain,
)
