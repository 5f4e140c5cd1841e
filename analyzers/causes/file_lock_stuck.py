"""``file-lock-stuck``: a rank waits for a file lock that a process holds, or that a dead one left."""

from __future__ import annotations

from ...model.facts import Ref
from ...model.verdict import Action
from ...model.waits import WaitKind
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    finding = context.finding
    if finding is None:
        return None
    for node in context.roots():
        if node.wait is not None and node.wait.kind is WaitKind.FILE_LOCK:
            what = node.wait.remote or node.wait.lock or "a lock file"
            fact = f"{node.label} waits for {what}, and no living process was seen to hold it"
            return _explained(fact, node.wait.ref)
        for edge in context.solution.predecessors.get(node.id, ()):
            lock = context.solution.nodes[edge.source]
            if lock.type == "lock" and ":file:" in lock.id:
                fact = f"{lock.label} is held by {node.label}"
                return _explained(fact, lock.refs[0] if lock.refs else None)
    return None


def _explained(fact: str, ref: Ref | None) -> Explanation:
    return Explanation(
        fact=fact,
        evidence=(line(fact, ref),),
        action=Action(
            kind="fix-config",
            safe_to_kill=True,
            text="end the holder, or remove the lock file that a dead job left, before restarting",
        ),
    )


RULE = Rule(
    id="file-lock-stuck",
    kinds=("rank-blocked",),
    needs="a wait for a file lock",
    explain=explain,
)
