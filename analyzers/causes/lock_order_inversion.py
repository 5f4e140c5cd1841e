"""``lock-order-inversion``: threads of one process hold what the other wants. The holder is known by the
``with`` statements that enclose its place."""

from __future__ import annotations

from ...model.verdict import Action
from ..places import place, shown
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    finding = context.finding
    if finding is None:
        return None
    nodes = [context.solution.nodes[id] for id in finding.root.nodes]
    locks = [node for node in nodes if node.type == "lock"]
    threads = [node for node in nodes if node.type == "thread"]
    if len(locks) < 2 or len({(node.host, node.pid) for node in threads}) != 1:
        return None
    evidence = []
    for node in threads:
        wait = node.wait
        if wait is None or wait.lock is None:
            continue
        held = ", ".join(wait.held)
        text = f"{node.label} holds {held} and waits for {wait.lock} at {place(shown(wait))}"
        evidence.append(line(text, wait.ref))
    names = ", ".join(lock.label for lock in locks)
    return Explanation(
        fact=f"{len(threads)} threads of pid {threads[0].pid} wait for one another's locks ({names})",
        evidence=tuple(evidence),
        action=Action(
            kind="fix-code", safe_to_kill=True, text="take the locks in one order everywhere, then restart"
        ),
    )


RULE = Rule(
    id="lock-order-inversion",
    kinds=("cycle",),
    needs="two threads of a process, each inside a `with` on the lock that the other waits for",
    explain=explain,
)
