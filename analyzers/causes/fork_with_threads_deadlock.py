"""``fork-with-threads-deadlock``: a forked child waits for a lock whose holder was a thread of the parent:
threads do not survive a fork, so that nobody is left to release it."""

from __future__ import annotations

from ...model.graph import Node
from ...model.verdict import Action
from ...model.waits import WaitKind
from ..job import IDLE
from ..places import place, shown
from .interface import Context, Explanation, Rule, line


def explain(context: Context) -> Explanation | None:
    for node in context.roots():
        process = context.process(node)
        if process is None or process.role == "rank" or not process.forked or not _orphaned(context, node):
            continue
        wait = node.wait
        assert wait is not None
        name = wait.lock or "a lock"
        fact = f"{process.role} pid {process.pid} waits for {name}, which no thread of it holds"
        evidence = [
            line(f"{fact} ({place(shown(wait)) or 'place unknown'})", wait.ref),
            line(
                f"pid {process.pid} was forked from pid {process.ppid} and never ran another program",
                process.ref,
            ),
        ]
        parent = context.job.by_pid.get((process.node, process.ppid))
        if parent is not None:
            count = len(context.job.threads(parent))
            evidence.append(line(f"its parent runs {count} threads", parent.ref))
        return Explanation(
            fact=fact,
            evidence=tuple(evidence),
            action=Action(
                kind="fix-code",
                safe_to_kill=True,
                text="start workers before threads, or with multiprocessing_context='spawn' or 'forkserver'",
            ),
        )
    return None


def _orphaned(context: Context, node: Node) -> bool:
    """A lock wait, and no other thread of the process that could hold the lock."""
    if node.wait is None or node.wait.kind is not WaitKind.LOCK:
        return False
    process = context.process(node)
    if process is None:
        return False
    others = [tid for tid in context.job.threads(process) if tid != node.tid]
    return all(context.job.wait(process, tid).kind in IDLE for tid in others)


RULE = Rule(
    id="fork-with-threads-deadlock",
    kinds=("rank-blocked",),
    needs="a forked child that waits for a lock without a living holder",
    explain=explain,
)
