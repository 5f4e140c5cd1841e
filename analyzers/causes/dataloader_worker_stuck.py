"""``dataloader-worker-stuck``: the rank waits for a batch, and the worker that should make it is stuck."""

from __future__ import annotations

from ...model.verdict import Action
from ..places import place, shown
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.roots():
        process = context.process(node)
        if process is None or process.role != "dataloader":
            continue
        wait = node.wait
        what = wait.why or wait.kind.value if wait is not None else "has ended"
        where = place(shown(wait))
        fact = f"dataloader worker pid {process.pid}: {what}" + (f" at {where}" if where else "")
        return Explanation(
            fact=fact,
            evidence=(line(fact, node.refs[0] if node.refs else process.ref),),
            action=Action(
                kind="fix-code",
                safe_to_kill=True,
                text="look at what the worker reads; a `timeout=` on the DataLoader makes it an error",
            ),
        )
    return None


RULE = Rule(
    id="dataloader-worker-stuck",
    kinds=("rank-blocked",),
    needs="a dataloader worker at the end of the waiting",
    explain=explain,
)
